"""Make network namespaces for tests: machines of their own, which are connected by a bridge."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

NETWORKS = "10.213"         # only in the namespaces, and on the bridges between them
LOOPBACK = "127.0.0.1"


def ran(*words: str) -> bool:
    """Run a command; return whether it succeeded."""
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


@contextlib.contextmanager
def namespaces(name: str, count: int) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield the address of this machine for the namespaces, their own addresses, and the words before their commands. The last letter
    of the name chooses the network, because tests that run at the same time must not share one. Another run with the same name waits;
    what a killed run left is removed. If the machine allows no namespaces, all addresses are the loopback."""
    network = f"{NETWORKS}.{ord(name[-1])}"
    bridge = f"{name}b"
    spaces = [f"{name}{number}" for number in range(2, 2 + count)]
    with open(Path(tempfile.gettempdir(), f"{name}.lock"), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _remove(bridge, spaces)
        if os.geteuid() != 0 or not ran("ip", "link", "add", bridge, "type", "bridge"):
            yield LOOPBACK, [LOOPBACK] * count, [[] for _ in spaces]
            return
        try:
            must("ip", "addr", "add", f"{network}.1/24", "dev", bridge)
            must("ip", "link", "set", bridge, "up")
            for number, space in enumerate(spaces, 2):
                ours, theirs = f"{name}v{number}", f"{name}p{number}"
                must("ip", "netns", "add", space)
                must("ip", "link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", space)
                must("ip", "link", "set", ours, "master", bridge, "up")
                must("ip", "-n", space, "addr", "add", f"{network}.{number}/24", "dev", theirs)
                for device in ("lo", theirs):
                    must("ip", "-n", space, "link", "set", device, "up")
            yield f"{network}.1", [f"{network}.{n}" for n in range(2, 2 + count)], [["ip", "netns", "exec", space] for space in spaces]
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
            ran("ip", "link", "del", f"{bridge[:-1]}v{number}")        # the namespace itself is removed later than its name
            ran("ip", "netns", "del", space)
    ran("ip", "link", "del", bridge)


def must(*words: str) -> None:
    """Run a command that must succeed."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"
