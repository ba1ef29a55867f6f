"""Make seeds for the fuzzer from the byte tables of the tests: one file for each input, in the form that its target reads."""

import hashlib
from pathlib import Path

from cext.testing import link_api
from tests.codec.clauses import ROWS
from tests.codec.packets import PLACES, PROPERTY, VALID, all_of, block, packet
from tests.link import test_frames
from tests.net import test_proxy, test_relay_head, test_ticket, test_upgrade, test_websocket
from tests.session import records

TYPE_OF = {
    "connect": {1},
    "publish": {3},
    "ack": {4, 5, 6, 7},
    "subscribe": {8},
    "unsubscribe": {10},
    "disconnect": {14},
    "auth": {15},
}
NAMES = [
    "a",
    "a/b",
    "/",
    "//",
    "$SYS/broker/uptime",
    "+",
    "#",
    "a/+/b",
    "a/#",
    "+/+",
    "/#",
    "a+",
    "#/a",
    "$share/g/a/+",
    "$share/g",
    "$share//a",
    "$share/+/a",
    "$SYS/#",
    "\u6e29\u5ea6/\u5ba4",
    "a" * 300,
    "/" * 250,
    "a/b/c/d/e/f/g",
]


def body(data: bytes) -> bytes:
    at = 1
    while data[at] > 127:
        at += 1
    return data[at + 1 :]


def packets() -> list[tuple[int, bytes]]:
    return [(v.version, v.data) for v in VALID] + [(row[1], row[2]) for row in ROWS]


def segment(number: int, base: int, tail: int, records: list[tuple[int, int, bytes]]) -> bytes:
    """Return a segment in the form of fuzz_store: header fields, then {kind, flags, length, damage} and body of each record."""
    head = bytes([1, number]) + base.to_bytes(4, "little") + bytes([0, tail]) + (0x4000).to_bytes(4, "little")
    return head + b"".join(bytes([kind, 0, len(data), damage]) + data for kind, damage, data in records)


def stores() -> list[bytes]:
    """Return stores: three consecutive segments; damage in each place; a gap; an end without a COMMIT."""
    commit, end, record = (255, 0, bytes(16)), (254, 0, bytes(8)), (5, 0, b"x" * 20)
    first, second, third = [record, record, commit, end], [record, commit, record, commit, end], [record, commit, record]
    found = []
    for bad in range(-1, len(second)):
        damaged = [(kind, 33 if i == bad else damage, data) for i, (kind, damage, data) in enumerate(second)]
        for base in (92, 96):
            parts = [segment(1, 0, 0, first), segment(2, base, 0, damaged), segment(3, 216, 0, third)]
            found.append(b"".join(part.ljust(200, b"\0") for part in parts))
    return found


