"""Make the steps of a session from a seed. tests/fuzz/sessions and tests/differential each say what a step is."""

from __future__ import annotations

import random
from typing import Any, ClassVar

from tests.harness.properties import Props

Step = tuple[Any, ...]      # plain values, which JSON can hold


class Maker:
    """Make one session. `wild`: share of the packets that are damaged; 0 = all packets are valid."""

    clients: ClassVar[int]                  # how many
    lengths: ClassVar[tuple[int, ...]]      # of a session, in steps
    wilds: ClassVar[tuple[float, ...]]      # values of `wild`
    sizes: ClassVar[tuple[int, ...]]        # of a payload, in bytes behind its number
    share: ClassVar[float]                  # of the packets that have a property

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.wild = self.r.choice(self.wilds)
        self.level: dict[int, int] = {}     # by client that is connected: its MQTT version
        self.serial = 0

    def steps(self) -> list[Step]:
        made: list[Step] = []
        for _ in range(self.r.choice(self.lengths)):
            made += self.next()
        return made

    def next(self) -> list[Step]:
        n = self.r.randrange(self.clients)
        return self.some(n) if n in self.level else [self.open(n)]

    def some(self, n: int) -> list[Step]:
        """Return the next steps of client n, which is connected."""
        raise NotImplementedError

    def open(self, n: int) -> Step:
        raise NotImplementedError

    def some_of(self, *props: tuple[int, Any], share: float = 0) -> Props:
        return tuple(one for one in props if self.r.random() < (share or self.share))

    def payload(self) -> bytes:
        self.serial += 1
        return b"%d:" % self.serial + b"x" * self.r.choice(self.sizes)
