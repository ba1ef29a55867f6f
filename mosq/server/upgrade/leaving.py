"""Upgrades a running broker without dropping a connection: the old process's side. arrival.py is the new process's
side.

    signal -> start the new program -> it reports `hello` (its configuration is read) -> freeze the loop
           -> send descriptors and state -> it reports `ready` (it has everything) -> `go` -> leave
    any error, or LIMIT_S without `ready` -> kill the new program -> thaw the loop: the broker goes on as if nothing
    had happened

The sending of `go` is the point after which the new process owns everything. This process alone decides about it.
Until `hello` the broker serves its clients as usual; only the time from the freezing to `go` is a pause. Knows
processes and descriptors, not what the state contains.
"""

import _socket
import os
import sys
import time

from mosq.log_types import ERROR, INFORMATION, NOTICE, WARNING
from mosq.server.upgrade.channel import (
    FD_BYTES,
    FD_VARIABLE,
    LIMIT_S,
    PROTOCOL,
    REASON_MAX,
    REASON_NAME,
    STDERR_VARIABLE,
    packed,
    peer_of,
    printable,
    receive,
    send,
    store_identity,
)
from mosq.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.engine import Engine

FDS_PER_MESSAGE = 200
WORKERS_REFUSED = "a broker with workers (cluster_local) cannot be upgraded while it runs; restart it"
STDERR_FD = 2
BEAT_S = 0.25
UNEXPECTED = "the new program sent something unexpected"
ERRORS_MAX = 4 << 20            # memory for the standard error of the new program
ERRORS_BYTES, ERROR_LINES, ERROR_LINE_MAX = 4096, 4, 300        # of a new program that fails, for the log


class UpgradeError(Exception):
    """The upgrade ends, and the old process goes on. The text is for people. `written`: the end of what the new program
    has written to its standard error."""

    def __init__(self, text: str, written: bytes = b"") -> None:
        super().__init__(text)
        self.written = written


def command() -> list[str]:
    """Return the command line with which this process was started."""
    return [sys.executable, *sys.orig_argv[1:]]


