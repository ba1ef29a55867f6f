"""Make the sections of the report from the lab; most are the same chart and table of another figure.

Comparisons (peers, ablation, two folders) are in comparing.py and against.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mosq.tools.bench.html import figures, numbers
from mosq.tools.bench.html.figures import GENERATOR, MARKS, RATE, RSS, spread
from mosq.tools.bench.html.lab import BASELINE, SUITES
from mosq.tools.bench.html.model import MOSQ, label
from mosq.tools.bench.html.parts import NEUTRAL, Bar, Cell, Curve, Curves, Dots, Head, Section, Table, cell, words

if TYPE_CHECKING:
    from mosq.tools.bench.html.figures import Figure, Group
    from mosq.tools.bench.html.lab import Lab, Test
    from mosq.tools.bench.html.model import Key, Row

GENERATOR_US_MAX = 0.6          # promised bound per message in fan-in at QoS 0
PROMISED_BYTES = 64
CLIENTS = ("clients", "publishers", "subscribers")
LISTED = 6


def _names(*texts: str) -> tuple[Head, ...]:
    return tuple(Head(text, number=False) for text in texts)


def some(texts: list[str]) -> str:
    """Return the first texts, and how many more there are."""
    first = "; ".join(texts[:LISTED])
    return first + (f"; and {len(texts) - LISTED} more" if len(texts) > LISTED else "")


def when(iso: str) -> str:
    """Format a time such as 2026-11-21T20:00:00+00:00 for readers."""
    return iso[:16].replace("T", " ") + " UTC" if iso.endswith(("+00:00", "Z")) else iso


# ---------------------------------------------------------------- setup

def measured(lab: Lab) -> Section:
    """Return the section of machine, brokers, commands and warnings."""
    folder, about = lab.folder, lab.folder.about
    section = Section("measured", "Setup",
                      "The machine, the brokers and their settings, the commands, and warnings.")
    commit = about.commit[:12] + (" with uncommitted changes" if about.dirty and about.commit else "")
    known = {"cores": "Cores", "processor": "Processor", "kernel": "Kernel", "distribution": "System",
             "python": "Python"}
    machine = dict(about.machine)
    memory = machine.pop("memory_bytes", "")
    facts = [(known.get(name, name.replace("_", " ")), value) for name, value in machine.items()]
    if memory.replace(".", "").isdigit():
        facts.append(("Memory", numbers.shown("bytes", float(memory))))
    reps = [len(group.rows) for group in lab.groups]
    if reps:
        facts.append(("Repetitions", str(reps[0]) if len(set(reps)) == 1 else f"{min(reps)} to {max(reps)}"))
    facts += [("Runs", f"{folder.runs:,}" + (f", of which {len(folder.failed):,} broke off" if folder.failed else "")),
              ("Began", when(about.started)), ("Ended", when(about.ended)), ("mosq's commit", commit),
              ("Command", about.command)]
    section.facts = [(name, value) for name, value in facts if value]
    if about.brokers:
        section.tables.append(Table("Brokers", _names("Broker", "Version", "Program"), tuple(
            (words(label(broker.name), lab.slots[broker.name]), words(broker.version), words(broker.program))
            for broker in about.brokers)))
    section.folds = [(f"Settings of {label(broker.name)}", broker.settings) for broker in about.brokers
                     if broker.settings]
    # the commands measure the broker that they start just before: --broker-pid $!
    commands = list(dict.fromkeys("\n".join(filter(None, (row.start, row.command))) for row in folder.rows
                                  if row.command))
    if commands:
        between = "\n\n" if any("\n" in command for command in commands) else "\n"
        section.folds.append((f"Commands that repeat each run by hand ({len(commands)})", between.join(commands)))
    section.notes = list(dict.fromkeys(f"{test.title}: {test.note}." for test in lab.tests if test.note))
    section.warnings = list(_warnings(lab))
    return section


def _warnings(lab: Lab) -> list[str]:
    folder, about, found = lab.folder, lab.folder.about, []
    if not about.complete and not (about.ended and folder.failed):
        found.append(f"These results are not complete: {about.why or 'the lab did not finish'}.")
    if folder.failed:
        found.append(f"{len(folder.failed)} of {folder.runs} runs broke off; no figure contains them (see the "
                     "end).")
    if about.left_out:
        found.append(f"Some planned measurements are missing: {some(list(about.left_out))}.")
    dropped = dict.fromkeys(_run_of(row) for row in folder.rows if row.dropped)
    if dropped:
        tests = list(dict.fromkeys(row.title for row in folder.rows if row.dropped))
        found.append(f"In {len(dropped)} of {folder.runs} runs the kernel dropped packets between sockets of this "
                     "machine, and TCP sent them again 200 ms later: the brokers did not cause the longest "
                     f"delays there ({some(tests)}).")
    if folder.problems:
        found.append(f"{len(folder.problems)} parts of the files could not be read (see the end).")
    for mark, text in MARKS.items():
        marked = [group for group in lab.groups if mark in group.marks]
        if marked:
            tests = list(dict.fromkeys(group.row.title for group in marked))
            where = "" if len(marked) == len(lab.groups) else f": {some(tests)}"
            found.append(f"{text[0].upper()}{text[1:]}, in {len(marked)} of {len(lab.groups)} measurements (marked "
                         f"{mark}){where}.")
    if lab.groups and all(len(group.rows) == 1 for group in lab.groups):
        found.append("Each case was measured only once: the scatter between runs is unknown.")
    return found


def _run_of(row: Row) -> tuple[Key, int]:
    return replace(row.key, phase=""), row.rep


def summary(lab: Lab) -> list[str]:
    """Return the first sentences of the page."""
    found = []
    done = lab.folder.runs - len(lab.folder.failed)
    if lab.folder.runs:
        lost = sum(figures.faults(row) for row in lab.folder.rows if row.complete)
        found.append(f"{done:,} of {lab.folder.runs:,} runs finished"
                     + (f"; {lost:,} messages in them were lost, duplicated, out of order, refused or never sent."
                        if lost else ", and every message in them was received once and in order." if done else "."))
    return found


# ---------------------------------------------------------------- one figure of all tests

def throughput(lab: Lab) -> Section:
    """Return the section of messages per second without a rate limit."""
    section = Section("throughput", "Throughput",
                      "Messages per second that each broker carried without a rate limit; more is better.",
                      empty="no finished run flat out")
    _fill(section, lab, RATE)
    return section


def cpu(lab: Lab) -> Section:
    """Return the section of CPU per message."""
    section = Section("cpu", "CPU per message",
                      "CPU time of the broker for each delivered message (or client, or filter); less is better. Other "
                      "programs on the machine change this figure least.",
                      empty="no run with the broker's process known (--broker-pid or --start)")
    _fill(section, lab, figures.CPU)
    return section


def _fill(section: Section, lab: Lab, figure: Figure) -> None:
    tests = lab.with_figure(figure)
    for test in tests:
        what = f": {test.unit}s a second" if figure is RATE else f", per {test.unit}"
        section.charts += lab.charts(test, figure, test.title + (what if test.unit != "message" else ""))
    section.tables = lab.matrix(tests, figure)


QUANTILES = (figures.MEAN, figures.P50, figures.P90, figures.P99, figures.P999, figures.MOST)


def latency(lab: Lab) -> Section:
    """Return the section of latencies, with curves of quantiles."""
    section = Section("latency", "Latency",
                      "Time from the sender to the receiver of a message: at each point of a curve, that share of "
                      "messages was at least as fast. Lower is better, and the right end shows the slowest messages.",
                      empty="no run with latencies")
    rows: list[tuple[Cell, ...]] = []
    # tests at a fixed rate come first, because these compare brokers
    for test in sorted(lab.with_figure(figures.P50), key=lambda test: not test.groups[0].row.fixed_rate):
        for _, of_case in test.series():
            last = max(of_case, key=lambda group: group.key.x or 0).key
            curves = tuple(Curve(lab.label(group.key), lab.slot(group.key), tuple(points))
                           for group in test.at(last.case, last.x) if len(points := figures.tail(group.rows)) > 1)
            if curves:
                section.charts.append(Curves(_with_pace(test, test.place(last.case, last.x), of_case[0]), curves))
        rows += [(*lab.names(test, group), words(_pace(group)),
                  *(cell("time", group.of(figure), group.marks if figure is figures.MEAN else "")
                    for figure in QUANTILES))
                 for group in lab.by_place(test)]
    if rows:
        section.tables = [Table("", (*_names("Test", "Case", "Broker", "Load"),
                                     *(Head(figure.name) for figure in QUANTILES)), tuple(rows))]
        section.notes = ["Flat out, a latency is mostly the time that a message waited behind others: it shows little "
                         "about the broker. Compare brokers by the runs at a fixed rate. Of a series, the curve shows "
                         "the largest case."]
    return section


def _pace(group: Group) -> str:
    if group.row.unit != "message":
        return "connecting" if group.row.connect.count else "acknowledgement"
    return "fixed rate" if group.row.fixed_rate else "flat out"


def _with_pace(test: Test, place: str, group: Group) -> str:
    return ", ".join(part for part in (test.title, place, _pace(group)) if part)


def memory(lab: Lab) -> Section:
    """Return the section of the broker's memory."""
    section = Section("memory", "Memory",
                      "Memory of the broker at the end, by the number of clients, and per client, filter or message; "
                      "less is better.", empty="no run with the memory of the broker's process known")
    tests = lab.with_figure(RSS, lambda group: group.row.x_name in CLIENTS or group.row.unit == "client")
    for test in tests:
        section.charts += lab.charts(test, RSS, f"{test.title}: memory of the broker")
    section.tables = lab.matrix(tests, RSS)
    sizes = dict.fromkeys(name for row in lab.folder.rows for name in row.sizes)
    rows: list[tuple[Cell, ...]] = []
    for name in sizes:
        figure = figures.sized(name)
        title = name.removeprefix("bytes_").replace("_", " ")
        for test in lab.with_figure(figure):
            section.charts += lab.charts(test, figure, f"{test.title}: {title}")
            rows += [(*lab.names(test, group), words(title), cell("bytes", group.of(figure), group.marks))
                     for group in lab.by_place(test)]
    if rows:
        section.tables.append(Table("Memory per unit", (*_names("Test", "Case", "Broker", "Memory"), Head("Bytes")),
                                    tuple(rows)))
    return section


