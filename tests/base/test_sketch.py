"""Test the sketch of frequent names against exact counts: its bounds of error, its memory of a name, and its heap and chains."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cext.testing.base_api import PySketch

NAMES, TEXT = 512, 256


def check_bounds(sketch: PySketch, exact: Counter[bytes]) -> None:
    """Check each bound that the head of sketch.pyx names."""
    sketch.check()
    total = sum(exact.values())
    found = {(text, n): (count, error) for text, n, count, error, _ in sketch.names()}
    assert sum(count for count, _ in found.values()) == total
    for (text, n), (count, error) in found.items():
        assert n == len(text)
        assert count - error <= exact[text] <= count
        assert error <= total / NAMES
    for name, count in exact.items():
        if count > total / NAMES:
            assert (name, len(name)) in found
        elif (name, len(name)) not in found:
            assert count <= sketch.least()


@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(1, 1000)), max_size=300))
def test_few_names_are_counted_exactly(stream):
    sketch, exact, weights = PySketch(), Counter(), Counter()
    for name, weight in stream:
        sketch.add(name, weight, 2 * weight)
        exact[name] += weight
        weights[name] += 2 * weight
    sketch.check()
    assert {text: (count, error, n_bytes) for text, _, count, error, n_bytes in sketch.names()} == {
        name: (count, 0, weights[name]) for name, count in exact.items()}
    assert sketch.least() == 0


@pytest.mark.parametrize("seed", range(6))
def test_bounds_hold_for_streams_of_many_names(seed):
    random = Random(seed)
    sketch, exact = PySketch(), Counter()
    for i in range(30_000):
        kind = random.random()
        if kind < 0.3:
            name = b"hot/%d" % random.randrange(20)
        elif kind < 0.6:
            name = b"warm/%d" % int(random.paretovariate(0.7))
        else:
            name = b"cold/%d" % i
        weight = random.choice((1, 1, 1, 7)) if seed % 2 else 1
        sketch.add(name, weight)
        exact[name] += weight
        if i in (100, 511, 512, 513, 5000):
            check_bounds(sketch, exact)
    check_bounds(sketch, exact)
    assert {name for name, _ in exact.most_common(15)} <= {text for text, *_ in sketch.names()}


def test_a_hundred_thousand_names_once_each_leave_no_name_certain():
    sketch = PySketch()
    for i in range(100_000):
        sketch.add(b"topic/%d" % i)
    sketch.check()
    assert len(sketch.names()) == NAMES
    assert sum(count for _, _, count, _, _ in sketch.names()) == 100_000
    assert all(count - error == 1 for _, _, count, error, _ in sketch.names())


def test_of_a_long_name_the_beginning_is_kept():
    sketch = PySketch()
    for last in (b"1", b"2", b"22"):
        sketch.add(b"x" * 65_000 + last)
    sketch.add(b"x" * 65_000 + b"2")
    assert sorted((text, n, count) for text, n, count, _, _ in sketch.names()) == [
        (b"x" * TEXT, 65_001, 1), (b"x" * TEXT, 65_001, 2), (b"x" * TEXT, 65_002, 1)]


def test_names_of_any_bytes_count():
    sketch = PySketch()
    for name in (b"", b"\xff\xfe", "<script>é</script>".encode(), b""):
        sketch.add(name)
    assert {text: count for text, _, count, _, _ in sketch.names()} == {b"": 2, b"\xff\xfe": 1, "<script>é</script>".encode(): 1}


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 10_000)), min_size=1, max_size=2000))
def test_the_largest_values_are_kept(stream):
    sketch = PySketch()
    largest: Counter[bytes] = Counter()
    for number, value in stream:
        name = b"%d" % number
        sketch.most(name, value)
        largest[name] = max(largest[name], value)
    sketch.check()
    found = {text: count for text, _, count, _, _ in sketch.names()}
    assert len(found) == min(len(largest), NAMES)
    assert sorted(found.values()) == sorted(largest.values())[-NAMES:]
    assert all(largest[name] == value for name, value in found.items())


def test_a_cleared_sketch_is_empty():
    sketch = PySketch()
    for i in range(1000):
        sketch.add(b"%d" % i, 3)
    sketch.clear()
    assert sketch.names() == []
    sketch.add(b"7")
    sketch.check()
    assert [name[:4] for name in sketch.names()] == [(b"7", 1, 1, 0)]
