"""Test the order in which threads run the steps of handshakes, and the limit of handshakes that one network may have begun.

The tests with a broker stop its process while they send, so that all input waits at the same time, and count which clients are answered."""

from __future__ import annotations

import contextlib
import re
import select
import signal
import socket
import time
from collections.abc import Iterator
from functools import cache

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from cext.testing.tls_records_api import Steps
from tests.harness.broker import Broker
from tests.harness.certificates import TLS_LINES, authority, client_context, server_files
from tests.harness.effort import TIMEOUT_S
from tests.harness.hellos import retried, rsa_exchange
from tests.harness.wire import client_hello

LISTENER = "log_type all\nlistener {port} 127.0.0.1\nallow_anonymous true\n"
ONE_THREAD = LISTENER + TLS_LINES + "tls_handshake_threads 1\n"
KEY_BYTES = 512
A, B, C = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]), bytes([10, 0, 0, 3])


def taken(steps: Steps) -> list[int]:
    """Return the numbers of all handshakes that wait, in their order."""
    found = []
    while (number := steps.take()) is not None:
        found.append(number)
    return found


def waiting(steps: Steps, *addresses: bytes, light: bool = False) -> list[int]:
    numbers = [steps.begin(address) for address in addresses]
    for number in numbers:
        steps.put(number, light)
    return numbers


# ---------------------------------------------------------------- the order


def test_the_lanes_have_their_turns_and_the_oldest_of_a_lane_goes_first() -> None:
    steps = Steps()
    flood = waiting(steps, *[A] * 100)
    others = waiting(steps, B, C, B)
    assert taken(steps) == [flood[0], others[0], others[1], flood[1], others[2], *flood[2:]]


def test_light_steps_go_first_but_leave_turns_to_heavy_ones() -> None:
    steps = Steps()
    light = waiting(steps, *[A] * 6, light=True)
    heavy = waiting(steps, B, C)
    assert taken(steps) == [*light[:2], heavy[0], *light[2:4], heavy[1], *light[4:]]


def test_light_steps_have_turns_by_lane_too() -> None:
    steps = Steps()
    flood = waiting(steps, *[A] * 50, light=True)
    other = waiting(steps, B, light=True)
    assert taken(steps)[:3] == [flood[0], other[0], flood[1]]


def test_a_cancelled_step_is_not_taken_and_its_lane_keeps_its_turn() -> None:
    steps = Steps()
    first, second, third = waiting(steps, A, A, B)
    assert steps.cancel(first)
    assert taken(steps) == [second, third]
    assert not taken(steps)


def test_a_network_has_one_lane_while_it_has_handshakes() -> None:
    steps = Steps()
    mapped = bytes(10) + b"\xff\xff"
    network = bytes.fromhex("20010db800000001")
    numbers = [steps.begin(one) for one in (A, A, mapped + A, network + bytes(8), network + bytes(7) + b"\x01")]
    assert steps.lanes() == 2
    other = steps.begin(bytes.fromhex("20010db800000002") + bytes(8))
    assert steps.lanes() == 3
    for number in numbers[:3]:
        steps.end(number)
    assert steps.lanes() == 2
    for number in (*numbers[3:], other):
        steps.end(number)
    assert steps.lanes() == 0


# ---------------------------------------------------------------- which steps are light


@cache
def slow_files() -> dict[str, str]:
    """Return files of a broker whose private-key operation takes some milliseconds."""
    _, certificate, key = authority().issue("localhost", key=rsa.generate_private_key(65537, KEY_BYTES * 8))
    return {**server_files(), "server.crt": certificate, "server.key": key}


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    """Yield a stack that closes the sockets of a test."""
    with contextlib.ExitStack() as one:
        yield one


def opened(stack: contextlib.ExitStack, broker: Broker, source: str) -> socket.socket:
    return stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S, source_address=(source, 0)))


def answered(socks: list[socket.socket]) -> int:
    """Return how many have something to read."""
    poll = select.poll()
    for sock in socks:
        poll.register(sock, select.POLLIN)
    return len(poll.poll(0))


@contextlib.contextmanager
def stopped(broker: Broker) -> Iterator[None]:
    broker.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        broker.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("way", ["hello-retry", "rsa-exchange"])
