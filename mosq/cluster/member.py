"""A node of a cluster without I/O: its lease, and which workers it claims, starts, gives away and kills. Requests go
out and answers come in; every call has the time. Knows no Redis, no thread and no clock.

    join -> beat, beat, beat ...                      each confirmed beat extends the lease
              each view: claim workers without a node, if the placement names this one -> start
                         give a worker away, if it is this node's turn, or all if it leaves -> stop ... ended -> return
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
   cut off with its clients confirms nothing. A beat that was not written extends no lease: its view has another one.
6. Nodes that cannot reach each other's workers never run some at the same time: their clients would wait for ever. If a
   node has no address, the workers belong to one node, and a newcomer is refused. If two such nodes have some after a
   partition, one gives all away, and the other one starts none before that. A living node whose announcement is
   missing or damaged gets no worker, but gives none away, and no node is refused: it announces itself again. Workers
   without a node wait for that, because the choice among such nodes depends on all announcements.
7. A worker that could not start on this node FAILURES_MAX times in a row goes to a node that has not failed it.

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
    is_known,
    next_token,
    number_of,
    place_in,
    run_of,
    strange_text,
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
    from collections.abc import Callable, Iterable
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
    ANOTHER: "Redis has another cluster of this name: the data of this one were replaced. "
             "Restore the data, or restart each node to let it join the other cluster",
}
NO_ADDRESS = ("{} has no cluster_listener, so no other node can reach its workers{}. Give each node of the cluster the "
              "option cluster_listener, or run one node at a time")
JOINING, WATCHING, PRESENT, OUT = "joining", "watching", "present", "out"
SLOW_BEATS = 5                  # slow or quick answers in a row that are reported
FAILURES_MAX = 4                # starts of a worker that fail in a row before another node shall try it
UNABLE_S = 600.0                # after that, this node may get it again


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
        self.error: RefusedError | None = None      # why this node is out, or leaves; None: it has left, or is not out
        self.observer = Observer(terms)
        self._workers, self._report, self._random_bits = workers, report, random_bits
        self._places = places
        self._phase = JOINING
        self._running: dict[int, str] = {}      # worker -> its entry; also while it stops
        self._stopping: set[int] = set()
        self._leaving = False           # whether this node ends when it has given its workers away
        self._stopped: dict[int, str] = {}      # worker that was stopped -> its entry, which is to be returned
        self._failures: dict[int, int] = {}     # worker -> starts in a row that have failed here
        self._unable: dict[int, float] = {}     # worker that could not start here -> until when it shall not come
        self._now_s = float("-inf")     # of the last call
        self._replaces = ""             # beat of a dead run of this name
        self._changes = 0               # of the beat of that run, while this one waits
        self._number = 0                # of the last beat
        self._due_s = float("-inf")     # of the next beat
        self._todo: list[Change] = []   # changes that follow from the last view, the next one last
        # of the last view: entries, announcements and living nodes; the node of each worker; nodes that may get workers
        self._table: tuple[dict[int, str], dict[str, str], dict[str, str]] | None = None
        self._owners: list[str | None] = []
        self._takers: dict[str, int] = {}
        self._unknown: set[str] = set()         # living nodes whose announcement is missing or damaged
        self._unable_at: dict[str, tuple[int, ...]] = {}    # workers that nodes could not start
        self._calm_s = 0.0              # since when it has not changed
        self._trouble = ""              # that was reported last
        self._slow = False              # Redis was reported as slow
        self._unlike = 0                # answers in a row that were slow or quick, unlike what was reported
        self._strange: dict[str, str] = {}      # lines about announcements, by node

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

    def runs(self) -> dict[str, str]:
        """Return the run of each node that lives in the last view."""
        return {} if self._table is None else self._table[2]

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
        """Give all workers away, and then leave."""
        self._leaving = True
        self.announcement = replace(self.announcement, leaving=True)
        self._due_s = float("-inf")

    def serves(self, worker: int, token: int) -> None:
        """Note that a worker's process, which was started with this token, serves clients."""
        if self._has_token(worker, token):
            self._failures.pop(worker, None)
            self._unable.pop(worker, None)
            self._announce_unable()

    def ended(self, worker: int, token: int, failed: bool = False) -> None:
        """Take the end of a worker's process, which was started with this token. One that was stopped is returned;
        another one starts again, with a new token, or at another node if it could not start here. `failed`: it has not
        served clients. A caller that wants a pause before the next start calls this later."""
        if not self._has_token(worker, token):
            return                      # it was killed
        entry = self._running.pop(worker)
        if worker in self._stopping:
            self._stopping.discard(worker)
            self._stopped[worker] = entry
        elif failed and not self._trouble:      # without Redis, no worker can start on any node
            self._failed_to_start(worker)
        self._due_s = float("-inf")     # the next view shows an entry without a worker

    def _has_token(self, worker: int, token: int) -> bool:
        return worker in self._running and entry_of(self._running[worker]).token == token

    def _failed_to_start(self, worker: int) -> None:
        self._failures[worker] = self._failures.get(worker, 0) + 1
        if self._failures[worker] >= FAILURES_MAX and worker not in self._unable:
            self._unable[worker] = self._now_s + UNABLE_S
            self._announce_unable()
            self._report(WARNING, f"Worker {worker + 1} could not start on this node {FAILURES_MAX} times in a row. It "
                                  "goes to a node that has not failed to start it, if there is one; the lines above "
                                  "have the reason.")

    def _try_again(self, now_s: float) -> None:
        """Let workers that could not start come to this node again, after a long while."""
        over = [worker for worker, until_s in self._unable.items() if now_s >= until_s]
        for worker in over:
            del self._unable[worker], self._failures[worker]
        if over:
            self._announce_unable()

    def _announce_unable(self) -> None:
        self.announcement = replace(self.announcement, unable=tuple(sorted(self._unable)))

    def end(self) -> None:
        """Kill all workers. This node asks nothing more."""
        self._phase = OUT
        self._kill_all()

    def check(self, now_s: float) -> None:
        """Kill all workers if the lease is over. Each other call does this first."""
        self._now_s = now_s
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
            self._beaten(now_s, sent_s, request, answer)
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

    def _beaten(self, now_s: float, sent_s: float, request: Beat, answer: "Answer") -> None:
        if answer.status == USED:
            self._lose_name(f"another process has joined as {self.name}, because this one gave no sign of life")
        elif answer.status == UNKNOWN:
            self._phase, self._replaces, self._due_s = JOINING, "", now_s
        elif answer.view is not None and (beat := answer.view.beats[self.name]) != f"{self.run} {request.number}":
            self._number = max(self._number, number_of(beat) or 0)
            self._trouble_is("Redis has a later beat of this node than its last one: another program has written it.")
            self._later(now_s, self.terms.retry_s)      # nothing was written, so the replicas have confirmed nothing
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
        self._try_again(now_s)
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
            self._owners = _owners(view, living, self.count)
            self._unknown = {name for name in living if not is_known(view.announcements[name])}
            self._takers = _takers(view, living.keys() - self._unknown, self._owners)
            self._unable_at = {name: announcement_of(view.announcements[name]).unable for name in living}
            self._places(_places(view, self._owners))
            self._report_strange(view.announcements)
        self._todo = []
        self._refuse_alone(view)
        if self.observer.settled():
            self._place(view)
            self._give_away(now_s)

    def _refuse_alone(self, view: "View") -> None:
        """Let this node leave if it is a newcomer, and the workers belong to one node, which lives."""
        leaves = self._leaving or announcement_of(view.announcements[self.name]).leaving
        if self._running or leaves or self.name in self._takers or self._unknown:
            return
        name = next((name for name in sorted(self._takers) if self.observer.beats(name)), None)
        if name is not None:
            self.error = RefusedError(NO_ADDRESS.format(f"the node {name}", "") if self.announcement.address
                                      else NO_ADDRESS.format("this node", f", and the node {name} lives"))
            self.leave()

    def _obey(self, away: bool) -> None:
        """Be away, or come back, as an operator asks for."""
        if away != self.away:
            self.away = away
            self.announcement = replace(self.announcement, leaving=away or self._leaving)
            self._report(NOTICE, "This node was sent away: it gives its workers to others, and starts none." if away
                         else "This node may have workers again.")

    def _report_strange(self, announcements: dict[str, str]) -> None:
        """Report each announcement that has something that this version cannot use, once."""
        strange = {name: line for name, text in announcements.items() if (line := strange_text(name, text))}
        for name, line in strange.items():
            if self._strange.get(name) != line:
                self._report(WARNING, line)
        self._strange = strange

    def _place(self, view: "View") -> None:
        """Claim what this node shall have: workers without a node, and its own that do not run. Return those that it
        has stopped."""
        owners, takers, apart = self._owners, self._takers, self._is_apart(view)
        idle = [worker for worker, name in enumerate(owners) if name == self.name and worker not in self._running]
        if None in owners and not self._unknown:
            placed = placement.assign(takers, owners, self._unable_at)
            idle += [worker for worker, name in enumerate(placed) if name == self.name and owners[worker] is None]
        for worker in sorted(idle, reverse=True):
            text = view.workers.get(worker, "")
            token = entry_of(text).token
            if self._gives_up(worker) or self._stopped.get(worker) == text:
                entry = Entry(token, "", "")
            elif apart:
                continue
            else:
                entry = Entry(self._next_token(token), self.name, self.run)
            self._todo.append(Change(worker, text, text_of(entry), view.source))

    def _is_apart(self, view: "View") -> bool:
        """Return whether another node has workers, and one of the two cannot reach the workers of the other."""
        others = {name for name in self._owners if name is not None and name != self.name}
        return bool(others) and not all(one.address for one in map(announcement_of, (
            view.announcements[name] for name in (self.name, *others))))

    def _gives_up(self, worker: int) -> bool:
        """Return whether a worker of this node that has no process goes to another node."""
        if self.announcement.leaving:
            return True
        if self.name in self._unknown:
            return False
        if self.name not in self._takers:
            return any(map(self.observer.beats, self._takers))
        able = placement.able_for(worker, self._takers, self._unable_at)
        return worker in self._unable and self.name not in able and any(map(self.observer.beats, able))

    def _next_token(self, token: int) -> int:
        return next_token(token, self._random_bits(RANDOM_BITS))

    def _give_away(self, now_s: float) -> None:
        """Stop one worker, if it is this node's turn. Only when all is calm: so nodes that come back together, or one
        after another, cause no storm. A node that shall have no workers stops all at once, and does not wait."""
        takers, running = self._takers, sorted(self._running.keys() - self._stopping)
        if self.name in self._unknown and not self.announcement.leaving:
            return
        if self.name not in takers:
            is_last = self._leaving and not takers and self._unknown <= {self.name}
            if running and (is_last or any(map(self.observer.beats, takers))):
                if takers:
                    self._report(NOTICE, f"{_workers_text(running)} to other nodes.")
                for worker in running:
                    self._stop(worker)
            return
        calm = now_s - self._calm_s >= self.terms.lease_s and all(map(self.observer.steady, takers))
        if calm and not self._stopping:
            move = placement.next_move(takers, self._owners, self._unable_at)
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
                if not self._todo:
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


def _takers(view: "View", known: "Iterable[str]", owners: list[str | None]) -> dict[str, int]:
    """Return the capacity of each node that may get workers. Of several nodes that cannot reach each other's workers,
    it is one: that which has workers, then one with an address. `known`: living nodes whose announcement is known.
    """
    announcements = {name: announcement_of(view.announcements[name]) for name in sorted(known)}
    able = {name: one for name, one in announcements.items() if not one.leaving}
    if len(able) > 1 and not all(one.address for one in able.values()):
        first = min(able, key=lambda name: (name not in owners, not able[name].address, name))
        able = {name: one for name, one in able.items() if name == first or (able[first].address and one.address)}
    return {name: one.capacity for name, one in able.items()}


def _workers_text(workers: list[int]) -> str:
    """Return "Workers 1, 2 go", as the beginning of a line."""
    numbers = ", ".join(str(worker + 1) for worker in workers)
    return f"Worker {numbers} goes" if len(workers) == 1 else f"Workers {numbers} go"
