"""Compare two folders of results: find the changes beyond noise.

The change of a figure is the ratio of its medians. The noise is ERRORS standard errors of the difference of two means
on the logarithmic scale. The scatter is that of the repetitions of this measurement in both folders, mixed with the
scatter of the same figure in all measurements, because three repetitions alone do not determine it. A change counts if
it is larger than the noise, larger than LEAST, and if each later repetition lies beyond each earlier one. With a single
repetition on one side the result is unknown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mosq.tools.bench.html import figures, numbers
from mosq.tools.bench.html.numbers import NARROW
from mosq.tools.bench.html.parts import Bar, Cell, Dots, Head, Section, Table, words
from mosq.tools.bench.html.sections import when

if TYPE_CHECKING:
    from mosq.tools.bench.html.figures import Figure, Group, Spread
    from mosq.tools.bench.html.lab import Lab, Test

LEAST = 0.03                    # smallest share that counts as a change
ERRORS = 4.0                    # standard errors
PRIOR = 8                       # weight of the scatter of all measurements, in repetitions
NOISE_LEAST = 0.005
FAULTS_TIMES = 10               # factor of lost messages that is worse in any case
APART_TIMES = 2                 # factor that is worse if every repetition lost more than each before
COMPARED = (figures.CPU, figures.RATE, figures.P50, figures.P99, figures.RSS)
WORSE, BETTER, SAME, UNKNOWN = "worse", "better", "within noise", "unknown"
SHOWN_MAX = 24                  # most rows of the chart


@dataclass(frozen=True)
class Change:
    """Hold the change of one figure, or of the faults, of a measurement."""

    suite: str
    test: str
    place: str
    broker: str
    slot: int
    figure: Figure | None       # None: not a quantity, such as newly lost messages
    before: Spread | None
    after: Spread | None
    share: float                # 0.1: 10 % more
    noise: float | None
    verdict: str
    words: str = ""

    @property
    def name(self) -> str:
        return ", ".join(part for part in (self.test, self.place, self.broker) if part)


def compare(lab: Lab, before: Lab) -> list[Change]:
    """Compare all measurements that both folders contain, in the lab's order; changes for the worse come first."""
    pairs = [(test, group, base) for test in lab.tests for group in test.groups
             if (base := before.by_key.get(group.key)) is not None]
    found = [change for test, group, base in pairs for change in _faults(lab, test, group, base)]
    found += _broken(lab, before)
    for figure in COMPARED:
        of = [(test, group, base) for test, group, base in pairs if figure.value(group.row) is not None
              and figure.value(base.row) is not None and _compares(figure, group, base)]
        scatter = _scatter([(group, base) for _, group, base in of], figure)
        found += [_change(lab, test, group, base, figure, scatter) for test, group, base in of]
    return sorted(found, key=lambda change: (WORSE, BETTER, UNKNOWN, SAME).index(change.verdict))


def _compares(figure: Figure, group: Group, base: Group) -> bool:
    """Return whether the figure may be compared.

    A throughput that the generator limited is not the broker's, and latencies without a rate limit follow the
    throughput.
    """
    if figure is figures.RATE:
        return "g" not in group.marks + base.marks
    return figure not in (figures.P50, figures.P99) or (group.row.fixed_rate and base.row.fixed_rate)


def _logs(group: Group, figure: Figure) -> list[float]:
    return [math.log(value) for row in group.rows if (value := figure.value(row)) is not None and value > 0]


def _squares(*sides: list[float]) -> tuple[float, int]:
    """Return the sum of squares about each side's mean, and the degrees of freedom."""
    total, free = 0.0, 0
    for logs in sides:
        if logs:
            mean = sum(logs) / len(logs)
            total, free = total + sum((value - mean) ** 2 for value in logs), free + len(logs) - 1
    return total, free


def _scatter(pairs: list[tuple[Group, Group]], figure: Figure) -> float:
    """Return the variance of one repetition, over all measurements."""
    found = [_squares(_logs(group, figure), _logs(base, figure)) for group, base in pairs]
    free = sum(degrees for _, degrees in found)
    return sum(total for total, _ in found) / free if free else 0.0


