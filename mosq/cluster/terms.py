"""The times of a cluster, and why two nodes never run one worker at once. Knows no clock but its name.

    owner          beat sent             lease over: all workers are killed
                   |--------- lease -----|
    observer             first read of that beat                          may claim
                         |--------- lease ---------|------- margin -------|

The owner counts from before it sent its last confirmed beat, an observer from after it first read that beat. So the
observer's time begins later, and the margin is what is left for the rest: a kill takes time, a busy machine wakes a
process late, and two clocks may differ in rate. No two clocks are compared: a jump of the wall clock changes nothing.
"""

import time
from dataclasses import dataclass
from functools import cached_property

HOLD_S = 4.0                    # for a replica that has left the primary; also HOLD_US of cext/redis/files.pyx
CHANGE_MAX_S = 10.0             # of a change of dynamic security; less than LIMIT_S of a turn of a worker
SLOW_S = 0.09                   # a Redis whose answers take so long, one after another, is reported as slow
CLOCK = time.CLOCK_BOOTTIME     # as CLOCK_MONOTONIC, and it also counts while the machine is suspended


def now_s() -> float:
    """Return the time of this machine in seconds; it never jumps back."""
    return time.clock_gettime(CLOCK)


@dataclass(frozen=True)
class Terms:
    """The times that all nodes of a cluster share, in seconds. A dead node's workers start at others `lease_s +
    margin_s` after its death, and later by up to two beats."""

    lease_s: float = 4.0        # from a confirmed beat to the moment from which its node may run no worker
    margin_s: float = 2.0       # from there to the moment from which another node may run it

    def __post_init__(self) -> None:
        if self.margin_s <= 0 or not 0.1 <= self.lease_s <= 3600:
            raise ValueError("a lease has 0.1 to 3600 seconds, and a margin above 0")

    @cached_property
    def death_s(self) -> float:
        """The time without a change of its beat after which a node counts as dead."""
        return self.lease_s + self.margin_s

    @cached_property
    def beat_s(self) -> float:
        """The pause between two beats. A lease survives the loss of three."""
        return self.lease_s / 5

    @cached_property
    def retry_s(self) -> float:
        """The pause after a beat that failed."""
        return self.beat_s / 4

    @cached_property
    def change_s(self) -> float:
        """The time in which Redis must confirm a change of dynamic security, and a worker must use it."""
        return min(self.lease_s / 2, CHANGE_MAX_S)

    @cached_property
    def request_s(self) -> float:
        """The time after which a request without an answer counts as failed."""
        return self.lease_s / 4

    @cached_property
    def gap_s(self) -> float:
        """The longest pause between two readings of the beats: after a longer one, observation begins again."""
        return self.beat_s * 2.5
