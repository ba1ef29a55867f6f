"""Define the parts of a section, without their form: tables of cells, and charts as plain figures.

The page, the CSV files and perf/RESULTS.md are made of these.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mosq.tools.bench.html import numbers

if TYPE_CHECKING:
    from mosq.tools.bench.html.figures import Spread

ROWS_DRAWN = 60                 # most rows of a chart; tables have the others
NEUTRAL = -1                    # slot of a bar that is not a broker


@dataclass(frozen=True)
class Cell:
    """Hold one cell of a table."""

    text: str = ""
    spread: str = ""            # the range of the repetitions
    marks: str = ""             # letters of figures.MARKS
    tone: str = ""              # good, bad, or empty
    slot: int | None = None     # the broker's colour, beside its name
    number: bool = True
    note: str = ""


def words(text: str, slot: int | None = None, tone: str = "", note: str = "") -> Cell:
    """Return a cell of text."""
    return Cell(text, slot=slot, tone=tone, number=False, note=note)


def cell(kind: str, value: Spread | None, marks: str = "") -> Cell:
    """Return a cell of a figure with its spread; None: only the marks."""
    if value is None:
        return Cell(marks=marks)
    return Cell(numbers.shown(kind, value.median), numbers.spread_of(kind, value), marks)


@dataclass(frozen=True)
class Head:
    """Hold the head of a column."""

    text: str
    slot: int | None = None
    number: bool = True


@dataclass(frozen=True)
class Table:
    """Hold a table; all rows have as many cells as there are heads."""

    title: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[Cell, ...], ...]

    def spans(self) -> list[int]:
        """Return for each row how many rows its first cell spans; 0 if the cell above covers it."""
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
    """Hold one bar; `slot` selects the colour."""

    label: str
    slot: int
    variant: bool
    value: Spread


@dataclass(frozen=True)
class Bars:
    """Hold horizontal bars, each group below its heading."""

    title: str
    kind: str
    groups: tuple[tuple[str, tuple[Bar, ...]], ...]
    limit: float | None = None          # position of a line for a promised figure


@dataclass(frozen=True)
class Line:
    """Hold one line of (x, spread)."""

    label: str
    slot: int
    variant: bool
    points: tuple[tuple[float, Spread], ...]


TIME = "time"                   # x_name of charts over time; x is in seconds since 1970


@dataclass(frozen=True)
class Lines:
    """Hold a chart of lines."""

    title: str
    kind: str
    x_name: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Curve:
    """Hold one curve of quantiles."""

    label: str
    slot: int
    points: tuple[tuple[float, float], ...]     # (share that took longer, microseconds)


@dataclass(frozen=True)
class Curves:
    """Hold quantiles up to the slowest, with two logarithmic axes."""

    title: str
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Dots:
    """Hold a row of dots below each label, on a logarithmic axis; ratios have a line at 1."""

    title: str
    kind: str
    rows: tuple[tuple[str, tuple[Bar, ...]], ...]
    axis: str


Chart = Bars | Lines | Curves | Dots


@dataclass
class Section:
    """Hold one section of a page."""

    id: str
    heading: str
    sentence: str
    charts: list[Chart] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    folded: list[tuple[str, Table]] = field(default_factory=list)  # (title, table) of long tables
    facts: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    folds: list[tuple[str, str]] = field(default_factory=list)     # (title, text)
    empty: str = ""             # reason to leave the section out

    @property
    def filled(self) -> bool:
        return bool(self.charts or self.tables or self.facts or self.warnings or self.notes)