# ---------------------------------------------------------------- suites

def paper(lab: Lab) -> Section:
    """Return the section of the paper's four tests."""
    section = Section("paper", "The paper's four tests",
                      "Run time, delay and throughput, defined as in the paper: of mosq as shipped, of its baseline "
                      "(the plain tree without index, hash and pool), and of the other brokers.",
                      empty="no run of the paper's tests")
    for test in (kept for test in lab.tests if test.suite == "paper"
                 if (kept := test.only(lambda group: group.key.variant in ("", BASELINE)))):
        for figure in figures.PAPER:
            if "deviation" not in figure.name:
                section.charts += lab.charts(test, figure, f"{test.title}: {figure.name}")
        rows = [(test.place_cell(group.key.case, group.key.x), words(lab.label(group.key), lab.slot(group.key)),
                 *(cell("time", group.of(figure)) for figure in figures.PAPER),
                 cell("rate", group.of(RATE), group.marks))
                for group in lab.by_place(test)]
        heads = (*_names("Case", "Broker"), *(Head(figure.name) for figure in figures.PAPER),
                 Head("median throughput"))
        section.tables.append(Table(test.title, heads, tuple(rows)))
        if test.note:
            section.notes.append(f"{test.title}: {test.note}.")
    if section.tables:
        section.notes.insert(0, "The run time is the mean of the repetitions; mean and deviation of the delay are "
                                "those of the messages of all repetitions together, and the largest is the largest of "
                                "all.")
    return section


