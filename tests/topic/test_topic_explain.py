"""Compare the result of explain with a match and with brute force, in every mode; it is valid JSON for any text."""

import json
import random
from typing import Any

import pytest
from cext.testing.topic_api import PyIndex
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.harness.effort import tries
from tests.topic.test_topic_index import SWITCHES, each_switch
from tests.topic.topic_brute import LEVELS, matches, some_filter, some_topic, split_share

ROOM_MIN, ROOM_MAX = 1024, 64 * 1024


def explain(index: PyIndex, topic: bytes, room: int = ROOM_MAX) -> dict[str, Any]:
    explained = json.loads(index.explain(topic, room).decode())
    assert explained["topic"] in (topic.decode(), None)
    assert explained["truncated"] == (len(explained["filters"]) < explained["totals"]["filters"])
    return explained


def expected(subs: set[tuple[int, bytes]], topic: bytes) -> dict[str, tuple[int, dict[str, int]]]:
    """Return filter -> (plain subscribers, group -> members)."""
    out: dict[str, tuple[int, dict[str, int]]] = {}
    for _, whole in subs:
        group, filter_ = split_share(whole)
        if matches(filter_, topic):
            plain, groups = out.get(filter_.decode(), (0, {}))
            if group:
                groups[group.decode()] = groups.get(group.decode(), 0) + 1
            out[filter_.decode()] = (plain + (not group), groups)
    return out


def assert_explained(index: PyIndex, subs: set[tuple[int, bytes]], topic: bytes) -> dict[str, Any]:
    explained = explain(index, topic)
    found = {f["filter"]: (f["subscribers"], {g["name"]: g["members"] for g in f["groups"]}) for f in explained["filters"]}
    assert len(found) == len(explained["filters"]), "a filter is listed twice"
    assert found == expected(subs, topic)
    plain, groups, total = index.match(topic)
    assert explained["totals"] == {"filters": len(found), "lists": len(plain), "subscribers": total, "groups": len(groups)}
    for f in explained["filters"]:
        if f["path"] == "tree":
            assert "/".join(f["edges"]) == f["filter"]
            assert f["nodes"] == len(f["edges"]) - (f["edges"][-1] == "#")
        else:
            assert f["path"] == "scan" or (f["filter"] == topic.decode() and f["links"] >= 1)
    assert explained["cost"]["nodes"] >= max((f.get("nodes", 0) for f in explained["filters"]), default=0)
    return explained


@each_switch
@pytest.mark.again("properties")
@pytest.mark.parametrize("seed", range(tries(3, 1)))
def test_explain_lists_the_filters_of_a_match(seed: int, switch: dict[str, Any]) -> None:
    rng = random.Random(seed)
    index, subs = PyIndex(rng.getrandbits(64), rng.getrandbits(64), **switch), set[tuple[int, bytes]]()
    levels = LEVELS + [f"n{i}".encode() for i in range(15)]
    for step in range(400):
        owner, filter_ = rng.randint(1, 9), some_filter(rng, LEVELS if step % 2 else levels, 3, shared=0.3)
        if rng.random() < 0.8:
            index.add(owner, filter_)
            subs.add((owner, filter_))
        elif subs:
            gone = rng.choice(sorted(subs))
            index.remove(*gone)
            subs.discard(gone)
        assert_explained(index, subs, some_topic(rng, levels, 3))
    index.check()


text = st.text(st.characters(codec="utf-8", exclude_characters="/+#\0"), max_size=6)


