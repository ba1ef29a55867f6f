"""Ratios within one folder: mosq beside its peers, and mosq beside itself with an optimisation switched off. A ratio is
taken within a repetition, where both were measured one after the other; shown is the median of these.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from mosq.bench.html import numbers
from mosq.bench.html.figures import CPU, RATE, spread
from mosq.bench.html.model import MOSQ, label
from mosq.bench.html.parts import Bar, Cell, Dots, Head, Section, Table, cell, words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mosq.bench.html.figures import Figure, Group, Spread
    from mosq.bench.html.lab import Lab, Test

AXES = {CPU.name: "times mosq's CPU (right of 1: the peer takes more)",
        RATE.name: "times mosq's throughput (left of 1: the peer carries less)"}


def ratio(one: Group, base: Group, figure: Figure) -> Spread | None:
    bases = {row.rep: figure.value(row) for row in base.rows}
    pairs = [(value, of_base) for row in one.rows
             if (value := figure.value(row)) and (of_base := bases.get(row.rep))]
    if pairs:
        return spread(value / of_base for value, of_base in pairs)
    mine, its = one.of(figure), base.of(figure)
    return spread([mine.median / its.median]) if mine and its else None


def peers(lab: Lab) -> Section:
    section = Section("peers", "mosq beside its peers",
                      "How many times mosq's figure each other broker has in the same test: 1 is the same as mosq.",
                      empty="no test that both mosq and another broker ran")
    for figure in (CPU, RATE):
        rows: list[tuple[Cell, ...]] = []
        dots: list[tuple[str, tuple[Bar, ...]]] = []
        others = [broker for broker in lab.brokers if broker != MOSQ]
        for test in lab.with_figure(figure):
            drawn: dict[str, tuple[str, tuple[Bar, ...]]] = {}
            for case, x in test.places:
                found = _at(lab, test, case, x, figure)
                if found:
                    place = test.place(case, x)
                    rows.append((words(test.title), words(place), *(cell("ratio", found.get(name)) for name in others)))
                    drawn[case] = (", ".join(part for part in (test.title, place) if part), tuple(
                        Bar(label(name), lab.slots[name], False, value) for name, value in found.items()))
            dots += drawn.values()      # of a series, its last
        if rows:
            section.charts.append(Dots(figure.name, "ratio", tuple(dots), AXES[figure.name]))
            section.tables.append(Table(f"{figure.name}, times mosq's", (
                Head("Test", number=False), Head("Case", number=False),
                *(Head(label(name), lab.slots[name]) for name in others)), tuple(rows)))
    return section


def _at(lab: Lab, test: Test, case: str, x: float | None, figure: Figure) -> dict[str, Spread]:
    of = {group.key.broker: group for group in test.at(case, x)}
    base = of.pop(MOSQ, None)
    if base is None:
        return {}
    return {name: value for name, group in of.items() if (value := ratio(group, base, figure))}


def told(lab: Lab) -> list[str]:
    """For the summary: each peer in one sentence."""
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
    section = Section("ablation", "What each optimisation is worth",
                      "mosq with one of its optimisations switched off, as a multiple of mosq as shipped: right of 1 "
                      "the "
                      "optimisation saves CPU, at 1 it makes no difference here.",
                      empty="no run of mosq with something switched off")
    for figure in (CPU, RATE):
        rows: list[tuple[Cell, ...]] = []
        for test in lab.tests:
            dots: list[tuple[str, tuple[Bar, ...]]] = []
            for case, x in test.places:
                place = test.place(case, x)
                for base, group, value in _without(test, case, x, figure):
                    dots.append((": ".join(part for part in (place, group.key.variant) if part),
                                 (Bar(lab.label(group.key), lab.slot(group.key), True, value),)))
                    rows.append((words(test.title), words(place), words(group.key.variant), cell(figure.kind,
                                                                                                 base.of(figure)),
                                 cell(figure.kind, group.of(figure), group.marks), cell("ratio", value),
                                 *([_saved(value)] if figure is CPU else [])))
            if dots and figure is CPU:
                section.charts.append(Dots(test.title, "ratio", tuple(dots), "times the CPU per message as shipped"))
        if rows:
            section.tables.append(Table(figure.name, (
                *(Head(text, number=False) for text in ("Test", "Case", "Without")),
                *map(Head, ("as shipped", "without it", "ratio", *(["it saves"] if figure is CPU else [])))),
                tuple(rows)))
    return section


def _without(test: Test, case: str, x: float | None, figure: Figure) -> Iterator[tuple[Group, Group, Spread]]:
    """(as shipped, with something switched off, its ratio)"""
    shipped = {group.key.broker: group for group in test.at(case, x) if not group.key.variant}
    for group in test.at(case, x):
        base = shipped.get(group.key.broker)
        if group.key.variant and base and (found := ratio(group, base, figure)):
            yield base, group, found


def _saved(value: Spread) -> Cell:
    """What of the cost without it the optimisation takes away."""
    return Cell(numbers.percent(1 - 1 / value.median).lstrip("+"))
