"""Show progress on standard error: a bar with the remaining time on a terminal, else a line for each run."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

BAR = 24
EVERY_S = 0.5


class Progress:
    """Show how many steps are done, and the remaining time."""

    def __init__(self, steps: list[tuple[Hashable, float]]) -> None:
        """Take the steps as (kind, seconds).

        Steps of a kind take equally long; the seconds are an estimate before the first.
        """
        self.left = list(steps)
        self.took: dict[Hashable, float] = {}
        self.done = 0
        self.terminal = sys.stderr.isatty()
        self.width = 0
        self.began = self.step_began = time.monotonic()
        self.what = ""

    def begin(self, what: str) -> None:
        self.what, self.step_began = what, time.monotonic()
        self.tick()

    def end(self, step: tuple[Hashable, float], outcome: str, *, measured: bool = True) -> None:
        """Note that a step is over, or will be skipped."""
        self.left.remove(step)
        if measured:
            self.took[step[0]] = time.monotonic() - self.step_began
            self.done += 1
            if not self.terminal:
                where = f"{self.done}/{self.done + len(self.left)}, {duration(self.left_s())} left"
                self.log(f"[{where}] {self.what}: {outcome}")

    def left_s(self) -> float:
        return sum(self.took.get(key, hint) for key, hint in self.left)

    def tick(self) -> None:
        if self.terminal:
            running_s = time.monotonic() - self.step_began
            total = self.done + len(self.left)
            filled = BAR * self.done // max(total, 1)
            self._write(f"[{'#' * filled}{'.' * (BAR - filled)}] {self.done}/{total}, "
                        f"{duration(max(self.left_s() - running_s, 0))} left: {self.what}"[:119])

    def log(self, text: str) -> None:
        """Print a line that stays above the bar."""
        if self.terminal:
            self._write("")
            sys.stderr.write("\r")
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def _write(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(self.width))
        sys.stderr.flush()
        self.width = len(text)

    def close(self) -> None:
        if self.terminal:
            self._write("")
            sys.stderr.write("\r")


def duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
