"""The destinations of log lines. Knows bytes and descriptors, not the contents of lines.

  Log.write -> Stream.put -> [bounded queue] -> its thread -> write(2)      stderr, stdout, file
               Syslog.put -> send(MSG_DONTWAIT)                             syslog
               Topic.put  -> publish (the data plane; does not wait)        topic

Invariant: `put` never waits. Lines that do not fit are counted, and a later line reports their number. A destination
that fails (full disk, closed pipe) loses its own lines only.
Cost: one write for a batch of lines; one thread for each stream, started with its first line, so after any fork.
"""

import os
import signal
import threading
import time

from mosq.log.files import open_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable

QUEUE_BYTES_MAX = 1 << 20       # per stream; the same amount may wait in the data plane
PIPE_BYTES = 4096               # a pipe that is ready takes so many without a wait (PIPE_BUF)
WRITE_BYTES_MAX = 1 << 16       # per write, so that one failure of a slow pipe does not lose all lines

SYSLOG_SOCKET = "/dev/log"
SYSLOG_NAME = "mosquitto"       # the name that filters of syslog servers expect
DAEMON = 3                      # syslog's number of the facility
LOCAL0 = 16


class Stream:
    """An open descriptor with its own writer thread."""

    def __init__(self, fd: int, path: str | None = None) -> None:
        """`path`: the file that reopen() opens again. Without a path, the descriptor belongs to the caller."""
        self.fd, self.path = fd, path
        self.lost = 0                               # lines lost since the last report
        self._waiting: list[tuple[bytes, int]] = []     # blocks, and the lines in each
        self._waiting_bytes = 0
        self._old_fds: list[int] = []
        self._busy = False
        self._closed = False
        self._failing = False                       # whether the last write failed
        self._why = ""                              # the system's reason for the last write that failed
        self._torn = False                          # whether the last write ended within a line
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, block: bytes, lines: int) -> None:
        """Queue a block of whole lines; any thread may call this."""
        with self._changed:
            if self._closed:
                return
            if self._waiting_bytes + len(block) > QUEUE_BYTES_MAX:
                self.lost += lines
                return
            self._waiting.append((block, lines))
            self._waiting_bytes += len(block)
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="mosq-log", daemon=True)
                try:
                    thread.start()
                    self._thread = thread
                except RuntimeError:
                    pass                # no more threads are allowed: the block waits for the next try
            self._changed.notify_all()

    def reopen(self) -> None:
        """Write to a new file of the same name from now on. Raises OSError, and then the old file stays in use."""
        if self.path is None:
            return
        fd = open_file(self.path)
        with self._changed:
            self._old_fds.append(self.fd)       # the thread may be writing to it
            self.fd = fd
            self._changed.notify_all()

    def flush(self, until: float) -> None:
        """Wait until all lines are written, but not longer than `until` (monotonic clock)."""
        with self._changed:
            while (self._waiting or self._busy) and time.monotonic() < until:
                self._changed.wait(until - time.monotonic())

    def close(self, until: float) -> None:
        """Write the waiting lines until `until` (monotonic clock), then close."""
        self.flush(until)
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
            ended = self._thread is None
        if ended:
            self._close_fds()

    def _run(self) -> None:
        block_signals()
        while True:
            with self._changed:
                self._busy = False
                self._close_old()
                self._changed.notify_all()
                while not (self._waiting or self._old_fds or self._closed or (self.lost and not self._failing)):
                    self._changed.wait()
                if self._closed:
                    break
                block, lines = self._take()
                lost, self.lost = self.lost, 0
                self._busy = True
                fd = self.fd
            self._failing = not self._write(fd, block)
            if self._failing:
                self._account(lost + lines)
            elif lost and not self._write(fd, self._lost_line(lost)):
                self._failing = True
                self._account(lost)
        self._close_fds()

    def _take(self) -> tuple[bytes, int]:
        blocks, size, lines = [], 0, 0
        while self._waiting and size < WRITE_BYTES_MAX:
            block, n = self._waiting.pop(0)
            blocks.append(block)
            size += len(block)
            lines += n
        self._waiting_bytes -= size
        return b"".join(blocks), lines

    def _account(self, lines: int) -> None:
        with self._changed:
            self.lost += lines

    def _write(self, fd: int, block: bytes) -> bool:
        if self._torn:
            block = b"\n" + block
        written, why = _write_all(fd, block)
        self._why = why or self._why
        if written:
            self._torn = block[written - 1] != 10
        return written == len(block)

    def _lost_line(self, lines: int) -> bytes:
        """Return a log line with the number of lost lines, and why they were lost."""
        why, self._why = self._why or "could not be written fast enough", ""
        return f"{int(time.time())}: Warning: {lines} log lines were lost: the log {why}.\n".encode()

    def _close_old(self) -> None:
        while self._old_fds:
            _close(self._old_fds.pop())

    def _close_fds(self) -> None:
        self._close_old()
        if self.path is not None:
            _close(self.fd)


