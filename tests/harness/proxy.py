"""Provide a TCP proxy with the faults of networks: it cuts, delays, stalls, loses and refuses connections at the test's
request.

Each connection has two threads, one for each direction. A cut is a reset on both sides, at any place in a packet.
"""

from __future__ import annotations

import contextlib
import socket
from tests.harness.effort import TIMEOUT_S
import threading
import time
from types import TracebackType
from typing import Self

RESET = b"\x01\x00\x00\x00\x00\x00\x00\x00"


class Pair:
    """One connection through the proxy; it closes when both of its threads have ended."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.socks = (near, far)
        self.carried = 0
        self.lock = threading.Lock()
        self.threads = 2

    def cut(self) -> None:
        for sock in self.socks:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.wake()

    def wake(self) -> None:
        for sock in self.socks:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RD)       # the peer notices only the reset that the close sends

    def left(self) -> bool:
        """Count the end of one thread; return True if it was the last one."""
        with self.lock:
            self.threads -= 1
            if self.threads:
                return False
        for sock in self.socks:
            sock.close()
        return True


class Proxy:
    """A proxy from `port` to `to_port`. A test may change all its switches at any time."""

    def __init__(self, to_port: int) -> None:
        self.to_port = to_port
        self.delay_s = 0.0              # delay of each piece, in each direction
        self.cut_after = 0              # bytes of the next connection, both directions together; 0 = never
        self.n_connections = 0
        self.n_cuts = 0
        self._go = threading.Event()    # cleared: the proxy forwards no data and closes no connection
        self._go.set()
        self._held, self._free = b"", threading.Event()     # pieces with these bytes wait
        self._refuses = self._ended = False
        self._lock = threading.Lock()
        self._pairs: set[Pair] = set()
        self._threads: list[threading.Thread] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._spawn(self._accept)

    def _spawn(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)     # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    # ---- faults

    def cut(self) -> int:
        """Reset all open connections; return their number."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            self._cut(pair)
        return len(pairs)

    def _cut(self, pair: Pair) -> None:
        with self._lock:
            if pair in self._pairs:
                self._pairs.discard(pair)
                self.n_cuts += 1
        pair.cut()

    def black_hole(self, on: bool = True) -> None:
        """Keep and accept connections, but forward no data."""
        (self._go.clear if on else self._go.set)()

    def hold(self, content: bytes) -> None:
        """Let each piece with these bytes wait, and what follows it on its connection; b"": none, and those that wait go on."""
        self._held = content
        (self._free.clear if content else self._free.set)()

    def refuse(self, on: bool = True) -> None:
        """Close each new connection at once."""
        self._refuses = on

    # ---- implementation

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            self.n_connections += 1
            if self._refuses or self._ended:
                near.close()
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self.to_port), timeout=TIMEOUT_S)
            except OSError:
                near.close()
                continue
            for sock in (near, far):
                sock.settimeout(None)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = Pair(near, far)
            with self._lock:
                self._pairs.add(pair)
            cut_after, self.cut_after = self.cut_after, 0
            self._spawn(self._carry, pair, near, far, cut_after)
            self._spawn(self._carry, pair, far, near, cut_after)

    def _carry(self, pair: Pair, source: socket.socket, sink: socket.socket, cut_after: int) -> None:
        try:
            while content := source.recv(65536):
                if self.delay_s:
                    time.sleep(self.delay_s)
                self._go.wait()
                if self._held and self._held in content:
                    self._free.wait()
                before, pair.carried = pair.carried, pair.carried + len(content)
                if cut_after and pair.carried >= cut_after:
                    sink.sendall(content[:max(0, cut_after - before - 1)])
                    self._cut(pair)
                    break
                sink.sendall(content)
            else:
                self._go.wait()
                with contextlib.suppress(OSError):
                    sink.shutdown(socket.SHUT_WR)
        except OSError:
            pair.wake()
        if pair.left():
            with self._lock:
                self._pairs.discard(pair)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended = True
        self._go.set()
        self._free.set()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
