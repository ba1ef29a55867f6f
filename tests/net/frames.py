"""Make and read WebSocket frames as a client does; decode a client's frames slowly, as a model for the fast decoder."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MASK = b"\x37\xfa\x21\x3d"  # the mask of RFC 6455 5.7


def masked(payload: bytes, mask: bytes = MASK) -> bytes:
    return bytes(c ^ mask[i & 3] for i, c in enumerate(payload))


def head(opcode: int, n: int, fin: bool = True, rsv: int = 0, mask_bit: int = 0x80, wide: int = 0) -> bytes:
    """Return a frame's header. `wide` is 2 or 8: the length field has this many bytes, also if fewer would do."""
    first = bytes([fin << 7 | rsv << 4 | opcode])
    if n < 126 and not wide:
        return first + bytes([mask_bit | n])
    if (n < 65536 and not wide) or wide == 2:
        return first + bytes([mask_bit | 126]) + struct.pack(">H", n)
    return first + bytes([mask_bit | 127]) + struct.pack(">Q", n)


def frame(opcode: int, payload: bytes = b"", fin: bool = True, rsv: int = 0, mask: bytes = MASK, wide: int = 0) -> bytes:
    """Return a client's frame; if `mask` is empty, the frame is unmasked, as a server's frame is."""
    if not mask:
        return head(opcode, len(payload), fin, rsv, 0, wide) + payload
    return head(opcode, len(payload), fin, rsv, 0x80, wide) + mask + masked(payload, mask)


@dataclass
class Model:
    """A decoder that reads all frames at once and follows the text of RFC 6455."""

    data: bytes = b""
    pings: list[bytes] = field(default_factory=list)
    closed: int | None = None
    failed: int | None = None

    def read(self, wire: bytes) -> Model:
        fragmented = False
        while wire and self.closed is None and self.failed is None:
            opcode, fin = wire[0] & 15, bool(wire[0] & 0x80)
            self.failed = self._first(wire[0], opcode, fin, fragmented)
            if self.failed or len(wire) < 2:
                break
            n = wire[1] & 0x7F
            if not wire[1] & 0x80 or (opcode >= CLOSE and n > 125) or (opcode == CLOSE and n == 1):
                self.failed = 1002
                break
            at = {126: 4, 127: 10}.get(n, 2)
            if len(wire) < at + 4:
                break
            if n >= 126:
                length = int.from_bytes(wire[2:at])
                if length <= (125 if n == 126 else 65535) or length >> 63:
                    self.failed = 1002
                    break
                n = length
                if n > 1 << 30:
                    self.failed = 1009
                    break
            mask, wire = wire[at : at + 4], wire[at + 4 :]
            payload, whole, wire = masked(wire[:n], mask), len(wire) >= n, wire[n:]
            if opcode < CLOSE:
                self.data += payload
                fragmented = not fin
            elif whole:
                self._control(opcode, payload)
        return self

    def _first(self, first: int, opcode: int, fin: bool, fragmented: bool) -> int | None:
        if first & 0x70:
            return 1002
        if opcode == TEXT:
            return 1003
        if opcode in (BINARY, CONTINUATION):
            return 1002 if fragmented == (opcode == BINARY) else None
        return None if opcode in (CLOSE, PING, PONG) and fin else 1002

    def _control(self, opcode: int, payload: bytes) -> None:
        if opcode == PING:
            self.pings.append(payload)
        elif opcode == CLOSE:
            code = int.from_bytes(payload[:2]) if payload else 1005
            if code in (1005, *range(1000, 1004), *range(1007, 1015)) or 3000 <= code < 5000:
                if payload and code == 1005:
                    self.failed = 1002
                else:
                    self.closed = code
            else:
                self.failed = 1002


@dataclass(frozen=True)
class ServerFrame:
    opcode: int
    payload: bytes


def read_server(wire: bytes) -> tuple[list[ServerFrame], bytes]:
    """Return the whole frames that a server sent, and the remaining bytes. Raise AssertionError for a forbidden frame."""
    out = []
    while len(wire) >= 2:
        assert wire[0] & 0xF0 == 0x80, f"not a final frame without extension bits: {wire[:2].hex()}"
        assert not wire[1] & 0x80, "a server does not mask [RFC 6455 5.1]"
        n = wire[1]
        at = {126: 4, 127: 10}.get(n, 2)
        if len(wire) < at:
            break
        if n >= 126:
            n = int.from_bytes(wire[2:at])
            assert n > (125 if at == 4 else 65535), "not the fewest bytes for a length"
        if len(wire) < at + n:
            break
        out.append(ServerFrame(wire[0] & 15, wire[at : at + n]))
        wire = wire[at + n :]
    return out, wire
