"""Test tables in object storage, against the S3 server of moto: two writers, processes that end while they read, and plain errors."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from mosq.pipeline import MosqPipelineError, settings
from mosq.pipeline.lake.places import Place, place_of
from mosq.pipeline.lake.table import Table
from mosq.pipeline.runs import progress
from mosq.tools.bench.started import free_port
from tests.pipeline import lake_tables, streams
from tests.pipeline.journals import Journal

# a server in this process would wait for the GIL, which deltalake holds while it waits for the server
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


def configured(folder: Path, storage: dict[str, str], tables: str) -> settings.Settings:
    lines = "".join(f'{key} = "{value}"\n' for key, value in storage.items())
    (folder / "pipeline.toml").write_text(f'[pipeline]\njournal = "streams"\ntables = "{tables}"\n[storage]\n{lines}'
                                          '[[silver]]\nname = "numbers"\ntopic = "#"\nformat = "number"\n')
    return settings.load(folder)


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
