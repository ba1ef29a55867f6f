"""Write and read the head of a relayed connection, byte by byte."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest

from cext.testing import net_api

BAD, MORE, DONE = -1, 0, 1
BYTES, NAME_MAX, PATH_MAX = 48, 1024, 108
FIELDS: dict[str, Any] = {
    "listener_port": 1883, "origin": 7, "kind": 0xC0FFEE01, "websockets": 0, "tls": 0, "login_ms": 19_000, "family": socket.AF_INET, "by_proxy": 0, "port": 4321,
    "ip": socket.inet_aton("10.1.2.3").ljust(16, b"\0"), "name": b"", "path": b""}
ROWS: list[dict[str, Any]] = [
    FIELDS,
    FIELDS | {"family": 0, "port": 0, "ip": bytes(16)},
    FIELDS | {"family": socket.AF_INET6, "ip": socket.inet_pton(socket.AF_INET6, "2001:db8::1"), "by_proxy": 1, "tls": 1, "name": b"device 1"},
    FIELDS | {"family": socket.AF_UNIX, "listener_port": 0, "websockets": 1, "path": b"/tmp/client"},
    FIELDS | {"name": b"n" * NAME_MAX, "path": b"/" * PATH_MAX},
]


def made(fields: dict[str, Any]) -> bytes:
    head = net_api.relay_head_made(fields)
    assert head is not None
    return head


def later(**places: int) -> bytes:
    """Return a head of a later version, which has more fields."""
    head = bytearray(made(FIELDS | {"name": b"name"}))
    head[48:48] = b"more"
    for at, value in {0: len(head), 4: 3, 40: 52, **{int(at[1:]): value for at, value in places.items()}}.items():
        head[at] = value
    return bytes(head)


HEADS = [*map(made, ROWS), later()]


@pytest.mark.parametrize("fields", ROWS)
def test_a_head_that_is_read_has_the_fields_that_were_written(fields: dict[str, Any]) -> None:
    head = made(fields)
    assert net_api.relay_head(head) == net_api.relay_head(head + b"bytes of the client") == (DONE, fields | {"size": len(head)})


@pytest.mark.parametrize("head", HEADS)
def test_a_part_of_a_head_asks_for_the_rest(head: bytes) -> None:
    for n in range(len(head)):
        assert net_api.relay_head(head[:n]) == (MORE, {"size": len(head) if n >= BYTES else 0})


LAID_OUT = FIELDS | {"websockets": 1, "tls": 1, "by_proxy": 1, "name": b"name", "path": b"/p"}
FIRST = struct.pack("<IBBHIIBBH16sHHH6x", 54, 1, 3, 1883, 7, 19_000, 2, 1, 4321, LAID_OUT["ip"], 4, 2, 48) + b"name/p"


def test_the_layout_is_that_of_the_first_version_with_a_kind() -> None:
    assert made(LAID_OUT) == FIRST[:4] + b"\2" + FIRST[5:42] + struct.pack("<I2x", 0xC0FFEE01) + FIRST[48:]


def test_a_head_of_the_first_version_has_no_kind() -> None:
    assert net_api.relay_head(FIRST) == (DONE, LAID_OUT | {"size": 54, "kind": 0})
    assert net_api.relay_head(FIRST[:42] + b"\1" + FIRST[43:])[0] == BAD


@pytest.mark.parametrize("longer", [{"name": b"n" * (NAME_MAX + 1)}, {"path": b"/" * (PATH_MAX + 1)}])
def test_a_name_that_is_too_long_is_not_written(longer: dict[str, Any]) -> None:
    assert net_api.relay_head_made(FIELDS | longer) is None


@pytest.mark.parametrize(("at", "form", "value"), [
    (0, "<I", 47), (0, "<I", 49), (0, "<I", 0xFFFFFFFF), (4, "B", 0), (5, "B", 4), (16, "B", 99), (17, "B", 2),
    (36, "<H", 1), (38, "<H", 1), (40, "<H", 47), (40, "<H", 49), (46, "B", 1), (47, "B", 1)])
def test_a_wrong_field_is_refused_with_the_head(at: int, form: str, value: int) -> None:
    head = bytearray(made(FIELDS))
    struct.pack_into(form, head, at, value)
    assert net_api.relay_head(bytes(head)) == (BAD, {})


@pytest.mark.parametrize(("name_n", "path_n"), [(NAME_MAX + 1, 0), (0, PATH_MAX + 1), (0xFFFF, 0xFFFF)])
def test_a_head_cannot_ask_for_more_than_the_longest_names(name_n: int, path_n: int) -> None:
    head = bytearray(made(FIELDS))
    struct.pack_into("<I", head, 0, BYTES + name_n + path_n)
    struct.pack_into("<HH", head, 36, name_n, path_n)
    assert net_api.relay_head(bytes(head)) == (BAD, {})


def test_fields_of_a_later_version_are_passed_over() -> None:
    found, fields = net_api.relay_head(later(p5=0x84, p42=1))
    assert (found, fields["name"], fields["size"]) == (DONE, b"name", 56)
    assert net_api.relay_head(later(p40=255))[0] == BAD
