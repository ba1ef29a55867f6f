"""Write Markdown tables and plots in the same form for every report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

Points = list[tuple[float, float]]
Row = dict[str, Any]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    return "\n".join(["| " + " | ".join(line) + " |" for line in (heads, ["---"] * len(heads), *rows)]) + "\n"


def size_of(n: int) -> str:
    for unit, name in ((1_000_000, "M"), (1_000, "k")):
        if n >= unit and n % unit == 0:
            return f"{n // unit} {name}"
    return str(n)


def digits(value: float) -> str:
    """Format a value with as many digits as the measurement is exact."""
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def duration(ns: float) -> str:
    """Format nanoseconds with three digits, in the unit that fits."""
    unit, name = next(((u, s) for u, s in ((1e6, "ms"), (1e3, "us")) if ns >= u), (1.0, "ns"))
    value = ns / unit
    return f"{value:.{0 if value >= 100 or unit == 1 else 1 if value >= 10 else 2}f} {name}"


def plot_lines(path: Path, panels: Mapping[str, Mapping[str, Points]], x: str, y: str,
               limits: tuple[float, float] | None = None) -> None:
    """Draw one panel per title and one line per name, with two logarithmic axes."""
    from matplotlib.figure import Figure
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(4.2 * columns, 3.2 * rows), layout="constrained")
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    for at, (title, lines) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(rows, columns, at)
        for name, points in lines.items():
            axes.plot(*zip(*sorted(points), strict=True), marker="o", markersize=3, color=f"C{names.index(name)}",
                      label=name)
        axes.set(title=title, xscale="log", yscale="log", xlabel=x, ylabel=y)
        if limits:
            axes.set_ylim(*limits)
        axes.grid(alpha=0.3)
        if at == 1:
            axes.legend(fontsize=8)
    save(figure, path)


def plot_bars(path: Path, panels: Mapping[str, Mapping[str, Mapping[str, float]]], x: str, at: float = 0) -> None:
    """Draw one panel per title, one group of bars per name, one bar per kind; bars begin at `at`: 1 for ratios."""
    from matplotlib.figure import Figure
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    groups = max(len(bars) for bars in panels.values())
    figure = Figure(figsize=(5.5 * columns, (0.45 * groups + 1.2) * rows), layout="constrained")
    kinds = list(dict.fromkeys(kind for panel in panels.values() for bars in panel.values() for kind in bars))
    width = 0.8 / len(kinds)
    for spot, (title, panel) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(rows, columns, spot)
        for i, kind in enumerate(kinds):
            spots = [(row + i * width, bars[kind]) for row, bars in enumerate(panel.values()) if kind in bars]
            if spots:
                axes.barh([y for y, _ in spots], [value - at for _, value in spots], width, at, align="edge",
                          color=f"C{i}", label=kind)
        axes.set_yticks([row + 0.4 for row in range(len(panel))], list(panel), fontsize=8)
        if at:
            axes.axvline(at, color="black", linewidth=0.8)
            axes.set_xscale("log")
        axes.set(title=title, xlabel=x)
        axes.invert_yaxis()
        if spot == 1:
            axes.legend(fontsize=7)
    save(figure, path)


def save(figure: object, path: Path) -> None:
    """Write a figure of matplotlib as SVG."""
    import matplotlib
    path.parent.mkdir(parents=True, exist_ok=True)
    # equal figures give equal bytes
    with matplotlib.rc_context({"svg.hashsalt": path.name, "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})   # type: ignore[attr-defined]


# ---- files of figures, one for each measurement (perf/kept.py writes them)

def files(folder: Path, what: str = "") -> list[tuple[str, Row]]:
    """Return the names and contents of the files of one kind of measurement, or of all; one kind may have several."""
    return [(file.stem, json.loads(file.read_text(encoding="utf-8"))) for file in sorted(folder.glob(f"{what}*.json"))]


def rows_of(folder: Path, what: str) -> list[Row]:
    return [row for _, content in files(folder, what) for row in content["rows"]]


def parts_of(folder: Path,
             parts: Sequence[tuple[str, str, str, list[str], Callable[[Row], list[str]]]]) -> Iterator[str]:
    """Yield a table for each part that has figures, and when each file was measured."""
    for what, title, text, heads, cells in parts:
        if found := rows_of(folder, what):
            yield f"### {title}\n\n{text}\n"
            yield table(heads, [cells(row) for row in found])
    times = [f"- {name}: {one['measured']}, commit {one['commit']}" for name, one in files(folder)]
    yield "Measured:\n\n" + "\n".join(times) + "\n"