def _change(lab: Lab, test: Test, group: Group, base: Group, figure: Figure, scatter: float) -> Change:
    now, then = _logs(group, figure), _logs(base, figure)
    after, before = group.of(figure), base.of(figure)
    share = after.median / before.median - 1 if after and before and before.median else 0.0
    noise = None
    verdict = UNKNOWN
    if len(now) > 1 and len(then) > 1:
        own, free = _squares(now, then)
        variance = (PRIOR * scatter + own) / (PRIOR + free)
        noise = max(math.expm1(ERRORS * math.sqrt(variance * (1 / len(now) + 1 / len(then)))), NOISE_LEAST)
        apart = min(now) > max(then) or max(now) < min(then)
        beyond = abs(math.log1p(share)) > max(math.log1p(noise), math.log1p(LEAST))
        verdict = SAME if not (apart and beyond) else BETTER if (share > 0) == (figure.better > 0) else WORSE
    return Change(test.suite, test.title, test.place(group.key.case, group.key.x), lab.label(group.key),
                  lab.slot(group.key), figure, before, after, share, noise, verdict)


def _faults(lab: Lab, test: Test, group: Group, base: Group) -> list[Change]:
    now, then = _fault_shares(group), _fault_shares(base)
    times = APART_TIMES if min(now) > max(then) else FAULTS_TIMES
    if sum(now) / len(now) <= times * sum(then) / len(then):
        return []
    lost, before = (f"{sum(map(figures.faults, one.rows)):,}" for one in (group, base))
    return [Change(test.suite, test.title, test.place(group.key.case, group.key.x), lab.label(group.key),
                   lab.slot(group.key), None, None, None, 0.0, None, WORSE,
                   f"{lost} messages lost, doubled, out of order, refused or never sent; before "
                   f"{before if any(then) else 'none'}")]


def _fault_shares(group: Group) -> list[float]:
    """Return the share of faults in each repetition's messages."""
    return [figures.faults(row) / max(row.per, row.counts["published"], row.counts["delivered"], 1)
            for row in group.rows]


def _broken(lab: Lab, before: Lab) -> list[Change]:
    """Return a change for each measurement that was complete before, and of which no run in any phase is complete now.
    """
    now, then = ({replace(key, phase="") for key in one.by_key} for one in (lab, before))
    found = {}
    for run in lab.folder.failed:
        key = replace(run.key, phase="")
        if key in then and key not in now:
            found[key] = Change(key.suite, run.title, key.case, lab.label(key), lab.slot(key), None, None, None, 0.0,
                                None, WORSE, f"breaks off now: {run.why}")
    return list(found.values())


def regressed(changes: list[Change]) -> bool:
    """Return whether a figure became worse."""
    return any(change.verdict == WORSE for change in changes)


# ---------------------------------------------------------------- how changes are shown

def _heads(*texts: str) -> tuple[Head, ...]:
    return tuple(Head(text, number=False) for text in texts)


def cells(change: Change) -> tuple[str, str, str, str]:
    """Return before, after, change and noise as texts."""
    if change.figure is None or change.before is None or change.after is None:
        return "", "", "", ""
    kind = change.figure.kind
    # on the logarithmic scale the same factor is a smaller share downwards
    noise = change.noise if change.share >= 0 or change.noise is None else 1 - 1 / (1 + change.noise)
    return (numbers.shown(kind, change.before.median), numbers.shown(kind, change.after.median),
            numbers.percent(change.share), "" if noise is None else f"±{NARROW}{numbers.percent(noise).lstrip('+')}")


