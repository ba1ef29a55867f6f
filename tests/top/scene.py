"""Connections for `mosq top`, answers of a model with many clients, and the screen of the application as text."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from textual.pilot import Pilot

from mosq.tools.ctl.connection import Connection
from mosq.tools.top import views
from mosq.tools.top.app import TopApp
from mosq.tools.top.broker import Broker
from tests.harness.effort import TIMEOUT_S

WAIT_S = max(TIMEOUT_S, 60)     # only a failing test waits this long
Data = dict[str, Any]


def connection(port: int) -> Connection:
    made = Connection()
    made.host, made.port = "127.0.0.1", port
    return made


def app(port: int, interval_s: float = 0.2, first: int = 0) -> TopApp:
    return TopApp(Broker(connection(port)), views.made(), first, interval_s, "")


def lines(app: TopApp) -> list[str]:
    """Return the lines of the screen."""
    return ["".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips()]


def text(app: TopApp) -> str:
    return "\n".join(lines(app))


def rows(app: TopApp) -> list[str]:
    """Return the first word of each row of the table."""
    found = lines(app)
    return [line.split()[0] for line in found[6:-1] if line.strip()]


async def until(pilot: Pilot[None], condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    give_up = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < give_up, text(pilot.app)  # type: ignore[arg-type]
        await pilot.pause(0.01)


def client(name: str, **more: Any) -> Data:
    return {"clientid": name, "username": None, "connected": True, "address": "10.0.0.1", "port": 1, "listener": 1883, "protocol": "mqtt",
            "tls": False, "version": "5.0", "keepalive": 60, "window": 20, "unsentBytes": 0, "sessionExpiry": 0, "will": False,
            "subscriptions": 1, "queued": 0, "inflight": 0, "pending": 0, "inbox": 0, "queueBytes": 0, **more}  # fmt: skip


HOT: Data = {
    "sampled": 64, "window_s": 10.0,
    "topics": [{"topic": "a/b", "messages_per_second": 90.5, "bytes_per_second": 5000, "error": 1.5},
               {"topic": "[bold]\x1b[2J", "messages_per_second": 10, "bytes_per_second": 99999, "error": 0}],
    "prefixes": [{"prefix": "a", "messages_per_second": 90.5, "bytes_per_second": 5000, "error": 1.5}],
    "publishers": [{"client_id": "c00007", "messages_per_second": 77, "bytes_per_second": 5000, "error": 1.5}],
    "receivers": [{"client_id": "c00008", "messages_per_second": 66, "bytes_per_second": 5000, "error": 1.5}],
    "slow": [{"client_id": "c00009", "delay_seconds": 0.25, "queue_length": 3, "queue_bytes": 300, "queue_age_seconds": 4.5,
              "unsent_bytes": 12, "inflight": 2}],
}  # fmt: skip


class Model:
    """Answer requests as a broker with many clients does."""

    def __init__(self, clients: list[Data], hot: Data | None = None) -> None:
        self.clients, self.hot = clients, hot
        self.asked: list[str] = []

    def __call__(self, command: Data) -> Data:
        name = command["command"]
        self.asked.append(name)
        if name == "getStats":
            return {"data": {"version": "0.2.0", "process": {"uptime": 90061, "cpuSeconds": 1.5, "residentBytes": 20_000_000},
                             "clients": {"clients_connected": len(self.clients), "clients_total": len(self.clients)}}}  # fmt: skip
        if name == "listClients":
            begin, count = command["cursor"], command["count"]
            end = begin + count
            return {"data": {"clients": self.clients[begin:end], "cursor": end if end < len(self.clients) else 0}}
        if name == "hot":
            return {"error": "Unknown command"} if self.hot is None else {"data": self.hot}
        return {}
