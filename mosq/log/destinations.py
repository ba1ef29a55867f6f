"""Where log lines go. Knows bytes and descriptors; not what a line says.

    Log.write -> Stream.put -> [bounded queue] -> its thread -> write(2)      stderr, stdout, file
                 Syslog.put -> send(MSG_DONTWAIT)                             syslog
                 Topic.put  -> publish (the data plane; does not wait)        topic

Invariant: `put` never waits. What cannot be taken is counted, and told in a line of its own once there is room; a
destination that fails (full disk, closed pipe) loses its lines and nothing else.
Cost: a batch of lines is one write; a thread per stream, started with its first line, so after any fork.
"""

import errno
import os
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable

QUEUE_BYTES_MAX = 1 << 20       # per stream; as much again waits in the data plane
WRITE_BYTES_MAX = 1 << 16       # at a time: lines of a slow pipe are not all lost with one failure
FILE_MODE = 0o600               # topics and client ids are nobody's business; as Mosquitto

SYSLOG_SOCKET = "/dev/log"
SYSLOG_NAME = "mosquitto"       # what filters of syslog servers look for
DAEMON = 3                      # syslog's number of that facility; local0 is 16
LOCAL0 = 16


class Stream:
    """An open descriptor that a thread of its own writes to."""

    def __init__(self, fd: int, path: str | None = None) -> None:
        """`path`: of the file that reopen() opens again; without one the descriptor is somebody else's."""
        self.fd, self.path = fd, path
        self.lost = 0                               # lines, since it was last told
        self._waiting: list[tuple[bytes, int]] = []     # blocks, and the lines in each
        self._waiting_bytes = 0
        self._old_fds: list[int] = []
        self._busy = False
        self._closed = False
        self._failing = False                       # the last write did not succeed
        self._torn = False                          # what was written last ends within a line
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, block: bytes, lines: int) -> None:
        """Takes whole lines; any thread."""
        with self._changed:
            if self._closed:
                return
            if self._waiting_bytes + len(block) > QUEUE_BYTES_MAX:
                self.lost += lines
                return
            self._waiting.append((block, lines))
            self._waiting_bytes += len(block)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="mosq-log", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def reopen(self) -> None:
        """What is written from now on goes to a file of that name; raises OSError, and the old one stays in use."""
        if self.path is None:
            return
        fd = open_file(self.path)
        with self._changed:
            self._old_fds.append(self.fd)       # its writer may be in the middle of a line
            self.fd = fd
            self._changed.notify_all()

    def flush(self, until: float) -> None:
        """Waits until all is written, but not longer than the monotonic clock says."""
        with self._changed:
            while (self._waiting or self._busy) and time.monotonic() < until:
                self._changed.wait(until - time.monotonic())

    def close(self, until: float) -> None:
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
            elif lost and not self._write(fd, lost_line(lost)):
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
        written = _write_all(fd, block)
        if written:
            self._torn = block[written - 1] != 10
        return written == len(block)

    def _close_old(self) -> None:
        while self._old_fds:
            _close(self._old_fds.pop())

    def _close_fds(self) -> None:
        self._close_old()
        if self.path is not None:
            _close(self.fd)


class Syslog:
    """The system's log: a datagram a line. What it cannot take at once is lost and counted."""

    def __init__(self, facility: int = -1, name: str = SYSLOG_NAME, address: str = SYSLOG_SOCKET) -> None:
        """`facility`: 0 to 7 of local0 to local7; -1: daemon."""
        self.facility = (DAEMON if facility < 0 else LOCAL0 + facility) << 3
        self.name, self.address = name, address
        self.lost = 0
        self._socket: _socket.socket | None = None

    def put(self, seconds: int, severity: int, line: str) -> None:
        if self.lost:
            told = f"Warning: {self.lost} log lines were lost, the system's log did not take them."
            if self._send(seconds, 4, told):
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
        # its server may have been started anew: then once more
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
    """Subscribers of $SYS/broker/log/#. What is said before the data plane runs, nobody can have subscribed to."""

    def __init__(self) -> None:
        self.publish: Callable[[str, bytes], None] | None = None

    def put(self, letter: str, line: str) -> None:
        if self.publish is not None:
            self.publish(f"$SYS/broker/log/{letter}", line.encode("utf-8", "backslashreplace"))

    def flush(self, until: float) -> None:
        pass

    def close(self, until: float) -> None:
        self.publish = None


def open_file(path: str) -> int:
    """For appending; made if it is not there. Raises OSError. A pipe that nobody reads does not make us wait, nor does
    a link lead elsewhere: whoever may write the folder must not choose what we write to."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
    if not os.environ.get("MOSQUITTO_UNSAFE_ALLOW_SYMLINKS"):
        flags |= os.O_NOFOLLOW
    try:
        fd = os.open(path, flags, FILE_MODE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a symbolic link") from None
        raise
    os.set_blocking(fd, True)       # a thread of its own may wait
    return fd


def lost_line(lines: int) -> bytes:
    return b"%d: Warning: %d log lines were lost, the log could not be written fast enough.\n" % (time.time(), lines)


def _write_all(fd: int, block: bytes) -> int:
    """How many bytes were written: fewer when it fails."""
    at = 0
    while at < len(block):
        try:
            at += os.write(fd, memoryview(block)[at:])
        except BlockingIOError:
            time.sleep(0.01)        # somebody else made it non-blocking: it is shared
        except OSError:
            break
    return at


def _close(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        pass


def block_signals() -> None:
    import signal

    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
