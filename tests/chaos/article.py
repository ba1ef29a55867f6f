"""Run the scenario in which some brokers lose or duplicate offline messages.

A publisher sends 2,000 messages without a pause. The QoS 1 consumer with clean=0 leaves at 500 and returns at 1,000, then again
at random points. Variants have ten consumers, or kill the broker in between. All messages must arrive in order; only
unacknowledged messages may arrive again, with DUP set.
"""

from __future__ import annotations

import asyncio
import random
import signal
from dataclasses import dataclass

from tests.chaos.client import Chaos, Publisher, Subscriber
from tests.chaos.run import DURABLE
from tests.harness.broker import Broker

MESSAGES = 2000


@dataclass(slots=True)
class Scene:
    consumers: int = 1
    qos: int = 1
    kills: int = 0                      # kills of the broker at random points
    leaves: tuple[tuple[int, int], ...] = ((500, 1000),)        # (leaves at, returns at), in messages sent by the publisher
    politely: bool = True               # the consumer leaves after the broker read its acknowledgements
    config: str = DURABLE
    seed: int = 0
    settle_s: float = 30.0


def random_leaves(seed: int, n: int = 4) -> tuple[tuple[int, int], ...]:
    points = sorted(random.Random(seed).sample(range(1, MESSAGES), 2 * n))
    return tuple(zip(points[::2], points[1::2], strict=True))


class Play:
    def __init__(self, scene: Scene, broker: Broker) -> None:
        self.scene, self.broker = scene, broker
        self.chaos = Chaos(broker.port)
        self.publisher = Publisher(self.chaos, 0, 0, scene.qos, 4, 10, 32)
        self.consumers = [Subscriber(self.chaos, i, 0, scene.qos, 4 + i % 2) for i in range(scene.consumers)]
        self._at: dict[int, asyncio.Event] = {}

    async def _reached(self, n: int) -> None:
        while self.publisher.sent.acked.count(1) < n:
            await asyncio.sleep(0.001)

    async def _consumer(self, s: Subscriber) -> None:
        for leaves_at, returns_at in self.scene.leaves:
            await self._reached(leaves_at)
            await s.up.wait()           # the consumer has returned since the last time
            if self.scene.politely:
                await s.leave()
            else:
                s.wanted = False
                s.drop()
                await s.down.wait()
            await self._reached(returns_at)
            s.connect()

    async def _killer(self) -> None:
        for n in sorted(random.Random(self.scene.seed).sample(range(1, MESSAGES), self.scene.kills)):
            await self._reached(n)
            self.chaos.kills += 1
            assert self.broker.process is not None
            with self.chaos.outage():
                self.broker.process.send_signal(signal.SIGKILL)
                await asyncio.get_running_loop().run_in_executor(None, self.broker.process.wait)
            await asyncio.get_running_loop().run_in_executor(None, self.broker.start)

    async def _all_has_come(self) -> None:
        audit = self.chaos.audit
        while not all(audit.complete(s.client_id) for s in self.consumers):
            await asyncio.sleep(0.005)

    async def play(self) -> None:
        clients = (self.publisher, *self.consumers)
        for client in clients:
            client.connect()
        async with asyncio.timeout(self.scene.settle_s):
            await asyncio.gather(self.publisher.up.wait(), *(s.subscribed.wait() for s in self.consumers))
        try:
            self.publisher.publish(MESSAGES)
            async with asyncio.timeout(4 * self.scene.settle_s):
                await asyncio.gather(self._killer(), *(self._consumer(s) for s in self.consumers))
                await self.publisher.idle.wait()
                await self._all_has_come()
                for s in self.consumers:        # no message is pending any more
                    await s.leave()
                    before = s.n
                    s.connect()
                    await s.up.wait()
                    await s.ping()
                    if s.n != before:
                        self.chaos.audit.fault("again", f"{s.client_id} got {s.n - before} after everything was acknowledged")
        except TimeoutError:
            pass                                # the audit reports the missing messages
        finally:
            for client in clients:
                client.wanted = False
                client.drop()
        self.chaos.audit.reckon()


def play(scene: Scene) -> Chaos:
    """Run the scenario with its own broker; the result holds the findings in `.audit`."""
    async def run() -> Chaos:
        with Broker(scene.config) as broker:
            try:
                p = Play(scene, broker)
                await p.play()
                return p.chaos
            finally:
                if broker.process is not None and not broker.alive():
                    broker.start()              # close() stops a running broker

    return asyncio.run(run())
