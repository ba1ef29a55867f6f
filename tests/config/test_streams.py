"""Test `stream` and `stream_events`: their lines, and the settings that the engine gets."""

import pytest

from mosq.config.streams import stream_words
from mosq.server.settings import stream_specs

KEEP = "persistence true"


def test_a_stream(read):
    config = read(KEEP, "stream telemetry a/# \"b c/+\" # shards 3 retain_age 7d retain_bytes 10G", "stream x-1_Y a", "stream_events true")
    assert stream_specs(config) == [
        {"name": "telemetry", "filters": ["a/#", "b c/+", "#"], "shards": 3, "retain_age_us": 7 * 86_400_000_000, "retain_bytes": 10 << 30,
         "events": False},
        {"name": "x-1_Y", "filters": ["a"], "shards": 0, "retain_age_us": 0, "retain_bytes": 0, "events": False},
        {"name": "events", "filters": [], "shards": 0, "retain_age_us": 0, "retain_bytes": 1 << 30, "events": True}]
    assert stream_specs(read(KEEP)) == []


@pytest.mark.parametrize(("line", "said"), [
    ("a", "has 0 filters"),
    ("a shards 2", "has 0 filters"),
    ("events #", "is that of `stream_events true`"),
    ("a/b #", "Invalid stream name 'a/b'"),
    ("é #", "Invalid stream name"),
    (f"{'x' * 65} #", "up to 64 letters"),
    ("a $share/g/b", "without $share"),
    ("a $CONTROL/#", "not journalled"),
    ("a b/#/c", "Expected a topic filter"),
    ("a b+", "Expected a topic filter"),
    ('a ""', "Expected a topic filter"),
    ('a "b', "Missing quote"),
    ('a "b"c', "a blank after the closing quote"),
    ("a b shards 0", "a number from 1 to 64"),
    ("a b shards 65", "a number from 1 to 64"),
    ("a b shards", "a number from 1 to 64"),
    ("a b shards 1 shards 2", "each once and with a value"),
    ("a b shards 1 c", "each once and with a value"),
    ("a b retain_age 7", "with a unit s, h, d"),
    ("a b retain_age 0d", "with a unit s, h, d"),
    ("a b retain_age 99999999999d", "with a unit s, h, d"),
    ("a b retain_bytes 10", "from 64K on"),
    ("a b retain_bytes x", "from 64K on"),
    ("a b retain_bytes 1.5G", "from 64K on"),
    ("a " + " ".join(f"t{n}" for n in range(257)), "1 to 256 topic filters"),
])
def test_invalid_streams(line, said, refuse):
    assert said in refuse(KEEP, f"stream {line}")


def test_lines_of_streams(read, refuse):
    assert "Duplicate stream name 'a'" in refuse(KEEP, "stream a x", "stream a y")
    lines = [f"stream s{n} x" for n in range(32)]
    assert len(read(KEEP, *lines).stream) == 32
    assert "Expected at most 32" in refuse(KEEP, *lines, "stream more x")
    assert "Empty 'stream' value" in refuse(KEEP, "stream")


@pytest.mark.parametrize("line", ["stream a #", "stream_events true"])
def test_a_stream_needs_a_store(line, read, refuse):
    assert f"'{line.split()[0]}' needs a store" in refuse(line) and "`persistence true`" in refuse(line)
    assert "a durability other than none" in refuse(KEEP, "durability none", line)
    assert read("plugin /x/mosquitto_persist_sqlite.so", "plugin_opt_db_file /x/y", line)
    assert "needs a store" in refuse("plugin /x/mosquitto_persist_sqlite.so", line)     # without its file it keeps nothing


@pytest.mark.parametrize(("line", "age_s", "size"), [
    ("true retain_age 30d", 30 * 86_400, 1 << 30),
    ("1 retain_bytes 4G retain_age 1y # of a year", 365 * 86_400, 4 << 30),
    ("true # all", 0, 1 << 30),
])
def test_limits_of_stream_events(line, age_s, size, read):
    (spec,) = stream_specs(read(KEEP, f"stream_events {line}"))
    assert (spec["name"], spec["events"], spec["retain_age_us"], spec["retain_bytes"]) == ("events", True, age_s * 1_000_000, size)


def test_no_events(read):
    assert stream_specs(read(KEEP, "stream_events false")) == stream_specs(read(KEEP, "stream_events true", "stream_events 0 retain_age 1d")) == []


@pytest.mark.parametrize(("line", "said"), [
    ("yes", "Invalid 'stream_events' value (yes). Expected true or false"),
    ("true shards 2", "Expected retain_age, retain_bytes after true"),
    ("true retain_age 1d retain_age 1d", "each once"),
    ("true retain_age", "with a unit s, h, d"),
    ("true retain_bytes 1", "from 64K on"),
    ("", "Empty 'stream_events' value"),
])
def test_invalid_stream_events(line, said, refuse):
    assert said in refuse(KEEP, f"stream_events {line}")


def test_words_of_a_stream_line():
    assert stream_words(' a  "b c" #') == ["a", "b c", "#"]


# ---- the name of the broker in the pipeline's tables

def test_node_name(read):
    assert read("node_name Hall_7.b-2").node_name == "Hall_7.b-2"
    assert read("port 1883").node_name is None


@pytest.mark.parametrize("name", ["a/b", "a b", "h\u00e4lle", "a#"])
def test_a_node_name_with_other_characters_is_refused(name, refuse):
    assert "Invalid 'node_name' value" in refuse(f"node_name {name}")
