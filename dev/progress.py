"""Shows the steps of a build that takes long: one line that is written again each second if stderr is a terminal, else one line
for the begin and one for the end of each step. Threads may share one."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

WIDTH_LEAST = 20


class Progress:
    """`total`: how many steps there will be."""

    def __init__(self, total: int, out: TextIO | None = None) -> None:
        self.total, self.done = total, 0
        self.out = sys.stderr if out is None else out
        self.terminal = self.out.isatty()
        self.begun = time.monotonic()
        self.running: dict[str, float] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._painter = threading.Thread(target=self._paint_each_second, daemon=True) if self.terminal else None

    def __enter__(self) -> "Progress":
        if self._painter is not None:
            self._painter.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._painter is not None:
            self._painter.join()
            self._write("\r\x1b[K")

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Show `what` until the block is left."""
        begun = time.monotonic()
        with self._lock:
            self.running[what] = begun
            if not self.terminal:
                self._write(f"   {what}\n")
        whole = False
        try:
            yield
            whole = True
        finally:
            took = time.monotonic() - begun
            with self._lock:
                del self.running[what]
                self.done += whole
                end = f"   {what}: {took:.0f} s ({self.done} of {self.total})\n" if whole else f"   {what}: not finished\n"
                self._write(f"\r\x1b[K{end}" if self.terminal else end)

    def report(self, text: str) -> None:
        """Write lines among the steps, such as a compiler's warnings."""
        with self._lock:
            self._write(("\r\x1b[K" if self.terminal else "") + text.rstrip("\n") + "\n")

    def line(self) -> str:
        """Return what a terminal shows now."""
        now = time.monotonic()
        steps = ", ".join(f"{what} {now - begun:.0f} s" for what, begun in self.running.items())
        return f"   [{self.done}/{self.total}, {now - self.begun:.0f} s] {steps}"

    def _paint_each_second(self) -> None:
        while not self._ended.wait(1):
            with self._lock:
                try:
                    width = max(WIDTH_LEAST, os.get_terminal_size(self.out.fileno()).columns)
                except (OSError, ValueError):
                    width = 80
                self._write(f"\r\x1b[K{self.line()[:width - 1]}")

    def _write(self, text: str) -> None:
        self.out.write(text)
        self.out.flush()
