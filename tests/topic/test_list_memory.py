"""Test the memory of subscriber lists: the first subscription of a filter is in its list, and moves when the list gets long or short."""

import random

import pytest
from cext.testing.topic_api import PyIndex
from tests.harness.effort import tries
from tests.topic.test_topic_index import assert_empty
from tests.topic.topic_brute import BruteIndex

FILTERS = [b"site/%d/device/%d/metric" % (i % 100, i) for i in range(10_000)]
ROUTE_BYTES_MAX = 120           # limit for a filter of another worker, beyond its text


def filled(*owners: int) -> PyIndex:
    index = PyIndex()
    for owner in owners:
        for filter_ in FILTERS:
            index.add(owner, filter_)
    return index


@pytest.mark.timing
def test_a_filter_with_one_subscriber_needs_little_memory() -> None:
    text = sum(map(len, FILTERS))
    one, two = (filled(*owners).stats()["bytes"] for owners in ((1,), (1, 2)))
    assert one - text <= ROUTE_BYTES_MAX * len(FILTERS)
    assert two - one <= ROUTE_BYTES_MAX * len(FILTERS)


@pytest.mark.timing
@pytest.mark.parametrize("left", [1, 2])
def test_a_filter_with_one_subscriber_left_needs_no_more(left: int) -> None:
    index = filled(1, 2)
    index.remove_some(3 - left)
    index.check()
    # the buckets depend on the key of the hash: a few bytes in all, and not for each filter
    assert abs(index.stats()["bytes"] - filled(left).stats()["bytes"]) < len(FILTERS)


@pytest.mark.again("properties")
@pytest.mark.parametrize("filter_", [b"a/b", b"a/+", b"$share/g/a/b"])
@pytest.mark.parametrize("seed", range(tries(4, 1)))
def test_each_owner_keeps_its_order_while_lists_get_long_and_short(filter_: bytes, seed: int) -> None:
    rng = random.Random(seed)
    index, brute = PyIndex(), BruteIndex()
    order: dict[int, list[bytes]] = {owner: [] for owner in range(1, 31)}
    handles: list[int] = []
    for step in range(1500):
        wanted = 30 if step // 150 % 2 else 1           # the list grows and shrinks over the limits of long lists
        owner, whole = rng.choice(sorted(order)), rng.choice([filter_, filter_, b"other/%d" % rng.randrange(3)])
        if rng.random() < (0.8 if len(brute.subs) < wanted else 0.2):
            index.add(owner, whole, 0, step)
            if (owner, whole) not in brute.subs:
                order[owner].insert(0, whole)
            brute.subs[owner, whole] = (0, step)
        elif whole in order[owner]:
            index.remove(owner, whole)
            order[owner].remove(whole)
            del brute.subs[owner, whole]
        if rng.random() < 0.05:
            handles += index.pin(b"a/b")
        elif rng.random() < 0.1:
            while handles:
                index.unpin(handles.pop())
        index.check()
        assert index.read(owner) == [(name, *brute.subs[owner, name]) for name in order[owner]]
    while handles:
        index.unpin(handles.pop())
    for owner in order:
        index.remove_some(owner)
    assert_empty(index)
