"""Print the table of README.md from a folder of the lab with the suite `cost` (`make relay`).

    python -m perf.summary build/lab/cost-... [--write README.md]

--write replaces the tables between the two marks of the page; the text around them holds for all rows.
A cell is the CPU per message (for `connect`: per client) as a multiple of the relay's, in brackets microseconds:
medians over the repetitions. The exit status is 1 if mosq costs more than its bound, or if a message was lost,
duplicated or reordered.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perf.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

RELAY, MOSQ = "relay", "mosq"
# test and case of the lab: title, most CPU of mosq as a multiple of the relay's
ROWS = {
    ("cost-fan-in", "QoS 0"): ("fan-in QoS 0, 50 to 1", 1.15),
    ("cost-fan-out", "QoS 0"): ("fan-out QoS 0, 1 to 1000", 1.4),
    ("cost-pairs", "QoS 0"): ("100 pairs QoS 0", 1.5),
    ("cost-pairs", "QoS 1"): ("100 pairs QoS 1", 1.6),
    ("cost-pairs", "QoS 2"): ("100 pairs QoS 2", 1.6),
    ("cost-pairs-single", "QoS 0"): ("100 pairs QoS 0, one message per send", 1.05),
    ("cost-paced", "QoS 0"): ("100 pairs QoS 0 at 20,000 messages/s", 1.12),
    ("cost-paced", "QoS 1"): ("100 pairs QoS 1 at 20,000 messages/s", 1.12),
    ("cost-large", "QoS 0"): ("1 MB payloads", 1.12),
    ("cost-connect", "10,000 clients"): ("connect 10,000 idle clients", 1.35),
}
IDLE_BYTES_MAX = 600
BEGIN, END = "<!-- make relay writes this table -->", "<!-- end of the table -->"

Phase = dict[str, Any]
Runs = dict[tuple[str, str, str], list[Phase]]


def phases(lines: Iterable[str]) -> Runs:
    """Return the first phase of each complete run, by test, case and broker."""
    found: Runs = {}
    for line in lines:
        result = json.loads(line)
        run = result["run"]
        if result["complete"] and not run["variant"]:
            found.setdefault((run["test"], run["case"], run["broker"]), []).append(result["phases"][0])
    return found


def middle(of: list[Phase] | None, value: Callable[[Phase], float]) -> float | None:
    """Return the median of a value; None if there is no phase."""
    return statistics.median(map(value, of)) if of else None


def cost(phase: Phase) -> float:
    return float(phase["broker"]["cpu_us_per"])


def idle(phase: Phase) -> float:
    return float(phase["extra"]["bytes_per_client"])


def before(phase: Phase) -> float:
    return float(phase["broker"]["rss_before_bytes"]) / 1e6


def after(phase: Phase) -> float:
    return float(phase["broker"]["rss_after_bytes"]) / 1e6


# row of memory: title, case of the test `cost-connect`, value, its form
MEMORY = (
    ("memory per idle client", "10,000 clients", idle, "{:,.0f} B"),
    ("resident memory, empty", "1,000 clients", before, "{:.1f} MB"),
    ("resident memory, 1,000 idle clients", "1,000 clients", after, "{:.1f} MB"),
    ("resident memory, 10,000 idle clients", "10,000 clients", after, "{:.1f} MB"),
)


def rows(runs: Runs, brokers: list[str]) -> Iterator[list[str]]:
    """Yield the rows of the table."""
    for (test, case), (title, _) in ROWS.items():
        floor = middle(runs.get((test, case, RELAY)), cost)
        costs = [(middle(runs.get((test, case, broker)), cost)) for broker in brokers]
        if floor is not None:
            # the kernel counts CPU in ticks, so a short phase may have none
            cells = ["-" if one is None or not floor else f"{one / floor:.2f} ({one:.2f})" for one in costs]
            yield [title, f"{floor:.2f} us", *cells]
    for title, case, value, text in MEMORY:
        sizes = [middle(runs.get(("cost-connect", case, broker)), value) for broker in (RELAY, *brokers)]
        if any(size is not None for size in sizes):
            yield [title, *("-" if size is None else text.format(size) for size in sizes)]


def missed(runs: Runs) -> Iterator[str]:
    """Yield a sentence for each bound that mosq does not meet."""
    for (test, case), (title, most) in ROWS.items():
        mine, floor = (middle(runs.get((test, case, broker)), cost) for broker in (MOSQ, RELAY))
        if mine is not None and floor and mine > most * floor:
            yield f"{title}: {mine / floor:.2f} times the relay's CPU; the bound is {most}"
        if not all(phase["exact"] for phase in runs.get((test, case, MOSQ), ())):
            yield f"{title}: messages were lost, duplicated or reordered"
    size = middle(runs.get(("cost-connect", "10,000 clients", MOSQ)), idle)
    if size is not None and size > IDLE_BYTES_MAX:
        yield f"memory per idle client: {size:.0f} bytes; the bound is {IDLE_BYTES_MAX}"


def written(text: str, rows_of_table: str, runs: Runs, day: str) -> str:
    """Return a page with the tables between its marks replaced. Raises ValueError without marks."""
    before_it, after_it = text.index(BEGIN), text.index(END)
    most = max(map(len, runs.values()))
    about = f"Measured on {day}; medians of {most} runs." if most > 1 else f"Measured on {day}, one run for each cell."
    return f"{text[:before_it]}{BEGIN}\n\n{about}\n\n{rows_of_table}\n{text[after_it:]}"


def main(*words: str) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", type=Path, metavar="PAGE", help="page in which the tables are replaced")
    given = parser.parse_args(words)
    path = given.folder / "runs.jsonl"
    with path.open(encoding="utf-8") as file:
        runs = phases(file)
    brokers = [one for one in dict.fromkeys(broker for _, _, broker in runs) if one != RELAY]
    brokers.sort(key=lambda one: (one != MOSQ, one))
    shown = table(["", RELAY, *brokers], list(rows(runs, brokers)))
    print(shown, end="")
    bad = list(missed(runs))
    print("", *(bad or ["mosq meets all bounds of perf/summary.py"]), sep="\n")
    if given.write is not None:
        day = time.strftime("%-d %B %Y", time.gmtime(path.stat().st_mtime))
        given.write.write_text(written(given.write.read_text("utf-8"), shown, runs, day), "utf-8")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
