"""Decide about QoS 2 messages that a part of the workers had delivered when the number of workers changes.

A worker keeps a message with its identity until all workers that need it have it; a worker that has delivered it keeps
the identity with the deliveries. Such an identity holds for all sessions of a worker, and the sessions move to others.
So the question is answered once, before: if each worker with a matching subscription has delivered the message, it is
done. Otherwise it is published again, and the sessions that have it get it twice.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from mosq._core import filter_fits, worker_place
from mosq.tools.db.state import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SHARE = b"$share/"
PARTS = 1 << 16
QOS = 3                         # bits of a subscription's options


class Spread(NamedTuple):
    """To how many stores clients and topics belong, and the key of the hash."""

    n: int
    key: bytes

    def place(self, name: bytes) -> int:
        return worker_place(self.key, name, self.n) if self.n > 1 else 0


class Partly:
    """A QoS 2 message with an identity, in an inbox, or a will. `again`: it is published again; `began`: a part has
    it."""

    __slots__ = ("again", "began", "identity", "local_done", "retain", "topic")

    def __init__(self, f: dict[Any, Any]) -> None:
        self.identity, self.local_done = f["identity"], f["local_done"]
        self.topic, self.retain = f["topic"], f["retain"]
        self.again, self.began = True, False


class Links:
    """Hold the part of a worker's store that belongs to its links."""

    def __init__(self) -> None:
        self.log = 0
        # log, identity and part of messages of others that it has delivered: part 0 for plain subscribers
        self.arrived: set[tuple[int, int, int]] = set()
        self.gone: set[tuple[int, int]] = set()         # log and identity of those that all workers had
        self.choices: dict[tuple[int, int], int] = {}   # identity and part: the worker that was chosen for a group
        self.open: dict[tuple[int, int], Partly] = {}   # its own messages: by session and packet id
        self.wills: dict[int, Partly] = {}              # that it has sent to others: by number
        self._exact: dict[bytes, set[bytes]] = {}       # filter: its groups; b"": without a group
        self._wild: list[tuple[bytes, bytes]] = []      # group and filter

    def learn(self, filters: "Iterable[bytes]") -> None:
        """Note the filters of all sessions of this worker."""
        for whole in dict.fromkeys(filters):
            group, filter = b"", whole
            if whole.startswith(SHARE):
                group, _, filter = whole[len(SHARE):].partition(b"/")
            if b"+" in filter or b"#" in filter:
                self._wild.append((group, filter))
            else:
                self._exact.setdefault(filter, set()).add(group)

    def matching(self, topic: bytes) -> "Iterator[tuple[bytes, bytes]]":
        """Yield group and filter of each subscription that matches."""
        for group in self._exact.get(topic, ()):
            yield group, topic
        for group, filter in self._wild:
            if filter_fits(filter, topic):
                yield group, filter


def part_of(key: bytes, group: bytes, filter: bytes) -> int:
    """Return the part of a shared group: part_of of cext/broker/links/outward.pyx."""
    return worker_place(key, b"%b%b/%b" % (SHARE, group, filter), PARTS) | 1 if key else 0


def again(partly: Partly, place: int, workers: "Mapping[int, Links]", owner: int, key: bytes) -> bool:
    """Return whether a message of the worker at `place` must be published again; set `began`. `owner`: the place of the
    worker that keeps the topic's retained message; `key`: of the workers."""
    own = workers[place]

    def has(i: int, part: int) -> bool:
        one = workers.get(i)
        return one is not None and ((own.log, partly.identity, part) in one.arrived
                                    or (own.log, partly.identity) in one.gone)

    have = {i for i in workers if i != place and has(i, 0)}
    if partly.local_done:
        have.add(place)
    groups = {found for one in workers.values() for found in one.matching(partly.topic) if found[0]}
    parts = {found: part_of(key, *found) for found in groups}
    partly.began = bool(have) or any(has(i, part) for i in workers for part in parts.values())
    if not partly.began or (partly.retain and owner not in have):
        return True
    if any(not group for i, one in workers.items() if i not in have for group, _ in one.matching(partly.topic)):
        return True
    for part in parts.values():
        chosen = own.choices.get((partly.identity, part))
        if not any(has(i, part) for i in workers) and (not partly.local_done or chosen not in (None, place)):
            return True                 # without a choice, a member of its own worker has it
    return False


class LinkedState(State):
    """The state of a store, with what it says about the links of its worker. `apart`: the stores end at different
    moments, as in a backup, or while the broker runs."""

    def __init__(self, apart: bool = False) -> None:
        super().__init__()
        self._apart = apart
        self._parts: dict[tuple[int, int], list[int]] = {}      # of each identity that has arrived
        self.links = Links()

    def _end(self, lsn: int, f: dict[Any, Any]) -> None:
        session = self.sessions.get(f["sno"])
        for pid in session.inbox if session is not None else ():
            self.links.open.pop((f["sno"], pid), None)
        super()._end(lsn, f)

    def _inbox(self, lsn: int, f: dict[Any, Any]) -> None:
        super()._inbox(lsn, f)
        if f.get("identity"):
            self.links.open[f["sno"], f["pid"]] = Partly(f)

    def _inbox_done(self, lsn: int, f: dict[Any, Any]) -> None:
        super()._inbox_done(lsn, f)
        self.links.open.pop((f["sno"], f["pid"]), None)

    def _link_run(self, _lsn: int, f: dict[Any, Any]) -> None:
        self.links.log = f["log"]

    def _link_identity(self, _lsn: int, f: dict[Any, Any]) -> None:
        if (f["log"], f["identity"], f["part"]) not in self.links.arrived:
            self.links.arrived.add((f["log"], f["identity"], f["part"]))
            self._parts.setdefault((f["log"], f["identity"]), []).append(f["part"])

    def _link_identity_gone(self, _lsn: int, f: dict[Any, Any]) -> None:
        for part in self._parts.pop((f["log"], f["identity"]), ()):
            self.links.arrived.discard((f["log"], f["identity"], part))
        if self._apart:                 # perhaps it was released after the moment at which the store of its worker ends
            self.links.gone.add((f["log"], f["identity"]))

    def _link_choice(self, _lsn: int, f: dict[Any, Any]) -> None:
        self.links.choices[f["identity"], f["part"]] = f["worker"]

    def _link_will(self, lsn: int, f: dict[Any, Any]) -> None:
        super()._link_will(lsn, f)
        self.links.wills[f["number"]] = Partly({**f, "identity": f["handle"], "local_done": True})

    def _waiting_will_gone(self, lsn: int, f: dict[Any, Any]) -> None:
        super()._waiting_will_gone(lsn, f)
        self.links.wills.pop(f["number"], None)


def decide(states: "Mapping[int, LinkedState]", spread: Spread) -> int:
    """Set `again` of the messages that are on their way between workers; return how many are published again though a
    part of the workers has them. `states`: by the place of the worker."""
    links = {place: state.links for place, state in states.items()}
    if not any(one.open or one.wills for one in links.values()):
        return 0
    for state in states.values():
        # QoS 0 is in no store, and may be lost
        state.links.learn(filter for session in state.sessions.values()
                          for filter, (options, *_) in session.subscriptions.items() if options & QOS)
    twice = 0
    for place, one in links.items():
        for partly in (*one.open.values(), *one.wills.values()):
            partly.again = again(partly, place, links, spread.place(partly.topic), spread.key)
            twice += partly.again and partly.began
    return twice
