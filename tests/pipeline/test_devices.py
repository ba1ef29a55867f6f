"""Test the table gold/devices and its views, and the views of gaps and rates, without Spark."""

from __future__ import annotations

import contextlib
import datetime
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from mosq.cli.pipeline.commands import pipeline
from mosq.pipeline import settings
from mosq.pipeline.duck import Duck
from mosq.pipeline.lake import upkeep
from mosq.pipeline.lake.places import place_of
from mosq.pipeline.lake.table import Table
from mosq.pipeline.rows import devices
from mosq.pipeline.rows.devices import Devices
from mosq.pipeline.rows.tables import BRONZE, DEVICE_KEYS, DEVICES
from mosq.pipeline.runs import progress, rebuild, settling, status, tending, verify
from mosq.pipeline.runs.tableset import TableSet
from tests.pipeline import lake_tables
from tests.pipeline.batches import Batches, Frame
from tests.pipeline.journals import Journal

BEGIN = datetime.datetime(2026, 11, 1, 12, tzinfo=datetime.UTC)
SETTINGS = """
[pipeline]
journal = "streams"
node = "here"
window = "10 seconds"
[[silver]]
name = "telemetry"
topic = "site/+"
format = "json"
schema = "temp DOUBLE, on BOOLEAN, tags ARRAY<STRING>"
[[silver]]
name = "guessed"
topic = "guess/#"
format = "json"
"""


# ---- the kernel

records = st.tuples(
    st.sampled_from([1, 1, 1, 2, 3, 7, 8, 11]), st.integers(-5, 5), st.sampled_from(["c", None]), st.sampled_from(["a", "a", ""]), st.sampled_from(["s", "s", "t"]),
    st.sampled_from([0, 0, 1]), st.sampled_from([0, 0, 0x80, 0x8E]), st.none() | st.integers(-9, 9), st.none() | st.sampled_from(["x", "ü"]))


def bronze(rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    return [{"node": "n", "seq": seq, "kind": kind, "time": BEGIN + datetime.timedelta(seconds=s), "client_id": client, "topic": topic if kind == 1 else None, "stream": stream,
             "shard": shard, "reason": reason, "number": number, "text": text} for seq, (kind, s, client, topic, stream, shard, reason, number, text) in enumerate(rows)]


def naive(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], list[Any]]:
    """Return seq, time, value, number, first_time and messages of each key."""
    found: dict[tuple[Any, ...], list[Any]] = {}

    def put(row: dict[str, Any], topic: str, silver: str, field: str, value: str | None, number: float | None, n: int) -> None:
        had = found.setdefault(("n", row["stream"], row["shard"], row["client_id"] or "", topic, silver, field), [0, None, None, None, None, 0])
        had[:4] = row["seq"], row["time"], value, number
        if not silver:
            had[4], had[5] = min(had[4] or row["time"], row["time"]), had[5] + n

    for row in rows:
        kind, reason = row["kind"], row["reason"]
        if kind == 1:
            put(row, row["topic"], "", "", None, None, 1)
            for name in ("number", "text"):
                if row[name] is not None:
                    put(row, row["topic"], "rule", name, str(row[name]), row[name] if name == "number" else None, 0)
        elif kind == 11:
            put(row, "", "", "start", "start", reason, 0)
        elif (kind == 2 and reason < 0x80) or (kind == 3 and reason != 0x8E) or kind == 7:
            put(row, "", "", "", {2: "online", 3: "offline", 7: "expired"}[kind], reason, int(kind == 2))
    return found


@limits(max_examples=80, deadline=None)
@given(st.lists(records, max_size=40), st.integers(1, 3), st.integers(1, 9), st.randoms())
def test_the_last_of_each_key_is_that_of_a_loop(told: list[tuple[Any, ...]], tasks: int, size: int, chance: Any) -> None:
    """Records come in any order, as a rebuild reads them, and divided in any way."""
    rows = bronze(told)
    wanted = naive(rows)
    shuffled = chance.sample(rows, len(rows))
    parts = []
    for task in range(tasks):
        work = Devices()
        mine = shuffled[task::tasks]
        for at in range(0, len(mine), size):
            some = mine[at:at + size]
            batch = pa.RecordBatch.from_pylist(some, schema=BRONZE)
            work.records(batch)
            message = pa.array([row["kind"] == 1 for row in some])
            columns = [pa.array([row[name] for row in some], kind) for name, kind in (("number", pa.int64()), ("text", pa.string()))]
            work.values("rule", batch.filter(message), ["number", "text"], [column.filter(message) for column in columns])
        if (content := work.content()) is not None:
            parts.append(content)
    got = devices.folded(pa.concat_tables(parts)) if parts else None
    found = {} if got is None else {tuple(row.pop(key) for key in DEVICE_KEYS): list(row.values()) for row in got.to_pylist()}
    assert found == wanted


