"""Test the jobs over a stream with everything: the tables equal naive sums in Python, through Spark and through DuckDB; and the driver is killed at
each step.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mosq.pipeline import MosqPipelineError, fanout, frames, settings, views
from mosq.pipeline.duck import Duck
from mosq.pipeline.lake.table import Table
from mosq.pipeline.runs import jobs, progress, status, tableset, tending
from mosq.pipeline.source import rows as source_rows
from mosq.pipeline.subscriptions import subscribed
from tests.pipeline.journals import T0_US, Journal
from tests.pipeline.test_sparkplug import metric, text, varint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = """
[pipeline]
journal = "streams"
node = "here"
batch_rows = {batch_rows}
window = "10 seconds"
watermark = "1 minute"
prefix_levels = 2
[[silver]]
name = "telemetry"
topic = "site/+/json"
format = "json"
schema = "temp DOUBLE, time BIGINT, tags ARRAY<STRING>"
[[silver]]
name = "guessed"
topic = "guess/#"
format = "json"
[[silver]]
name = "csv"
topic = "csv/+"
format = "csv"
schema = "id BIGINT, what STRING"
[[silver]]
name = "number"
topic = "number/+"
format = "number"
[[silver]]
name = "plant"
topic = "spBv1.0/#"
format = "sparkplug"
"""
PAYLOADS = [
    ("site/1/json", b'{"temp": 21.5, "time": 7, "tags": ["a", "b"]}', None),
    ("site/2/json", b'{"temp": 20}', None),
    ("site/2/json", b'{"temp": 20} trailing', "json: malformed"),
    ("site/2/json", b'{"temp": 20}{"temp": 21}', "json: malformed"),
    ("site/2/json", b'{"temp": 20},{"temp": 21}', "json: more than one value"),
    ("site/2/json", b'{"temp": 20}] x', "json: malformed"),
    ("site/2/json", b'{"temp": 20}]', "json: malformed"),
    ("site/2/json", b'{"temp": 20},0] x', "json: more than one value"),
    ("site/3/json", b' {"temp": 19, "tags": ["]", "[{"], "a": [[{}]]} ', None),
    ("site/2/json", b'[{"temp": 20}, {"temp": 21}]', "json: an array, expected an object"),
    ("site/2/json", b'{"temp": "warm"}', "json: a field is not of the type in the schema"),
    ("site/2/json", b"21.5", "json: not an object"),
    ("site/2/json", b"", "empty"),
    ("site/2/json", b'{"temp": "\xff"}', "not UTF-8"),
    ("guess/a", b'{"x": 1, "batch_id": "b", "deep": {"y": [1, 2], "Y": 3}, "X": "no", "payload": "p"}', None),
    ("guess", b'{"x": 1.5}', None),
    ("csv/1", b"1,a b", None),
    ("csv/1", b"1,a,b", "csv: not the columns of the schema"),
    ("csv/1", b"one,a", "csv: not the columns of the schema"),
    ("number/1", b" -1.5e3 ", None),
    ("number/1", b"0x10", "number: not a number"),
    ("number/1", b"1d", "number: not a number"),
    ("number/1", b"NaN", "number: not a number"),
    ("spBv1.0/g/DDATA/n/d", metric(text(1, b"m"), varint(10, 5)) + metric(text(1, b"s"), text(15, b"on")), None),
    ("spBv1.0/g/DDATA/n/d", b"\xff", "sparkplug: not a payload of Sparkplug B"),
    ("other/topic", b"whatever", None),
    ("site/1/json/below", b"{", None),
]
ACCOUNT = {"session": 1, "restored": 0, "published": 10, "delivered": 9, "acknowledged": 7, "resent": 2, "expired": 1, "dropped": 1, "queued": 1, "gone": 0, "ended": False}


STREAMS = {"tele": 2, "part": 1, "events": 1}


def write(folder: Path) -> tuple[Journal, ...]:
    """Write messages, of which some lie in a second stream too, and some only there, and events."""
    tele = Journal(folder / "streams", "tele", shards=2)
    part = Journal(folder / "streams", "part")
    events = Journal(folder / "streams", "events")
    events.put("", b'{"version": 4, "clean": false, "expiry_s": 4294967295, "present": false}', kind=2, client_id="c1")
    events.put("site/#", b'{"qos": 1, "options": 1}', kind=4, client_id="c1")
    events.put("site/+", b'{"qos": 0, "options": 0}', kind=4, client_id="c1")
    events.put("site/+", b"", kind=5, client_id="c1")
    for i, (topic, payload, _) in enumerate(PAYLOADS):
        tele.put(topic, payload, client_id=f"c{i % 3}")
    tele.now_us += 10_000_000
    for i in range(200):
        said = f"bulk/{i % 7}/x", b"%d" % i * (i % 5)
        tele.put(*said, client_id=f"c{i % 3}")
        part.now_us = tele.now_us - 1000
        if i % 7 == 1 and i > 30:       # the second stream came later
            part.put(*said, client_id=f"c{i % 3}")
        if i % 50 == 0:
            part.put("bulk/part", b"only here", client_id="c1")
    tele.commit()
    part.commit()
    events.now_us += 1_000_000
    events.put("bulk/1", b"", kind=6, client_id="c1", reason=0x97)
    events.put("bulk/2", b"", kind=6, client_id="c1", reason=0x97)
    events.put("", b"{}", kind=3, client_id="c1", reason=0)
    events.put("", b'{"version": 5}', kind=2, client_id="c1", reason=0x87)       # refused: no connection
    events.put("", b'{"version": 5, "clean": false, "expiry_s": 4294967295, "present": true}', kind=2, client_id="c1")
    for client, expiry_s in (("brief", 0), ("ended", 60), ("kept", 60)):
        events.put("", b'{"expiry_s": %d, "present": false}' % expiry_s, kind=2, client_id=client)
        events.put("x/" + client, b'{"qos": 2}', kind=4, client_id=client)
        events.put("", b"{}", kind=3, client_id=client)
    events.put("", json.dumps(ACCOUNT | {"session": 9, "restored": 3, "queued": 0, "gone": 4, "ended": True}).encode(), kind=9, client_id="ended")
    events.put("", json.dumps(ACCOUNT).encode(), kind=9, client_id="c1")
    events.put("", json.dumps(ACCOUNT | {"published": 12, "acknowledged": 9}).encode(), kind=9, client_id="c1")
    events.put("", json.dumps(ACCOUNT | {"session": 2, "published": 11}).encode(), kind=9, client_id="c2")
    events.put("", json.dumps(ACCOUNT | {"session": 3, "ended": True}).encode(), kind=9, client_id="c3")
    events.put("", json.dumps(ACCOUNT | {"session": 4, "delivered": 5}).encode(), kind=9, client_id="c4")
    events.put("", json.dumps(ACCOUNT | {"session": 4, "delivered": 4}).encode(), kind=9, client_id="c4")
    events.put("", b'{"session": 5}', kind=9, client_id="c5")
    events.put("", b'{"lost": 3}', kind=10)
    events.commit()
    return tele, part, events


def once(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each message once."""
    return [record for record in records if record["kind"] == 1 and (record["stream"] == "tele" or record["topic"] == "bulk/part")]


