"""Test the views in DuckDB: a message in several streams counts once, whichever records they lost and however far each is read."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from mosq.pipeline import MosqPipelineError, views
from mosq.pipeline.duck import Duck
from tests.pipeline.lake_tables import load, put
from tests.pipeline.streams import BEGIN, MESSAGE, Bronze


def rows(*told: tuple[str, str, str, int], node: str = "node-1") -> list[dict[str, object]]:
    """Return rows of gold/traffic: stream, topic, client and messages of one window; a message has 10 bytes."""
    window = {"window_start": BEGIN, "window_end": BEGIN + timedelta(minutes=1)}
    return [{**window, "node": node, "stream": stream, "prefix": topic.split("/")[0], "topic": topic, "client_id": client, "messages": n, "bytes": 10 * n}
            for stream, topic, client, n in told]


def test_each_message_counts_once(tmp_path: Path) -> None:
    found = load(tmp_path)
    put(found, "bronze", Bronze().table())
    # one stream has lost some, one is behind, and only one has a topic
    put(found, "gold/traffic", rows(("all", "site/1", "a", 7), ("all", "site/2", "a", 5), ("all", "plant", "b", 1), ("few", "site/2", "a", 7),
                                    ("all", "site/1", "b", 2), ("few", "alarm", "b", 7)))
    # another broker counts its own messages
    put(found, "gold/traffic", rows(("all", "plant", "b", 4), node="node-2"))
    duck = Duck(found)

    def answer(view: str, key: str) -> list[tuple[object, ...]]:
        return duck.base.execute(f"SELECT {key}, messages, bytes FROM {view} ORDER BY {key}").fetchall()

    assert answer("topics", "topic") == [("alarm", 7, 70), ("plant", 5, 50), ("site/1", 9, 90), ("site/2", 7, 70)]
    assert answer("clients", "client_id") == [("a", 14, 140), ("b", 14, 140)]
    assert answer("prefixes", "prefix") == [("alarm", 7, 70), ("plant", 5, 50), ("site", 16, 160)]
    assert duck.base.execute("SELECT stream, sum(messages) FROM traffic GROUP BY stream ORDER BY stream").fetchall() == [("all", 19), ("few", 14)]
    duck.close()


def test_a_view_exists_if_its_table_does(tmp_path: Path) -> None:
    found = load(tmp_path)
    with pytest.raises(MosqPipelineError, match=r"there is no table in .*bronze yet: `mosq pipeline run --once`"):
        Duck(found)
    bronze = Bronze()
    bronze.add(MESSAGE, "a", "site/1", b"1")
    put(found, "bronze", bronze.table())
    duck = Duck(found)
    assert (duck.tables, duck.views) == (["bronze"], ["sessions"])
    put(found, "gold/traffic", rows(("all", "site/1", "a", 1)))
    duck.refresh()
    assert duck.views == ["topics", "clients", "prefixes", "traffic", "sessions", "gaps", "rates"]
    put(found, "bronze", bronze.table())
    assert duck.query("SELECT count(*) AS n FROM bronze").to_pylist() == [{"n": 1}]
    duck.refresh()
    assert duck.query("SELECT count(*) AS n FROM bronze").to_pylist() == [{"n": 2}]
    with pytest.raises(MosqPipelineError, match="nowhere"):
        duck.query("SELECT * FROM nowhere")
    duck.close()


def test_names_in_sql() -> None:
    assert views.flat("silver/weather") == "silver_weather" and views.flat("bronze") == "bronze"
    assert {views.source(view).partition("/")[0] for view in views.VIEWS} == {"gold", "bronze"}


def test_filters_find_all_rows(tmp_path: Path) -> None:
    """Test filters on columns without statistics and on nulls: readers of deltalake skip files for which statistics are missing."""
    found = load(tmp_path)
    told = [{"stream": "s", "shard": 0, "seq": i, "time": None if i == 3 else BEGIN + timedelta(hours=i), "kind": i % 3, "topic": f"t/{i}",
             "date": (BEGIN + timedelta(hours=i)).date()} for i in range(30)]
    table = put(found, "bronze", told)
    duck = Duck(found)

    def n(where: str) -> int:
        return int(duck.query(f"SELECT count(*) AS n FROM bronze WHERE {where}").to_pylist()[0]["n"])

    assert [n(where) for where in ("kind = 2", "topic = 't/5'", "kind IN (0, 1) AND seq > 9", "username IS NULL", "seq >= 29", "time IS NULL",
                                   "date = DATE '2026-11-02'", "time > TIMESTAMPTZ '2026-11-02 00:00:00Z'", "node = 'node-1'")
            ] == [10, 1, 13, 30, 1, 1, 18, 17, 30]
    assert table.read(pc.field("kind") == 2).num_rows == 10 and table.read(pc.field("seq") > 28, ["topic"]).to_pylist() == [{"topic": "t/29"}]
    # the same for a program that uses deltalake itself
    theirs = DeltaTable(table.place.delta).to_pyarrow_dataset()
    assert theirs.to_table(filter=pc.field("kind") == 2).num_rows == 10 and theirs.to_table(filter=pc.field("seq") >= 29).num_rows == 1
    duck.close()
