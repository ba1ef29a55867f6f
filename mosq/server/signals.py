"""Turns the signals of the process into numbers. The main thread reads them from a descriptor between two pieces of
work, never in the middle of one.

    Signals() -> reading files: SIGTERM and SIGINT end the process with status 0; other signals wait in the pipe
      defer() -> from the first file or socket of the broker on, SIGTERM and SIGINT wait in the pipe too
      with signals.reading: -> password files and rules are read: SIGTERM and SIGINT also raise Stopped

Imported first of all, so that a signal during the start has a defined result. It uses `_signal`, of which `signal` is
a copy with names for the numbers: those names come from `enum`, whose import takes longer than the start's own code.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
else:
    import _signal as signal

STOP = (int(signal.SIGTERM), int(signal.SIGINT))
RELOAD, SAVE, PRINT_TREES, REOPEN_LOG = map(int, (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGRTMIN))
UPGRADE = REOPEN_LOG + 1         # `mosq upgrade` sends it
TAKEN = (*STOP, RELOAD, SAVE, PRINT_TREES, REOPEN_LOG, UPGRADE)


def block_reload() -> "set[int]":
    """Block SIGHUP in this thread and in those that it starts, so that it stays pending until a reload begins: the loop
    holds CONNECT packets from then on (Engine.watch_reload). Return the mask before."""
    return {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, (RELOAD,))}


def mask() -> "set[int]":
    """Return the signals that are blocked in this thread."""
    return {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())}


def block_all() -> "set[int]":
    """Block the signals of the broker in this thread and in those that it starts. Return the mask before."""
    return {int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, TAKEN)}


def blocked() -> "list[int]":
    """Return the signals of the broker that are blocked and have arrived, each once, and take them."""
    found = [number for number in TAKEN if number in signal.sigpending()]
    for number in found:
        signal.sigtimedwait((number,), 0)
    return found


def unblock(before: "set[int]") -> None:
    """Restore the mask that `block_reload` or `block_all` returned."""
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ask_reload() -> None:
    """Send SIGHUP to this process; any thread may call this."""
    os.kill(os.getpid(), RELOAD)


class Stopped(BaseException):
    """SIGTERM or SIGINT arrived while files were read. Not an Exception: the file is not wrong."""


class Reading:
    """`with signals.reading:` ends with Stopped if the broker shall stop: a pipe or a network file may never end."""

    active = wanted = False         # whether files are read; whether SIGTERM or SIGINT has arrived

    def __enter__(self) -> None:
        if self.wanted:
            raise Stopped           # it arrived before, and waits in the pipe
        self.active = True

    def __exit__(self, *exception: object) -> None:
        self.end()

    def end(self) -> None:
        """Let SIGTERM and SIGINT wait from now on: a result of the reading that Stopped discards is never closed."""
        self.active = False

    def pause(self, work: "Callable[[], None]") -> None:
        """Do work that Stopped must not interrupt, between two parts of a long reading."""
        self.active = False
        work()
        self.__enter__()


class Signals:
    """Inside `with Signals() as signals:` signals arrive as bytes. After it the signals that end the process have
    their old handlers again; the others are ignored, so that a late SIGHUP does not end a broker with status 129."""

    def __enter__(self) -> "Signals":
        self.read_fd, self.write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)
        os.set_blocking(self.write_fd, False)
        self._deferred = False
        self.reading = Reading()
        self.old_wakeup_fd = signal.set_wakeup_fd(self.write_fd, warn_on_full_buffer=False)
        self.old = {number: signal.signal(number, self._arrived) for number in TAKEN}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self.old.items():
            late = handler == signal.SIG_DFL and number not in STOP
            signal.signal(number, signal.SIG_IGN if late else handler)
        signal.set_wakeup_fd(self.old_wakeup_fd)
        os.close(self.read_fd)
        os.close(self.write_fd)

    def _arrived(self, number: int, frame: object) -> None:
        if number not in STOP:
            return
        if not self._deferred:
            raise SystemExit(0)         # also where the start waits, for example for a file on a network
        self.reading.wanted = True
        if self.reading.active:
            self.reading.active = False
            raise Stopped

    def defer(self) -> None:
        """Let SIGTERM and SIGINT wait until `taken` returns them: the broker has something to clean up now."""
        self._deferred = True

    def wake(self) -> None:
        """Make `read_fd` readable without a signal. Any thread may call this."""
        try:
            os.write(self.write_fd, b"\0")
        except BlockingIOError:
            pass                    # the pipe is full, so it is readable

    def taken(self) -> bytes:
        """Return the numbers of the signals that arrived, each once, in the order of arrival."""
        try:
            return bytes(dict.fromkeys(os.read(self.read_fd, 4096)))
        except BlockingIOError:
            return b""


def block() -> None:
    """Block the signals of the broker in the calling thread."""
    block_all()