def block_row(first: int, payloads: list[bytes], damage: int = 0) -> bytes:
    """Return a block in the form of fuzz_journal: {first, count, length / 8, damage} and body."""
    body = b""
    for payload in payloads:
        n = (28 + 3 + 1 + len(payload) + 7) // 8 * 8
        head = n.to_bytes(4, "little") + bytes([1, 17, 0, 0]) + (5).to_bytes(4, "little") + bytes([3, 0, 0, 0, 1, 0, 0, 0]) + bytes(4)
        body += (head + len(payload).to_bytes(4, "little") + b"a/bu" + payload).ljust(n, b"\0")
    return bytes([first, len(payloads), len(body) // 8, damage]) + body


def journals() -> list[bytes]:
    """Return journals: two consecutive segments; damage in each block; a gap; bytes after the start of the next segment; a second
    segment that has ended."""
    found = []
    for bad in range(-1, 4):
        parts = []
        for base, n in ((0, 4), (20, 3)):
            rows = [block_row(base + 2 * i, [b"x" * i, b"12"], 83 if i == bad else 0) for i in range(n)]
            parts.append(b"".join(rows).ljust(600, b"\0"))
        found += [bytes([end, first, over, 0, 150, 0, 0, 0]) + b"".join(parts) for end, first, over in ((26, 0, 0), (26, 3, 0), (22, 0, 1), (60, 21, 0))]
    return found


def seeds(target: str) -> list[bytes]:
    if target in TYPE_OF:
        # version, first byte (for an acknowledgement also its type, from PUBACK = 0), body
        return [
            bytes([version - 3, data[0] - 0x40 if target == "ack" else data[0] & 15]) + body(data)
            for version, data in packets()
            if data[0] >> 4 in TYPE_OF[target]
        ]
    if target == "properties":
        return [bytes([place]) + all_of(place) for place in PLACES] + [
            bytes([place]) + block(PROPERTY[i]) for place, legal in PLACES.items() for i in legal
        ]
    if target == "frame":
        stream = b"".join(data for _, data in packets())
        return [
            b"\x00" + stream[:2000],
            b"\x40" + stream[:500],
            b"\x00" + packet(0x30, b"x" * 300),
            b"\xff\x30\xff\xff\xff\x7f",
        ]
    if target == "as_client":
        return [bytes([version - 3, data[0]]) + body(data) for version, data in packets() if data[0] >> 4 in (4, 5, 6, 7, 14)] + [
            bytes.fromhex(seed) for seed in (
                "00200000", "01200100", "012000ff", "0220000000", "02200100062100142200ff", "02208700", "0190000100", "0190000180",
                "0290000100020080", "01b00001", "02b000010011", "02e08b00", "02e0", "02409500", "0240000195", "0110ff0000000161016201630174", "0210ff02110901610162016301740131")]
    if target == "lines":
        return [bytes([len(t.encode())]) + t.encode() + b"".join(
            bytes([how, len(a.encode())]) + a.encode() + bytes([len(b.encode())]) + b.encode()
            for how, a, b in ((3, "#", "#"), (0x6B, "l/#", "r/#"), (0x27, "a/+/b", "a/+/b"), (0x4B, "a/b", "x/b"))) for t in NAMES if len(t) < 200]
    if target in ("link_frame", "link_bytes"):
        frames = [link_api.encode(fields) for fields in test_frames.FRAMES]
        return frames if target == "link_frame" else [bytes([at]) + b"".join(frames[i:j]) for at, i, j in (
            (0, 1, 15), (255, 15, 19), (255, 16, 19), (0, 5, 12), (0, 8, 11), (128, 9, 12))]
    if target == "record":
        return [bytes([row.kind]) + row.body for row in records.ROWS] + [bytes([kind]) + body[:2000] for kind, body, _ in records.WRONG]
    if target in ("segments", "raw_segments"):
        return stores()
    if target in ("journal_blocks", "journal_raw"):
        return journals()
    if target == "filters":
        return [f"{a}\0{b}\0{t}".encode() for a in NAMES for b in NAMES[:8] for t in NAMES[:4]]
    if target == "tls_records":      # suite and cuts; then for each record: how it is made, inner type, size, bytes
        return [bytes([suite, 0x35]) + b"".join(row) for suite in range(3) for row in (
            [b"\x00\x17\x05hello", b"\x00\x17\x00", b"\x00\x00\x05ab\x17\0\0", b"\x00\x15\x02\x01\x00", b"\x00\x17\x01x"],
            [b"\x01\x00\x00", b"\x00\x17\x01a", b"\x01\x01\x00", b"\x00\x17\x01b"],
            [b"\x00\x16\x02\x18\x00", b"\x00\x16\x03\x00\x01\x00", b"\x00\x17\x01a"],
            [b"\x00\x16\x05\x18\x00\x00\x01\x02"], [b"\x00\x16\x04\x01\x00\x00\x00"], [b"\x00\x15\x02\x02\x28"], [b"\x00\x15\x01\x02"],
            [b"\x00\x14\x01\x01"], [b"\x00\x00\x03\0\0\0"], [b"\x00\x17\x00"] * 40, [b"\x01\x00\x00"] * 40,
            [b"\x02\x00\x05\x17\x03\x03\x41\x01"], [b"\x02\x00\x16\x17\x03\x03\x00\x11" + bytes(17)], [b"\x03\x17\x05hello"])]
    # The first byte gives the cuts of the input (proxy: its lowest bit is the version minus one); upgrade: then size_max / 8 and
    # the origins.
    if target == "websocket":
        return [b"\x35" + row.wire[:2000] for row in test_websocket.ROWS]
    if target == "upgrade":
        return [b"\xf3" + rules + row.wire for row in test_upgrade.ROWS for rules in (b"\xff", b"\x20")] + [
            b"\xf3\xff" + test_upgrade.req(Origin=origin) for origin in ("http://a", "http://b")
        ]
    if target == "proxy":
        return [bytes([0x50 | row.version - 1]) + row.wire[:2000] for row in test_proxy.V1 + test_proxy.V2]
    if target == "relay_head":
        return [b"\x35" + head + tail for head in test_relay_head.HEADS for tail in (b"", b"\x10\x0c")]
    if target == "ticket":
        return [b"\x35" + one + tail for one in test_ticket.TICKETS for tail in (b"", b"\x10\x0c")]
    return [name.encode() for name in NAMES]


def write(target: str, folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for seed in seeds(target):
        (folder / hashlib.sha1(seed).hexdigest()).write_bytes(seed)
    return len(seeds(target))
