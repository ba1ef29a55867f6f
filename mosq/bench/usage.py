"""CPU and memory of processes, from /proc. CPU is the scheduler's, in nanoseconds, where the kernel tells it; `wait` is
the time that a process could have run and had no core: so a saturated one is known when others take its core.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Used:
    """By one process, up to now; zero and None for one that is not there."""

    cpu_s: float = 0.0
    wait_s: float = 0.0
    user_s: float = 0.0
    system_s: float = 0.0
    rss_bytes: int | None = None
    pss_bytes: int | None = None


@dataclass(frozen=True)
class Moment:
    broker: Used = field(default_factory=Used)
    own: Used = field(default_factory=Used)
    all_cpu_s: float = 0.0
    at: float = field(default_factory=time.monotonic)


def moment(broker_pid: int | None) -> Moment:
    return Moment(Used() if broker_pid is None else used(broker_pid), used(os.getpid()), _machine_cpu_s())


def used(pid: int) -> Used:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        user_s, system_s = int(fields[11]) * TICK_S, int(fields[12]) * TICK_S
        cpu_s, wait_s = _scheduled(pid)
    except (OSError, IndexError):
        return Used()
    rss, pss = _memory(pid)
    return Used(cpu_s or user_s + system_s, wait_s, user_s, system_s, rss, pss)


def _scheduled(pid: int) -> tuple[float, float]:
    cpu_ns = wait_ns = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            ran, waited, _ = (thread / "schedstat").read_text().split()
        except (OSError, ValueError):
            continue
        cpu_ns, wait_ns = cpu_ns + int(ran), wait_ns + int(waited)
    return cpu_ns / 1e9, wait_ns / 1e9


def _memory(pid: int) -> tuple[int | None, int | None]:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        sizes = {name: int(value.split()[0]) * 1024 for name, _, value in (line.partition(":") for line in lines[1:])}
        return sizes["Rss"], sizes["Pss"]
    except (OSError, KeyError, ValueError, IndexError):
        pass
    try:                    # of somebody else's process
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES, None
    except (OSError, IndexError):
        return None, None


def _machine_cpu_s() -> float:
    """By everybody, on all cores."""
    try:
        ticks = [int(value) for value in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return 0.0
    return (sum(ticks) - ticks[3] - ticks[4]) * TICK_S      # without idle and iowait