def naive(folder: Path) -> list[dict[str, Any]]:
    """Read every record with the reader that does not use Spark."""
    found: list[dict[str, Any]] = []
    for name, shards in STREAMS.items():
        for shard in range(shards):
            found += [row for batch in source_rows.read_range(name, folder / "streams" / name, shard, 0, end(folder, name, shard)) for row in batch.to_pylist()]
    return found


def end(folder: Path, name: str, shard: int) -> int:
    from mosq.journal import Stream

    return Stream(folder / "streams" / name).marks()[shard].seq


def load(folder: Path, batch_rows: int = 120) -> settings.Settings:
    (folder / "pipeline.toml").write_text(SETTINGS.format(batch_rows=batch_rows))
    return settings.load(folder)


def in_duckdb(found: settings.Settings, query: str) -> list[tuple[Any, ...]]:
    duck = Duck(found)
    try:
        return duck.base.execute(query).fetchall()
    finally:
        duck.close()


class Ran:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journals = write(folder)
        self.settings = load(folder)
        self.lines: list[str] = []
        self.batches: list[int] = []
        self.records = naive(folder)

    def report(self, before: dict[str, Any], now: dict[str, Any], seconds: float) -> None:
        self.batches.append(now["batch"])


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    found = Ran(tmp_path_factory.mktemp("ran"))
    jobs.run(spark, found.settings, once=True, log=found.lines.append, report=found.report)
    yield found
    for journal in found.journals:
        journal.close()


