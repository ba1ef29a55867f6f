"""Provide connections of several networks that have begun to log in. Tests show with them that a flood of one more network ends none of theirs.

The broker counts networks in a table of 512 places (NEWCOMER_NETWORKS in cext/broker/core/newcomers.pyx). A random key gives a network its place,
and networks with the same place count as one. So the flood of a network rightly ends the connection of one in 512 other networks, and a test with
one other network fails once in 512 runs. Of six, three have the flood's place once in 6,700,000 runs (20 / 512**3), so four at least must stay.
A broker that ends the oldest connections whatever their network ends all six, because they are older than the flood.
"""

from __future__ import annotations

import contextlib

from tests.harness.packets import Connect
from tests.harness.wire import Wire

NETWORKS = 6
STAYING_MIN = 4
CONNACK = b"\x20\x02\0\0"
HALF = 10               # bytes of the CONNECT that are sent before the flood


def connect_packet(n: int) -> bytes:
    return Connect(f"of network {n}").encode(4)


def begin_logins(stack: contextlib.ExitStack, port: int, by_proxy: bool = False) -> list[Wire]:
    """Open a connection from each network, or with PROXY headers that name the networks, and send half of a CONNECT. `stack` closes them."""
    wires = []
    for n in range(NETWORKS):
        wire = stack.enter_context(contextlib.closing(Wire(port, source="" if by_proxy else f"127.0.{7 + n}.1")))
        header = b"PROXY TCP4 10.0.%d.1 192.0.2.1 1000 1883\r\n" % n if by_proxy else b""
        wire.send(header + connect_packet(n)[:HALF])
        wires.append(wire)
    return wires


def finish_logins(wires: list[Wire]) -> int:
    """Send the other halves; return how many connections log in."""
    return sum(_finishes(wire, connect_packet(n)) for n, wire in enumerate(wires))


def _finishes(wire: Wire, packet: bytes) -> bool:
    try:
        wire.send(packet[HALF:])
    except (BrokenPipeError, ConnectionResetError):
        return False
    return wire.read_frame() == CONNACK
