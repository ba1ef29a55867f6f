"""Lock a set of tables for one program at a time.

The lock belongs to an open file. Spark's JVM inherits that file from the driver. So the operating system releases the
lock only when both processes are dead: an orphaned JVM of a killed driver cannot disturb the next run.
"""

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mosq.pipeline import MosqPipelineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOCK, UPKEEP, READERS = "lock", "upkeep.lock", "readers.lock"
REBUILD = "rebuild.lock"  # of a rebuild, and of an erasure that it would undo
COMMITS = "commits.lock"  # of the commits of one batch to all tables, and of an erasure from all tables
ORPHAN_S = 60.0  # a JVM whose driver was killed ends within seconds
LOOK_S = 0.1


class Lock:
    """Hold the lock; `fd` is for the JVM to inherit."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path, self.fd = path, fd


def _holder(fd: int) -> int | None:
    """Return the process that took the lock, or None if it is not known."""
    text = os.pread(fd, 32, 0).decode(errors="replace").strip()
    return int(text) if text.isdecimal() else None


def _lives(process: int | None) -> bool:
    """Return whether a process lives. A zombie does not: its parent has not read its status yet."""
    if process is None:
        return True
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


@contextlib.contextmanager
def held(
    path: Path, busy: str, log: "Callable[[str], object] | None" = None, patience_s: float = ORPHAN_S
) -> "Iterator[Lock]":
    """Hold the lock of a file during the block. Raises MosqPipelineError(busy) if another program has it.

    If that program is dead and only its JVM still has the lock, wait for the JVM's end.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _take(fd, path, busy, log, patience_s)
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
        yield Lock(path, fd)
    finally:
        # the end of this process does the same; the JVM of a session that goes on must not keep the lock
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _take(fd: int, path: Path, busy: str, log: "Callable[[str], object] | None", patience_s: float) -> None:
    until, logged = time.monotonic() + patience_s, False
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(fd)
        if _lives(holder):
            raise MosqPipelineError(busy)
        if time.monotonic() >= until:
            raise MosqPipelineError(
                f"{path}: process {holder} was killed, but a process that it started (Spark's JVM) still lives and has"
                f" the lock after {patience_s:.0f} s: end it (`fuser {path}` shows its number), and run again"
            )
        if log is not None and not logged:
            log(f"waiting for the end of Spark's JVM that the killed process {holder} left behind")
            logged = True
        time.sleep(LOOK_S)


@contextlib.contextmanager
def awaited(path: Path, waits: "Callable[[], object]") -> "Iterator[None]":
    """Hold the lock of a file during the block. Call `waits` before a wait for another program that has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waits()
            fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def reading(path: Path) -> "Iterator[None]":
    """Let no file be deleted during the block, as far as this user may take part in the lock."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        yield  # then the reader has the time for which replaced files stay
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


@contextlib.contextmanager
def deleting(path: Path) -> "Iterator[bool]":
    """Yield whether no program is `reading`; while files are deleted, none begins to."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free = True
        except BlockingIOError:
            free = False
        yield free
    finally:
        os.close(fd)
