"""Test the import of the database of Mosquitto's plugin persist-sqlite, with tables as the plugin creates them."""

import json
import multiprocessing
import sqlite3
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mosq.tools.db.commands import db
from mosq.tools.db.mosquitto_sqlite import properties_of
from tests.durable.test_handover import OURS
from tests.durable.test_restart import Kept
from tests.harness.packets import Puback, Publish, Pubrel, Subscribe

TABLES = """
CREATE TABLE base_msgs (store_id INT64 PRIMARY KEY, expiry_time INT64, topic STRING NOT NULL, payload BLOB, source_id STRING,
    source_username STRING, payloadlen INTEGER, source_mid INTEGER, source_port INTEGER, qos INTEGER, retain INTEGER, properties STRING);
CREATE TABLE retains (topic STRING PRIMARY KEY, store_id INT64);
CREATE TABLE clients (client_id TEXT PRIMARY KEY, username TEXT, connection_time INT64, will_delay_time INT64, session_expiry_time INT64,
    listener_port INT, max_packet_size INT, max_qos INT, retain_available INT, session_expiry_interval INT, will_delay_interval INT);
CREATE TABLE subscriptions (client_id TEXT NOT NULL, topic TEXT NOT NULL, subscription_options INTEGER, subscription_identifier INTEGER,
    PRIMARY KEY (client_id, topic));
CREATE TABLE client_msgs (client_id TEXT NOT NULL, cmsg_id INT64, store_id INT64, dup INTEGER, direction INTEGER, mid INTEGER, qos INTEGER,
    retain INTEGER, state INTEGER, subscription_identifier INTEGER);
"""
WILLS = """CREATE TABLE wills (client_id TEXT PRIMARY KEY, payload BLOB, topic STRING NOT NULL, payloadlen INTEGER, qos INTEGER, retain INTEGER,
    properties STRING);"""
VERSION = "CREATE TABLE version_info (component TEXT NOT NULL, major INTEGER NOT NULL, minor INTEGER NOT NULL, patch INTEGER NOT NULL);"


def made(path: Path, version: tuple[int, int, int] | None = (1, 1, 0)) -> sqlite3.Connection:
    """Create an empty database of the plugin."""
    found = sqlite3.connect(path, isolation_level=None)
    found.executescript("PRAGMA journal_mode = WAL;" + TABLES + WILLS)
    if version is not None:
        found.execute(VERSION)
        found.execute("INSERT INTO version_info VALUES ('database_schema', ?, ?, ?)", version)
    return found


def message(found: sqlite3.Connection, id: int, topic: str, payload: bytes | None, qos: int = 1, expires_s: int = 0, properties: str | None = None) -> None:
    found.execute("INSERT INTO base_msgs VALUES (?, ?, ?, ?, 'pub', NULL, ?, 1, 1883, ?, 0, ?)",
                  (id, expires_s, topic, payload, len(payload or b""), qos, properties))


def client(found: sqlite3.Connection, id: str, user: str | None = None, expiry_s: int = -1, due_s: int = 0, delay_s: int = 0) -> None:
    found.execute("INSERT INTO clients VALUES (?, ?, 0, ?, 0, 1883, 0, 2, 1, ?, ?)", (id, user, due_s, expiry_s, delay_s))


