"""Read the CPU time of a program that uses Spark: the driver, its JVM, and the workers."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_s(top: int) -> float:
    """Return the CPU time in seconds of a process and of all processes below it.

    An ended process counts if its parent has waited for it; the JVM waits for none of the workers.
    """
    tick = os.sysconf("SC_CLK_TCK")
    parents, used = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(fields[1])
        used[int(stat.parent.name)] = sum(map(int, fields[11:15])) / tick

    def below(pid: int) -> bool:
        return pid == top or (pid in parents and below(parents[pid]))

    return sum(seconds for pid, seconds in used.items() if below(pid))
