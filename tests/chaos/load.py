"""Provide the load of the chaos runs: sessions that publish, receive, leave and return, until all messages have arrived.

A run derives from `Load`: it starts brokers, makes faults, and ends the brokers."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass

from tests.chaos.client import STATE_PUBLISHER, Chaos, Publisher, Subscriber
from tests.chaos.guests import Member, Watcher, Willing

PATIENCE_S = 30.0               # time limit for steps that must succeed, even on a slow machine
TICK_S = 0.01
STATES_S = 5.0                  # time limit for retained messages after PINGRESP


@dataclass(slots=True)
class LoadPlan:
    sessions: int = 200
    rate: int = 1000                    # messages a second, of all publishers together
    payload_bytes: int = 100
    seed: int = 0
    settle_s: float = 30.0              # seconds without progress after which missing messages count as lost
    quiet: bool = False
    unread_s: float = 0.0               # how long the broker may leave a message unread, which does not count for its expiry


class Load:
    """Sessions, and the events of their life."""

    plan: LoadPlan

    def __init__(self, plan: LoadPlan, chaos: Chaos) -> None:
        self.random = random.Random(plan.seed)
        self.plan, self.chaos = plan, chaos
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

    # -- for a run

    async def begin(self) -> None:
        """Start the brokers."""
        raise NotImplementedError

    async def fault(self) -> bool:
        """Make the next fault; return False if there is none."""
        raise NotImplementedError

    async def revive(self) -> None:
        """Start a broker that has ended, after the faults."""

    def end(self) -> None:
        """End the brokers."""
        raise NotImplementedError

    # -- load

    def say(self, text: str, end: str = "\n") -> None:
        if not self.plan.quiet:
            print(text, end=end, flush=True)

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

    # -- life

    async def run(self) -> bool:
        tasks: list[asyncio.Task[None]] = []
        wills: list[asyncio.Task[None]] = []
        try:
            await self.begin()
            await self.connect_all()
            loop = asyncio.get_running_loop()
            tasks += [loop.create_task(self.publish()), *(loop.create_task(self.live(s)) for s in self.subscribers)]
            wills = [loop.create_task(w.live(random.Random(f"{self.plan.seed}{w.client_id}"), self.peace)) for w in self.willing]
            while await self.fault():
                for task in (*tasks, *wills):
                    if task.done() and task.exception():
                        raise task.exception()  # type: ignore[misc]
            self.peace.set()
            await asyncio.gather(self.settle(tasks), *wills)
            await self.nothing_comes_again()
            await self.retained()
        finally:
            for task in (*tasks, *wills):
                task.cancel()
            for session in (*self.publishers, *self.subscribers, *self.willing):
                session.wanted = False
                session.drop()
            await asyncio.sleep(0)
            self.end()
        self.chaos.audit.reckon()
        return self.chaos.audit.ok

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
            await self.revive()
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
        """Check that a returning client gets no message, since all messages are acknowledged.

        The watcher may get a will now for which no client waits: that of a connection without CONNACK, whose packets a network delayed.
        `will_came` reports a will that comes again."""
        for s in self.subscribers:
            await s.leave()
        before = {s: s.n for s in self.subscribers}
        for s in self.subscribers:
            s.connect()
        async with asyncio.timeout(max(self.plan.settle_s, PATIENCE_S)):
            for s in self.subscribers:
                await self.answered(s)
        for s in self.subscribers:
            if s.n != before[s] and s is not self.watcher:
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
