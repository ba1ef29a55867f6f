"""Test mosquitto.db of a broker with workers: when it is written, what is in it, and which of file and stores counts at a start."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from mosq.cli.commands import main
from mosq.server import layout
from mosq.tools.db.mosquitto_file import Client, ClientMessage, Message, MosquittoFile, Retain, Subscription
from tests.db.test_debians import Mosquitto
from tests.db.test_mosquitto_export import programs
from tests.durable.test_handover import mosquitto_wrote
from tests.harness.broker import Broker, command
from tests.harness.packets import Connack, Connect, Puback, Publish, Pubrec, Pubcomp, Pubrel, Suback, Subscribe
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.workers.case import Workers, until
from tests.workers.test_store import kill, restarted

STORE = "persistence true\npersistence_location {dir}/\n"
SESSION = ((P.SESSION_EXPIRY, 600),)
SESSIONS = 20                   # one of two workers has all: 1 in 524,288


def file_of(broker: Broker) -> Path:
    return broker.dir / "mosquitto.db"


def store_of(broker: Broker) -> Path:
    return broker.dir / "mosquitto.db.store"


def content(path: Path) -> tuple[set[str], set[str], list[str], list[tuple[str, bytes]]]:
    """Return the client ids, the filters, the retained topics, and for each delivery the client id and the payload."""
    with MosquittoFile(str(path)) as file:
        chunks = list(file.chunks())
    messages = {chunk.id: chunk for chunk in chunks if isinstance(chunk, Message)}
    assert len(messages) == sum(isinstance(chunk, Message) for chunk in chunks)         # ids are unique
    return ({chunk.client_id.decode() for chunk in chunks if isinstance(chunk, Client)},
            {chunk.filter.decode() for chunk in chunks if isinstance(chunk, Subscription)},
            sorted(messages[chunk.id].topic.decode() for chunk in chunks if isinstance(chunk, Retain)),
            sorted((chunk.client_id.decode(), messages[chunk.id].payload or b"") for chunk in chunks
                   if isinstance(chunk, ClientMessage)))


def fill(broker: Workers, n: int = SESSIONS, name: str = "kept") -> None:
    """Make sessions at all workers with a queued message each, and a retained message for each."""
    at = set()
    for i in range(n):
        client = broker.connect(f"{name}{i}", props=SESSION)
        at.add(broker.holder(client))
        client.send(Subscribe(3, ((f"{name}/{i}", 1), (f"{name}/all", 2))))
        assert isinstance(client.read_packet(), Suback)
        client.close()
    assert len(at) > 1
    publisher = broker.connect("publisher")
    for i in range(n):
        publisher.send(Publish(f"{name}/{i}", b"own%d" % i, 1, 5, retain=True))
        assert isinstance(publisher.read_packet(), Puback)
    publisher.send(Publish(f"{name}/all", b"all", 2, 6))
    assert isinstance(publisher.read_packet(), Pubrec)
    publisher.send(Pubrel(6))
    assert isinstance(publisher.read_packet(), Pubcomp)
    publisher.close()


def expected(n: int = SESSIONS, name: str = "kept") -> tuple[set[str], set[str], list[str], list[tuple[str, bytes]]]:
    return ({f"{name}{i}" for i in range(n)}, {f"{name}/{i}" for i in range(n)} | {f"{name}/all"}, sorted(f"{name}/{i}" for i in range(n)),
            sorted([(f"{name}{i}", b"own%d" % i) for i in range(n)] + [(f"{name}{i}", b"all") for i in range(n)]))


def resumed(port: int, client_id: str) -> bool:
    client = Wire(port, 5)
    client.send(Connect(client_id, clean=False, props=SESSION))
    answer = client.read_packet()
    client.close()
    assert isinstance(answer, Connack) and answer.rc == 0
    return answer.session


# -- when the file is written


@pytest.mark.parametrize("n", [2, 3])
def test_the_file_has_the_content_of_all_workers_after_a_stop(n: int) -> None:
    with Workers(n, STORE) as broker:
        fill(broker)
        assert not file_of(broker).exists()
        assert broker.stop() == 0
        assert content(file_of(broker)) == expected()
        assert file_of(broker).stat().st_mode & 0o777 == 0o600
        assert not (broker.dir / "mosquitto.db.new").exists()
        assert broker.log().count("Saving in-memory database to") == 1
        broker.start()
        assert resumed(broker.port, "kept1")            # the stores count
        assert broker.stop() == 0
        assert not list(broker.dir.glob("mosquitto.db.kept*"))


def test_the_file_is_written_on_sigusr1_while_workers_run() -> None:
    with Workers(2, STORE) as broker:
        fill(broker)
        broker.send_signal(signal.SIGUSR1)
        until(file_of(broker).exists, broker.log)
        assert content(file_of(broker)) == expected()
        broker.kill(2)                                  # a worker that starts again keeps no end of the pipe
        broker.send_signal(signal.SIGUSR1)
        broker.wait_log("Saving in-memory database to", 2)
        publisher = broker.connect("late")
        publisher.send(Publish("late", b"1", 1, 5, retain=True))
        assert isinstance(publisher.read_packet(), Puback)
        until(lambda: [broker.send_signal(signal.SIGUSR1), "late" in content(file_of(broker))[2]][1], broker.log)
        assert "Error" not in broker.log().replace("Error: Worker 2", "")


@pytest.mark.parametrize("options", ["autosave_interval 1\n", "autosave_on_changes true\nautosave_interval 4\n"])
def test_autosave_counts_the_changes_of_all_workers(options: str) -> None:
    with Workers(2, STORE + options) as broker:
        for number in (1, 2):
            session, publisher = broker.id_on(number), broker.connect(broker.id_on(number))
            client = broker.connect(session, props=SESSION)
            client.send(Subscribe(3, ((session, 1),)))
            assert isinstance(client.read_packet(), Suback)
            client.close()

            def queued(session: str = session, publisher: Wire = publisher) -> bool:
                """Queue a message of this worker for its session; return whether the file has one."""
                publisher.send(Publish(session, b"queued", 1, 5))
                assert isinstance(publisher.read_packet(), Puback)
                return file_of(broker).exists() and (session, b"queued") in content(file_of(broker))[3]

            until(queued, broker.log)


@pytest.mark.parametrize("options", ["", "persistence true\nmosquitto_db false\n", "persistence true\ndurability none\n"])
def test_no_file_is_written_where_none_is_wanted(options: str) -> None:
    with Workers(2, "persistence_location {dir}/\n" + options) as broker:
        publisher = broker.connect("c")
        publisher.send(Publish("r", b"1", 1, 5, retain=True))
        assert isinstance(publisher.read_packet(), Puback)
        broker.send_signal(signal.SIGUSR1)
        broker.wait_log("Nothing to save")
        assert broker.stop() == 0
        assert not file_of(broker).exists()


def test_a_file_that_cannot_be_written_is_logged_and_changes_no_status() -> None:
    with Workers(2, STORE) as broker:
        fill(broker)
        (broker.dir / "mosquitto.db.new").mkdir()       # where the new file would be written
        broker.send_signal(signal.SIGUSR1)
        broker.wait_log("could not be written, and has its old content")
        assert broker.stop() == 0
        assert broker.log().count("could not be written, and has its old content") == 2
        assert not file_of(broker).exists()


def test_a_save_that_takes_too_long_at_the_end_leaves_the_old_file() -> None:
    with Workers(2, STORE + "mosquitto_db_seconds 0\n") as broker:
        publisher = broker.connect("c")
        for i in range(30):
            publisher.send(Publish(f"r/{i}", bytes(100_000), 1, 5, retain=True))
            assert isinstance(publisher.read_packet(), Puback)
        file_of(broker).write_bytes(b"old")
        assert broker.stop() == 0
        assert "was not written within 0 s (mosquitto_db_seconds)" in broker.log()
        assert file_of(broker).read_bytes() == b"old"
        assert not (broker.dir / "mosquitto.db.new").exists()


def test_a_kill_while_the_file_is_written_leaves_the_old_one() -> None:
    with Workers(2, STORE) as broker:
        fill(broker)
        assert broker.stop() == 0
        before = file_of(broker).read_bytes()
        broker.start()
        publisher = broker.connect("c")
        for i in range(100):
            publisher.send(Publish(f"r/{i}", bytes(100_000), 1, 5, retain=True))
            assert isinstance(publisher.read_packet(), Puback)
        publisher.close()
        process = broker.process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        until((broker.dir / "mosquitto.db.new").exists, broker.log)
        process.kill()
        process.wait()
        assert file_of(broker).read_bytes() == before or len(content(file_of(broker))[2]) == SESSIONS + 100
        broker.start()
        assert resumed(broker.port, "kept1")
        assert broker.stop() == 0
        assert len(content(file_of(broker))[2]) == SESSIONS + 100
        assert not (broker.dir / "mosquitto.db.new").exists() and not list(broker.dir.glob("mosquitto.db.kept*"))


def test_the_file_belongs_to_the_user_of_the_broker() -> None:
    with Workers(2, STORE, user="nobody") as broker:         # the parent, which root starts, changes to this user
        publisher = broker.connect("c")
        publisher.send(Publish("r", b"1", 1, 5, retain=True))
        assert isinstance(publisher.read_packet(), Puback)
        broker.send_signal(signal.SIGUSR1)
        until(file_of(broker).exists, broker.log)
        owner = file_of(broker).stat().st_uid
        assert owner == store_of(broker).stat().st_uid
        file_of(broker).unlink()
        assert broker.stop() == 0
        assert file_of(broker).stat().st_uid == owner


# -- programs that read it


@pytest.mark.interop
@pytest.mark.parametrize("program", programs(), ids=lambda program: Path(program).name + "-other" if program else "debian")
def test_mosquitto_continues_where_the_workers_stopped(program: str | None, tmp_path: Path) -> None:
    with Workers(2, STORE) as broker:
        fill(broker)
        assert broker.stop() == 0
        shutil.copy(file_of(broker), tmp_path / "mosquitto.db")
    mosquitto = Mosquitto(tmp_path, program=program)
    try:
        for i in range(SESSIONS):
            client = Wire(mosquitto.port, 5)
            client.send(Connect(f"kept{i}", clean=False, props=SESSION))
            answer = client.read_packet()
            assert isinstance(answer, Connack) and answer.session
            assert sorted(getattr(client.read_packet(), "payload", b"") for _ in range(2)) == [b"all", b"own%d" % i]
            client.close()
        reader = Wire(mosquitto.port, 5)
        reader.send(Connect("reader"), Subscribe(1, (("kept/#", 0),)))
        got = [packet for packet in (reader.read_packet() for _ in range(SESSIONS + 2)) if isinstance(packet, Publish)]
        assert sorted(packet.payload for packet in got) == sorted(b"own%d" % i for i in range(SESSIONS))
        reader.close()
    finally:
        mosquitto.stop()


def test_one_process_and_workers_write_the_same_file() -> None:
    with Workers(2, STORE) as broker:
        fill(broker)
        assert broker.stop() == 0
        of_workers = content(file_of(broker))
        log = restarted(broker, 1)
        assert "is not from this store" not in log and "was removed" not in log
        assert broker.stop() == 0
        assert content(file_of(broker)) == of_workers == expected()
        log = restarted(broker, 3)
        assert "is not from this store" not in log and "was removed" not in log
        assert resumed(broker.port, "kept1")


def test_the_command_exports_the_stores_of_a_running_broker(tmp_path: Path) -> None:
    with Workers(2, STORE) as broker:
        fill(broker)
        path = tmp_path / "exported.db"
        assert main(["db", "export", "--mosquitto", str(path), str(broker.dir)]) == 0
        assert content(path) == expected()


def test_mosq_starts_from_the_file_with_one_process() -> None:
    with Workers(2, STORE) as broker:
        fill(broker)
        assert broker.stop() == 0
        shutil.rmtree(store_of(broker))
        assert "taken over from" in restarted(broker, 1)
        client = Wire(broker.port, 5)
        client.send(Connect("kept2", clean=False, props=SESSION))
        assert [getattr(client.read_packet(), "payload", b"") for _ in range(3)] == [b"", b"own2", b"all"]
        client.close()


# -- which of both counts at a start


def test_a_file_that_an_operator_removes_means_an_empty_start() -> None:
    with Workers(2, STORE) as broker:
        fill(broker)
        assert broker.stop() == 0
        file_of(broker).unlink()
        broker.start()
        assert "was removed, so the broker starts without sessions" in broker.log()
        assert not resumed(broker.port, "kept1")
        assert broker.stop() == 0
        aside = next(store_of(broker).glob("removed.*"))
        # the way back that the log describes
        for path in (*store_of(broker).glob("worker.*"), store_of(broker) / "workers"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in aside.iterdir():
            path.rename(store_of(broker) / path.name)
        broker.start()
        assert resumed(broker.port, "kept1")


@pytest.mark.parametrize("n", [2, 3, 1])
def test_a_file_that_mosquitto_changed_becomes_the_stores(n: int) -> None:
    with Workers(2, STORE) as broker:
        fill(broker)
        assert broker.stop() == 0
        mosquitto_wrote(file_of(broker), b"theirs1", b"theirs2", b"theirs3")
        log = restarted(broker, n)
        assert "was changed by another program after mosq had written it" in log
        assert resumed(broker.port, "theirs1") and resumed(broker.port, "theirs3") and not resumed(broker.port, "kept1")
        assert len(list(store_of(broker).glob("replaced.*"))) == 1


def test_a_file_that_the_stores_do_not_know_stays() -> None:
    with Workers(2, STORE) as broker:
        fill(broker)
        kill(broker)
        mosquitto_wrote(file_of(broker), b"theirs")
        before = file_of(broker).read_bytes()
        broker.start()
        assert "is not from this store" in broker.log()
        assert resumed(broker.port, "kept1")
        assert broker.stop() == 0
        assert (broker.dir / "mosquitto.db.kept").read_bytes() == before
        assert content(file_of(broker))[0] == expected()[0]


def test_a_damaged_file_does_not_replace_the_stores() -> None:
    with Workers(2, STORE) as broker:
        fill(broker)
        assert broker.stop() == 0
        file_of(broker).write_bytes(b"x" * 100)
        broker.start()
        assert "was changed by another program and cannot be taken over" in broker.log()
        assert resumed(broker.port, "kept1")


def test_stores_without_the_file_of_their_layout_stop_the_start() -> None:
    with Workers(2, STORE) as broker:
        fill(broker)
        assert broker.stop() == 0
        (store_of(broker) / layout.FILE).unlink()
        for n in ("2", "1"):
            done = subprocess.run([*command(), "-c", str(broker.config), "--workers", n], capture_output=True, text=True, timeout=30, check=False)
            assert done.returncode == 1 and "the file `workers` is missing" in done.stderr
