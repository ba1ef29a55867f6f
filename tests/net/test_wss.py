"""Test all layers together: PROXY header, TLS, WebSocket, MQTT; in one piece and byte by byte."""

from __future__ import annotations

import socket
import ssl

from typing import Any

import pytest

from tests.harness.certificates import client_context, server_paths
from tests.harness.packets import Disconnect, Pingreq, Publish, Subscribe
from tests.harness.websocket import WebSocket
from tests.net.conftest import Dial, Run, Running
from tests.net.frames import BINARY, CLOSE, ServerFrame, frame
from tests.net.test_web import PINGRESP, V1, WS, enter, mqtt, publishes, read_server


class SlowTls:
    """TLS over a socket that sends `step` bytes at a time, with the methods that WebSocket uses. It sends `before` first."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, before: bytes = b"", step: int = 1 << 20) -> None:
        self.sock, self.step = sock, step
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")
        self._waiting = before
        self._do(self._tls.do_handshake)

    def _send(self) -> None:
        wire = self._waiting + self._out.read()
        self._waiting = b""
        for at in range(0, len(wire), self.step):
            self.sock.sendall(wire[at : at + self.step])

    def _do(self, what: Any, *arguments: Any) -> Any:
        while True:
            try:
                result = what(*arguments)
                self._send()
                return result
            except ssl.SSLWantReadError:
                self._send()
                more = self.sock.recv(65536)
                if more:
                    self._in.write(more)
                else:
                    self._in.write_eof()
            except ssl.SSLZeroReturnError:
                return b""

    def sendall(self, data: bytes) -> None:
        self._do(self._tls.write, data)

    def recv(self, n: int) -> bytes:
        got: bytes = self._do(self._tls.read, n)
        return got


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return server_paths(tmp_path_factory.mktemp("tls"))


def open_web(dial: Dial, broker: Running, before: bytes = b"", step: int = 1 << 20, **headers: str) -> WebSocket:
    tls: Any = SlowTls(dial(broker), client_context(), before, step)
    return WebSocket(tls, **headers)


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
@pytest.mark.parametrize("proxied", [False, True])
def test_every_layer(run: Run, dial: Dial, secure: dict[str, str], step: int, proxied: bool) -> None:
    """Test one segment with the PROXY header and the first bytes of the handshake: the header's parser must not take any of these."""
    broker = run(**WS, **secure, **({"enable_proxy_protocol": 1} if proxied else {}))
    ws = enter(open_web(dial, broker, V1 if proxied else b"", step), "all")
    line = broker.log(" as all ")
    assert ("from 10.1.2.3:4321 as all" if proxied else "from 127.0.0.1:") in line
    ws.sendall(mqtt(Subscribe(1, (("t", 0),)), Publish("t", b"x" * 3000), Pingreq()))
    assert publishes(ws, 1) == [b"x" * 3000]
    broker.until(lambda s: s["buffers_used_bytes"] == 0)


@pytest.mark.parametrize("size", [20_000, 300_000, 1_500_000])
def test_large_messages(run: Run, dial: Dial, secure: dict[str, str], size: int) -> None:
    ws = enter(open_web(dial, run(**WS, **secure)))
    ws.sendall(mqtt(Subscribe(1, (("t", 0),))))
    assert ws.recv()[0] == 0x90
    for n in range(3):
        payload = bytes([n]) * size
        ws.sendall(mqtt(Publish("t", payload), Pingreq()))
        assert publishes(ws, 1) == [payload]


@pytest.mark.parametrize("bye", [frame(BINARY, mqtt(Disconnect())), frame(CLOSE, b"\x03\xe8")])
def test_a_close_frame_is_followed_by_close_notify(run: Run, dial: Dial, secure: dict[str, str], bye: bytes) -> None:
    ws = enter(open_web(dial, run(**WS, **secure)))
    ws.sock.sendall(frame(BINARY, mqtt(Pingreq())) + bye)
    raw = ws._raw
    while more := ws.sock.recv(65536):  # b"": the broker sent close_notify before the end
        raw += more
    assert read_server(raw)[0] == [ServerFrame(BINARY, PINGRESP), ServerFrame(CLOSE, b"\x03\xe8")]


def test_a_browser_of_another_origin(run: Run, dial: Dial, secure: dict[str, str]) -> None:
    broker = run(**WS, **secure, websockets_origin=("https://good.example",))
    with pytest.raises(AssertionError, match="403 Forbidden"):
        open_web(dial, broker, Origin="https://evil.example")
    assert open_web(dial, broker, Origin="https://good.example").closed is None


