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
import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.client import STATE_PUBLISHER, Chaos, Publisher, Subscriber
from tests.chaos.guests import Member, Watcher, Willing
from tests.harness.broker import Broker
from tests.workers.case import Workers

# queues without a limit, since a message dropped by a limit would count as lost
PATIENCE_S = 30.0               # time limit for steps that must succeed, even on a slow machine
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
TICK_S = 0.01
STATES_S = 5.0                  # time limit for retained messages after PINGRESP
STOPPED = 0.05                  # share of the kills that are a SIGTERM
KILLED_STARTING = 0.15          # share that is followed by a kill during the start
# with workers: shares of the kills. A worker that is killed again and again starts after longer pauses; a new parent begins with short ones.
PARENT_KILLED, PARENT_STOPPED, ALL_KILLED, FROZEN = 0.2, 0.05, 0.1, 0.3
STARTING_S = 3.0
FROZEN_S = (0.02, 0.6)          # from SIGSTOP to SIGKILL


@dataclass(slots=True)
class Plan:
    sessions: int = 200
    kills: int = 200
    rate: int = 1000                    # messages a second, of all publishers together
    payload_bytes: int = 100
    up_ms: tuple[int, int] = (30, 500)  # how long a broker lives
    drop: bool = False                  # drop connections instead of kills
    seed: int = 0
    config: str = DURABLE
    settle_s: float = 30.0              # seconds without progress after which missing messages count as lost
    quiet: bool = False
    workers: int = 0                    # kill workers, not the whole broker
    unread_s: float = 0.0               # how long the broker may leave a message unread, which does not count for its expiry


