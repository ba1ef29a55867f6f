"""Test topic names and filters as strings: a table for each clause, and the comparison functions against brute force."""

import random
from itertools import product

import pytest
from tests.topic.topic_brute import matches, some_filter, some_topic

from cext.testing import topic_api

INVALID_NAME, INVALID_FILTER = 0x90, 0x8F
DEEP_201 = b"/".join([b"x"] * 201)      # 200 separators, as many as Mosquitto allows
DEEP_202 = b"/".join([b"x"] * 202)


@pytest.mark.parametrize("name", [
    b"a", b"/", b"//", b"a/b", b"/a", b"a/", "é/日本/😀".encode(), b" ", b"$SYS/x", b"$share/g/x", b"$",
    DEEP_201, b"/" * 199, b"x" * 65535,
])
def test_valid_names(name: bytes) -> None:
    assert topic_api.check_name(name) == 0


@pytest.mark.parametrize("name", [
    b"",                                                    # [v5 4.7.3-1]
    b"+", b"#", b"a/+", b"a/#", b"+a", b"a#", b"a/b+c/d",   # [v5 4.7.1-1] wildcards are for filters
    DEEP_202, b"/" * 201, b"/" * 65535,                     # LEVELS_MAX
    b"x" * 65536,                                           # [v5 4.7.3-3]
])
def test_invalid_names(name: bytes) -> None:
    assert topic_api.check_name(name) == INVALID_NAME


@pytest.mark.parametrize(("text", "filter_", "group", "wildcard"), [
    (b"a", b"a", b"", 0), (b"/", b"/", b"", 0), (b"//", b"//", b"", 0), (b"a/", b"a/", b"", 0),
    (b"#", b"#", b"", 1), (b"+", b"+", b"", 1), (b"/#", b"/#", b"", 1), (b"/+", b"/+", b"", 1), (b"+/", b"+/", b"", 1),
    (b"+/+/#", b"+/+/#", b"", 1), (b"a/+/b", b"a/+/b", b"", 1), (b"$SYS/#", b"$SYS/#", b"", 1),
    (b"$share", b"$share", b"", 0), (b"$shared/g/x", b"$shared/g/x", b"", 0), (b"$Share/g/x", b"$Share/g/x", b"", 0),
    (b"/$share/g/x", b"/$share/g/x", b"", 0),
    (b"$share/g/x", b"x", b"g", 0), (b"$share/g//", b"/", b"g", 0), (b"$share/g/#", b"#", b"g", 1),
    (b"$share/g/+/x", b"+/x", b"g", 1), (b"$share/$g/$SYS/#", b"$SYS/#", b"$g", 1),
    (b"$share/" + "ü".encode() + b"/a", b"a", "ü".encode(), 0),
    (b"$share/g/" + DEEP_201, DEEP_201, b"g", 0), (DEEP_201, DEEP_201, b"", 0),
    (b"x" * 65535, b"x" * 65535, b"", 0),
])
def test_valid_filters(text: bytes, filter_: bytes, group: bytes, wildcard: int) -> None:
    assert topic_api.parse_filter(text) == (0, filter_, group, wildcard)


@pytest.mark.parametrize("text", [
    b"",                                                                    # [v5 4.7.3-1]
    b"a/#/b", b"a#", b"#a", b"##", b"#/", b"#/a", b"a/b#", b"/#/", b"a/#b",      # [v5 4.7.1-1]
    b"+a", b"a+", b"++", b"a/+b", b"a/b+/c", b"+#", b"#+",                       # [v5 4.7.1-2]
    b"$share/", b"$share//", b"$share//x",                                  # [v5 4.8.2-1] a name of one character or more
    b"$share/g", b"$share/g/",                                              # [v5 4.8.2-2] followed by a filter
    b"$share/g+/x", b"$share/+/x", b"$share/#/x", b"$share/#", b"$share/g#/x",   # [v5 4.8.2-2] no wildcard in the name
    b"$share/g/a/#/b", b"$share/g/a#", b"$share/g/+a",
    DEEP_202, b"$share/g/" + DEEP_202, b"/" * 65535, b"x" * 65536,
])
def test_invalid_filters(text: bytes) -> None:
    assert topic_api.parse_filter(text)[0] == INVALID_FILTER


@pytest.mark.parametrize(("filter_", "topic", "expected"), [
    (b"sport/tennis/player1/#", b"sport/tennis/player1", True),             # [v5 4.7.1.2]
    (b"sport/tennis/player1/#", b"sport/tennis/player1/score/wimbledon", True),
    (b"sport/#", b"sport", True), (b"#", b"a", True), (b"#", b"/", True),
    (b"sport/tennis/+", b"sport/tennis/player1/ranking", False),            # [v5 4.7.1.3]
    (b"sport/+", b"sport", False), (b"sport/+", b"sport/", True),
    (b"+/+", b"/finance", True), (b"/+", b"/finance", True), (b"+", b"/finance", False),
    (b"#", b"$SYS/x", False), (b"+/monitor/Clients", b"$SYS/monitor/Clients", False),   # [v5 4.7.2-1]
    (b"$SYS/#", b"$SYS/x", True), (b"$SYS/monitor/+", b"$SYS/monitor/Clients", True),
    (b"+/$x", b"a/$x", True), (b"$SYS", b"$SYS", True), (b"a", b"A", False), (b"/a", b"a", False), (b"a", b"a/", False),
    (b"+/#", b"a", True), (b"/#", b"a", False), (b"a/#", b"ab", False), (b"a/+/#", b"a", False),
])
def test_matching_examples(filter_: bytes, topic: bytes, expected: bool) -> None:
    assert topic_api.matches(filter_, topic) is expected
    assert matches(filter_, topic) is expected


def test_matching_against_brute_force() -> None:
    rng = random.Random(2)
    hits = 0
    for _ in range(30_000):
        filter_, topic = some_filter(rng), some_topic(rng)
        assert topic_api.matches(filter_, topic) == matches(filter_, topic), (filter_, topic)
        hits += matches(filter_, topic)
    assert hits > 1000


def test_covering_against_brute_force() -> None:
    # Filters have up to three levels and two texts: topics of up to five levels and three texts distinguish all of them.
    parts = [b"a", b"", b"$", b"+", b"#"]
    filters = [b"/".join(f) for n in (1, 2, 3) for f in product(parts, repeat=n) if topic_api.parse_filter(b"/".join(f))[0] == 0]
    topics = [b"/".join(t) for n in (1, 2, 3, 4, 5) for t in product([b"a", b"", b"$", b"other"], repeat=n)]
    matched = {f: {t for t in topics if t and matches(f, t)} for f in filters}
    covered = 0
    for outer, inner in product(filters, repeat=2):
        expected = matched[inner] <= matched[outer]
        assert topic_api.covers(outer, inner) == expected, (outer, inner)
        covered += expected
    assert len(filters) > 80 and covered > len(filters)
