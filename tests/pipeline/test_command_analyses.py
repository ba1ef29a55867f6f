"""Test match, capacity, report and load-results as commands, over tables as the jobs write them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from mosq.cli.commands import main
from tests.pipeline import lake_tables
from tests.pipeline.streams import CONNECT, MESSAGE, SUBSCRIBE, Bronze
from tests.report import folder as made_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def bronze(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with settings and a bronze table."""
    root = tmp_path_factory.mktemp("commands")
    found = lake_tables.load(root, 'master = "local[2]"\n')
    rows = Bronze()
    for i in range(4):
        rows.add(CONNECT, f"c{i}", payload=b'{"clean": false}')
    rows.add(SUBSCRIBE, "c0", "site/+/temp", b'{"qos": 1}')
    rows.add(SUBSCRIBE, "c1", "site/#", b'{"qos": 0}')
    for i in range(60):
        rows.add(MESSAGE, f"c{i % 4}", f"site/{i % 10}/temp", b"20")
    rows.account("c0", 1, published=60, acknowledged=55, queued=5)
    lake_tables.put(found, "bronze", rows.table())
    return root


def asked(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    status = main(["pipeline", *map(str, arguments)])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_match(bronze: Path, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "topics.txt").write_text("site/1/temp\nsite/2\n\nother\nbad/#\n")
    (tmp_path / "filters.txt").write_text("site/+/temp\nsite/#\nx+\nnever\n")
    status, out, err = asked(capsys, "match", tmp_path / "topics.txt", tmp_path / "filters.txt", "--limit", "2")
    assert status == 2 and "4 topics and 3 filters: 3 deliveries" in out and "1 topics match no filter" in out
    assert out.splitlines()[1:] == ["FILTER       SHARED  TOPICS", "site/#       False        2", "site/+/temp  False        1"]
    assert f"{tmp_path}/filters.txt:3: 'x+' is not a valid filter: left out" in err and f"{tmp_path}/topics.txt:5: 'bad/#' is not a valid topic" in err
    status, out, err = asked(capsys, "match", tmp_path / "topics.txt", tmp_path / "filters.txt", "--out", tmp_path / "pairs")
    assert status == 2 and out == f"{tmp_path}/pairs: 3 rows\n" and "topics.txt:5" in err
    rows = pq.read_table(tmp_path / "pairs").to_pylist()
    assert sorted((row["topic"], row["filter"]) for row in rows) == [("site/1/temp", "site/#"), ("site/1/temp", "site/+/temp"), ("site/2", "site/#")]
    status, _, err = asked(capsys, "match", tmp_path / "topics.txt", tmp_path / "filters.txt", "--out", tmp_path / "pairs")
    assert status == 1 and "exists already: remove it" in err
    (tmp_path / "topics.txt").write_text('=SUM(A1)\n@a,"b"\nplain\n')
    (tmp_path / "filters.txt").write_text("#\n-x/#\n")
    status, out, _ = asked(capsys, "match", tmp_path / "topics.txt", tmp_path / "filters.txt", "--out", tmp_path / "csv", "--format", "csv")
    assert status == 0 and out == f"{tmp_path}/csv: 3 rows\n"
    [written] = (tmp_path / "csv").glob("*.csv")
    with written.open(newline="") as file:
        assert sorted(row["topic"] for row in csv.DictReader(file)) == ["'=SUM(A1)", "'@a,\"b\"", "plain"]
    # the receivers of each topic, from a bronze table
    table = bronze / "tables/bronze"
    status, out, err = asked(capsys, "match", table, table, "--clients", "--count", "client", "-q")
    assert (status, err) == (0, "") and out.splitlines()[1].split() == ["c0", "1", "10", "0"]
    assert asked(capsys, "match", table, table, "--count", "client")[0] == 3
    (tmp_path / "none.txt").write_text("a+\n")
    status, _, err = asked(capsys, "match", table, tmp_path / "none.txt")
    assert status == 1 and "there is no filter in it" in err and "none.txt:1: 'a+'" in err
    status, _, err = asked(capsys, "match", tmp_path / "nothing.txt", tmp_path / "filters.txt")
    assert status == 1 and "expected a file of topics" in err


def test_capacity(bronze: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = asked(capsys, "capacity", "-s", bronze, "--json")
    told = json.loads(out)
    assert status == 0 and told["flags"] == ["--pool-grow", "100", "--pool-idle-max", "100", "--match-cache", "512"]
    assert told["configuration"] == ["max_queued_messages 100"] and {one["option"] for one in told["advice"]} > {"turn_budget", "hash_buckets"}
    from mosq.pipeline.capacity import Advice, Plan

    text = "\n".join(Plan([Advice(**{k: v for k, v in one.items() if k not in ("default", "flag")}) for one in told["advice"]]).text())
    assert text.startswith("mosq --pool-grow 100 ") and "formula  peak / 4" in text and "inputs   peak 4" in text


def test_report(bronze: Path, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab = made_up.write(tmp_path / "lab", made_up.runs(reps=1)[:3])
    status, _, _ = asked(capsys, "report", "-s", bronze, "--out", tmp_path / "out", "--load", lab, "-q")
    assert status == 0
    html = (tmp_path / "out/report.html").read_text()
    assert all(f'id="{name}"' in html for name in ("source", "churn", "load", "locust", "missing")) and "Missing sections" in html
    assert (tmp_path / "out/sessions.csv").read_text().startswith("node,client_id,connected_at")
    (tmp_path / "pipeline.toml").write_text('[pipeline]\njournal = "."\n')
    status, _, err = asked(capsys, "report", "-s", tmp_path)
    assert status == 1 and "`mosq pipeline run --once` creates it" in err


def test_load_results(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab = made_up.write(tmp_path / "lab", made_up.runs(reps=1)[:3], locust=None)
    status, out, _ = asked(capsys, "load-results", lab, "--sql", "SELECT count(*) AS n FROM runs", "-q")
    assert (status, out) == (0, "N\n3\n")
    status, _, err = asked(capsys, "load-results", tmp_path, "-q")
    assert status == 1 and "no results in it" in err


@pytest.mark.parametrize("name", ["match", "capacity", "report", "load-results"])
def test_help_has_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = asked(capsys, name, "--help")
    assert status == 0 and "Examples:" in out and f"mosq pipeline {name}" in out