class Run:
    def __init__(self, plan: Plan) -> None:
        self.plan, self.random = plan, random.Random(plan.seed)
        self.broker = Workers(plan.workers, plan.config) if plan.workers else Broker(plan.config)
        self.frozen = self.parents = 0
        self.chaos = Chaos(self.broker.port)
        self.chaos.brief_slack_s += plan.unread_s
        n_publishers = max(plan.sessions // 4, 2)
        n_willing, n_members = max(plan.sessions // 20, 2), max(plan.sessions // 20, 3)
        groups = max(n_publishers // 2, 1)
        r = self.random
        self.publishers = [Publisher(self.chaos, i, i % groups, 1 + i // groups % 2, r.choice((4, 5)), r.choice((1, 5, 10)),
                                     {3: 5000, 7: 40000}.get(i % 16, plan.payload_bytes))
                           for i in range(n_publishers)]
        self.subscribers = [Subscriber(self.chaos, i, i % groups, 1 + i // groups % 2, r.choice((4, 5)), r.choice((0, 0, 0, 3, 8)))
                            for i in range(max(plan.sessions - n_publishers - n_willing - n_members - 1, 2))]
        kinds = ["steady", "steady", "flappy", "flappy", "sleeper", "late"]
        self.kind = {s: kinds[i // groups % len(kinds)] for i, s in enumerate(self.subscribers)}
        # groups of three members for the first publishers, at each QoS
        for i in range(n_members):
            member = Member(self.chaos, i, i // 3 % groups, 1 + i // 3 % 2, r.choice((4, 5)), f"share-{i // 3}")
            self.kind[member] = ("steady", "flappy", "sleeper")[i % 3]
            self.subscribers.append(member)
        self.willing = [Willing(self.chaos, i, 4 + i % 2, i // 2 % 2) for i in range(n_willing)]
        self.watcher = Watcher(self.chaos, self.willing)
        self.kind[self.watcher] = "steady"
        self.subscribers.append(self.watcher)
        self.over = False
        self.peace = asyncio.Event()        # set when the kills are over
        self.slowest_start_s = self.started_at = 0.0
        self.stops = 0

    def say(self, text: str, end: str = "\n") -> None:
        if not self.plan.quiet:
            print(text, end=end, flush=True)

    # -- load

    async def publish(self) -> None:
        """Queue `rate` messages a second, evenly; messages that publishers cannot send yet wait."""
        began, given = time.monotonic(), 0
        while not self.over:
            await asyncio.sleep(TICK_S)
            due = int((time.monotonic() - began) * self.plan.rate) - given
            backlog = sum(p.unsent for p in self.publishers)
            if backlog > self.plan.rate:
                given += due            # all queues are full: the rate does not catch up later
                continue
            for _ in range(due):
                self.random.choice(self.publishers).publish(1)
            given += due

    async def live(self, s: Subscriber) -> None:
        """Connect and disconnect a subscriber until the run is over; then keep it connected."""
        r, kind = random.Random(f"{self.plan.seed}{s.client_id}"), self.kind[s]
        if kind == "late":
            await asyncio.sleep(r.uniform(0, 5))
            s.connect()
            s.subscribe()
        while not self.over and kind in ("flappy", "sleeper"):
            await asyncio.sleep(r.uniform(0.05, 1.0) if kind == "flappy" else r.uniform(0.02, 0.2))
            chance = r.random()
            if chance < 0.2:
                s.take_over()
                continue
            if chance < 0.6:
                await s.leave()
            else:
                s.wanted = False
                s.drop()
                await s.down.wait()
            await asyncio.sleep(r.uniform(0.0, 1.5) if kind == "flappy" else r.uniform(3, 30))
            s.connect()
        s.connect()

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
            await self.end(signal.SIGTERM)
        else:
            await self.end(signal.SIGKILL)
        if chance > 1 - KILLED_STARTING:
            starting = asyncio.get_running_loop().create_task(self.start())
            await asyncio.sleep(self.random.uniform(0, 0.25))
            await self.end(signal.SIGKILL)
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
                await self.end(signal.SIGTERM if stopped else signal.SIGKILL)
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

    async def end(self, number: signal.Signals) -> None:
        assert self.broker.process is not None
        self.chaos.kills += number == signal.SIGKILL and self.broker.alive()
        with self.chaos.outage():
            self.broker.process.send_signal(number)
            await asyncio.get_running_loop().run_in_executor(None, self.broker.process.wait)

    async def connect_all(self) -> None:
        """Connect all clients; return when all subscriptions are acknowledged, where the audit begins."""
        for session in (*self.publishers, *self.subscribers):
            if self.kind.get(session) == "late":  # type: ignore[call-overload]
                session.late = True
            else:
                session.connect()
        async with asyncio.timeout(max(self.plan.settle_s, PATIENCE_S)):
            for session in (*self.publishers, *self.subscribers):
                if self.kind.get(session) != "late":  # type: ignore[call-overload]
                    await (session.subscribed if isinstance(session, Subscriber) else session.up).wait()

    async def run(self) -> bool:
        tasks: list[asyncio.Task[None]] = []
        wills: list[asyncio.Task[None]] = []
        try:
            await self.start()
            await self.connect_all()
            loop = asyncio.get_running_loop()
            tasks += [loop.create_task(self.publish()), *(loop.create_task(self.live(s)) for s in self.subscribers)]
            wills = [loop.create_task(w.live(random.Random(f"{self.plan.seed}{w.client_id}"), self.peace)) for w in self.willing]
            while self.chaos.kills < self.plan.kills:
                await asyncio.sleep(self.random.uniform(*self.plan.up_ms) / 1000)
                await self.kill()
                if sys.stdout.isatty():
                    self.say(f"\r{self.chaos.kills} of {self.plan.kills} kills, {self.chaos.audit.deliveries:,} deliveries ", end="")
                for task in (*tasks, *wills):
                    if task.done() and task.exception():
                        raise task.exception()  # type: ignore[misc]
            self.peace.set()
            await asyncio.gather(self.settle(tasks), *wills)
            await self.nothing_comes_again()
            await self.retained()
        finally:
            for task in tasks:
                task.cancel()
            for task in wills:
                task.cancel()
            for session in (*self.publishers, *self.subscribers, *self.willing):
                session.wanted = False
                session.drop()
            await asyncio.sleep(0)
            if self.broker.process is not None:
                self.broker.process.kill()
                self.broker.process.wait()
        self.chaos.audit.reckon()
        return self.chaos.audit.ok

    async def settle(self, tasks: list[asyncio.Task[None]]) -> None:
        """Keep all clients online until all pending messages have arrived, or until no message arrives any more."""
        self.over = True
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for s in self.subscribers:
            if s.late:
                s.late = False
            s.connect()
            s.catch_up()
        progress, last = time.monotonic(), (-1, -1)
        while True:
            if self.killed_starting():          # by the last kill
                await self.start()
            audit = self.chaos.audit
            now = (audit.deliveries + audit.redeliveries, sum(p.sent.acked.count(1) for p in self.publishers))
            if now != last:
                progress, last = time.monotonic(), now
            if all(p.idle.is_set() for p in self.publishers) and all(audit.complete(name) for name in {s.audited for s in self.subscribers}):
                break
            if time.monotonic() - progress > self.plan.settle_s:
                self.say(f"\nno progress for {self.plan.settle_s:.0f} s; {audit.unacknowledged()} are not acknowledged")
                break
            await asyncio.sleep(TICK_S)
        await asyncio.gather(*(self.quiet(s) for s in self.subscribers))

    async def quiet(self, s: Subscriber) -> None:
        """Wait until the broker has handled all acknowledgements, also those of messages that arrive during the wait."""
        async with asyncio.timeout(max(self.plan.settle_s, PATIENCE_S)):
            before = -1
            while before != s.n:
                before = s.n
                s.catch_up()
                await self.answered(s)

    async def answered(self, s: Subscriber) -> None:
        """Ask again if a connection ends before the answer: its client was leaving when the run ended."""
        while True:
            await s.up.wait()
            with contextlib.suppress(ConnectionResetError):
                await s.ping()
                return

    async def nothing_comes_again(self) -> None:
        """Check that a returning client gets no message, since all messages are acknowledged."""
        for s in self.subscribers:
            await s.leave()
        before = {s: s.n for s in self.subscribers}
        for s in self.subscribers:
            s.connect()
        async with asyncio.timeout(max(self.plan.settle_s, PATIENCE_S)):
            for s in self.subscribers:
                await self.answered(s)
        for s in self.subscribers:
            if s.n != before[s]:
                self.chaos.audit.fault("again", f"{s.client_id} got {s.n - before[s]} messages after it had acknowledged everything")

    async def retained(self) -> None:
        """Check that the retained message of each publisher is one that it sent, not older than the last acknowledged one."""
        states: dict[str, int] = {}

        class Reader(Subscriber):
            def _publication(self, first: int, body: bytes) -> None:
                n = body[0] << 8 | body[1]
                assert int.from_bytes(body[-12:-8], "big") == STATE_PUBLISHER
                states[body[2:2 + n].decode()] = int.from_bytes(body[-8:], "big")

        reader = Reader(self.chaos, 0, 0, 0, 4)
        reader.client_id, reader.late = "reader", True
        reader.connect()
        async with asyncio.timeout(max(self.plan.settle_s, PATIENCE_S)):
            await reader.up.wait()
            reader._out.append(b"\x82\x0c\x00\x01\x00\x07state/#\x00")
            reader.flush()
            await reader.ping()
        expected = {f"state/{p.number}" for p in self.publishers if p.state_acked}
        with contextlib.suppress(TimeoutError):                 # a plugin may still decide about them
            async with asyncio.timeout(STATES_S):
                while not expected <= states.keys():
                    await asyncio.sleep(TICK_S)
        reader.wanted = False
        reader.drop()
        for p in self.publishers:
            found = states.get(f"state/{p.number}", 0)
            if not p.state_acked <= found <= p.state_sent:
                self.chaos.audit.fault("retained", f"of {p.client_id} is {found}; acknowledged up to {p.state_acked}, sent up to {p.state_sent}")

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
    plan = Plan(args.sessions, args.kills, args.rate, args.payload, drop=args.drop, seed=args.seed, config=config, workers=args.workers)
    began = time.monotonic()
    ok, report = asyncio.run(chaos(plan))
    print(f"\n{report}\n{time.monotonic() - began:.0f} s")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
