"""Format figures for readers: three digits, in the unit that fits, with the spread in the same unit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mosq.tools.bench.html.figures import Spread

NARROW = "\N{NARROW NO-BREAK SPACE}"
TIMES = "\N{MULTIPLICATION SIGN}"
# for each kind: least value, divisor, unit
STEPS = {
    "rate": ((1e6, "M/s"), (1e3, "k/s"), (1.0, "/s")),
    "time": ((1e6, "s"), (1e3, "ms"), (1.0, "µs")),         # figures are in microseconds
    "cpu": ((1e6, "s"), (1e4, "ms"), (1.0, "µs")),
    "bytes": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "ratio": ((1.0, TIMES),),
    "count": ((1.0, ""),),
    "value": ((1.0, ""),),                                  # of any sign
}
DIVIDED = {("cpu", "ms"): 1e3}


def digits(value: float) -> str:
    """Format three significant digits; thousands are whole numbers."""
    if not value:
        return "0"
    places = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, places)
    return f"{rounded:,.{max(0, min(places, 6))}f}" if abs(rounded) < 1e15 else f"{rounded:.3g}"


def unit(kind: str, value: float) -> tuple[float, str]:
    """Return the divisor and the name of the unit that fits a value."""
    least, name = next((step for step in STEPS[kind] if abs(value) >= step[0]), STEPS[kind][-1])
    return DIVIDED.get((kind, name), least), name


def shown(kind: str, value: float) -> str:
    """Format a value of a kind (see STEPS) with its unit."""
    factor, name = unit(kind, value)
    if kind == "count":
        return f"{value:,.0f}"
    return digits(value / factor) + (NARROW + name if name else "")


def spread_of(kind: str, value: Spread) -> str:
    """Return the range of the repetitions, in the unit of their median."""
    if value.n < 2:
        return ""
    factor, _ = unit(kind, value.median)
    return f"{digits(value.least / factor)}\N{EN DASH}{digits(value.most / factor)}"


def times(value: float) -> str:
    """Format a ratio."""
    return f"{digits(value)}{NARROW}{TIMES}"


def percent(share: float) -> str:
    """Format a change: 0.031 is +3.1 %."""
    return f"{share * 100:+,.{0 if abs(share) >= 0.1 else 1}f}{NARROW}%".replace("-", "\N{MINUS SIGN}")


def size(value: float) -> str:
    """Format the size of a payload: 100 B, 10 kB, 1 MB."""
    factor, name = unit("bytes", value)
    return f"{value / factor:g}{NARROW}{name}"


def place(x: float, x_name: str) -> str:
    """Format the number of a case with its unit."""
    return size(x) if x_name == "bytes" else f"{x:,g} {x_name}".rstrip() if x < 1e6 else f"{x:,.0f} {x_name}".rstrip()
