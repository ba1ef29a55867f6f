"""Lock the machine for one measurement at a time, with the lock of the instrument (compare.py)."""

from __future__ import annotations

import contextlib
import fcntl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextlib.contextmanager
def bench_lock(waiting: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Hold the lock. `waiting` is called if another measurement has it."""
    with Path(tempfile.gettempdir(), "bench.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
