"""Measure CPU and memory of processes from /proc.

CPU is the scheduler's count in nanoseconds if the kernel has it. `wait` is the time in which a process could have run
but had no core: so a saturated process is recognised even if others take its core. Ended threads count in the CPU, but
no longer in `wait`.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SCHEDULED = 2                   # CPUCLOCK_SCHED of the kernel
ENDED = ("Z", "X", "x")


@dataclass(frozen=True)
class Used:
    """Hold the usage of a process; zero and None if it does not exist, or has ended and waits to be reaped."""

    there: bool = False
    cpu_s: float = 0.0
    wait_s: float = 0.0
    user_s: float = 0.0
    system_s: float = 0.0
    rss_bytes: int | None = None
    pss_bytes: int | None = None


@dataclass(frozen=True)
class Moment:
    """Hold the usage of broker, generator and machine at one time."""

    broker: Used = field(default_factory=Used)
    own: Used = field(default_factory=Used)
    all_cpu_s: float = 0.0
    at: float = field(default_factory=time.monotonic)


def moment(broker_pid: int | None) -> Moment:
    """Return the usage now; without broker_pid that of the broker is zero."""
    return Moment(Used() if broker_pid is None else used(broker_pid), used(os.getpid()), _machine_cpu_s())


def used(pid: int) -> Used:
    """Return the usage of a process up to now."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        user_s, system_s = int(fields[11]) * TICK_S, int(fields[12]) * TICK_S
        waited_s = _waited_s(pid)
    except (OSError, IndexError):
        return Used()
    if fields[0] in ENDED:
        return Used()
    rss, pss = _memory(pid)
    return Used(True, _cpu_s(pid) or user_s + system_s, waited_s, user_s, system_s, rss, pss)


def _cpu_s(pid: int) -> float:
    """Return the CPU clock of a process, including ended threads; any user may read it [clock_gettime(2)]."""
    try:
        return time.clock_gettime(~pid << 3 | SCHEDULED)
    except OSError:
        return 0.0


def _waited_s(pid: int) -> float:
    wait_ns = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            wait_ns += int((thread / "schedstat").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return wait_ns / 1e9


def _memory(pid: int) -> tuple[int | None, int | None]:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        sizes = {name: int(value.split()[0]) * 1024 for name, _, value in (line.partition(":") for line in lines[1:])}
        return sizes["Rss"], sizes["Pss"]
    except (OSError, KeyError, ValueError, IndexError):
        pass
    try:                    # the process of another user
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES, None
    except (OSError, IndexError):
        return None, None


def _machine_cpu_s() -> float:
    """Return the CPU of all processes on all cores."""
    try:
        ticks = [int(value) for value in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return 0.0
    return (sum(ticks) - ticks[3] - ticks[4]) * TICK_S      # without idle and iowait
