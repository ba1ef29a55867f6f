"""Write the content of one or several stores as another number of stores: each session goes to the store of its client
id, each retained message to the one of its topic. Knows which store has what; not which of them counts.

The records are read twice. The first walk computes what is still needed (state.py), the second writes that, in the
order of the log, so that a later record replaces the same earlier ones as before. Positions, packet ids and progress of
a session do not change, only its number in the store. Left out is what belongs to links between the workers of before:
the new stores begin new links. Positions in streams go to the store of the process that opens that part of the
stream next (mosq/server/storage.py). A message that a part of these workers had already delivered goes to the others
only: `partly.py` finds the sessions that lack it, and records name these behind all other records, in the order of its
publisher.

A message is written once for each store that needs it. The copies of one message in several stores become one again if
they are at least SHARED_BYTES long. Memory: that of state.py for each store that is read, 16 bytes and a key for
each such message, and one payload at a time, with those of all messages that a part of the workers had delivered.
"""

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from mosq._core import record_decode, record_encode
from mosq.tools.db import kinds
from mosq.tools.db.partly import LinkedState, Rest, Spread, decide, groups_of, joined, split
from mosq.tools.db.read import walk_whole
from mosq.tools.db.state import record_size
from mosq.tools.db.store import NewStore, StoreError, StoreSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mosq.tools.db.read import Each

    # done and all, in bytes that are read
    Progress = Callable[[int, int], None]

SHARED_BYTES = 128              # of topic, properties and payload
DIGEST_BYTES = 16
PID_HALF = 32768
LISTED = 10                     # lines about the same thing


class Content(LinkedState):
    """The state of one store, with what another store must know in addition."""

    def __init__(self, has_digests: bool, restored: bool = False) -> None:
        super().__init__(restored)
        self._has_digests = has_digests
        self.snos: dict[bytes, int] = {}                # by client id
        self.last_pids: dict[int, int] = {}             # by session
        self.origins: dict[int, tuple[int, bytes]] = {} # by session: listener and mount point
        self.publishers: dict[bytes, int] = {}          # topic of a retained message: lsn of its RETAINED_FROM
        self.digests: dict[int, bytes] = {}             # of each live message that is long: by lsn
        self.streams: dict[bytes, list[int]] = {}       # positions behind the committed records, by name

    def _session(self, lsn: int, f: dict[Any, Any]) -> None:
        sno, other = f["sno"], self.snos.get(f["id"])
        known = self.sessions.get(sno)
        if known is not None and known.lsn >= 0 and known.id != f["id"]:
            self._end(lsn, {"sno": sno})                # the record of the end is missing
        if other is not None and other != sno:
            self._end(lsn, {"sno": other})
        self.snos[f["id"]] = sno
        self.last_pids[sno] = f.get("last_pid", 0)
        self.origins[sno] = f.get("security", 0), f.get("mount", b"")
        super()._session(lsn, f)

    def _end(self, lsn: int, f: dict[Any, Any]) -> None:
        sno = f["sno"]
        session = self.sessions.get(sno)
        if session is not None and self.snos.get(session.id) == sno:
            del self.snos[session.id]
        self.last_pids.pop(sno, None)
        self.origins.pop(sno, None)
        super()._end(lsn, f)

    def _msg(self, lsn: int, f: dict[Any, Any]) -> None:
        super()._msg(lsn, f)
        for sno, _position, pid, qos, _sub_id in f["entries"]:
            last = self.last_pids.get(sno, 0)
            if qos & 3 and pid and (last == 0 or 0 < (pid - last) % 65535 < PID_HALF):
                self.last_pids[sno] = pid
        if f["retained_set"]:
            self.publishers.pop(f["topic"], None)
        if self._has_digests and len(f["topic"]) + len(f["props"]) + len(f["payload"]) >= SHARED_BYTES:
            self.digests[lsn] = digest_of(f)

    def _unref(self, lsn: int) -> None:
        super()._unref(lsn)
        if lsn not in self.live:
            self.digests.pop(lsn, None)

    def _retained_gone(self, lsn: int, f: dict[Any, Any]) -> None:
        super()._retained_gone(lsn, f)
        self.publishers.pop(f["topic"], None)

    def _retained_from(self, lsn: int, f: dict[Any, Any]) -> None:
        if f["topic"] in self.retained:
            self.publishers[f["topic"]] = lsn

    def _streams(self, _lsn: int, f: dict[Any, Any]) -> None:
        self.streams = {one["name"]: one["seqs"] for one in f["streams"]}


