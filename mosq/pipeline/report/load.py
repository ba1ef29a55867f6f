"""Make the sections of the lab's results, as Spark computed them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mosq.pipeline.report.showing import figures, names, number
from mosq.tools.bench.html.figures import Spread
from mosq.tools.bench.html.model import MOSQ, label
from mosq.tools.bench.html.parts import Bar, Bars, Chart, Line, Lines, Section, Table, cell, words

if TYPE_CHECKING:
    from mosq.pipeline.load_results import LoadResults

FIGURES = (("rate", "rate", "Throughput"), ("cpu_us_per", "cpu", "CPU per message"), ("p99_us", "time", "p99"))
CHARTS_MAX = 24
BARS_MAX = 24
PAPER = (
    ("run_time_us", "mean run time"),
    ("delay_us", "mean delay"),
    ("deviation_us", "deviation"),
    ("largest_us", "largest delay"),
)


def sections(found: LoadResults) -> list[Section]:
    """Return all sections of the lab's results."""
    return [measured(found), paper(found), locust(found)]


def measured(found: LoadResults) -> Section:
    """Return the section of the medians by test and broker."""
    section = Section(
        "load", "Load results", "Medians of the repetitions in the lab's results.", empty="no run was complete"
    )
    section.warnings = list(found.problems)
    rows = found.medians.orderBy("suite", "test", "phase", "case", "x", "broker", "variant").collect()
    if not rows:
        return section
    brokers = sorted({row.broker for row in rows}, key=lambda name: (name != MOSQ, name))
    slots = {name: slot for slot, name in enumerate(brokers)}
    by_test: dict[tuple[str, str, str], list[Any]] = {}
    for row in rows:
        by_test.setdefault((row.suite, row.test, row.phase), []).append(row)
    section.facts = [
        ("Folder", str(found.folder)),
        ("Measurements", f"{len(rows):,}"),
        ("Brokers", ", ".join(label(name) for name in brokers)),
    ]
    for of_test in by_test.values():
        for name, kind, what in FIGURES[:2]:
            section.charts += _charts(of_test, name, kind, what, slots)
    section.charts = section.charts[:CHARTS_MAX]
    section.tables = [
        Table(
            "",
            (*names("Test", "Case", "Broker"), *figures(*(what for _, _, what in FIGURES))),
            tuple(
                (
                    words(row.title or row.test),
                    words(_place(row)),
                    words(label(row.broker, row.variant), slots[row.broker]),
                    *(cell(kind, _spread(row, name), row.marks if name == "rate" else "") for name, kind, _ in FIGURES),
                )
                for row in rows
            ),
        )
    ]
    return section


def _spread(row: Any, name: str) -> Spread | None:
    return None if row[name] is None else Spread(row[name], row[f"{name}_least"], row[f"{name}_most"], row.repetitions)


def _place(row: Any) -> str:
    return ", ".join(part for part in (row.case, "" if row.x is None else f"{row.x:,g}") if part)


def _charts(rows: list[Any], name: str, kind: str, what: str, slots: dict[str, int]) -> list[Chart]:
    known = [(row, value) for row in rows if (value := _spread(row, name)) is not None]
    title = f"{rows[0].title or rows[0].test}: {what}"
    xs = {row.x for row, _ in known}
    if len(xs) > 1 and None not in xs:
        series: dict[tuple[str, str, str], list[tuple[float, Spread]]] = {}
        for row, value in known:
            series.setdefault((row.case, row.broker, row.variant), []).append((row.x, value))
        drawn = tuple(
            Line(
                ", ".join(part for part in (label(broker, variant), case) if part),
                slots[broker],
                bool(variant),
                tuple(sorted(points, key=lambda p: p[0])),
            )
            for (case, broker, variant), points in series.items()
        )
        return [Lines(title, kind, "", drawn)]
    cases: dict[str, list[Bar]] = {}
    for row, value in known[:BARS_MAX]:
        cases.setdefault(_place(row), []).append(
            Bar(label(row.broker, row.variant), slots[row.broker], bool(row.variant), value)
        )
    return [Bars(title, kind, tuple((case, tuple(bars)) for case, bars in cases.items()))] if cases else []


def paper(found: LoadResults) -> Section:
    """Return the section of the paper's figures."""
    section = Section(
        "paper",
        "The paper's tests",
        "The paper's figures, over all repetitions together.",
        empty="no run of the paper's tests",
    )
    rows = found.paper().collect()
    if rows:
        section.tables = [
            Table(
                "",
                (*names("Test", "Case", "Broker"), *figures(*(what for _, what in PAPER))),
                tuple(
                    (
                        words(row.test),
                        words(_place(row)),
                        words(label(row.broker, row.variant)),
                        *(number("time", row[name]) for name, _ in PAPER),
                    )
                    for row in rows
                ),
            )
        ]
    return section


def locust(found: LoadResults) -> Section:
    """Return the section of the load test with locust."""
    section = Section("locust", "Load test with locust", "How long requests took.", empty="no locust.json (make load)")
    rows = [] if found.locust is None else found.locust.orderBy("type", "name").collect()
    if rows:
        section.tables = [
            Table(
                "",
                (
                    *names("Request", "Name"),
                    *figures("Requests", "Failures", "Rate", "mean", "p50", "p95", "p99", "maximum"),
                ),
                tuple(
                    (
                        words(row.type),
                        words(row.name),
                        number("count", row.requests),
                        number("count", row.failures, "bad" if row.failures else ""),
                        number("rate", row.rate),
                        *(number("time", row[f"{name}_us"]) for name in ("mean", "p50", "p95", "p99", "max")),
                    )
                    for row in rows
                ),
            )
        ]
    return section
