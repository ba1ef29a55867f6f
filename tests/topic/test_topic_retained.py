"""Compare the retained tree with a dictionary, and read cursors while the tree changes; check the invariants after each step."""

import random

import pytest
from cext.testing.topic_api import PyCursor, PyRetained
from tests.topic.topic_brute import LEVELS, matches, some_filter, some_topic


def read_all(tree: PyRetained, filter_: bytes, budget: int = 1000) -> list[int]:
    cursor = PyCursor(tree, filter_)
    out = []
    while True:
        value, left = cursor.next(budget)
        assert 0 <= left <= budget
        if value is not None:
            out.append(value)
        elif left:
            break
        if tree.count() < 1000:
            tree.check()
    assert cursor.next(budget) == (None, budget)            # a cursor at the end stays there
    cursor.close()
    return out


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("levels", [LEVELS, [b"", b"$SYS", *(f"n{i}".encode() for i in range(25))]], ids=["odd", "crowd"])
def test_against_a_dictionary(seed: int, levels: list[bytes]) -> None:
    rng = random.Random(seed)
    tree, model = PyRetained(rng.getrandbits(64), 7), dict[bytes, int]()
    for growing in (True, False, True):
        for i in range(400):
            topic = some_topic(rng, levels, 3)
            if rng.random() < (0.85 if growing else 0.1):
                assert tree.set(topic, i) == model.get(topic)
                model[topic] = i
            else:
                for gone in [topic, *rng.sample(sorted(model), min(2, len(model)))]:
                    assert tree.remove(gone) == model.pop(gone, None)
            tree.check()
            assert tree.count() == len(model)
            topic = some_topic(rng, levels, 3)
            assert tree.get(topic) == model.get(topic)
            if i % 10 == 0:
                filter_ = some_filter(rng, levels, 3)
                expected = sorted(v for t, v in model.items() if matches(filter_, t))
                assert sorted(read_all(tree, filter_, rng.choice([1, 2, 5, 1000]))) == expected, filter_
    for topic, value in model.items():
        assert tree.remove(topic) == value
    tree.check()
    assert tree.count() == 0 and tree.bytes() == 0


@pytest.mark.parametrize(("filter_", "expected"), [
    (b"#", [1, 2, 3, 4, 5]), (b"+", [1]), (b"a/#", [1, 2, 3]), (b"+/+", [2, 4, 5]), (b"a/b", [2]), (b"a/b/#", [2, 3]),
    (b"/+", [4, 5]), (b"/", [4]), (b"$SYS/#", [6, 7]), (b"$SYS/+", [7]), (b"$SYS", [6]), (b"+/x", [5]), (b"b", []),
    (b"a/+/c", [3]), (b"a/b/c/#", [3]), (b"a/b/c/+", []), (b"+/b/#", [2, 3]),
])
def test_filters(filter_: bytes, expected: list[int]) -> None:
    tree = PyRetained()
    for value, topic in enumerate([b"a", b"a/b", b"a/b/c", b"/", b"/x", b"$SYS", b"$SYS/x"], 1):
        tree.set(topic, value)
    for budget in (1, 3, 100):
        assert read_all(tree, filter_, budget) == expected


@pytest.mark.parametrize("seed", range(20))
def test_cursors_under_mutation(seed: int) -> None:
    """Test that a cursor finds a topic exactly once if it exists from open to close, and at most once if it comes or goes
    in between."""
    rng = random.Random(seed)
    levels = [b"", b"$x", *(f"n{i}".encode() for i in range(14 if seed % 2 else 4))]
    tree, model = PyRetained(), dict[bytes, int]()
    number = 0
    topics: dict[int, bytes] = {}                           # number -> topic
    open_: list[tuple[PyCursor, bytes, set[bytes], list[bytes]]] = []
    for _ in range(1500):
        roll = rng.random()
        topic = some_topic(rng, levels, 3)
        if roll < 0.35:
            number += 1
            topics[number] = topic
            tree.set(topic, number)
            model[topic] = number
        elif roll < 0.6:
            gone = rng.choice(sorted(model)) if model and rng.random() < 0.8 else topic
            assert tree.remove(gone) == model.pop(gone, None)
            for _, _, steady, _ in open_:
                steady.discard(gone)
        elif roll < 0.65 and len(open_) < 4:
            filter_ = some_filter(rng, levels, 3)
            open_.append((PyCursor(tree, filter_), filter_, {t for t in model if matches(filter_, t)}, []))
        elif open_:
            cursor, filter_, steady, seen = open_[which := rng.randrange(len(open_))]
            value, left = cursor.next(rng.randint(1, 3))
            if value is not None:
                assert matches(filter_, topics[value]) and model[topics[value]] == value
                seen.append(topics[value])
                assert len(seen) == len(set(seen)), "returned twice"
            elif left or rng.random() < 0.02:
                if left:
                    assert steady <= set(seen), "left out"
                cursor.close()
                del open_[which]
        tree.check()
    for cursor, *_ in open_:
        cursor.close()
    for topic in model:
        tree.remove(topic)
    tree.check()
    assert tree.bytes() == 0


