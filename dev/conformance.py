"""Print the page docs/conformance.md from three results of the runner of Mosquitto's broker tests: without options, with --compat, and with
--workers 2.

    python dev/conformance.py plain.json compat.json workers.json

A result is the runner's JSON: `categories` and `classes` (name to numbers of passed, failed and skipped tests), `tests` (name to result), `failing`
(names), `flaky` (names). The reasons for failing tests are in dev/conformance.toml: `reason`, and `workers` for those that fail with workers only. A
test without a reason is listed as not explained.
"""

from __future__ import annotations

import json
import re
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

REASONS = Path(__file__).with_suffix(".toml")
CATEGORIES = {
    "01": "connect", "02": "subscribe", "03": "publish", "04": "retain", "05": "clean session", "06": "bridge", "07": "will",
    "08": "TLS and PSK", "09": "authentication, ACL, plugins", "10": "listener", "11": "persistence", "12": "properties of 5.0",
    "13": "WebSockets", "14": "dynamic security", "15": "persist-sqlite", "16": "command line and configuration",
    "17": "$CONTROL", "20": "Sparkplug", "21": "PROXY protocol", "22": "HTTP API", "23": "reload of security files",
    "seq": "byte sequences",
}
CLASSES = {"portable": "needs no C plugin, reads no log", "needs-internal": "reads logs or files", "needs-c-plugin": "loads a C plugin"}
HEAD = """\
# Mosquitto's own tests

`make conformance SUITE=folder` runs the broker tests of Mosquitto's repository against mosq, and writes this page. The folder is a work tree of that
repository (branch `master`), built in its folder `build` with all features. `RUNNER=file` names the program that runs the tests against another
broker; by default it is `../shared/conformance/run_mosquitto_suite.py` beside this checkout. Neither is part of mosq. A fact that a
test asks for is a test of our own too.

The option `compat` gives Mosquitto's way where mosq has another one on purpose ([differences.md](differences.md)). The last columns are those of
`mosq --workers 2` without `compat` ([workers.md](workers.md)); `dev/conformance --workers 2` runs only these, and `make conformance` all three.
"""

Result = dict[str, Any]


def reasons_of(table: str = "reason", path: Path = REASONS) -> list[tuple[str, str]]:
    """Return (regular expression for names of tests, reason), in the order in which they apply."""
    return [(row["tests"], row["why"]) for row in tomllib.loads(path.read_text())[table]]


def reason_for(test: str, reasons: list[tuple[str, str]]) -> str:
    return next((why for pattern, why in reasons if re.fullmatch(pattern, test)), "not explained yet")


def numbers(counts: dict[str, int] | None) -> str:
    return "| - | - " if counts is None else f"| {counts['passed']} | {counts['failed']} "


def table(title: str, results: list[dict[str, Any]], names: dict[str, str]) -> list[str]:
    lines = [f"| {title} | passed | failed | passed with `compat` | failed with `compat` | passed with 2 workers | failed with 2 workers |",
             "|---|---|---|---|---|---|---|"]
    for key in results[0]:
        label = "all" if key == "all" else f"{key}: {names[key]}" if key in names else key
        lines.append(f"| {label} {''.join(numbers(one.get(key)) for one in results)}|")
    return lines


def sequences(result: Result) -> str:
    counts = result["tests"].get("msg_sequence_test", {}).get("sequences", {})
    return f"{counts['passed']} of {counts['total']}" if "total" in counts else "not counted"


def page(plain: Result, compat: Result, workers: Result, reasons: list[tuple[str, str]], of_workers: list[tuple[str, str]],
         day: str = "") -> str:
    """Return the page. `day` is the date of the results."""
    results = [plain, compat, workers]
    lines = [HEAD, "## Last result", "", *([f"Result of {day}.", ""] if day else [])]
    lines += table("category", [one["categories"] for one in results], CATEGORIES)
    lines += ["", *table("class", [one["classes"] for one in results], CLASSES), ""]
    lines.append(f"Byte sequences of `msg_sequence_test`: {sequences(plain)}; with `compat` {sequences(compat)}; with 2 workers {sequences(workers)}.")
    flaky = sorted({name for one in results for name in one["flaky"]})
    if flaky:
        lines += ["", "Passed only when run again alone:", "", *(f"- `{name}`: {reason_for(name, [*reasons, *of_workers])}" for name in flaky)]
    lines += ["", "## Tests that do not pass", "", "| test | with `compat` | why |", "|---|---|---|"]
    for name in sorted({*plain["failing"], *compat["failing"]}):
        passes = "fails" if name in compat["failing"] else "passes"
        lines.append(f"| `{name}` | {passes} | {reason_for(name, reasons)} |")
    lines += ["", "## Tests that do not pass with 2 workers, and pass with one process", "", "| test | why |", "|---|---|"]
    lines += [f"| `{name}` | {reason_for(name, of_workers)} |" for name in sorted({*workers["failing"]} - {*plain["failing"]})]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: python dev/conformance.py PLAIN.json COMPAT.json WORKERS.json")
    results = [json.loads(Path(name).read_text()) for name in sys.argv[1:]]
    day = time.strftime("%Y-%m-%d", time.gmtime(Path(sys.argv[2]).stat().st_mtime))
    sys.stdout.write(page(*results, reasons_of(), reasons_of("workers"), day))
