"""What a section is made of, without saying how it is drawn or printed: tables of cells, and charts as plain figures.
The page, the CSV files and perf/RESULTS.md are made of these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mosq.tools.bench.html import numbers

if TYPE_CHECKING:
    from mosq.tools.bench.html.figures import Spread

ROWS_DRAWN = 60                 # of a chart, at most; tables have the others
NEUTRAL = -1                    # the slot of what is no broker


@dataclass(frozen=True)
class Cell:
    text: str = ""
    spread: str = ""            # the range of the repetitions
    marks: str = ""             # letters of figures.MARKS
    tone: str = ""              # good, bad, or empty
    slot: int | None = None     # the broker's colour, beside its name
    number: bool = True
    note: str = ""


def words(text: str, slot: int | None = None, tone: str = "", note: str = "") -> Cell:
    return Cell(text, slot=slot, tone=tone, number=False, note=note)


def cell(kind: str, value: Spread | None, marks: str = "") -> Cell:
    if value is None:
        return Cell(marks=marks)
    return Cell(numbers.shown(kind, value.median), numbers.spread_of(kind, value), marks)


@dataclass(frozen=True)
class Head:
    text: str
    slot: int | None = None
    number: bool = True


@dataclass(frozen=True)
class Table:
    title: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def spans(self) -> list[int]:
        """Of each row, how many rows its first cell stands for: 0 where the one above says it."""
        spans: list[int] = []
        first = 0
        for at, row in enumerate(self.rows):
            if at and row[0] == self.rows[first][0]:
                spans[first] += 1
                spans.append(0)
            else:
                first = at
                spans.append(1)
        return spans


@dataclass(frozen=True)
class Bar:
    label: str
    slot: int
    variant: bool
    value: Spread


@dataclass(frozen=True)
class Bars:
    """Bars that lie, below the heading of what they belong to."""

    title: str
    kind: str
    groups: tuple[tuple[str, tuple[Bar, ...]], ...]
    limit: float | None = None          # a line for what was promised


@dataclass(frozen=True)
class Line:
    label: str
    slot: int
    variant: bool
    points: tuple[tuple[float, Spread], ...]


TIME = "time"                   # x_name of what is drawn over time: x is in seconds since 1970


@dataclass(frozen=True)
class Lines:
    title: str
    kind: str
    x_name: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Curve:
    label: str
    slot: int
    points: tuple[tuple[float, float], ...]     # share that took longer, microseconds


@dataclass(frozen=True)
class Curves:
    """Quantiles up to the slowest, both axes logarithmic."""

    title: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Dots:
    """A row of dots below each label, on a logarithmic axis; ratios have a line at 1."""

    title: str
    kind: str
    rows: tuple[tuple[str, tuple[Bar, ...]], ...]
    axis: str


Chart = Bars | Lines | Curves | Dots


@dataclass
class Section:
    id: str
    heading: str
    sentence: str
    charts: list[Chart] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    folded: list[tuple[str, Table]] = field(default_factory=list)  # long ones: what they are, the table
    facts: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    folds: list[tuple[str, str]] = field(default_factory=list)     # title, text as it is
    empty: str = ""             # why it would be left out

    @property
    def filled(self) -> bool:
        return bool(self.charts or self.tables or self.facts or self.warnings or self.notes)
