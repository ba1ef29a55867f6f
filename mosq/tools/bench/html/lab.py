"""A folder arranged for the sections: which brokers and tests there are, in which order, and how they are called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mosq.tools.bench.html import numbers
from mosq.tools.bench.html.figures import groups
from mosq.tools.bench.html.model import label
from mosq.tools.bench.html.parts import ROWS_DRAWN, Bar, Bars, Cell, Head, Line, Lines, Table, cell, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mosq.tools.bench.html.figures import Figure, Group, Spread
    from mosq.tools.bench.html.model import Folder, Key
    from mosq.tools.bench.html.parts import Chart

SUITES = {"bench": "Scenarios of mosq bench", "paper": "The paper's tests", "vendors": "The vendors' suite",
          "ablation": "Ablation"}
BASELINE = "plain"              # the variant with all of the index, the hash and the pool off
AGAIN = "default again"         # as shipped, once more: its distance from 1 is noise
VARIANTS = {"": 0, AGAIN: 1, BASELINE: 2}       # and then the others, as they come


@dataclass(frozen=True)
class Test:
    """One phase of one test, by all brokers, cases and variants."""

    suite: str
    title: str
    unit: str
    groups: tuple[Group, ...]

    @property
    def places(self) -> list[tuple[str, float | None]]:
        """Its cases, each with the numbers that were tried."""
        return list(dict.fromkeys((group.key.case, group.key.x) for group in self.groups))

    @property
    def named(self) -> bool:
        """Each number has a case of its own, which says it in words: together they are one series."""
        places = self.places
        return (len(places) > 1 and None not in {x for _, x in places}
                and len({case for case, _ in places}) == len({x for _, x in places}) == len(places))

    def series(self) -> list[tuple[str, list[Group]]]:
        """What belongs on one line: a case with all its numbers."""
        if self.named:
            return [("", list(self.groups))]
        return [(case, [group for group in self.groups if group.key.case == case])
                for case in dict.fromkeys(group.key.case for group in self.groups)]

    @property
    def x_name(self) -> str:
        return self.groups[0].row.x_name

    def at(self, case: str, x: float | None) -> list[Group]:
        return [group for group in self.groups if (group.key.case, group.key.x) == (case, x)]

    def only(self, wanted: Callable[[Group], bool]) -> Test | None:
        kept = tuple(group for group in self.groups if wanted(group))
        return Test(self.suite, self.title, self.unit, kept) if kept else None

    def place(self, case: str, x: float | None) -> str:
        if case and self.named:
            return case
        return ", ".join(part for part in (case, "" if x is None else numbers.place(x, self.x_name)) if part)

    @property
    def note(self) -> str:
        """What is said of all its cases."""
        notes = {group.row.note for group in self.groups}
        return next((one for one in notes if all(other.startswith(one) for other in notes)), "")

    def place_cell(self, case: str, x: float | None) -> Cell:
        """A case with what is said of it alone."""
        notes = {group.row.note.removeprefix(self.note).lstrip("; ") for group in self.at(case, x)}
        return words(self.place(case, x), note="; ".join(sorted(notes - {""})))


class Lab:
    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.groups = groups(folder)
        self.brokers = folder.brokers()
        self.slots = {name: slot for slot, name in enumerate(self.brokers)}
        self.by_key = {group.key: group for group in self.groups}
        self.tests = self._tests()

    def _tests(self) -> list[Test]:
        found: dict[tuple[str, str, str], list[Group]] = {}
        for group in self.groups:
            found.setdefault((group.key.suite, group.key.test, group.key.phase), []).append(group)
        phases: dict[tuple[str, str], int] = {}
        for suite, test, _ in found:
            phases[suite, test] = phases.get((suite, test), 0) + 1
        tests = []
        for (suite, test, phase), of in found.items():
            of.sort(key=lambda group: (self.slots[group.key.broker], VARIANTS.get(group.key.variant, len(VARIANTS))))
            title = of[0].row.title or test
            if phases[suite, test] > 1:
                title += f": {phase}"
            tests.append(Test(suite, title, of[0].row.unit, tuple(of)))
        order = list(SUITES)
        return sorted(tests, key=lambda test: order.index(test.suite) if test.suite in order else len(order))

    def with_figure(self, figure: Figure, wanted: Callable[[Group], bool] | None = None) -> list[Test]:
        """The tests that have it, as shipped: without variants, and without what is run only to compare these."""
        kept = (test.only(lambda group: not group.key.variant and group.of(figure) is not None
                          and (wanted is None or wanted(group))) for test in self.tests if test.suite != "ablation")
        return [test for test in kept if test is not None]

    def label(self, key: Key) -> str:
        return label(key.broker, key.variant)

    def slot(self, key: Key) -> int:
        return self.slots[key.broker]

    # ------------------------------------------------------------ the usual charts and tables

    def bar(self, group: Group, value: Spread) -> Bar:
        return Bar(self.label(group.key), self.slot(group.key), bool(group.key.variant), value)

    def charts(self, test: Test, figure: Figure, title: str = "", limit: float | None = None) -> list[Chart]:
        """A line for each broker where a number was varied; else bars below each case."""
        title = title or test.title
        found: list[Chart] = []
        single: list[tuple[str, tuple[Bar, ...]]] = []
        for case, of_case in test.series():
            xs = {group.key.x for group in of_case}
            if len(xs) > 1 and None not in xs:
                found.append(Lines(", ".join(part for part in (title, case) if part), figure.kind,
                                   test.x_name, tuple(self._lines(of_case, figure))))
            else:
                bars = tuple(self.bar(group, value) for group in of_case if (value := group.of(figure)) is not None)
                if bars:
                    single.append((test.place(of_case[0].key.case, of_case[0].key.x), bars))
        if single:
            found.append(Bars(title, figure.kind, tuple(single[:ROWS_DRAWN // max(len(self.brokers), 1) + 1]), limit))
        return found

    def _lines(self, of_case: list[Group], figure: Figure) -> Iterable[Line]:
        for broker, variant in dict.fromkeys((group.key.broker, group.key.variant) for group in of_case):
            points = tuple(sorted(((group.key.x or 0.0, value) for group in of_case
                                   if (group.key.broker, group.key.variant) == (broker, variant)
                                   and (value := group.of(figure)) is not None), key=lambda point: point[0]))
            if points:
                yield Line(label(broker, variant), self.slots[broker], bool(variant), points)

    def matrix(self, tests: list[Test], figure: Figure) -> list[Table]:
        """A table for each suite: a row for each test and case, a column for each broker."""
        tables = []
        for suite in dict.fromkeys(test.suite for test in tests):
            own = [test for test in tests if test.suite == suite]
            met = {group.key.broker for test in own for group in test.groups}
            brokers = [broker for broker in self.brokers if broker in met]
            units = [Head("Per", number=False)] if any(test.unit != "message" for test in own) else []
            rows = []
            for test in own:
                for case, x in test.places:
                    of = {group.key.broker: group for group in test.at(case, x)}
                    rows.append((words(test.title), test.place_cell(case, x), *(words(test.unit) for _ in units), *(
                        cell(figure.kind, of[broker].of(figure), of[broker].marks) if broker in of else Cell()
                        for broker in brokers)))
            heads = (Head("Test", number=False), Head("Case", number=False), *units,
                     *(Head(label(broker), self.slots[broker]) for broker in brokers))
            tables.append(Table(SUITES.get(suite, suite), heads, tuple(rows)))
        return tables

    def by_place(self, test: Test) -> list[Group]:
        """Case after case, and in each all brokers."""
        places = test.places
        return sorted(test.groups, key=lambda group: places.index((group.key.case, group.key.x)))

    def names(self, test: Test, group: Group) -> tuple[Cell, Cell, Cell]:
        return (words(test.title), test.place_cell(group.key.case, group.key.x),
                words(self.label(group.key), self.slot(group.key)))