def vendors(lab: Lab) -> Section:
    """Return the section of the vendors' suite."""
    section = Section("vendors", "The vendors' suite",
                      "The tests that vendors of brokers publish, scaled to this machine: messages per second that one "
                      "core of the broker could carry; more is better.", empty="no run of the vendors' suite")
    rows = []
    shown = (RATE, figures.OF_CORE, figures.CPU, figures.P50, figures.P99)
    for test in (kept for test in lab.tests if test.suite == "vendors"
                 if (kept := test.only(lambda group: not group.key.variant))):
        section.charts += lab.charts(test, figures.OF_CORE, f"{test.title}: messages a second of one core")
        rows += [(*lab.names(test, group), *(cell(figure.kind, group.of(figure), group.marks if figure is RATE else "")
                                            for figure in shown)) for group in lab.by_place(test)]
    if rows:
        heads = ("throughput", "of one core", "CPU per message", "p50", "p99")
        section.tables = [Table("", (*_names("Test", "Case", "Broker"), *map(Head, heads)), tuple(rows))]
    return section


# ---------------------------------------------------------------- the generator, locust

def generator(lab: Lab) -> Section:
    """Return the section of the load generator's cost, with the promised bound."""
    section = Section("generator", "Cost of the load generator",
                      "CPU of the load generator for each message: it must be well below the broker's, else the run "
                      "measures the generator.", empty="no run with this figure")
    promised = _promised(lab)
    tests = lab.with_figure(GENERATOR)
    for test in tests:
        limit = GENERATOR_US_MAX if any(group in promised for group in test.groups) else None
        section.charts += lab.charts(test, GENERATOR, limit=limit)
    section.tables = lab.matrix(tests, GENERATOR)
    rows: list[tuple[Cell, ...]] = []
    for test in tests:
        for group in (group for group in test.groups if group in promised):
            value = group.of(GENERATOR)
            kept = value is not None and value.median <= GENERATOR_US_MAX
            rows.append((*lab.names(test, group), Cell(numbers.shown("cpu", GENERATOR_US_MAX)), cell("cpu", value),
                         words("✓ met" if kept else "✗ missed", tone="good" if kept else "bad")))
    if rows:
        section.tables.insert(0, Table("Bound for fan-in at QoS 0, 64 B, plain TCP", (
            *_names("Test", "Case", "Broker"), Head("at most"), Head("measured"), *_names("")), tuple(rows)))
    return section


