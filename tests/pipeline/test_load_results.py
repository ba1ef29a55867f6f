"""Test `mosq pipeline load-results`: Spark computes the figures of `mosq bench report --csv`."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mosq.tools.bench.html import figures
from mosq.tools.bench.html.lab import Lab
from mosq.tools.bench.html.reading import read
from mosq.tools.bench.parquet import flat
from mosq.cli.commands import main
from mosq.pipeline import MosqPipelineError
from mosq.pipeline.load_results import KEY, LoadResults, query_result
from mosq.pipeline.report import load
from tests.report import folder as made_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]


def by_key(path: Path, *more: str) -> dict[tuple[str, ...], dict[str, str]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    found = {(*(row[name] if name != "x" else str(float(row[name] or -1)) for name in KEY), *(row[name] for name in more)): row for row in rows}
    assert len(found) == len(rows)
    return found


def same(ours: dict[str, str], theirs: dict[str, str]) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        try:
            assert float(ours[name] or "nan") == pytest.approx(float(value or "nan"), rel=1e-9, abs=1e-6, nan_ok=True), name
        except ValueError:
            assert ours[name] == value, name


def compare(spark: SparkSession, path: Path, tmp_path: Path) -> LoadResults:
    assert main(["bench", "report", str(path), "--out", str(tmp_path / "page.html"), "--csv", str(tmp_path / "theirs"), "--quiet"]) in (0, 2)
    found = LoadResults(spark, str(path))
    written = found.write_csv(tmp_path / "ours")
    for name, more in (("runs.csv", ("rep",)), ("medians.csv", ())):
        ours, theirs = (by_key(tmp_path / side / name, *more) for side in ("ours", "theirs"))
        assert ours.keys() == theirs.keys() and theirs
        for key in theirs:
            same(ours[key], theirs[key])
    if (tmp_path / "theirs/locust.csv").exists():
        assert {path.name for path in written} == {"runs.csv", "medians.csv", "paper.csv", "locust.csv"}
        with (tmp_path / "ours/locust.csv").open() as ours, (tmp_path / "theirs/locust.csv").open() as theirs:
            for one, other in zip(csv.DictReader(ours), csv.DictReader(theirs), strict=True):
                same(one, other)
    return found


def test_results_of_a_lab_and_of_locust(spark: SparkSession, tmp_path: Path) -> None:
    lines = made_up.runs(reps=3)
    for one in lines[::7]:
        del one["phases"][0]["latency" if one["phases"][0]["latency"]["count"] else "connect"]["stdev_us"]
        one["phases"][0].update(lost=2, limit="generator", foreign_cpu_share=0.5)
    lines[5]["phases"][0]["complete"] = lines[5]["complete"] = False
    path = Path(made_up.write(tmp_path / "lab", lines))
    found = compare(spark, path, tmp_path)
    # the paper's figures, as on the page
    lab = Lab(read(str(path)))
    theirs = {(g.key.test, g.key.case, g.key.x, g.key.broker, g.key.variant, g.key.phase): [g.of(one).median for one in figures.PAPER]
              for g in lab.groups if g.key.suite == "paper"}
    ours = {(row.test, row.case, row.x, row.broker, row.variant, row.phase): [row.run_time_us, row.delay_us, row.deviation_us, row.largest_us]
            for row in found.paper().collect()}
    assert ours.keys() == theirs.keys()
    for key, values in theirs.items():
        assert ours[key] == pytest.approx(values, rel=1e-6)
    sections = load.sections(found)
    assert all(section.filled for section in sections) and len(sections[0].charts) > 8
    assert query_result(found, "SELECT max(rate) AS most FROM runs WHERE broker = 'mosq'").first().most > 0
    with pytest.raises(MosqPipelineError, match="tables are runs, medians and locust"):
        query_result(found, "SELECT nonsense FROM runs")


@pytest.mark.part("spark")
def test_the_results_in_the_repository(spark: SparkSession, tmp_path: Path) -> None:
    compare(spark, ROOT / "perf/results/paper", tmp_path)


@pytest.mark.part("spark")
def test_files_by_hand(spark: SparkSession, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "hand"
    path.mkdir()
    lines = [one for one in made_up.runs(reps=2) if one["run"]["test"] in ("fan-in", "pairs-20k")][:4]
    for i, one in enumerate(lines):
        del one["run"]
        one["options"]["name"] = "mosq" if i % 2 else "other"
        (path / f"r{i}.json").write_text(json.dumps(one))
    found = LoadResults(spark, str(path))
    theirs = [(g.key.test, g.key.case, g.key.broker, g.of(figures.CPU).median) for g in Lab(read(str(path))).groups]
    assert sorted((row.test, row.case, row.broker, row.cpu_us_per) for row in found.medians.collect()) == sorted(theirs)
    # the same results as Parquet, one file per run
    other = tmp_path / "parquet"
    other.mkdir()
    for i, one in enumerate(lines):
        row = {"scenario": one["scenario"], "run_complete": True, "why": "", "started": one["started"], **flat("option", one["options"]),
               **{name: value for key, told in one["phases"][0].items() for name, value in flat(key, told).items()}}
        pq.write_table(pa.Table.from_pylist([{name: value for name, value in row.items() if value not in ([], None)}]), other / f"r{i}.parquet")
    again = LoadResults(spark, str(other))
    ours, theirs = ([row.asDict() for row in one.medians.orderBy(*KEY).collect()] for one in (again, found))
    assert ours == theirs and len(ours) == 4


def test_unreadable_input_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    lines = [json.dumps(one) for one in made_up.runs(reps=1)[:4]]
    lines[1], lines[3] = lines[1][:100], lines[3].replace('"format": 1', '"format": 7', 1)
    (tmp_path / "runs.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "x.json").write_text("[]")
    (tmp_path / "y.parquet").write_text("no")
    found = LoadResults(spark, str(tmp_path))
    assert found.runs.count() == 2
    told = "\n".join(found.problems)
    assert "runs.jsonl:2: not a result" in told and "runs.jsonl:4: not a result" in told and "x.json: not a result" in told and "y.parquet: not a result" in told
    for name, said in (("none", "expected a folder"), ("empty", "no results in it")):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(MosqPipelineError, match=said):
            LoadResults(spark, str(tmp_path / name))