def queued(found: sqlite3.Connection, client_id: str, id: int, pid: int, qos: int, state: int, direction: int = 1, sub_id: int = 0) -> None:
    found.execute("INSERT INTO client_msgs VALUES (?, ?, ?, 0, ?, ?, ?, 0, ?, ?)", (client_id, pid, id, direction, pid, qos, state, sub_id))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a database with all that the plugin stores."""
    path = tmp_path / "mosquitto.sqlite3"
    found = made(path)
    client(found, "c", "ann", due_s=0, delay_s=30)
    client(found, "short", expiry_s=60)
    found.execute("INSERT INTO subscriptions VALUES ('c', 'a/#', 46, 7)")
    message(found, 11, "a/1", b"released", 2)
    message(found, 12, "a/2", b"sent", properties=json.dumps([
        {"identifier": "content-type", "value": "text"}, {"identifier": "correlation-data", "value": "00FF"},
        {"identifier": "user-property", "name": "k", "value": "v"}, {"identifier": "payload-format-indicator", "value": 1}]))
    message(found, 13, "123", b"waiting")                               # a topic that SQLite keeps as a number
    message(found, 14, "held", b"inbound", 2)
    message(found, 15, "r", b"kept")
    found.execute("INSERT INTO retains VALUES ('r', 15)")
    queued(found, "c", 11, 1, 2, 9)
    queued(found, "c", 12, 2, 1, 3, sub_id=7)
    queued(found, "c", 13, 3, 1, 11)
    queued(found, "c", 14, 99, 2, 7, direction=0)
    found.execute("INSERT INTO wills VALUES ('c', x'6279', 'w', 2, 1, 0, NULL)")
    found.execute("INSERT INTO wills VALUES ('clean', x'6279', 'w', 2, 1, 0, NULL)")
    found.close()
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(db, [str(argument) for argument in arguments], standalone_mode=False)


def rows_of(store: Path) -> list[dict]:
    result = run("export", "--jsonl", "-", store)
    assert result.return_value == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def test_all_that_the_plugin_stores_is_imported(file: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    result = run("import", file, store)
    assert result.return_value == 0 and "2 sessions, 1 subscriptions, 2 wills, 3 deliveries and 1 retained messages imported." in result.output
    assert run("check", store).return_value == 0
    rows = rows_of(store)
    sessions = {row["id"]: row for row in rows if row["type"] == "session"}
    assert {id: (s["user"], s["expiry_s"]) for id, s in sessions.items()} == {"c": ("ann", None), "short": (None, 60)}
    assert [(s["filter"], s["options"], s["sub_id"]) for s in sessions["c"]["subscriptions"]] == [("a/#", 46, 7)]
    messages = {row["lsn"]: row for row in rows if row["type"] == "message"}
    queue = sorted((row["position"], row["pid"], row["qos"], messages[row["lsn"]]["payload"] if row["lsn"] is not None else None, row["state"])
                   for row in rows if row["type"] == "delivery")
    assert [entry[1:] for entry in queue] == [(1, 2, None, "released"), (2, 1, "sent", "sent"), (3, 1, "waiting", "waiting")]
    sent = next(m for m in messages.values() if m["payload"] == "sent")
    assert sent["properties"] == {"content_type": "text", "correlation_data": "00ff", "user_properties": [["k", "v"]], "payload_format": 1}
    assert {m["topic"] for m in messages.values() if m["payload"] == "waiting"} == {"123"}
    assert [(m["topic"], m["payload"]) for m in messages.values() if m["retained"]] == [("r", "kept")]
    assert [(row["pid"], row["topic"]) for row in rows if row["type"] == "inbox"] == [(99, "held")]
    assert [(row["topic"], row["payload"], row["delay_s"]) for row in rows if row["type"] == "will" and row["sno"]] == [("w", "by", 30)]


@pytest.fixture
def broker(file: Path) -> Iterator[Kept]:
    kept = Kept(f"plugin /usr/lib/mosquitto_persist_sqlite.so\nplugin_opt_db_file {file}\n{OURS}")
    yield kept
    kept.close()


def test_the_first_start_with_the_plugin_takes_over_its_database(broker: Kept, file: Path) -> None:
    before = file.read_bytes()
    broker.start()
    assert f"taken over from {file}" in broker.log()
    wire = broker.client("c", session=True, level=4, username="ann", password=b"x")
    again = [wire.read_packet() for _ in range(3)]
    assert Pubrel(1) in again
    assert [(p.mid, p.dup, p.topic, p.payload) for p in again if isinstance(p, Publish)] == [(2, True, "a/2", b"sent"), (3, False, "123", b"waiting")]
    wire.send(Puback(2), Puback(3))
    wire.close()
    broker.restart()
    assert broker.log().count("Taking over") == 1 and file.read_bytes() == before
    assert not list(broker.dir.glob("mosquitto.db*"))


def test_the_will_of_a_client_without_a_session_is_sent_at_the_first_start(broker: Kept, file: Path) -> None:
    found = sqlite3.connect(file, isolation_level=None)
    found.execute("INSERT INTO wills VALUES ('lost', x'7374617465', 'state', 5, 1, 1, NULL)")
    found.close()
    broker.start()
    wire = broker.client("asks", level=4, clean=True)
    wire.send(Subscribe(1, (("state", 1),)))
    got = [wire.read_packet() for _ in range(2)]
    assert [(p.topic, p.payload, p.retain) for p in got if isinstance(p, Publish)] == [("state", b"state", True)]


def test_the_database_is_in_persistence_location_as_in_mosquitto(file: Path) -> None:
    with Kept(f"persistence_location {{dir}}\nplugin /usr/lib/mosquitto_persist_sqlite.so\nplugin_opt_db_file {file}\n{OURS}") as broker:
        assert "Taking over" not in broker.log()
    kept = Kept(f"persistence_location {{dir}}\nplugin /usr/lib/mosquitto_persist_sqlite.so\n{OURS}")
    try:
        file.rename(kept.dir / "mosquitto.sqlite3")
        kept.start()
        kept.client("c", session=True, username="ann", password=b"x")
    finally:
        kept.close()


def test_two_brokers_keep_what_they_have_in_one_folder(tmp_path: Path) -> None:
    """plugin_opt_db_file names the store, so brokers with different files do not share one."""
    folder = tmp_path / "both"
    folder.mkdir()
    folder.chmod(0o777)
    both = [Kept(f"plugin persist-sqlite\nplugin_opt_db_file {folder}/{name}.db\n{OURS}") for name in "ab"]
    try:
        for broker in both:
            broker.start()
        for n, broker in enumerate(both):
            broker.client(f"only here {n}", session=False)
            broker.restart()
        for n, broker in enumerate(both):
            broker.client(f"only here {n}", session=True)
            broker.client(f"only here {1 - n}", session=False)
    finally:
        for broker in both:
            broker.close()


@pytest.mark.parametrize("version", [(1, 2, 0), (2, 0, 0), (0, 0, 1)])
def test_a_newer_schema_is_refused(broker: Kept, file: Path, tmp_path: Path, version: tuple[int, int, int]) -> None:
    file.unlink()
    made(file, version).close()
    text = f"Unknown database_schema version {'.'.join(map(str, version))}; expected 1.0 to 1.1"
    result = run("import", file, tmp_path / "store")
    assert result.return_value == 1 and text in result.output
    with pytest.raises(RuntimeError, match="status 3") as error:
        broker.start()
    assert text in str(error.value)


def test_databases_before_the_table_of_versions_are_read(tmp_path: Path) -> None:
    found = made(tmp_path / "old", None)
    client(found, "c")
    found.execute("DROP TABLE wills")
    found.close()
    assert "1 sessions" in run("import", tmp_path / "old", tmp_path / "store").output


def test_a_truncated_database_is_refused_and_leaves_nothing(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    for size in (50, 4096, len(whole) // 2, len(whole) - 4096):
        file.write_bytes(whole[:size])
        result = run("import", file, tmp_path / "store")
        assert result.return_value == 1 and str(file) in result.output and "Traceback" not in result.output
        assert not list((tmp_path / "store").glob("segment.*"))


def test_another_sqlite_database_is_refused(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "other").executescript("CREATE TABLE x (y);")
    result = run("import", tmp_path / "other", tmp_path / "store")
    assert result.return_value == 1 and "no table base_msgs; expected the database of Mosquitto's plugin" in result.output


@pytest.mark.parametrize("change", ["INSERT INTO client_msgs VALUES ('c', 9, 12, 0, 1, 9, 1, 0, 99, 0)", "UPDATE base_msgs SET qos = 3",
                                    "UPDATE base_msgs SET store_id = 'x' WHERE store_id = 15", "UPDATE clients SET session_expiry_interval = 'x'",
                                    "UPDATE base_msgs SET expiry_time = 9223372036854775807", "UPDATE clients SET session_expiry_time = 1 << 62",
                                    "UPDATE clients SET will_delay_time = 1 << 62", "UPDATE clients SET client_id = hex(zeroblob(40000)) WHERE rowid = 1",
                                    "UPDATE clients SET username = hex(zeroblob(40000))", "UPDATE subscriptions SET topic = hex(zeroblob(40000))"])
def test_a_wrong_value_is_refused_with_its_place(file: Path, tmp_path: Path, change: str) -> None:
    found = sqlite3.connect(file, isolation_level=None)
    found.execute(change)
    found.close()
    result = run("import", file, tmp_path / "store")
    assert result.return_value == 1 and "row " in result.output and "expected" in result.output, result.output


def test_ids_that_are_negative_in_the_database_are_imported(tmp_path: Path) -> None:
    with made(tmp_path / "m.db") as found:
        client(found, "c")
        message(found, -5, "a", b"x")
        queued(found, "c", -5, 0, 1, 11)
    found.close()
    result = run("import", tmp_path / "m.db", tmp_path / "store")
    assert result.return_value == 0, result.output


def hold(path: str, pipe: Connection) -> None:
    """Have the database open as a running Mosquitto has it, until the pipe says something."""
    found = sqlite3.connect(path, isolation_level=None)
    found.execute("PRAGMA journal_mode = WAL")
    found.execute("BEGIN")
    found.execute("SELECT * FROM clients").fetchall()
    pipe.send(None)
    pipe.recv()


def test_a_database_that_another_process_has_open_is_refused(file: Path, tmp_path: Path) -> None:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=hold, args=(str(file), there))
    process.start()
    here.recv()
    result = run("import", file, tmp_path / "store")
    here.send(None)
    process.join()
    assert result.return_value == 1 and f"process {process.pid} has it open" in result.output
    assert run("import", file, tmp_path / "store").return_value == 0


@pytest.mark.parametrize("text", [b"{", b"[1]", b'[{"identifier": "content-type"}]', b'[{"identifier": "content-type", "value": 1}]',
                                  b'[{"identifier": "correlation-data", "value": "0"}]', b'[{"identifier": "payload-format-indicator", "value": 999}]', b"7",
                                  b"[" * 200_000], ids=lambda text: text[:60].decode())
def test_wrong_properties_are_found(text: bytes) -> None:
    assert properties_of(text) is None
