"""Test that floods of connections write a bounded number of log lines, and that the broker logs how many it left out."""

from __future__ import annotations

import contextlib
import re
import socket
from contextlib import closing

import pytest

from tests.harness.broker import Broker
from tests.harness.faults import until
from tests.harness.packets import Connack, Connect, Pingreq, Pingresp, Publish, Pubrec
from tests.harness.wire import Wire

LISTENER = "listener {port} 127.0.0.1\n"
MOST = 5


def connect_to(broker: Broker, source: str, first: bytes) -> None:
    """Connect from this address, send the bytes, and wait until the broker closes."""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=20, source_address=(source, 0)) as sock:
        sock.sendall(first)
        while sock.recv(4096):
            pass


@pytest.mark.parametrize(("first", "line"), [
    (b"GET / HTTP/1.1\r\n\r\n", r"Protocol error from {source}:"),
    (b"GET / HTTP/1.1\r\n\r\n", r"New connection from {source}:"),
    (Connect("c", username="ann", password=b"wrong").encode(4), r"Client c \[{source}:\d+\] disconnected: not authorised"),
])
def test_lines_of_one_kind_from_one_network_are_limited(first: bytes, line: str) -> None:
    def lines_of(source: str) -> int:
        return len(re.findall(line.format(source=re.escape(source)), broker.log()))

    with Broker(LISTENER + f"allow_anonymous false\nlog_connections_max {MOST}\n") as broker:
        for _ in range(4 * MOST):
            connect_to(broker, "127.0.0.1", first)
        connect_to(broker, "127.0.7.1", first)           # another network is not affected
        until(lambda: lines_of("127.0.7.1") == 1)        # the log has one order: all lines of the first network are there
        assert MOST <= lines_of("127.0.0.1") < 4 * MOST  # on a slow machine the lines are those of two windows
        assert broker.stop() == 0


def test_one_line_reports_how_many_were_left_out() -> None:
    with Broker(LISTENER + f"allow_anonymous true\nlog_connections_max {MOST}\n") as broker:
        for _ in range(4 * MOST):
            connect_to(broker, "127.0.0.1", b"\0\0")
        until(lambda: "more lines about protocol errors" in broker.log())
        found = re.search(r"(\d+) more lines about protocol errors from 127\.0\.0\.0/24 in the last 10 s were not logged\.", broker.log())
        assert found and int(found[1]) == 3 * MOST
        connect_to(broker, "127.0.0.1", b"\0\0")         # a new window
        until(lambda: broker.log().count("Protocol error from 127.0.0.1") == MOST + 1)


@pytest.mark.parametrize(("first", "line"), [
    (b"GET / HTTP/1.1\r\n\r\n", "Protocol error from 127.0.0.{}:"),
    (Connect("c", username="ann", password=b"wrong").encode(4), "Client c [127.0.0.{}:"),
])
def test_a_flood_does_not_hide_the_first_line_of_a_neighbour(first: bytes, line: str) -> None:
    with Broker(LISTENER + f"allow_anonymous false\nlog_connections_max {MOST}\n") as broker:
        for _ in range(4 * MOST):
            connect_to(broker, "127.0.0.1", first)
        for last in (2, 3):
            for _ in range(3):
                connect_to(broker, f"127.0.0.{last}", first)
        connect_to(broker, "127.0.7.1", first)
        until(lambda: "127.0.7.1:" in broker.log() and all(line.format(last) in broker.log() for last in (2, 3)))
        assert all(broker.log().count(line.format(last)) < 3 for last in (2, 3))     # 1, or 2 at the border of two windows


def test_first_lines_are_bounded_too() -> None:
    """A flood from very many addresses fills the table of addresses; the lines beyond it are only counted."""
    with Broker(LISTENER + "allow_anonymous true\nlog_connections_max 1\nlog_type notice\n") as broker:
        for n in range(6000):
            with contextlib.closing(socket.socket()) as sock:
                sock.bind((f"127.{n // 250 % 250 + 1}.{n % 250}.1", 0))
                sock.connect(("127.0.0.1", broker.port))
        until(lambda: "new connections from other networks" in broker.log())
        windows = broker.log().count("new connections from other networks")
        assert broker.log().count("New connection from 127.") <= (windows + 1) * (2048 + 10)


def test_zero_removes_the_limit() -> None:
    with Broker(LISTENER + "allow_anonymous true\nlog_connections_max 0\n") as broker:
        for _ in range(4 * MOST):
            connect_to(broker, "127.0.0.1", b"\0\0")
        until(lambda: broker.log().count("Protocol error from 127.0.0.1") == 4 * MOST)


def test_floods_of_one_kind_leave_lines_of_refused_logins() -> None:
    """A program such as fail2ban reads the lines of refused logins: connections with garbage do not use up their number."""
    with Broker(LISTENER + f"allow_anonymous false\nlog_connections_max {MOST}\n") as broker:
        for _ in range(4 * MOST):
            connect_to(broker, "127.0.0.1", b"\0\0")
        wire = Wire(broker.port)
        wire.send(Connect("guess", username="ann", password=b"wrong"))
        answer = wire.read_packet()
        assert isinstance(answer, Connack) and answer.rc
        wire.close()
        until(lambda: "Client guess [127.0.0.1:" in broker.log())


@pytest.mark.parametrize(("packets", "line"), [
    (Pubrec(7).encode(4), "for an unknown packet identifier"),
    (Publish("t", b"", 2, 1).encode(4) + Publish("t", b"x", 2, 1).encode(4), "Reused message ID"),
])
def test_lines_about_the_packets_of_one_client_are_limited(packets: bytes, line: str) -> None:
    with Broker(LISTENER + f"allow_anonymous true\nlog_connections_max {MOST}\n") as broker, closing(Wire(broker.port, 4)) as wire:
        wire.send(Connect("c"))
        assert isinstance(wire.read_packet(), Connack)
        for _ in range(4 * MOST):
            wire.sock.sendall(packets)
        wire.send(Pingreq())
        while not isinstance(wire.read_packet(), Pingresp):
            pass
        until(lambda: "more lines about protocol errors" in broker.log())
        assert broker.log().count(line) == MOST


def test_ipv4_addresses_in_ipv6_form_are_networks_of_their_own() -> None:
    with Broker(LISTENER + f"allow_anonymous true\nenable_proxy_protocol 1\nlog_connections_max {MOST}\n") as broker:
        for source in ["203.0.113.1"] * 4 * MOST + ["198.51.100.1"] * MOST:
            header = f"PROXY TCP6 ::ffff:{source} ::1 1000 1883\r\n".encode()
            connect_to(broker, "127.0.0.1", header + b"\0\0")
        until(lambda: len(re.findall(r"Protocol error from (?:::ffff:)?198\.51\.100\.1:", broker.log())) == MOST)
        assert len(re.findall(r"Protocol error from (?:::ffff:)?203\.0\.113\.1:", broker.log())) == MOST