def test_values_of_all_types_have_a_text() -> None:
    def of(values: list[Any], type: pa.DataType) -> tuple[list[Any], list[Any]]:
        array = pa.array(values, type)
        return devices.texts(array).to_pylist(), devices.numbers(array).to_pylist()

    assert of([2**53 + 1, None], pa.int64()) == ([str(2**53 + 1), None], [float(2**53), None])
    assert of([0.1], pa.float64()) == (["0.1"], [0.1]) and of([True], pa.bool_()) == (["true"], [None])
    assert of([b"\xff"], pa.binary()) == (["ff"], [None]) and of(["ü" * 2000], pa.string()) == (["ü" * devices.VALUE_MAX], [None])
    assert of([[{"a": "ü"}]], pa.list_(pa.struct([("a", pa.string())]))) == (['[{"a": "ü"}]'], [None])
    assert of([[("k", 1)]], pa.map_(pa.string(), pa.int64())) == (['{"k": 1}'], [None])
    assert of([BEGIN], pa.timestamp("us", "UTC"))[0][0].startswith("2026-11-01 12:00:00")


def test_metrics_are_fields() -> None:
    n = 5
    rows = pa.RecordBatch.from_pylist(
        [{"node": "n", "stream": "s", "shard": 0, "seq": 7, "time": BEGIN, "topic": "t", "client_id": "c"}] * n, BRONZE)
    columns: dict[str, Any] = {
        "metric": pa.array(["a", "a", None, None, "old"]), "alias": pa.array([None, None, 5, None, None], pa.int64()), "historical": pa.array([False, None, False, False, True]),
        "long_value": pa.array([1, 2, None, 4, 5], pa.int64()), "double_value": pa.nulls(n, pa.float64()), "boolean_value": pa.array([None, None, True, None, None]),
        "string_value": pa.nulls(n, pa.string()), "bytes_value": pa.nulls(n, pa.binary())}
    work = Devices()
    work.metrics("plant", rows, columns)
    content = work.content()
    assert content is not None
    assert [(row["field"], row["value"], row["number"]) for row in content.to_pylist()] == [("a", "2", 2.0), ("alias 5", "true", None)]


# ---- the table

class Site:
    def __init__(self, folder: Path) -> None:
        self.telemetry = Journal(folder / "streams", "tele")
        self.events = Journal(folder / "streams", "events")
        (folder / "pipeline.toml").write_text(SETTINGS)
        self.settings = settings.load(folder)

    def event(self, kind: int, client: str, reason: int = 0) -> None:
        self.events.put("", b"", kind=kind, client_id=client, reason=reason)

    def send(self, client: str, topic: str, **values: object) -> None:
        self.telemetry.put(topic, json.dumps(values).encode(), client_id=client)

    def run(self) -> None:
        self.telemetry.commit()
        self.events.commit()
        Batches(self.settings).all()

    def table(self) -> Table:
        found = Table.open(place_of(self.settings), DEVICES)
        assert found is not None
        return found

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        duck = Duck(self.settings)
        found = duck.query(query)
        duck.close()
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    def close(self) -> None:
        self.telemetry.close()
        self.events.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with contextlib.closing(Site(tmp_path)) as found:
        yield found


VALUES = "SELECT client_id, topic, field, value FROM last_values ORDER BY 1, 2, 3"
PRESENCE = "SELECT client_id, online, state, connects FROM presence ORDER BY 1"


def fill(site: Site) -> None:
    site.event(11, "")
    site.event(2, "a")
    site.event(2, "b")
    site.event(2, "c", 0x87)        # it is refused
    site.send("a", "site/1", temp=1.5, on=True, tags=["x"])
    site.send("b", "site/2", temp=2)
    site.run()
    site.send("a", "site/1", temp=3, on=None)
    site.send("b", "other", temp=9)
    site.event(8, "a", 0x8E)
    site.event(3, "a", 0x8E)
    site.event(2, "a")
    site.event(3, "b", 0x8D)
    site.run()


