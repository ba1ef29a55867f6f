"""Match a topic in parts: compare the parts with brute force, also when the index changes between them."""

import random
from typing import Any

import pytest
from cext.testing.topic_api import PyIndex
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.harness.effort import tries
from tests.topic.test_topic_index import Entry, assert_empty, live
from tests.topic.topic_brute import BruteIndex, matches, split_share

LEVELS = [b"a", b"b", b""]
Found = set[tuple[bytes, Entry]]


def narrow_filter(rng: random.Random) -> bytes:
    """Return a filter over few levels, so that many filters match the same topic."""
    parts = [rng.choice([b"+", *LEVELS]) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.3:
        parts.append(b"#")
    whole = b"/".join(parts) or b"+"
    return b"$share/" + rng.choice([b"g", b"h", b"i"]) + b"/" + whole if rng.random() < 0.4 else whole


class Walk:
    """A match in parts. The subscriptions found so far are a list, because nothing may be found twice."""

    def __init__(self, index: PyIndex, topic: bytes) -> None:
        self.index, self.topic = index, topic
        self.found: list[tuple[bytes, Entry]] = []
        self.more = True
        self.begun = False
        self.longest = 0

    def part(self, steps: int) -> None:
        plain, groups, _, self.more, taken = self.index.match_some(self.topic, steps, self.begun)
        self.begun = True
        self.longest = max(self.longest, taken)
        self.found += [(b"", e) for entries in plain for e in live(entries)]
        self.found += [(name, e) for name, entries in groups for e in live(entries)]

    def whole(self, steps: int) -> list[tuple[bytes, Entry]]:
        while self.more:
            self.part(steps)
        return sorted(self.found)


def expected(brute: BruteIndex, topic: bytes) -> list[tuple[bytes, Entry]]:
    plain, groups = brute.match(topic)
    return sorted([(b"", e) for entries in plain for e in entries] + [(name, e) for name, entries in groups for e in entries])


@pytest.mark.again("properties")
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 7), cache=st.sampled_from([0, 64]))
@settings(max_examples=tries(150), deadline=None)
def test_parts_together_are_the_whole_match(seed: int, steps: int, cache: int) -> None:
    rng = random.Random(seed)
    index, brute = PyIndex(match_cache=cache), BruteIndex()
    for i in range(rng.randint(0, 60)):
        filter_, owner = narrow_filter(rng), rng.randint(1, 3)
        index.add(owner, filter_, 0, i)
        brute.subs[owner, filter_] = (0, i)
    for _ in range(3):
        topic = b"/".join(rng.choice(LEVELS) for _ in range(rng.randint(1, 4))) or b"a"
        walk = Walk(index, topic)
        assert walk.whole(steps) == expected(brute, topic)
        assert walk.longest <= steps
    index.check()


@pytest.mark.again("properties")
@given(seed=st.integers(0, 2**32))
@settings(max_examples=tries(150), deadline=None)
def test_parts_find_all_that_stays_when_the_index_changes_between_them(seed: int) -> None:
    rng = random.Random(seed)
    index, brute = PyIndex(), BruteIndex()

    def change(i: int) -> None:
        filter_, owner = narrow_filter(rng), rng.randint(1, 3)
        if rng.random() < 0.5:
            brute.subs.pop((owner, filter_), None)
            index.remove(owner, filter_)
        else:
            index.add(owner, filter_, 0, i)
            brute.subs[owner, filter_] = (0, i)

    for i in range(60):
        filter_, owner = narrow_filter(rng), rng.randint(1, 3)
        index.add(owner, filter_, 0, i)
        brute.subs[owner, filter_] = (0, i)
    topic = b"/".join(rng.choice(LEVELS) for _ in range(rng.randint(1, 4))) or b"a"
    walk = Walk(index, topic)
    stayed = dict(brute.subs)
    while walk.more:
        walk.part(rng.randint(1, 5))
        index.check()
        for i in range(rng.randint(0, 4)):
            change(100 + i)
            stayed = {key: value for key, value in stayed.items() if brute.subs.get(key, value)[1] < 100 and key in brute.subs}
    places = [(name, who, sub_id) for name, (who, sub_id, _) in walk.found if sub_id < 100]
    assert len(set(places)) == len(places), "found twice"
    for (owner, whole), (_, sub_id) in stayed.items():
        group, filter_ = split_share(whole)
        assert not matches(filter_, topic) or (group, owner, sub_id) in places, whole
    for owner in (1, 2, 3):
        index.remove_some(owner)
    assert_empty(index)


def test_a_match_takes_no_more_steps_than_it_was_granted_among_thousands_of_branches() -> None:
    index = PyIndex()
    for choice in range(1 << 12):
        index.add(1, b"/".join(b"+" if choice >> bit & 1 else b"a" for bit in range(12)) + b"/x", 0, choice)
    topic = b"a/" * 12 + b"y"
    walk = Walk(index, topic)
    assert walk.whole(100) == []
    assert walk.longest <= 100
    *_, more, taken = index.match_some(topic, 1 << 20)
    assert not more
    assert taken >= 1 << 12


def test_thousands_of_groups_on_one_filter_are_matched_in_parts() -> None:
    index = PyIndex()
    for filter_ in (b"a/b", b"a/+", b"a/b/#"):
        for group in range(500):
            index.add(1 + group, b"$share/g%d/" % group + filter_, 0, group)
    walk = Walk(index, b"a/b")
    found = walk.whole(30)
    assert walk.longest <= 30
    assert sorted(sub_id for _, (_, sub_id, _) in found) == sorted(3 * list(range(500)))
    index.check()


def test_a_match_that_is_left_pins_nothing() -> None:
    index = PyIndex()
    for group in range(10):
        index.add(1 + group, b"$share/g%d/a" % group)
    assert index.match_some(b"a", 5)[3]
    index.match_leave()
    for group in range(10):
        index.remove_some(1 + group)
    assert_empty(index)


@pytest.mark.parametrize(("filters", "topic"), [
    ([b"a/+", b"$share/g/a/b", b"$share/g/+/#", b"b/+", b"#"], b"a/b"),
    ([b"$SYS/#", b"#"], b"$SYS/x"),
])
def test_a_subscription_reports_whether_it_matches(filters: list[bytes], topic: bytes) -> None:
    index = PyIndex()
    for filter_ in filters:
        index.add(1, filter_)
    assert index.matching(1, topic) == [matches(split_share(f)[1], topic) for f in reversed(filters)]


def test_only_a_whole_match_is_put_into_the_cache() -> None:
    index: Any = PyIndex(match_cache=64)
    for i, filter_ in enumerate([b"a/+", b"+/b", b"a/#", b"+/+"], start=1):
        index.add(i, filter_)
    for _ in range(3):
        assert len(Walk(index, b"a/b").whole(2)) == 4
    assert index.stats()["cache_hits"] == 0
    assert [len(index.match(b"a/b")[0]) for _ in range(2)] == [4, 4]
    assert index.stats()["cache_hits"] == 1
