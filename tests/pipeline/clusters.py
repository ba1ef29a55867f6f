"""Provide a standalone Spark cluster for tests: a master and two workers, each in a network namespace of its own where the machine allows it.

The workers do not see the package mosq of this checkout, nor other hidden folders: what their executors import comes from the archive.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from mosq.pipeline.cluster.standalone import Standalone
from tests.harness.namespaces import namespaces, ran
from tests.pipeline.processes import ROOT, command_line, descendants

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def hiding(before: list[str], folders: Sequence[Path]) -> list[str]:
    """Return the words before a command that does not see the content of these folders, if the machine allows it."""
    if os.geteuid() != 0 or not ran("unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"):
        return before
    mounts = "".join(f"mount -t tmpfs none {shlex.quote(str(folder))} && " for folder in folders)
    return [*before, "unshare", "-m", "sh", "-c", f'{mounts}exec "$@"', "-"]


class Cluster:
    """Hold a running cluster. `settings` are lines for [spark]."""

    def __init__(self, standalone: Standalone, driver: str) -> None:
        self.standalone, self.url = standalone, standalone.url
        self.settings = (f'"spark.driver.host" = "{driver}"\n"spark.driver.bindAddress" = "{driver}"\n'
                         '"spark.executor.memory" = "512m"\n"spark.driver.memory" = "600m"\n'
                         '"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"\n'
                         '"spark.executor.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"\n')

    def executors(self, worker: int) -> list[int]:
        """Return the processes of a worker's executors."""
        return [pid for pid in descendants(self.standalone.processes[worker].pid) if "CoarseGrainedExecutorBackend" in command_line(pid)]


@contextlib.contextmanager
def cluster(folder: Path, name: str, hidden: Sequence[Path] = ()) -> Iterator[Cluster]:
    """Yield a cluster whose workers see neither the package mosq here nor the hidden folders."""
    with namespaces(name, 3) as (driver, addresses, before):
        words = [before[0], *(hiding(one, [ROOT / "mosq", *hidden]) for one in before[1:])]
        with Standalone(folder, addresses, before=words) as standalone:
            yield Cluster(standalone, driver)
