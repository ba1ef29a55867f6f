"""A node of a cluster without I/O: its lease, and which workers it claims, starts, gives away and kills. Requests go
out and answers come in; every call has the time. Knows no Redis, no thread and no clock.

    join -> beat, beat, beat ...                      each confirmed beat extends the lease
              each view: claim workers without a node, if the placement names this one -> start
                         give a worker away, if it is this node's turn -> stop ... ended -> return it
                         a worker whose entry is another one than this node's -> kill
    lease over -> kill all

Rules. The simulator (tests/cluster) fails without them:

1. Own lease: a node runs workers only until `lease_s` after it sent its last confirmed beat. It looks at its clock
   before all else, so a process that was stopped for long kills its workers when it continues, before it acts.
2. Death by own clock: another node's worker is claimed after its beat did not change for `lease_s + margin_s` here.
3. A new token for each start, also for that of an own worker after a lost lease: the store refuses the old one.
4. Redis away, or another server: observation begins again (sight.py). A claim goes only to the server whose view led
   to it; this part is too rare for the simulator to miss.
5. Confirmed writes: a beat or claim counts when as many replicas as agreed have it (registry.py). A primary that was
   cut off with its clients confirms nothing.

A request without an answer may have been carried out. The next view shows it: an entry of this run whose worker does
not run here is claimed again, with a new token.
"""

import secrets
from dataclasses import replace
from typing import NamedTuple

from mosq.cluster import placement
from mosq.cluster.entries import (
    RANDOM_BITS,
    Announcement,
    Entry,
    announcement_of,
    entry_of,
    next_token,
    place_in,
    read_announcement,
    run_of,
    text_of,
)
from mosq.cluster.errors import RefusedError
from mosq.cluster.requests import (
    ANOTHER,
    CHANGED,
    DONE,
    MISSING,
    UNKNOWN,
    USED,
    Beat,
    Change,
    Join,
    Leave,
    Look,
)
from mosq.cluster.sight import Observer
from mosq.cluster.terms import SLOW_S, Terms
from mosq.log_types import NOTICE, WARNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from mosq.cluster.requests import Answer, Request, View

    class Workers(Protocol):
        """The workers of this machine. Each call but `kill` returns at once."""

        def start(self, worker: int, token: int, until_s: float) -> None:
            """Start a worker. Its store must refuse older tokens. The worker serves no client after `until_s`."""

        def stop(self, worker: int) -> None:
            """Stop a worker in good order, or kill it after a while; `Member.ended` follows."""

        def kill(self, workers: list[int]) -> None:
            """End workers now. When this returns, they serve no client and write nothing. It must take less than the
            margin."""

        def lease(self, until_s: float) -> None:
            """Take the time until which workers may serve, also if this process gives no sign of life."""

LOST_TEXTS = {
    MISSING: "Redis has no data of this cluster: it was started empty, or the keys were deleted",
    ANOTHER: "Redis has another cluster of this name: the data of this one were replaced",
}
JOINING, WATCHING, PRESENT, OUT = "joining", "watching", "present", "out"
SLOW_BEATS = 5                  # slow or quick answers in a row that are reported


class Where(NamedTuple):
    """The place of a worker's process."""

    host: str
    port: int
    token: int


class NameUsedError(RefusedError):
    """Another node of this name lives, or has taken the place of this one."""


