"""Put load of QoS 1 and 2 on durable sessions of a cluster, and account for each message. The clients and the audit are those of tests/chaos."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import time
from typing import NamedTuple

from tests.chaos.client import Chaos, Publisher, Subscriber

TICK_S = 0.02
WINDOW = 10
PAYLOAD_BYTES = 100
CONNECT_S = 60.0                # time limit for the first connections
SETTLE_S = 30.0                 # seconds without progress after which missing messages count as lost
STAY_S, AWAY_S = (1.0, 8.0), (0.5, 8.0)
GRACE_S = 3.0                   # acknowledgements that a node has read so long before a kill must be on record
SERVER_UNAVAILABLE = frozenset((3, 0x88))


class Figures(NamedTuple):
    """An account of messages. `again`: copies at QoS 1 beyond the first, which the standard allows."""

    published: int = 0
    acknowledged: int = 0
    delivered: int = 0          # first copies, to all sessions together
    pending: int = 0            # acknowledged messages that sessions will get
    lost: int = 0               # acknowledged messages that sessions did not get, though they got a later one
    doubled: int = 0
    again: int = 0

    def __add__(self, other: Figures) -> Figures:       # type: ignore[override]
        return Figures(*map(sum, zip(self, other, strict=True)))


class Everywhere(Chaos):
    """Clients that connect to the given addresses in turns."""

    def __init__(self, addresses: list[tuple[str, int]]) -> None:
        super().__init__(addresses[0][1])
        self.retried, self.grace_s = SERVER_UNAVAILABLE, GRACE_S
        self._addresses = itertools.cycle(addresses)

    def address(self) -> tuple[str, int]:
        return next(self._addresses)


class Load:
    """`sessions` clients, all with durable sessions: a fifth publishes, half of the others come and go. `rate`: messages a second."""

    def __init__(self, addresses: list[tuple[str, int]], sessions: int, rate: int) -> None:
        self.chaos, self.rate = Everywhere(addresses), rate
        self.random = random.Random(sessions)
        groups = max(sessions // 5, 2)
        self.publishers = [Publisher(self.chaos, n, n, 1 + n % 2, 4, WINDOW, PAYLOAD_BYTES) for n in range(groups)]
        self.subscribers = [Subscriber(self.chaos, n, n % groups, 1 + n % groups % 2, 4 + n % 2) for n in range(max(sessions - groups, groups))]
        self.roaming = [one for n, one in enumerate(self.subscribers) if n // groups % 2]
        self.tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Connect and subscribe all clients, and begin to publish."""
        for session in (*self.publishers, *self.subscribers):
            session.connect()
        async with asyncio.timeout(CONNECT_S):
            await asyncio.gather(*(one.up.wait() for one in self.publishers), *(one.subscribed.wait() for one in self.subscribers))
        loop = asyncio.get_running_loop()
        self.tasks = [loop.create_task(self._publish()), *(loop.create_task(self._roam(one)) for one in self.roaming)]

    async def _publish(self) -> None:
        """Publish `rate` messages a second; messages that no publisher could send yet are not made up for."""
        began, given = time.monotonic(), 0
        while True:
            await asyncio.sleep(TICK_S)
            due = int((time.monotonic() - began) * self.rate) - given
            given += due
            ready = [one for one in self.publishers if one.unsent < WINDOW]
            for _ in range(due if ready else 0):
                self.random.choice(ready).publish(1)

    async def _roam(self, one: Subscriber) -> None:
        while True:
            await asyncio.sleep(self.random.uniform(*STAY_S))
            await one.leave()
            await asyncio.sleep(self.random.uniform(*AWAY_S))
            one.connect()

    async def settle(self) -> None:
        """Publish no more, connect all clients, and wait until all has arrived, or until nothing arrives any more."""
        for task in self.tasks:
            task.cancel()
        for task in self.tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for one in self.subscribers:
            one.connect()
            one.catch_up()
        progress, last = time.monotonic(), Figures()
        while time.monotonic() - progress < SETTLE_S:
            now = self.account(1) + self.account(2)
            if not now.pending and all(one.idle.is_set() for one in self.publishers):
                break
            if now != last:
                progress, last = time.monotonic(), now
            await asyncio.sleep(TICK_S)
        self.chaos.audit.reckon()

    async def end(self) -> None:
        """Close all connections."""
        for session in (*self.publishers, *self.subscribers):
            session.wanted = False
            session.drop()
        await asyncio.sleep(0)

    def account(self, qos: int) -> Figures:
        """Return the account of the messages of one QoS now."""
        audit = self.chaos.audit
        numbers = {number for number, sent in audit.publishers.items() if sent.qos == qos}
        total = Figures(published=sum(audit.publishers[number].last for number in numbers),
                        acknowledged=sum(audit.publishers[number].acked.count(1) for number in numbers))
        for session in audit.sessions.values():
            for number in numbers & session.keys():
                sent, got = audit.publishers[number], session[number]
                first = got.wanted_from - 1
                if first < 0:
                    continue            # the subscription is not acknowledged yet
                missing = [seq for seq in range(first, got.first) if not got.copies[seq]] if got.copies.count(0, first, got.first) else []
                copies = sum(got.copies[first:got.first])
                delivered = max(got.first - first, 0) - len(missing)
                more = copies - delivered
                total += Figures(delivered=delivered, pending=sent.acked.count(1, max(first, got.first)),
                                 lost=sum(sent.acked[seq] for seq in missing), doubled=more if qos == 2 else 0, again=more if qos == 1 else 0)
        return total
