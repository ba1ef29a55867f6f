"""Make a failing list shorter, step by step, while it still fails in the same way (delta debugging)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def shrink(items: Sequence[T], fails: Callable[[list[T]], bool], most: int = 400) -> list[T]:
    """Return a part of the items that still fails; remove larger parts first. Calls `fails` at most `most` times.

    Without a call that fails, the result is the items themselves."""
    now, size, calls = list(items), max(1, len(items) // 2), 0
    while calls < most:
        at, removed = 0, False
        while at < len(now) and calls < most:
            shorter = now[:at] + now[at + size:]
            calls += 1
            if len(shorter) < len(now) and fails(shorter):
                now, removed = shorter, True
            else:
                at += size
        if size == 1 and not removed:
            break
        if not removed:
            size = max(1, size // 2)
    return now
