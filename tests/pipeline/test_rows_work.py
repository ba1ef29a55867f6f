"""Test the work of a task without Spark: CSV, numbers and Sparkplug as rows, the sums for gold, and the manifest."""

from __future__ import annotations

import datetime
import json
import pickle
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mosq.pipeline.lake.places import Place
from mosq.pipeline.rows import csv_rows, exact, number_rows, sums, types
from mosq.pipeline.rows.found import Found
from mosq.pipeline.rows.tables import BRONZE, GOLD, QUARANTINE
from mosq.pipeline.rows.work import MANIFEST, MANIFEST_DDL, Manifest, Rule, Work, read_manifest
from tests.pipeline.test_sparkplug import metric, text, varint

SOURCE = pa.schema([field for field in BRONZE if field.name not in ("date", "node")])
BEGIN = datetime.datetime(2026, 9, 21, 23, 59, 59, tzinfo=datetime.UTC)
BEGIN_US = int(BEGIN.timestamp()) * 1_000_000


def record(seq: int, topic: str | None = "t", payload: bytes | None = b"", *, us: int | None = 0, wait_us: int = 0, kind: int = 1, **more: Any) -> dict[str, Any]:
    time = None if us is None else BEGIN + datetime.timedelta(microseconds=us)
    after = None if time is None else time + datetime.timedelta(microseconds=wait_us)
    return {"stream": "tele", "shard": 0, "seq": seq, "time": time, "commit_time": after, "kind": kind, "qos": 0, "reason": 0, "retain": False, "dup": False,
            "topic": topic, "client_id": "c", "payload": payload} | more


def batch(rows: list[dict[str, Any]]) -> Any:
    return pa.RecordBatch.from_pylist(rows, schema=SOURCE)


def place(folder: Path, rules: tuple[Rule, ...] = ()) -> Place:
    """Return a folder in which the tables exist."""
    for name in ("bronze", "quarantine", *(rule.table for rule in rules)):
        (folder / name).mkdir(parents=True, exist_ok=True)
    return Place(str(folder))


def done(folder: Path, rows: list[dict[str, Any]], rules: tuple[Rule, ...] = (), size: int = 1000, **how: Any) -> Manifest:
    """Do the work of one task over records, in batches of a size, as Spark sends it."""
    work: Work = pickle.loads(pickle.dumps(Work(place(folder, rules), "node-1", rules, **how)))
    found = list(work([batch(rows[at:at + size]) for at in range(0, len(rows), size)]))
    assert all(one.schema == MANIFEST for one in found)
    return read_manifest(found)


def table(folder: Path, manifest: Manifest, name: str) -> list[dict[str, Any]]:
    """Return the rows of the files that a manifest names, with their dates."""
    rows: list[dict[str, Any]] = []
    for part in manifest.parts.get(name, ()):
        there = pq.ParquetFile(folder / name / part.path).read().to_pylist()
        assert len(there) == part.rows and (folder / name / part.path).stat().st_size == part.size
        rows += [row | {"date": part.date} for row in there]
    return sorted(rows, key=lambda row: (row["stream"], row["shard"], row["seq"]))


# ---- CSV and numbers

def of_csv(schema: str, *payloads: bytes) -> Found:
    return csv_rows.CsvReader(types.schema(schema)).read(pa.array(payloads, pa.binary()))


@pytest.mark.parametrize(("payload", "wanted"), [
    (b"1,a b", (1, "a b")), (b"-5,", (-5, None)), (b',"a,""b"""', (None, 'a,"b"')), (b'3,""', (3, "")), (b'3,"x\ny"\r\n', (3, "x\ny")), (b" 7 ,x\n", (7, "x")),
    (b'7,a"b', (7, 'a"b')), (b"9223372036854775807,\xc3\xbc", (2**63 - 1, "ü")), (b",", (None, None)), (b'"4",x', (4, "x")), (b"5.0,x", (5, "x")),
    (b"1,a,b", csv_rows.WRONG), (b"one,a", csv_rows.WRONG), (b"1", csv_rows.WRONG), (b'1,"a"b', csv_rows.WRONG), (b'1,"a', csv_rows.WRONG), (b"1,a\n2,b", csv_rows.WRONG),
    (b"1.5,a", csv_rows.WRONG), (b"1_0,a", csv_rows.WRONG), (b"9223372036854775808,a", csv_rows.HOLD), (b"", exact.EMPTY), (b"\xff,a", exact.NOT_UTF8),
    (b"1," + b"x" * exact.LARGE, csv_rows.TOO_LARGE),
])
def test_a_line_of_csv_is_a_row_or_has_a_reason(payload: bytes, wanted: Any) -> None:
    found = of_csv("id BIGINT, what STRING", b"0,first", payload)
    if isinstance(wanted, str):
        assert found.bad == {1: wanted} and found.at.to_pylist() == [0]
    else:
        assert not found.bad and tuple(column[1].as_py() for column in found.columns) == wanted


