"""Show progress while `run` runs: a line for each batch; on a terminal one line that changes."""

import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

from mosq.pipeline.runs.status import lag

if TYPE_CHECKING:
    from mosq.pipeline.settings import Settings

WIDTH = 120


class Live:
    """Print progress on standard error."""

    def __init__(self, settings: "Settings", quiet: bool = False, out: TextIO | None = None) -> None:
        self.settings, self.quiet = settings, quiet
        self.out = sys.stderr if out is None else out
        self.one_line = self.out.isatty()
        self.began = time.monotonic()
        self.rows = 0
        self.open = False  # the last line has no line end yet

    def log(self, line: str) -> None:
        self.end()
        print(line, file=self.out, flush=True)

    def end(self) -> None:
        if self.open:
            print(file=self.out, flush=True)
            self.open = False

    def report(self, before: dict[str, Any], now: dict[str, Any], seconds: float) -> None:
        """Print the line of a batch; `now` and `before` are states (see progress.empty), seconds its duration."""
        if self.quiet:
            return
        line = self._line(before, now, seconds)
        if self.one_line:
            print(f"\r{line[:WIDTH]:<{WIDTH}}", end="", file=self.out, flush=True)
            self.open = True
        else:
            print(line, file=self.out, flush=True)

    def _line(self, before: dict[str, Any], now: dict[str, Any], seconds: float) -> str:
        n = now["rows"].get("bronze", 0) - before["rows"].get("bronze", 0)
        self.rows += n
        rate = self.rows / max(time.monotonic() - self.began, 1e-3)
        behind = sum(stream["behind"] for stream in lag(self.settings, now).values())
        late_s = max(0.0, now["at"] - max((shard["time_us"] for shard in now["shards"].values()), default=0) / 1e6)
        parts = [
            f"batch {now['batch']}",
            f"{n:,} rows",
            f"{seconds:.1f} s",
            f"{rate:,.0f} rows/s in all",
            f"{behind:,} behind",
            f"newest {late_s:.1f} s old",
        ]
        bad = sum(now["quarantine"].values())
        parts += [f"quarantine {bad:,}"] if bad else []
        parts += [f"AUDIT ALARM {now['audit']['wrong']:,}"] if now["audit"]["wrong"] else []
        return "  ".join(parts)
