"""Test traces over all workers: a trace that a client begins at any worker shows the events of all of them, and ends everywhere."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.packets import Puback, Publish, Suback, Subscribe
from tests.harness.wire import Wire
from tests.workers.case import Workers, until

TOPIC, ANSWER = "$CONTROL/mosq/trace/v1", "$CONTROL/mosq/trace/v1/response"
CONFIG = "enable_control_api true\ncontrol_loopback true\n"


class Reader:
    """A client that reads a trace."""

    def __init__(self, wire: Wire) -> None:
        self.wire, self.number, self.ended = wire, 0, None
        self.lost: dict[str, int] = {}
        self.first = 0

    def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        payload = json.dumps({"commands": [{"command": command, "correlationData": "me", **fields}]})
        self.wire.send(Publish(TOPIC, payload.encode(), 1, 7))
        while True:
            got = self.wire.read_packet()
            if isinstance(got, Publish) and got.topic == ANSWER:
                [response] = json.loads(got.payload)["responses"]
                if response.get("correlationData") == "me":
                    return response  # type: ignore[no-any-return]

    def trace(self, **what: Any) -> int:
        self.number = self.ask("startTrace", **what)["data"]["trace"]
        return self.number

    def batch(self) -> list[dict[str, Any]]:
        self.ask("readTrace", trace=self.number)
        while True:
            got = self.wire.read_packet()
            if isinstance(got, Publish):
                [response] = json.loads(got.payload)["responses"]
                data = response.get("data")
                if data is not None:
                    self.ended, self.lost = data.get("ended"), data["lost"]
                    assert data["first"] == self.first
                    self.first += len(data["events"])
                    return data["events"]  # type: ignore[no-any-return]

    def events(self, n: int) -> list[dict[str, Any]]:
        """Read at least n events."""
        found: list[dict[str, Any]] = []
        while len(found) < n:
            found += self.batch()
        return found

    def till(self, event: str, worker: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while not any(one["event"] == event and one["worker"] == worker for one in found):
            found += self.batch()
        return found


@pytest.fixture
def broker() -> Iterator[Workers]:
    with Workers(3, CONFIG) as workers:
        yield workers


def reader(broker: Workers, number: int) -> Reader:
    return Reader(broker.connect(broker.id_on(number, "reader")))


@pytest.mark.parametrize("at", [1, 2])
def test_a_named_client_is_followed_wherever_it_is(broker: Workers, at: int) -> None:
    name = broker.id_on(2, "named")
    admin = reader(broker, at)
    admin.trace(clientid=name)
    client = broker.connect(name)
    client.send(Publish("a/b", b"hello", 1, 1))
    assert isinstance(client.read_packet(), Puback)
    client.close()
    found = admin.till("closed", 2)
    assert {one["clientid"] for one in found} == {name} and {one["worker"] for one in found} == {2}
    kinds = [one["event"] for one in found]
    assert kinds[0] == "received" and kinds[-1] == "closed" and kinds.count("sent") == 2
    again = broker.connect(name)                        # also its next connection
    assert admin.till("received", 2)
    again.close()


def test_a_topic_is_followed_at_all_workers(broker: Workers) -> None:
    admin = reader(broker, 3)
    clients = {number: broker.connect(broker.id_on(number)) for number in (1, 2, 3)}
    clients[1].send(Subscribe(1, (("a/#", 0),)))
    assert isinstance(clients[1].read_packet(), Suback)
    admin.trace(topic="a/+")
    for number, client in clients.items():
        client.send(Publish(f"a/{number}", b"x", 1, 1))
        while not isinstance(client.read_packet(), Puback):
            pass
    found: list[dict[str, Any]] = []
    while len([one for one in found if one["event"] in ("received", "sent")]) < 6:
        found += admin.batch()
    assert sorted(one["worker"] for one in found if one["event"] == "received") == [1, 2, 3]
    assert [one["worker"] for one in found if one["event"] == "sent"] == [1, 1, 1]


def test_a_trace_ends_everywhere_with_its_client(broker: Workers) -> None:
    for _ in range(3):                                  # four traces at one time are possible at each worker
        admins = [reader(broker, number) for number in (1, 2, 3, 1)]
        for admin in admins:
            until(lambda: "data" in admin.ask("startTrace", topic="#"))     # noqa: B023
        assert admins[0].ask("startTrace", topic="#")["error"] == "Too many traces at once"
        assert admins[1].ask("startTrace", topic="#")["error"] == "Too many traces at once"
        for admin in admins:
            admin.wire.close()
    admin = reader(broker, 2)
    until(lambda: "data" in admin.ask("startTrace", topic="#"))


def test_a_stopped_trace_ends_everywhere(broker: Workers) -> None:
    admin = reader(broker, 1)
    for _ in range(12):
        number = admin.trace(topic="#")
        admin.ask("stopTrace", trace=number)
        admin.first = 0
        while admin.ended != "stopped":
            admin.batch()
        admin.ended = None


def test_the_number_of_events_ends_a_trace_of_all_workers(broker: Workers) -> None:
    admin = reader(broker, 1)
    client = broker.connect(broker.id_on(2))
    admin.trace(topic="#", count=5)
    for mid in range(1, 21):
        client.send(Publish("a", b"x", 1, mid))
        assert isinstance(client.read_packet(), Puback)
    while admin.ended is None:
        admin.batch()
    until(lambda: "data" in admin.ask("startTrace", topic="#", count=1))


def test_a_worker_that_is_started_again_has_the_trace(broker: Workers) -> None:
    name = broker.id_on(2)
    admin = reader(broker, 1)
    admin.trace(clientid=name)
    broker.connect(name).close()
    assert admin.till("closed", 2)
    pid = broker.kill(2)
    until(lambda: broker.pids().get(2, pid) not in (pid, None), broker.log)
    admin.wire.timeout_s = 0.5                          # it may serve clients some milliseconds before it has the trace
    until(lambda: worked(broker, name) and seen(admin), broker.log)


def seen(admin: Reader) -> bool:
    try:
        return any(one["worker"] == 2 for one in admin.batch())
    except TimeoutError:
        return False


def worked(broker: Workers, name: str) -> bool:
    """Return whether the worker of a client serves it."""
    try:
        broker.connect(name).close()
    except (OSError, AssertionError, TypeError):
        return False
    return True


def test_the_end_of_the_readers_worker_ends_the_trace(broker: Workers) -> None:
    admins = [reader(broker, 1) for _ in range(4)]
    for admin in admins:
        admin.trace(topic="#")
    other = reader(broker, 2)
    assert "error" in other.ask("startTrace", topic="#")
    broker.kill(1)
    until(lambda: "data" in other.ask("startTrace", topic="#"))


def test_a_trace_is_not_delayed_by_a_stopped_worker(broker: Workers) -> None:
    admin = reader(broker, 1)
    client = broker.connect(broker.id_on(1))
    broker.kill(3, signal.SIGSTOP)
    try:
        admin.trace(topic="#")
        client.send(Publish("a", b"x", 0))
        assert admin.till("received", 1)
    finally:
        broker.kill(3, signal.SIGCONT)


def test_events_are_bounded_and_counted(broker: Workers) -> None:
    admin = reader(broker, 1)
    client = broker.connect(broker.id_on(2))
    admin.trace(topic="#", payload=16384, rate=100000)
    for mid in range(1, 400):
        client.send(Publish("a", bytes(10000), 1, mid))
        assert isinstance(client.read_packet(), Puback)
    found = 0
    while found + admin.lost.get("reader", 0) + admin.lost.get("ring", 0) < 399:
        found += sum(one["event"] == "received" for one in admin.batch())
        assert found < 399
    assert admin.lost["reader"] + admin.lost["ring"] > 0


def test_traces_of_all_workers_are_listed(broker: Workers) -> None:
    readers = {number: reader(broker, number) for number in (1, 2)}
    for number, one in readers.items():
        one.trace(topic=f"t/{number}")
    asking = reader(broker, 3)
    expected = [{"trace": one.number, "kind": "topic", "what": f"t/{number}", "worker": number} for number, one in readers.items()]

    def listed(one: Reader) -> list[dict[str, Any]]:
        return [{key: value for key, value in row.items() if key != "clientid"} for row in one.ask("listTraces")["data"]["traces"]]

    assert listed(asking) == listed(readers[1]) == listed(readers[2]) == expected
    readers[1].wire.close()
    until(lambda: listed(asking) == expected[1:])
    broker.kill(2, signal.SIGSTOP)
    try:
        assert asking.ask("listTraces")["data"] == {"traces": [], "workersAway": [2]}
    finally:
        broker.kill(2, signal.SIGCONT)
    until(lambda: listed(asking) == expected[1:])
