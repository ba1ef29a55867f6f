"""Run chaos: 200 sessions, a broker killed at random moments and started again on its store, and an audit by sequence numbers.

    python -m tests.chaos.run --kills 200                 the full run (`make chaos`)
    python -m tests.chaos.run --kills 20 --sessions 60    the short run of CI
    python -m tests.chaos.run --workers 3 --kills 200     kills workers of a broker with `cluster_local 3`, and sometimes their parent
    python -m tests.chaos.run --drop --kills 20           drops connections instead of kills: for a broker without a store

Publishers send at QoS 1 and 2, and send unacknowledged messages again, as the standard requires. Some subscribers stay, some come and
go, some sleep through most of the run, some subscribe in the middle of it. Exit status: 0 without a fault; 1 with faults, which the
report lists. `MOSQ_BROKER` names another broker's command.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.client import Chaos
from tests.chaos.load import TICK_S, Load, LoadPlan
from tests.harness.broker import Broker
from tests.workers.case import Workers

# queues without a limit, since a message dropped by a limit would count as lost
DURABLE = """listener {port} 127.0.0.1
allow_anonymous true
persistence true
persistence_location {dir}/
durability group
max_queued_messages 0
queue_memory 100000
log_type error
log_type warning
log_type notice
log_dest stdout
"""
MEMORY = """listener {port} 127.0.0.1
allow_anonymous true
max_queued_messages 0
queue_memory 100000
log_type error
"""
STOPPED = 0.05                  # share of the kills that are a SIGTERM
KILLED_STARTING = 0.15          # share that is followed by a kill during the start
# with workers: shares of the kills. A worker that is killed again and again starts after longer pauses; a new parent begins with short ones.
PARENT_KILLED, PARENT_STOPPED, ALL_KILLED, FROZEN = 0.2, 0.05, 0.1, 0.3
STARTING_S = 3.0
FROZEN_S = (0.02, 0.6)          # from SIGSTOP to SIGKILL


@dataclass(slots=True)
class Plan(LoadPlan):
    kills: int = 200
    up_ms: tuple[int, int] = (30, 500)  # how long a broker lives
    drop: bool = False                  # drop connections instead of kills
    config: str = DURABLE
    workers: int = 0                    # kill workers, not the whole broker


class Run(Load):
    plan: Plan

    def __init__(self, plan: Plan) -> None:
        self.broker = Workers(plan.workers, plan.config) if plan.workers else Broker(plan.config)
        super().__init__(plan, Chaos(self.broker.port))
        self.frozen = self.parents = 0
        self.slowest_start_s = self.started_at = 0.0
        self.stops = 0

    # -- for the load

    async def begin(self) -> None:
        await self.start()

    async def fault(self) -> bool:
        if self.chaos.kills >= self.plan.kills:
            return False
        await asyncio.sleep(self.random.uniform(*self.plan.up_ms) / 1000)
        await self.kill()
        if sys.stdout.isatty():
            self.say(f"\r{self.chaos.kills} of {self.plan.kills} kills, {self.chaos.audit.deliveries:,} deliveries ", end="")
        return True

    async def revive(self) -> None:
        if self.killed_starting():          # by the last kill
            await self.start()

    def end(self) -> None:
        if self.broker.process is not None:
            self.broker.process.kill()
            self.broker.process.wait()

    # -- kills of the broker

    async def start(self) -> None:
        began = time.monotonic()
        try:
            await asyncio.get_running_loop().run_in_executor(None, self.broker.start)
        except RuntimeError as error:
            raise RuntimeError(str(error)[-2000:]) from None        # the log of a whole run is too long
        self.started_at = time.monotonic()
        self.slowest_start_s = max(self.slowest_start_s, time.monotonic() - began)

    async def kill(self) -> None:
        """Kill the broker and start it again on its store; sometimes kill it during the start too, or only stop it."""
        if self.plan.drop:
            self.chaos.kills += 1
            for session in (*self.publishers, *self.subscribers):
                session.drop()
            return
        assert self.broker.process is not None
        if self.killed_starting():
            await self.start()
            return
        if self.broker.process.poll() is not None:
            raise RuntimeError(f"the broker ended by itself with status {self.broker.process.returncode}:\n{self.broker.log()[-3000:]}")
        if isinstance(self.broker, Workers):
            await self.kill_workers(self.broker)
            return
        chance = self.random.random()
        if chance < STOPPED:
            self.stops += 1
            await self.signal(signal.SIGTERM)
        else:
            await self.signal(signal.SIGKILL)
        if chance > 1 - KILLED_STARTING:
            starting = asyncio.get_running_loop().create_task(self.start())
            await asyncio.sleep(self.random.uniform(0, 0.25))
            await self.signal(signal.SIGKILL)
            with contextlib.suppress(RuntimeError):
                await starting
        if not self.broker.alive():     # a kill during the start ended it
            await self.start()

    def killed_starting(self) -> bool:
        """Return whether worker 1 was killed in its start, so that the broker could not start."""
        assert self.broker.process is not None
        last = max((outage.began_at for outage in self.chaos.outages), default=0.0)
        return self.plan.workers > 0 and self.broker.process.poll() == 1 and last - self.started_at < STARTING_S

    async def kill_workers(self, broker: Workers) -> None:
        """Kill one worker or all, some of them after a SIGSTOP; or the parent, or stop it, and start the broker again."""
        pids, chance = broker.pids(), self.random.random()
        if chance < PARENT_KILLED + PARENT_STOPPED or not pids:
            stopped = chance < PARENT_STOPPED
            children = broker.children()
            self.stops += stopped
            self.parents += not stopped
            with self.chaos.outage():
                await self.signal(signal.SIGTERM if stopped else signal.SIGKILL)
                while any(Path(f"/proc/{pid}").exists() for pid in children):         # they end by themselves
                    await asyncio.sleep(TICK_S)
            await self.start()
            return
        doomed = list(pids.values()) if chance > 1 - ALL_KILLED else [self.random.choice(list(pids.values()))]
        with self.chaos.outage():
            for pid in doomed:
                if self.random.random() < FROZEN:
                    self.frozen += 1
                    os.kill(pid, signal.SIGSTOP)
                    await asyncio.sleep(self.random.uniform(*FROZEN_S))
            for pid in doomed:
                self.chaos.kills += 1
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    async def signal(self, number: signal.Signals) -> None:
        assert self.broker.process is not None
        self.chaos.kills += number == signal.SIGKILL and self.broker.alive()
        with self.chaos.outage():
            self.broker.process.send_signal(number)
            await asyncio.get_running_loop().run_in_executor(None, self.broker.process.wait)

    def report(self) -> str:
        what = "drops of all connections" if self.plan.drop else "kills"
        if self.plan.workers:
            what += f" of {self.plan.workers} workers ({self.frozen} after SIGSTOP, {self.parents} of the parent)"
        verdict = "nothing acknowledged was lost" if self.chaos.audit.ok else "SOMETHING IS WRONG"
        lies = sum(f.stat().st_size for f in self.broker.dir.rglob("segment.*")) >> 20
        return (f"{self.chaos.kills} {what}, {self.stops} stops, {self.chaos.connects:,} connections, {self.chaos.take_overs:,} take-overs, {self.chaos.wills:,} wills, "
                f"{self.chaos.brief:,} brief messages, slowest start {self.slowest_start_s * 1000:.0f} ms, seed "
                f"{self.plan.seed}, {lies} MiB of store\n{self.chaos.audit.report()}\n{verdict}")


async def chaos(plan: Plan) -> tuple[bool, str]:
    run = Run(plan)
    try:
        ok = await run.run()
        return ok, run.report()
    finally:
        run.broker.close()


def main() -> int:
    parser = argparse.ArgumentParser(description="Kills a broker under load and counts what is lost.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--rate", type=int, default=1000, help="messages a second (default: 1000)")
    parser.add_argument("--payload", type=int, default=100, help="bytes of most messages (default: 100); large ones make the store clean")
    parser.add_argument("--durability", choices=("group", "strict"), default="group")
    parser.add_argument("--workers", type=int, default=0, help="a broker with so many workers, which are killed")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--drop", action="store_true", help="drop all connections instead of killing the broker")
    parser.add_argument("--memory", action="store_true", help="a broker without a store; for --drop")
    args = parser.parse_args()
    config = MEMORY if args.memory else DURABLE.replace("durability group", f"durability {args.durability}")
    plan = Plan(args.sessions, args.rate, args.payload, kills=args.kills, drop=args.drop, seed=args.seed, config=config, workers=args.workers)
    began = time.monotonic()
    ok, report = asyncio.run(chaos(plan))
    print(f"\n{report}\n{time.monotonic() - began:.0f} s")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
