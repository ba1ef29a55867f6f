"""The memory of a worker without the parts of shared pages that count for other processes: the workers are forks of one
parent, so a sum of their resident memory counts the pages of the modules several times.

The system needs 20 to 60 ms for each GB to divide the shared pages up. So a process that has become large takes the
parts that it found last: only a start shares pages, and each write makes one its own, so they can only be smaller now.
"""

import os

DIVIDED_BYTES_MAX = 256 << 20   # a process with more is not divided up again


class Memory:
    """The memory of this process."""

    def __init__(self) -> None:
        self._of_others: int | None = None      # parts of shared pages, when they were last divided up

    def bytes(self) -> int:
        """Return the memory, in which a page that n processes share counts as 1/n of it."""
        resident = resident_bytes()
        if self._of_others is None or resident < DIVIDED_BYTES_MAX:
            divided = divided_bytes()
            self._of_others = 0 if divided is None else max(0, resident - divided)
        return resident - self._of_others


def resident_bytes() -> int:
    """Return the memory of this process with all shared pages."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def divided_bytes() -> int | None:
    """Return the memory of this process as the system divides it up; None if it does not."""
    try:
        with open("/proc/self/smaps_rollup", "rb") as file:
            return next((int(line.split()[1]) << 10 for line in file if line.startswith(b"Pss:")), None)
    except OSError:
        return None
