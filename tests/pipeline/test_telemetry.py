"""Test gold/telemetry: values by the time of the event, late events, clocks that jump; then kills, checks, rebuilds, retention and erasure of its rows."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import math
import os
import types as simple
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from mosq.pipeline import MosqPipelineError, fanout, settings
from mosq.pipeline.duck import Duck
from mosq.pipeline.lake.places import place_of
from mosq.pipeline.lake.table import Table
from mosq.pipeline.rows import sums, telemetry, types
from mosq.pipeline.rows.declared import Event
from mosq.pipeline.rows.tables import BRONZE, TELEMETRY_KEYS, TELEMETRY_SCHEMA
from mosq.pipeline.rows.work import MANIFEST, Rule
from mosq.pipeline.runs import adopt, progress, rebuild, settling, status, tending, verify
from tests.pipeline.batches import Batches, Frame
from tests.pipeline.journals import Journal

DAY, HOUR, MINUTE, SECOND = 86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000
NOW = datetime.datetime(2026, 9, 21, 23, 50, tzinfo=datetime.UTC)
NOW_US = int(NOW.timestamp()) * SECOND
SCHEMA = types.schema("ts BIGINT, x DOUBLE, n INT, p DECIMAL(5, 2), what STRING")
RULE = Rule("r", "#", "json", SCHEMA, Event("ts", "ms", 2 * HOUR, MINUTE))
WINDOW = 10 * MINUTE


def at(us: int) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=us)


def row(seq: int, time_us: int, ts: int | None, **more: Any) -> dict[str, Any]:
    return {"date": at(time_us).date(), "node": "n", "stream": "s", "shard": 0, "seq": seq, "time": at(time_us), "topic": "t", "client_id": "c", "ts": ts} | more


def silver(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(rows, types.silver_schema(schema))


# ---- the kernel

rows = st.lists(st.builds(
    lambda time, away, ts, x, n, p, topic, client, stream: row(0, NOW_US + time, ts if away is None else (NOW_US + time + away) // 1000, x=x, n=n, p=p, topic=topic, client_id=client, stream=stream),
    time=st.integers(-HOUR, HOUR), away=st.none() | st.integers(-4 * HOUR, 2 * HOUR) | st.sampled_from([-2 * HOUR, MINUTE, MINUTE + 1000, -20 * MINUTE]),
    ts=st.none() | st.sampled_from([0, -1, 253_402_300_799_999, 2**63 - 1, -2**63]),
    x=st.none() | st.integers(-1000, 1000).map(float), n=st.none() | st.integers(-5, 5), p=st.none() | st.integers(-999, 999).map(lambda n: decimal.Decimal(n) / 4),
    topic=st.sampled_from(["a", "b", None]), client=st.sampled_from(["c", None]), stream=st.sampled_from(["s", "t"])), max_size=30)


@examples(max_examples=80, deadline=None)
@given(rows, st.integers(1, 5), st.integers(1, 3))
def test_values_equal_those_of_a_loop(rows: list[dict[str, Any]], size: int, tasks: int) -> None:
    wanted: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    late = misdated = 0
    for one in rows:
        time_us = (one["time"] - at(0)) // datetime.timedelta(microseconds=1)
        us = None if one["ts"] is None else one["ts"] * 1000
        bad = us is None or not time_us - 2 * HOUR <= us <= time_us + MINUTE
        event = time_us if bad or us is None else us
        is_late = event < time_us - 20 * MINUTE
        late, misdated = late + is_late, misdated + bad
        for name in ("x", "n", "p"):
            if one[name] is not None:
                key = at(event - event % WINDOW), one["stream"], one["topic"] or "", one["client_id"] or "", name
                wanted[key].append((event, float(one[name]), is_late, bad))
    added = [telemetry.Telemetry(RULE, SCHEMA, WINDOW, 20 * MINUTE) for _ in range(tasks)]
    for i, begin in enumerate(range(0, len(rows), size)):
        added[i % tasks].add(silver(rows[begin:begin + size]))
    assert (sum(one.late for one in added), sum(one.misdated for one in added)) == (late, misdated)
    found = telemetry.joined(one.content() for one in added)
    assert found.schema == TELEMETRY_SCHEMA and found.num_rows == len(wanted)
    for one in found.to_pylist():
        values = wanted[one["window_start"], one["stream"], one["topic"], one["client_id"], one["field"]]
        each = [value for _, value, _, _ in values]
        last = max((event, value) for event, value, _, _ in values)
        assert (one["count"], one["min"], one["max"], one["sum"]) == (len(each), min(each), max(each), sum(each))
        assert (at(last[0]), last[1]) == (one["last_time"], one["last"])
        assert (one["late"], one["misdated"]) == (sum(value[2] for value in values), sum(value[3] for value in values))
        assert (one["silver"], one["node"], one["date"], one["window_end"] - one["window_start"]) == ("r", "n", one["window_start"].date(), datetime.timedelta(microseconds=WINDOW))
    again = sum(pc.sum(added[0].counts(silver([one]))["n"]).as_py() or 0 for one in rows)
    assert again == sum(map(len, wanted.values()))


@pytest.mark.parametrize(("type", "unit", "value", "wanted"), [
    ("BIGINT", "s", NOW_US // SECOND - 5, -5 * SECOND), ("BIGINT", "us", NOW_US - 5, -5), ("BIGINT", "ns", (NOW_US - 5) * 1000 + 999, -5), ("INT", "s", 0, None),
    ("DOUBLE", "s", NOW_US / SECOND - 2.5, -2_500_000), ("DECIMAL(20, 6)", "s", decimal.Decimal(NOW_US - 7) / SECOND, -7), ("TIMESTAMP", "", at(NOW_US - 3), -3),
    ("DOUBLE", "ms", math.nan, None), ("DOUBLE", "ms", math.inf, None), ("DOUBLE", "ms", -math.inf, None), ("DOUBLE", "ms", 1e300, None),
    ("BIGINT", "s", 2**63 - 1, None), ("BIGINT", "s", -2**63, None), ("TIMESTAMP", "", datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC), None),
    ("TIMESTAMP", "", datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC), None), ("BIGINT", "ms", None, None),
])
def test_a_time_has_a_unit_and_a_clock_that_jumps_does_not_count(type: str, unit: str, value: Any, wanted: int | None) -> None:
    schema = types.schema(f"ts {type}, x DOUBLE")
    rule = Rule("r", "#", "json", schema, Event("ts", unit, HOUR, MINUTE))
    found = telemetry.Telemetry(rule, schema, WINDOW, HOUR)
    found.add(silver([row(0, NOW_US, value, x=1.5)], schema))
    (one,) = found.content().to_pylist()
    assert one["last_time"] == at(NOW_US + (wanted or 0)) and one["misdated"] == found.misdated == (wanted is None)


def test_without_a_time_column_the_broker_has_the_time() -> None:
    found = telemetry.Telemetry(Rule("r", "#", "number", None, Event(values=("value",))), types.schema("value DOUBLE"), WINDOW, HOUR)
    found.add(silver([{name: value for name, value in row(0, NOW_US, None).items() if name != "ts"} | {"value": 2.0}], types.schema("value DOUBLE")))
    (one,) = found.content().to_pylist()
    assert (one["field"], one["last_time"], one["misdated"], one["late"]) == ("value", NOW, 0, 0)


# ---- settings

@pytest.mark.parametrize(("more", "why"), [
    ('format = "json"\ntime_column = "ts"', "time_column: expected a rule of format json or csv with a declared schema"),
    ('format = "sparkplug"\nvalues = ["x"]', "values: expected a rule of format json or csv"),
    ('format = "json"\nschema = "x DOUBLE"\ntime_unit = "s"', "time_unit: expected time_column beside it"),
    ('format = "json"\nschema = "ts INT, x DOUBLE"\ntime_column = "ts"\ntime_unit = "min"', "time_unit: expected one of s, ms, us, ns"),
    ('format = "json"\nschema = "x DOUBLE"\nvalues = ["x", "x"]', "values: expected a list of names of columns, each once"),
    ('format = "json"\nschema = "x DOUBLE"\nvalues = []', "values: expected a list of names"),
    ('format = "json"\nschema = "ts INT, x DOUBLE"\ntime_column = "t"', "t time_column: expected one of the columns ts, x; got 't'"),
    ('format = "json"\nschema = "ts INT, x DOUBLE"\ntime_column = "ts"', "t time_unit is missing: expected one of s, ms, us, ns"),
    ('format = "json"\nschema = "ts TIMESTAMP, x DOUBLE"\ntime_column = "ts"\ntime_unit = "s"', "t time_unit: expected none, as ts is a TIMESTAMP"),
    ('format = "json"\nschema = "ts STRING, x DOUBLE"\ntime_column = "ts"', "t time_column: expected a TIMESTAMP or a number"),
    ('format = "json"\nschema = "x STRING"\nvalues = ["x"]', "t values: expected columns of numbers; got 'x'"),
    ('format = "json"\nschema = "ts INT, x STRING"\ntime_column = "ts"\ntime_unit = "s"', "t values: expected a column of numbers beside the time"),
    ('format = "number"\ntime_column = "value"\ntime_unit = "s"', "t values: expected a column of numbers beside the time"),
])
def test_a_wrong_declaration_is_refused(tmp_path: Path, more: str, why: str) -> None:
    (tmp_path / "pipeline.toml").write_text(f'[pipeline]\njournal = "streams"\nnode = "here"\n[[silver]]\nname = "t"\ntopic = "a"\n{more}\n')
    journal = Journal(tmp_path / "streams", "tele")
    journal.commit()
    with contextlib.closing(journal), pytest.raises(MosqPipelineError) as caught:
        Batches(settings.load(tmp_path))
    assert why in str(caught.value)


# ---- tables

SETTINGS = """
[pipeline]
journal = "streams"
node = "here"
[[silver]]
name = "t"
topic = "t/+"
format = "json"
schema = "ts BIGINT, x DOUBLE, n INT"
time_column = "ts"
time_unit = "ms"
time_behind = "1 hour"
[[silver]]
name = "power"
topic = "power/+"
format = "number"
values = ["value"]
"""


class Site:
    """Hold a journal, and tables of it."""

    def __init__(self, folder: Path, text: str = SETTINGS) -> None:
        self.folder = folder
        self.journal = Journal(folder / "streams", "tele")
        self.set(text)
        self.n = 0

    def set(self, text: str) -> None:
        (self.folder / "pipeline.toml").write_text(text)
        self.settings = settings.load(self.folder)

    def fill(self, n: int = 30) -> None:
        """Put messages of which each tenth is late, and each tenth has a wrong clock."""
        for _ in range(n):
            i = self.n = self.n + 1
            now_ms = self.journal.now_us // 1000
            ts = {3: now_ms - 30 * 60_000, 5: 0, 7: now_ms + 10**12}.get(i % 10, now_ms - i)
            self.journal.put(f"t/{i % 2}", b'{"ts": %d, "x": %d, "n": %d}' % (ts, i, i % 4) if i % 6 else b'{"x": "no number"}', client_id=f"c{i % 3}")
            self.journal.put("power/1", b"%d.5" % i, client_id="meter")
        self.journal.commit()

    def table(self, name: str) -> Table:
        found = Table.open(place_of(self.settings), name)
        assert found is not None
        return found

    def telemetry(self) -> list[dict[str, Any]]:
        found = self.table("gold/telemetry").read()
        return found.sort_by([(key, "ascending") for key in TELEMETRY_KEYS]).to_pylist()

    def state(self) -> dict[str, Any]:
        return progress.of_table(self.table("progress"))

    def wanted(self) -> list[dict[str, Any]]:
        """Compute gold/telemetry from silver."""
        found = []
        for rule, schema in ((self.settings.silver[0], types.schema("ts BIGINT, x DOUBLE, n INT")), (self.settings.silver[1], types.schema("value DOUBLE"))):
            one = telemetry.Telemetry(Rule(rule.name, rule.topic, rule.format, schema, rule.event), schema, self.settings.window_us, self.settings.watermark_us)
            one.add(self.table(f"silver/{rule.name}").read())
            found.append(one.content())
        return telemetry.joined(found).to_pylist()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path)
    with contextlib.closing(found.journal):
        yield found


def without_spark(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a rebuild read bronze without Spark."""
    class Column:
        def __eq__(self, date: object) -> Any:
            return date

    class Bronze:
        def __getitem__(self, name: str) -> Column:
            return Column()

        def where(self, date: Any) -> Frame:
            data = site.table("bronze").dataset()
            return Frame(lambda: iter(data.to_table(filter=pc.field("date") == date).sort_by("seq").to_batches(max_chunksize=7)))

    monkeypatch.setattr(settling, "bronze", lambda *args: Bronze())


