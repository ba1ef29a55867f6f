"""Upgrades a running broker without dropping a connection: the new process's side. leaving.py is the old process's
side.

`go` of the old process makes this one the broker. If the old process dies after this one has everything, this one is
the broker too: no other process has the sockets then. If it dies earlier, this one ends.
"""

import _socket
import os

from mosq.log_types import INFORMATION, NOTICE
from mosq.server.upgrade.channel import (
    FD_BYTES,
    FD_VARIABLE,
    LIMIT_S,
    PROTOCOL,
    STDERR_VARIABLE,
    receive,
    send,
    store_identity,
    unpacked,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.engine import Engine

STDERR_FD = 2
ERRORS_BYTES = 1 << 16          # of what the new program has written before this
NAME_BYTES = 64
END_S = 5.0                     # time that the old process may take to end


class ArrivalError(OSError):
    """This process cannot take over."""


class Arrival:
    """The state of another process, on its way to this one."""

    def __init__(self) -> None:
        """Take the channel from the environment. Raises OSError if it is none."""
        number = os.environ.pop(FD_VARIABLE)
        if not number.isdecimal():
            raise ArrivalError(0, f"the environment has {FD_VARIABLE}={number}, which only an upgrade sets")
        self._channel = _socket.socket(fileno=int(number))
        self._channel.settimeout(LIMIT_S)
        os.set_inheritable(self._channel.fileno(), False)
        os.environ.pop("WATCHDOG_PID", None)        # it names the old process
        self._stderr_fd = int(os.environ.pop(STDERR_VARIABLE, "-1"))
        if self._stderr_fd >= 0 and os.fstat(self._stderr_fd).st_rdev != os.stat(os.devnull).st_rdev:
            self._stderr_returns()      # else its last lines are needed for the log
        self._store = ""
        keep_name()
        self._state_fd = -1
        self._fds = b""
        self._listening: list[tuple[int, list[int]]] = []

    def _stderr_returns(self) -> None:
        """Give this process the standard error of the old one, with what it has written so far."""
        if self._stderr_fd < 0:
            return
        try:
            size = os.lseek(STDERR_FD, 0, os.SEEK_CUR)
            written = os.pread(STDERR_FD, min(size, ERRORS_BYTES), 0)
            os.lseek(STDERR_FD, 0, os.SEEK_SET)         # the old process need not quote it
            os.write(self._stderr_fd, written)
        except OSError:
            pass                        # nothing reads it
        os.dup2(self._stderr_fd, STDERR_FD)
        os.close(self._stderr_fd)
        self._stderr_fd = -1

    def check_store(self, path: str) -> None:
        """Refuse a store that is not that of the old process, before it is made. Raises OSError."""
        if self._store == "none":
            raise ArrivalError(0, "the broker before had no store, and this configuration has one")
        if self._store and self._store != store_identity(path):
            raise ArrivalError(0, f"the store of this configuration, {path}, is not that of the broker before")

    def hello(self, engine: "Engine") -> None:
        """Report that the configuration is read, and wait for the state. Raises OSError."""
        try:
            sealing = ",".join(map(str, engine.sealing_listeners()))
            send(self._channel, {"is": "hello", "protocol": PROTOCOL, "sealing": sealing})
            self._receive_all()
        except (EOFError, ConnectionError):
            raise ArrivalError(0, "Upgrade: the old process ended before it had handed over everything") from None
        except ValueError as error:
            raise ArrivalError(0, f"Upgrade: the old process sent something unexpected: {error}") from None

    def _receive_all(self) -> None:
        message, fds = receive(self._channel)
        if message.get("is") != "state" or message.get("protocol") != str(PROTOCOL) or len(fds) != FD_BYTES:
            raise ValueError("it does not begin with the state")
        self._state_fd = unpacked(fds)[0]
        self._store = message.get("store", "")
        while True:
            message, fds = receive(self._channel)
            what = message.get("is")
            if what == "listener":
                self._listening.append((int(message.get("number", "")), unpacked(fds)))
            elif what == "connections":
                self._fds += fds
            elif what == "end":
                return
            else:
                raise ValueError(f"{what!r}")

    def restore(self, engine: "Engine", report: "Callable[[int, str], None]") -> None:
        """Give the state to the engine. Raises OSError."""
        counts: dict[str, Any] = engine.arrive(self._state_fd, self._fds, self._listening)
        os.close(self._state_fd)
        report(INFORMATION, f"Upgrade: {counts['connections']} connections, {counts['sessions']} sessions and "
                            f"{counts['messages']} messages came from process {os.getppid()}.")

    def refuse(self, why: str) -> None:
        """Report to the old process why this one cannot take over; without effect if that is gone."""
        try:
            send(self._channel, {"is": "error", "text": why, "protocol": PROTOCOL})
        except OSError:
            pass

    def wait_go(self, report: "Callable[[int, str], None]") -> None:
        """Report that this process has everything, and wait until it is the broker. Raises OSError if the old one goes
        on."""
        # If both processes gave up at the same time, no broker would be left: the old one decides.
        self._channel.settimeout(None)
        try:
            send(self._channel, {"is": "ready", "protocol": PROTOCOL})
            message, _ = receive(self._channel)
        except (EOFError, ConnectionResetError, BrokenPipeError):
            self._stderr_returns()
            report(NOTICE, "Upgrade: the old process ended without a word. This one has everything, and goes on.")
            return
        except ValueError as error:
            raise ArrivalError(0, f"Upgrade: the old process sent something unexpected: {error}") from None
        if message.get("is") != "go":
            raise ArrivalError(0, "Upgrade: the old process goes on")
        self._stderr_returns()

    def wait_end(self) -> None:
        """Wait for the end of the old process, but not longer than END_S."""
        self._channel.settimeout(END_S)
        try:
            while self._channel.recv(1):
                pass
        except OSError:
            pass                    # it lasts too long: the caller sees what it needs

    def close(self) -> None:
        self._channel.close()


def keep_name() -> None:
    """Take the name of the old process in `ps`, `pgrep` and `killall`. The system gave this one that of Python."""
    try:
        with open(f"/proc/{os.getppid()}/comm", "rb", buffering=0) as old:
            name = old.read(NAME_BYTES).rstrip(b"\n")
        with open("/proc/self/comm", "wb", buffering=0) as mine:
            mine.write(name)
    except OSError:
        pass                            # it has another name, and nothing else is wrong
