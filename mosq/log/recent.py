"""The last lines of the log in memory, for readers inside the process. Bounded in lines and in the length of a line.

Any thread may call `put` and `after`: each step is one operation on a deque.
"""

import itertools
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from mosq.records import LogLine

LINES_MAX = 1000
TEXT_MAX = 2000                 # characters of a line


class Recent:
    """The last LINES_MAX lines, numbered from 1."""

    def __init__(self) -> None:
        self._lines: deque[tuple[int, int, int, str]] = deque(maxlen=LINES_MAX)
        self._numbers = itertools.count(1)

    def put(self, records: "Iterable[LogLine]") -> None:
        """Append lines."""
        for one in records:
            self._lines.append((next(self._numbers), one.seconds, one.type, one.text[:TEXT_MAX]))

    def after(self, number: int) -> list[tuple[int, int, int, str]]:
        """Return the lines after this number: number, seconds since 1970, type, text."""
        return [line for line in self._lines.copy() if line[0] > number]
