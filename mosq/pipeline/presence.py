"""Tell from gold/devices which clients are offline and which devices are silent, without an engine for SQL.

The views `presence` and `devices` say the same.
"""

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from mosq.pipeline.lake.places import place_of
from mosq.pipeline.lake.table import Table
from mosq.pipeline.rows.tables import DEVICES, ONLINE, START_FIELD

if TYPE_CHECKING:
    import datetime

    from mosq.pipeline.settings import Settings

LISTED = 10
SILENT_FACTOR = 3  # mean intervals
MESSAGES_MIN = 5
COLUMNS = ("node", "stream", "shard", "client_id", "topic", "field", "seq", "time", "value", "first_time", "messages")


def summary(settings: "Settings") -> dict[str, Any] | None:
    """Return numbers of clients and devices, and the first LISTED ones that are offline or silent; None without them.

    A device is a client on a topic.
    """
    table = Table.open(place_of(settings), DEVICES)
    if table is None:
        return None
    rows = table.read(pc.field("silver") == "", COLUMNS).to_pylist()
    latest: dict[str, datetime.datetime] = {}
    for row in rows:
        latest[row["node"]] = max(row["time"], latest.get(row["node"], row["time"]))
    clients = _clients([row for row in rows if not row["topic"]])
    seen = _devices([row for row in rows if row["topic"]])
    offline = [one for one in clients if not one["online"]]
    silent = [one for one in seen if _is_silent(one, latest[one["node"]])]
    return {
        "clients": len(clients),
        "offline": len(offline),
        "offline_clients": sorted(offline, key=lambda one: one["since"], reverse=True)[:LISTED],
        "devices": len(seen),
        "silent": len(silent),
        "silent_devices": sorted(silent, key=lambda one: one["last_seen"], reverse=True)[:LISTED],
    }


def _clients(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # a worker has its events in one shard
    starts = {_shard(row): row["seq"] for row in rows if row["field"] == START_FIELD}
    newest: dict[tuple[str, str], dict[str, Any]] = {}
    for row in sorted((row for row in rows if not row["field"]), key=lambda row: row["time"]):
        newest[row["node"], row["client_id"]] = row
    return [
        {
            "node": row["node"],
            "client_id": row["client_id"],
            "online": row["value"] == ONLINE and row["seq"] > starts.get(_shard(row), -1),
            "since": row["time"].timestamp(),
        }
        for row in newest.values()
    ]


def _shard(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["node"], row["stream"], row["shard"]


def _devices(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry for each client on a topic; streams with the same topic have the same messages."""
    of_stream: dict[tuple[str, str, str], dict[str, int]] = {}
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        key = row["node"], row["client_id"], row["topic"]
        counts = of_stream.setdefault(key, {})
        counts[row["stream"]] = counts.get(row["stream"], 0) + row["messages"]
        had = found.setdefault(key, {"first": row["first_time"], "last": row["time"]})
        had["first"], had["last"] = min(had["first"], row["first_time"]), max(had["last"], row["time"])
    return [
        {
            "node": node,
            "client_id": client,
            "topic": topic,
            "messages": max(of_stream[node, client, topic].values()),
            "first_seen": one["first"].timestamp(),
            "last_seen": one["last"].timestamp(),
        }
        for (node, client, topic), one in found.items()
    ]


def _is_silent(one: dict[str, Any], latest: "datetime.datetime") -> bool:
    if one["messages"] < MESSAGES_MIN:
        return False
    interval_s = (one["last_seen"] - one["first_seen"]) / (one["messages"] - 1)
    return bool(latest.timestamp() - one["last_seen"] > SILENT_FACTOR * interval_s)