def test_last_values_and_connections_after_several_batches(site: Site) -> None:
    fill(site)
    assert site.ask(VALUES) == [("a", "site/1", "on", "true"), ("a", "site/1", "tags", '["x"]'), ("a", "site/1", "temp", "3"), ("b", "site/2", "temp", "2")]
    assert site.ask(PRESENCE) == [("a", True, "online", 2), ("b", False, "offline", 1)]
    assert site.ask("SELECT client_id, topic, messages, online FROM devices ORDER BY 1, 2") == [
        ("a", "site/1", 2, True), ("b", "other", 1, False), ("b", "site/2", 1, False)]
    assert verify.verify(site.settings).adds_up
    # a start of the broker ends all connections
    site.event(11, "")
    site.run()
    assert site.ask(PRESENCE) == [("a", False, "unknown", 2), ("b", False, "offline", 1)]
    text = status.text(status.status(site.settings))
    assert "clients: 0 online, 2 offline" in text and "b (node here), offline since" in text


def test_a_start_of_a_worker_ends_the_connections_of_its_clients_only(site: Site) -> None:
    with contextlib.closing(Journal(site.events.path, "worker.1")) as other:
        for kind, client in ((11, ""), (2, "b"), (2, "c"), *([(11, "")] * 9), (2, "b")):
            other.put("", b"", kind=kind, client_id=client)
        other.commit()
    site.event(11, "")
    site.event(2, "a")          # its number is below that of the last start of the other worker
    site.run()
    assert site.ask(PRESENCE) == [("a", True, "online", 1), ("b", True, "online", 2), ("c", False, "unknown", 1)]
    assert site.ask("SELECT client_id, reason FROM sessions ORDER BY client_id, connected_at") == [("a", None), ("b", "unknown"), ("b", None), ("c", "unknown")]
    assert "clients: 2 online, 1 offline" in status.text(status.status(site.settings))


class Killed(BaseException):
    pass


