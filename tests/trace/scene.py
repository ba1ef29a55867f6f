"""A broker, clients, and a client that reads traces over the wire."""

from __future__ import annotations

import json
import socket
from binascii import a2b_base64
from contextlib import ExitStack
from typing import Any

import mosq
from mosq.tools.trace.decode import decoded
from tests.harness.packets import Connack, Connect, Puback, Publish
from tests.harness.wire import Wire

TOPIC, ANSWER = "$CONTROL/mosq/trace/v1", "$CONTROL/mosq/trace/v1/response"
Event = dict[str, Any]


class Scene:
    """Run a broker and a client that traces."""

    def __init__(self, stack: ExitStack, password: bytes | None = None, user: str = "admin", **options: Any) -> None:
        self.broker = stack.enter_context(mosq.Broker(enable_control_api=True, **options))
        self.stack = stack
        self.admin = self.client("admin", username=user, password=password)
        self.ended: str | None = None
        self.lost: dict[str, int] = {}
        self.number = 0

    def client(self, name: str, level: int = 5, **more: Any) -> Wire:
        wire = self.socket(level)
        wire.send(Connect(name, **more))
        assert isinstance(wire.read_packet(), Connack)
        return wire

    def socket(self, level: int = 5, **more: Any) -> Wire:
        wire = Wire(more.pop("port", self.broker.port), level, **more)
        self.stack.callback(wire.close)
        return wire

    def ask(self, command: str, wire: Wire | None = None, **fields: Any) -> dict[str, Any]:
        """Send a request; return the response, which may come after batches of events."""
        wire = self.admin if wire is None else wire
        payload = json.dumps({"commands": [{"command": command, "correlationData": "me", **fields}]})
        wire.send(Publish(TOPIC, payload.encode(), 1, 7))
        while True:
            got = wire.read_packet()
            if isinstance(got, Publish) and got.topic == ANSWER:
                [response] = json.loads(got.payload)["responses"]
                if response.get("correlationData") == "me":
                    return response  # type: ignore[no-any-return]

    def trace(self, **what: Any) -> int:
        self.number = self.ask("startTrace", **what)["data"]["trace"]
        self.ended = None
        return self.number

    def batch(self) -> list[Event]:
        """Ask for a batch; wait until it comes."""
        self.ask("readTrace", trace=self.number)
        while True:
            got = self.admin.read_packet()
            if isinstance(got, Publish):
                [response] = json.loads(got.payload)["responses"]
                data = response.get("data")
                if data is not None:
                    self.ended, self.lost = data.get("ended"), data["lost"]
                    return data["events"]  # type: ignore[no-any-return]

    def until(self, *names: str, **fields: Any) -> list[Event]:
        """Read batches until an event has one of these names, and these fields; return all events."""
        found: list[Event] = []
        while not any(name_of(one) in names and fields.items() <= {**one, **packet_of(one)}.items() for one in found):
            found += self.batch()
        return found

    def to_the_end(self) -> list[Event]:
        """End the trace; return all events that are left."""
        self.ask("stopTrace", trace=self.number)
        found: list[Event] = []
        while self.ended is None:
            found += self.batch()
        return found


def packet_of(event: Event) -> dict[str, Any]:
    if "frame" not in event:
        return {}
    return decoded(a2b_base64(event["frame"]), event["version"], event["size"])


def name_of(event: Event) -> str:
    """Return a short name, such as ">PUBLISH" or "dropped"."""
    if "frame" not in event:
        return str(event["event"])
    return f"{'>' if event['event'] == 'received' else '<'}{packet_of(event)['type']}"


def names(events: list[Event]) -> list[str]:
    return [name_of(one) for one in events]


def acknowledged(wire: Wire, packet: Publish) -> None:
    wire.send(packet)
    got = wire.read_packet()
    assert isinstance(got, Puback)
    assert got.mid == packet.mid


def own_address(wire: Wire) -> tuple[str, int]:
    assert isinstance(wire.sock, socket.socket)
    host, port = wire.sock.getsockname()
    return host, port