def rebuilt(site: Site) -> list[str]:
    lines: list[str] = []
    rebuild.rebuild(simple.SimpleNamespace(), site.settings, log=lines.append)          # type: ignore[arg-type]
    return lines


@pytest.mark.part("kills")
def test_a_kill_at_any_commit_changes_no_number(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = Table._commit
    for stop in range(1, 14):
        site.fill()
        left = [stop]

        def fatal(self: Table, *args: Any, left: list[int] = left, **kwargs: Any) -> bool:
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            return committed(self, *args, **kwargs)

        monkeypatch.setattr(Table, "_commit", fatal)
        with contextlib.suppress(KeyboardInterrupt):
            Batches(site.settings).all(25)
        monkeypatch.setattr(Table, "_commit", committed)
        assert verify.verify(site.settings).faults == []
    Batches(site.settings).all(25)
    found = site.telemetry()
    assert found == site.wanted() and sum(one["count"] for one in found) > 900
    state = site.state()
    assert state["events"]["t"]["late"] and state["events"]["t"]["misdated"] == sum(one["misdated"] for one in found) // 2
    text = status.text(status.status(site.settings))
    assert "late rows, which gold/telemetry has too" in text and "rows have no time, or one far from the broker's" in text
    checked = verify.verify(site.settings)
    assert checked.faults == [] and checked.tables["gold/telemetry"]["rows"] == sum(one["count"] for one in found)


def test_verify_finds_wrong_sums(site: Site) -> None:
    site.fill()
    Batches(site.settings).all()
    gold = site.table("gold/telemetry")
    rows = gold.read()
    more = rows.set_column(rows.schema.get_field_index("count"), rows.schema.field("count"), pc.add(rows["count"], 1))
    gold.replace(more, "", 0)
    faults = verify.verify(site.settings).faults
    assert faults and {one["table"] for one in faults} == {"gold/telemetry"} and "in silver/t" in faults[0]["what"]


def test_a_rebuild_gives_the_same_values(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also over several days, for one rule, and after the length of a window changed."""
    for days in (2, 1, 0):
        site.journal.now_us = int(datetime.datetime.now(datetime.UTC).timestamp()) * SECOND - days * DAY
        site.fill()
    Batches(site.settings).all()
    before, state = site.telemetry(), site.state()
    assert before == site.wanted()
    without_spark(site, monkeypatch)
    rebuilt(site)
    assert site.telemetry() == before and site.state()["events"] == state["events"]
    site.set(SETTINGS.replace('values = ["value"]', ""))
    rebuilt(site)
    assert site.telemetry() == [one for one in before if one["silver"] == "t"]
    site.set(SETTINGS.replace('node = "here"', 'node = "here"\nwindow = "1 hour"'))
    rebuilt(site)
    assert site.telemetry() == site.wanted() and {one["silver"] for one in site.telemetry()} == {"t", "power"}
    assert verify.verify(site.settings).faults == []
    site.fill()
    Batches(site.settings).all()
    assert site.telemetry() == site.wanted()


def test_no_file_of_a_killed_switch_is_deleted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """`compact` deleted files that no version names yet, if the next `run` came a day later."""
    site.fill()
    Batches(site.settings).all()
    without_spark(site, monkeypatch)

    def fatal(*args: Any, **kwargs: Any) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Table, "replace", fatal)
        with pytest.raises(KeyboardInterrupt):
            rebuilt(site)
    for path in (site.folder / "tables").rglob("part-*.parquet"):
        os.utime(path, (path.stat().st_mtime - 2 * 86_400,) * 2)
    assert list(tending.compact_all(site.settings))
    Batches(site.settings)
    assert verify.verify(site.settings).faults == []
    assert site.telemetry() == site.wanted()


def test_no_row_is_erased_while_a_rebuild_would_bring_it_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.fill()
    Batches(site.settings).all()
    without_spark(site, monkeypatch)
    client = site.table("silver/t").read()["client_id"][0].as_py()

    def erased() -> int:
        return tending.erase(site.settings, client, None, lambda line: None)

    tried: list[str] = []

    def filled(line: str) -> None:
        if "days)" in line and not tried:
            tried.append(line)
            with pytest.raises(MosqPipelineError, match="a rebuild works on these tables"):
                erased()

    rebuild.rebuild(simple.SimpleNamespace(), site.settings, log=filled)          # type: ignore[arg-type]
    assert tried

    def fatal(*args: Any, **kwargs: Any) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Table, "replace", fatal)
        with pytest.raises(KeyboardInterrupt):
            rebuilt(site)
    with pytest.raises(MosqPipelineError, match="`mosq pipeline run` finishes it first"):
        erased()
    Batches(site.settings)
    assert erased()
    assert all(client not in table.read()["client_id"].to_pylist() for table in tending.existing(site.settings) if "client_id" in table.schema.names)


def test_a_changed_declaration_asks_for_a_rebuild(site: Site) -> None:
    site.fill()
    Batches(site.settings).all()
    site.set(SETTINGS.replace("1 hour", "2 hours"))
    with pytest.raises(MosqPipelineError, match=r"\[\[silver\]\] differs .* \(t\)"):
        Batches(site.settings)


def test_rows_of_a_removed_rule_leave_the_disk(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test that `compact` and the upkeep of a run delete the files of a rule that a rebuild has emptied."""
    site.fill()
    Batches(site.settings).all()
    without_spark(site, monkeypatch)
    site.set(SETTINGS.partition('[[silver]]\nname = "power"')[0])
    rebuilt(site)
    old = site.table("silver/power")
    assert old.rows() == 0 and list(old.place.path.rglob("*.parquet"))
    tend = Batches(site.settings).jobs.tending
    tend.full_at = 0.0
    monkeypatch.setattr(Table, "kept_s", 0)
    tend.step(progress.after(site.settings))
    assert not list(old.place.path.rglob("date=*/*.parquet"))
    assert any(line.startswith("silver/power: ") for line in tending.compact_all(site.settings))


def test_an_erasure_reaches_the_fan_out(site: Site) -> None:
    """`report` writes this table, and no batch does."""
    site.fill()
    Batches(site.settings).all()
    table = Table.create(place_of(site.settings), "gold/fanout", fanout.SCHEMA, str(site.table("bronze").identity), ())
    table.replace(pa.Table.from_pylist([{"node": "here", "topic": topic, "subscribers": 1, "messages": 1} for topic in ("t/0", "t/1")],
                                       fanout.SCHEMA), "", 0)
    assert tending.erase(site.settings, None, "t/0", lambda line: None)
    assert table.refresh().read()["topic"].to_pylist() == ["t/1"]


@pytest.mark.part("kills")
def test_retention_erasure_compaction_and_a_lost_checkpoint(site: Site) -> None:
    site.set(SETTINGS + '[retention]\n"silver/t" = "3 days"\n"gold/telemetry" = "2 days"\nbronze = "3 days"\n')
    for days in (9, 4, 1, 0):
        site.journal.now_us = int(datetime.datetime.now(datetime.UTC).timestamp()) * SECOND - days * DAY
        site.fill()
        Batches(site.settings).all(9)
    n = len(site.telemetry())
    files = len(site.table("gold/telemetry").files())
    assert list(tending.compact_all(site.settings))
    assert len(site.telemetry()) < n and len(site.table("gold/telemetry").files()) < files
    assert verify.verify(site.settings).faults == []
    assert tending.erase(site.settings, "c1", None, lambda line: None)
    assert not [one for one in site.telemetry() if one["client_id"] == "c1"]
    assert verify.verify(site.settings).faults == []
    site.fill()
    site.settings.checkpoints.rename(site.folder / "lost")
    site.settings.checkpoints.mkdir()
    lines: list[str] = []
    assert adopt.adopt(site.settings, lines.append)
    assert "adopted" in lines[-1] and not any("--rebuild" in line for line in lines)
    Batches(site.settings).all()
    assert verify.verify(site.settings).faults == []


def test_the_view_takes_one_stream(site: Site) -> None:
    other = Journal(site.folder / "streams", "other")
    site.fill(9)
    other.now_us = site.journal.now_us
    other.put("power/1", b"1.5", client_id="meter")
    other.commit()
    Batches(site.settings).all()
    with contextlib.closing(Duck(site.settings)) as duck, contextlib.closing(other):
        found = duck.query("SELECT sum(count) AS n, sum(sum) AS total FROM telemetry WHERE silver = 'power'").to_pylist()
        assert found == [{"n": 9, "total": sum(range(1, 10)) + 4.5}]


def test_the_manifest_has_values_only_if_they_are_wanted(site: Site) -> None:
    site.fill()
    batches = Batches(site.settings, jobs=("silver", "audit"))
    batches.all()
    assert Table.open(place_of(site.settings), "gold/telemetry") is None and MANIFEST.names[0] == "kind"


def test_a_rebuild_counts_late_rows(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run took them out of the windows; a rebuild put them in, and counted none."""
    now = site.journal.now_us
    for n, moved in ((100, 0), (100, HOUR), (300, -HOUR), (50, HOUR)):
        site.journal.now_us = now + moved
        for _ in range(n):
            site.journal.put("power/1", b"1", client_id="meter")
        site.journal.commit()
        Batches(site.settings).all()
    assert site.state()["late"] == 300
    before = {name: site.table(f"gold/{name}").read().to_pylist() for name in ("late", "traffic")}
    without_spark(site, monkeypatch)
    rebuilt(site)
    assert site.state()["late"] == 300
    key = str
    assert {name: sorted(site.table(f"gold/{name}").read().to_pylist(), key=key) for name in before} == {name: sorted(rows, key=key) for name, rows in before.items()}
    assert verify.verify(site.settings).faults == []


def test_the_ranges_of_late_rows_are_joined() -> None:
    def of(times: list[int], node: str = "n") -> Any:
        rows = [{"node": node, "stream": "s", "shard": 0, "seq": i * sums.BLOCK, "time": at(us)} for i, us in enumerate(times)]
        return pa.RecordBatch.from_pylist(rows, pa.schema([BRONZE.field(name) for name in ("node", "stream", "shard", "seq", "time")]))

    size = sums.BLOCK
    found = sums.late_spans([of([100, 50, 60, 95, 40]), of([5, 1], "m")], {"n/s/0": 4 * size, "m/s/0": size}, 10)
    assert found == {"n/s/0": [(size, 3 * size, 90)]}
    assert sums.in_spans(of([100, 50, 60, 95]), found).tolist() == [sums.NEVER, 90, 90, sums.NEVER]
    assert sums.late_spans([], {}, 10) == {}