def test_removing_everything_under_a_cursor() -> None:
    tree = PyRetained()
    for i in range(50):
        tree.set(f"a/b/c/{i}".encode(), i)
    cursor = PyCursor(tree, b"a/+/#")
    assert cursor.next(100) == (0, 96)                      # a, b, c, 0
    for i in range(50):
        tree.remove(f"a/b/c/{i}".encode())
        tree.check()
    assert tree.count() == 0
    assert cursor.next(100)[0] is None
    cursor.close()
    assert tree.bytes() == 0


def test_a_topic_that_is_set_again_is_not_returned_twice() -> None:
    tree = PyRetained()
    for i in range(3):
        tree.set(f"t/{i}".encode(), i)
    cursor = PyCursor(tree, b"t/+")
    assert [cursor.next(9)[0], cursor.next(9)[0]] == [0, 1]
    tree.remove(b"t/0")
    tree.set(b"t/0", 10)                                    # a new node, after the last node that the cursor reads
    tree.remove(b"t/1")
    tree.set(b"t/1", 11)                                    # the node that the cursor stands on
    tree.set(b"t/2", 12)                                    # replaced: the topic existed all the time
    assert [cursor.next(9)[0], cursor.next(9)[0]] == [12, None]
    cursor.close()
    tree.check()


def test_a_wide_level_adds_no_cost_to_an_exact_filter() -> None:
    tree = PyRetained()
    for i in range(5000):
        tree.set(f"d/{i}/t".encode(), i)
    cursor = PyCursor(tree, b"d/4321/t")
    assert cursor.next(5) == (4321, 4)
    assert cursor.next(5) == (None, 5)
    cursor.close()
    cursor = PyCursor(tree, b"d/4321/+")                  # the cursor looks a literal level up; it does not walk all children
    value, left = cursor.next(10)
    assert value == 4321 and left == 7
    cursor.close()
    cursor = PyCursor(tree, b"d/+/x")                     # it finds nothing, and no call exceeds the budget
    calls = 0
    while cursor.next(100) != (None, 100):
        calls += 1
        if cursor.next(100)[1]:
            break
    assert 20 <= calls <= 60
    cursor.close()
    assert len(read_all(tree, b"d/+/t", 7)) == 5000


def test_depth() -> None:
    tree = PyRetained()
    deep = b"/".join([b"x"] * 201)
    for n in range(1, 202):
        tree.set(b"/".join([b"x"] * n), n)
    tree.set(b"y" * 65535, 0)
    tree.check()
    assert tree.get(deep) == 201 and tree.get(b"y" * 65535) == 0
    assert sorted(read_all(tree, b"#", 3)) == list(range(202))
    assert read_all(tree, b"/".join([b"+"] * 201)) == [201]
    assert tree.free() == 202


@pytest.mark.parametrize("topic", [b"a", b"a/b/c", b"n0/new", b"fresh/b/c"])
def test_lack_of_memory_changes_nothing(topic: bytes) -> None:
    tree = PyRetained()
    for i in range(10):
        tree.set(f"n0/{i}".encode(), i)
    before = tree.bytes()
    failures = 0
    while True:
        tree.fuse(failures + 1)
        try:
            tree.set(topic, 99)
            break
        except MemoryError:
            failures += 1
        finally:
            tree.fuse(0)
        tree.check()
        assert (tree.bytes(), tree.count(), tree.get(topic)) == (before, 10, None)
    assert failures >= 1
    tree.fuse(1)
    assert tree.set(topic, 100) == 99                       # a replacement allocates nothing
    with pytest.raises(MemoryError):
        PyCursor(tree, b"#")
    tree.fuse(0)
    tree.check()


def test_a_hundred_thousand_topics() -> None:
    n = 100_000
    tree = PyRetained()
    for i in range(n):
        tree.set(f"site/{i % 50}/device/{i}/temp".encode(), i)
    tree.check()
    assert tree.bytes() / n < 300
    assert len(read_all(tree, b"site/7/#", 500)) == n // 50
    for i in range(n):
        assert tree.remove(f"site/{i % 50}/device/{i}/temp".encode()) == i
    assert tree.bytes() == 0 and tree.count() == 0


def test_free_returns_every_value() -> None:
    tree = PyRetained()
    rng = random.Random(6)
    topics = {some_topic(rng) for _ in range(500)}
    for i, topic in enumerate(topics):
        tree.set(topic, i)
    assert tree.free() == len(topics)
