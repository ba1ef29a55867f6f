"""Show the progress of a run of many tests and its remaining time: on a terminal in one line that changes, elsewhere in a line
every 15 seconds.

The estimate uses the mean time of the tests of each file in their last run here (`.pytest_cache`), and at first
`tests/harness/seconds.json`, which is a copy of such a file.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]
FIRST = Path(__file__).with_name("seconds.json")
CACHE = "mosq/seconds"
LINE_S = 15.0           # between two lines if the output is no terminal
UNKNOWN_S = 0.05        # expected time of a test in a new file


def minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


class Progress:
    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        reporter: Any = config.pluginmanager.getplugin("terminalreporter")
        self.reporter = reporter
        self.tty = bool(reporter.isatty)
        self.mean_s: dict[str, float] = json.loads(FIRST.read_text()) if FIRST.exists() else {}
        self.mean_s |= config.cache.get(CACHE, {}) if config.cache else {}
        self.chain: list[pytest.Item] = []      # tests that run one after another, in one process
        self.left: dict[str, float] = {}        # expected seconds of each test that has not ended
        self.took: Counter[str] = Counter()     # seconds and tests of each file
        self.count: Counter[str] = Counter()
        self.failed = self.total = 0
        self.expected_total_s = 0.0
        self.begun = self.shown = time.monotonic()
        self.modules = 0
        self.all_modules = sum(1 for _ in TESTS.rglob("test_*.py"))

    # -- collection

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.nodeid.endswith(".py"):
            return
        self.modules += 1
        if self.tty or time.monotonic() > self.shown + LINE_S / 3:
            self.say(f"collecting tests: {self.modules} of {self.all_modules} files")

    # -- the run

    def expected_s(self, item: pytest.Item) -> float:
        return self.mean_s.get(item.nodeid.split("::", maxsplit=1)[0], UNKNOWN_S)

    def begin(self, items: list[pytest.Item]) -> None:
        took_s = time.monotonic() - self.begun
        self.left = {item.nodeid: self.expected_s(item) for item in items}
        self.total, self.expected_total_s = len(items), sum(self.left.values())
        self.begun = time.monotonic()
        self.say(f"collected {len(items)} tests in {took_s:.0f} s")
        self.reporter.ensure_newline()

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self, report: Any, config: pytest.Config) -> Any:
        category, *_ = yield
        return category, "", ""         # no dots and no names

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.split("::", maxsplit=1)[0]
        self.took[file] += report.duration      # type: ignore[assignment]
        if report.when == "teardown":
            self.count[file] += 1
            self.left.pop(report.nodeid, None)
        if report.failed:
            self.failed += 1
            self.reporter.ensure_newline()
            self.reporter.write_line(f"FAILED {report.nodeid}" + ("" if report.when == "call" else f" ({report.when})"), red=True)

    def left_s(self) -> float | None:
        """Return the estimated rest of the run in seconds, from the time of the finished tests; None in the first seconds."""
        passed_s, left = time.monotonic() - self.begun, sum(self.left.values())
        done = self.expected_total_s - left
        if passed_s < 5 or not done:
            return None
        chain = sum(self.left.get(item.nodeid, 0.0) for item in self.chain)
        expected = sum(self.mean_s.get(file, UNKNOWN_S) * n for file, n in self.count.items())
        slower = sum(self.took.values()) / expected if expected else 1.0
        return max(left * passed_s / done, chain * slower)

    def show(self) -> None:
        now = time.monotonic()
        if now < self.shown + (0.5 if self.tty else LINE_S):
            return
        ended = self.total - len(self.left)
        left = self.left_s()
        work = 100 - 100 * sum(self.left.values()) / (self.expected_total_s or 1)
        self.say(f"{ended} of {self.total} tests, {work:.0f} % of the work, {self.failed} failed, {minutes(now - self.begun)} gone"
                 + (f", about {minutes(left)} left" if left is not None else ""))

    def say(self, text: str) -> None:
        self.shown = time.monotonic()
        if self.tty:
            self.reporter.rewrite(f"[tests] {text}", erase=True)
        else:
            self.reporter.write_line(f"[tests] {text}")

    @pytest.hookimpl
    def pytest_sessionfinish(self) -> None:
        if self.config.cache and not os.environ.get("MOSQ_SANITIZED"):
            means = {file: round(self.took[file] / n, 4) for file, n in sorted(self.count.items())}
            self.config.cache.set(CACHE, self.config.cache.get(CACHE, {}) | means)
