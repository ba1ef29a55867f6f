"""Test the relay of `mosq bench`: it serves the scenarios that are listed for it, and sends frames as they came in."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mosq.cli.commands import main
from mosq.tools.bench import started
from mosq.tools.bench.spec import OF_RELAY
from tests.harness.packets import (
    Connack, Connect, Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe, Unsubscribe,
)
from tests.harness.wire import Wire

SMALL = {"publishers": 4, "subscribers": 3, "clients": 12, "messages": 200, "rounds": 2, "hold": 0.0,
         "sizes": (16, 5000, 300_000), "window": 500, "stall": 5.0}


@pytest.fixture(scope="module")
def relay() -> Iterator[dict[str, object]]:
    with started.relay() as where:
        yield where


@pytest.fixture
def connected(relay: dict[str, object]) -> Iterator[list[Wire]]:
    """Provide three connected clients."""
    with contextlib.ExitStack() as opened:
        clients = [opened.enter_context(contextlib.closing(Wire(int(str(relay["port"]))))) for _ in range(3)]
        for one in clients:
            one.send(Connect())
            one.expect_packet(Connack())
        yield clients


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("scenario", OF_RELAY)
def test_every_message_of_a_scenario_arrives(bench, relay: dict[str, object], scenario: str, version: int, qos: int) -> None:
    result = bench(scenario, version=version, qos=qos, **{**SMALL, **relay})
    assert (result.complete, result.why, result.exact, result.where) == (True, "", True, "relay")
    for phase in result.phases:
        assert phase.complete and phase.per > 0 and phase.foreign == 0 and phase.broker["rss_after_bytes"]


def test_frames_go_to_the_subscribers_of_a_topic(connected: list[Wire]) -> None:
    publisher, exact, below = connected
    exact.send(Subscribe(1, (("a/b", 2),)))
    exact.expect_packet(Suback(1, (2,)))
    below.send(Subscribe(2, (("a/#", 1), ("c", 0))))
    below.expect_packet(Suback(2, (1, 0)))
    messages = [Publish("a/b", b"1"), Publish("a/c", b"2", qos=1, mid=7), Publish("a", b"3", qos=2, mid=8), Publish("ab", b"4"),
                Publish("c", b"5" * 100_000), Publish("a/b/c", b"6")]
    raw = b"".join(message.encode(4) for message in messages)
    for cut in range(0, len(raw), 30_011):      # frames arrive in parts
        publisher.send(raw[cut:cut + 30_011])
    publisher.expect_packet(Puback(7))
    publisher.expect_packet(Pubrec(8))
    publisher.send(Pubrel(8))
    publisher.expect_packet(Pubcomp(8))
    exact.expect_packet(messages[0])
    exact.expect_nothing()
    for message in (messages[0], messages[1], messages[2], messages[4], messages[5]):
        below.expect_packet(message)
    below.send(Pubrec(8))
    below.expect_packet(Pubrel(8))
    below.expect_nothing()


def test_a_filter_that_the_relay_cannot_serve_is_refused(connected: list[Wire]) -> None:
    filters = ("+/a", "#", "a/+/#", "$share/g/a", "a/b/#")
    connected[0].send(Subscribe(1, tuple((filter, 1) for filter in filters)))
    connected[0].expect_packet(Suback(1, (0x80, 0x80, 0x80, 0x80, 1)))


def test_more_lengths_of_prefixes_than_the_relay_looks_for_are_refused() -> None:
    """Test the bound RELAY_PREFIXES with a relay of its own, because lengths are never forgotten."""
    with started.relay() as where, contextlib.closing(Wire(int(str(where["port"])))) as client:
        client.send(Connect())
        client.expect_packet(Connack())
        client.send(Subscribe(1, tuple(("x" * n + "/#", 0) for n in range(1, 10))))
        client.expect_packet(Suback(1, (0,) * 8 + (0x80,)))


@pytest.mark.parametrize("bad", [b"\xff\xff\xff\xff\xff", Disconnect().encode(4), Unsubscribe(1, ("a",)).encode(4), b"\x30\x02\x00\x09",
                                 b"\x82\x00", b"\x50\x00", b"\x30\x00"])
def test_a_bad_packet_ends_one_connection_only(connected: list[Wire], bad: bytes) -> None:
    sender, other, _ = connected
    sender.send(bad)
    sender.expect_closed()
    other.expect_nothing()


def test_a_packet_before_connect_ends_the_connection(relay: dict[str, object]) -> None:
    with contextlib.closing(Wire(int(str(relay["port"])))) as early:
        early.send(Publish("a", b""))
        early.expect_closed()


def test_output_waits_for_a_slow_reader(connected: list[Wire]) -> None:
    publisher, slow, _ = connected
    slow.send(Subscribe(1, (("slow", 0),)))
    slow.expect_packet(Suback(1, (0,)))
    message = Publish("slow", b"x" * 1_000_000)
    for _ in range(20):                         # more than the socket's buffers
        publisher.send(message)
    publisher.expect_nothing()
    for _ in range(20):
        slow.expect_packet(message)


@pytest.mark.parametrize(("arguments", "words"), [
    (("shared", "--relay"), "the relay cannot do shared"), (("pairs", "--relay", "--start"), "--start and --relay"),
    (("pairs", "--relay", "--tls"), "without --tls and --ws"), (("pairs", "--relay", "-p", "7"), "--relay and --port"),
    (("pairs", "--relay", "--broker-pid", "1"), "--relay and --broker-pid")])
def test_options_that_the_relay_refuses(capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str) -> None:
    assert main(["bench", *arguments]) == 3
    assert words in capfd.readouterr().err


def test_a_run_starts_and_ends_its_relay(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "pairs", "--relay", "--publishers", "2", "--messages", "200"]) == 0
    assert "lost 0, duplicates 0, out of order 0" in capfd.readouterr().out


def test_a_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run([sys.executable, "-m", "mosq", "bench", "relay", "-p", str(port)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, f"Error: the relay cannot listen on 127.0.0.1:{port}: Address already in use\n")
