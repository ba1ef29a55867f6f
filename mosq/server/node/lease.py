"""The end of a node's lease, in memory that the agent, the parent and the workers share. The agent writes it. Each
worker obeys it by a timer of the kernel, so it needs neither the agent nor the parent for that."""

import mmap
import os

from mosq.cluster.terms import now_s
from mosq.engine import obey_lease

BYTES = 8                       # nanoseconds of CLOCK_BOOTTIME, one word of the processor
READINGS = 8                    # of the end, in each lease


class Lease:
    """The end of the lease. At first it is over."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("mosq-lease", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, BYTES)
        self._word = memoryview(mmap.mmap(self._fd, BYTES)).cast("Q")

    def move(self, until_s: float) -> None:
        """Write the end, in seconds of `now_s`."""
        self._word[0] = int(until_s * 1e9)

    @property
    def is_over(self) -> bool:
        return now_s() * 1e9 >= self._word[0]

    @property
    def left_s(self) -> float:
        """Return the seconds until the end, 0 after it."""
        return max(0.0, self._word[0] / 1e9 - now_s())

    def obey(self, lease_s: float) -> None:
        """Let the kernel end this process when the lease is over. Raises OSError."""
        obey_lease(self._fd, max(1, int(1000 * lease_s / READINGS)))
