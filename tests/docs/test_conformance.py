"""Test the page of Mosquitto's own tests: how it is made, and the errors of `dev/conformance`."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/conformance.md"


def load() -> Any:
    spec = importlib.util.spec_from_file_location("conformance", ROOT / "dev/conformance.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def result(failing: list[str], sequences: int) -> dict[str, Any]:
    counts = {"passed": 3 - len(failing), "failed": len(failing), "skipped": 0}
    return {
        "categories": {"06": counts, "all": counts}, "classes": {"portable": counts, "all": counts}, "flaky": ["06-b"], "failing": failing,
        "tests": {"msg_sequence_test": {"sequences": {"passed": sequences, "total": 1826}}},
    }


def test_the_page_shows_all_results_and_each_failing_test() -> None:
    page = load().page(result(["06-a", "06-c"], 1815), result(["06-c"], 1826), result(["06-a", "06-c", "06-d"], 1814),
                       [("06-a|06-b", "why a"), ("06-.*", "why the rest")], [("06-.*", "why with workers")])
    assert "| 06: bridge | 1 | 2 | 2 | 1 | 0 | 3 |" in page
    assert "| all | 1 | 2 | 2 | 1 | 0 | 3 |" in page
    assert "| `06-a` | passes | why a |\n| `06-c` | fails | why the rest |\n\n" in page
    assert page.endswith("| test | why |\n|---|---|\n| `06-d` | why with workers |\n")
    assert "1815 of 1826; with `compat` 1826 of 1826; with 2 workers 1814 of 1826" in page
    assert "Passed only when run again alone:\n\n- `06-b`: why a\n" in page


def test_a_test_without_a_reason_is_named() -> None:
    page = load().page(result(["06-new"], 0), result([], 0), result(["06-other"], 0), [], [])
    assert "| `06-new` | passes | not explained yet |" in page
    assert "| `06-other` | not explained yet |" in page


def test_each_reason_is_used_and_each_failing_test_has_one() -> None:
    failing = re.findall(r"^\| `([^`]+)` \| (?:passes|fails) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert failing
    reasons = load().reasons_of()
    for name, why in failing:
        assert why == load().reason_for(name, reasons) != "not explained yet", name
    of_workers = load().reasons_of("workers")
    with_workers = re.findall(r"^\| `([^`|]+)` \| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE)
    for name, why in with_workers:
        assert why == load().reason_for(name, of_workers) != "not explained yet", name
    named = re.findall(r"`([^`]+)`", PAGE.read_text())        # also those that passed when they ran again
    for pattern, _ in [*reasons, *of_workers]:
        assert any(re.fullmatch(pattern, name) for name in named), f"no failing test has this reason: {pattern}"


def test_each_test_that_fails_on_purpose_is_named_in_a_row_of_differences() -> None:
    differences = (ROOT / "docs/differences.md").read_text()
    on_purpose = re.findall(r"^\| `([^`]+)` \| passes \| .+ \|$", PAGE.read_text(), re.MULTILINE)
    assert len(on_purpose) > 4
    assert not [name for name in on_purpose if not re.search(rf"^\|.*\b{re.escape(name)}\b.*\|$", differences, re.MULTILINE)]


@pytest.mark.parametrize(("suite", "runner", "wanted"), [
    ("", "", "SUITE is missing"),
    ("{dir}", "", "SUITE must be a work tree of Mosquitto's repository"),
    ("{dir}/tree", "", "build Mosquitto there with all of its features"),
    ("{dir}/built", "{dir}/none.py", "set RUNNER to run_mosquitto_suite.py"),
])
def test_what_is_missing_is_named(suite: str, runner: str, wanted: str, tmp_path: Path) -> None:
    for tree in ("tree", "built"):
        (tmp_path / tree / "test/broker").mkdir(parents=True)
    (tmp_path / "built/build/src").mkdir(parents=True)
    (tmp_path / "built/build/src/mosquitto").touch(mode=0o755)
    env = {**os.environ, "SUITE": suite.format(dir=tmp_path), "RUNNER": runner.format(dir=tmp_path)}
    done = subprocess.run([ROOT / "dev/conformance"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and wanted in done.stderr, done.stderr
