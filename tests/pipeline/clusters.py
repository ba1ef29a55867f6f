"""Provide a standalone Spark cluster for tests: a master and two workers, each in a network namespace of its own where the machine allows it.

The workers do not see the package mosq of this checkout, nor other hidden folders: what their executors import comes from the archive.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from mosq.pipeline.cluster.standalone import Standalone
from tests.pipeline.processes import ROOT, command_line, descendants

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NETWORKS = "10.213"         # only in the namespaces, and on the bridges between them
LOOPBACK = ["127.0.0.1"] * 3


def _ran(*words: str) -> bool:
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@contextlib.contextmanager
def namespaces(name: str) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield the address of the driver, those of master and workers, and the words before their commands. The last letter of the
    name chooses the network, because tests that run at the same time must not share one. Another run with the same name waits;
    what a killed run left is removed."""
    network = f"{NETWORKS}.{ord(name[-1])}"
    bridge = f"{name}b"
    spaces = [f"{name}{number}" for number in range(2, 5)]
    with open(Path(tempfile.gettempdir(), f"{name}.lock"), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _remove(bridge, spaces)
        if os.geteuid() != 0 or not _ran("ip", "link", "add", bridge, "type", "bridge"):
            yield "127.0.0.1", LOOPBACK, [[], [], []]
            return
        try:
            _must("ip", "addr", "add", f"{network}.1/24", "dev", bridge)
            _must("ip", "link", "set", bridge, "up")
            for number, space in enumerate(spaces, 2):
                ours, theirs = f"{name}v{number}", f"{name}p{number}"
                _must("ip", "netns", "add", space)
                _must("ip", "link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", space)
                _must("ip", "link", "set", ours, "master", bridge, "up")
                _must("ip", "-n", space, "addr", "add", f"{network}.{number}/24", "dev", theirs)
                for device in ("lo", theirs):
                    _must("ip", "-n", space, "link", "set", device, "up")
            yield f"{network}.1", [f"{network}.{n}" for n in range(2, 5)], [["ip", "netns", "exec", space] for space in spaces]
        finally:
            _remove(bridge, spaces)


def _remove(bridge: str, spaces: list[str]) -> None:
    """Remove the bridge and the network namespaces that exist, with the processes in them."""
    if not (os.geteuid() == 0 and Path("/run/netns").exists()):
        return
    for number, space in enumerate(spaces, 2):
        if Path("/run/netns", space).exists():
            found = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True, check=False)
            for pid in found.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            _ran("ip", "link", "del", f"{bridge[:-1]}v{number}")        # the namespace itself is removed later than its name
            _ran("ip", "netns", "del", space)
    _ran("ip", "link", "del", bridge)


def _must(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"


def hiding(before: list[str], folders: Sequence[Path]) -> list[str]:
    """Return the words before a command that does not see the content of these folders, if the machine allows it."""
    if os.geteuid() != 0 or not _ran("unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"):
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
    with namespaces(name) as (driver, addresses, before):
        words = [before[0], *(hiding(one, [ROOT / "mosq", *hidden]) for one in before[1:])]
        with Standalone(folder, addresses, before=words) as standalone:
            yield Cluster(standalone, driver)
