"""Hold one process during one test: its connections, its ledger, its records for locust, and the end of the test."""

from __future__ import annotations

import os
import secrets
import time
from typing import TYPE_CHECKING, Any

import gevent
from gevent.event import Event

from mosq.tools.bench import usage
from perf.load.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable

    from perf.load.client import Client
    from perf.load.link import Link
    from perf.load.options import Settings, Target

TICK_S = 0.5
POLL_S = 0.02                   # interval of checks at the end of a test
GONE_S = 0.3                    # wait without any connection: no message can arrive
QUIET_S = 0.1                   # wait after the last expected message, to find unexpected ones


class Failure(Exception):       # noqa: N818 (locust's tables show the name)
    """Describe in words why a request failed."""

    def __repr__(self) -> str:
        return str(self)


class Run:
    """Hold the connections and counts of one process during one test."""

    def __init__(self, environment: Any, settings: Settings, target: Target) -> None:
        self.environment, self.settings, self.target = environment, settings, target
        self.tls = settings.tls_context() if target.tls else None
        self.ledger = Ledger(secrets.randbits(32))
        self.root = f"{settings.prefix}/{self.ledger.mark:08x}"
        self.links: set[Link] = set()
        self.clients: set[Client] = set()
        self.lobby: list[Any] = []              # users that wait for a chat partner
        self.stopping, self.drained = Event(), Event()
        self.requests = 0
        self._shared: dict[str, Any] = {}
        self._numbers = 0
        self._used, self._began_s = usage.used(os.getpid()), time.monotonic()
        self._sums: dict[str, float] = {}
        self._greenlets = [gevent.spawn(self._tick)]

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def shared(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the object that the users of a scenario share in this process."""
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    def spawn(self, function: Callable[[], None]) -> None:
        self._greenlets.append(gevent.spawn(function))

    def record(self, type: str, name: str, since_ns: int | None = None, size: int = 0, error: str = "") -> None:
        """Record a line of locust's statistics; without a start time it is counted and not timed."""
        if self.drained.is_set():
            return
        self.requests += 1
        self.environment.events.request.fire(
            request_type=type, name=name, response_length=size, context={},
            response_time=None if since_ns is None else (time.monotonic_ns() - since_ns) / 1e6,
            exception=Failure(error) if error else None)

    def _tick(self) -> None:
        delivered, moved = 0, time.monotonic()
        while True:
            gevent.sleep(TICK_S)
            for link in list(self.links):
                link.tick(time.monotonic_ns())
            for client in list(self.clients):
                client.tick()
            if self.ledger.delivered != delivered or not self.ledger.pending:
                delivered, moved = self.ledger.delivered, time.monotonic()
            elif not self.settings.rate and time.monotonic() - moved > self.settings.timeout_s:
                self._write_off()               # without a rate limit every user waits for these messages

    # ---------------------------------------------------------------- the end

    def drain(self) -> None:
        """Stop sending, and wait until messages on their way are delivered or lost. Afterwards nothing is recorded."""
        if self.stopping.is_set():
            self.drained.wait()
            return
        self._sums = self._report()
        self.stopping.set()
        seen, moved = (0, 0), time.monotonic()
        while True:
            now = self.ledger.pending + self.ledger.stranded, sum(link.unacked for link in self.links)
            if not any(now):
                break
            if seen != now:
                seen, moved = now, time.monotonic()
            patience = self.settings.timeout_s if any(link.up for link in self.links) else GONE_S
            if time.monotonic() - moved > patience:
                break
            gevent.sleep(POLL_S)
        gevent.sleep(QUIET_S)
        for link in self.links:
            link.give_up(time.monotonic_ns())
        self._write_off()
        self.drained.set()

    def _write_off(self) -> None:
        for client in list(self.clients):
            client.write_off()

    def close(self) -> None:
        """Close the connections that no user ends, after drain()."""
        gevent.killall(self._greenlets)
        for client in list(self.clients):
            client.end()

    def report(self) -> dict[str, float]:
        """Return sums up to the end of publishing, and the outcome of the messages up to now."""
        ledger = self.ledger
        return {**(self._sums or self._report()), "sent": ledger.sent, "delivered": ledger.delivered,
                "lost": ledger.lost, "duplicates": ledger.duplicates, "out_of_order": ledger.disordered,
                "foreign": ledger.foreign}

    def _report(self) -> dict[str, float]:
        now, seconds = usage.used(os.getpid()), max(time.monotonic() - self._began_s, 1e-9)
        cpu_s = now.cpu_s - self._used.cpu_s
        busy_s = cpu_s + now.wait_s - self._used.wait_s
        return {"seconds": seconds, "requests": self.requests, "cpu_s": cpu_s, "busy": busy_s / seconds}
