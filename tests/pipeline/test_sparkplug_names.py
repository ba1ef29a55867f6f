"""Test the views of a rule with format sparkplug: names of metrics that only a BIRTH has, and what each BIRTH says about its metrics."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mosq.pipeline import frames, sparkplug
from mosq.pipeline.duck import Duck
from mosq.pipeline.runs import status, verify
from tests.pipeline.batches import Batches
from tests.pipeline.test_sparkplug import metric, text, varint
from tests.pipeline.test_telemetry import Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = """
[pipeline]
journal = "streams"
node = "here"
[[silver]]
name = "plant-1"
topic = "spBv1.0/#"
format = "sparkplug"
"""


def born(name: bytes, alias: int, datatype: int = 3, value: int = 0, unit: bytes = b"") -> bytes:
    about = text(9, text(1, b"engUnit") + text(1, b"low") + text(2, varint(1, 12) + text(8, unit)) + text(2, varint(1, 3) + varint(3, 7))) if unit else b""
    return metric(text(1, name), varint(2, alias), varint(4, datatype), varint(11 if datatype in (4, 8) else 10, value), about)


def data(alias: int, value: int, long: bool = False) -> bytes:
    return metric(varint(2, alias), varint(11 if long else 10, value))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    found = Site(tmp_path, SETTINGS)
    with contextlib.closing(found.journal):
        yield found


def put(site: Site, kind: str, *metrics: bytes, edge: str = "n", device: str = "") -> None:
    site.journal.put(f"spBv1.0/g/{kind}/{edge}" + (f"/{device}" if device else ""), b"".join(metrics), client_id=edge)
    site.journal.commit()


def fill(site: Site) -> None:
    put(site, "DDATA", data(1, 5), device="d")                                     # before the first BIRTH
    put(site, "NBIRTH", born(b"up", 0), born(b"Big", 8, 8, 1))
    put(site, "DBIRTH", born(b"temp", 1, 3, 20, "°C".encode()), born(b"count", 2, 4), device="d")
    Batches(site.settings).all()                                                   # the run ends here, and another one begins
    put(site, "DDATA", data(1, 2**32 - 5), data(2, 2**64 - 1, long=True), device="d")
    put(site, "NDATA", data(0, 7), data(8, 2**64 - 1, long=True), data(3, 1))
    put(site, "DDATA", data(1, 1), edge="other", device="d")                       # another edge node
    put(site, "DBIRTH", born(b"count", 1, 4), born(b"temp", 2, 3, 21, b"K"), device="d")  # the aliases changed
    put(site, "DDATA", data(1, 3, long=True), data(2, 22), metric(text(1, b"named"), varint(10, 1)), device="d")
    put(site, "NBIRTH", born(b"far", 2**64 - 1, value=2), born(b"x", 5), born(b"y", 5), edge="far")     # 5 has two names
    put(site, "NDATA", data(2**64 - 1, 3), data(5, 4), data(2**63, 5), edge="far")
    Batches(site.settings).all(1)


NAMED = [("DDATA", 1, None, 5, None), ("NBIRTH", 0, "up", 0, None), ("NBIRTH", 8, "Big", 1, None), ("DBIRTH", 1, "temp", 20, "°C"), ("DBIRTH", 2, "count", 0, None),
         ("DDATA", 1, "temp", -5, "°C"), ("DDATA", 2, "count", -1, None), ("NDATA", 0, "up", 7, None), ("NDATA", 3, None, 1, None), ("NDATA", 8, "Big", None, None),
         ("DDATA", 1, None, 1, None), ("DBIRTH", 1, "count", 0, None), ("DBIRTH", 2, "temp", 21, "K"), ("DDATA", None, "named", 1, None), ("DDATA", 1, "count", 3, None),
         ("DDATA", 2, "temp", 22, "K"),
         ("NBIRTH", None, "far", 2, None), ("NBIRTH", 5, "x", 0, None), ("NBIRTH", 5, "y", 0, None), ("NDATA", None, "far", 3, None), ("NDATA", None, None, 5, None), ("NDATA", 5, None, 4, None)]
BORN = [(None, "Big", 8, "UInt64", None, None), (None, "far", None, "Int32", None, None), (None, "up", 0, "Int32", None, None), (None, "x", 5, "Int32", None, None), (None, "y", 5, "Int32", None, None), ("d", "count", 1, "Int64", None, None),
        ("d", "temp", 2, "Int32", "K", {"engUnit": "K", "low": 7})]
NAMED_SQL = "SELECT message_type, alias, metric, long_value, unit, double_value FROM {} ORDER BY seq, coalesce(alias, -1), long_value, metric"
BORN_SQL = "SELECT device, metric, alias, type, unit, properties FROM {} ORDER BY coalesce(device, ''), metric"


def check(asked: Any) -> None:
    named = asked(NAMED_SQL.format("{q}named_plant-1{q}"))
    assert [(row["message_type"], row["alias"], row["metric"], row["long_value"], row["unit"]) for row in named] == NAMED
    assert [row["double_value"] for row in named if row["long_value"] is None] == [float(2**64 - 1)]
    metrics = asked(BORN_SQL.format("{q}metrics_plant-1{q}"))
    assert [(*(row[name] for name in ("device", "metric", "alias", "type", "unit")), row["properties"] and json.loads(row["properties"])) for row in metrics] == BORN


def test_an_alias_has_the_name_of_the_birth_before_it(site: Site) -> None:
    fill(site)
    with contextlib.closing(Duck(site.settings)) as duck:
        assert {"named_plant-1", "metrics_plant-1"} <= set(duck.views)
        check(lambda sql: duck.query(sql.format(q='"')).to_pylist())
    assert verify.verify(site.settings).faults == []
    assert site.state()["notes"] == {"plant-1": {"alias beyond BIGINT: in _rescued": 3, "long_value beyond BIGINT: in _rescued": 2, sparkplug.TWO_NAMES: 1}}
    assert f"silver plant-1: 1 x {sparkplug.TWO_NAMES}" in status.text(status.status(site.settings))
    last = {one["field"]: one["value"] for one in site.table("gold/devices").read().to_pylist() if one["client_id"] == "far" and one["field"]}
    assert last == {"far": "2", "x": "0", "y": "0", "alias 5": "4", f"alias {2**64 - 1}": "3", f"alias {2**63}": "5"}


@pytest.mark.part("spark")
def test_spark_gives_the_same_names(site: Site, spark: SparkSession) -> None:
    fill(site)
    assert {"named_plant-1", "metrics_plant-1"} <= set(frames.register(spark, site.settings))
    check(lambda sql: spark.sql(sql.format(q="`")).toArrow().to_pylist())


def test_names_equal_those_of_a_loop(site: Site) -> None:
    chance = random.Random(5)
    known: dict[tuple[str, int], bytes] = {}
    wanted = []
    for _ in range(120):
        edge, device = chance.choice("ab"), chance.choice(["", "d", "e"])
        aliases = chance.sample(range(6), 3)
        if chance.random() < 0.3:
            named = [(alias, chance.choice([b"x", b"y", b"z"])) for alias in aliases]
            put(site, "DBIRTH" if device else "NBIRTH", *(born(name, alias) for alias, name in named), edge=edge, device=device)
            known.update({(edge, alias): name for alias, name in named})
        else:
            put(site, "DDATA" if device else "NDATA", *(data(alias, 1) for alias in aliases), edge=edge, device=device)
        names = {alias: known.get((edge, alias)) for alias in aliases}
        wanted += [(alias, None if name is None else name.decode()) for alias, name in sorted(names.items())]
    Batches(site.settings).all(17)
    with contextlib.closing(Duck(site.settings)) as duck:
        found = duck.query('SELECT alias, metric FROM "named_plant-1" ORDER BY seq, alias').to_pylist()
    assert [(row["alias"], row["metric"]) for row in found] == wanted
