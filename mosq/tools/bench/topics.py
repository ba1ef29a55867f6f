"""Define the topic space of `subscribe` and `match`: sites x 100 devices x 10 metrics.

Topic and filter number j of a kind have the same place in this space. So the filters that a topic matches follow from
arithmetic, at most one of each kind.
"""

from __future__ import annotations

import random

MIX = ("exact",) * 6 + ("plus",) * 3 + ("hash",)
KINDS = ("mix", "exact", "plus", "hash")
DEVICES, METRICS = 100, 10                  # devices of a site; metrics of a device
SMALL = 100_000                             # topics of a small space


class Corpus:
    """Generate `n` different filters, of one kind or mixed 6:3:1."""

    def __init__(self, kind: str, n: int) -> None:
        self.of_kind = [MIX[i % len(MIX)] if kind == "mix" else kind for i in range(n)]
        self.mixed = kind == "mix"
        self.counts = {one: self.of_kind.count(one) for one in KINDS}
        topics_of_site = DEVICES * METRICS
        self.sites = max(1, -(-max(self.counts["exact"], self.counts["plus"]) // topics_of_site),
                         -(-self.counts["hash"] // DEVICES))
        self.space = self.sites * topics_of_site

    def filters(self) -> list[str]:
        numbers, found = dict.fromkeys(KINDS, 0), []
        for one in self.of_kind:
            found.append(self._filter(one, numbers[one]))
            numbers[one] += 1
        return found

    def _place(self, number: int) -> tuple[str, int, int, int]:
        """Return the place of a number; neighbouring numbers differ in the site."""
        site, rest = number % self.sites, number // self.sites
        return chr(ord("a") + site % 26), site, rest % DEVICES, rest // DEVICES

    def _filter(self, kind: str, number: int) -> str:
        letter, site, device, metric = self._place(number)
        if kind == "hash":
            return f"{letter}site/{site}/device/{device}/#"
        if kind == "exact":
            return self.topic(number)
        return (f"{letter}site/{site}/device/{device}/+/{metric}", f"{letter}site/{site}/+/{device}/metric/{metric}",
                f"+/{site}/device/{device}/metric/{metric}")[number % 3]

    def topic(self, number: int) -> str:
        letter, site, device, metric = self._place(number)
        return f"{letter}site/{site}/device/{device}/metric/{metric}"

    def matches(self, number: int) -> list[int]:
        """Return the positions in filters() of the filters that match this topic."""
        found = [("exact", number), ("plus", number), ("hash", number % (self.sites * DEVICES))]
        return [self._index(kind, j) for kind, j in found if j < self.counts[kind]]

    def _index(self, kind: str, number: int) -> int:
        if not self.mixed:
            return number
        each = MIX.count(kind)
        return number // each * len(MIX) + MIX.index(kind) + number % each

    def drawn(self, n: int) -> list[int]:
        """Return topics that match, all or n drawn by chance, the same ones in each run.

        Their order is independent of the order of the filters.
        """
        dice = random.Random(self.space)
        tries = min(self.space, max(2 * n, SMALL))      # in a larger space nearly every topic matches
        return [number for number in dice.sample(range(self.space), tries) if self.matches(number)][:n]