# ---- content of the tables

def test_bronze_has_every_record_once_through_spark_and_duckdb(ran: Ran, spark: SparkSession) -> None:
    wanted = sorted((record["stream"], record["shard"], record["seq"], record["topic"], record["payload"]) for record in map(_no_none, ran.records))
    assert len(ran.batches) > 1
    through_spark = [tuple(row) for row in frames.frame(spark, ran.settings, "bronze").select("stream", "shard", "seq", "topic", "payload").collect()]
    assert sorted((a, b, c, d or "", bytes(e or b"")) for a, b, c, d, e in through_spark) == wanted
    through_duckdb = in_duckdb(ran.settings, "SELECT stream, shard, seq, coalesce(topic, ''), coalesce(payload, ''::BLOB) FROM bronze")
    assert sorted(through_duckdb) == wanted


def _no_none(record: dict[str, Any]) -> dict[str, Any]:
    return record | {"topic": record["topic"] or "", "payload": record["payload"] or b""}


def test_silver_is_typed_and_bad_records_go_to_quarantine(ran: Ran) -> None:
    def rows(query: str) -> list[tuple[Any, ...]]:
        return in_duckdb(ran.settings, query)

    assert rows("SELECT topic, temp, time_, tags FROM silver_telemetry ORDER BY topic") == [
        ("site/1/json", 21.5, 7, ["a", "b"]), ("site/2/json", 20.0, None, None), ("site/3/json", 19.0, None, ["]", "[{"])]
    assert rows("SELECT topic, x, batch_id, deep, payload FROM silver_guessed ORDER BY x") == [
        ("guess/a", 1.0, "b", {"y": [1, 2]}, "p"), ("guess", 1.5, None, None, None)]
    assert rows("SELECT id, what FROM silver_csv") == [(1, "a b")]
    assert rows("SELECT value FROM silver_number") == [(-1500.0,)]
    assert rows("SELECT metric, long_value, string_value, device, topic FROM silver_plant ORDER BY metric") == [
        ("m", 5, None, "d", "spBv1.0/g/DDATA/n/d"), ("s", None, "on", "d", "spBv1.0/g/DDATA/n/d")]
    wanted = Counter((topic, why, payload) for topic, payload, why in PAYLOADS if why is not None)
    wanted["", "account: not in the format that the broker writes", b'{"session": 5}'] += 1
    assert Counter(rows("SELECT coalesce(topic, ''), reason, coalesce(payload, ''::BLOB) FROM quarantine")) == wanted
    assert Counter(progress.after(ran.settings)["quarantine"]) == Counter(why for (_, why, _), n in wanted.items() for _ in range(n))
    assert any("silver guessed: inferred from" in line for line in ran.lines)