@pytest.mark.again("properties")
@settings(max_examples=tries(300, 60))
@given(st.lists(text, min_size=1, max_size=5), st.lists(st.sampled_from("t+#"), min_size=1, max_size=5), text, st.sampled_from(sorted(SWITCHES)))
def test_any_text_is_json(levels: list[str], shape: list[str], group: str, switch: str) -> None:
    topic = "/".join(levels) or "x"
    parts = [level if kind == "t" else kind for level, kind in zip(topic.split("/"), shape, strict=False)]
    if "#" in parts:
        parts = parts[:parts.index("#") + 1]
    wild, whole = "/".join(parts).encode() or b"+", topic.encode()
    index, subs = PyIndex(**SWITCHES[switch]), set[tuple[int, bytes]]()
    for owner, filter_ in enumerate([wild, whole, b"$share/" + (group or "g").encode() + b"/" + wild], 1):
        if not filter_.startswith(b"$share") or owner == 3:
            index.add(owner, filter_)
            subs.add((owner, filter_))
    assert_explained(index, subs, whole)


@pytest.mark.parametrize("nasty", ['"', "\\", '\\"', "\\u0000", "\x01", "\x1f", "\n\t\r", "\x7f", "\u2028", "\u0628\u0646", "日本", "😀", "<b>", '","x":"'])
def test_nasty_text(nasty: str) -> None:
    index = PyIndex()
    topic = f"a{nasty}/{nasty}b".encode()
    for owner, filter_ in enumerate([topic, f"a{nasty}/+".encode(), f"$share/{nasty}/#".encode()], 1):
        index.add(owner, filter_)
    explained = explain(index, topic)
    assert explained["topic"] == topic.decode()
    assert [f["filter"] for f in explained["filters"]] == [topic.decode(), "#", f"a{nasty}/+"]
    assert explained["filters"][1]["groups"] == [{"name": nasty, "strategy": "in turn", "members": 1}]


def test_explain_shows_how_each_filter_is_found() -> None:
    index = PyIndex()
    for owner, filter_ in enumerate([b"site/1/temp", b"site/1/temp", b"site/+/temp", b"site/#", b"stop/+", b"+/1/#", b"7/+"], 1):
        index.add(owner, filter_)
    explained = explain(index, b"site/1/temp")
    by_filter = {f.pop("filter"): f for f in explained["filters"]}
    assert by_filter == {
        "site/1/temp": {"path": "exact", "letter": "s", "links": 1, "subscribers": 2, "groups": []},
        "site/+/temp": {"path": "tree", "edges": ["site", "+", "temp"], "nodes": 3, "scanned": 2, "hashed": 0, "links": 0, "subscribers": 1, "groups": []},
        "site/#": {"path": "tree", "edges": ["site", "#"], "nodes": 1, "scanned": 1, "hashed": 0, "links": 0, "subscribers": 1, "groups": []},
        "+/1/#": {"path": "tree", "edges": ["+", "1", "#"], "nodes": 2, "scanned": 1, "hashed": 0, "links": 0, "subscribers": 1, "groups": []},
    }
    # nodes: site, site/+, site/+/temp, +, +/1; compared bytes: 11 by the table, 4 of `site`, 4 of `temp`, 1 of `1`
    assert explained["cost"] == {"hashes": 1, "bytes_hashed": 11, "links": 1, "nodes": 5, "scanned": 3, "bytes_compared": 20, "filters_compared": 0}
    assert explained["index"] == "full"
    assert explain(index, b"7/x")["cost"]["scanned"] == 2      # `7` alone in its partition, and `1` below `+`
    index = PyIndex(letters=False)
    for filter_ in (b"site/#", b"stop/+", b"7/+", b"+/1/#"):
        index.add(1, filter_)
    assert explain(index, b"7/x")["cost"]["scanned"] == 4      # also those that begin with s


@pytest.mark.parametrize("mode", ["full", "letter", "hash", "tree", "scan"])
def test_the_mode_and_the_letter(mode: str) -> None:
    index = PyIndex(mode=mode)
    index.add(1, "é/x".encode())
    explained = explain(index, "é/x".encode())
    assert explained["index"] == mode
    assert [(f["path"], f.get("letter")) for f in explained["filters"]] == [{
        "full": ("exact", "other"), "hash": ("exact", None), "letter": ("tree", None), "tree": ("tree", None), "scan": ("scan", None)}[mode]]


