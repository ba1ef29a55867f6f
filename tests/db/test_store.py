"""Test `mosq db` on real stores: an import makes one, the other commands read it, also during writes."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mosq._core import PyStore
from mosq.tools.db import kinds
from mosq.tools.db.commands import db
from mosq._core import record_encode
from tests.db import mosquitto_db as file

PUBACK, QUEUED = 3, 11


def run(*arguments: object) -> Result:
    return CliRunner().invoke(db, [str(a) for a in arguments], standalone_mode=False)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "mosquitto.db"
    path.write_bytes(file.header() + file.config() + b"".join(file.message(i, b"t/%d" % i, b"m%d" % i) for i in range(1, 6))
                     + file.message(9, b"r", b"kept", retain=1) + file.client(b"c", user=b"ann") + file.client_message(1, b"c", 4, 1, PUBACK)
                     + b"".join(file.client_message(i, b"c", 3 + i, 1, QUEUED) for i in range(2, 6)) + file.subscription(b"c", b"t/#") + file.retain(9))
    return path


def test_import_and_read_back(tmp_path: Path, saved: Path) -> None:
    store = tmp_path / "store"
    result = run("import", saved, store)
    assert (result.return_value, result.stdout) == (0, "1 sessions, 1 subscriptions, 5 deliveries and 1 retained messages imported.\n")
    assert run("check", store).stdout == f"{store}: 9 records, 1 sessions: all is well.\n"
    counted = json.loads(run("stats", "--json", store).stdout)
    assert (counted["sessions"], counted["queued"], counted["retained"], counted["subscriptions"]) == (1, 5, 1, 1)
    assert "made by " in run("stats", tmp_path / "store").output
    assert "broker=mosq " in counted["made_by"] and "import of format 6" in counted["made_by"]
    lines = run("dump", "--payload", store).stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["meta", "session", "sub"] + ["msg"] * 6
    assert '"t/1" qos 1, 2 B "m1" -> 1:0 qos 1 pid 4' in lines[3]
    assert {path.name.split(".")[0] for path in store.iterdir()} == {"lock", "segment", "mosquitto"}


def test_import_replaces_nothing_unasked(tmp_path: Path, saved: Path) -> None:
    store = tmp_path / "store"
    assert run("import", "--dry-run", saved, store).stdout.endswith("would be imported.\n")
    assert not store.exists()
    store.mkdir()
    (store / "mosquitto.db").write_bytes(saved.read_bytes())        # as in a folder that Mosquitto used
    assert run("import", store / "mosquitto.db", store).return_value == 0
    result = run("import", saved, store)
    assert result.return_value == 1 and "there is a store with 9 records; expected an empty one, or --force" in result.output
    saved.write_bytes(file.header() + file.config() + file.client(b"other"))
    result = run("import", "--force", saved, store)
    assert result.return_value == 0 and "The old store is now in" in result.output
    assert [row["id"] for row in map(json.loads, run("dump", "--json", "--kind", "session", store).stdout.splitlines())] == ["other"]
    (kept,) = store.glob("replaced.*")
    assert '"c"' in run("dump", "--kind", "session", kept).stdout


def test_a_refused_import_by_root_leaves_a_lock_that_the_owner_can_open(tmp_path: Path, saved: Path) -> None:
    store, owner = tmp_path / "store", 65534 if os.geteuid() == 0 else os.geteuid()
    assert run("import", saved, store).return_value == 0
    (store / "lock").unlink()           # as in the folder with the stores of workers
    os.chown(store, owner, -1)
    assert run("import", saved, store).return_value == 1
    assert (store / "lock").stat().st_uid == owner


def test_a_bad_file_leaves_no_store(tmp_path: Path, saved: Path) -> None:
    store = tmp_path / "store"
    saved.write_bytes(saved.read_bytes()[:-3])
    result = run("import", saved, store)
    assert result.return_value == 1 and "a retained message of 8 bytes; expected at most 5, the rest of the file" in result.output
    assert not store.exists()


def test_a_store_in_use(tmp_path: Path, saved: Path) -> None:
    store = PyStore(tmp_path / "store", create=True)
    store.recover()
    store.start()
    store.append(kinds.SESSION, record_encode(kinds.SESSION, {"sno": 1, "connected": True, "expiry_s": 1, "ends_wall_ms": 0, "next": 0, "id": b"c", "user": None}))
    end = store.seal(True)
    while store.synced() < end:
        store.wait()
    assert "1 records, 1 sessions: all is well" in run("check", "--live", tmp_path / "store").output
    result = run("import", saved, tmp_path / "store")
    assert result.return_value == 1 and str(os.getpid()) in result.output
    store.append(kinds.SUB, b"no body")
    store.close()
    result = run("check", tmp_path / "store")
    assert result.return_value == 1 and "(sub) and 7 bytes ends before its last field" in result.output


@pytest.mark.parametrize("arguments", [("check",), ("stats",), ("dump",), ("export", "--jsonl", "-")])
def test_no_store(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert "no segment.* files; expected a directory with a store of mosq" in run(*arguments, tmp_path).output
    result = run(*arguments, tmp_path / "nowhere")
    assert result.return_value == 1 and "nowhere: No such file or directory; expected a directory" in result.output


def test_no_file(tmp_path: Path) -> None:
    result = run("import", tmp_path / "nothing.db", tmp_path / "store")
    assert result.return_value == 1 and "nothing.db: No such file or directory" in result.output
    assert not (tmp_path / "store").exists()