def test_a_private_key_operation_in_a_later_step_waits_in_its_lane(way: str, stack: contextlib.ExitStack) -> None:
    """Test 300 handshakes of four addresses whose second step costs the operation, and one of another address behind them."""
    flights = retried if way == "hello-retry" else lambda: rsa_exchange(KEY_BYTES)
    extra = "" if way == "hello-retry" else "ciphers AES128-GCM-SHA256\n"
    with Broker(ONE_THREAD + extra, slow_files()) as broker:
        many = []
        for i in range(300):
            first, second = flights()
            sock = opened(stack, broker, f"127.0.0.{2 + i % 4}")
            sock.sendall(first)
            assert sock.recv(65536)[:1] == b"\x16"
            many.append((sock, second))
        other = opened(stack, broker, "127.0.0.9")
        with stopped(broker):
            for sock, second in many:
                sock.sendall(second)
            other.sendall(retried()[1] if way == "hello-retry" else flights()[0])
        assert other.recv(1) == b"\x16"
        assert answered([sock for sock, _ in many]) < 150, "the client of the other address waited for them"
        for sock, _ in many:
            assert sock.recv(1) == (b"\x16" if way == "hello-retry" else b"\x15"), "each is answered in its turn"


def test_the_clients_of_one_address_are_served_in_their_order(stack: contextlib.ExitStack) -> None:
    with Broker(ONE_THREAD, slow_files()) as broker:
        many = [opened(stack, broker, "127.0.0.1") for _ in range(200)]
        hello = client_hello(client_context())
        with stopped(broker):
            for sock in many:
                sock.sendall(hello)
        assert many[60].recv(1) == b"\x16"
        assert answered(many[61:]) < 70, "later clients were served first"


# ---------------------------------------------------------------- the limit


def held(stack: contextlib.ExitStack, broker: Broker, n: int, source: str = "127.0.0.1") -> list[socket.socket]:
    """Begin n handshakes while the broker is stopped; return those that were answered."""
    socks = [opened(stack, broker, source) for _ in range(n)]
    hello = client_hello(client_context())
    with stopped(broker):
        for sock in socks:
            sock.sendall(hello)
    good = []
    for sock in socks:
        with contextlib.suppress(ConnectionError):
            if sock.recv(1) == b"\x16":
                good.append(sock)
    return good


def test_a_burst_of_one_address_has_no_more_handshakes_than_the_limit(stack: contextlib.ExitStack) -> None:
    """Test that the limit counts handshakes that wait for a thread, and that other addresses have their own."""
    with Broker(ONE_THREAD + "tls_handshakes_per_address 20\n", server_files()) as broker:
        assert len(held(stack, broker, 50)) == 20
        assert re.search(r"More than 20 TLS handshakes of one address have begun .*tls_handshakes_per_address.* This one ends\.", broker.log())
        assert len(held(stack, broker, 10, "127.0.0.2")) == 10


def test_a_handshake_that_waits_long_for_its_client_ends_for_a_new_one(stack: contextlib.ExitStack) -> None:
    with Broker(ONE_THREAD + "tls_handshakes_per_address 5\n", server_files()) as broker:
        idle = held(stack, broker, 5)
        assert len(idle) == 5
        deadline = time.monotonic() + TIMEOUT_S
        while not held(stack, broker, 1):     # until the oldest has waited long enough
            assert time.monotonic() < deadline
            select.select([], [], [], 0.05)      # lines of refused connections are limited too
        while "The oldest of them ends." not in broker.log():
            assert time.monotonic() < deadline
            select.select([], [], [], 0.05)
        while idle[0].recv(65536):
            pass


def test_a_reload_removes_the_limit(stack: contextlib.ExitStack) -> None:
    with Broker(ONE_THREAD + "tls_handshakes_per_address 5\n", server_files()) as broker:
        assert len(held(stack, broker, 10)) == 5
        broker.config.write_text(broker.config.read_text().replace("tls_handshakes_per_address 5", "tls_handshakes_per_address 0"))
        broker.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + TIMEOUT_S
        while len(held(stack, broker, 10, "127.0.0.2")) < 10:
            assert time.monotonic() < deadline