def _promised(lab: Lab) -> list[Group]:
    """Return the measurements that the bound applies to.

    These are those of suite bench, or else all similar ones; of mosq if it took part, because the messages of a slow
    broker arrive one by one, and each costs a turn.
    """
    found = [group for test in lab.with_figure(GENERATOR) for group in test.groups if _like_promised(group.row)]
    for narrower in (lambda group: group.key.suite == "bench", lambda group: group.key.broker == MOSQ):
        found = list(filter(narrower, found)) or found
    return found


def _like_promised(row: Row) -> bool:
    return row.scenario == "fan-in" and row.qos == 0 and row.size == PROMISED_BYTES and row.plain and not row.fixed_rate


SHAPES = ("p50", "p95", "p99", "max")


def locust(lab: Lab) -> Section:
    """Return the section of the load test with locust."""
    section = Section("locust", "Load test with locust",
                      "Times of requests that clients in Python measured under locust, for `deliver` from publishing "
                      "to delivery; less is better.", empty="no locust.json (make load)")
    test = lab.folder.locust
    if test is None:
        return section
    section.facts = [(name, value) for name, value in (
        ("Broker", test.broker), ("Users", f"{test.users:,}"), ("Seconds", numbers.digits(test.seconds)),
        ("Began", when(test.started)),
        ("Messages", ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in test.messages.items())),
        ("CPU of locust per request", "" if test.cpu_us is None else numbers.shown("cpu", test.cpu_us))) if value]
    if test.limited:
        section.warnings.append("Locust itself was the bottleneck: the broker can carry more than this, and the times "
                                "are locust's as much as the broker's.")
    if not test.complete:
        section.warnings.append(f"The load test is not complete: {test.why or 'without a reason'}.")
    rows = []
    dots = []
    for entry in test.entries:
        values = {name: spread([entry.us.get(f"{name}_us")]) for name in ("mean", *SHAPES)}
        rows.append((words(entry.type), words(entry.name), Cell(f"{entry.requests:,}"),
                     Cell(f"{entry.failures:,}", tone="bad" if entry.failures else ""),
                     Cell(numbers.shown("rate", entry.rate)),
                     *(cell("time", values[name]) for name in ("mean", *SHAPES))))
        marks = tuple(Bar(name, NEUTRAL - i, False, value) for i, name in enumerate(SHAPES)
                      if (value := values[name]) is not None and value.median > 0)
        if marks:
            dots.append((": ".join(part for part in (entry.type, entry.name) if part), marks))
    if dots:
        section.charts = [Dots("Time of requests", "time", tuple(dots), "time, logarithmic")]
    section.tables = [Table("", (*_names("Request", "Name"), *map(Head, (
        "Requests", "Failures", "Rate", "mean", "p50", "p95", "p99", "maximum"))), tuple(rows))]
    if test.errors:
        section.tables.append(Table("Errors", (*_names("Request", "Name", "What"), Head("Times")), tuple(
            (words(kind), words(name), words(what), Cell(f"{n:,}")) for kind, name, what, n in test.errors)))
    return section


# ---------------------------------------------------------------- incomplete parts

def missing(lab: Lab, left_out: list[Section]) -> Section:
    """Return the section of everything that is incomplete, with the reasons."""
    section = Section("missing", "Incomplete parts",
                      "Runs that broke off, input that could not be read, and sections without content.")
    if lab.folder.failed:
        heads = _names("Suite", "Test", "Case", "Broker", "Repetition", "Why")
        section.tables.append(Table("Runs that broke off", heads, tuple(
            (words(SUITES.get(run.key.suite, run.key.suite)), words(run.title), words(run.key.case),
             words(lab.label(run.key), lab.slot(run.key)), words(str(run.rep + 1)), words(run.why))
            for run in lab.folder.failed)))
    if lab.folder.about.left_out:
        section.tables.append(Table("Planned and not measured", _names("Measurement and reason"),
                                    tuple((words(one),) for one in lab.folder.about.left_out)))
    if lab.folder.problems:
        section.tables.append(Table("Input that could not be read", _names("Place and reason"),
                                    tuple((words(problem),) for problem in lab.folder.problems)))
    if left_out:
        section.tables.append(Table("Sections left out", _names("Section", "Reason"),
                                    tuple((words(one.heading), words(one.empty)) for one in left_out)))
    if not section.tables:
        section.notes = ["Nothing is incomplete: no run broke off, and every section has content."]
    return section
