"""Run 200 random faults of a cluster under load, and audit it from outside: three nodes, three servers of Redis and Sentinels, 500 sessions.

    python -m tests.cluster.chaos.run --faults 200            the full run
    python -m tests.cluster.chaos.run --only 'node killed'    faults of one kind

The load and its audit are those of tests/chaos. In addition, no worker may have two processes at one time, and after each fault all
workers must serve again: each node has some, each publisher gets an acknowledgement, each connected client an answer.
Exit status: 0 without a finding; 1 with findings, which the report lists.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass

from mosq.cluster.terms import Terms
from tests.chaos.client import Chaos, Session
from tests.chaos.load import Load, LoadPlan
from tests.cluster.chaos.faults import POLL_S, Faults, blocking, comes
from tests.cluster.chaos.homes import Homes
from tests.cluster.chaos.machines import PORT, WORKERS, Cluster, cluster

WATCH_S = 0.02
PROBE_S = 0.5                   # between two looks at the connections of the clients
SILENT_S = 4.0                  # a client that gets no answer for so long connects again
SERVES_S = 120.0                # time limit from the end of a fault until all workers serve
GRACE_S = 3.0                   # what was read so long before a fault must be on record
UNREAD_S = 60.0                 # a message may wait so long in the buffers of a node that is stopped or cut off
REFUSED = frozenset((3, 0x88, 0x97))     # CONNACK while Redis is away: a client tries again
LOG_LINES = 40
CRASHES = ("Traceback", "was ended by signal 11", "was ended by signal 6")


@dataclass(slots=True)
class ClusterPlan(LoadPlan):
    faults: int = 200
    lease_s: float = 2.0
    only: tuple[str, ...] = ()          # kinds of faults; empty: all


class Roaming(Chaos):
    """Clients that connect to any node."""

    def __init__(self, run: ClusterRun) -> None:
        super().__init__(PORT)
        self.run, self.random = run, random.Random(run.plan.seed)
        self.grace_s, self.retried, self.missed_s = GRACE_S, REFUSED, SERVES_S

    def address(self) -> tuple[str, int]:
        return self.random.choice(self.run.cluster.nodes).machine.address, PORT


class ClusterRun(Load):
    plan: ClusterPlan

    def __init__(self, plan: ClusterPlan, running: Cluster) -> None:
        self.plan, self.cluster = plan, running
        super().__init__(plan, Roaming(self))
        self.draw = random.Random(plan.seed)    # of its own, so that a seed gives the same faults
        self.faults = Faults(running, self.draw, self.chaos.jumps)
        self.drawn: list[str] = []              # kinds that come next
        self.counts: Counter[str] = Counter()
        self.slowest: dict[str, float] = {}     # kind -> the longest time from the end of its cause until all workers served
        self.homes: dict[int, str] = {}         # worker -> the node that had it last
        self.moves = self.ended = self.silent = 0
        self.shown = 0                          # findings of the audit that were printed
        self.findings: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    # ---- for the load

    async def begin(self) -> None:
        await blocking(self.cluster.start)
        loop = asyncio.get_running_loop()
        self.tasks = [loop.create_task(self.watch()), loop.create_task(self.supervise())]
        await comes(self.is_spread, "each node has workers")

    async def fault(self) -> bool:
        if self.counts.total() >= self.plan.faults:
            return False
        for task in self.tasks:
            if task.done() and task.exception():
                raise task.exception()          # type: ignore[misc]
        if not self.drawn:
            self.drawn = sorted(self.plan.only or self.faults.kinds)
            self.draw.shuffle(self.drawn)
        kind = self.drawn.pop()
        self.counts[kind] += 1
        began = time.monotonic()
        with self.chaos.outage():
            try:
                await self.faults.make(kind)
                healed = time.monotonic()
                async with asyncio.timeout(SERVES_S):
                    await self.serves()
            except (AssertionError, TimeoutError) as error:
                self.finding(f"{kind}: {error or 'not all workers serve again'}; {self.state()}")
                return False
        took = time.monotonic() - healed
        self.slowest[kind] = max(self.slowest.get(kind, 0.0), took)
        audit = self.chaos.audit
        self.say(f"{time.strftime('%H:%M:%S')} {self.counts.total():4d} {kind:22s} lasted {healed - began:5.1f} s, all served {took:5.1f} s later; {audit.deliveries:,} deliveries, "
                 f"{self.moves} moves, {sum(audit.faults.values()) + len(self.findings)} findings")
        for text in audit.shown[self.shown:]:
            self.say(f"!!! {text}")
        self.shown = len(audit.shown)
        return True

    def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        for node in self.cluster.nodes:
            for line in node.log().splitlines():
                if any(word in line for word in CRASHES):
                    self.finding(f"node {node.name}: {line}")

    # ---- what must be so

    def is_spread(self) -> bool:
        """Return whether all workers have a living node, and each node has some."""
        for node in self.cluster.nodes:
            if not node.alive():
                self.ended += 1
                self.finding(f"node {node.name} ended by itself: {last_lines(node.log())}")
                node.spawn()
        table = self.cluster.table()
        names = {entry.name for entry in table.values()}
        if len(table) < WORKERS or names != {node.name for node in self.cluster.nodes}:
            return False
        for worker, entry in table.items():
            self.moves += self.homes.get(worker, entry.name) != entry.name
            self.homes[worker] = entry.name
        return True

    async def serves(self) -> None:
        """Wait until all workers serve: they are spread, each publisher gets an acknowledgement and each client an answer."""
        await comes(self.is_spread, f"each node has workers; {self.cluster.table()}")
        marks = {}
        for publisher in self.publishers:
            publisher.publish(1)
            marks[publisher] = publisher.sent.last + publisher.unsent
        for publisher, mark in marks.items():
            while publisher.sent.acked.count(1) + len(publisher.sent.refused) < mark:
                await asyncio.sleep(POLL_S)
        for subscriber in self.subscribers:
            while subscriber.wanted and not await self.is_answered(subscriber):
                pass

    async def is_answered(self, session: Session) -> bool:
        if not session.up.is_set():
            await asyncio.sleep(POLL_S)
            return False
        with contextlib.suppress(ConnectionResetError):
            await session.ping()
            return True
        return False

    # ---- watchers

    async def watch(self) -> None:
        """Look at the processes of the workers all the time."""
        homes = Homes()
        while True:
            for node in self.cluster.nodes:
                with contextlib.suppress(FileNotFoundError):
                    for text in homes.see(node.name, node.workers()) if node.alive() else ():
                        self.finding(text)
            await asyncio.sleep(WATCH_S)

    async def supervise(self) -> None:
        """Let clients connect again that get no answer, as clients with a keepalive do."""
        while True:
            await asyncio.sleep(PROBE_S)
            for session in (*self.publishers, *self.subscribers, *self.willing):
                session.probe()
                if session.silent_s() > SILENT_S:
                    self.silent += 1
                    session.drop()

    # ---- report

    def finding(self, text: str) -> None:
        self.findings.append(text)
        self.say(f"!!! {text}")

    def state(self) -> str:
        """Return what may explain that not all serves."""
        waiting = [p.client_id for p in self.publishers if p.unsent or not p.idle.is_set()]
        down = [s.client_id for s in (*self.publishers, *self.subscribers) if s.wanted and not s.up.is_set()]
        logs = "".join(f"\n---- {node.name}\n{last_lines(node.log())}" for node in self.cluster.nodes)
        return (f"{len(waiting)} publishers wait, such as {waiting[:5]}; {len(down)} clients are not connected, such as {down[:5]}; "
                f"table {self.cluster.table()}{logs}")

    @property
    def ok(self) -> bool:
        return self.chaos.audit.ok and not self.findings

    def report(self) -> str:
        chaos = self.chaos
        kinds = "\n".join(f"{n:4d} {kind:22s} all served at most {self.slowest.get(kind, 0.0):5.1f} s after its end" for kind, n in sorted(self.counts.items()))
        verdict = "nothing acknowledged was lost, and no session had two homes" if self.ok else "SOMETHING IS WRONG"
        return (f"{kinds}\n{self.counts.total()} faults, {self.moves} moves of workers, {chaos.connects:,} connections, {chaos.take_overs:,} take-overs, "
                f"{chaos.wills:,} wills, {chaos.brief:,} brief messages, {chaos.refusals:,} refused connections, {self.silent:,} silent ones, seed "
                f"{self.plan.seed}\n{chaos.audit.report()}\n" + "\n".join(self.findings) + f"\n{verdict}")


def last_lines(log: str) -> str:
    return "\n".join(log.splitlines()[-LOG_LINES:])


def chaos(plan: ClusterPlan) -> tuple[bool, str]:
    with cluster(Terms(plan.lease_s, plan.lease_s / 2)) as running:
        run = ClusterRun(plan, running)
        try:
            asyncio.run(run.run())
        except TimeoutError:
            run.finding(f"the run did not come to its end; {run.state()}")
        return run.ok, run.report()


def main() -> int:
    parser = argparse.ArgumentParser(description="Makes random faults in a cluster of three nodes under load, and counts what is lost.")
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--sessions", type=int, default=500)
    parser.add_argument("--rate", type=int, default=100, help="messages a second (default: 100)")
    parser.add_argument("--lease", type=float, default=2.0, help="lease of the nodes in seconds (default: 2)")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", action="append", default=[], help="a kind of faults, instead of all; may be repeated")
    args = parser.parse_args()
    began = time.monotonic()
    ok, report = chaos(ClusterPlan(args.sessions, args.rate, seed=args.seed, settle_s=60.0, unread_s=UNREAD_S, faults=args.faults,
                                   lease_s=args.lease, only=tuple(args.only)))
    print(f"\n{report}\n{time.monotonic() - began:.0f} s")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
