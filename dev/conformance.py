"""Print the page docs/conformance.md from two results of the runner of Mosquitto's broker tests: without and with --compat.

    python dev/conformance.py plain.json compat.json

A result is the runner's JSON: `categories` and `classes` (name to numbers of passed, failed and skipped tests), `tests` (name to result), `failing`
(names), `flaky` (names). The reasons for failing tests are in dev/conformance.toml. A test without a reason is listed as not explained.
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

The option `compat` gives Mosquitto's way where mosq has another one on purpose ([differences.md](differences.md)).
"""

Result = dict[str, Any]


def reasons_of(path: Path = REASONS) -> list[tuple[str, str]]:
    """Return (regular expression for names of tests, reason), in the order in which they apply."""
    return [(row["tests"], row["why"]) for row in tomllib.loads(path.read_text())["reason"]]


def reason_for(test: str, reasons: list[tuple[str, str]]) -> str:
    return next((why for pattern, why in reasons if re.fullmatch(pattern, test)), "not explained yet")


def numbers(counts: dict[str, int] | None) -> str:
    return "| - | - " if counts is None else f"| {counts['passed']} | {counts['failed']} "


def table(title: str, plain: dict[str, Any], compat: dict[str, Any], names: dict[str, str]) -> list[str]:
    lines = [f"| {title} | passed | failed | passed with `compat` | failed with `compat` |", "|---|---|---|---|---|"]
    for key in plain:
        label = "all" if key == "all" else f"{key}: {names[key]}" if key in names else key
        lines.append(f"| {label} {numbers(plain[key])}{numbers(compat.get(key))}|")
    return lines


def sequences(result: Result) -> str:
    counts = result["tests"].get("msg_sequence_test", {}).get("sequences", {})
    return f"{counts['passed']} of {counts['total']}" if "total" in counts else "not counted"


def page(plain: Result, compat: Result, reasons: list[tuple[str, str]], day: str = "") -> str:
    """Return the page. `day` is the date of the results."""
    lines = [HEAD, "## Last result", "", *([f"Result of {day}.", ""] if day else [])]
    lines += table("category", plain["categories"], compat["categories"], CATEGORIES)
    lines += ["", *table("class", plain["classes"], compat["classes"], CLASSES), ""]
    lines.append(f"Byte sequences of `msg_sequence_test`: {sequences(plain)}; with `compat` {sequences(compat)}.")
    flaky = sorted({*plain["flaky"], *compat["flaky"]})
    if flaky:
        lines += ["", "Passed only when run again alone:", "", *(f"- `{name}`: {reason_for(name, reasons)}" for name in flaky)]
    lines += ["", "## Tests that do not pass", "", "| test | with `compat` | why |", "|---|---|---|"]
    for name in sorted({*plain["failing"], *compat["failing"]}):
        passes = "fails" if name in compat["failing"] else "passes"
        lines.append(f"| `{name}` | {passes} | {reason_for(name, reasons)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python dev/conformance.py PLAIN.json COMPAT.json")
    results = [json.loads(Path(name).read_text()) for name in sys.argv[1:]]
    day = time.strftime("%Y-%m-%d", time.gmtime(Path(sys.argv[2]).stat().st_mtime))
    sys.stdout.write(page(results[0], results[1], reasons_of(), day))
