"""Write tables and plots of the ablation: the worth of each optimisation by size, and its costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perf import tables
from perf.ablation.rows import Cell, Row, cells, noise
from perf.ablation.variants import AGAIN, DEFAULT, VARIANTS

if TYPE_CHECKING:
    from pathlib import Path

ORDER = [v.name for v in VARIANTS]
RATIO_DRAWN = 20                # largest ratio of the plot; the brute force would leave no room for the others
LEAST_NOISE = 1.03              # least factor that counts as a difference


def place_of(cell: Cell) -> str:
    """Return the corpus with its size, or the scenario."""
    return f"{cell.place}, {tables.size_of(cell.n)}" if cell.n else cell.place


def gains(cell: Cell, limit: float) -> bool:
    """Return whether the gain is beyond noise in every repetition."""
    return cell.ratio > limit and cell.least > 1


def costs(cell: Cell, limit: float) -> bool:
    """Return whether the variant is faster than the default, beyond noise in every repetition."""
    return 0 < cell.ratio < 1 / limit and cell.most < 1


def worth(found: list[Cell]) -> str:
    """Return a table with the largest gain and cost of each switch and measure. Above 1 the default is better."""
    limits = noise(found)
    rows = []
    for variant in ORDER:
        if variant in (DEFAULT, AGAIN):
            continue
        measures = dict.fromkeys((c.part, c.measure) for c in found if c.variant == variant)
        for part, measure in measures:
            own = [c for c in found if (c.variant, c.part, c.measure) == (variant, part, measure) and c.ratio]
            if not own:
                continue
            limit = max(limits.get((part, measure), 1.0), LEAST_NOISE)
            best = max((c for c in own if gains(c, limit)), key=lambda c: c.ratio, default=None)
            worst = min((c for c in own if costs(c, limit)), key=lambda c: c.ratio, default=None)
            rows.append([variant, f"{part}: {measure}",
                         f"{tables.digits(best.ratio)} ({place_of(best)})" if best else "-",
                         f"{tables.digits(worst.ratio)} ({place_of(worst)})" if worst else "nowhere",
                         f"{limit:.2f}"])
    return tables.table(["without", "measure", "worth most", "costs most", "noise"], rows)


def ratio(cell: Cell | None) -> str:
    """Format the ratio of a cell, with its note."""
    if cell is None:
        return ""
    if not cell.ratio:
        return cell.note
    return tables.digits(cell.ratio) + (f" ({cell.note})" if cell.note else "")     # such as lost messages


def by_place(found: list[Cell], part: str, measure: str) -> str:
    """Return a table: a row for each place and size with the default's figure, a column for each variant with its
    ratio.
    """
    own = {(c.place, c.n, c.variant): c for c in found if (c.part, c.measure) == (part, measure)}
    names = [v for v in ORDER if v != DEFAULT and any(variant == v for _, _, variant in own)]
    rows = []
    places = list(dict.fromkeys(place for place, _, _ in own))
    for place, n in sorted({(place, n) for place, n, _ in own}, key=lambda at: (places.index(at[0]), at[1])):
        base = own.get((place, n, DEFAULT))
        line = [place, *([tables.size_of(n)] if part == "index" else [])]
        line.append(tables.digits(base.value) if base and base.value else "")
        rows.append(line + [ratio(own.get((place, n, name))) for name in names])
    heads = ["corpus", "size", "default"] if part == "index" else ["scenario", "default"]
    return tables.table([*heads, *names], rows)


def small(found: list[Cell]) -> str:
    """Return the switches that cost something with one client, one topic or one filter."""
    limits = noise(found)
    rows = []
    for c in found:
        if c.variant not in (DEFAULT, AGAIN) and c.ratio and (c.n == 1 or c.place == "one"):
            limit = max(limits.get((c.part, c.measure), 1.0), LEAST_NOISE)
            if costs(c, limit):
                rows.append([c.variant, f"{c.part}: {c.measure}", c.place, f"{c.ratio:.2f}", f"{limit:.2f}"])
    if not rows:
        return "None of the switches makes a small load faster when it is off, beyond noise.\n"
    return tables.table(["faster without", "measure", "place", "ratio", "noise"], rows)


def report(rows: list[Row]) -> str:
    """Return the report as Markdown."""
    found = cells(rows)
    parts = ["Ratios are to the default in the same repetition (medians): above 1, the default is better by so much. "
             "`default again` is the default once more: its distance from 1 is the noise.\n",
             tables.table(["without", "meaning"], [[v.name, v.what] for v in VARIANTS if v.name != DEFAULT]),
             f"### Worth of each optimisation\n\n{worth(found)}",
             f"### Small loads\n\n{small(found)}"]
    parts += [f"### {part}: {measure}\n\n{by_place(found, part, measure)}"
              for part, measure in dict.fromkeys((c.part, c.measure) for c in found)]
    return "\n".join(parts)


def plots(rows: list[Row], folder: Path) -> None:
    """Draw the plots of the ablation into a folder."""
    found = sorted((c for c in cells(rows) if c.ratio and c.variant != DEFAULT), key=lambda c: ORDER.index(c.variant))
    lines: dict[str, dict[str, tables.Points]] = {}
    for c in found:
        if c.part == "index" and c.measure == "match, wide":
            lines.setdefault(c.place, {}).setdefault(c.variant, []).append((c.n, c.ratio))
    if lines:
        tables.plot_lines(folder / "ablation-index.svg", lines, "filters",
                          f"match time : default's (up to {RATIO_DRAWN})", limits=(0.5, RATIO_DRAWN))
    bars: dict[str, dict[str, dict[str, float]]] = {}
    for c in found:
        if c.part == "broker":
            bars.setdefault(c.measure, {}).setdefault(c.place, {})[c.variant] = c.ratio
    if bars:
        tables.plot_bars(folder / "ablation-broker.svg", bars, "ratio to the default", at=1)