def test_gold_equals_naive_sums(ran: Ran, spark: SparkSession) -> None:
    window = 10_000_000
    volume: dict[str, Counter[tuple[int, str]]] = defaultdict(Counter)
    for record in once(ran.records):
        start = _us(record["time"]) // window * window
        for table, key in (("topics", record["topic"]), ("clients", record["client_id"]), ("prefixes", "/".join(record["topic"].split("/")[:2]))):
            volume[table][start, key] += 1
            volume[table + " bytes"][start, key] += len(record["payload"] or b"")
    for table, key in (("topics", "topic"), ("clients", "client_id"), ("prefixes", "prefix")):
        rows = [(_us(row.window_start), row[key], row.messages, row.bytes, _us(row.window_end)) for row in frames.view(spark, ran.settings, table).collect()]
        assert {(start, name): n for start, name, n, _, _ in rows} == volume[table]
        assert {(start, name): n for start, name, _, n, _ in rows if n} == +volume[table + " bytes"]
        assert all(stop - start == window for start, *_, stop in rows)


def _us(time: Any) -> int:
    return round(time.timestamp() * 1e6)


def test_latency_percentiles_are_within_a_sixteenth(ran: Ran, spark: SparkSession) -> None:
    waits: dict[tuple[int, str], list[int]] = defaultdict(list)
    for record in ran.records:
        if record["kind"] == 1:
            waits[_us(record["time"]) // 10_000_000 * 10_000_000, record["stream"]].append(_us(record["commit_time"]) - _us(record["time"]))
    rows = frames.view(spark, ran.settings, "latency").collect()
    assert {(_us(row.window_start), row.stream): (row.messages, row.max_us) for row in rows} == {key: (len(found), max(found)) for key, found in waits.items()}
    for row in rows:
        found = sorted(waits[_us(row.window_start), row.stream])
        for name, q in (("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99), ("p999_us", 0.999)):
            exact = found[max(0, -int(-q * len(found) // 1) - 1)]
            assert exact <= row[name] <= exact * (1 + 1 / 16) + 1


def test_events_become_drops_churn_sessions_backlog_and_subscriptions(ran: Ran, spark: SparkSession) -> None:
    def rows(name: str) -> list[dict[str, Any]]:
        return [row.asDict() for row in frames.view(spark, ran.settings, name).collect()]

    assert [(row["reason"], row["client_id"], row["drops"]) for row in rows("drops")] == [(0x97, "c1", 2)]
    assert [tuple(row[name] for name in ("connects", "refused", "disconnects", "takeovers", "expiries", "clients")) for row in rows("churn")] == [(5, 1, 4, 0, 0, 4)]
    sessions = sorted((row for row in rows("sessions") if row["client_id"] == "c1"), key=lambda row: row["connected_at"])
    sent = [_us(record["time"]) for record in once(ran.records) if record["client_id"] == "c1"]
    again = _us(sessions[1]["connected_at"])
    assert [(row["client_id"], row["reason"], row["messages"]) for row in sessions] == [
        ("c1", "0", sum(time < again for time in sent)), ("c1", None, sum(time >= again for time in sent))]
    assert sessions[0]["duration_s"] == pytest.approx((_us(sessions[0]["disconnected_at"]) - _us(sessions[0]["connected_at"])) / 1e6)
    assert sessions[1]["disconnected_at"] is None and sessions[1]["duration_s"] is None
    assert len(rows("backlog")) == 7
    found = {row["client_id"]: row for row in rows("audit")}
    assert {name: (row["published"], row["difference"]) for name, row in found.items()} == {"c1": (12, 0), "c2": (11, 1), "c3": (10, 0), "c4": (10, 0), "ended": (10, 0)}
    assert [(row.client_id, row["filter"], row.qos) for row in subscribed(frames.frame(spark, ran.settings, "bronze")).orderBy("client_id").collect()] == [("c1", "site/#", 1), ("kept", "x/kept", 2)]


def test_every_view_is_the_same_through_duckdb(ran: Ran, spark: SparkSession) -> None:
    for view in views.VIEWS.keys() - {"fanout", "telemetry"}:        # they are there on request only, and have tests of their own
        through_spark = frames.view(spark, ran.settings, view)
        columns = through_spark.columns
        here = sorted(map(str, ([_plain(row[name]) for name in columns] for row in through_spark.collect())))
        quoted = ", ".join(f'"{name}"' for name in columns)
        there = sorted(map(str, ([_plain(value) for value in row] for row in in_duckdb(ran.settings, f"SELECT {quoted} FROM {view}"))))
        assert here == there, view


def test_fan_out_counts_current_subscriptions(ran: Ran, spark: SparkSession) -> None:
    topics = Counter(record["topic"] for record in once(ran.records))
    wanted = sorted((topic, int(topic.startswith("site/")), n) for topic, n in topics.items())
    assert fanout.write(spark, ran.settings)
    assert in_duckdb(ran.settings, "SELECT topic, subscribers, messages FROM fanout ORDER BY topic") == wanted
    assert sorted(map(tuple, frames.view(spark, ran.settings, "fanout").collect())) == [("here", *row) for row in wanted]
    assert not fanout.write(spark, ran.settings)        # there is nothing new


def _plain(value: Any) -> Any:
    return _us(value) if hasattr(value, "timestamp") else float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def test_the_audit_finds_each_session_that_does_not_add_up(ran: Ran) -> None:
    said = status.status(ran.settings, with_audit=True)
    found = said["audit"]
    assert (found["rows"], found["wrong"], found["lost_events"], found["sessions"], found["sessions_wrong"]) == (7, 2, 3, 5, 3)
    assert found["examples"] == [
        "c2 (node here, session 2): 11 were due (restored and published), but acknowledged 7 + expired 1 + dropped 1 + gone 0 + queued 1 make 10",
        "c3 (node here, session 3): has ended, and 1 messages are still queued",
        "c4 (node here, session 4): counters went down, or an earlier row did not add up"]
    assert found["totals"]["published"] == 12 + 11 + 10 + 10 + 10
    text = status.text(said)
    assert "ALARM: 2 do not add up" in text and "3 events are lost" in text and "nothing behind" in text and "json: malformed" in text
    assert said["streams"]["here/tele"] == {"rows": len(PAYLOADS) + 200, "behind": 0, "behind_s": 0.0}


# ---- going on, again, and after a kill

def snapshot(found: settings.Settings) -> dict[str, Any]:
    """Return all tables that a run writes, regardless of their division into batches and files."""
    return {table.name: sorted(map(str, table.read().to_pylist())) for table in tending.existing(found) if table.name not in ("progress", "gold/fanout")}


def views_of(found: settings.Settings) -> dict[str, list[str]]:
    return {view: sorted(map(str, in_duckdb(found, f"SELECT * FROM {view}"))) for view in ("topics", "clients", "prefixes", "churn", "sessions", "drops")}


def counts(state: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in state.items() if key not in ("at", "step")}


@pytest.mark.part("spark")
def test_a_rebuild_gives_the_same_tables_also_after_a_compaction(ran: Ran, spark: SparkSession) -> None:
    before, stood = snapshot(ran.settings), progress.after(ran.settings)
    readers = {table.name: table for table in tending.existing(ran.settings)}
    jobs.run_rebuild(spark, ran.settings, log=ran.lines.append)
    assert snapshot(ran.settings) == before
    assert counts(progress.after(ran.settings)) == counts(stood)
    assert all("merged into 1" in line for line in tending.compact_all(ran.settings, 2) if line.startswith("bronze"))
    assert snapshot(ran.settings) == before
    assert in_duckdb(ran.settings, "SELECT count(*) FROM bronze") == [(len(ran.records),)]
    jobs.run_rebuild(spark, ran.settings, log=ran.lines.append)
    assert snapshot(ran.settings) == before
    assert {name: sorted(map(str, table.read().to_pylist())) for name, table in readers.items() if name != "progress"} == before, "readers of the old version read on"


STEPS = [("append", "bronze"), ("merge", "gold/latency"), ("append", "silver/number"), ("append", "quarantine"), ("append", "gold/backlog"), ("replace", "progress")]


@pytest.fixture(scope="module")
def wanted(ran: Ran) -> dict[str, Any]:
    return snapshot(ran.settings)


class Killed(Exception):
    pass


@contextmanager
def killed(monkeypatch: pytest.MonkeyPatch, function: str, name: str, after: bool) -> Iterator[None]:
    """Raise in the middle of a batch, before or after the commit to one of its tables."""
    inner = getattr(Table, function)

    def fatal(table: Table, *args: Any, **kwargs: Any) -> Any:
        if table.name != name:
            return inner(table, *args, **kwargs)
        if after:
            inner(table, *args, **kwargs)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Table, function, fatal)
        yield


@pytest.mark.part("spark")
def test_a_run_killed_at_any_step_continues_without_loss(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, Any]) -> None:
    journals = write(tmp_path)
    found = load(tmp_path, batch_rows=1000)
    for function, name in STEPS:
        for after in (False, True):
            with killed(monkeypatch, function, name, after), pytest.raises(Killed):
                jobs.run(spark, found, once=True, log=lambda line: None)
            if (function, after) == ("replace", True):
                break
    jobs.run(spark, found, once=True, log=lambda line: None)
    assert snapshot(found) == wanted
    for journal in journals:
        journal.close()


def test_rows_that_are_late_are_counted_and_in_no_window(spark: SparkSession, tmp_path: Path) -> None:
    stream = Journal(tmp_path / "streams", "tele")
    found = load(tmp_path, batch_rows=10)
    stream.fill(10)
    stream.now_us = T0_US + 120_000_000
    stream.fill(10)
    stream.now_us = T0_US - 3_600_000_000        # the clock is set back; within a block time stands still
    stream.fill(10)
    jobs.run(spark, found, once=True, log=lambda line: None)
    late = progress.after(found)["late"]
    assert late == in_duckdb(found, "SELECT sum(rows) FROM late")[0][0] == 10
    assert in_duckdb(found, "SELECT sum(messages) FROM topics") == [(20,)]
    assert "late: 10 rows" in status.text(status.status(found))
    stream.close()


# ---- refused settings, and their errors

@pytest.fixture
def begun(spark: SparkSession, tmp_path: Path) -> Iterator[tuple[settings.Settings, Journal]]:
    """Make a stream, and the checkpoint of a run that found it empty."""
    stream = Journal(tmp_path / "streams", "tele")
    stream.commit()
    found = load(tmp_path)
    jobs.prepare(found, progress.JOBS)
    yield found, stream
    stream.close()


@pytest.mark.parametrize(("old", "new", "said"), [
    ("temp DOUBLE", "temp FLOAT", r"\[\[silver\]\] differs from the settings that the tables .* have \(telemetry\)\. Undo the change, or run `mosq pipeline run --rebuild`"),
    ('window = "10 seconds"', 'window = "20 seconds"', r"window differs .*it was 10000000, and is 20000000"),
    ("prefix_levels = 2", "prefix_levels = 1", "prefix_levels differs"),
    ('name = "csv"', 'name = "vsc"', r"\(csv, vsc\)"),
    ('journal = "streams"', 'journal = "streams"\ntables = "elsewhere"', "is the storage of the tables mounted"),
    ('node = "here"', 'node = "there"', "node is there, but the rows of the tables have here"),
])
def test_a_change_of_settings_of_existing_tables_is_refused(begun: tuple[settings.Settings, Journal], old: str, new: str, said: str) -> None:
    found, _ = begun
    found.file.write_text(found.file.read_text().replace(old, new))
    changed = settings.load(found.file)
    with pytest.raises(MosqPipelineError, match=said):
        jobs.prepare(changed, progress.JOBS)


def test_other_jobs_and_other_streams_are_refused(begun: tuple[settings.Settings, Journal]) -> None:
    found, _ = begun
    with pytest.raises(MosqPipelineError, match="the list of jobs differs"):
        jobs.prepare(found, ("silver",))
    Journal(found.sources[0].journal, "more").close()
    jobs.prepare(found, progress.JOBS)         # a stream may be added
    named = found.file.read_text().replace('journal = "streams"', 'journal = "streams"\nstreams = ["tele"]')
    found.file.write_text(named)
    with pytest.raises(MosqPipelineError, match="stream here/more was read before but is not now: restore it"):
        jobs.prepare(settings.load(found.file), progress.JOBS)
    found.file.write_text(named.replace("tele", "nope"))
    with pytest.raises(MosqPipelineError, match="there is no stream nope; there are: more, tele"):
        jobs.prepare(settings.load(found.file), progress.JOBS)


def test_recreated_streams_and_missing_checkpoints_are_refused(begun: tuple[settings.Settings, Journal]) -> None:
    import shutil

    found, stream = begun
    stream.close()
    shutil.rmtree(stream.path)
    Journal(found.sources[0].journal, "tele").close()
    with pytest.raises(MosqPipelineError, match="is not the stream that was read before"):
        jobs.prepare(found, progress.JOBS)
    shutil.rmtree(found.checkpoints)
    with pytest.raises(MosqPipelineError, match=r"holds tables, but .* does not hold their progress"):
        jobs.prepare(found, progress.JOBS)
    shutil.rmtree(found.sources[0].journal)
    with pytest.raises(MosqPipelineError, match="there is no such folder; expected the streams of the broker here there"):
        jobs.prepare(found, progress.JOBS)


def test_two_runs_at_a_time_are_refused(begun: tuple[settings.Settings, Journal], spark: SparkSession) -> None:
    found, _ = begun
    with jobs.alone(found), pytest.raises(MosqPipelineError, match="is in use"):
        jobs.run(spark, found, once=True)


def damage(stream: Journal) -> None:
    stream.fill(50)
    stream.fill(50)
    path = next(stream.path.glob("*.seg"))
    raw = bytearray(path.read_bytes())
    raw[4096 + 60] ^= 0xFF
    path.write_bytes(raw)


def test_a_corrupt_block_stops_the_run_with_advice_or_is_counted(begun: tuple[settings.Settings, Journal], spark: SparkSession) -> None:
    found, stream = begun
    damage(stream)
    with pytest.raises(MosqPipelineError, match=r"stream tele in .*: shard 0: 0 to 49 are damaged\. Restore the stream's files from a copy") as error:
        jobs.run(spark, found, once=True)
    assert "\n" not in str(error.value)
    found.file.write_text(found.file.read_text().replace("[[silver]]", "stop_on_loss = false\n[[silver]]", 1))
    jobs.run(spark, settings.load(found.file), once=True)
    said = progress.after(found)
    assert said["rows"]["bronze"] == 51 and said["audit"]["lost_events"] == 50
    assert in_duckdb(found, "SELECT sum(messages) FROM topics") == [(50,)]


def test_a_missing_segment_stops_the_run(begun: tuple[settings.Settings, Journal], spark: SparkSession) -> None:
    found, stream = begun
    stream.fill(50)
    stream.close()
    for path in stream.path.glob("*.seg"):
        path.unlink()
    with pytest.raises(MosqPipelineError, match="shard 0: 0 to 49 are missing"):
        jobs.run(spark, found, once=True)


def test_an_unknown_schema_is_reported_with_the_file(begun: tuple[settings.Settings, Journal]) -> None:
    found, _ = begun
    for wrong in ("temp DUBLE", "a INT, A INT", "a ARRAY<STRUCT<b: INT, B: INT>>", "("):
        changed = settings.Silver("t", "a", "json", wrong)
        with pytest.raises(MosqPipelineError, match=r"pipeline.toml: \[\[silver\]\] t schema: "):
            tableset.known_schema(found, changed, {})
