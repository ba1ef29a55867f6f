"""Compute ratios within one folder: other brokers to mosq, and mosq without an optimisation to mosq as shipped.

A ratio is taken within a repetition, in which both were measured one after the other; the page shows the median.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from mosq.tools.bench.html import numbers
from mosq.tools.bench.html.figures import CPU, RATE, spread
from mosq.tools.bench.html.lab import AGAIN, VARIANTS
from mosq.tools.bench.html.model import MOSQ, label
from mosq.tools.bench.html.parts import ROWS_DRAWN, Bar, Cell, Dots, Head, Section, Table, cell, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mosq.tools.bench.html.figures import Figure, Group, Spread
    from mosq.tools.bench.html.lab import Lab, Test

AXES = {CPU.name: "times mosq's CPU (right of 1: the peer takes more)",
        RATE.name: "times mosq's throughput (left of 1: the peer carries less)"}


def ratio(one: Group, base: Group, figure: Figure) -> Spread | None:
    """Return the ratio of two measurements, per repetition if possible; None if one lacks the figure."""
    bases = {row.rep: figure.value(row) for row in base.rows}
    pairs = [(value, of_base) for row in one.rows
             if (value := figure.value(row)) and (of_base := bases.get(row.rep))]
    if pairs:
        return spread(value / of_base for value, of_base in pairs)
    mine, its = one.of(figure), base.of(figure)
    return spread([mine.median / its.median]) if mine and its else None


def peers(lab: Lab) -> Section:
    """Return the section that compares other brokers with mosq."""
    section = Section("peers", "mosq beside other brokers",
                      "The figures of other brokers as multiples of mosq's in the same test: 1 is the same as mosq.",
                      empty="no test that both mosq and another broker ran")
    for figure in (CPU, RATE):
        rows: list[tuple[Cell, ...]] = []
        dots: list[tuple[str, tuple[Bar, ...]]] = []
        others = [broker for broker in lab.brokers if broker != MOSQ]
        for test in lab.with_figure(figure):
            drawn: dict[str, tuple[str, tuple[Bar, ...]]] = {}
            for case, x in _upwards(test):
                found = _at(lab, test, case, x, figure)
                if found:
                    place = test.place(case, x)
                    rows.append((words(test.title), test.place_cell(case, x), *(
                        cell("ratio", found.get(name)) for name in others)))
                    drawn["" if test.named else case] = (", ".join(part for part in (test.title, place) if part), tuple(
                        Bar(label(name), lab.slots[name], False, value) for name, value in found.items()))
            dots += drawn.values()      # the last one of a series
        if rows:
            section.charts.append(Dots(figure.name, "ratio", tuple(dots[:ROWS_DRAWN]), AXES[figure.name]))
            section.tables.append(Table(f"{figure.name}, times mosq's", (
                Head("Test", number=False), Head("Case", number=False),
                *(Head(label(name), lab.slots[name]) for name in others)), tuple(rows)))
    return section


def _upwards(test: Test) -> list[tuple[str, float | None]]:
    """Return the places in increasing order: of a series, the largest comes last and is drawn."""
    return sorted(test.places, key=lambda place: place[1] or 0)


def _at(lab: Lab, test: Test, case: str, x: float | None, figure: Figure) -> dict[str, Spread]:
    of = {group.key.broker: group for group in test.at(case, x)}
    base = of.pop(MOSQ, None)
    if base is None:
        return {}
    return {name: value for name, group in of.items() if (value := ratio(group, base, figure))}


def summary(lab: Lab) -> list[str]:
    """Return one sentence for each other broker, for the summary."""
    found = []
    for name in (broker for broker in lab.brokers if broker != MOSQ):
        ratios = [value.median for test in lab.with_figure(CPU) for case, x in test.places
                  if (value := _at(lab, test, case, x, CPU).get(name))]
        if ratios:
            middle = statistics.median(ratios)
            found.append(f"{label(name)} took {numbers.times(middle)} mosq's CPU for the same work"
                         + (f" (median of {len(ratios)} tests, {numbers.times(min(ratios))} to "
                            f"{numbers.times(max(ratios))})."
                            if len(ratios) > 1 else "."))
    return found


def ablation(lab: Lab) -> Section:
    """Return the section that compares mosq without an optimisation with mosq as shipped."""
    section = Section("ablation", "Effect of each optimisation",
                      "mosq with one optimisation switched off, as a multiple of mosq as shipped: right of 1 the "
                      "optimisation saves CPU, at 1 it makes no difference here.",
                      empty="no run of mosq with something switched off")
    variants = sorted({group.key.variant for group in lab.groups} - {""},
                      key=lambda name: (VARIANTS.get(name, len(VARIANTS)), name))
    found: dict[str, list[tuple[float, str]]] = {name: [] for name in variants}
    for figure in (CPU, RATE):
        rows: list[tuple[Cell, ...]] = []
        for test in lab.tests:
            dots: dict[tuple[str, str], tuple[str, tuple[Bar, ...]]] = {}
            for case, x in _upwards(test):
                place = test.place(case, x)
                for base, ratios in _without(test, case, x, figure):
                    rows.append((words(test.title), test.place_cell(case, x),
                                 cell(figure.kind, base.of(figure), base.marks),
                                 *(cell("ratio", ratios.get(name)) for name in variants)))
                    if figure is not CPU:
                        continue
                    for name, value in ratios.items():
                        found[name].append((1 - 1 / value.median, ", ".join(filter(None, (test.title, place)))))
                        dots["" if test.named else case, name] = (": ".join(filter(None, (place, name))), (
                            Bar(label(base.key.broker, name), lab.slot(base.key), True, value),))
            if dots:
                section.charts.append(Dots(test.title, "ratio", tuple(dots.values())[:ROWS_DRAWN],
                                           "times the CPU per message as shipped"))
        if rows:
            section.tables.append(Table(f"{figure.name}, times as shipped", (
                Head("Test", number=False), Head("Case", number=False), Head("as shipped"), *map(Head, variants)),
                tuple(rows)))
    if section.tables:
        section.tables.insert(0, _saved(found))
        if AGAIN in variants:
            section.notes = [f"“{AGAIN}” is a second run of mosq as shipped: its difference from 1 is noise, as are "
                             "equal differences of the others."]
    return section


def _saved(found: dict[str, list[tuple[float, str]]]) -> Table:
    """Return the share of CPU that each optimisation saves: median, most and least."""
    rows = []
    for name, shares in found.items():
        if shares:
            least, most = min(shares), max(shares)
            rows.append((words(name), Cell(numbers.percent(statistics.median(share for share, _ in shares))),
                         Cell(numbers.percent(most[0])), words(most[1]), Cell(numbers.percent(least[0])),
                         words(least[1])))
    return Table("The share of CPU that each optimisation saves", (
        Head("Without", number=False), Head("median of tests"), Head("most"), Head("in", number=False), Head("least"),
        Head("in", number=False)), tuple(rows))


def _without(test: Test, case: str, x: float | None, figure: Figure) -> Iterator[tuple[Group, dict[str, Spread]]]:
    """Yield a broker as shipped, and for each variant the ratio with an optimisation switched off."""
    for base in (group for group in test.at(case, x) if not group.key.variant):
        ratios = {group.key.variant: found for group in test.at(case, x)
                  if group.key.variant and group.key.broker == base.key.broker
                  and (found := ratio(group, base, figure))}
        if ratios:
            yield base, ratios