def digest_of(f: dict[Any, Any]) -> bytes:
    """Return the same for the copies of a message in several stores."""
    hashed = blake2b(b"%d %d %d %d %d %d " % (f["qos"], f["retain"], f.get("again", False), f["expires_wall_ms"],
                                              len(f["topic"]), len(f["props"])), digest_size=DIGEST_BYTES)
    for part in (f["topic"], f["props"], f["payload"]):
        hashed.update(part)
    return hashed.digest()


class Old:
    """One store that is read."""

    def __init__(self, path: str, place: int, has_digests: bool, restored: bool,
                 progress: "Callable[[int], None]") -> None:
        self.source, self.place = StoreSource(path), place
        self.content = Content(has_digests)

        def begin() -> "Each":
            self.content = Content(has_digests, restored)
            return self.content.apply

        self.loss, self.unreadable = walk_whole(self.source, begin, progress)
        self.content.end()
        self.numbers: dict[int, tuple[int, int]] = {}       # session: new store, and its number there
        self.copies: dict[int, tuple[bytes, int]] = {}      # lsn: digest, and how many equal ones were before it

    def whole(self) -> bool:
        """Return whether all records could be read."""
        return not (self.loss["n"] or self.loss["unreadable"] or self.loss["foreign"] or self.unreadable.n)

    def number_copies(self) -> None:
        """Name each long message, so that the same message has the same name in another store."""
        before: dict[bytes, int] = {}
        for lsn in sorted(self.content.digests):
            digest = self.content.digests[lsn]
            n = before.get(digest, 0)
            before[digest] = n + 1
            self.copies[lsn] = digest, n
        self.content.digests.clear()


