"""Provide the broker and the maker of clients for interop scenarios."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.harness.broker import Broker, free_port
from tests.interop.clients import Aiomqtt, Client, Gmqtt, Message, Paho, Setup
from tests.interop.programs import Mosquitto, MqttJs, install_mqttjs

KINDS: dict[str, type[Client]] = {"paho": Paho, "aiomqtt": Aiomqtt, "gmqtt": Gmqtt, "mosquitto": Mosquitto, "mqttjs": MqttJs}
WEB_KINDS: dict[str, type[Client]] = {"paho-ws": Paho, "mqttjs-ws": MqttJs}
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Ports:
    tcp: int
    websocket: int


@pytest.fixture(scope="session")
def ports() -> Iterator[Ports]:
    websocket = free_port()
    config = f"listener {{port}} 127.0.0.1\nlistener {websocket} 127.0.0.1\nprotocol websockets\nallow_anonymous true\nsys_interval 0\n"
    with Broker(config) as broker:
        yield Ports(broker.port, websocket)


@pytest.fixture
def unique() -> str:
    return f"i{next(_numbers)}"


Maker = Callable[..., Client]


@pytest.fixture
def make(ports: Ports, unique: str, request: pytest.FixtureRequest) -> Iterator[Maker]:
    """Provide make(kind, version, name, persistent=, will=) -> a connected client; stop all clients at the end."""
    made: list[Client] = []

    def maker(kind: str, version: int, name: str, persistent: bool = False, will: Message | None = None) -> Client:
        if kind.startswith("mqttjs"):
            install_mqttjs()
        websocket = kind.endswith("-ws")
        port = ports.websocket if websocket else ports.tcp
        client = (KINDS | WEB_KINDS)[kind](Setup(port, f"{unique}-{name}", version, persistent, will, websocket))
        client.start()
        made.append(client)
        stop, drop = client.stop, client.drop

        def gone(end: Callable[[], None]) -> None:
            made.remove(client)
            end()

        client.stop, client.drop = lambda: gone(stop), lambda: gone(drop)  # type: ignore[method-assign]
        return client

    yield maker
    while made:  # stop() removes the client from the list
        made[-1].stop()
