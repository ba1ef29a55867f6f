"""Test a list that a fan-out pins while its subscribers leave: the index then closes the gaps in bounded steps."""

import pytest
from cext.testing.topic_api import PyIndex

MANY = 100_000
STEP_MAX = 1000     # gaps that one step may close


@pytest.mark.parametrize("left", [0, 3])
def test_closing_gaps_does_not_pause_at_the_end_of_a_list(left: int) -> None:
    """Test that the index closes nearly all gaps and frees their memory before the last unpin, in many small steps."""
    index = PyIndex()
    for owner in range(1, MANY + 1):
        index.add(owner, b"a")
    full = index.stats()["bytes"]
    handle, = index.pin(b"a")
    for owner in range(left + 1, MANY + 1):
        index.remove(owner, b"a")
    steps, places = 0, len(index.pinned(handle))
    while index.tidy(handle):
        steps += 1
        if steps % 50 == 0:
            assert places - len(index.pinned(handle)) <= 50 * STEP_MAX
            places = len(index.pinned(handle))
    assert steps >= MANY // STEP_MAX
    assert len(index.pinned(handle)) == left
    assert index.stats()["bytes"] < full // 20
    index.unpin(handle)
    for owner in range(1, left + 1):
        index.remove(owner, b"a")
    index.check()


def test_memory_of_gaps_is_freed_after_the_last_unpin() -> None:
    index = PyIndex()
    for owner in range(1, 20_001):
        index.add(owner, b"a")
    handle, = index.pin(b"a")
    for owner in range(4, 20_001):
        index.remove(owner, b"a")
    while index.tidy(handle):
        pass
    index.unpin(handle)
    assert index.stats()["bytes"] < 3 * 2000
