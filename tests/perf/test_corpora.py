"""Test the promised matches of the corpora against a plain comparison of every filter with every topic."""

import pytest
from cext.testing.topic_bench import IndexBench, Lines, PoolBench, RetainedBench
from cext.testing.topic_api import matches, parse_filter
from perf.micro import corpora
from perf.micro.corpora import SHAPES, Corpus

EVERY = pytest.mark.parametrize("name", SHAPES)


@EVERY
@pytest.mark.parametrize("n", [1, 9, 10, 137, 400])
def test_promised_counts(name: str, n: int) -> None:
    corpus = Corpus(name, n)
    filters = corpus.filters().splitlines()
    traffic = corpus.traffic("wide")
    topics = traffic.topics.splitlines()
    assert len(filters) == len(set(filters)) == n
    assert len(topics) == len(set(topics)) == len(traffic) == corpus.topics()
    counts = [sum(matches(filter, topic) for filter in filters) for topic in topics]
    assert counts == list(traffic.deliveries)
    assert min(counts) >= 1
    assert traffic.expected() == sum(counts)
    assert traffic.expected(3, 5) == sum(counts[3:8])


@EVERY
def test_the_mix(name: str) -> None:
    filters = Corpus(name, 1000).filters().splitlines()
    first = 1 if name == "wildcard-first" else 0
    several = [filter.split(b"/")[first:] for filter in filters]
    assert sum(b"#" in levels for levels in several) == 100
    assert sum(b"+" in levels for levels in several) in (300, 200)      # 200 if one of three positions is the first level
    assert sum(bool(parse_filter(filter)[3]) for filter in filters) == (1000 if first else 400)
    positions = {levels.index(b"+") for levels in several if b"+" in levels}
    assert len(positions) == 3


def test_the_purpose_of_each_corpus() -> None:
    first = {name: {line.split(b"/")[0] for line in Corpus(name, 20_000).filters().splitlines()} for name in SHAPES}
    assert len(first["realistic"]) == 21        # 20 letters and the `+`
    assert first["skewed"] == {b"sensors"}
    assert len(first["numeric"]) == 2000
    assert all(level.isdigit() for level in first["numeric"])
    assert not any(level[:1].isascii() for level in first["non-latin"])
    assert len(first["non-latin"]) == 20
    assert min(topic.count(b"/") for topic in Corpus("deep", 100).traffic().topics.splitlines()) >= 11
    assert first["wildcard-first"] == {b"+"}


def test_always_the_same() -> None:
    assert Corpus("deep", 500).filters() == Corpus("deep", 500).filters()
    assert Corpus("deep", 500).traffic() == Corpus("deep", 500).traffic()
    assert set(Corpus("deep", 300).filters().splitlines()) < set(Corpus("deep", 500).filters().splitlines())


def test_hot_traffic_has_few_topics() -> None:
    corpus = Corpus("numeric", 5_000)
    assert len(corpus.traffic("hot")) == 1_000
    assert len(corpus.traffic("wide")) == 5_000


def test_large_corpora_are_stored(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Corpus("skewed", 100_000)
    made = corpora.stored_filters(corpus, tmp_path)
    monkeypatch.setattr(Corpus, "filters", lambda self: pytest.fail("made again"))
    assert corpora.stored_filters(corpus, tmp_path) == made
    assert made.count(b"\n") == 100_000


@EVERY
def test_the_index_finds_the_promised_deliveries(name: str) -> None:
    corpus = Corpus(name, 2_000)
    filters, traffic = Lines(corpus.filters(), True), corpus.traffic()
    index = IndexBench()
    assert index.add(filters) > 0
    topics = Lines(traffic.topics)
    assert index.match(topics)[1] == traffic.expected()
    assert index.match(topics, 10, 20)[1] == traffic.expected(10, 20)
    index.remove(filters, 500, 1_000)
    index.add(filters, 500, 1_000)
    assert index.match(topics)[1] == traffic.expected()
    index.remove(filters)
    assert index.match(topics)[1] == 0


def test_wrong_corpora_are_noticed() -> None:
    filters = Lines(b"a/b\n+/c\n", True)
    index = IndexBench()
    index.add(filters)
    with pytest.raises(ValueError, match="not all were new"):
        index.add(filters)
    index.remove(filters, 0, 1)
    with pytest.raises(ValueError, match="not all were there"):
        index.remove(filters)
    with pytest.raises(ValueError, match="a#"):
        Lines(b"a#\n", True)
    with pytest.raises(ValueError, match="newline"):
        Lines(b"a")
    with pytest.raises(ValueError, match="not filters"):
        index.add(Lines(b"a\n"))
    with pytest.raises(IndexError):
        index.match(filters, 1, 2)


def test_every_latency_is_counted() -> None:
    corpus = Corpus("realistic", 1_000)
    filters, topics = Lines(corpus.filters(), True), Lines(corpus.traffic().topics)
    index = IndexBench()
    for buckets, most in (index.add_latencies(filters), index.match_latencies(topics), index.remove_latencies(filters)):
        assert sum(count for _, count in buckets) == 1_000
        assert buckets == sorted(buckets)
        assert buckets[-1][0] <= most < max(64, buckets[-1][0] * 34 / 32)


def test_retained_and_pool() -> None:
    corpus = Corpus("realistic", 1_000)
    topics = Lines(corpus.retained())
    tree = RetainedBench()
    tree.set(topics)
    assert tree.fetch(Lines(b"#\n"), slice=7)[1] == 1_000
    assert tree.fetch(Lines(corpus.filters()))[1] == sum(corpus.deliveries(t) for t in range(1_000))
    assert tree.remove(topics, 0, 400)[1] == 400
    assert tree.fetch(Lines(b"#\n"))[1] == 600
    for grow in (0, 7):
        pool = PoolBench(100, grow=grow)
        for _ in range(2):
            pool.connect()
            pool.churn()
            pool.disconnect()
        assert sum(count for _, count in pool.connect_latencies()[0]) == 100
        assert sum(count for _, count in pool.disconnect_latencies()[0]) == 100
        pool.connect()
