"""Test that Spark's own Delta reads the tables exactly as `deltalake` and DuckDB do, with the jars of `mosq pipeline jars`.

The jars come from Maven coordinates. Without a network and without a cache the test fails: it is not skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest

from mosq.cli.commands import main
from mosq.pipeline import frames, jars
from mosq.pipeline.duck import Duck
from mosq.pipeline.lake.places import place_of
from mosq.pipeline.lake.table import Table
from tests.pipeline import fleet_tables, lake_tables
from tests.pipeline.processes import ROOT

if TYPE_CHECKING:
    from mosq.pipeline.settings import Settings

# counts, and a sum of hashes of all rows that does not depend on their order; one session reads all tables
SPARK = """
import json, sys
from mosq.pipeline import jars
from mosq.pipeline.session import spark_session

tables = json.loads(sys.argv[1])
spark = spark_session("delta", master="local[1]", conf={**jars.conf(), "spark.sql.shuffle.partitions": "1",
                                                        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"})
found = {}
for name, path in tables.items():
    rows = spark.read.format("delta").load(path)
    found[name] = [rows.columns, sorted(map(repr, (tuple(row) for row in rows.collect())))]
    spark.sql(f"DESCRIBE HISTORY delta.`{path}`").count()
print("FOUND " + json.dumps(found))
"""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    found = lake_tables.load(tmp_path_factory.mktemp("delta"), fleet_tables.SETTINGS)
    fleet_tables.write(found)
    table = Table.open(place_of(found), "silver/power")
    assert table is not None
    table.delete(pc.field("client_id") == "device-06", {"mosq": "erase"})
    return found


@pytest.mark.spark
def test_delta_for_spark_reads_the_same(tables: Settings, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "jars"]) == 0
    place = place_of(tables)
    names = frames.snapshots(tables)
    done = subprocess.run([sys.executable, "-c", SPARK, json.dumps({name: place.child(name).uri for name in names})],
                          cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ | {"TZ": "UTC"})
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("FOUND "))[6:])
    duck = Duck(tables)
    for name, table in names.items():
        ours = duck.query(f'SELECT * FROM "{name.replace("/", "_")}"')
        columns, rows = told[name]
        assert columns == ours.column_names == table.schema.names, name
        assert rows == sorted(map(repr, (tuple(map(as_spark, row)) for row in zip(*(one.to_pylist() for one in ours.columns), strict=True)))), name
        assert len(rows) == table.rows(), name
    duck.close()


def as_spark(value: object) -> object:
    """Return a value as pyspark's rows have it: times without a zone."""
    if hasattr(value, "tzinfo") and value.tzinfo is not None:
        return value.replace(tzinfo=None)
    return value


def test_jars_are_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Test the cache, its check and the advice without a network: Ivy is not asked for what Maven's repository has."""
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(["pipeline", "jars", "--check"]) == 1
    assert capsys.readouterr().err.splitlines()[0] == "missing: io.delta:delta-spark_4.2_2.13:4.4.0"
    asked: list[str] = []

    def by_ivy(name: str, where: Path, settings: str | None) -> Path:
        asked.append(name)
        (where / "x.jar").write_bytes(b"jar")
        return where / "x.jar"

    monkeypatch.setattr(jars, "_by_ivy", by_ivy)
    local = home / ".m2/repository/io/delta/delta-storage/4.4.0/delta-storage-4.4.0.jar"
    local.parent.mkdir(parents=True)
    local.write_bytes(b"of maven")
    assert main(["pipeline", "jars"]) == 0
    said = capsys.readouterr()
    assert "2 of 5: io.delta:delta-storage:4.4.0" in said.err and "5 jars, Delta 4.4.0" in said.out
    assert asked == [name for name in jars.NAMES if name != "delta-storage"]
    assert (jars.folder() / "delta-storage-4.4.0.jar").read_bytes() == b"of maven"
    assert sorted(path.name for path in jars.folder().iterdir()) == sorted(f"{name}-4.4.0.jar" for name in jars.NAMES)
    assert main(["pipeline", "jars", "--options"]) == 0 and len(asked) == 4
    out = capsys.readouterr().out
    assert out.startswith("--jars /") and out.count(",") == 4 and "--conf spark.sql.extensions=" in out
    assert jars.missing() == [] and jars.conf()["spark.jars"].count(",") == 4


def test_a_jar_beside_its_sources_and_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(jars, "NAMES", ("one",))
    there = tmp_path / "repository/io/delta/one/4.4.0"
    there.mkdir(parents=True)
    (there / "one-4.4.0.pom").write_text("<project><modelVersion>4.0.0</modelVersion><groupId>io.delta</groupId><artifactId>one</artifactId>"
                                         "<version>4.4.0</version></project>")
    for rest in ("", "-sources", "-javadoc"):
        (there / f"one-4.4.0{rest}.jar").write_text(f"jar{rest}")
    settings = tmp_path / "ivy.xml"
    settings.write_text('<ivysettings><settings defaultResolver="m"/><resolvers><ibiblio name="m" m2compatible="true" '
                        f'root="{(tmp_path / "repository").as_uri()}/"/></resolvers></ivysettings>')
    assert main(["pipeline", "jars", "--dir", str(tmp_path / "jars"), "--ivy-settings", str(settings)]) == 0
    assert {path.name: path.read_text() for path in (tmp_path / "jars").iterdir()} == {"one-4.4.0.jar": "jar"}


def test_a_jar_that_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(jars, "NAMES", ("no-such-jar",))
    settings = tmp_path / "ivy.xml"
    settings.write_text(f'<ivysettings><settings defaultResolver="d"/><resolvers><filesystem name="d"><artifact pattern="{tmp_path}/[artifact].[ext]"/>'
                        "</filesystem></resolvers></ivysettings>")
    assert main(["pipeline", "jars", "--dir", str(tmp_path / "jars"), "--ivy-settings", str(settings)]) == 1
    err = capsys.readouterr().err
    assert "Error: io.delta:no-such-jar:4.4.0 cannot be had (" in err and "connect this machine to a Maven repository" in err and "Traceback" not in err
    assert list((tmp_path / "jars").iterdir()) == []