class Division:
    """Divide the stores in `paths`, which `old` describes, into the stores in `targets`, which `new` describes.
    `places`: of the workers of `paths`, if some have no store. `restored`: they come from a backup, so they end at
    different moments."""

    def __init__(                       # parameters: two descriptions of stores
            self, paths: list[str], old: Spread, targets: list[str], new: Spread,
            progress: "Progress | None" = None, places: list[int] | None = None, restored: bool = False) -> None:
        self.old, self.new, self.targets = old, new, targets
        self.warnings: list[str] = []
        self.sessions = self.retained = 0
        self._progress = progress
        self._total = 2 * sum(StoreSource(path).total_bytes() for path in paths)
        self._done = 0
        self.stores = [Old(path, place, len(paths) > 1, restored, self._advance)
                       for path, place in zip(paths, places or range(len(paths)), strict=False)]
        self._left: dict[tuple[bytes, int], int] = {}       # copies of a message that are not read yet
        self._waiting: dict[tuple[bytes, int], list[Any]] = {}      # deliveries of the copies before
        self._resolve()

    def _advance(self, further: int) -> None:
        self._done += further
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)

    def live_bytes(self) -> int:
        """Return about how many bytes the new stores need at least."""
        return sum(store.content.live_bytes() for store in self.stores)

    def whole(self) -> bool:
        return all(store.whole() for store in self.stores)

    # -- what counts

    def _resolve(self) -> None:
        """Number the sessions of the new stores. If two stores have the same client id or topic, which no broker
        writes, the one where it belongs counts."""
        last = [0] * self.new.n
        self._owners: dict[bytes, int] = {}
        self._of_topic: dict[bytes, int] = {}
        several = len(self.stores) > 1
        double = 0
        for store in self.stores if several else ():
            for client_id in store.content.snos:
                double += self._claim(self._owners, client_id, store.place)
            for topic in store.content.retained:
                double += self._claim(self._of_topic, topic, store.place)
        if double:
            self.warnings.append(f"{double} client ids or topics are in several of the stores; the store where each "
                                 "belongs counts.")
        for store in self.stores:
            for sno, session in store.content.sessions.items():
                if session.lsn >= 0 and self._owners.get(session.id, store.place) == store.place:
                    place = self.new.place(session.id)
                    last[place] += 1
                    store.numbers[sno] = place, last[place]
            self.retained += sum(self._counts(topic, store) for topic in store.content.retained)
            self.sessions += len(store.numbers)
            if several:
                store.number_copies()
                for name in store.copies.values():
                    self._left[name] = self._left.get(name, 0) + 1
        self._numbers = [0] * self.new.n    # last number of a will that waits, or of an undelivered message
        # key of the order, new store, fields: of an undelivered message
        self._undelivered_ones: list[tuple[tuple[int, int, int], int, dict[Any, Any]]] = []
        self._decide_partly()

    def _claim(self, owners: dict[bytes, int], name: bytes, place: int) -> bool:
        """Note which store a name is in; return whether another one has it too."""
        other = owners.setdefault(name, place)
        if other != place and self.old.place(name) == place:
            owners[name] = place
        return other != place

    def _counts(self, topic: bytes, store: Old) -> bool:
        return self._of_topic.get(topic, store.place) == store.place

    def _decide_partly(self) -> None:
        self._links = {store.place: store.content.links for store in self.stores}
        self._of_place = {store.place: store for store in self.stores}
        if not any(one.content.links.open or one.content.links.wills or one.content.undelivered for one in self.stores):
            return
        for store in self.stores:
            sessions = store.content.sessions
            store.content.links.learn(sessions[sno] for sno in store.numbers)
        decide(self._links, self.old)

    # -- the second walk

    def write(self, made_by: str) -> None:
        """Write the new stores, to the disk. Raises StoreError."""
        made: list[NewStore] = []
        try:
            for path in self.targets:
                made += [NewStore(path, made_by)]
            for store in self.stores:
                self._copy(store, made)
            for _, place, fields in sorted(self._undelivered_ones, key=lambda one: one[:2]):
                self._numbers[place] += 1
                made[place].add(kinds.UNDELIVERED,
                                record_encode(kinds.UNDELIVERED, {**fields, "number": self._numbers[place]}))
            if self._waiting:
                raise StoreError(f"{self.targets[0]}: deliveries without their message; nothing was changed")
            for place, positions in self._positions().items():
                made[place].add(kinds.STREAMS, record_encode(kinds.STREAMS, {"streams": positions}))
            for one in made:
                one.finish()
        finally:
            reasons = [f"{one.path}: {why}" for one in made if (why := one.close())]
        if reasons:
            raise StoreError(reasons[0])

    def _positions(self) -> "dict[int, list[dict[str, Any]]]":
        """Return the positions in streams for each new store. Without them, a start would take records behind a mark
        for committed ones."""
        found: dict[int, list[dict[str, Any]]] = {}
        for store in self.stores:
            own = store.place + 1 if self.old.n > 1 else 0
            for named, seqs in store.content.streams.items():
                name, _, left = named.partition(b".")
                part = int(left) if left.isdigit() else own
                stays = 0 < part <= self.new.n if self.new.n > 1 else part == 0
                place = part - 1 if stays and part else 0
                found.setdefault(place, []).append({"name": name if stays else b"%b.%d" % (name, part), "seqs": seqs})
        return found

    def _copy(self, store: Old, made: list[NewStore]) -> None:
        def given(several: list[tuple[int, int, int, bytes]]) -> None:
            size = 0
            for lsn, kind, _flags, body in several:
                size += record_size(len(body))
                try:
                    fields = record_decode(kind, body)
                except ValueError:
                    continue        # counted in the first walk
                for place, kept in self._records(store, lsn, kind, fields):
                    made[place].add(kind, record_encode(kind, kept))
            self._advance(size)

        loss = store.source.scan(given)
        if loss["moved"] or loss["end_lsn"] != store.loss["end_lsn"]:
            raise StoreError(f"{store.source.path}: it changed while it was read; expected that no broker uses it")

    def _records(self, store: Old, lsn: int, kind: int, f: dict[Any, Any]) -> "Iterator[tuple[int, dict[Any, Any]]]":
        """Yield the new store and the fields of each record that stands for this one."""
        way = getattr(self, f"_{kinds.NAMES[kind]}", None)
        if way is not None:
            yield from way(store, lsn, f) or ()         # nothing: it is noted for the end of the new stores

    def _session(self, store: Old, lsn: int, f: dict[Any, Any]) -> "Iterator[tuple[int, dict[Any, Any]]]":
        session = store.content.sessions.get(f["sno"])
        if session is not None and session.lsn == lsn and f["sno"] in store.numbers:
            place, sno = store.numbers[f["sno"]]
            yield place, {**f, "sno": sno, "last_pid": store.content.last_pids.get(f["sno"], 0)}

    def _sub(self, store: Old, lsn: int, f: dict[Any, Any]) -> "Iterator[tuple[int, dict[Any, Any]]]":
        found = store.numbers.get(f["sno"])
        if found is not None:
            kept = store.content.sessions[f["sno"]].subscriptions.get(f["filter"])
            if kept is not None and kept[2] == lsn:
                yield found[0], {**f, "sno": found[1]}

    def _msg(self, store: Old, lsn: int, f: dict[Any, Any]) -> "Iterator[tuple[int, dict[Any, Any]]]":
        content, topic = store.content, f["topic"]
        entries = self._moved(store, f["entries"], lambda entry: content.delivers(lsn, entry))
        retained = f["retained_set"] and content.is_retained(lsn, topic) and self._counts(topic, store)
        name = store.copies.get(lsn)
        if name is not None:
            left = self._left[name] = self._left[name] - 1
            if left and not retained:       # the last copy takes these deliveries along
                self._waiting.setdefault(name, []).extend(entries)
                return
            entries += self._waiting.pop(name, ())
        by_place: dict[int, list[Any]] = {self.new.place(topic): []} if retained else {}
        owner = self.new.place(topic) if retained else -1
        for place, entry in entries:
            by_place.setdefault(place, []).append(entry)
        for place, several in by_place.items():
            yield place, {**f, "retained_set": place == owner, "entries": several}

    def _gated(self, store: Old, lsn: int, f: dict[Any, Any]) -> "Iterator[tuple[int, dict[Any, Any]]]":
        sessions = store.content.sessions
        by_place: dict[int, list[Any]] = {}
        for place, entry in self._moved(store, f["entries"], lambda one: sessions[one[0]].gate.get(one[1]) == lsn):
            by_place.setdefault(place, []).append(entry)
        for place, several in by_place.items():
            yield place, {**f, "entries": several}

    def _moved(self, store: Old, entries: list[Any], is_live: "Callable[[Any], bool]") -> list[tuple[int, Any]]:
        """Return the deliveries that are still pending, with the new store and the session's number there."""
        moved = []
        for entry in entries:
            found = store.numbers.get(entry[0])
            if found is not None and is_live(entry):
                moved.append((found[0], (found[1], *entry[1:])))
        return moved

    def _released(self, store: Old, lsn: int, f: dict[Any, Any]) -> "Iterator[tuple[int, dict[Any, Any]]]":
        by_place: dict[int, list[tuple[int, int, int]]] = {}
        for sno, position, pid in f["acks"]:
            found = store.numbers.get(sno)
            if found is not None and store.content.sessions[sno].released.get(position) == (pid, lsn):
                by_place.setdefault(found[0], []).append((found[1], position, pid))
        for place, acks in by_place.items():
            yield place, {"acks": acks}

    def _inbox(self, store: Old, lsn: int, f: dict[Any, Any]) -> "Iterator[tuple[int, dict[Any, Any]]]":
        found = store.numbers.get(f["sno"])
        if found is None or store.content.sessions[f["sno"]].inbox.get(f["pid"], (-1,))[0] != lsn:
            return
        partly = store.content.links.open.get((f["sno"], f["pid"]))
        if partly is None or partly.rest is None:
            yield found[0], {**f, "sno": found[1], "identity": 0, "local_done": False}
            return
        session, (security, mount) = store.content.sessions[f["sno"]], store.content.origins[f["sno"]]
        publisher = {"id": session.id, "user": session.user, "security": security, "mount": mount}
        # without its deliveries, what its worker has written to streams was not committed either
        self._leave(store, partly.identity, partly.rest, {**f, **publisher}, not (f["journalled"] or partly.local_done))
        yield found[0], {"sno": found[1], "pid": f["pid"], "refused": True}         # the rest goes without its client

    def _will(self, store: Old, lsn: int, f: dict[Any, Any]) -> "Iterator[tuple[int, dict[Any, Any]]]":
        found = store.numbers.get(f["sno"])
        will = store.content.sessions[f["sno"]].will if found is not None else None
        if found is not None and will is not None and will[0] == lsn:
            yield found[0], {**f, "sno": found[1]}

    def _client_will(self, store: Old, lsn: int, f: dict[Any, Any]) -> "Iterator[tuple[int, dict[Any, Any]]]":
        if store.content.client_wills.get(f["id"]) == lsn:
            yield self.new.place(f["id"]), f

    def _waiting_will(self, store: Old, lsn: int, f: dict[Any, Any]) -> "Iterator[tuple[int, dict[Any, Any]]]":
        if store.content.waiting_wills.get(f["number"]) == lsn:
            place = self.new.place(f["id"])
            self._numbers[place] += 1
            yield place, {**f, "number": self._numbers[place]}

    def _link_will(self, store: Old, lsn: int, f: dict[Any, Any]) -> None:
        partly = store.content.links.wills.get(f["number"])
        if store.content.waiting_wills.get(f["number"]) == lsn and partly is not None and partly.rest is not None:
            fields = {**f, "again": True} if not partly.identity else f     # other workers may have one with QoS 1
            self._leave(store, partly.identity, partly.rest, fields, False)

    def _undelivered(self, store: Old, lsn: int, f: dict[Any, Any]) -> None:
        """Divide again what an earlier division has found, and no start has delivered."""
        if store.content.undelivered.get(f["number"]) == lsn:
            groups = {name: members for name, members in groups_of(self._links, f["topic"]).items()
                      if name == split(f["group"])}
            rest = Rest([(store.place, sno) for sno in f["sessions"]], groups, f["retained_set"])
            self._leave(store, 0, rest, f, f["unjournalled"], f["number"])

    def _leave(                         # parameters: a message, and the sessions that lack it
            self, store: Old, identity: int, rest: Rest, f: dict[Any, Any], unjournalled: bool,
            number: int = 0) -> None:
        """Note an undelivered message for each new store that lacks it. Those of one publisher are in the order of
        their identities, behind the ones of an earlier division."""
        by_place: dict[int, list[int]] = {}
        for place, sno in self._now_at(rest.sessions):
            by_place.setdefault(place, []).append(sno)
        owner = self.new.place(f["topic"]) if rest.retained else -1
        publisher = self.new.place(f["id"]) if unjournalled else -1
        targets = [(place, by_place.get(place, []), b"") for place in sorted({*by_place, owner, publisher} - {-1})]
        for name, members in rest.groups.items():
            online = [(i, sno) for i, sno in members if self._of_place[i].content.sessions[sno].connected] or members
            targets += [(place, [], joined(*name)) for place, _ in self._now_at(online)[:1]]
        for place, sessions, group in targets:
            fields = {**f, "sessions": sessions, "group": group, "retained_set": place == owner and not group,
                      "unjournalled": place == publisher and not group, "expiry_s": None}
            self._undelivered_ones.append(((identity, store.place, number), place, fields))

    def _now_at(self, sessions: "Iterable[tuple[int, int]]") -> list[tuple[int, int]]:
        """Return the new stores of sessions, and their numbers there."""
        return [found for i, sno in sessions if (found := self._of_place[i].numbers.get(sno)) is not None]

    def _retained_from(self, store: Old, lsn: int, f: dict[Any, Any]) -> "Iterator[tuple[int, dict[Any, Any]]]":
        if store.content.publishers.get(f["topic"]) == lsn and self._counts(f["topic"], store):
            yield self.new.place(f["topic"]), f
