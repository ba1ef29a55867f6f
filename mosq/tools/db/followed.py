"""The state of a store that another process, or this one, goes on writing: the State, the facts of each delivery, and
what has changed since the last look.

Memory: that of State, and some 300 bytes for each queued delivery. Bodies are not kept.
"""

from typing import TYPE_CHECKING, Any

from mosq.tools.db.fingerprint import digest_of
from mosq.tools.db.state import HALF, Session, State

if TYPE_CHECKING:
    # packet id, qos with flags, subscription identifier, how many deliveries to this session came before in the record
    Entry = tuple[int, int, int, int]


def digest(f: dict[Any, Any]) -> int:
    """Return a number that is the same for messages with the same content. A file has expiry times in seconds."""
    return digest_of(f["topic"], f["payload"], f["props"], f.get("expires_wall_ms", 0) // 1000)


class Changed:
    """Name the parts of a state that may have changed."""

    __slots__ = ("client_wills", "ended", "inbox", "positions", "queues", "sessions", "subs", "topics")

    def __init__(self) -> None:
        self.sessions: dict[int, None] = {}  # in the order of the log
        self.ended: dict[int, None] = {}  # sessions; their numbers may have been given to others since
        self.queues: set[int] = set()  # sessions that the progress of all deliveries may have changed of
        self.subs: dict[int, dict[bytes, None]] = {}
        self.positions: dict[int, set[int]] = {}
        self.inbox: dict[int, dict[int, None]] = {}
        self.topics: dict[bytes, None] = {}
        self.client_wills: dict[bytes, None] = {}


class Followed(State):
    """A State that notes what each record may have changed."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = Changed()
        self.entries: dict[int, dict[int, Entry]] = {}
        self.digests: dict[int, int] = {}  # of the records in `live`
        self.securities: dict[int, int] = {}
        self.bridges: set[int] = set()  # sessions of bridges
        self._last: dict[Any, Any] = {}  # the message of the record before

    def all_changed(self) -> Changed:
        """Return all parts."""
        changed = Changed()
        for s in self.sessions.values():
            changed.sessions[s.sno] = None
            changed.queues.add(s.sno)
            changed.subs[s.sno] = dict.fromkeys(s.subscriptions)
            changed.inbox[s.sno] = dict.fromkeys(s.inbox)
        changed.topics = dict.fromkeys(self.retained)
        changed.client_wills = dict.fromkeys(self.client_wills)
        return changed

    def in_order(self, s: Session, positions: "set[int]") -> list[int]:
        """Return positions in the order of the queue."""
        return sorted(positions, key=s.offset)

    def was_sent(self, s: Session, position: int) -> bool:
        """Return whether a delivery may have been sent. While its client is connected the store does not know it."""
        return s.connected or s.offset(position) < HALF

    def _unref(self, lsn: int) -> None:
        super()._unref(lsn)
        if lsn not in self.live:
            self.digests.pop(lsn, None)

    # -- one method for each kind

    def _session(self, lsn: int, f: dict[Any, Any]) -> None:
        sno = f["sno"]
        before = self.sessions.get(sno)
        if before is None or (before.connected, before.next) != (f["connected"], f["next"]):
            self.changed.queues.add(sno)
        super()._session(lsn, f)
        self.securities[sno] = f.get("security", 0)
        if f.get("link"):
            self.bridges.add(sno)
        self.changed.sessions[sno] = None

    def _end(self, lsn: int, f: dict[Any, Any]) -> None:
        super()._end(lsn, f)
        sno, changed = f["sno"], self.changed
        self.entries.pop(sno, None)
        self.securities.pop(sno, None)
        self.bridges.discard(sno)
        for of_session in (changed.subs, changed.positions, changed.inbox):
            of_session.pop(sno, None)
        changed.queues.discard(sno)
        changed.sessions.pop(sno, None)
        changed.ended[sno] = None

    def _sub(self, lsn: int, f: dict[Any, Any]) -> None:
        super()._sub(lsn, f)
        self.changed.subs.setdefault(f["sno"], {})[f["filter"]] = None

    def _unsub(self, lsn: int, f: dict[Any, Any]) -> None:
        super()._unsub(lsn, f)
        self.changed.subs.setdefault(f["sno"], {})[f["filter"]] = None

    def _publisher(self, _lsn: int, f: dict[Any, Any]) -> None:
        self._last["publisher"] = f

    def _msg(self, lsn: int, f: dict[Any, Any]) -> None:
        super()._msg(lsn, f)
        self._last = f
        if lsn in self.live:
            self.digests[lsn] = digest(f)
        before: dict[int, int] = {}
        for sno, position, pid, qos, sub_id in f["entries"]:
            n = before.get(sno, 0)
            before[sno] = n + 1
            self.entries.setdefault(sno, {})[position] = (pid, qos, sub_id, n)
            self.changed.positions.setdefault(sno, set()).add(position)
        if f["retained_set"]:
            self.changed.topics[f["topic"]] = None

    def _retained_gone(self, lsn: int, f: dict[Any, Any]) -> None:
        super()._retained_gone(lsn, f)
        self.changed.topics[f["topic"]] = None

    def _acks(self, lsn: int, f: dict[Any, Any]) -> None:
        super()._acks(lsn, f)
        for sno, position in f["acks"]:
            self.entries.get(sno, {}).pop(position, None)
            self.changed.positions.setdefault(sno, set()).add(position)

    def _released(self, lsn: int, f: dict[Any, Any]) -> None:
        super()._released(lsn, f)
        for sno, position, _ in f["acks"]:
            self.entries.get(sno, {}).pop(position, None)
            self.changed.positions.setdefault(sno, set()).add(position)

    def _inbox(self, lsn: int, f: dict[Any, Any]) -> None:
        super()._inbox(lsn, f)
        self.digests[lsn] = digest(f)

    def _inbox_done(self, lsn: int, f: dict[Any, Any]) -> None:
        super()._inbox_done(lsn, f)
        self.changed.inbox.setdefault(f["sno"], {})[f["pid"]] = None

    def _will(self, lsn: int, f: dict[Any, Any]) -> None:
        super()._will(lsn, f)
        self.digests[lsn] = digest(f)

    def _will_gone(self, lsn: int, f: dict[Any, Any]) -> None:
        super()._will_gone(lsn, f)
        self.changed.sessions[f["sno"]] = None

    def _client_will(self, lsn: int, f: dict[Any, Any]) -> None:
        super()._client_will(lsn, f)
        self.digests[lsn] = digest(f)

    def _client_will_gone(self, lsn: int, f: dict[Any, Any]) -> None:
        super()._client_will_gone(lsn, f)
        self.changed.client_wills[f["id"]] = None