class Upgrade:
    """One attempt. `fd` is readable when the new program has something to report; then call `serve`."""

    def __init__(self, engine: "Engine", report: "Callable[[int, str], None]", taken: "tuple[int, ...]",
                 serve_requests: "Callable[[], None]", beat: "Callable[[], None]", store: str | None) -> None:
        """Start the new program, in which the signals `taken` have their default effect at first. Raises OSError.
        `serve_requests` answers what the data plane has asked. `beat` is called every BEAT_S while `serve` waits, for
        the watchdog. `store`: the folder of the store in use, or None."""
        if os.getpid() == 1:
            raise OSError(0, "this is the first process of its container, which ends with it; replace the container")
        if os.environ.get("SYSTEMD_EXEC_PID") == str(os.getpid()) and "NOTIFY_SOCKET" not in os.environ:
            raise OSError(0, "systemd would end the new process with this one; its unit needs Type=notify")
        if not os.access(os.__file__, os.R_OK) or not os.access(__file__, os.R_OK):
            raise OSError(0, "the broker's user cannot read Python or mosq, so it cannot start the new program")
        if not store_identity(store):
            raise OSError(0, f"the folder of the store, {store}, does not exist any more, so no process could open it")
        self._engine, self._report, self._serve_requests = engine, report, serve_requests
        self._beat, self._store = beat, store
        self._rules = engine.rules_set
        self.due_s = time.monotonic() + LIMIT_S
        self._channel, other = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        report(INFORMATION, f"Upgrade: starting {' '.join(command())}")
        try:
            self._errors = errors_file()
        except OSError:
            self._channel.close()
            other.close()
            raise
        stderr_fd = -1
        try:
            stderr_fd = stderr_copy()
            os.set_inheritable(other.fileno(), True)
            os.set_inheritable(stderr_fd, True)
            environment = {**os.environ, FD_VARIABLE: str(other.fileno()), STDERR_VARIABLE: str(stderr_fd)}
            self.pid = os.posix_spawn(command()[0], command(), environment, setsigmask=[], setsigdef=taken,
                                      file_actions=[(os.POSIX_SPAWN_DUP2, self._errors, STDERR_FD)])
        except OSError:
            self._channel.close()
            os.close(self._errors)
            raise
        finally:
            other.close()
            if stderr_fd >= 0:
                os.close(stderr_fd)

    @property
    def fd(self) -> int:
        return self._channel.fileno()

    def serve(self) -> None:
        """Hand over, now that the new program has reported something. Raises UpgradeError; then the broker goes on."""
        try:
            sealing = [int(number) for number in self._expect("hello").get("sealing", "").split(",") if number]
        except (ValueError, UpgradeError) as error:
            raise self._cancelled(str(error) if isinstance(error, UpgradeError) else UNEXPECTED) from None
        self._hand_over(sealing)

    def _cancelled(self, why: str) -> UpgradeError:
        """End the new program. Return the error for this reason, with what that program wrote last."""
        written = self.cancel()
        text = written.decode("utf-8", "replace")
        lines = [line[:ERROR_LINE_MAX] for line in map(printable, text.splitlines()) if line]
        return UpgradeError(f"{why}; it wrote: {' | '.join(lines[-ERROR_LINES:])}" if lines else why, written)

    def cancel(self) -> bytes:
        """End the new program, before the loop is frozen or after it is known that it must thaw. Return the end of what
        that program has written to its standard error."""
        import signal

        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)     # only then is the lock of the store free
        except (ProcessLookupError, ChildProcessError):
            pass                        # SIGCHLD was ignored at the start: the kernel keeps no zombies
        self._channel.close()
        size = os.lseek(self._errors, 0, os.SEEK_CUR)       # both processes have the same position
        written = os.pread(self._errors, ERRORS_BYTES, max(0, size - ERRORS_BYTES))
        os.close(self._errors)
        return written

    def _expect(self, what: str) -> "dict[str, str]":
        """Return the next message, which must be `what`. Raises UpgradeError."""
        try:
            message = self._next()
        except EOFError:
            raise UpgradeError("the new program ended") from None
        except TimeoutError:
            raise UpgradeError(f"the new program did not report in {LIMIT_S:.0f} s") from None
        except (OSError, ValueError) as error:
            raise UpgradeError(f"{UNEXPECTED}: {error}") from None
        if message.get("is") == "error":
            raise UpgradeError(f"the new program reports: {message.get('text')}")
        if message.get("is") != what or message.get("protocol") != str(PROTOCOL):
            raise UpgradeError(f"the new program speaks protocol {message.get('protocol')} of upgrades, this one "
                               f"{PROTOCOL}")
        return message

    def _next(self) -> "dict[str, str]":
        """Return the next message. Raises TimeoutError when the time is over, and as `receive`."""
        while True:
            left_s = self.due_s - time.monotonic()
            self._channel.settimeout(max(0.001, min(BEAT_S, left_s)))
            try:
                return receive(self._channel)[0]
            except TimeoutError:
                if left_s <= BEAT_S:
                    raise
                self._beat()

    def _hand_over(self, sealing: list[int]) -> None:
        try:
            state_fd, fds, counts = self._frozen(sealing)
        except OSError as error:
            raise self._cancelled(error.strerror or str(error)) from None
        began_s = time.monotonic()
        try:
            try:
                self._send_all(state_fd, fds)
            finally:
                os.close(state_fd)
            self._expect("ready")
            send(self._channel, {"is": "go", "protocol": PROTOCOL})
        except (UpgradeError, OSError) as error:
            failure = self._cancelled(str(error))
            self._engine.thaw()
            raise failure from None
        self._engine.leave()
        for n, text in counts["reasons"]:
            self._report(NOTICE, f"Upgrade: closed {n} connections {text}.")
        ms = counts["us"] / 1000 + (time.monotonic() - began_s) * 1000
        self._report(NOTICE, f"Upgrade: process {self.pid} has taken over: {counts['connections']} connections moved, "
                             f"{counts['closed']} were closed; {counts['sessions']} sessions, {counts['messages']} "
                             f"messages, {counts['bytes']} bytes; {ms:.0f} ms.")

    def _frozen(self, sealing: list[int]) -> "tuple[int, bytes, dict[str, Any]]":
        """Freeze the loop when no command of a client waits, since the client may have its acknowledgement. The new
        program may have read the files of such commands before. Raises OSError."""
        while True:
            self._beat()
            self._serve_requests()
            if self._engine.rules_set != self._rules:
                raise OSError(0, "access rules changed while the new program started; try again")
            try:
                return self._engine.freeze(sealing)
            except BlockingIOError:
                if time.monotonic() > self.due_s:
                    raise

    def _send_all(self, state_fd: int, fds: bytes) -> None:
        """Send the listening sockets, the state, and the connections. Raises OSError."""
        self._channel.settimeout(max(0.001, self.due_s - time.monotonic()))
        listening = self._engine.listening()
        send(self._channel, {"is": "state", "protocol": PROTOCOL, "version": VERSION,
                             "store": store_identity(self._store)}, packed([state_fd]))
        for number, sockets in listening:
            send(self._channel, {"is": "listener", "number": number}, packed(sockets))
        for first in range(0, len(fds), FDS_PER_MESSAGE * FD_BYTES):
            send(self._channel, {"is": "connections"}, fds[first:first + FDS_PER_MESSAGE * FD_BYTES])
        send(self._channel, {"is": "end"})


def failed(report: "Callable[[int, str], None]", why: str, goes_on: bool = True) -> None:
    """Log that the new process does not take over; the old one may end for another reason."""
    report(ERROR, f"Error: Upgrade: {why.rstrip('.')}." + (" This process goes on." if goes_on else ""))
    _send_reason(why.rstrip("."))


def errors_file() -> int:
    """Return a memory file for the standard error of the new program. It cannot grow: a program that writes without an
    end would take gigabytes until LIMIT_S. Raises OSError."""
    import fcntl

    fd = os.memfd_create("mosq-upgrade-stderr", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, ERRORS_MAX)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
    except OSError:
        os.close(fd)
        raise
    return fd


def stderr_copy() -> int:
    """Return another descriptor of standard error; of /dev/null if that is closed."""
    try:
        return os.dup(STDERR_FD)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def _send_reason(why: str) -> None:
    """Send the reason to a waiting `mosq upgrade` of root or of this user."""
    listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK)
    try:
        listener.connect(REASON_NAME.format(os.getpid()))
        if peer_of(listener)[1] in (0, os.geteuid()):
            listener.send(why.encode("utf-8", "backslashreplace")[:REASON_MAX])
    except OSError:
        pass                            # no command waits
    finally:
        listener.close()


def refuse_workers(report: "Callable[[int, str], None]") -> None:
    """Log that a broker with workers cannot be upgraded: their links and the parent's sockets do not move yet."""
    report(ERROR, f"Error: Upgrade: {WORKERS_REFUSED}. All processes go on.")


def refuse_second(report: "Callable[[int, str], None]") -> None:
    """Log that an upgrade is under way. A waiting command gets nothing: it reports how that upgrade ends."""
    report(WARNING, "Warning: Upgrade: one is under way already.")
