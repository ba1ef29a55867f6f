"""Test that a message in several streams counts once, whichever records they lost and however far each is read.

DuckDB alone is used: it and Spark have the same text of the views.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import duckdb
import pyarrow as pa

from mosq.pipeline import tables, views
from tests.pipeline.streams import BEGIN, TIME

KEYS = ("stream", "prefix", "topic", "client_id")
SCHEMA = pa.schema([("window_start", TIME), ("window_end", TIME), *((key, pa.string()) for key in KEYS), ("messages", pa.int64()), ("bytes", pa.int64())])


def put(folder: Path, batch: int, *rows: tuple[str, str, str, int]) -> None:
    """Write (stream, topic, client, messages) of one window; a message has 10 bytes."""
    window = {"window_start": BEGIN, "window_end": BEGIN + timedelta(minutes=1)}
    told = [{**window, "stream": stream, "prefix": topic.split("/")[0], "topic": topic, "client_id": client, "messages": n, "bytes": 10 * n}
            for stream, topic, client, n in rows]
    tables.write_arrow(pa.Table.from_pylist(told, SCHEMA), folder / "gold/traffic", batch, "query")


def test_each_message_counts_once(tmp_path: Path) -> None:
    put(tmp_path, 0, ("all", "site/1", "a", 3), ("all", "site/2", "a", 5), ("all", "plant", "b", 1), ("few", "site/2", "a", 5))
    # the rest of a window; one stream has lost some, one is behind, and only one has a topic
    put(tmp_path, 1, ("all", "site/1", "a", 4), ("few", "site/2", "a", 2), ("all", "site/1", "b", 2), ("few", "alarm", "b", 7))

    def rows(view: str, key: str) -> list[tuple[str, int, int]]:
        return base.execute(f"SELECT {key}, messages, bytes FROM {view} ORDER BY {key}").fetchall()

    with duckdb.connect() as base:
        base.execute(views.for_duckdb(tmp_path, ["gold/traffic"]))
        assert rows("topics", "topic") == [("alarm", 7, 70), ("plant", 1, 10), ("site/1", 9, 90), ("site/2", 7, 70)]
        assert rows("clients", "client_id") == [("a", 14, 140), ("b", 10, 100)]
        assert rows("prefixes", "prefix") == [("alarm", 7, 70), ("plant", 1, 10), ("site", 16, 160)]
        assert base.execute("SELECT stream, sum(messages) FROM traffic GROUP BY stream ORDER BY stream").fetchall() == [("all", 15), ("few", 14)]
