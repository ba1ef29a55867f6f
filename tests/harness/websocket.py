"""Provide a socket that speaks WebSocket to a broker: a test sends and reads bytes of MQTT, as with a plain socket.

It sends its bytes in turn as one frame, as two frames, and as fragments with a ping between them, so that frames and MQTT packets
begin at different bytes.
"""

from __future__ import annotations

import base64
import hashlib
import os
import socket
from typing import Any

from tests.net.frames import BINARY, CLOSE, CONTINUATION, PING, PONG, frame, read_server

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def handshake(protocol: str = "mqtt", path: str = "/mqtt", **headers: str) -> tuple[bytes, bytes]:
    """Return (the request, text that the answer must contain); `_` in names stands for `-`."""
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", "Upgrade: websocket", "Connection: Upgrade", f"Sec-WebSocket-Key: {key}",
             "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Protocol: {protocol}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    accept = base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()
    return "\r\n".join(lines).encode() + b"\r\n\r\n", f"Sec-WebSocket-Accept: {accept}\r\n".encode()


class WebSocket:
    """A socket with the methods that tests/harness/wire.py uses. `closed`: status of the broker's Close (1005 = none given)."""

    def __init__(self, sock: socket.socket, before: bytes = b"", **headers: str) -> None:
        self.sock = sock
        self.frames = 0
        self.closed: int | None = None
        self.pongs: list[bytes] = []
        self.sizes: list[int] = []  # sizes of the received binary frames
        self._raw = b""
        self._data = b""
        request, accept = handshake(**headers)
        sock.sendall(before + request)
        answer = b""
        while b"\r\n\r\n" not in answer:
            more = sock.recv(65536)
            assert more, f"no whole answer: {answer!r}"
            answer += more
        head, _, self._raw = answer.partition(b"\r\n\r\n")
        self.answer = head + b"\r\n"
        assert self.answer.startswith(b"HTTP/1.1 101 "), answer
        assert accept in self.answer

    def sendall(self, data: bytes) -> None:
        half = len(data) // 2
        way = self.frames % 3
        self.frames += 1
        if way == 0 or len(data) < 2:
            wire = frame(BINARY, data)
        elif way == 1:
            wire = frame(BINARY, data[:half]) + frame(BINARY, data[half:], mask=b"\x00\xff\x80\x01")
        else:
            wire = frame(BINARY, data[:half], fin=False) + frame(PING, b"?") + frame(CONTINUATION, data[half:])
        self.sock.sendall(wire)

    def recv(self, _: int = 0) -> bytes:
        """Return the next bytes of MQTT; b"" after a Close frame or the end of the connection."""
        while True:
            got, self._raw = read_server(self._raw)
            for one in got:
                if one.opcode == BINARY:
                    self._data += one.payload
                    self.sizes.append(len(one.payload))
                elif one.opcode == PONG:
                    self.pongs.append(one.payload)
                else:
                    assert one.opcode == CLOSE, one
                    self.closed = int.from_bytes(one.payload[:2]) if one.payload else 1005
            if self._data or self.closed is not None:
                data, self._data = self._data, b""
                return data
            more = self.sock.recv(65536)
            if not more:
                return b""
            self._raw += more

    def settimeout(self, seconds: float | None) -> None:
        self.sock.settimeout(seconds)

    def setsockopt(self, *what: Any) -> None:
        self.sock.setsockopt(*what)

    def close(self) -> None:
        self.sock.close()