def test_csv_has_all_plain_types() -> None:
    found = of_csv("x DOUBLE, b BOOLEAN, d DATE, t TIMESTAMP, y BINARY, p DECIMAL(5, 2)", b"1.50,TRUE,2026-09-21,2026-09-21T12:00:00Z,ab,1.25", b"1e400,,,,,", b",yes,,,,", b",,,,,1.255",
                   b"9007199254740993,,,,,")
    assert [column.to_pylist()[0] for column in found.columns] == [
        1.5, True, datetime.date(2026, 9, 21), datetime.datetime(2026, 9, 21, 12, tzinfo=datetime.UTC), b"ab", found.columns[5][0].as_py()]
    assert str(found.columns[5][0]) == "1.25" and found.bad == {1: csv_rows.HOLD, 2: csv_rows.WRONG, 3: csv_rows.HOLD, 4: csv_rows.HOLD}
    with pytest.raises(types.SchemaError, match="ARRAY"):
        of_csv("a ARRAY<INT>")


@given(st.lists(st.none() | st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), min_size=2, max_size=4))
def test_cells_in_quotes_hold_any_text(cells: list[str | None]) -> None:
    line = ",".join("" if cell is None else '"' + cell.replace('"', '""') + '"' for cell in cells)
    found = of_csv(", ".join(f"c{i} STRING" for i in range(len(cells))), line.encode())
    assert not found.bad and [column[0].as_py() for column in found.columns] == cells


@pytest.mark.parametrize(("payload", "wanted"), [
    (b" -1.5e3 ", -1500.0), (b"7", 7.0), (b"\t.5\n", 0.5), (b"5.", 5.0), (b"+1", 1.0), (b"9007199254740992", 2.0**53), (b"0e-400", 0.0), (b"0.1", 0.1),
    (b"0x10", number_rows.WRONG), (b"1d", number_rows.WRONG), (b"NaN", number_rows.WRONG), (b"Infinity", number_rows.WRONG), (b"1_0", number_rows.WRONG), (b"1 2", number_rows.WRONG),
    ("١".encode(), number_rows.WRONG), (b"9007199254740993", number_rows.HOLD), (b"1e400", number_rows.HOLD), (b"1e-400", number_rows.HOLD), (b"9" * 9000, number_rows.HOLD),
    (b"9" * 100_000, number_rows.WRONG), (b"", exact.EMPTY), (b"\xff", exact.NOT_UTF8),
])
def test_a_number_is_a_row_or_has_a_reason(payload: bytes, wanted: Any) -> None:
    found = number_rows.NumberReader().read(pa.array([payload], pa.binary()))
    assert found.bad == {0: wanted} if isinstance(wanted, str) else found.columns[0].to_pylist() == [wanted]


# ---- all tables of a task

