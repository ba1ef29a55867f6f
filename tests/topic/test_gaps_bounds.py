"""A list that a fan-out pinned while its subscribers left: what remains to be done afterwards is done in bounded steps."""

import time

import pytest
from cext.topic.face import IndexFace

MANY = 200_000


@pytest.mark.timing
@pytest.mark.parametrize("left", [0, 3])
def test_no_pause_where_a_list_of_gaps_ends(left: int) -> None:
    worst_s = 1.0
    for _ in range(3):
        index = IndexFace()
        for owner in range(1, MANY + 1):
            index.add(owner, b"a")
        handle, = index.pin(b"a")
        for owner in range(left + 1, MANY + 1):
            index.remove(owner, b"a")
        while index.tidy(handle):
            pass
        start = time.perf_counter()
        index.unpin(handle)
        for owner in range(1, left + 1):
            index.remove(owner, b"a")
        worst_s = min(worst_s, time.perf_counter() - start)
    assert worst_s < 100e-6     # 1 ms at 1 M


def test_gaps_are_given_back_after_the_last_unpin() -> None:
    index = IndexFace()
    for owner in range(1, 20_001):
        index.add(owner, b"a")
    handle, = index.pin(b"a")
    for owner in range(4, 20_001):
        index.remove(owner, b"a")
    while index.tidy(handle):
        pass
    index.unpin(handle)
    assert index.stats()["bytes"] < 3 * 2000
