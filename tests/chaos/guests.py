"""Provide further clients for the chaos runs: clients with wills, and members of shared groups."""

from __future__ import annotations

import asyncio
import random
import struct
import time

from tests.chaos.client import HEAD, Chaos, Session, Subscriber
from tests.harness.packets import frame
from tests.harness.properties import text

WILL_PUBLISHER = 0xFFFFFFFE


class Willing(Session):
    """A client with a will. It leaves in different ways and stays away until a due will arrives. Each connection has its own."""

    def __init__(self, chaos: Chaos, number: int, level: int, delay_s: int) -> None:
        super().__init__(chaos, f"will-{number}", level)
        self.number, self.delay_s = number, delay_s if level == 5 else 0
        self.life = 0
        self.came: dict[int, int] = {}          # connection number -> arrivals of its will
        self.unanswered: set[int] = set()       # connections that ended before CONNACK
        self.replaced: set[int] = set()         # connections whose session such a connection took over
        self.arrived = asyncio.Event()          # set when a will of this client arrives
        self.left: dict[int, tuple[float, float]] = {}          # connection number -> the broker read DISCONNECT in between

    def greeting(self) -> bytes:
        props = b"\x05\x11\xff\xff\xff\xff" if self.level == 5 else b""
        will_props = (b"\x05\x18" + struct.pack(">I", self.delay_s) if self.delay_s else b"\x00") if self.level == 5 else b""
        payload = HEAD.pack(WILL_PUBLISHER, self.life)
        flags = 0x04 | 2 << 3
        return frame(0x10, text("MQTT") + bytes([self.level, flags]) + struct.pack(">H", 60) + props + text(self.client_id) + will_props
                     + text(f"will/{self.number}") + struct.pack(">H", len(payload)) + payload)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.life += 1
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.up.is_set():
            self.unanswered.add(self.life)
        self.wanted = self.wanted and not self.up.is_set()      # after CONNACK the client stays away until its will has arrived
        super().connection_lost(error)

    def will_came(self, life: int) -> None:
        self.chaos.wills += 1
        self.came[life] = self.came.get(life, 0) + 1
        if life in self.unanswered and (self.up.is_set() or self.transport is None):        # the last connection was answered, or is over
            self.replaced.add(self.life)
        self.arrived.set()
        if self.came[life] > 1:
            self.chaos.audit.fault("will", f"{self.client_id}: that of life {life} came {self.came[life]} times")
        if life in self.left and self.chaos.on_record(*self.left[life]):
            self.chaos.audit.fault("will", f"{self.client_id}: that of life {life} came, which had ended in peace")

    def is_over(self, life: int) -> bool:
        """Return whether the will of this connection came, or that of an earlier one in its place: a CONNECT without an answer can reach
        the broker after that of a later connection, if networks delay it. It takes the session over then."""
        return life in self.came or life in self.replaced

    async def live(self, r: random.Random, over: asyncio.Event) -> None:
        while not over.is_set():
            self.connect()
            await self.first(self.up, over)
            accepted = self.up.is_set() or not self.wanted          # it was accepted, or was up and is down already
            await self.first(self.down, over, timeout_s=r.uniform(0.05, 1.5))
            life, peaceful = self.life, r.random() < 0.3 and self.up.is_set()
            if peaceful:
                began = time.monotonic()
                if await self.leave():
                    self.left[life] = (began, time.monotonic())
                continue                        # if the broker was killed in between, it may or may not send the will
            self.wanted = False
            self.drop()
            await self.down.wait()
            if accepted:                        # otherwise the broker promised nothing
                await self._will(life, over)

    @staticmethod
    async def first(*events: asyncio.Event, timeout_s: float | None = None) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        for one in waits:
            one.cancel()

    async def _will(self, life: int, over: asyncio.Event) -> None:
        """Wait for the will. Each kill restarts the will's delay, so the time limit begins when the kills are over."""
        ended = time.strftime("%H:%M:%S")
        while not self.is_over(life) and not over.is_set():
            self.arrived.clear()
            await self.first(self.arrived, over)
        try:
            async with asyncio.timeout(self.chaos.missed_s):
                while not self.is_over(life):
                    self.arrived.clear()
                    await self.arrived.wait()
        except TimeoutError:
            self.chaos.audit.fault("will", f"{self.client_id}: that of life {life}, which ended at {ended}, did not come")


class Watcher(Subscriber):
    """A subscriber that gets all wills at QoS 2."""

    def __init__(self, chaos: Chaos, willing: list[Willing]) -> None:
        super().__init__(chaos, 0, -1, 2, 5)
        self.client_id = self.audited = "watcher"
        self.willing = willing
        self.filters = ["will/+"]

    def came(self, message: tuple[int, int], topic: bytes, payload: bytes, dup: bool) -> None:
        self.willing[int(topic[5:])].will_came(message[1])


class Member(Subscriber):
    """A member of a shared group; the audit counts its messages for the group."""

    def __init__(self, chaos: Chaos, number: int, group: int, qos: int, level: int, name: str) -> None:
        super().__init__(chaos, number, group, qos, level)
        self.client_id, self.audited = f"{name}-{number}", name
        self.filters = [f"$share/{name}/chaos/{group}/+"]
        chaos.audit.groups.add(name)
