"""The lock of the instrument (compare.py): who holds it has the machine to himself, among those who measure."""

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
    """waiting: told when somebody else has it."""
    with Path(tempfile.gettempdir(), "bench.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