RULES = (
    Rule("telemetry", "site/+/json", "json", types.schema("temp DOUBLE, time BIGINT, tags ARRAY<STRING>")),
    Rule("guessed", "guess/#", "json"),
    Rule("csv", "csv/+", "csv", types.schema("id BIGINT, what STRING")),
    Rule("number", "number/+", "number"),
    Rule("plant", "spBv1.0/#", "sparkplug"),
    Rule("shadowed", "site/1/json", "json"),
)
METRICS = metric(text(1, b"m"), varint(10, 5)) + metric(text(1, b"s"), text(15, b"on")) + metric(text(1, b"u"), varint(4, 8), varint(11, 2**64 - 1))
MESSAGES: list[tuple[str | None, bytes | None]] = [
    ("site/1/json", b'{"temp": 21.5, "time": 7, "tags": ["a", "b"]}'), ("site/2/json", b'{"temp": 20, "new": 1.50}'), ("site/2/json", b'{"temp": "warm"}'), ("site/2/json", b""),
    ("site/2/json", None), ("site/1/json/below", b"{"), ("guess", b'{"x": 1}'), ("guess/a", b"\xff"), ("guess/b", b"x" * 70_000), ("csv/1", b"1,a b"), ("csv/1", b"one,a"),
    ("number/1", b"5"), ("number/1", b"five"), ("spBv1.0/g/DDATA/n/d", METRICS), ("spBv1.0/g/DDATA/n/d", b"\xff"), ("spBv1.0/g/DDATA/n/d", None), ("other", b"whatever"), (None, b"{}"),
]


@pytest.mark.parametrize("size", [1000, 1, 4])
def test_each_message_is_in_bronze_and_in_its_table(tmp_path: Path, size: int) -> None:
    rows = [record(i, topic, payload, us=i * 200_000) for i, (topic, payload) in enumerate(MESSAGES)]
    found = done(tmp_path, rows, RULES, size)
    bronze = table(tmp_path, found, "bronze")
    assert [(row["seq"], row["topic"], row["payload"], row["node"]) for row in bronze] == [(i, topic, payload, "node-1") for i, (topic, payload) in enumerate(MESSAGES)]
    assert {row["date"] for row in bronze[:5]} == {"2026-09-21"} and {row["date"] for row in bronze[5:]} == {"2026-09-22"}
    telemetry = table(tmp_path, found, "silver/telemetry")
    assert [(row["seq"], row["temp"], row["time_"], row["tags"], row["_rescued"], row["date"]) for row in telemetry] == [
        (0, 21.5, 7, ["a", "b"], None, "2026-09-21"), (1, 20.0, None, None, '{"new":1.50}', "2026-09-21")]
    assert telemetry[0]["time"] == BEGIN and telemetry[0]["client_id"] == "c" and telemetry[0]["topic"] == "site/1/json"
    assert [(row["id"], row["what"]) for row in table(tmp_path, found, "silver/csv")] == [(1, "a b")]
    assert [row["value"] for row in table(tmp_path, found, "silver/number")] == [5.0]
    assert [(row["metric"], row["long_value"], row["string_value"], row["_rescued"]) for row in table(tmp_path, found, "silver/plant")] == [
        ("m", 5, None, None), ("s", None, "on", None), ("u", None, None, '{"long_value":18446744073709551615}')]
    wanted = [(2, "telemetry", exact.TYPE), (3, "telemetry", "empty"), (4, "telemetry", "empty"), (10, "csv", csv_rows.WRONG), (12, "number", number_rows.WRONG),
              (14, "plant", "sparkplug: not a payload of Sparkplug B"), (15, "plant", "empty")]
    assert [(row["seq"], row["silver"], row["reason"]) for row in table(tmp_path, found, "quarantine")] == wanted
    assert [row["payload"] for row in table(tmp_path, found, "quarantine")] == [MESSAGES[seq][1] for seq, _, _ in wanted]
    assert found.bad == Counter(reason for _, _, reason in wanted)
    assert found.fields == {"telemetry": {"new": ("DOUBLE", 1)}}
    assert found.pending == {"guessed": 3} and found.samples == {"guessed": ['{"x": 1}']}
    assert found.rows == {"bronze": 18, "silver/telemetry": 2, "silver/csv": 1, "silver/number": 1, "silver/plant": 3, "quarantine": 7}
    assert found.places == {"node-1/tele/0": {"n": 18, "covered": 18, "min_seq": 0, "max_seq": 17, "time_us": BEGIN_US + 17 * 200_000}}


def test_a_task_without_records_has_an_empty_manifest(tmp_path: Path) -> None:
    found = done(tmp_path, [], RULES)
    assert found.parts == {} and found.places == {} and set(found.sums) == set(GOLD) and not [path for path in tmp_path.rglob('*') if path.is_file()]
    assert [field.split()[0] for field in MANIFEST_DDL.split(", ")] == MANIFEST.names


