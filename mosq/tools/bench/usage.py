"""Measure CPU and memory of processes from /proc.

CPU is the scheduler's count in nanoseconds if the kernel has it. `wait` is the time in which a process could have run
but had no core: so a saturated process is recognised even if others take its core. Ended threads count in the CPU, but
no longer in `wait`. A broker is a process with those that it has started: `cluster_local N` has N workers.
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
    """Hold the usage of broker, generator and machine at one time; `processes` are those of the broker."""

    broker: Used = field(default_factory=Used)
    own: Used = field(default_factory=Used)
    all_cpu_s: float = 0.0
    at: float = field(default_factory=time.monotonic)
    processes: dict[int, Used] = field(default_factory=dict)


def moment(*broker_pids: int | None) -> Moment:
    """Return the usage now, with that of all processes of the broker; without broker_pid that of the broker is zero."""
    processes = {one: used(one) for pid in broker_pids if pid is not None for one in (pid, *children(pid))}
    return Moment(_sum(list(processes.values())), used(os.getpid()), _machine_cpu_s(), processes=processes)


def children(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have started."""
    found: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                if child != os.getpid():        # a generator that the broker's program has started
                    found += [child, *children(child)]
    except (OSError, ValueError):
        pass
    return found


def _sum(of: list[Used]) -> Used:
    """Return the usage of all processes of a broker; that of one that has ended is unknown, so nothing is known
    then."""
    if not of or not all(one.there for one in of):
        return Used()
    rss, pss = ([size for size in sizes if size is not None] for sizes in
                ([one.rss_bytes for one in of], [one.pss_bytes for one in of]))
    return Used(True, sum(one.cpu_s for one in of), sum(one.wait_s for one in of), sum(one.user_s for one in of),
                sum(one.system_s for one in of), sum(rss) if len(rss) == len(of) else None,
                sum(pss) if len(pss) == len(of) else None)


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
