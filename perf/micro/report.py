"""Write tables and plots from the results of bench_index and latency.

    python -m perf.micro.report build/index.json --latency build/latency.json --out build/index.md --plots perf/plots

Only --plots needs a package. Ratios compare figures of one run; the times depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perf import tables

MATCH_RATIO_MAX = 1.5           # most time at 1 M filters relative to 1 k
SLOWEST_NS = 1_000_000
OPERATIONS = {"load": "load, empty to full", "insert": "insert", "remove": "remove", "match": "match",
              "unload": "unload, full to empty", "pool take": "pool take", "pool give": "pool give"}
TITLES = {"match": "Match", "insert": "Insert", "remove": "Remove", "retain": "Retained: store",
          "fetch": "Retained: fetch, per topic"}


@dataclass(frozen=True)
class Bench:
    """Hold one benchmark with its median in nanoseconds."""

    operation: str
    corpus: str
    n: int
    mode: str
    traffic: str
    ns: float


def benches(suite: dict[str, Any]) -> list[Bench]:
    """Read pyperf's JSON; a figure is the median over the values of all processes."""
    found = []
    for bench in suite["benchmarks"]:
        # metadata that all benchmarks share is at the top, even the name if there is only one
        name = bench.get("metadata", {}).get("name") or suite["metadata"]["name"]
        operation, corpus, n, mode, traffic = name.split("/")
        values = [value for run in bench["runs"] for value in run.get("values", [])]
        found.append(Bench(operation, corpus, int(n), mode, traffic, statistics.median(values) * 1e9))
    return found


def by_size(found: list[Bench], operation: str) -> str:
    """Return a table: a row for each corpus, mode and traffic; a column for each size, and the ratio of largest to
    smallest.
    """
    rows: dict[tuple[str, str, str], dict[int, float]] = {}
    for b in found:
        if b.operation == operation:
            rows.setdefault((b.corpus, b.mode, b.traffic), {})[b.n] = b.ns
    sizes = sorted({n for cells in rows.values() for n in cells})
    heads = ["corpus", "mode", "topics", *map(tables.size_of, sizes)]
    if len(sizes) > 1:
        heads.append(f"{tables.size_of(sizes[-1])} : {tables.size_of(sizes[0])}")
    lines = []
    for key, cells in rows.items():
        line = [*key, *(tables.duration(cells[n]) if n in cells else "" for n in sizes)]
        if len(sizes) > 1:
            line.append(f"{cells[sizes[-1]] / cells[sizes[0]]:.2f}" if {sizes[0], sizes[-1]} <= cells.keys() else "")
        lines.append(line)
    return tables.table(heads, lines)


def pool(found: list[Bench]) -> str:
    """Return the table of the pool."""
    cells = {(b.operation, b.n, b.mode): b.ns for b in found if b.operation.startswith("pool")}
    rows = []
    for operation, n in dict.fromkeys((operation, n) for operation, n, _ in cells):
        on, off = cells[operation, n, "on"], cells[operation, n, "off"]
        rows.append([operation.removeprefix("pool-"), tables.size_of(n), tables.duration(on), tables.duration(off),
                     f"{on / off:.2f}"])
    return tables.table(["operation", "clients", "pool on", "pool off", "on : off"], rows)


def slowest(rows: list[dict[str, Any]]) -> str:
    """Return a table: quantiles are medians over the repetitions; the maximum is their least, because our own pauses
    recur.
    """
    groups: dict[tuple[str, int, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["operation"], row["filters"], row["corpus"], row["mode"]), []).append(row)
    lines = []
    order = list(OPERATIONS)
    for (operation, n, corpus, mode), reps in sorted(groups.items(), key=lambda item: order.index(item[0][0])):
        cells = [statistics.median(rep[key] for rep in reps) for key in ("p50_ns", "p99_ns", "p99.99_ns")]
        most = min(rep["max_ns"] for rep in reps)
        lines.append([OPERATIONS[operation], corpus, mode, tables.size_of(n),
                      *map(tables.duration, cells), tables.duration(most),
                      "kept" if cells[-1] <= SLOWEST_NS else "NOT KEPT"])
    return tables.table(["operation", "corpus", "mode", "size", "p50", "p99", "p99.99", "most",
                         f"p99.99 at most {tables.duration(SLOWEST_NS)}"], lines)


