"""Parse the PROXY protocol's header, versions 1 and 2 [proxy-protocol.txt], byte by byte."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings, strategies as st

from cext.testing import net_api
from tests.harness.effort import tries

BAD, MORE, DONE = -1, 0, 1
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
TCP4 = socket.inet_aton("10.1.2.3") + socket.inet_aton("10.0.0.1") + struct.pack(">HH", 4321, 1883)
TCP6 = socket.inet_pton(socket.AF_INET6, "2001:db8::1") * 2 + struct.pack(">HH", 4321, 1883)
UNIX = b"/tmp/a".ljust(108, b"\0") * 2


def v2(addresses: bytes = TCP4, tlvs: bytes = b"", command: int = 0x21, family: int = 0x11, length: int | None = None) -> bytes:
    body = addresses + tlvs
    return SIGNATURE + bytes([command, family]) + struct.pack(">H", len(body) if length is None else length) + body


def tlv(kind: int, value: bytes) -> bytes:
    return bytes([kind]) + struct.pack(">H", len(value)) + value


def ssl(client: int = 1, verify: int = 0, *parts: bytes) -> bytes:
    return tlv(0x20, bytes([client]) + struct.pack(">I", verify) + b"".join(parts))


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def summed(tlvs: bytes = b"", spoil: int = 0) -> bytes:
    """Return a header whose checksum TLV is wrong by `spoil`; 0: right."""
    wire = v2(tlvs=tlv(3, bytes(4)) + tlvs)
    at = 16 + len(TCP4) + 3
    return wire[:at] + struct.pack(">I", crc32c(wire) + spoil & 0xFFFFFFFF) + wire[at + 4 :]


class Row(NamedTuple):
    id: str
    version: int
    wire: bytes
    result: int
    says: Mapping[str, Any] = MappingProxyType({})


HERE = {"local": False, "family": socket.AF_INET, "ip": socket.inet_aton("10.1.2.3") + bytes(12), "port": 4321, "tls": None}
SIX = {"local": False, "family": socket.AF_INET6, "ip": socket.inet_pton(socket.AF_INET6, "2001:db8::1"), "port": 4321}
MAX6 = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
LONGEST = f"PROXY UNKNOWN {MAX6} {MAX6} 65535 65535\r\n".encode()
assert len(LONGEST) == 107

V1 = [
    Row("tcp4", 1, b"PROXY TCP4 10.1.2.3 10.0.0.1 4321 1883\r\n", DONE, HERE),
    Row("tcp6", 1, b"PROXY TCP6 2001:db8::1 2001:DB8::2 4321 1883\r\n", DONE, SIX),
    Row("tcp6-long", 1, f"PROXY TCP6 {MAX6} {MAX6} 65535 65535\r\n".encode(), DONE, {"ip": b"\xff" * 16, "port": 65535}),
    Row("tcp6-mapped", 1, b"PROXY TCP6 ::ffff:10.1.2.3 ::1 1 2\r\n", DONE, {"family": socket.AF_INET6}),
    Row("unknown", 1, b"PROXY UNKNOWN\r\n", DONE, {"local": True, "family": 0}),
    Row("unknown-and-more", 1, LONGEST, DONE, {"local": True, "family": 0}),
    Row("port-0", 1, b"PROXY TCP4 10.1.2.3 10.0.0.1 0 1883\r\n", BAD),
    Row("port-here-0", 1, b"PROXY TCP6 ::1 ::1 4321 0\r\n", BAD),
    Row("v1-unfinished", 1, b"PROXY TCP4 10.1.2.3 10.0", MORE),
    Row("v1-nothing", 1, b"", MORE),
    Row("too-long", 1, LONGEST[:-2] + b"1\r\n", BAD),
    Row("too-long-without-end", 1, b"PROXY UNKNOWN ".ljust(107, b"x"), BAD),
    Row("lf-only", 1, b"PROXY TCP4 10.1.2.3 10.0.0.1 4321 1883\n", BAD),
    Row("lf-at-once", 1, b"PROXY \n", BAD),
    Row("small", 1, b"proxy TCP4 10.1.2.3 10.0.0.1 4321 1883\r\n", BAD),
    Row("unknown-word", 1, b"PROXY UNKNOWNX\r\n", BAD),
    Row("tcp5", 1, b"PROXY TCP5 10.1.2.3 10.0.0.1 4321 1883\r\n", BAD),
    Row("no-words", 1, b"PROXY TCP4\r\n", BAD),
    Row("no-words-blank", 1, b"PROXY TCP4 \r\n", BAD),
    Row("word-missing", 1, b"PROXY TCP4 10.1.2.3 10.0.0.1 4321\r\n", BAD),
    Row("word-too-many", 1, b"PROXY TCP4 10.1.2.3 10.0.0.1 4321 1883 x\r\n", BAD),
    Row("blank-at-end", 1, b"PROXY TCP4 10.1.2.3 10.0.0.1 4321 1883 \r\n", BAD),
    Row("two-blanks", 1, b"PROXY TCP4  10.1.2.3 10.0.0.1 4321 1883\r\n", BAD),
    Row("octet-300", 1, b"PROXY TCP4 10.1.2.300 10.0.0.1 4321 1883\r\n", BAD),
    Row("octet-leading-zero", 1, b"PROXY TCP4 10.1.2.03 10.0.0.1 4321 1883\r\n", BAD),
    Row("three-octets", 1, b"PROXY TCP4 10.1.2 10.0.0.1 4321 1883\r\n", BAD),
    Row("6-as-4", 1, b"PROXY TCP4 ::1 10.0.0.1 4321 1883\r\n", BAD),
    Row("4-as-6", 1, b"PROXY TCP6 10.1.2.3 ::1 4321 1883\r\n", BAD),
    Row("scope", 1, b"PROXY TCP6 fe80::1%eth0 ::1 4321 1883\r\n", BAD),
    Row("nul-in-address", 1, b"PROXY TCP4 10.1.2.3\0x 10.0.0.1 4321 1883\r\n", BAD),
    Row("bad-destination", 1, b"PROXY TCP4 10.1.2.3 10.0.0.x 4321 1883\r\n", BAD),
    Row("port-70000", 1, b"PROXY TCP4 10.1.2.3 10.0.0.1 70000 1883\r\n", BAD),
    Row("port-leading-zero", 1, b"PROXY TCP4 10.1.2.3 10.0.0.1 01 1883\r\n", BAD),
    Row("port-sign", 1, b"PROXY TCP4 10.1.2.3 10.0.0.1 -1 1883\r\n", BAD),
    Row("port-here-bad", 1, b"PROXY TCP4 10.1.2.3 10.0.0.1 1 x\r\n", BAD),
    Row("v1-gets-v2", 1, v2(), BAD),
    Row("v1-gets-mqtt", 1, bytes.fromhex("100c00044d5154540402003c0000"), BAD),
]
CN = [tlv(0x21, b"TLSv1.3"), tlv(0x22, "älice".encode()), tlv(0x23, b"TLS_AES_256_GCM_SHA384")]
V2 = [
    Row("v2-tcp4", 2, v2(), DONE, HERE),
    Row("v2-tcp6", 2, v2(TCP6, family=0x21), DONE, SIX),
    Row("v2-unix", 2, v2(UNIX, family=0x31), DONE, {"local": False, "family": socket.AF_UNIX, "port": 0, "path": b"/tmp/a"}),
    Row("v2-unix-tls", 2, v2(UNIX, ssl(1, 1), family=0x31), DONE, {"path": b"/tmp/a", "tls": 1}),
    Row("v2-unix-no-padding", 2, v2(b"/path", family=0x31), DONE, {"family": socket.AF_UNIX, "path": b"/path", "tls": None}),
    Row("v2-unix-half-padding", 2, v2(b"/p".ljust(150, b"\0"), family=0x31), DONE, {"path": b"/p"}),
    Row("v2-unix-longest", 2, v2(b"x" * 216, family=0x31), DONE, {"path": b"x" * 108}),
    Row("v2-unix-no-name", 2, v2(bytes(216), family=0x31), DONE, {"path": b""}),
    Row("v2-local", 2, v2(b"", command=0x20, family=0), DONE, {"local": True, "size": 16}),
    Row("v2-local-with-rubbish", 2, v2(b"\xff" * 9, command=0x20, family=0xFF), DONE, {"local": True, "size": 25, "tls": None}),
    Row("v2-unspec", 2, v2(b"", family=0), BAD),        # [proxy-protocol.txt 2.2] lets a receiver choose; Mosquitto closes
    Row("v2-unspec-with-tlvs", 2, v2(b"", ssl(1), family=0), BAD),
    Row("v2-other-tlvs", 2, v2(tlvs=tlv(1, b"h2") + tlv(2, b"broker.example") + tlv(4, b"") + tlv(5, b"id") + tlv(0xEA, b"x")), DONE, HERE),
    Row("v2-tls", 2, v2(tlvs=ssl(1, 1)), DONE, {"tls": 1, "verify": 1, "common_name": b"", "version": b""}),
    Row("v2-tls-all", 2, v2(tlvs=ssl(7, 0, *CN)), DONE,
        {"tls": 7, "verify": 0, "common_name": "älice".encode(), "version": b"TLSv1.3", "cipher": b"TLS_AES_256_GCM_SHA384"}),
    Row("v2-tls-none", 2, v2(tlvs=ssl(0, 1)), DONE, {"tls": 0}),
    Row("v2-checksum", 2, summed(), DONE, HERE),
    Row("v2-checksum-and-tls", 2, summed(ssl(5, 0, *CN)), DONE, {"tls": 5}),
    Row("v2-checksum-wrong", 2, summed(spoil=1), BAD),
    Row("v2-checksum-short", 2, v2(tlvs=tlv(3, b"abc")), BAD),
    Row("v2-checksum-twice", 2, v2(tlvs=tlv(3, bytes(4)) * 2), BAD),
    Row("v2-largest", 2, v2(tlvs=tlv(0xE0, bytes(8192 - 16 - 12 - 3))), DONE, {"size": 8192}),
    Row("v2-too-large", 2, v2(tlvs=tlv(0xE0, bytes(8192 - 16 - 12 - 2))), BAD),
    Row("v2-nothing", 2, b"", MORE),
    Row("v2-half-signature", 2, SIGNATURE[:7], MORE, {"size": 0}),
    Row("v2-no-length", 2, v2()[:15], MORE, {"size": 0}),
    Row("v2-head", 2, v2()[:16], MORE, {"size": 28}),
    Row("v2-all-but-one", 2, v2(tlvs=ssl())[:-1], MORE),
    Row("v2-gets-v1", 2, V1[0].wire, BAD),
    Row("v2-gets-mqtt", 2, bytes.fromhex("100c00044d5154540402003c0000"), BAD),
    Row("v2-signature", 2, SIGNATURE[:11] + b"\r" + v2()[12:], BAD),
    Row("v2-version-1", 2, v2(command=0x11), BAD),
    Row("v2-version-3", 2, v2(command=0x31), BAD),
    Row("v2-command-2", 2, v2(command=0x22), BAD),
    Row("v2-udp", 2, v2(family=0x12), BAD),
    Row("v2-family-4", 2, v2(family=0x41), BAD),
    Row("v2-tcp4-short", 2, v2(TCP4[:-1]), BAD),
    Row("v2-tcp6-short", 2, v2(TCP4, family=0x21), BAD),
    Row("v2-unix-empty", 2, v2(b"", family=0x31), BAD),
    Row("v2-tlv-cut", 2, v2(tlvs=b"\x04\x00"), BAD),
    Row("v2-tlv-too-long", 2, v2(tlvs=b"\x04\xff\xffa"), BAD),
    Row("v2-tls-short", 2, v2(tlvs=tlv(0x20, bytes(4))), BAD),
    Row("v2-tls-part-cut", 2, v2(tlvs=ssl(1, 0, b"\x22\x00")), BAD),
    Row("v2-tls-part-too-long", 2, v2(tlvs=ssl(1, 0, b"\x22\x00\x05abc")), BAD),
    Row("v2-tls-twice", 2, v2(tlvs=ssl(1) + ssl(0)), BAD),
]


def check(row: Row, found: tuple[int, dict[str, Any]]) -> None:
    assert found[0] == row.result
    assert {name: found[1][name] for name in row.says} == row.says
    if row.result == DONE:
        assert found[1]["size"] == len(row.wire)


@pytest.mark.parametrize("row", V1 + V2, ids=lambda row: row.id)
def test_row(row: Row) -> None:
    check(row, net_api.proxy(row.version, row.wire))
    if row.result == DONE:  # the following bytes belong to the client
        rc, says = net_api.proxy(row.version, row.wire + b"\x10\x0c")
        assert (rc, says["size"]) == (DONE, len(row.wire))


@pytest.mark.parametrize("row", V1 + V2, ids=lambda row: row.id)
def test_byte_by_byte(row: Row) -> None:
    for n in range(len(row.wire) + 1):
        rc, says = net_api.proxy(row.version, row.wire[:n])
        if rc != MORE:
            break
        assert says["size"] == 0 or says["size"] > n
    assert rc == row.result
    if rc == DONE:
        assert n == len(row.wire)


@pytest.mark.parametrize(
    ("version", "wire"),
    [(1, b"\x10"), (1, b"PROXX"), (1, b"\r"), (2, b"\x10"), (2, b"P"), (2, SIGNATURE + b"\x11"), (2, SIGNATURE + b"\x21\x12")],
)
def test_a_wrong_byte_is_reported_at_once(version: int, wire: bytes) -> None:
    assert net_api.proxy(version, wire[:-1])[0] == MORE
    assert net_api.proxy(version, wire)[0] == BAD


pieces = st.one_of(st.binary(max_size=20), st.sampled_from([tlv(1, b"x"), ssl(7, 0, *CN), tlv(3, bytes(4))]))


@settings(max_examples=tries(300))
@given(st.sampled_from([b"", TCP4, TCP6]), st.lists(pieces, max_size=4), st.sampled_from([0x20, 0x21]), st.sampled_from([0, 0x11, 0x21]),
       st.one_of(st.none(), st.integers(0, 80)), st.randoms(use_true_random=False))
def test_any_split_gives_the_same_result(
    addresses: bytes, tlvs: list[bytes], command: int, family: int, length: int | None, chance: random.Random
) -> None:
    wire = v2(addresses, b"".join(tlvs), command, family, length)
    whole = net_api.proxy(2, wire)
    step = chance.randint(1, 9)
    for n in [*range(0, len(wire), step), len(wire)]:
        found = net_api.proxy(2, wire[:n])
        if found[0] != MORE:
            break
    assert found == whole


@settings(max_examples=tries(300))
@given(st.text(alphabet="PROXYTC46 UNKW0123456789.:abf\r\n", max_size=110).map(lambda s: ("PROXY " + s).encode()))
def test_any_text_header_gives_the_same_result_at_any_split(wire: bytes) -> None:
    whole = net_api.proxy(1, wire)
    for n in range(len(wire) + 1):
        found = net_api.proxy(1, wire[:n])
        if found[0] != MORE:
            break
    assert found == whole
