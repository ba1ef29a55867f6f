"""Format figures for the report: cells, heads, lines and bars."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mosq.pipeline.report import gather
from mosq.tools.bench.html import numbers
from mosq.tools.bench.html.parts import TIME, Bar, Bars, Cell, Chart, Head, Line, Lines, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def names(*texts: str) -> tuple[Head, ...]:
    """Return heads for columns of words."""
    return tuple(Head(text, number=False) for text in texts)


def figures(*texts: str) -> tuple[Head, ...]:
    """Return heads for columns of numbers."""
    return tuple(map(Head, texts))


def number(kind: str, value: float | None, tone: str = "") -> Cell:
    """Return a cell for a value of a kind (see numbers.STEPS); None: empty."""
    return Cell("" if value is None else numbers.shown(kind, value), tone=tone)


def moment(value: Any) -> str:
    """Format a time of a table; Spark returns UTC without a time zone."""
    return value.strftime("%Y-%m-%d %H:%M:%S") if value is not None else ""


def moment_s(value: float) -> str:
    """Format seconds since 1970 as UTC."""
    return moment(datetime.fromtimestamp(value, UTC))


def seconds(value: float) -> str:
    """Format a duration for the reader."""
    for unit, name in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if value >= 2 * unit:
            return f"{value / unit:,.3g} {name}"
    return f"{value:,.3g} seconds"


def lines(title: str, kind: str, found: Iterable[Line | None]) -> list[Chart]:
    """Return a chart of the lines that have points, or none if all values are 0."""
    kept = tuple(one for one in found if one is not None and one.points)
    return (
        [Lines(title, kind, TIME, kept)] if kept and any(value.most for one in kept for _, value in one.points) else []
    )


def bars(title: str, kind: str, rows: Sequence[tuple[str, float]], slot: int = 0) -> list[Chart]:
    """Return a chart of the first values above 0, or none."""
    shown = tuple(Bar(label, slot, False, gather.once(value)) for label, value in rows[: gather.BARS] if value)
    return [Bars(title, kind, (("", shown),))] if shown else []


def listed(title: str, heads: tuple[Head, ...], rows: tuple[tuple[Cell, ...], ...]) -> Any:
    """Return a table of the first rows, and a folded table of all if there are more."""
    first = [Table(title, heads, rows[: gather.BARS])]
    return first, [] if len(rows) <= gather.BARS else [(f"The first {len(rows)}", Table(title, heads, rows))]
