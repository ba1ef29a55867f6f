"""Test that a state with the right checksum and wrong numbers is refused, or taken, but never followed out of its bounds."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from mosq.engine import new_engine
from tests.harness.broker import free_port
from tests.harness.effort import tries
from tests.harness.packets import Connect, Puback, Publish, Pubrec, Subscribe, Will
from tests.harness.properties import P
from tests.harness.wire import Wire

HEADER = struct.Struct("<8sQQQ")
ADD_SEALS, ALL_SEALS = 1033, 15


def table() -> list[int]:
    """Return the table of CRC-32C."""
    out = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        out.append(n)
    return out


TABLE = table()


def crc(data: bytes) -> int:
    state = 0xFFFFFFFF
    for byte in data:
        state = state >> 8 ^ TABLE[(state ^ byte) & 255]
    return state ^ 0xFFFFFFFF


def engine_of(port: int):
    return new_engine({}, [{"port": port, "host": "127.0.0.1", "allow_anonymous": True}], [{}])


@pytest.fixture(scope="module")
def state() -> Iterator[tuple[bytes, int, int]]:
    """Return the state of a broker with one of everything, the number of its descriptors, and its port."""
    port = free_port()
    engine = engine_of(port)
    engine.open()
    loop = threading.Thread(target=engine.run)
    loop.start()
    wires = [Wire(port, 5) for _ in range(4)]
    receiver, sender, silent, half = wires
    receiver.send(Connect("r", clean=False, props=((P.SESSION_EXPIRY, 3600), (P.TOPIC_ALIAS_MAXIMUM, 5)), will=Will("w", b"w", 1)),
                  Subscribe(1, (("t/#", 2), ("$share/g/s", 1))))
    sender.send(Connect("s"), Publish("t/a", b"1", 1, 1, retain=True, props=((P.TOPIC_ALIAS, 2),)), Publish("s", b"2", 1, 2), Publish("t/b", b"3", 2, 3))
    receiver.read_packet()
    for answer in (Puback, Puback, Pubrec):
        while not isinstance(sender.read_packet(), answer):
            pass
    for _ in range(3):
        receiver.read_packet()
    half.send(Connect("half").encode(5)[:7])
    assert silent
    fd, fds, counts = engine.freeze()
    assert counts["connections"] == len(fds) // 4
    data = os.pread(fd, counts["bytes"], 0)
    os.close(fd)
    yield data, len(fds) // 4, port
    engine.thaw()
    engine.stop()
    loop.join()
    for wire in wires:
        wire.close()


def arrive(data: bytes, n_fds: int, port: int) -> str:
    """Give a state to a new engine; return why it refuses, or ""."""
    data = HEADER.pack(data[:8], struct.unpack_from("<Q", data, 8)[0], len(data), crc(data[HEADER.size:])) + data[HEADER.size:]
    engine = engine_of(port)
    state_fd = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    pairs = [socket.socketpair() for _ in range(n_fds)]
    try:
        os.write(state_fd, data)
        fcntl.fcntl(state_fd, ADD_SEALS, ALL_SEALS)
        engine.arrive(state_fd, struct.pack(f"={n_fds}i", *[ours.fileno() for ours, _ in pairs]), [])
        return ""
    except OSError as error:
        return error.strerror
    finally:
        del engine
        os.close(state_fd)
        for pair in pairs:
            for one in pair:
                one.close()


def test_the_right_state_is_taken(state: tuple[bytes, int, int]) -> None:
    data, n_fds, port = state
    assert arrive(data, n_fds, port) == ""
    assert "the number of descriptors" in arrive(data, n_fds - 1, port)


def test_a_state_that_is_cut_anywhere_is_refused(state: tuple[bytes, int, int]) -> None:
    data, n_fds, port = state
    for n in range(HEADER.size, len(data), 8):
        assert arrive(data[:n], n_fds, port)


@pytest.mark.again("upgrades")
def test_a_state_with_wrong_numbers_is_never_followed_out_of_bounds(state: tuple[bytes, int, int]) -> None:
    data, n_fds, port = state
    dice = random.Random(21)
    refused = 0
    for _ in range(tries(5000, 600)):
        wrong = bytearray(data)
        for _ in range(dice.choice((1, 1, 1, 2, 4))):
            at = dice.randrange(HEADER.size, len(wrong))
            if dice.random() < 0.5:
                wrong[at] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, wrong[at] ^ 1 << dice.randrange(8)))
            else:
                at &= ~3
                wrong[at:at + 4] = struct.pack("<I", dice.choice((0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, len(data))))
        refused += arrive(bytes(wrong[:len(data)]), n_fds, port) != ""
    assert refused > 10
