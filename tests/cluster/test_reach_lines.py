"""Test how many lines of the log connections of other workers and of strangers can cause (mosq/cluster/reach.py)."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

import pytest

from mosq.cluster.reach import LINE_S, Lines, Place, Reach, is_number
from mosq.cluster.wires import Own


def lines_of(most: int) -> tuple[Lines, list[str], list[float]]:
    found: list[str] = []
    now = [1000.0]
    return Lines(lambda _, text: found.append(text), most, lambda: now[0]), found, now


def test_a_line_of_one_kind_about_one_address_comes_once_in_a_while() -> None:
    lines, found, now = lines_of(8)
    for reason in (1, 1, 2):
        lines.put("a", reason, f"{reason}")
    assert found == ["Warning: 1.", "Warning: 2."]
    now[0] += LINE_S
    lines.put("a", 1, "again")
    assert found[2:] == ["Warning: again."]


def test_connections_of_many_addresses_cause_few_lines() -> None:
    lines, found, now = lines_of(8)
    for number in range(5000):
        lines.put(f"{number}", 1, f"{number}")
        lines.put(f"{number % 4}", 1, "once more")
    assert found == [*(f"Warning: {number}." for number in range(8)),
                     "Warning: more connections have failed or were refused, which have no lines of their own."]
    now[0] += LINE_S
    lines.put("5000", 1, "5000")
    assert found[9:] == ["Warning: 5000."]


class Silent:
    """An engine and an asker of two workers that want nothing."""

    n = 2

    def wires_fd(self) -> int:
        return self.fd

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK)

    def links_wanted(self) -> list[int]:
        return []

    def has(self, slot: int) -> bool:
        return False

    def nothing(self, *arguments: object, **named: object) -> None:
        pass

    wire = link = watch = turn = part = has_line = nothing


@contextlib.contextmanager
def reach_of() -> Iterator[tuple[Reach, list[str]]]:
    found: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        silent = Silent()
        reach = Reach(silent, Own("c", b"s" * 32, 0, 7), listening, silent, lambda _, text: found.append(text), lambda: found.append("end"))
        try:
            yield reach, found
        finally:
            for one in (reach._strangers, reach._engines, reach._poll):
                one.close()
            for fd in (reach._wake, silent.fd):
                os.close(fd)


@pytest.mark.parametrize("host", ["a\0b", "10.0.0.1\0", "fe80::1%a\0b", "\ud800", "localhost", ":", "x" * 1000])
def test_a_host_that_is_no_address_ends_no_worker_and_asks_no_name_server(host: str) -> None:
    with reach_of() as (reach, found):
        reach.places({1: Place(host, 7883, 5)})
        reach._turn()
        [line] = found
        assert line == f"Warning: worker 2 cannot be reached: its node announces {host[:80]!a}, which is no address. It is tried again."
        assert not reach._shakes


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "fe80::1%eth0"])
def test_an_address_is_a_number(host: str) -> None:
    assert is_number(host)
