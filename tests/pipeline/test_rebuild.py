"""Test what runs/ decides without Spark: what a change of the settings concerns, and which manifests are refused; then a rebuild that is killed, and
schemas that are settled later.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from mosq.pipeline import MosqPipelineError, filters, settings
from mosq.pipeline.lake.table import Table
from mosq.pipeline.rows.tables import GOLD
from mosq.pipeline.rows.work import Manifest
from mosq.pipeline.runs import jobs, progress, rebuild, settling, status, tending
from tests.pipeline.journals import Journal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEVELS = ("a", "b", "$s", "")
PARTS = ("+", "#", "a", "b", "$s", "")


def topic_filters() -> list[str]:
    found = ["/".join(levels) for n in (1, 2, 3) for levels in itertools.product(PARTS, repeat=n)]
    return [one for one in found if filters.problem(one) is None]


def test_filters_overlap_if_a_topic_matches_both() -> None:
    topics = ["/".join(levels) for n in (1, 2, 3, 4) for levels in itertools.product(LEVELS, repeat=n)]
    every = topic_filters()
    matched = {one: {topic for topic in topics if re.search(filters.regex(one), topic)} for one in every}
    for a, b in itertools.product(every, every):
        assert rebuild.overlap(a, b) == bool(matched[a] & matched[b]), (a, b)


SETUP = {
    "jobs": ["audit", "gold", "silver"],
    "silver": {"a": ["x/+", "json", None], "b": ["x/1", "json", "n BIGINT"], "c": ["y/#", "number", None]},
    "silver_order": ["a", "b", "c"],
    "window_us": 60, "prefix_levels": 1,
}


@pytest.mark.parametrize(("change", "silver", "gold", "audit", "gone"), [
    ({}, "abc", set(GOLD), True, set()),
    ({"prefix_levels": 2}, "", {"traffic"}, False, set()),
    ({"window_us": 30}, "", set(GOLD), False, set()),
    ({"silver": SETUP["silver"] | {"b": ["x/1", "json", "n DOUBLE"]}}, "b", set(), False, set()),  # type: ignore[operator]
    ({"silver": SETUP["silver"] | {"a": ["x/2", "json", None]}}, "ab", set(), False, set()),  # type: ignore[operator]
    ({"silver_order": ["b", "a", "c"]}, "ab", set(), False, set()),
    ({"silver_order": ["c", "a", "b"]}, "abc", set(GOLD), True, set()),        # nothing overlaps: everything
    ({"silver_order": ["b", "c"], "silver": {name: SETUP["silver"][name] for name in "bc"}}, "b", set(), False, {"silver/a"}),  # type: ignore[index]
    ({"jobs": ["silver"]}, "", set(), False, {"gold/devices", *(f"gold/{name}" for name in GOLD), "gold/backlog"}),
])
def test_only_what_changed_is_computed_again(change: dict[str, Any], silver: str, gold: set[str], audit: bool, gone: set[str]) -> None:
    assert rebuild.changed(SETUP, SETUP | change) == rebuild.Plan(
        frozenset(silver), frozenset(gold), audit, frozenset(gone), devices="jobs" not in change)


def place(n: int, first: int, covered: int | None = None) -> dict[str, int]:
    covered = n if covered is None else covered
    return {"n": n, "covered": covered, "min_seq": first, "max_seq": first + covered - 1, "time_us": 1}


def manifest(places: dict[str, dict[str, int]], rows: int | None = None) -> Manifest:
    found = Manifest(places=places)
    found.rows["bronze"] = sum(at["n"] for at in places.values()) if rows is None else rows
    return found


def test_a_manifest_with_each_record_is_accepted() -> None:
    jobs.check_manifest(manifest({"n/s/0": place(10, 5), "n/s/1": place(2, 0, covered=50)}), {"n/s/0": (5, 15), "n/s/1": (0, 50)}, 3)


@pytest.mark.parametrize("wrong", [
    manifest({"n/s/0": place(9, 5)}), manifest({"n/s/0": place(10, 6)}), manifest({}), manifest({"n/s/0": place(10, 5)}, rows=9),
    manifest({"n/s/0": place(10, 5), "n/s/1": place(1, 0)}), manifest({"n/s/0": place(11, 5)}),
])
def test_a_manifest_with_other_records_than_the_checkpoint_is_refused(wrong: Manifest) -> None:
    """A part that a task lost was published as if it had never been."""
    with pytest.raises(MosqPipelineError, match="nothing was committed; run again"):
        jobs.check_manifest(wrong, {"n/s/0": (5, 15)}, 3)


# ---- with Spark

RULES = """
[pipeline]
journal = "streams"
node = "here"
batch_rows = {batch_rows}
[[silver]]
name = "json"
topic = "site/+"
format = "json"
{schema}
[[silver]]
name = "number"
topic = "number/+"
format = "number"
"""


def load(folder: Path, schema: str = "", batch_rows: int = 1000) -> settings.Settings:
    (folder / "pipeline.toml").write_text(RULES.format(schema=schema, batch_rows=batch_rows))
    return settings.load(folder)


def rows(found: settings.Settings, name: str, *columns: str) -> list[tuple[Any, ...]]:
    table = DeltaTable(f"{found.tables}/{name}").to_pyarrow_table().sort_by("seq")
    return [tuple(row[column] for column in columns) for row in table.to_pylist()]


class Killed(Exception):
    pass


def versions(found: settings.Settings) -> dict[str, int]:
    return {table.name: table.version for table in tending.existing(found)}


@pytest.mark.part("spark")
def test_a_rebuild_switches_at_once_and_a_killed_one_is_finished(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Journal(tmp_path / "streams", "tele")
    for i in range(20):
        stream.put("site/1", b'{"t": %d}' % i)
        stream.put("number/1", b"%d" % i if i % 2 else b"x")
    stream.put("site/2", b"no")
    stream.commit()
    found = load(tmp_path, 'schema = "t DOUBLE"')
    jobs.run(spark, found, once=True, log=lambda line: None)
    old = rows(found, "silver/json", "t")
    stood, bad = versions(found), progress.after(found)["quarantine"]
    changed = load(tmp_path, 'schema = "t BIGINT"')

    def looked(line: str) -> None:
        if "1 of 1 days" in line:       # all files are written, and no commit names them
            assert rows(found, "silver/json", "t") == old and versions(found) == stood
            raise Killed

    with pytest.raises(Killed):
        jobs.run_rebuild(spark, changed, log=looked)
    with pytest.raises(MosqPipelineError, match="differs from the settings"):
        jobs.prepare(changed, progress.JOBS)
    jobs.prepare(found, progress.JOBS)      # the old settings go on

    inner = Table.replace

    def fatal(table: Table, *args: Any, **kwargs: Any) -> bool:
        inner(table, *args, **kwargs)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Table, "replace", fatal)
        with pytest.raises(Killed):
            jobs.run_rebuild(spark, changed, log=lambda line: None)
    said: list[str] = []
    assert rebuild.finish(changed, said.append) and said == ["rebuild: 3 tables switched"]
    assert not rebuild.finish(changed, said.append)
    assert rows(found, "silver/json", "t") == [(i,) for i in range(20)] and isinstance(rows(found, "silver/json", "t")[0][0], int)
    now = versions(found)
    assert {name for name in stood if now[name] != stood[name]} == {"silver/json", "gold/devices", "quarantine", "progress"}
    assert progress.after(found)["quarantine"] == bad and len(rows(found, "quarantine")) == sum(bad.values()) == 11
    stream.put("site/1", b'{"t": 20}')
    stream.commit()
    jobs.run(spark, changed, once=True, log=said.append)
    assert rows(found, "silver/json", "t")[-1] == (20,)
    stream.close()


LARGE = 2 ** 53 + 1


@pytest.mark.part("spark")
def test_a_schema_is_settled_with_all_messages_and_grows(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Journal(tmp_path / "streams", "tele")
    found = load(tmp_path)
    said: list[str] = []
    stream.put("site/1", b'{"n": 1}')
    stream.put("site/1", b'{"n": %d, "s": "x"}' % LARGE)
    stream.put("site/1", b"[1]")
    stream.commit()
    inner = Table.append

    def fatal(table: Table, *args: Any) -> bool:
        done = inner(table, *args)
        if table.name == "silver/json":
            raise Killed
        return done

    with monkeypatch.context() as patch:
        patch.setattr(Table, "append", fatal)
        with pytest.raises(Killed):
            jobs.run(spark, found, once=True, log=said.append)
    assert progress.after(found)["backfill"] == {"json": {"here/tele/0": 3}}
    jobs.run(spark, found, once=True, log=said.append)
    assert rows(found, "silver/json", "n", "s") == [(1, None), (LARGE, "x")]
    assert any('schema = "n BIGINT, s STRING"' in line for line in said)
    state = progress.after(found)
    assert state["rows"] == {"bronze": 3, "silver/json": 2, "quarantine": 1} and not state["pending"] and not state["backfill"]

    stream.put("site/1", b'{"n": 1e400, "new": 1}')
    stream.put("site/1", b'{"n": 3, "new": 7}')
    stream.commit()
    jobs.run(spark, found, once=True, log=said.append)
    assert rows(found, "silver/json", "n", "_rescued")[2:] == [(3, '{"new":7}')]
    assert any("1 new fields (new)" in line for line in said)
    assert "fields that came after its schema: new (" in status.text(status.status(found))
    stream.put("site/1", b'{"n": 4, "new": 8}')
    stream.commit()
    jobs.run(spark, found, once=True, log=said.append)
    assert rows(found, "silver/json", "n", "new", "_rescued")[2:] == [(3, None, '{"new":7}'), (4, 8, None)]
    assert sum(progress.after(found)["quarantine"].values()) == 2
    stream.close()


def test_messages_without_a_schema_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    state = progress.empty()
    monkeypatch.setattr("time.time", lambda: 1000.0)
    found = Manifest()
    found.pending["json"] = 999
    found.samples["json"] = ["[]"] * 999
    samples: dict[str, list[str]] = {}
    settling.gather(state, found, samples, print)
    assert settling.due(state) == []
    monkeypatch.setattr("time.time", lambda: 1061.0)
    assert settling.due(state) == ["json"]
    monkeypatch.setattr("time.time", lambda: 1001.0)
    found.pending["json"] = 1
    settling.gather(state, found, samples, print)
    assert settling.due(state) == ["json"] and len(samples["json"]) == 1000
    assert settling.inferred("json", samples["json"], print) is None


def test_ten_thousand_fields_are_bounded() -> None:
    state = progress.empty() | {"schemas": {"json": "n BIGINT"}}
    found = Manifest(fields={"json": {f"f{i}": ("BIGINT", 1) for i in range(10_000)}})
    said: list[str] = []
    settling.gather(state, found, {}, said.append)
    assert len(state["fields"]["json"]) <= settling.FIELDS_KEPT + 1 and sum(state["fields"]["json"].values()) == 10_000
    assert state["schemas"] == {"json": "n BIGINT"} and len(state["new"]["json"]) == settling.FIELDS_KEPT
    settling.grow(state, said.append, whole=True)
    assert 400 < state["schemas"]["json"].count(",") < 500 and all(len(line) < 2000 for line in said) and not state["new"]


def test_a_new_field_waits_until_its_type_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    state = progress.empty() | {"schemas": {"json": "n BIGINT", "other": "n BIGINT"}}
    said: list[str] = []

    def seen(at: float, **fields: tuple[str, int]) -> str:
        monkeypatch.setattr("time.time", lambda: at)
        settling.gather(state, Manifest(fields={"json": fields}), {}, said.append)
        return str(state["schemas"]["json"])

    assert seen(1000.0, a=("BIGINT", 1), b=("", 5)) == "n BIGINT"
    assert set(state["new"]["json"]) == {"a"}
    assert seen(1030.0, a=("DOUBLE", 1), c=("BIGINT", 999), N=("STRING", 2000)) == "n BIGINT"
    assert set(state["new"]["json"]) == {"a", "c"}      # N is n for readers of tables
    assert seen(1059.0, c=("BIGINT", 1)) == "n BIGINT, c BIGINT"
    assert seen(1060.0, a=("BIGINT", 1)) == "n BIGINT, c BIGINT, a DOUBLE"
    assert state["fields"] == {"json": {"a": 3, "b": 5, "c": 1000, "N": 2000}} and not state["new"] and state["schemas"]["other"] == "n BIGINT"
    assert [line.split(";")[0] for line in said] == [
        "silver json: 2 new fields (a, b)", "silver json: 2 new fields (c, N)", "silver json: 1 new columns (c BIGINT), from the next batch on",
        "silver json: 1 new columns (a DOUBLE), from the next batch on"]
    settling.gather(state, Manifest(fields={"declared": {"a": ("BIGINT", 5000)}}), {}, said.append)
    assert not state["new"] and said[-1] == "silver declared: 1 new fields (a); they are in the column _rescued"
