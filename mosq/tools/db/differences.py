"""Compute the events that bring a persistence plugin from what it has to what the store has.

    adopt(what the plugin restored) once; then records of the store -> Followed -> changes -> [(event, fields)]

The events of one call have this order: sessions that another one replaces; clients and wills, subscriptions, queues,
retained messages, each after the stored messages that it needs; sessions that are gone; stored messages without a use.
So a plugin that deletes the messages of a deleted client deletes none that another client needs.
Numbers of stored messages are ours, and those of the plugin for what it restored. Two deliveries of one message to one
client get two stored messages, because persist-sqlite finds a delivery by client and stored message.
Memory: about 0.7 kB for each queued delivery, with that of Followed.
"""

from typing import TYPE_CHECKING, Any

from mosq.tools.db import kinds
from mosq.tools.db.fingerprint import digest_of, of_client, of_message, of_retained, of_sub, of_will
from mosq.tools.db.followed import Changed, Followed, digest
from mosq.tools.db.kept import (
    BASE_ADD,
    BASE_DELETE,
    CLIENT_ADD,
    CLIENT_DELETE,
    CLIENT_UPDATE,
    MESSAGE_ADD,
    MESSAGE_DELETE,
    MESSAGE_UPDATE,
    RETAIN_DELETE,
    RETAIN_SET,
    SUB_ADD,
    SUB_DELETE,
    WILL_ADD,
    WILL_DELETE,
)
from mosq.tools.db.mosquitto_export import ENTRY_RETAIN, RELEASED_TOPIC
from mosq.tools.db.mosquitto_format import (
    EXPIRY_NEVER,
    IN,
    OUT,
    QUEUED,
    WAIT_PUBACK,
    WAIT_PUBCOMP,
    WAIT_PUBREC,
    WAIT_PUBREL,
)
from mosq.tools.db.state import HALF

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mosq.tools.db.kept import Kept, KeptClient
    from mosq.tools.db.mosquitto_file import ClientMessage, Message, Will
    from mosq.tools.db.state import Session

    Give = Callable[[int, dict[str, Any], int], None]
    Fields = dict[Any, Any]  # of a record

QOS = 3
RELEASED = digest_of(RELEASED_TOPIC, b"", b"", 0)      # content of the stored message for a released delivery
ID_MAX = 1 << 62  # numbers above it are not continued: SQLite's are signed


class Item:
    """A delivery as the plugin has it."""

    __slots__ = ("content", "id", "number", "pid", "qos", "state", "sub_id")

    def __init__(self, id: int, number: int, pid: int, qos: int, sub_id: int, state: int, content: int) -> None:
        # parameters: the fields of a delivery, and the digest of its message
        self.id, self.number, self.pid, self.qos, self.sub_id, self.state = id, number, pid, qos, sub_id, state
        self.content = content


class Copy:
    """A client as the plugin has it."""

    __slots__ = ("facts", "inbox", "number", "out", "sno", "subs")

    def __init__(self, sno: int, facts: tuple[Any, ...]) -> None:
        self.sno, self.facts = sno, facts
        self.subs: dict[bytes, tuple[int, int]] = {}
        self.out: dict[int, Item] = {}  # by position
        self.inbox: dict[int, Item] = {}  # by packet id
        self.number = 0  # of its last message


