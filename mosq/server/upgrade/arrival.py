"""Upgrades a running broker without dropping a connection: the new process's side. leaving.py is the old process's
side.

`go` of the old process makes this one the broker. If the old process dies after this one has everything, this one is
the broker too: no other process has the sockets then. If it dies earlier, this one ends.
"""

import _socket
import os

from mosq.log_types import INFORMATION, NOTICE
from mosq.server.upgrade.channel import FD_BYTES, FD_VARIABLE, LIMIT_S, PROTOCOL, receive, send, unpacked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.engine import Engine

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
        self._state_fd = -1
        self._fds = b""
        self._listening: list[tuple[int, list[int]]] = []

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
            report(NOTICE, "Upgrade: the old process ended without a word. This one has everything, and goes on.")
            return
        except ValueError as error:
            raise ArrivalError(0, f"Upgrade: the old process sent something unexpected: {error}") from None
        if message.get("is") != "go":
            raise ArrivalError(0, "Upgrade: the old process goes on")

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