def test_hashed_children() -> None:
    index = PyIndex()
    for i in range(100):
        index.add(1, f"n{i}/+".encode())
    [found] = explain(index, b"n77/x")["filters"]
    assert (found["scanned"], found["hashed"]) == (0, 1) and found["links"] >= 1
    cost = explain(index, b"n77/x")["cost"]
    assert (cost["hashes"], cost["bytes_hashed"], cost["nodes"], cost["scanned"]) == (1, 3, 2, 0)


def test_a_filter_kept_by_a_pin_only_is_not_listed() -> None:
    index = PyIndex()
    index.add(1, b"a/+")
    [pinned] = index.pin(b"a/b")
    index.remove(1, b"a/+")
    assert explain(index, b"a/b")["totals"]["filters"] == 0
    index.unpin(pinned)


@each_switch
def test_more_filters_than_the_answer_holds(switch: dict[str, Any]) -> None:
    """Test 1024 filters for one topic, each of ten levels that are text or `+`: explain lists fewer than 1000."""
    index = PyIndex(**switch)
    topic = b"/".join([b"x"] * 10)
    for n in range(1024):
        index.add(1, b"/".join(b"+" if n >> i & 1 else b"x" for i in range(10)))
    explained = json.loads(index.explain(topic))
    assert explained["totals"] == {"filters": 1024, "lists": 1024, "subscribers": 1024, "groups": 0}
    assert explained["truncated"] and 300 < len(explained["filters"]) < 1000
    assert len({f["filter"] for f in explained["filters"]}) == len(explained["filters"])


@pytest.mark.parametrize("room", [ROOM_MIN, ROOM_MIN + 1, 1500, 4000, 20_000, ROOM_MAX - 1, ROOM_MAX])
@pytest.mark.parametrize("size", [1, 400, 9000, 30_000, 65_535])
def test_any_size_of_the_answer(room: int, size: int) -> None:
    index = PyIndex()
    topic = b"t" * size
    for owner, filter_ in enumerate([topic, b"+", b"#", b"$share/" + b"g" * 9000 + b"/#", *[b"$share/%d/+" % n for n in range(3000)]], 1):
        index.add(owner, filter_)
    answer = index.explain(topic, room)
    assert 0 < len(answer) <= room
    explained = json.loads(answer)
    assert explained["totals"] == {"filters": 3, "lists": 3, "subscribers": 3, "groups": 3001}
    assert explained["truncated"] == (len(explained["filters"]) < 3)


def test_too_small_an_answer_is_empty() -> None:
    index = PyIndex()
    assert index.explain(b"a", ROOM_MIN - 1) == index.explain(b"a", 0) == b""


def test_the_deepest_filters() -> None:
    index = PyIndex()
    filters = [b"/".join([b"+"] * 200 + [b"#"]), b"/".join([b"x"] * 200 + [b"+"]), b"/".join([b"x"] * 201)]
    for filter_ in filters:
        index.add(1, filter_)
    explained = explain(index, filters[2])
    assert sorted(f["filter"] for f in explained["filters"]) == sorted(f.decode() for f in filters)
    assert explain(index, b"/" * 300)["totals"]["filters"] <= 1     # not a valid name: no overrun


def test_load() -> None:
    index = PyIndex(hash_buckets=64)
    stats = index.stats()
    assert index.load_hundredths() == 0
    for i in range(1000):
        index.add(i % 50 + 1, f"a{i}".encode())                     # 1000 links in one table
        index.add(i % 50 + 1, b"news")                              # and 51 links of one filter and its long list
    now = index.stats()
    assert now["buckets"] > stats["buckets"]
    assert index.load_hundredths() == (1000 + 1 + 50) * 100 // now["buckets"]
    index.add(1, b"$share/g/news")                                  # and one link of a group
    assert index.load_hundredths() == (1000 + 1 + 50 + 1) * 100 // index.stats()["buckets"]
