"""Define the rows of the ablation: one figure of one variant in one repetition."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from perf.ablation.variants import AGAIN, DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True)
class Row:
    """Hold one figure of one variant in one repetition."""

    part: str                   # index, broker
    measure: str                # such as "match, hot", in ns, us or bytes
    place: str                  # a corpus or a scenario
    n: int                      # number of filters; 0: given by the scenario
    variant: str
    rep: int
    value: float                # 0: it failed or took too long, and `note` has the reason
    note: str = ""


@dataclass(frozen=True)
class Cell:
    """Compare a variant with the default of the same repetition."""

    part: str
    measure: str
    place: str
    n: int
    variant: str
    value: float                # median over the repetitions
    ratio: float                # median of the ratios; 0: none, and `note` has the reason
    least: float
    most: float
    note: str = ""


def read(path: Path) -> list[Row]:
    """Read the rows of a file."""
    return [Row(**json.loads(line)) for line in path.read_text().splitlines()]


def write(path: Path, rows: Iterable[Row]) -> list[Row]:
    """Write the rows as they arrive, so that a later failure loses none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = []
    with path.open("w") as file:
        for row in rows:
            file.write(json.dumps(asdict(row)) + "\n")
            file.flush()
            written.append(row)
    return written


def cells(rows: Iterable[Row]) -> list[Cell]:
    """Return the medians and ratios of all rows, in the order of the rows."""
    groups: dict[tuple[str, str, str, int, str], dict[int, Row]] = {}
    for row in rows:
        groups.setdefault((row.part, row.measure, row.place, row.n, row.variant), {})[row.rep] = row
    found = []
    for key, reps in groups.items():
        base = groups.get((*key[:4], DEFAULT), {})
        ratios = [row.value / base[rep].value for rep, row in reps.items()
                  if row.value and rep in base and base[rep].value]
        note = next((row.note for row in reps.values() if row.note), "")
        if ratios:
            value = statistics.median(row.value for row in reps.values() if row.value)
            found.append(Cell(*key, value, statistics.median(ratios), min(ratios), max(ratios), note))
        else:
            found.append(Cell(*key, 0, 0, 0, 0, note or "no figure"))
    return found


def noise(found: Iterable[Cell]) -> dict[tuple[str, str], float]:
    """Return for each part and measure the largest distance of the default from itself, as a factor."""
    most: dict[tuple[str, str], float] = {}
    for cell in found:
        if cell.variant == AGAIN and cell.ratio:
            key = cell.part, cell.measure
            most[key] = max(most.get(key, 1.0), cell.ratio, 1 / cell.ratio)
    return most