def section(lab: Lab, before: Lab, changes: list[Change]) -> Section:
    """Return the section of the comparison."""
    old, new = (_name(one) for one in (before, lab))
    page_section = Section("against", "Compared with older results",
                   f"Changes from {old} to {new}: a change counts if it is larger than the scatter of the "
                   "repetitions explains.", empty="no second folder (--against)")
    page_section.warnings = _warnings(lab, before, changes)
    beyond = [change for change in changes if change.verdict in (WORSE, BETTER)]
    within = [change for change in changes if change.verdict not in (WORSE, BETTER)]
    if beyond:
        page_section.tables = [_table(beyond)]
    else:
        page_section.notes = ["Nothing changed beyond noise." if len(changes) > counts(changes)[UNKNOWN]
                      else "The changes are unknown: one side has a single repetition."]
    if within:
        page_section.folded = [(f"{len(within):,} figures within noise or unknown", _table(within))]
    drawn = [change for change in beyond if change.figure][:SHOWN_MAX]
    if drawn:
        page_section.charts = [Dots("Changes beyond noise", "ratio", tuple(
            (", ".join(part for part in (change.figure.name if change.figure else "", change.test, change.place)
                       if part),
             (Bar(change.broker, change.slot, False, figures.Spread(1 + change.share, 1 + change.share,
                                                                    1 + change.share, 1)),))
            for change in drawn), "times the figure before")]
    return page_section


def _table(changes: list[Change]) -> Table:
    rows = []
    for change in changes:
        kind = change.figure.kind if change.figure else ""
        spreads = ["" if value is None else numbers.spread_of(kind, value) for value in (change.before, change.after)]
        one, two, share, noise = cells(change)
        rows.append((words(change.test), words(change.place), words(change.broker, change.slot),
                     words(change.figure.name if change.figure else change.words), Cell(one, spreads[0]),
                     Cell(two, spreads[1]), Cell(share), Cell(noise),
                     words(MARKED[change.verdict], tone=TONES[change.verdict])))
    return Table("", (*_heads("Test", "Case", "Broker", "Figure"), *map(Head, ("before", "after", "change", "noise")),
                      *_heads("Verdict")), tuple(rows))


def counts(changes: list[Change]) -> dict[str, int]:
    """Return how many changes have each verdict."""
    return {verdict: sum(change.verdict == verdict for change in changes) for verdict in (WORSE, BETTER, SAME, UNKNOWN)}


TONES = {WORSE: "bad", BETTER: "good", SAME: "", UNKNOWN: ""}
MARKED = {WORSE: "▲ worse", BETTER: "▼ better", SAME: SAME, UNKNOWN: UNKNOWN}


def _name(lab: Lab) -> str:
    about = lab.folder.about
    return " ".join(part for part in (about.commit[:12] + ("+" if about.dirty and about.commit else ""),
                                      f"({when(about.started)})" if about.started else "") if part) or lab.folder.path


def _warnings(lab: Lab, before: Lab, changes: list[Change]) -> list[str]:
    found = []
    of = counts(changes)
    found.append(f"{len(changes):,} figures of {len({(one.suite, one.name) for one in changes}):,} measurements: "
                 f"{of[WORSE]} worse, {of[BETTER]} better, {of[SAME]} within noise, {of[UNKNOWN]} unknown.")
    if of[UNKNOWN]:
        found.append("With a single repetition on a side, the noise is unknown: repeat the runs.")
    machines = [{name: one.folder.about.machine.get(name) for name in ("processor", "kernel", "cores")}
                for one in (lab, before)]
    if machines[0] != machines[1]:
        found.append("The results are from different machines or kernels, which may cause the differences.")
    other = [run for run in before.by_key if run not in lab.by_key]
    if other:
        found.append(f"{len(other)} measurements of the older folder are not in the newer.")
    return found


def lines(changes: list[Change]) -> list[tuple[str, ...]]:
    """Return the rows for a terminal: the changes beyond noise."""
    heads = ("VERDICT", "FIGURE", "BEFORE", "AFTER", "CHANGE", "NOISE", "WHERE")
    return [heads, *((change.verdict, change.figure.name if change.figure else change.words,
                      *(text.replace(NARROW, " ") for text in cells(change)), change.name)
                     for change in changes if change.verdict in (WORSE, BETTER))]