def test_a_batch_that_is_done_again_counts_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(site)
    site.send("a", "site/1", temp=4)
    site.telemetry.commit()

    def fatal(*args: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:        # gold/devices is committed, and progress is not
        patch.setattr(progress, "put_after", fatal)
        with pytest.raises(Killed):
            Batches(site.settings).all()
    killed = site.table()
    Batches(site.settings).all()
    assert site.table().read().equals(killed.read())
    assert site.ask("SELECT messages FROM devices WHERE topic = 'site/1'") == [(3,)] and verify.verify(site.settings).adds_up


def test_rows_are_erased_and_expire(site: Site) -> None:
    fill(site)
    assert tending.erase(site.settings, "b", None, lambda line: None)
    assert site.ask("SELECT DISTINCT client_id FROM gold_devices WHERE client_id <> '' ORDER BY 1") == [("a",)]
    assert verify.verify(site.settings).adds_up
    assert tending.erase(site.settings, None, "site/1", lambda line: None)
    assert site.ask(VALUES) == [] and site.ask(PRESENCE) == [("a", True, "online", 2)]
    table = site.table()
    n = table.rows()
    assert upkeep.expire(table, 86_400_000_000 * 36_500) == 0 and table.rows() == n
    old = pa.scalar(datetime.datetime(2001, 1, 1, tzinfo=datetime.UTC), pa.timestamp("us", "UTC"))
    rows = table.read()
    table.replace(rows.set_column(rows.schema.get_field_index("time"), "time", pa.array([old.as_py()] * n, old.type)), "test", 0)
    assert upkeep.expire(table, 86_400_000_000 * 3) == n and table.rows() == 0


def test_verify_finds_a_missing_row(site: Site) -> None:
    fill(site)
    assert site.table().delete((pc.field("topic") == "site/1") & (pc.field("silver") == ""))
    found = verify.verify(site.settings)
    assert [(one["table"], one["n"]) for one in found.faults] == [(DEVICES, 2)]
    shown = CliRunner().invoke(pipeline, ["verify", "-s", str(site.settings.file)], standalone_mode=False)
    assert shown.return_value == 2 and "2 messages and connections" in shown.output


class Bronze:
    """Stand for Spark's frame of bronze, in a backfill and in a rebuild."""

    def __init__(self, tables: TableSet, date: Any = None) -> None:
        self.tables, self.date = tables, date

    def __getitem__(self, name: str) -> pc.Expression:
        return pc.field(name)

    def where(self, which: Any) -> Bronze:
        self.date = which
        return self

    def mapInArrow(self, work: Any, ddl: str) -> Frame:
        rows = self.tables.table("bronze").refresh().read(self.date)
        shuffled = rows.take(random.Random(1).sample(range(rows.num_rows), rows.num_rows))     # files come in any order
        return Frame(lambda: work(iter(shuffled.to_batches(max_chunksize=3))))


def test_a_backfill_and_a_rebuild_give_the_same_rows(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "bronze", lambda spark, tables, upto, date=None: Bronze(tables))      # `where` gets the date, too
    monkeypatch.setattr(settling, "of_rule", lambda found, name: None)
    monkeypatch.setattr(settling, "sampled", lambda spark, found, tables, name: ['{"x": 7}'])
    fill(site)
    site.send("a", "guess/1", x=7)
    site.telemetry.commit()
    batches = Batches(site.settings)
    batches.all()
    batches.jobs.end()      # it settles the schema of `guessed`
    rows = site.table().read()
    assert ("a", "guess/1", "x", "7") in site.ask(VALUES) and verify.verify(site.settings).adds_up
    spark: Any = None
    rebuild.rebuild(spark, site.settings, log=lambda line: None)        # of everything
    assert site.table().read().equals(rows)
    for change in (("on BOOLEAN", "on BOOLEAN, more STRING"), ("10 seconds", "20 seconds")):       # of one rule, and of the windows
        site.settings.file.write_text(site.settings.file.read_text().replace(*change))
        changed = settings.load(site.settings.file)
        rebuild.rebuild(spark, changed, log=lambda line: None)
        assert site.table().read().equals(rows) and verify.verify(changed).adds_up
    with monkeypatch.context() as patch:        # a rule that is gone takes its values with it
        site.settings.file.write_text(site.settings.file.read_text().partition('[[silver]]\nname = "guessed"')[0])
        patch.setattr(settling, "sampled", None)
        rebuild.rebuild(spark, settings.load(site.settings.file), log=lambda line: None)
    assert site.table().read(pc.field("silver") == "guessed").num_rows == 0
    assert site.table().rows() == rows.num_rows - 1


# ---- gaps and rates

def traffic(*windows: tuple[int, float, float, int], client: str = "a") -> list[dict[str, Any]]:
    """Return rows of gold/traffic: number of the window, seconds of the first and last message, messages."""
    return [{"window_start": BEGIN + datetime.timedelta(seconds=10 * w), "window_end": BEGIN + datetime.timedelta(seconds=10 * w + 10), "stream": "s", "prefix": "t", "topic": "t",
             "client_id": client, "messages": n, "bytes": n, "first_time": BEGIN + datetime.timedelta(seconds=first), "last_time": BEGIN + datetime.timedelta(seconds=last)}
            for w, first, last, n in windows]


def test_gaps_are_longer_than_three_usual_intervals(tmp_path: Path) -> None:
    found = lake_tables.load(tmp_path)
    lake_tables.put(found, "bronze", BRONZE.empty_table())
    regular = [(w, 10.0 * w + 1, 10.0 * w + 8, 3) for w in range(10)]
    lake_tables.put(found, "gold/traffic", traffic(*regular))
    # it sent nothing from 28 to 61, and nothing after 68
    lake_tables.put(found, "gold/traffic", traffic(*(one for one in regular[:7] if one[0] not in (3, 4, 5)), (7, 71, 72, 1), client="b"))
    # another stream has the same messages, and two intervals are no history
    lake_tables.put(found, "gold/traffic", [one | {"stream": "other"} for one in traffic(*regular)])
    lake_tables.put(found, "gold/traffic", traffic((0, 0, 0, 1), (1, 10, 10, 1), (9, 90, 90, 1), client="c"))
    duck = Duck(found)
    got = duck.query("SELECT client_id, gap_from, gap_to, gap_s, usual_s, missing FROM gaps ORDER BY 1, 2").to_pylist()
    duck.close()

    def at(seconds: float) -> datetime.datetime:
        return BEGIN + datetime.timedelta(seconds=seconds)

    assert [tuple(row.values()) for row in got] == [("b", at(28), at(61), 33.0, 3.0, 10), ("b", at(72), None, 26.0, 3.0, 8)]


def test_rates_leave_the_range_of_their_own_history(tmp_path: Path) -> None:
    found = lake_tables.load(tmp_path)
    lake_tables.put(found, "bronze", BRONZE.empty_table())
    counts = [1, 20, 21, 19, 20, 60, 20, 20, 3, 20, 1]      # the first and the last window are not whole
    lake_tables.put(found, "gold/traffic", traffic(*((w, 10.0 * w, 10.0 * w, n) for w, n in enumerate(counts))))
    lake_tables.put(found, "gold/traffic", traffic(*((w, 10.0 * w, 10.0 * w, 1 + 99 * (w == 3)) for w in range(5)), client="b"))   # it has no history
    duck = Duck(found)
    got = duck.query("SELECT client_id, messages, usual, low, high FROM rates ORDER BY window_start").to_pylist()
    duck.close()
    assert [tuple(row.values()) for row in got] == [("a", 60, 20.0, 14.0, 26.0), ("a", 3, 20.0, 14.0, 26.0)]
