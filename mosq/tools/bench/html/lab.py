"""Arrange a folder for the sections: its brokers and tests, their order and their names."""

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
BASELINE = "plain"              # variant with the index, the hash and the pool off
AGAIN = "default again"         # mosq as shipped, once more: its distance from 1 is noise
VARIANTS = {"": 0, AGAIN: 1, BASELINE: 2}       # other variants follow in the order of their occurrence


@dataclass(frozen=True)
class Test:
    """Hold one phase of one test, with all brokers, cases and variants."""

    suite: str
    title: str
    unit: str
    groups: tuple[Group, ...]

    @property
    def places(self) -> list[tuple[str, float | None]]:
        """Return the cases, each with the numbers that were tried."""
        return list(dict.fromkeys((group.key.case, group.key.x) for group in self.groups))

    @property
    def named(self) -> bool:
        """Return whether each number has its own case, which names it: then all cases together are one series."""
        places = self.places
        return (len(places) > 1 and None not in {x for _, x in places}
                and len({case for case, _ in places}) == len({x for _, x in places}) == len(places))

    def series(self) -> list[tuple[str, list[Group]]]:
        """Return the groups of each line: a case with all its numbers."""
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
        chosen = tuple(group for group in self.groups if wanted(group))
        return Test(self.suite, self.title, self.unit, chosen) if chosen else None

    def place(self, case: str, x: float | None) -> str:
        if case and self.named:
            return case
        return ", ".join(part for part in (case, "" if x is None else numbers.place(x, self.x_name)) if part)

    @property
    def note(self) -> str:
        """Return the note that all cases share."""
        notes = {group.row.note for group in self.groups}
        return next((one for one in notes if all(other.startswith(one) for other in notes)), "")

    def place_cell(self, case: str, x: float | None) -> Cell:
        """Return a cell for a case, with the notes of this case alone."""
        notes = {group.row.note.removeprefix(self.note).lstrip("; ") for group in self.at(case, x)}
        return words(self.place(case, x), note="; ".join(sorted(notes - {""})))


class Lab:
    """Hold a folder with its groups, tests, brokers and their colours."""

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
        """Return the tests with this figure, as shipped: without variants and without the ablation."""
        chosen = (test.only(lambda group: not group.key.variant and group.of(figure) is not None
                          and (wanted is None or wanted(group))) for test in self.tests if test.suite != "ablation")
        return [test for test in chosen if test is not None]

    def label(self, key: Key) -> str:
        return label(key.broker, key.variant)

    def slot(self, key: Key) -> int:
        return self.slots[key.broker]

    # ------------------------------------------------------------ the usual charts and tables

    def bar(self, group: Group, value: Spread) -> Bar:
        return Bar(self.label(group.key), self.slot(group.key), bool(group.key.variant), value)

    def charts(self, test: Test, figure: Figure, title: str = "", limit: float | None = None) -> list[Chart]:
        """Return a line for each broker if a number was varied, else bars below each case."""
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
        """Return a table for each suite: a row for each test and case, a column for each broker."""
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
        """Return the groups case by case, with all brokers of a case together."""
        places = test.places
        return sorted(test.groups, key=lambda group: places.index((group.key.case, group.key.x)))

    def names(self, test: Test, group: Group) -> tuple[Cell, Cell, Cell]:
        return (words(test.title), test.place_cell(group.key.case, group.key.x),
                words(self.label(group.key), self.slot(group.key)))