class Differences:
    """Hold what one plugin has. `give` gets the events, each with the fingerprint of what the plugin has afterwards;
    `bodies` are the records of messages that a call may need."""

    def __init__(self, state: Followed, give: "Give", ports: "Mapping[int, int]") -> None:
        self.state, self._to, self._ports = state, give, ports
        self.fingerprint = 0
        self._clients: dict[bytes, Copy] = {}
        self._ids: dict[int, bytes] = {}  # client ids by session
        self._retained: dict[bytes, tuple[int, int]] = {}  # topic: number of the stored message, digest
        self._wills: dict[bytes, int] = {}  # client id: digest
        self._uses: dict[int, int] = {}  # of stored messages, by number
        self._unused: dict[int, None] = {}
        self._made: dict[tuple[int, int], int] = {}  # numbers of stored messages by (lsn, how many came before)
        self._last_id = 0
        self._gone: list[bytes] = []  # clients whose deletion waits
        self.foreign = (0, 0)  # sessions and deliveries that the plugin had at the beginning, and the store had not
        self.bodies: dict[int, Fields] = {}

    def _give(self, event: int, fields: dict[str, Any], *changed: int) -> None:
        """Report an event. `changed`: the parts of the fingerprint that begin and end with it."""
        for part in changed:
            self.fingerprint ^= part
        self._to(event, fields, self.fingerprint)

    # -- what the plugin has at the beginning

    def adopt(self, kept: "Kept") -> None:
        """Begin with what the plugin has restored. Deliveries are found again in the order of the queue, by content."""
        state = self.state
        self.fingerprint = fingerprint_of(kept)
        self._last_id = max((id for id in kept.messages if id < ID_MAX), default=0)
        self._uses = dict.fromkeys(kept.messages, 0)
        self._unused = dict.fromkeys(kept.messages)
        contents = {id: _digest_of(message) for id, message in kept.messages.items()}
        sessions = {s.id: s for s in state.sessions.values() if s.lsn >= 0}
        for client_id, one in kept.clients.items():
            s = sessions.get(client_id)
            copy = Copy(s.sno if s is not None else -1, one.facts)
            copy.subs = dict(one.subscriptions)
            copy.number = max((number for _, number in one.messages), default=0)
            self._clients[client_id] = copy
            if s is None:
                self._gone.append(client_id)
                for i, pair in enumerate(one.messages):
                    queue = copy.out if pair[0].direction == OUT else copy.inbox
                    queue[-1 - i] = self._used(pair, contents)
            else:
                self._ids[s.sno] = client_id
                self._adopt_queue(copy, s, one, contents)
                for filter in one.subscriptions:
                    state.changed.subs.setdefault(s.sno, {})[filter] = None
        for topic, id in kept.retained.items():
            self._use(id)
            self._retained[topic] = id, contents[id]
            state.changed.topics[topic] = None
        for client_id, will in kept.wills.items():
            self._wills[client_id] = _digest_of_will(will)
            state.changed.client_wills[client_id] = None
        self.foreign = len(self._gone), self.foreign[1] + sum(
            len(kept.clients[client_id].messages) for client_id in self._gone)

    def _adopt_queue(self, copy: Copy, s: "Session", one: "KeptClient", contents: dict[int, int]) -> None:
        theirs, at = [pair for pair in one.messages if pair[0].direction == OUT], 0
        if len({message.id for message, _ in theirs}) < len(theirs):
            at = len(theirs)            # persist-sqlite cannot delete one of two deliveries of the same message
            for message, number in theirs:
                self._drop(s, _item(message, number, contents[message.id]), OUT)
        for position in self.state.in_order(s, self._positions(s)):
            found = at
            while found < len(theirs) and not self._is_same(s, position, theirs[found][0], contents):
                found += 1
            for message, number in theirs[at:found]:    # if none is the same: all others, so that the order stays
                self._drop(s, _item(message, number, contents[message.id]), OUT)
            at = found + 1
            if found < len(theirs):
                copy.out[position] = self._used(theirs[found], contents)
        for message, number in theirs[at:]:
            self._drop(s, _item(message, number, contents[message.id]), OUT)
        for message, number in one.messages:
            if message.direction == IN:
                lsn, refused = s.inbox.get(message.pid, (-1, True))
                content = contents[message.id]
                if message.pid not in copy.inbox and not refused and self.state.digests.get(lsn) == content:
                    copy.inbox[message.pid] = self._used((message, number), contents)
                else:
                    self._drop(s, _item(message, number, content), IN)

    def _is_same(self, s: "Session", position: int, message: "ClientMessage", contents: dict[int, int]) -> bool:
        released = s.released.get(position)
        if released is not None:
            return message.pid == released[0] and message.qos == 2
        pid, qos, sub_id, _ = self.state.entries[s.sno][position]
        return ((message.pid, message.qos, message.sub_id) == (pid, qos & QOS, sub_id)
                and contents[message.id] == self.state.digests.get(s.queue.get(position) - 1))

    def _used(self, pair: "tuple[ClientMessage, int]", contents: dict[int, int]) -> Item:
        self._use(pair[0].id)
        return _item(*pair, contents[pair[0].id])

    def _drop(self, s: "Session", item: Item, direction: int) -> None:
        self.foreign = 0, self.foreign[1] + 1
        self._use(item.id)
        self._delete(s.id, item, direction)

    def rows(self) -> tuple[int, ...]:
        """Return how many sessions, subscriptions, deliveries and retained messages the plugin has."""
        copies = self._clients.values()
        return (len(copies), sum(len(one.subs) for one in copies), sum(len(one.out) + len(one.inbox) for one in copies),
                len(self._retained))

    def rejoin(self, state: Followed) -> None:
        """Continue with a state that was read from the beginning, because some of the log was dropped unread."""
        self.state, changed = state, state.changed
        self._made, self.bodies = {}, {}
        for sno, client_id in self._ids.items():
            copy, s = self._clients[client_id], state.sessions.get(sno)
            if s is None or s.id != client_id or self._is_another(copy, s):
                changed.ended[sno] = None
                copy.sno = -1
            else:
                changed.positions[sno] = set(copy.out)
                changed.subs.setdefault(sno, {}).update(dict.fromkeys(copy.subs))
                changed.inbox.setdefault(sno, {}).update(dict.fromkeys(copy.inbox))
        changed.topics.update(dict.fromkeys(self._retained))
        changed.client_wills.update(dict.fromkeys(self._wills))

    def _is_another(self, copy: Copy, s: "Session") -> bool:
        """Return whether a session with the same number and client has begun since."""
        for position, item in copy.out.items():
            place, released = s.queue.get(position), s.released.get(position)
            if place and self.state.digests.get(place - 1) != item.content:
                return True
            if released is not None and (released[0], 2) != (item.pid, item.qos & QOS):
                return True
        return False

    def _copy(self, sno: int) -> Copy | None:
        """Return what the plugin has of a session of the state."""
        s = self.state.sessions.get(sno)
        copy = self._clients.get(s.id) if s is not None else None
        return copy if copy is not None and copy.sno == sno else None

    def needs(self, lsn: int, kind: int, f: "Fields") -> None:
        """Report the stored messages of a record that the plugin lacks, for records that were applied before."""
        if lsn not in self.state.live:
            return
        self.bodies[lsn] = f
        if kind == kinds.MSG:
            before: dict[int, int] = {}
            for entry in f["entries"]:
                sno, position = entry[:2]
                n = before.get(sno, 0)
                before[sno] = n + 1
                copy = self._copy(sno)
                if self.state.delivers(lsn, entry) and (copy is None or position not in copy.out):
                    self._stored(lsn, n)
            if self.state.is_retained(lsn, f["topic"]):
                self._retain(f["topic"])
        elif kind == kinds.INBOX:
            copy = self._copy(f["sno"])
            old = copy.inbox.get(f["pid"]) if copy is not None else None
            if not f["refused"] and (old is None or old.content != self.state.digests[lsn]):
                self._stored(lsn, 0)
        if kind not in (kinds.WILL, kinds.CLIENT_WILL):
            del self.bodies[lsn]

    # -- changes

    def changes(self, changed: Changed) -> None:
        """Report what has changed. Parts of a session without a record stay in the state's `changed` until it has
        one."""
        state = self.state
        later = state.changed = Changed()
        begun = self._end_sessions(changed)
        for sno in [*changed.sessions, *changed.subs, *changed.positions, *changed.inbox]:
            s = state.sessions.get(sno)
            if s is not None and s.lsn < 0:
                _move(changed, later, sno)
        for s in begun.values():
            self._client(s)
        for client_id in changed.client_wills:
            self._will(client_id)
        for sno, filters in changed.subs.items():
            self._subs(state.sessions.get(sno), filters)
        for sno in changed.queues | changed.positions.keys():
            s = state.sessions.get(sno)
            if s is not None:
                all_of_it = self._positions(s) if sno in changed.queues else set()
                self._queue(s, all_of_it, changed.positions.get(sno, set()))
        for sno, pids in changed.inbox.items():
            self._inbox(state.sessions.get(sno), pids)
        for topic in changed.topics:
            self._retain(topic)
        for client_id in self._gone:
            copy = self._clients.get(client_id)
            if copy is not None and self._copy(copy.sno) is not copy:       # no other session has begun
                self._delete_client(client_id)
        self._gone = []
        self._delete_unused()
        if not later.sessions and not later.positions and not later.inbox:
            self._made, self.bodies = {}, {}

    def _end_sessions(self, changed: Changed) -> "dict[bytes, Session]":
        """Report sessions that have ended. Return those that may have begun or changed, by client id: the later one, if
        the end of the session before comes later in the log."""
        begun: dict[bytes, Session] = {}
        for s in map(self.state.sessions.get, changed.sessions):
            if s is not None and s.id and s.lsn >= self._latest(begun, s.id):
                begun[s.id] = s
        for sno in [*changed.ended, *changed.sessions]:
            s, client_id = self.state.sessions.get(sno), self._ids.get(sno)
            if client_id is None or (sno not in changed.ended and s is not None and s.id == client_id):
                continue
            del self._ids[sno]
            if client_id in begun:
                self._delete_client(client_id)
            else:
                self._gone.append(client_id)
        for client_id, s in begun.items():
            copy = self._clients.get(client_id)
            if copy is not None and copy.sno != s.sno:
                self._ids.pop(copy.sno, None)
                self._delete_client(client_id)
        return begun

    def _latest(self, begun: "dict[bytes, Session]", client_id: bytes) -> int:
        """Return the place of the latest session of a client that is known so far."""
        copy = self._clients.get(client_id)
        known = self.state.sessions.get(copy.sno) if copy is not None else None
        return max(begun[client_id].lsn if client_id in begun else -1,
                   known.lsn if known is not None and known.id == client_id else -1)

    def _client(self, s: "Session") -> None:
        never = s.expiry_s == EXPIRY_NEVER
        due_s, delay_s = (s.will[1] // 1000, s.will[2]) if s.will is not None else (0, 0)
        port = kinds.port_of(self.state.securities.get(s.sno, 0), self._ports)
        facts = s.user, 0 if never or s.connected else s.ends_wall_ms // 1000, s.expiry_s, due_s, delay_s, port
        copy = self._clients.get(s.id)
        if copy is None:
            copy = self._clients[s.id] = Copy(s.sno, facts)
            self._ids[s.sno] = s.id
            self._about(CLIENT_ADD, s.id, facts, of_client(s.id, facts))
        elif copy.facts != facts:       # as in Mosquitto: an update is about the times only, and a CONNECT adds again
            event = CLIENT_UPDATE if _without_times(copy.facts) == _without_times(facts) else CLIENT_ADD
            before, copy.facts = copy.facts, facts
            self._about(event, s.id, facts, of_client(s.id, before), of_client(s.id, facts))
        self._will(s.id, s)

    def _about(self, event: int, client_id: bytes, facts: tuple[Any, ...], *changed: int) -> None:
        user, ends_s, expiry_s, due_s, delay_s, port = facts
        self._give(event, {"client_id": client_id, "username": user, "ends_s": ends_s, "expiry_s": expiry_s,
                           "will_due_s": due_s, "will_delay_s": delay_s, "port": port, "qos": 2, "retain": 1}, *changed)

    def _will(self, client_id: bytes, s: "Session | None" = None) -> None:
        """Report the will of a client: that of its session, or that of a connected client without one."""
        if s is None:
            copy = self._clients.get(client_id)
            s = self.state.sessions.get(copy.sno) if copy is not None else None
        if s is not None and s.id != client_id:
            s = None                    # the number belongs to another client's session now
        lsn = s.will[0] if s is not None and s.will is not None else self.state.client_wills.get(client_id, -1)
        content = self.state.digests.get(lsn)
        if content is not None and self._wills.get(client_id) != content and lsn in self.bodies:
            f, before = self.bodies[lsn], self._wills.get(client_id)
            self._wills[client_id] = content
            self._give(WILL_ADD, {"client_id": client_id, "qos": f["qos"], "retain": f["retain"], **_content(f)},
                       of_will(client_id, content), *(() if before is None else (of_will(client_id, before),)))
        elif content is None:
            self._delete_will(client_id)

    def _delete_will(self, client_id: bytes) -> None:
        content = self._wills.pop(client_id, None)
        if content is not None:
            self._give(WILL_DELETE, {"client_id": client_id}, of_will(client_id, content))

    def _subs(self, s: "Session | None", filters: "dict[bytes, None]") -> None:
        copy = self._copy(s.sno) if s is not None else None
        if s is None or copy is None or s.sno in self.state.bridges:    # a bridge subscribes again at each start
            return
        for filter in filters:
            new, old = s.subscriptions.get(filter), copy.subs.get(filter)
            ended = () if old is None else (of_sub(s.id, filter, old),)
            if new is None and old is not None:
                del copy.subs[filter]
                self._give(SUB_DELETE, {"client_id": s.id, "topic": filter}, *ended)
            elif new is not None and old != new[:2]:
                copy.subs[filter] = new[:2]
                self._give(SUB_ADD, {"client_id": s.id, "topic": filter, "options": new[0], "identifier": new[1]},
                           *ended, of_sub(s.id, filter, new[:2]))

    # -- queues

    def _positions(self, s: "Session") -> set[int]:
        return {position for position, _ in s.queue.places()} | s.released.keys()

    def _queue(self, s: "Session", all_of_it: set[int], some: set[int]) -> None:
        copy = self._copy(s.sno)
        if copy is None:
            return
        for position in some - all_of_it:
            item = copy.out.get(position)
            if item is not None and not s.queue.get(position) and position not in s.released:
                del copy.out[position]
                self._delete(s.id, item, OUT)
        there = {one for one in some if s.queue.get(one) or one in s.released} | all_of_it
        for position in self.state.in_order(s, there):
            item = copy.out.get(position)
            if item is None:
                self._add(copy, s, position)
                continue
            state = self._state_of(s, position, item.qos)
            if item.state != state:
                before, item.state = of_message(s.id, OUT, item), state
                self._message(MESSAGE_UPDATE, s.id, item, OUT, before)

    def _state_of(self, s: "Session", position: int, qos: int) -> int:
        if position in s.released:
            return WAIT_PUBCOMP
        if not qos & QOS or not self.state.was_sent(s, position):
            return QUEUED
        return WAIT_PUBACK if qos & QOS == 1 else WAIT_PUBREC

    def _add(self, copy: Copy, s: "Session", position: int) -> None:
        if position in s.released:
            pid, qos, sub_id, id, content = s.released[position][0], 2, 0, self._placeholder(), RELEASED
        else:
            pid, qos, sub_id, before = self.state.entries[s.sno][position]
            lsn = s.queue.get(position) - 1
            found, content = self._stored(lsn, before), self.state.digests.get(lsn, 0)
            if found is None:           # cleaning has moved its record behind the ones that were read
                return
            id = found
        copy.number = max(copy.number, position if position < HALF else 0) + 1  # as if each one had been seen
        item = copy.out[position] = Item(id, copy.number, pid, qos, sub_id, self._state_of(s, position, qos), content)
        self._use(id)
        self._message(MESSAGE_ADD, s.id, item, OUT)

    def _inbox(self, s: "Session | None", pids: "dict[int, None]") -> None:
        copy = self._copy(s.sno) if s is not None else None
        if s is None or copy is None:
            return
        for pid in pids:
            lsn, refused = s.inbox.get(pid, (-1, True))
            content, old = self.state.digests.get(lsn, 0), copy.inbox.get(pid)
            if old is not None and not refused and old.content == content:
                continue
            if old is not None:
                del copy.inbox[pid]
                self._delete(s.id, old, IN)
            id = None if refused else self._stored(lsn, 0)
            if id is not None:
                copy.number += 1
                item = copy.inbox[pid] = Item(id, copy.number, pid, 2, 0, WAIT_PUBREL, content)
                self._use(id)
                self._message(MESSAGE_ADD, s.id, item, IN)

    def _message(self, event: int, client_id: bytes, item: Item, direction: int, *ended: int) -> None:
        self._give(event, {"client_id": client_id, "cmsg_id": item.number, "store_id": item.id, "pid": item.pid,
                           "qos": item.qos & QOS, "retain": int(bool(item.qos & ENTRY_RETAIN)), "state": item.state,
                           "dup": int(direction == OUT and item.state != QUEUED), "direction": direction,
                           "identifier": item.sub_id}, of_message(client_id, direction, item), *ended)

    def _delete(self, client_id: bytes, item: Item, direction: int) -> None:
        self._message(MESSAGE_DELETE, client_id, item, direction)
        self._unuse(item.id)

    def _delete_client(self, client_id: bytes) -> None:
        copy = self._clients.pop(client_id, None)
        if copy is None:
            return
        if client_id not in self.state.client_wills:
            self._delete_will(client_id)
        self._give(CLIENT_DELETE, {"client_id": client_id}, of_client(client_id, copy.facts),
                   *(of_sub(client_id, filter, options) for filter, options in copy.subs.items()),
                   *(of_message(client_id, OUT, item) for item in copy.out.values()),
                   *(of_message(client_id, IN, item) for item in copy.inbox.values()))
        for item in (*copy.out.values(), *copy.inbox.values()):
            self._unuse(item.id)

    # -- stored messages

    def _stored(self, lsn: int, before: int) -> int | None:
        """Return the number of the stored message for a record, which the plugin gets now if it lacks it. None: the
        record is not at hand."""
        id = self._made.get((lsn, before))
        f = self.bodies.get(lsn)
        if id is None and f is not None:
            id = self._made[lsn, before] = self._new_id()
            self._give(BASE_ADD, {
                "store_id": id, "ends_s": f["expires_wall_ms"] // 1000, "qos": f["qos"],
                "retain": int(bool(f["retain"]) or f["retained_set"]), **_content(f), **self._publisher(f)})
        return id

    def _publisher(self, f: "Fields") -> dict[str, Any]:
        """Return the publisher of a message: that of a record behind it, or the session of an inbound message."""
        if "publisher" in f:
            one = f["publisher"]
            return {"client_id": one["id"], "username": one["user"] or None, "pid": one["pid"],
                    "port": kinds.port_of(one["security"], self._ports)}
        s = self.state.sessions.get(f["sno"]) if "sno" in f else None
        if s is None:
            return {}
        return {"client_id": s.id, "username": s.user, "pid": f["pid"],
                "port": kinds.port_of(self.state.securities.get(s.sno, 0), self._ports)}

    def _placeholder(self) -> int:
        id = self._new_id()
        self._give(BASE_ADD, {"store_id": id, "topic": RELEASED_TOPIC, "qos": 2})
        return id

    def _new_id(self) -> int:
        self._last_id += 1
        while self._last_id in self._uses:
            self._last_id += 1
        self._uses[self._last_id] = 0
        self._unused[self._last_id] = None
        return self._last_id

    def _use(self, id: int) -> None:
        self._uses[id] += 1
        self._unused.pop(id, None)

    def _unuse(self, id: int) -> None:
        self._uses[id] -= 1
        if not self._uses[id]:
            self._unused[id] = None

    def _delete_unused(self) -> None:
        waiting = set(self._made.values()) if self.state.changed.positions or self.state.changed.inbox else set()
        for id in [one for one in self._unused if one not in waiting]:
            self._give(BASE_DELETE, {"store_id": id})
            del self._uses[id], self._unused[id]

    def _retain(self, topic: bytes) -> None:
        old, place = self._retained.get(topic), self.state.retained.get(topic)
        if place is None:
            if old is not None:
                del self._retained[topic]
                self._give(RETAIN_DELETE, {"topic": topic}, of_retained(topic, old[1]))
                self._unuse(old[0])
            return
        content = self.state.digests.get(place[0], 0)
        if old is not None and old[1] == content:
            return                      # a copy that cleaning made, or the same message again
        id = self._stored(place[0], 0)
        if id is not None:
            self._retained[topic] = id, content
            self._use(id)
            self._give(RETAIN_SET, {"topic": topic, "store_id": id}, of_retained(topic, content),
                       *(() if old is None else (of_retained(topic, old[1]),)))
            if old is not None:
                self._unuse(old[0])


def _move(changed: Changed, later: Changed, sno: int) -> None:
    """Keep what has changed of a session for the next time."""
    if sno in changed.sessions:
        later.sessions[sno] = changed.sessions[sno]
    later.subs.update({sno: changed.subs.pop(sno)} if sno in changed.subs else {})
    later.positions.update({sno: changed.positions.pop(sno)} if sno in changed.positions else {})
    later.inbox.update({sno: changed.inbox.pop(sno)} if sno in changed.inbox else {})
    if sno in changed.queues:
        changed.queues.discard(sno)
        later.queues.add(sno)


def _content(f: "Fields") -> dict[str, Any]:
    return {"topic": f["topic"], "data": f["payload"], "properties": f["props"]}


def _item(message: "ClientMessage", number: int, content: int) -> Item:
    qos = message.qos | (ENTRY_RETAIN if message.retain else 0)
    return Item(message.id, number, message.pid, qos, message.sub_id, message.state, content)


def _without_times(facts: tuple[Any, ...]) -> tuple[Any, ...]:
    user, _, expiry_s, _, delay_s, port = facts
    return user, expiry_s, delay_s, port


def fingerprint_of(kept: "Kept") -> int:
    """Return the fingerprint of what a plugin has restored; 0 if it is nothing."""
    found, contents = 0, {id: _digest_of(message) for id, message in kept.messages.items()}
    for client_id, one in kept.clients.items():
        found ^= of_client(client_id, one.facts)
        for filter, options in one.subscriptions.items():
            found ^= of_sub(client_id, filter, options)
        for message, number in one.messages:
            found ^= of_message(client_id, message.direction, _item(message, number, contents[message.id]))
    for topic, id in kept.retained.items():
        found ^= of_retained(topic, contents[id])
    for client_id, will in kept.wills.items():
        found ^= of_will(client_id, _digest_of_will(will))
    return found


def _digest_of(message: "Message") -> int:
    return digest({"topic": message.topic, "payload": message.payload, "props": message.properties,
                   "expires_wall_ms": message.expires_s * 1000})


def _digest_of_will(will: "Will") -> int:
    return digest({"topic": will.topic, "payload": will.payload, "props": will.properties})
