"""What systemd wants to hear of a service of type notify, and its watchdog; nothing where systemd did not start us.

The watchdog's ping proves that both planes live: a thread asks the data plane's loop something, and only when that has
answered does the control plane's own loop send the ping.
"""

import os
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mosq.engine import Engine


def notify(*lines: str) -> None:
    """Sends e.g. READY=1; does not wait, and nobody listening is no mistake."""
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
    """Before a reload; READY=1 ends it."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")


def watchdog_s() -> float | None:
    """Within what time systemd wants a ping of this process; None: it wants none."""
    text, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID")
    if not (text.isascii() and text.isdigit()) or int(text) == 0 or pid not in (None, str(os.getpid())):
        return None
    return int(text) / 1e6


class Watchdog:
    """Asks the loop in a thread of its own, which may wait; `alive` is called from there after each answer."""

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
                continue                # not begun, or over: no ping
            if not self._ended.is_set():
                self.alive()
