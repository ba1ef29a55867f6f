"""Test cells against a dictionary: none overlap, all are counted, and returned memory is returned."""

import random

import pytest
from cext.testing.base_api import PyCells

from tests.harness.effort import SANITIZED

PLAIN = SANITIZED            # a sanitized build allocates every object by malloc
CHUNK = 1 << 21


@pytest.mark.parametrize("seed", range(4))
def test_cells_are_taken_and_given_in_any_order(seed: int) -> None:
    rng, cells = random.Random(seed), PyCells()
    here: list[int] = []
    for growing in (0.7, 0.3, 0.9, 0.1):
        for _ in range(6000):
            if rng.random() < growing or not here:
                n = rng.choice((0, 1, 16, 17, 48, 511, 512, 513, 5000, rng.randint(1, 600)))
                here.append(cells.take(n, zeroed=rng.random() < 0.2))
            else:
                i = rng.randrange(len(here))
                here[i], here[-1] = here[-1], here[i]
                cells.give(here.pop())
        assert cells.used_bytes() == cells.counted_bytes()
    for number in here:
        cells.give(number)
    assert cells.used_bytes() == 0
    assert cells.mapped_bytes() <= 2 * CHUNK            # spare pages, and an empty chunk


def test_chunks_are_mapped_and_freed() -> None:
    cells = PyCells()
    numbers = [cells.take(64) for _ in range(8 * CHUNK // 64)]
    if PLAIN:
        assert cells.mapped_bytes() == 0
        return
    assert 8 * CHUNK < cells.mapped_bytes() <= 9 * CHUNK
    for number in numbers[: len(numbers) * 3 // 4]:
        cells.give(number)
    assert cells.mapped_bytes() <= 5 * CHUNK            # two chunks and a part in use, one with the spare page, one empty
    for _ in numbers[: len(numbers) // 4]:
        cells.take(64)                                  # freed cells are used first
    assert cells.mapped_bytes() <= 5 * CHUNK


def test_large_objects() -> None:
    cells = PyCells()
    for n in (100_000, 1 << 18, 5_000_000):
        number = cells.take(n, zeroed=True)
        assert n <= cells.used_bytes() <= n + 4096 + 16
        cells.give(number)
        assert cells.used_bytes() == 0


def test_a_cell_taken_and_given_repeatedly_keeps_its_chunk() -> None:
    cells = PyCells()
    for _ in range(3):
        cells.give(cells.take(48))
    assert cells.mapped_bytes() <= CHUNK