class Member:
    """This node. `count`: the workers of the cluster. `report` gets the type and the text of lines for the log.
    `places` gets where each worker is, when that changes; None: its process has ended for sure. Each node of a
    simulation has a log and random numbers of its own, so they are parameters too."""

    def __init__(self, name: str, run: str, count: int, terms: Terms, workers: "Workers", *,    # parameters: see above
                 announcement: Announcement | None = None, report: "Callable[[int, str], object]" = lambda *_: None,
                 places: "Callable[[dict[int, Where | None]], object]" = lambda _: None,
                 random_bits: "Callable[[int], int]" = secrets.randbits) -> None:
        self.name, self.run, self.count, self.terms = name, run, count, terms
        self.announcement = announcement or Announcement()
        self.lease_until_s = float("-inf")
        self.away = False               # whether an operator has sent this run away
        self.error: NameUsedError | None = None     # why this node is out; None: it has left, or is not out
        self.observer = Observer(terms)
        self._workers, self._report, self._random_bits = workers, report, random_bits
        self._places = places
        self._phase = JOINING
        self._running: dict[int, str] = {}      # worker -> its entry; also while it stops
        self._stopping: set[int] = set()
        self._leaving = False           # whether this node ends when it has given its workers away
        self._stopped: dict[int, str] = {}      # worker that was stopped -> its entry, which is to be returned
        self._replaces = ""             # beat of a dead run of this name
        self._changes = 0               # of the beat of that run, while this one waits
        self._number = 0                # of the last beat
        self._due_s = float("-inf")     # of the next beat
        self._todo: list[Change] = []   # changes that follow from the last view, the next one last
        # of the last view: entries, announcements and living nodes; the node of each worker; nodes that may get workers
        self._table: tuple[dict[int, str], dict[str, str], dict[str, str]] | None = None
        self._owners: list[str | None] = []
        self._takers: dict[str, int] = {}
        self._calm_s = 0.0              # since when it has not changed
        self._trouble = ""              # that was reported last
        self._slow = False              # Redis was reported as slow
        self._unlike = 0                # answers in a row that were slow or quick, unlike what was reported
        self._strange: dict[str, str] = {}      # announcements that were reported, by node

    # ---- for the program around it

    @property
    def out(self) -> bool:
        """Return whether this node has left, or was replaced."""
        return self._phase == OUT

    @property
    def others(self) -> bool:
        """Return whether another node may get workers of this one."""
        return any(name != self.name for name in self._takers)

    def nodes(self) -> dict[str, str]:
        """Return the state of each node in the last view: lives, leaves or silent."""
        if self._table is None:
            return {}
        _, announcements, living = self._table
        return {name: "silent" if name not in living else "leaves" if announcement_of(text).leaving else "lives"
                for name, text in announcements.items()}

    def owners(self) -> list[Entry | None]:
        """Return the entry of each worker that has a living node in the last view."""
        if self._table is None:
            return [None] * self.count
        entries = self._table[0]
        return [None if name is None else entry_of(entries[worker]) for worker, name in enumerate(self._owners)]

    def running(self) -> set[int]:
        """Return the workers that run here."""
        return set(self._running)

    def leave(self) -> None:
        """Give all workers away, one after another, and then leave."""
        self._leaving = True
        self.announcement = replace(self.announcement, leaving=True)
        self._due_s = float("-inf")

    def ended(self, worker: int, token: int) -> None:
        """Take the end of a worker's process, which was started with this token. One that was stopped is returned;
        another one starts again, with a new token. A caller that wants a pause before the next start calls this
        later."""
        entry = self._running.get(worker, "")
        if entry_of(entry).token != token:
            return                      # it was killed
        del self._running[worker]
        if worker in self._stopping:
            self._stopping.discard(worker)
            self._stopped[worker] = entry
        self._due_s = float("-inf")     # the next view shows an entry without a worker

    def end(self) -> None:
        """Kill all workers. This node asks nothing more."""
        self._phase = OUT
        self._kill_all()

    def check(self, now_s: float) -> None:
        """Kill all workers if the lease is over. Each other call does this first."""
        if self._running and now_s >= self.lease_until_s:
            self._kill_all()
            self._report(WARNING, "The lease of this node is over: no beat was confirmed in time. Its workers were "
                                  "killed.")

    def wake_s(self) -> float:
        """Return when `turn` has something to do, while no request waits for its answer."""
        return float("-inf") if self._todo else self._due_s

    def turn(self, now_s: float) -> "Request | None":
        """Return the next request; None: there is nothing to ask now. Its answer must come before the next call."""
        self.check(now_s)
        if self._phase == OUT:
            return None
        if now_s >= self._due_s:
            return self._regular()
        if self._todo and now_s < self.lease_until_s:
            return self._todo.pop()
        self._todo.clear()
        return None

    def answered(self, now_s: float, sent_s: float, request: "Request", answer: "Answer") -> None:
        """Take the answer to the request that was sent at `sent_s`."""
        self.check(now_s)
        if answer.status in LOST_TEXTS:
            self._trouble_is(LOST_TEXTS[answer.status])
            self._later(now_s, self.terms.beat_s)
        elif isinstance(request, Beat):
            self._beaten(now_s, sent_s, answer)
        elif isinstance(request, Change):
            self._changed(now_s, request, answer)
        elif isinstance(request, Join):
            self._joined(now_s, answer)
        elif isinstance(request, Look):
            self._looked(now_s, answer)
        else:
            self._phase = OUT

    def failed(self, now_s: float, request: "Request", text: str) -> None:
        """Take the failure of a request. It may have been carried out."""
        self.check(now_s)
        self._trouble_is(text)
        self._later(now_s, self.terms.retry_s)

    # ---- requests

    def _regular(self) -> "Request":
        if self._phase == JOINING:
            return Join(self._replaces, self.announcement.text)
        if self._phase == WATCHING:
            return Look()
        if self._leaving and not self._running and self._table is not None and not self._owns_any():
            return Leave()
        self._number += 1
        text = self.announcement.text     # Redis may have an older one, also if it lost its last writes
        known = self._table is not None and self._table[1].get(self.name) == text
        return Beat(self._number, "" if known else text)

    def _later(self, now_s: float, pause_s: float) -> None:
        self._todo.clear()
        self._due_s = now_s + pause_s

    def _trouble_is(self, text: str) -> None:
        if text != self._trouble:
            self._trouble = text
            self._report(WARNING if text else NOTICE, text or "Redis answers again.")

    # ---- joining

    def _joined(self, now_s: float, answer: "Answer") -> None:
        self._trouble_is("")
        if answer.status == DONE:
            self._phase, self._due_s = PRESENT, now_s
        else:
            self._replaces, self._phase, self._changes = answer.beat, WATCHING, 0
            self._due_s = now_s + self.terms.beat_s

    def _looked(self, now_s: float, answer: "Answer") -> None:
        """Wait until the other run of this name is dead. One change of its beat may have been on its way."""
        assert answer.view is not None
        self._trouble_is("")
        self.observer.see(now_s, answer.view.source, answer.view.beats)
        beat = answer.view.beats.get(self.name, "")
        if beat != self._replaces:
            self._replaces, self._changes = beat, self._changes + 1
        self._due_s = now_s + self.terms.beat_s
        if not beat or self.observer.dead(self.name):
            self._phase, self._due_s = JOINING, now_s
        elif self._changes > 1:
            self._lose_name(f"a node with the name {self.name} lives already; each node needs a name of its own")

    def _lose_name(self, text: str) -> None:
        self.error = NameUsedError(text)
        self.end()

    # ---- beats and the view

    def _beaten(self, now_s: float, sent_s: float, answer: "Answer") -> None:
        if answer.status == USED:
            self._lose_name(f"another process has joined as {self.name}, because this one gave no sign of life")
        elif answer.status == UNKNOWN:
            self._phase, self._replaces, self._due_s = JOINING, "", now_s
        else:
            assert answer.view is not None
            self._trouble_is("")
            self._answer_took(now_s - sent_s)
            self._extend(now_s, sent_s + self.terms.lease_s)
            self._due_s = max(sent_s + self.terms.beat_s, now_s)
            self.observer.see(now_s, answer.view.source, answer.view.beats)
            self._read(now_s, answer.view)

    def _answer_took(self, took_s: float) -> None:
        """Report the beginning and the end of a time in which Redis is slow. A few slow answers are none."""
        self._unlike = self._unlike + 1 if (took_s >= SLOW_S) != self._slow else 0
        if self._unlike == SLOW_BEATS:
            self._slow, self._unlike = not self._slow, 0
            if self._slow:
                self._report(WARNING, f"Redis is slow: its answers take {took_s * 1000:.0f} ms, and each "
                                      "acknowledgement waits for one.")
            else:
                self._report(NOTICE, "Redis is quick again.")

    def _extend(self, now_s: float, until_s: float) -> None:
        self.lease_until_s = until_s
        if now_s < until_s:
            self._workers.lease(until_s)

    def _read(self, now_s: float, view: "View") -> None:
        """Act on a view."""
        self._obey(view.away.get(self.name) == self.run)
        for worker, entry in list(self._running.items()):
            if view.workers.get(worker, "") != entry:
                self._kill([worker])
                self._report(NOTICE, f"Worker {worker + 1} has another node now, and was killed here.")
        dead = self.observer.dead
        living = {name: run_of(beat) for name, beat in view.beats.items() if name == self.name or not dead(name)}
        table = view.workers, view.announcements, living
        if table != self._table:
            self._table, self._calm_s = table, now_s
            self._owners, self._takers = _owners(view, living, self.count), _takers(view, living)
            self._places(_places(view, self._owners))
            self._report_strange(view.announcements)
        self._todo = []
        if self.observer.settled():
            self._place(view)
            self._give_away(now_s)

    def _obey(self, away: bool) -> None:
        """Be away, or come back, as an operator asks for."""
        if away != self.away:
            self.away = away
            self.announcement = replace(self.announcement, leaving=away or self._leaving)
            self._report(NOTICE, "This node was sent away: it gives its workers to others, and starts none." if away
                         else "This node may have workers again.")

    def _report_strange(self, announcements: dict[str, str]) -> None:
        """Report each announcement that has something that this version cannot use, once."""
        strange = {name: text for name, text in announcements.items() if read_announcement(text)[1]}
        for name, text in strange.items():
            if self._strange.get(name) != text:
                self._report(WARNING, f"The node {name} announces values that this version of mosq does not understand "
                                      f"and leaves out: {read_announcement(text)[1]}. Upgrade the older nodes.")
        self._strange = strange

    def _place(self, view: "View") -> None:
        """Claim what this node shall have: workers without a node, and its own that do not run. Return those that it
        has stopped."""
        owners, takers = self._owners, self._takers
        idle = [worker for worker, name in enumerate(owners) if name == self.name and worker not in self._running]
        if None in owners:
            placed = placement.assign(takers, owners)
            idle += [worker for worker, name in enumerate(placed) if name == self.name and owners[worker] is None]
        for worker in sorted(idle, reverse=True):
            text = view.workers.get(worker, "")
            token = entry_of(text).token
            if self.announcement.leaving or self._stopped.get(worker) == text:
                entry = Entry(token, "", "")
            else:
                entry = Entry(self._next_token(token), self.name, self.run)
            self._todo.append(Change(worker, text, text_of(entry), view.source))

    def _next_token(self, token: int) -> int:
        return next_token(token, self._random_bits(RANDOM_BITS))

    def _give_away(self, now_s: float) -> None:
        """Stop one worker, if it is this node's turn. Only when all is calm: so nodes that come back together, or one
        after another, cause no storm. A node that leaves does not wait."""
        if self._stopping or not self._running:
            return
        takers = self._takers
        if not takers:                  # no node is left to take them
            for worker in sorted(self._running) if self._leaving else ():
                self._stop(worker)
            return
        calm_s = 0.0 if self.announcement.leaving else self.terms.lease_s
        if now_s - self._calm_s >= calm_s and all(self.observer.steady(name) for name in takers):
            move = placement.next_move(takers, self._owners)
            if move is not None and move.giver == self.name and move.worker in self._running:
                self._report(NOTICE, f"Worker {move.worker + 1} goes to {move.taker}.")
                self._stop(move.worker)

    # ---- workers

    def _stop(self, worker: int) -> None:
        self._stopping.add(worker)
        self._workers.stop(worker)      # `ended` may come before this returns

    def _changed(self, now_s: float, request: Change, answer: "Answer") -> None:
        if answer.status == USED or answer.status == UNKNOWN:
            self._due_s = now_s         # the next beat has the same answer
        elif answer.status == DONE:
            entry = entry_of(request.entry)
            if not entry.name:
                self._due_s = now_s     # a node that leaves goes on
            elif now_s < self.lease_until_s:
                owner = entry_of(request.expected).name
                if owner not in ("", self.name):
                    self._report(NOTICE, f"Worker {request.worker + 1} of node {owner}, which is dead, starts here.")
                self._running[request.worker] = request.entry
                self._workers.start(request.worker, entry.token, self.lease_until_s)
        else:
            assert answer.status == CHANGED

    def _owns_any(self) -> bool:
        return self._table is not None and any(entry_of(text).run == self.run for text in self._table[0].values())

    def _kill(self, workers: list[int]) -> None:
        for worker in workers:
            del self._running[worker]
            self._stopping.discard(worker)
        if workers:
            self._workers.kill(workers)

    def _kill_all(self) -> None:
        self._kill(sorted(self._running))
        self._todo.clear()


def _owners(view: "View", living: dict[str, str], count: int) -> list[str | None]:
    """Return the node of each worker; None: none, or one that is dead. `living`: node -> run."""
    entries = [entry_of(view.workers.get(worker, "")) for worker in range(count)]
    return [entry.name if entry.name and living.get(entry.name) == entry.run else None for entry in entries]


def _places(view: "View", owners: list[str | None]) -> dict[int, Where | None]:
    """Return where each worker is. One whose node announces no address, or none that can be used, is left out."""
    found: dict[int, Where | None] = {}
    for worker, name in enumerate(owners):
        if name is None:
            found[worker] = None
        elif place := place_in(announcement_of(view.announcements[name]).address, worker):
            found[worker] = Where(*place, entry_of(view.workers[worker]).token)
    return found


def _takers(view: "View", living: dict[str, str]) -> dict[str, int]:
    """Return the capacity of each node that may get workers."""
    announcements = {name: announcement_of(view.announcements[name]) for name in living}
    return {name: one.capacity for name, one in announcements.items() if not one.leaving}
