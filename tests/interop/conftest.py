"""The broker and the maker of clients that interop scenarios use."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.harness.broker import Broker
from tests.interop.clients import Aiomqtt, Client, Gmqtt, Message, Paho, Setup
from tests.interop.programs import Mosquitto, MqttJs, install_mqttjs

KINDS: dict[str, type[Client]] = {"paho": Paho, "aiomqtt": Aiomqtt, "gmqtt": Gmqtt, "mosquitto": Mosquitto, "mqttjs": MqttJs}
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def port() -> Iterator[int]:
    with Broker("sys_interval 0\n") as broker:
        yield broker.port


@pytest.fixture
def unique() -> str:
    return f"i{next(_numbers)}"


Maker = Callable[..., Client]


@pytest.fixture
def make(port: int, unique: str, request: pytest.FixtureRequest) -> Iterator[Maker]:
    """make(kind, version, name, persistent=, will=) -> a connected client; all are stopped in the end."""
    made: list[Client] = []

    def maker(kind: str, version: int, name: str, persistent: bool = False, will: Message | None = None) -> Client:
        if kind == "mqttjs":
            install_mqttjs()
        client = KINDS[kind](Setup(port, f"{unique}-{name}", version, persistent, will))
        client.start()
        made.append(client)
        stop, drop = client.stop, client.drop

        def gone(end: Callable[[], None]) -> None:
            made.remove(client)
            end()

        client.stop, client.drop = lambda: gone(stop), lambda: gone(drop)  # type: ignore[method-assign]
        return client

    yield maker
    while made:  # stopping takes it out
        made[-1].stop()
