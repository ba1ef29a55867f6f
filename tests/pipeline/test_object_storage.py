"""Test tables in object storage, against the S3 server of moto: a run and all commands, two writers, processes that end while they read, and plain errors."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from pyspark.sql import SparkSession

from mosq.cli.commands import main
from mosq.pipeline import MosqPipelineError, frames, settings
from mosq.pipeline.duck import Duck
from mosq.pipeline.lake import upkeep
from mosq.pipeline.lake.places import Place, place_of
from mosq.pipeline.lake.table import Table
from mosq.pipeline.runs import jobs, progress, tableset, verify
from mosq.tools.bench.started import free_port
from tests.pipeline import lake_tables, streams
from tests.pipeline.batches import Batches
from tests.pipeline.journals import Journal

# a server in this process would wait for the GIL, which deltalake holds while it waits for the server
MESSAGES = 70
SERVER = ["-m", "moto.server", "-H", "127.0.0.1"]


@pytest.fixture(scope="module")
def storage() -> Iterator[dict[str, str]]:
    """Run a server with one bucket; yield the options of [storage]."""
    port = free_port()
    server = subprocess.Popen([sys.executable, *SERVER, "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            assert server.poll() is None
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        url = f"http://127.0.0.1:{port}"
        boto3.client("s3", endpoint_url=url, aws_access_key_id="k", aws_secret_access_key="s", region_name="us-east-1").create_bucket(Bucket="bucket")
        yield {"AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "us-east-1"}
    finally:
        server.kill()
        server.wait()


class Killed(Exception):
    pass


def configured(folder: Path, storage: dict[str, str], tables: str) -> settings.Settings:
    lines = "".join(f'{key} = "{value}"\n' for key, value in storage.items())
    (folder / "pipeline.toml").write_text(f'[pipeline]\njournal = "streams"\ntables = "{tables}"\n[storage]\n{lines}'
                                          '[[silver]]\nname = "numbers"\ntopic = "#"\nformat = "number"\n')
    return settings.load(folder)


@pytest.mark.part("spark")
def test_a_run_and_all_commands(storage: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A run is interrupted between two commits, and goes on; then each command reads or changes the tables."""
    stream = Journal(tmp_path / "streams", "tele")
    found = configured(tmp_path, storage, "s3a://bucket/run/tables")
    stream.fill(MESSAGES)
    with monkeypatch.context() as patch:
        patch.setattr(tableset.TableSet, "merge", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            Batches(found).one()
    for _ in range(3):
        Batches(found).all()
        stream.fill(MESSAGES)
    Batches(found).all()
    stream.close()
    n = 4 * MESSAGES
    assert progress.after(found)["rows"] == {"bronze": n, "silver/numbers": n}
    assert not (tmp_path / "s3a:").exists(), "a URI is no folder"
    at = ["-s", str(found.file)]
    for command, said in (
        (["verify"], f"numbers: {n:,} rows"),
        (["status"], f"{n:,}"),
        (["doctor"], "s3a://bucket/run/tables: "),
        (["compact", "--at-least", "2"], "4 files merged into 1"),
        (["sql", "SELECT count(*), count(DISTINCT seq) FROM bronze", "--format", "csv"], f"{n},{n}"),
        (["sql", "SELECT sum(messages) FROM topics", "--format", "csv"], f"{n}"),
        (["erase", "--topic", "t/1", "--yes"], "silver/numbers: "),
        (["verify"], "Everything adds up"),
    ):
        assert main(["pipeline", command[0], *at, *command[1:]]) == 0, (command, capsys.readouterr())
        assert said in capsys.readouterr().out, command


@pytest.mark.part("spark")
def test_a_killed_run_of_spark(spark: SparkSession, storage: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Journal(tmp_path / "streams", "tele")
    found = configured(tmp_path, storage, "s3a://bucket/spark/tables")
    stream.fill(MESSAGES)
    with monkeypatch.context() as patch:
        patch.setattr(tableset.TableSet, "merge", lambda *args: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            jobs.run(spark, found, once=True, log=lambda line: None)
    stream.fill(MESSAGES)
    jobs.run(spark, found, once=True, log=lambda line: None)
    stream.close()
    assert verify.verify(found).faults == [] and progress.after(found)["rows"] == {"bronze": 2 * MESSAGES, "silver/numbers": 2 * MESSAGES}


@pytest.mark.part("spark")
def test_spark_reads_the_tables_of_a_rebuild_and_of_a_report(spark: SparkSession, storage: dict[str, str], tmp_path: Path) -> None:
    """An inferred schema, a rebuild and the views read tables with Spark, which has no jar for S3."""
    stream = Journal(tmp_path / "streams", "tele")
    found = configured(tmp_path, storage, "s3a://bucket/read/tables")
    text = found.file.read_text()
    found.file.write_text(text.replace('format = "number"', 'format = "json"'))
    found = settings.load(tmp_path)
    for i in range(MESSAGES):
        stream.put(f"t/{i % 7}", b'{"n": %d, "late": 1.5}' % (2**53 + i) if i % 10 else b"{")
        if i == MESSAGES // 2:
            stream.now_us += 86_400_000_000
    stream.commit()
    stream.close()
    jobs.run(spark, found, once=True, log=lambda line: None)
    good = MESSAGES - MESSAGES // 10
    assert progress.after(found)["rows"] == {"bronze": MESSAGES, "silver/numbers": good, "quarantine": MESSAGES // 10}
    found.file.write_text(text.replace('format = "number"', 'format = "json"\nschema = "n BIGINT"'))
    found = settings.load(tmp_path)
    jobs.run_rebuild(spark, found, log=lambda line: None)
    assert verify.verify(found).faults == []
    frames.register(spark, found)
    assert spark.sql("SELECT count(*), count(DISTINCT seq), count(DISTINCT date), sum(n - 9007199254740992) FROM silver_numbers").collect()[0] == (
        good, good, 2, sum(i for i in range(MESSAGES) if i % 10))
    assert spark.sql("SELECT sum(messages) FROM topics").collect()[0][0] == MESSAGES
    with contextlib.closing(Duck(found)) as duck:
        columns = "node, stream, shard, seq, date, time, topic, client_id, payload, retain"
        ours = duck.query(f"SELECT {columns} FROM bronze ORDER BY seq").to_pylist()
    theirs = [row.asDict() for row in spark.sql(f"SELECT {columns} FROM bronze ORDER BY seq").collect()]
    assert [{**row, "time": row["time"].replace(tzinfo=None), "payload": bytes(row["payload"])} for row in theirs] == [
        {**row, "time": row["time"].replace(tzinfo=None)} for row in ours]


def test_checkpoints_of_other_tables_are_refused(storage: dict[str, str], tmp_path: Path) -> None:
    found = configured(tmp_path, storage, "s3a://bucket/other/tables")
    stream = Journal(tmp_path / "streams", "tele")
    stream.fill(1)
    stream.close()
    lake_tables.put(found, "bronze", [{"stream": "tele", "shard": 0, "seq": 1, "time": streams.BEGIN}])
    with pytest.raises(MosqPipelineError, match="s3a://bucket/other/tables"):
        progress.check(found, progress.setup(found, progress.JOBS))


def test_of_writers_of_one_batch_one_commits(storage: dict[str, str], tmp_path: Path) -> None:
    """Test writers that race, and one that commits late because it has not seen the commit of the other."""
    found = configured(tmp_path, storage, "s3a://bucket/race")
    table = lake_tables.put(found, "bronze", [{"stream": "tele", "shard": 0, "seq": 1, "time": streams.BEGIN}])
    place, committed = place_of(found), []
    parts = [table._written(table.read(), table.schema) for _ in range(4)]

    def commit(part: list[object]) -> None:
        opened = Table.open(place, "bronze")
        assert opened is not None
        committed.append(opened.append(part, "app", 7, {}))   # type: ignore[arg-type]

    threads = [threading.Thread(target=commit, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(committed) == [False, False, False, True]
    assert table.refresh().rows() == 2


def test_a_copy_of_the_checkpoints_on_another_machine_does_no_harm(storage: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two machines have copies of one checkpoint. The one that does not commit bronze first ends before it commits anything else."""
    (tmp_path / "one").mkdir()
    one = configured(tmp_path / "one", storage, "s3a://bucket/copies")
    stream = Journal(tmp_path / "one" / "streams", "tele")
    stream.fill(10)
    Batches(one).all()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    (tmp_path / "two" / "streams" / "tele").rename(tmp_path / "unused")
    (tmp_path / "two" / "streams").rmdir()
    (tmp_path / "two" / "streams").symlink_to(tmp_path / "one" / "streams")
    first, second = Batches(one), Batches(settings.load(tmp_path / "two"))
    stream.fill(5)
    with monkeypatch.context() as patch:    # the first one is interrupted behind its first commit
        patch.setattr(tableset.TableSet, "merge", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            first.one()
    stream.fill(5)
    with pytest.raises(MosqPipelineError, match=r"batch 1 was committed with other records \(.*10 to 14\) than those of this checkpoint \(.*10 to 19\)"):
        second.one()
    Batches(one).all()
    stream.fill(5)
    with pytest.raises(MosqPipelineError):
        Batches(second.settings).all()
    Batches(one).all()
    stream.close()
    assert verify.verify(one).faults == [] and progress.after(one)["rows"] == {"bronze": 25, "silver/numbers": 25}


def test_of_programs_that_merge_the_same_files_one_does(storage: dict[str, str], tmp_path: Path) -> None:
    """deltalake's own `optimize` lets both succeed, and the rows are there twice."""
    found = configured(tmp_path, storage, "s3a://bucket/merges")
    for seq in range(4):
        lake_tables.put(found, "bronze", [{"stream": "tele", "shard": 0, "seq": seq, "time": streams.BEGIN}])
    tables = [Table.open(place_of(found), "bronze") for _ in range(2)]
    lake_tables.put(found, "bronze", [{"stream": "tele", "shard": 0, "seq": 4, "time": streams.BEGIN}])
    for table in tables:
        assert table is not None
        upkeep.merge_files(table, upkeep.Plan(at_least=2))
    seqs = Table.open(place_of(found), "bronze").read()["seq"].to_pylist()      # type: ignore[union-attr]
    assert sorted(seqs) == [0, 1, 2, 3, 4]


def test_a_process_ends_while_it_reads(storage: dict[str, str], tmp_path: Path) -> None:
    """Test that threads of pyarrow that read ahead do not abort the process: with deltalake's file system five of six did."""
    found = configured(tmp_path, storage, "s3://bucket/ends")
    for seq in range(3):
        lake_tables.put(found, "bronze", [{"stream": "tele", "shard": 0, "seq": seq, "time": streams.BEGIN}])
    code = ("import sys; from mosq.pipeline import settings; from mosq.pipeline.lake.places import place_of; from mosq.pipeline.lake.table import Table; "
            "rows = Table.open(place_of(settings.load(sys.argv[1])), 'bronze').dataset().to_batches(); print(next(iter(rows)).num_rows)")
    for _ in range(4):
        done = subprocess.run([sys.executable, "-c", code, str(found.file)], capture_output=True, text=True, check=False)
        assert done.returncode == 0 and done.stdout == "1\n", done


@pytest.mark.parametrize(("uri", "keys", "said"), [
    ("s3a://no-such-bucket/tables", True, "s3a://no-such-bucket/tables/[a-z]+: there is no such bucket: create it, or correct"),
    ("s3a://bucket/tables", False, r"set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION in \[storage\]"),
])
def test_plain_errors(storage: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, keys: bool, said: str) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")     # else the client asks the network for keys
    found = configured(tmp_path, storage if keys else {}, uri)
    with pytest.raises(MosqPipelineError, match=said) as caught:
        Table.create(place_of(found), "bronze", lake_tables.schema_of("bronze"), "id")
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)


def test_options_that_only_deltalake_knows_use_its_file_system() -> None:
    assert Place("s3://b/t", {"AWS_ROLE_ARN": "x"})._s3() is None
    assert Place("abfss://c@a.dfs.core.windows.net/t")._s3() is None
