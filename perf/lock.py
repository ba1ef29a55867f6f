"""The lock of the instrument (compare.py): who holds it has the machine to himself, among those who measure."""

from __future__ import annotations

import contextlib
import fcntl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def bench_lock() -> Iterator[None]:
    with Path(tempfile.gettempdir(), "bench.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
