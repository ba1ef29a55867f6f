"""Writes log lines as Mosquitto does: `<seconds since 1970>: text`, no level. A batch of records is one write.

A log that cannot be written (closed pipe, full disk) is not a reason to stop the broker: what fails here is dropped.
"""

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# a line is a line: what a client sends must not be able to begin another one
_CONTROL = dict.fromkeys((*range(9), *range(10, 32), 127, *range(128, 160), 0x2028, 0x2029), "?")

Record = tuple[int, int, str]       # seconds since 1970, type bit, text

STDOUT_FD, STDERR_FD = 1, 2


class Log:
    """The destinations of the log and the form of its lines."""

    def __init__(self, dests: tuple[str, ...] = (), mask: int = 0, timestamp: bool = True,
                 timestamp_format: str | None = None):
        """`dests`: of none, stdout, stderr; nothing means stderr. `mask`: the type bits that are wanted."""
        wanted = dict.fromkeys(dests or ("stderr",))
        self.fds = [fd for name, fd in (("stdout", STDOUT_FD), ("stderr", STDERR_FD)) if name in wanted]
        self.mask = mask
        self.timestamp = timestamp
        self.timestamp_format = timestamp_format
        self._second = -1
        self._prefix = ""

    def say(self, type_bit: int, text: str) -> None:
        """One line of our own, now."""
        self.write([(int(time.time()), type_bit, text)])

    def write(self, records: "Iterable[Record]") -> None:
        lines = [self._line(seconds, text) for seconds, type_bit, text in records if type_bit & self.mask]
        if lines:
            block = "".join(lines).encode("utf-8", "backslashreplace")
            for fd in self.fds:
                _write_all(fd, block)

    def _line(self, seconds: int, text: str) -> str:
        if not text.isprintable():
            text = text.translate(_CONTROL)
        return f"{self._stamp(seconds)}{text}\n" if self.timestamp else f"{text}\n"

    def _stamp(self, seconds: int) -> str:
        if self.timestamp_format is None:
            return f"{seconds}: "
        if seconds != self._second:
            self._second = seconds
            self._prefix = f"{time.strftime(self.timestamp_format, time.localtime(seconds))}: "
        return self._prefix


def _write_all(fd: int, block: bytes) -> None:
    view = memoryview(block)
    while view:
        try:
            view = view[os.write(fd, view):]
        except OSError:
            return