def test_a_backfill_reads_bronze_and_writes_one_rule(tmp_path: Path) -> None:
    rows = [record(i, topic, payload) for i, (topic, payload) in enumerate(MESSAGES)]
    first = done(tmp_path, rows, RULES)
    bronze = pq.ParquetFile(tmp_path / "bronze" / first.parts["bronze"][0].path).read().to_batches()
    bronze = [pa.RecordBatch.from_pylist([row | {"date": BEGIN.date(), "node": "other"} for row in one.to_pylist()], schema=BRONZE) for one in bronze]
    rules = (RULES[0], Rule("guessed", "guess/#", "json", types.schema("x BIGINT")), *RULES[2:])
    work = Work(Place(str(tmp_path)), "node-1", rules, frozenset(["silver"]), bronze=False, only=frozenset(["guessed", "shadowed"]))
    found = read_manifest(work(bronze))
    assert set(found.parts) == {"silver/guessed", "quarantine"} and not found.pending
    assert [(row["seq"], row["x"], row["node"]) for row in table(tmp_path, found, "silver/guessed")] == [(6, 1, "other")]
    assert found.bad == {"not UTF-8": 1, "json: malformed": 1}


def test_gaps_are_counted_and_have_a_date(tmp_path: Path) -> None:
    gap = b'{"lost": 5, "from": 3, "to": 7, "why": "damaged"}'
    rows = [record(3, None, gap, us=None, kind=10), record(8, us=10**6), record(9, None, b'{"lost": 2}', us=10**6, kind=10), record(10, shard=1)]
    for size in (10, 1):
        found = done(tmp_path / str(size), rows, size=size)
        assert found.places == {"node-1/tele/0": {"n": 3, "covered": 7, "min_seq": 3, "max_seq": 9, "time_us": BEGIN_US + 10**6},
                                "node-1/tele/1": {"n": 1, "covered": 1, "min_seq": 10, "max_seq": 10, "time_us": BEGIN_US}}
        assert found.accounts is not None and [(row["seq"], row["kind"], row["payload"]) for row in found.accounts.to_pylist()] == [(3, 10, gap), (9, 10, b'{"lost": 2}')]
        dates = [row["date"] for row in table(tmp_path / str(size), found, "bronze")]
        assert dates[1:] == ["2026-09-22", "2026-09-22", "2026-09-21"] and (dates[0] == "2026-09-22" or size == 1)
        assert sum(found.sums["traffic"]["messages"].to_pylist()) == 2


def test_messages_of_64_mib_are_in_bronze_and_quarantine(tmp_path: Path) -> None:
    large = b'{"temp": ' + b"1" * (64 << 20) + b"}"
    found = done(tmp_path, [record(0, "site/1/json", large), record(1, "site/1/json", b'{"temp": 1}'), record(2, "site/1/json", b"[" * (64 << 20))], RULES)
    assert found.bad == {exact.TOO_LARGE: 2} and found.rows["silver/telemetry"] == 1
    assert [row["payload"] == large for row in table(tmp_path, found, "quarantine")] == [True, False]


def test_the_manifests_of_tasks_add_up(tmp_path: Path) -> None:
    rows = [record(i, f"site/{i % 3}/json", json.dumps({"temp": i, "n": i if i % 2 else 0.5}).encode(), us=i * 10**6, wait_us=i) for i in range(100)]
    whole = done(tmp_path / "a", rows, RULES)
    tasks = [Work(place(tmp_path / "b", RULES), "node-1", RULES)([batch(rows[at:at + 30])]) for at in range(0, 100, 30)]
    parts = read_manifest([one for task in tasks for one in task])
    assert whole.fields == parts.fields == {"telemetry": {"n": ("DOUBLE", 100)}}
    assert whole.places == parts.places and whole.rows == parts.rows
    assert {name: rows.to_pylist() for name, rows in whole.sums.items()} == {name: rows.to_pylist() for name, rows in parts.sums.items()}


# ---- sums