class Direct(Stream):
    """The same without a thread, for a process that must be able to fork at any time. `put` does not wait: a block that
    the descriptor does not take at once is lost and counted."""

    def put(self, block: bytes, lines: int) -> None:
        """Write a block of whole lines."""
        import select

        poll = select.poll()
        poll.register(self.fd, select.POLLOUT)
        for at in range(0, len(block), PIPE_BYTES):
            if not poll.poll(0) or not self._write(self.fd, block[at:at + PIPE_BYTES]):
                self.lost += lines
                return
        if self.lost:
            lost, self.lost = self.lost, 0
            self._write(self.fd, self._lost_line(lost))

    def reopen(self) -> None:
        """Write to a new file of the same name from now on. Raises OSError, and then the old file stays in use."""
        super().reopen()
        self._close_old()


class Syslog:
    """The system's log: one datagram for each line. A line that it does not take at once is lost and counted."""

    def __init__(self, facility: int = -1, name: str = SYSLOG_NAME, address: str = SYSLOG_SOCKET) -> None:
        """`facility`: 0 to 7 mean local0 to local7; -1 means daemon."""
        self.facility = (DAEMON if facility < 0 else LOCAL0 + facility) << 3
        self.name, self.address = name, address
        self.lost = 0
        self._socket: _socket.socket | None = None

    def put(self, seconds: int, severity: int, line: str) -> None:
        """Send one line; first report lost lines. `seconds`: since 1970; `severity`: as syslog numbers it."""
        if self.lost:
            report = f"Warning: {self.lost} log lines were lost, the system's log did not take them."
            if self._send(seconds, 4, report):
                self.lost = 0
        if not self._send(seconds, severity, line):
            self.lost += 1

    def flush(self, until: float) -> None:
        pass

    def close(self, until: float) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, seconds: int, severity: int, line: str) -> bool:
        stamp = time.strftime("%b %e %H:%M:%S", time.localtime(seconds))
        datagram = f"<{self.facility | severity}>{stamp} {self.name}[{os.getpid()}]: {line}"
        # the syslog server may have been restarted: try once more
        return self._try(datagram) or (self._socket is None and self._try(datagram))

    def _try(self, datagram: str) -> bool:
        import _socket as s  # `socket` is slow to load

        try:
            if self._socket is None:
                self._socket = s.socket(s.AF_UNIX, s.SOCK_DGRAM | s.SOCK_NONBLOCK | s.SOCK_CLOEXEC)
                self._socket.connect(self.address)
            self._socket.send(datagram.encode("utf-8", "backslashreplace"), s.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            self.close(0)
            return False
        return True


class Topic:
    """Publishes to $SYS/broker/log/#. Lines before the data plane runs are dropped: no client can have subscribed."""

    def __init__(self) -> None:
        self.publish: Callable[[str, bytes], None] | None = None

    def put(self, letter: str, line: str) -> None:
        """Publish one line to $SYS/broker/log/LETTER."""
        if self.publish is not None:
            self.publish(f"$SYS/broker/log/{letter}", line.encode("utf-8", "backslashreplace"))

    def flush(self, until: float) -> None:
        pass

    def close(self, until: float) -> None:
        self.publish = None


def _write_all(fd: int, block: bytes) -> tuple[int, str]:
    """Return the number of bytes written, which is less than all after an error, and the system's reason."""
    at, why = 0, ""
    while at < len(block):
        try:
            at += os.write(fd, memoryview(block)[at:])
        except BlockingIOError:
            time.sleep(0.01)        # another process that shares the descriptor made it non-blocking
        except OSError as error:
            why = f"could not be written ({error.strerror})"
            break
    return at, why


def _close(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        pass


def block_signals() -> None:
    """Block all signals in the calling thread; the main thread handles them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
