"""Test the log lines about connections that are only checks by a load balancer."""

from __future__ import annotations

import socket
import struct

import pytest

from tests.harness.broker import Broker
from tests.harness.faults import until

PROXY = b"\r\n\r\n\0\r\nQUIT\n"
LOCAL = PROXY + struct.pack(">BBH", 0x20, 0, 0)
OF_CLIENT = PROXY + struct.pack(">BBH4s4sHH", 0x21, 0x11, 12, bytes((192, 0, 2, 7)), bytes((192, 0, 2, 1)), 4000, 1883)
CONNECT = bytes.fromhex("100d00044d5154540402003c0001")      # a client id of one byte follows
END = "disconnected: connection closed by client."


def sent(broker: Broker, data: bytes = b"") -> str:
    """Connect, send, read the answer to CONNECT or the end, and close. Return the place of this connection in the log."""
    with socket.create_connection(("127.0.0.1", broker.port), timeout=20) as sock:
        if data:
            sock.sendall(data)
            sock.recv(4)
        return f"127.0.0.1:{sock.getsockname()[1]}"


@pytest.mark.parametrize(("option", "header", "count"), [("", b"", 1), ("enable_proxy_protocol 2\n", OF_CLIENT, 0)], ids=["plain", "proxy"])
def test_a_connection_without_a_byte_has_one_line_at_most(option: str, header: bytes, count: int) -> None:
    with Broker(f"listener {{port}}\n{option}allow_anonymous true\n") as broker:
        place = sent(broker)
        sent(broker, header + CONNECT + b"x")
        until(lambda: f"Client x [{'192.0.2.7' if header else '127.0.0.1'}:" in broker.log())
        until(lambda: broker.log().count(END) == 1)
        assert broker.log().count(place) == count


def test_a_check_of_a_proxy_itself_has_no_line() -> None:
    with Broker("listener {port}\nenable_proxy_protocol 2\nallow_anonymous true\n") as broker:
        sent(broker, LOCAL + CONNECT + b"c")
        sent(broker, OF_CLIENT + CONNECT + b"x")
        until(lambda: END in broker.log())
        assert "as c (" not in broker.log() and "Client c" not in broker.log()
        assert "as x (" in broker.log()


def test_checks_are_logged_for_debugging() -> None:
    with Broker("listener {port}\nenable_proxy_protocol 2\nallow_anonymous true\nlog_type all\n") as broker:
        sent(broker)
        sent(broker, LOCAL + CONNECT + b"c")
        until(lambda: broker.log().count(END) >= 2)
        assert "as c (" in broker.log()


def test_a_check_that_is_refused_is_logged() -> None:
    with Broker("listener {port}\nenable_proxy_protocol 2\nallow_anonymous false\n") as broker:
        sent(broker, LOCAL + CONNECT + b"c")
        until(lambda: "not authorised" in broker.log())


def test_the_end_of_a_client_that_has_sent_a_byte_is_logged() -> None:
    with Broker("listener {port}\nallow_anonymous true\n") as broker:
        with socket.create_connection(("127.0.0.1", broker.port), timeout=20) as sock:
            sock.sendall(CONNECT[:5])
            sock.shutdown(socket.SHUT_WR)
            assert sock.recv(1) == b""
        until(lambda: END in broker.log())


def test_compat_logs_a_connection_without_a_byte_as_mosquitto_does() -> None:
    with Broker("compat true\nlistener {port}\nallow_anonymous true\n") as broker:
        sent(broker)
        until(lambda: END in broker.log())
