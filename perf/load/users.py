"""Define the scenarios, one class of users each; locust starts the users.

The receivers of a user's messages live in the same process, so that each process times and counts by itself.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import gevent
from locust import User, tag, task

from perf.load.client import Client
from perf.load.ledger import WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from perf.load.ledger import Stream
    from perf.load.run import Run

IDLE_S = 0.1                    # interval of checks of an idle user
SPREAD_S = 1.0                  # locust starts users once a second; they begin at random times within this
POLL_S = 0.005
FLAT_OUT_S = 0.001              # interval of checks without a rate limit, while WINDOW deliveries are pending


class LoadUser(User):
    """Publish at a steady rate; scenarios are subclasses."""

    abstract = True
    title = ""                  # name of its lines in locust's tables

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        self.test: Run = environment.mqtt
        self.client: Client | None = None
        self._due = 0.0

    @property
    def period_s(self) -> float:
        rate = self.test.settings.rate
        return 1 / rate if rate else 0.0

    def on_start(self) -> None:
        self.set_up()
        gevent.sleep(random.random() * min(self.period_s, SPREAD_S))

    def set_up(self) -> None:
        """Create the clients, without connecting them."""
        raise NotImplementedError

    def wait_time(self) -> float:
        """Return the pause for a steady rate: after a slow task the next ones follow until they have caught up."""
        if self.test.stopping.is_set():
            return IDLE_S
        if not self._due:
            return POLL_S if self.test.ledger.pending >= WINDOW else 0.0
        return max(0.0, self._due - time.monotonic())

    def due_ns(self) -> int:
        """Return the due time of the message that is sent now; the next is due a period later.

        Latencies count from the due time, so that they include waiting for a slow broker or a slow locust.
        """
        now = time.monotonic()
        if not self.period_s:
            return int(now * 1e9)
        due, self._due = self._due or now, (self._due or now) + self.period_s
        return int(due * 1e9)

    def ready(self, *clients: Client) -> bool:
        """Return whether all clients are connected, the test runs, and without a rate limit there is room.

        Return False only after a pause.
        """
        if self.test.stopping.is_set():
            return False
        if not all(client.listens for client in clients):
            self._due = 0.0
            if not all(client.up() for client in clients) or not all(client.listens for client in clients):
                return False        # a client was lost while another connected
        if not self.period_s and self.test.ledger.pending >= WINDOW:
            gevent.sleep(FLAT_OUT_S)
            return False
        return True

    def until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + self.test.settings.timeout_s
        while not done() and time.monotonic() < end:
            gevent.sleep(POLL_S)

    def on_stop(self) -> None:
        """End the clients; a user that leaves during the test first waits for acknowledgements."""
        for client in self.own():
            if not self.test.drained.is_set():
                self.until(client.link.settled)
            client.end()

    def own(self) -> list[Client]:
        return [self.client] if self.client is not None else []


class Telemetry(LoadUser):
    """Simulate devices that report to one collector in each process."""

    title = "telemetry fan-in"
    weight = 4

    def set_up(self) -> None:
        run = self.test
        self.collector: Client = run.shared("telemetry", lambda: Client(run, self.title, [f"{run.root}/telemetry/#"]))
        self.client = Client(run, self.title)
        self.topic = f"{run.root}/telemetry/{self.client.link.number}"
        self.stream = run.ledger.stream()
        self.collector.expect(self.stream)

    @tag("telemetry")
    @task
    def report(self) -> None:
        if self.client is not None and self.ready(self.collector, self.client):
            self.client.send(self.topic, self.stream, self.due_ns())


class Controller:
    """Send commands at the configured rate, as long as there are devices."""

    def __init__(self, run: Run, title: str) -> None:
        self.run, self.client = run, Client(run, title)
        self.topic, self.stream = f"{run.root}/commands", run.ledger.stream()
        run.spawn(self._work)

    def _work(self) -> None:
        run, due = self.run, time.monotonic()
        while True:
            now, rate = time.monotonic(), run.settings.rate
            busy = run.ledger.pending >= WINDOW if not rate else due > now
            if run.stopping.is_set() or not self.stream.inboxes or not self.client.up():
                due = time.monotonic() + IDLE_S
                gevent.sleep(IDLE_S)
            elif busy:
                gevent.sleep(min(due - now, IDLE_S) if rate else FLAT_OUT_S)
            else:
                self.client.send(self.topic, self.stream, int((due if rate else now) * 1e9))
                due = due + 1 / rate if rate else now
                gevent.sleep(0)


class Commands(LoadUser):
    """Simulate devices that all receive the messages of one controller in each process."""

    title = "command fan-out"
    weight = 2

    def set_up(self) -> None:
        run = self.test
        self.controller: Controller = run.shared("commands", lambda: Controller(run, self.title))
        self.client = Client(run, self.title, [self.controller.topic])
        self.client.expect(self.controller.stream)

    def wait_time(self) -> float:
        return IDLE_S

    @tag("commands")
    @task
    def listen(self) -> None:
        if self.client is not None and not self.test.stopping.is_set():
            self.client.up()


class Chat(LoadUser):
    """Simulate users that write to each other in pairs; a user without a partner waits."""

    title = "chat pairs"
    weight = 2
    partner: Chat | None = None
    stream: Stream | None = None

    def set_up(self) -> None:
        self.topic = f"{self.test.root}/chat/{self.test.next_number()}"
        self.client = Client(self.test, self.title, [self.topic])

    @tag("chat")
    @task
    def talk(self) -> None:
        if self.client is None or not self.ready(self.client):
            return
        if self.partner is None or self.stream is None:
            self._due = time.monotonic() + IDLE_S
            self._meet()
        else:
            self.client.send(self.partner.topic, self.stream, self.due_ns())

    def _meet(self) -> None:
        lobby = self.test.lobby
        if self in lobby:
            return
        if not lobby:
            lobby.append(self)
            return
        other: Chat = lobby.pop()
        for one, two in ((self, other), (other, self)):
            one.partner, one.stream = two, self.test.ledger.stream()
            if two.client is not None:
                two.client.expect(one.stream)

    def on_stop(self) -> None:
        if self in self.test.lobby:
            self.test.lobby.remove(self)
        if (other := self.partner) is not None:
            self._part()
            other._part()
        super().on_stop()

    def _part(self) -> None:
        if self.partner is not None and self.stream is not None:
            if self.partner.client is not None:
                self.partner.client.forget(self.stream)
            self.test.ledger.forget(self.stream)
        self.partner = self.stream = None


class Offline(LoadUser):
    """Simulate a device that disconnects and comes back, and must receive the messages sent in between.

    Its deliveries count from the time at which it began to come back.
    """

    title = "offline devices"
    weight = 1

    def set_up(self) -> None:
        run = self.test
        qos = max(1, run.settings.qos)
        self.topic = f"{run.root}/offline/{run.next_number()}"
        self.client = self.device = Client(run, self.title, [self.topic], qos=qos, clean=False)
        self.sender = Client(run, self.title, qos=qos)
        self.stream = run.ledger.stream()
        self.device.expect(self.stream)
        self.known = False

    @property
    def period_s(self) -> float:
        return super().period_s * self.test.settings.backlog

    @tag("offline")
    @task
    def come_back(self) -> None:
        if not self.ready(self.sender) or not self._introduced():
            return
        due_ns = self.due_ns()
        for _ in range(self.test.settings.backlog):
            self.sender.send(self.topic, self.stream, due_ns)
        self.until(lambda: not self.sender.link.unacked)
        self.device.since_ns = time.monotonic_ns()
        while not self.device.up() and not self.test.drained.is_set():
            pass                        # `up` pauses; the broker may come back as well
        self.until(lambda: not self.device.pending)
        self.device.write_off()
        self.device.leave()

    def _introduced(self) -> bool:
        """Return whether the broker knows the device, which is now offline."""
        if not self.known:
            self.known = self.device.up()
            self.device.leave()
        return self.known

    def own(self) -> list[Client]:
        return [self.sender, self.device] if self.client is not None else []


class Storm(LoadUser):
    """Let all users connect at once at each period of the clock, and disconnect."""

    title = "connect storm"
    weight = 1

    def set_up(self) -> None:
        self.client = Client(self.test, self.title)

    def wait_time(self) -> float:
        if self.test.stopping.is_set():
            return IDLE_S
        period_s = self.period_s
        return period_s - time.time() % period_s if period_s else 0.0

    @tag("storm")
    @task
    def connect(self) -> None:
        if self.client is not None and not self.test.stopping.is_set():
            self.client.link.connect()
            self.client.leave()
            gevent.sleep(0)
