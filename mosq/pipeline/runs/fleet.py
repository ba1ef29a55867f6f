"""Simulate a fleet for the demonstration: devices, offline sessions and dashboards.

The devices send telemetry, some of it bad; some disconnect and come back. One thread with one poll runs all clients
(paho).
"""

import json
import math
import random
import select
import threading
import time
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

if TYPE_CHECKING:
    from collections.abc import Iterator

TICK_S = 0.05
BAD = 0.02  # share of bad payloads
LEAVES = 0.002  # share of messages at which the device closes its socket without DISCONNECT and connects again
SITES = 8
AWAY, DASHBOARDS = 5, 3
SILENT, PAUSED, BUSY = 17, 9, 11  # numbers of devices with a fault
OUTDATED = b'{"temperature": "n/a"}'


def pace(number: int, part: float) -> int:
    """Return how many times as often as usual a device sends, at a part of the time of the demonstration (0 to 1)."""
    if (number == SILENT and part > 2 / 3) or (number == PAUSED and 1 / 4 < part < 1 / 2):
        return 0
    return 4 if number == BUSY and 1 / 2 < part < 2 / 3 else 1


class Device:
    """Simulate a device with its own connection."""

    def __init__(self, number: int, host: str, port: int) -> None:
        self.site, self.number = number % SITES, number
        self.where = (host, port)
        self.topic = f"site/{self.site}/device-{number:03}/telemetry"
        self.client = self._connected()
        self.sent = 0

    def _connected(self) -> paho.Client:
        client = paho.Client(CallbackAPIVersion.VERSION2, f"device-{self.number:03}")
        client.connect(*self.where)
        return client

    def send(self, now: float) -> None:
        """Publish one measurement, sometimes a bad one, and sometimes reconnect first."""
        if random.random() < LEAVES:
            if (socket := self.client.socket()) is not None:
                socket.close()
            self.client = self._connected()
        temperature = 20 + 5 * math.sin(now / 30 + self.number) + random.gauss(0, 0.2)
        payload: bytes = json.dumps({"temperature": round(temperature, 2), "unit": "C", "n": self.sent}).encode()
        if random.random() < BAD:
            payload = random.choice((payload[:-3], OUTDATED, b"\xff\xfe", b""))
        self.client.publish(self.topic, payload, qos=self.number // SITES % 2)
        if self.number % 10 == 0:
            self.client.publish(
                f"site/{self.site}/device-{self.number:03}/power", f"{random.uniform(1, 90):.1f}", qos=1
            )
        self.sent += 1


class Fleet(threading.Thread):
    """Run the simulated clients until `end()` is called."""

    def __init__(
        self, host: str, port: int, devices: int = 200, per_second: float = 2.0, seconds: float = 60.0
    ) -> None:
        super().__init__(name="fleet", daemon=True)
        self.seconds = seconds  # until all faults have happened
        self.where, self.per_second = (host, port), per_second
        self.stop = threading.Event()
        self.error: Exception | None = None
        self._leave_sessions()
        self.others = list(self._dashboards())
        self.devices = [Device(number, host, port) for number in range(devices)]

    def _leave_sessions(self) -> None:
        """Create persistent sessions whose clients stay offline, so that the broker queues messages for them."""
        for number in range(AWAY):
            subscribed = threading.Event()
            client = paho.Client(CallbackAPIVersion.VERSION2, f"archive-{number}", clean_session=False)
            client.on_subscribe = lambda *_, done=subscribed: done.set()
            client.connect(*self.where)
            client.subscribe(f"site/{number}/#", qos=1)
            while not subscribed.is_set():
                client.loop(TICK_S)
            client.disconnect()

    def _dashboards(self) -> "Iterator[paho.Client]":
        for number in range(DASHBOARDS):
            client = paho.Client(CallbackAPIVersion.VERSION2, f"dashboard-{number}", clean_session=False)
            client.connect(*self.where)
            client.subscribe(f"site/+/+/{('telemetry', 'power', '#')[number % 3]}", qos=1)
            yield client

    @property
    def sent(self) -> int:
        return sum(device.sent for device in self.devices)

    def run(self) -> None:
        try:
            self._run()
        except Exception as error:  # `end` raises it
            self.error = error

    def _run(self) -> None:
        due = [(time.monotonic() + random.random() / self.per_second, device) for device in self.devices]
        began = time.monotonic()
        while not self.stop.is_set():
            self._turn([device.client for device in self.devices] + self.others)
            now = time.monotonic()
            for i, (at, device) in enumerate(due):
                if at <= now:
                    faster = pace(device.number, (now - began) / self.seconds)
                    if faster:
                        device.send(now)
                    due[i] = (max(at, now - 1) + 1 / self.per_second / max(faster, 1), device)

    @staticmethod
    def _turn(clients: list[Any]) -> None:
        by_fd = {client.socket().fileno(): client for client in clients if client.socket() is not None}
        poll = select.poll()
        for fd, client in by_fd.items():
            poll.register(fd, select.POLLIN | (select.POLLOUT if client.want_write() else 0))
        for fd, what in poll.poll(TICK_S * 1000):
            if what & ~select.POLLOUT:
                by_fd[fd].loop_read()
            if what & select.POLLOUT:
                by_fd[fd].loop_write()
        for client in clients:
            client.loop_misc()

    def end(self) -> None:
        self.stop.set()
        self.join()
        for client in [device.client for device in self.devices] + self.others:
            client.disconnect()
        if self.error is not None:
            raise self.error
