"""Test actions that a client can repeat at the edges of the pools, and counters that only rise."""

import ctypes
import re
from collections.abc import Callable

import pytest
from cext.testing.base_api import PyCells, PySlab

CHUNK = 1 << 21
CELL = 512


def faults(turn: Callable[[], None], turns: int = 500) -> float:
    """Return the pages that the system had to supply for one turn."""
    def minor() -> int:
        with open("/proc/self/stat") as stat:
            return int(stat.read().rsplit(")", 1)[1].split()[7])
    turn()
    before = minor()
    for _ in range(turns):
        turn()
    return (minor() - before) / turns


def full_chunks(cells: PyCells, chunks: int) -> list[int]:
    """Take cells until exactly that many chunks are full: the next page needs another."""
    taken: list[int] = []
    while True:
        mapped = cells.mapped_bytes()
        taken.append(cells.take(CELL))
        if cells.mapped_bytes() > max(mapped, chunks * CHUNK):
            cells.give(taken.pop())
            return taken


def huge_kib() -> int:
    with open("/proc/self/smaps") as maps:
        return sum(map(int, re.findall(r"AnonHugePages:\s+(\d+)", maps.read())))


@pytest.mark.timing
def test_a_repeated_take_in_a_large_store_causes_no_page_fault() -> None:
    cells = PyCells()
    for _ in range(40_000):
        cells.take(64)
    assert faults(lambda: cells.give(cells.take(128))) < 0.1


@pytest.mark.timing
def test_a_repeated_take_at_a_chunk_border_causes_no_page_fault() -> None:
    cells = PyCells()
    full_chunks(cells, 2)
    assert faults(lambda: cells.give(cells.take(CELL))) < 0.1


@pytest.mark.timing
def test_large_stores_are_in_huge_pages() -> None:
    with open("/sys/kernel/mm/transparent_hugepage/enabled") as switch:
        if "[never]" in switch.read():
            return                              # not measurable on this system
    cells = PyCells()
    before = huge_kib()
    full_chunks(cells, 44)                      # the last twelve are beyond HUGE_FROM_BYTES
    assert huge_kib() - before >= 8 * CHUNK // 1024


@pytest.mark.timing
def test_an_idle_pool_stays_warm() -> None:
    slab = PySlab(64, 4096, 100_000)
    for index in [slab.take()[0] for _ in range(3 * 4096)]:
        slab.give(index)
    assert faults(lambda: slab.give(slab.take()[0])) < 0.1


def test_handles_stay_distinct_when_generations_wrap() -> None:
    slab = PySlab(64, 1, 0)
    words = (ctypes.c_uint32 * 64).from_address(id(slab))
    at = next(i for i in range(2, 60) if tuple(words[i:i + 3]) == (64, 1, 0))     # of the Slab in its test API
    words[at + 3] = 0xFFFF_FFF0                 # Slab.generations, as after 2**31 clients without a pool
    handles = []
    for _ in range(64):
        handles.append(slab.take())
        slab.give(handles[-1][0])
    assert len(set(handles)) == len(handles)