def promise(found: list[Bench]) -> str:
    """Return the lines about the promised ratio of match times."""
    lines = []
    for traffic in dict.fromkeys(b.traffic for b in found if b.operation == "match"):
        ratios = {}
        for corpus in dict.fromkeys(b.corpus for b in found if b.operation == "match"):
            ns = {b.n: b.ns for b in found
                  if (b.operation, b.corpus, b.mode, b.traffic) == ("match", corpus, "full", traffic)}
            if {1_000, 1_000_000} <= ns.keys():
                ratios[corpus] = ns[1_000_000] / ns[1_000]
        if ratios:
            worst = max(ratios, key=lambda corpus: ratios[corpus])
            kept = "kept" if ratios[worst] <= MATCH_RATIO_MAX else "NOT KEPT"
            lines.append(f"- Match at 1 M filters : at 1 k, {traffic} topics: at most {ratios[worst]:.2f} ({worst}); "
                         f"promised {MATCH_RATIO_MAX}: {kept}")
    return "\n".join(lines) + "\n" if lines else ""


def report(suite: dict[str, Any], latencies: list[dict[str, Any]]) -> str:
    """Return the report as Markdown."""
    found = benches(suite)
    parts = [promise(found)]
    parts += [f"### {title}\n\n{by_size(found, operation)}" for operation, title in TITLES.items()
              if any(b.operation == operation for b in found)]
    if any(b.operation.startswith("pool") for b in found):
        parts.append(f"### Pool of client contexts\n\n{pool(found)}")
    if latencies:
        parts.append(f"### The slowest operations\n\n{slowest(latencies)}")
    return "\n".join(part for part in parts if part)


def plots(suite: dict[str, Any], latencies: list[dict[str, Any]], folder: Path) -> None:
    """Draw the plots into a folder."""
    found = benches(suite)
    for traffic in dict.fromkeys(b.traffic for b in found if b.operation == "match"):
        panels: dict[str, dict[str, tables.Points]] = {}
        for b in found:
            if b.operation == "match" and b.traffic == traffic:
                panels.setdefault(b.corpus, {}).setdefault(b.mode, []).append((b.n, b.ns))
        tables.plot_lines(folder / f"match-{traffic}.svg", panels, "filters", f"ns per match, {traffic} topics")
    for operation in ("insert", "remove"):
        panels = {}
        for b in found:
            if b.operation == operation:
                panels.setdefault(b.corpus, {}).setdefault(b.mode, []).append((b.n, b.ns))
        if panels:
            tables.plot_lines(folder / f"{operation}.svg", panels, "filters", f"ns per {operation}")
    most = max((row["filters"] for row in latencies if row["corpus"] != "-"), default=0)
    bars: dict[str, dict[str, dict[str, float]]] = {"": {}}
    for row in latencies:
        if row["filters"] == most and row["operation"] in ("insert", "remove", "match"):
            cell = bars[""].setdefault(row["corpus"], {})
            cell[row["operation"]] = min(row["p99.99_ns"] / 1000, cell.get(row["operation"], 1e9))
    if most:
        tables.plot_bars(folder / "slowest.svg", bars, f"us, p99.99 at {tables.size_of(most)} filters")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index", type=Path, help="output of bench_index")
    parser.add_argument("--latency", type=Path, help="output of latency")
    parser.add_argument("--out", type=Path, help="file for the tables (default: standard output)")
    parser.add_argument("--plots", type=Path, help="folder for the plots (needs matplotlib)")
    args = parser.parse_args()
    suite = json.loads(args.index.read_text())
    latencies = [json.loads(line) for line in args.latency.read_text().splitlines()] if args.latency else []
    text = report(suite, latencies)
    if args.out:
        args.out.write_text(text)
    else:
        print(text)
    if args.plots:
        plots(suite, latencies, args.plots)


if __name__ == "__main__":
    main()
