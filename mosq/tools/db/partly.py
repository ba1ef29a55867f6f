"""Decide about messages that a part of the workers had delivered when the number of workers changes.

A worker keeps a QoS 2 message with its identity until all workers that need it have it; a worker that has delivered it
keeps the identity with the deliveries. Such an identity holds for all sessions of a worker, and the sessions move to
others. So the question is answered once, before: which sessions, groups and topics lack the message. The division
writes that (docs/adr/0041), and the start with the new number delivers it to these only.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from mosq._core import filter_fits, worker_place
from mosq.tools.db.state import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from mosq.tools.db.state import Session

    # place of a worker, and a session's number in its store
    Place = tuple[int, int]

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
    """A message with an identity, in an inbox, or a will: then the identity is 0 if it is not QoS 2."""

    __slots__ = ("identity", "local_done", "qos", "rest", "retain", "topic")

    def __init__(self, f: dict[Any, Any]) -> None:
        self.identity, self.local_done = f["identity"], f["local_done"]
        self.topic, self.qos, self.retain = f["topic"], f["qos"], f["retain"]
        self.rest: Rest | None = None

    def is_due(self) -> bool:
        """Return whether a session, a group or the topic lacks it."""
        return self.rest is None or any(self.rest)


class Rest(NamedTuple):
    """Name what lacks a message: sessions; groups, each with its name, filter and members; whether its topic lacks it
    as the retained message."""

    sessions: "list[Place]"
    groups: "dict[tuple[bytes, bytes], list[Place]]"
    retained: bool


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
        self._exact: dict[bytes, dict[bytes, list[int]]] = {}       # filter: group, b"" for none: sessions
        self._wild: dict[bytes, dict[bytes, list[int]]] = {}

    def learn(self, sessions: "Iterable[Session]") -> None:
        """Note the filters of all sessions of this worker. QoS 0 is in no store, and may be lost."""
        for session in sessions:
            for whole, (options, *_) in session.subscriptions.items():
                if options & QOS:
                    group, filter = split(whole)
                    known = self._wild if b"+" in filter or b"#" in filter else self._exact
                    known.setdefault(filter, {}).setdefault(group, []).append(session.sno)

    def matching(self, topic: bytes) -> "Iterator[tuple[bytes, bytes, list[int]]]":
        """Yield group, filter and sessions of each filter that matches."""
        for group, sessions in self._exact.get(topic, {}).items():
            yield group, topic, sessions
        for filter, groups in self._wild.items():
            if filter_fits(filter, topic):
                for group, sessions in groups.items():
                    yield group, filter, sessions


def split(whole: bytes) -> tuple[bytes, bytes]:
    """Return the group, b"" for none, and the filter."""
    if not whole.startswith(SHARE):
        return b"", whole
    group, _, filter = whole[len(SHARE):].partition(b"/")
    return group, filter


def joined(group: bytes, filter: bytes) -> bytes:
    return b"%b%b/%b" % (SHARE, group, filter)


def part_of(key: bytes, group: bytes, filter: bytes) -> int:
    """Return the part of a shared group: part_of of cext/broker/links/outward.pyx."""
    return worker_place(key, joined(group, filter), PARTS) | 1 if key else 0


def groups_of(workers: "Mapping[int, Links]", topic: bytes) -> "dict[tuple[bytes, bytes], list[Place]]":
    """Return the members of each group that gets a message of this topic."""
    found: dict[tuple[bytes, bytes], list[Place]] = {}
    for i, one in workers.items():
        for group, filter, sessions in one.matching(topic):
            if group:
                found.setdefault((group, filter), []).extend((i, sno) for sno in sessions)
    return found


def rest_of(partly: Partly, place: int, workers: "Mapping[int, Links]", owner: int, key: bytes) -> Rest | None:
    """Return what lacks a message of the worker at `place`; None: no worker has delivered it. `owner`: the place of the
    worker that keeps the topic's retained message; `key`: of the workers."""
    own = workers[place]

    def has(i: int, part: int) -> bool:
        one = workers.get(i)
        return one is not None and ((own.log, partly.identity, part) in one.arrived
                                    or (own.log, partly.identity) in one.gone)

    have = {i for i in workers if i != place and has(i, 0)}
    if partly.local_done:
        have.add(place)
    groups = groups_of(workers, partly.topic)
    parts = {group: part_of(key, *group) for group in groups}
    if not have and not any(has(i, part) for i in workers for part in parts.values()):
        return None
    retained = partly.retain and owner not in have
    if not partly.qos:
        return Rest([], {}, retained)

    def lacks(group: tuple[bytes, bytes]) -> bool:
        part = parts[group]
        if not partly.identity:         # the choice is not recorded: as after a start with the same number
            return any(i != place for i, _ in groups[group])
        # without a choice, a member of its own worker has it
        return not any(has(i, part) for i in workers) and (
            not partly.local_done or own.choices.get((partly.identity, part)) not in (None, place))

    sessions = {(i, sno) for i, one in workers.items() if i not in have
                for group, _, matching in one.matching(partly.topic) if not group for sno in matching}
    return Rest(sorted(sessions), {group: members for group, members in groups.items() if lacks(group)}, retained)


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


def decide(links: "Mapping[int, Links]", spread: Spread) -> None:
    """Set `rest` of all messages that are on their way between workers. The links of each worker know its sessions."""
    for place, one in links.items():
        for partly in (*one.open.values(), *one.wills.values()):
            partly.rest = rest_of(partly, place, links, spread.place(partly.topic), spread.key)
