"""Sends systemd the notifications of a service of type notify, and the pings of its watchdog. Does nothing if systemd
did not start the process.

A ping proves that both planes are alive: a thread sends the data plane's loop a request, and the control plane's loop
sends the ping only after the answer.
"""

import os
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.engine import Engine


def notify(*lines: str) -> None:
    """Send lines such as READY=1. Does not wait; without a listening systemd it does nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    import _socket  # `socket` is slow to load

    try:
        sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM | _socket.SOCK_NONBLOCK | _socket.SOCK_CLOEXEC)
        try:
            sock.sendto("\n".join(lines).encode(), "\0" + address[1:] if address[0] == "@" else address)
        finally:
            sock.close()
    except OSError:
        pass


def reloading() -> None:
    """Report the start of a reload; READY=1 ends it."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


def watchdog_s() -> float | None:
    """Return the interval in seconds within which systemd expects a ping of this process; None if it expects none."""
    text, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID")
    if not (text.isascii() and text.isdigit()) or int(text) == 0 or pid not in (None, str(os.getpid())):
        return None
    return int(text) / 1e6


class Watchdog:
    """Asks the loop in its own thread, which may wait, and calls `alive` from that thread after each answer."""

    def __init__(self, engine: "Engine", within_s: float, alive: "Callable[[], None]") -> None:
        self.engine, self.every_s, self.alive = engine, within_s / 3, alive
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="mosq-watchdog", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        from mosq.log.destinations import block_signals

        block_signals()
        while not self._ended.wait(self.every_s):
            try:
                self.engine.stats()
            except RuntimeError:
                continue                # the loop has not begun or has ended: no ping
            if not self._ended.is_set():
                self.alive()