WINDOW = 10_000_000
records = st.builds(
    lambda us, wait, kind, topic, client, stream, shard, reason, payload: record(
        0, topic, payload, us=us, wait_us=wait, kind=kind, client_id=client, stream=stream, shard=shard, reason=reason),
    us=st.none() | st.integers(-WINDOW, 3 * WINDOW), wait=st.integers(-5, 200_000), kind=st.sampled_from([1, 1, 1, 2, 2, 3, 4, 6, 7, 8, 9, 10, 11]),
    topic=st.sampled_from(["a", "a/b", "a/b/c", "/", "ü/x/", None]), client=st.sampled_from(["c", "d", None]), stream=st.sampled_from(["s", "t"]), shard=st.integers(0, 2),
    reason=st.sampled_from([0, 0x80, 0x97]), payload=st.none() | st.binary(max_size=5))


def naive(rows: list[dict[str, Any]], marks: dict[str, int]) -> dict[str, dict[tuple[Any, ...], list[Any]]]:
    found: dict[str, dict[tuple[Any, ...], list[Any]]] = {name: defaultdict(lambda: [0, 0, 0, 0, 0]) for name in GOLD}
    times: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for row in rows:
        if row["time"] is None:
            continue
        us = BEGIN_US + (row["time"] - BEGIN) // datetime.timedelta(microseconds=1)
        start = us // WINDOW * WINDOW
        client, topic, kind = row["client_id"] or "", row["topic"] or "", row["kind"]
        if us < marks.get(f"node-1/{row['stream']}/{row['shard']}", -1):
            found["late"][start,][0] += 1
        elif kind == 1:
            key = start, row["stream"], "/".join(topic.split("/")[:2]), topic, client
            volume = found["traffic"][key]
            times[key].append(row["time"])
            volume[0] += 1
            volume[1] += len(row["payload"] or b"")
            wait = max((row["commit_time"] - row["time"]) // datetime.timedelta(microseconds=1), 0)
            step = 1 << max(wait.bit_length() - 5, 0)
            one = found["latency"][start, row["stream"], (wait // step + 1) * step - 1]
            one[0] += 1
            one[1] = max(one[1], wait)
        elif kind == 6:
            found["drops"][start, row["reason"], client][0] += 1
        elif kind in (2, 3, 7, 8):
            found["churn"][start, client][1 if kind == 2 and row["reason"] >= 0x80 else {2: 0, 3: 2, 8: 3, 7: 4}[kind]] += 1
    for key, these in times.items():
        found["traffic"][key][2:4] = [max(these), min(these)]
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(records, max_size=40), st.dictionaries(st.sampled_from(["node-1/s/0", "node-1/s/1", "node-1/t/0"]), st.integers(BEGIN_US - WINDOW, BEGIN_US + 3 * WINDOW)), st.integers(1, 3))
def test_sums_equal_those_of_a_loop(rows: list[dict[str, Any]], marks: dict[str, int], tasks: int) -> None:
    partial: dict[str, list[pa.Table]] = defaultdict(list)
    for task in range(tasks):
        added = sums.Sums(WINDOW, 2, marks)
        for at in range(task, len(rows), tasks * 7):
            one = batch(rows[at:at + tasks * 7:tasks])
            columns = {field.name: one[field.name] if field.name in one.schema.names else pa.nulls(one.num_rows, field.type) for field in BRONZE}
            columns["node"] = pa.array(["node-1"] * one.num_rows)
            added.add(pa.RecordBatch.from_arrays(list(columns.values()), schema=BRONZE))
        for name, found in added.content().items():
            partial[name].append(found)
    wanted = naive(rows, marks)
    for name, found in sums.combine(partial).items():
        gold = GOLD[name]
        assert found.schema == gold.schema
        keys = [key for key in gold.keys if key not in ("date", "window_start", "window_end", "node")]
        got = {}
        for row in found.to_pylist():
            start = round(row["window_start"].timestamp() * 1e6)
            assert row["date"] == row["window_start"].date() and row["window_end"] - row["window_start"] == datetime.timedelta(microseconds=WINDOW) and row["node"] == "node-1"
            key = (start, *(row[key] for key in keys))
            assert key not in got
            got[key] = [row[value] for value in gold.how]
        assert got == {key: value[:len(gold.how)] for key, value in wanted[name].items()}


def test_quarantine_has_the_keys_of_silver() -> None:
    assert QUARANTINE.names[:8] == types.silver_schema(types.schema("a INT")).names[:8]
