"""The topic space of `subscribe`: sites x 100 devices x 10 metrics. How many topics a filter matches is
known and small: with + and # ten at most.
"""

from __future__ import annotations

MIX = ("exact",) * 6 + ("plus",) * 3 + ("hash",)
KINDS = ("mix", "exact", "plus", "hash")


def filters_of(kind: str, n: int) -> list[str]:
    """n different filters, of one kind or mixed 6:3:1."""
    counts = dict.fromkeys(KINDS, 0)
    kinds = [MIX[i % 10] if kind == "mix" else kind for i in range(n)]
    sites = max(1, -(-max(kinds.count("exact"), kinds.count("plus")) // 1000), -(-kinds.count("hash") // 100))
    found = []
    for one in kinds:
        found.append(_filter(one, counts[one], sites))
        counts[one] += 1
    return found


def _filter(kind: str, number: int, sites: int) -> str:
    site, rest = number % sites, number // sites
    device, metric = rest % 100, rest // 100
    letter = chr(ord("a") + site % 26)
    if kind == "hash":
        return f"{letter}site/{site}/device/{device}/#"
    if kind == "exact":
        return f"{letter}site/{site}/device/{device}/metric/{metric}"
    return (f"{letter}site/{site}/device/{device}/+/{metric}", f"{letter}site/{site}/+/{device}/metric/{metric}",
            f"+/{site}/device/{device}/metric/{metric}")[number % 3]
