"""Test `mosq backup` and `mosq restore` of a broker with workers, and the commands that read its stores."""

from __future__ import annotations

import json
import sqlite3
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from mosq.cli.commands import main
from mosq.journal import Stream
from mosq.server import layout
from mosq.tools.backup import save as saving
from mosq.tools.backup.archive import BackupError
from mosq.tools.backup.save import save
from tests.harness.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe
from tests.harness.properties import P
from tests.workers.case import Workers, until

STORE = "persistence true\npersistence_location {dir}/\nmax_queued_messages 0\nstream all to/#\nstream load load/#\n"
SESSION = ((P.SESSION_EXPIRY, 600),)
N = 30                          # sessions: each of 3 workers has some


def quiet(label: str, length: int) -> Callable[[int], None]:
    return lambda count: None


def keep(broker: Workers, name: str, *filters: str) -> None:
    """Make a durable session."""
    client = broker.connect(name, clean=False, props=SESSION)
    client.send(Subscribe(1, tuple((one, 2) for one in filters)))
    assert isinstance(client.read_packet(), Suback)
    client.close()


def waiting(broker: Workers, name: str, end: str) -> list[tuple[str, bytes]]:
    """Return the messages in the queue of a session, up to one that is published now."""
    last = broker.connect(f"last-{name}")
    last.send(Publish(f"end/{name}", end.encode(), 1, 1))
    assert isinstance(last.read_packet(), Puback)
    last.close()
    client = broker.connect(name, clean=False, props=SESSION)
    got = []
    while not got or got[-1][0] != f"end/{name}":
        packet = client.read_packet()
        if isinstance(packet, Publish):
            got.append((packet.topic, packet.payload))
            client.send(Puback(packet.mid) if packet.qos == 1 else Pubrec(packet.mid))
        elif isinstance(packet, Pubrel):
            client.send(Pubcomp(packet.mid))
    client.close()
    return got[:-1]


def restored(archive: Path, n: int) -> Workers:
    """Restore a backup for another broker, with `n` workers."""
    other = Workers(n, STORE)
    other.dir.chmod(0o777)
    assert main(["restore", "-q", "-c", str(other.config), str(archive)]) == 0
    return other


def streamed(broker: Workers, name: str, n: int) -> dict[str, list[bytes]]:
    """Return the payloads of a stream by their topics, when there are at least n."""
    stream = Stream(broker.dir / "mosquitto.db.store/streams" / name)
    until(lambda: sum(mark.seq for mark in stream.marks()) >= n, broker.log)
    found: dict[str, list[bytes]] = {}
    for shard in stream.shards():
        for record in stream.read(0, 1 << 40, shard):
            found.setdefault(record.topic, []).append(record.payload)
    return found


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a backup of a broker with 3 workers: each has sessions with messages, and there are retained messages."""
    path = tmp_path / "small.tar"
    with Workers(3, STORE) as broker:
        for i in range(N):
            keep(broker, f"s{i}", f"to/{i}", "all", f"end/s{i}")
        client = broker.connect("sender")
        for i in range(N):
            client.send(Publish(f"to/{i}", b"%d" % i, 1, 1 + i, retain=True))
            assert isinstance(client.read_packet(), Puback)
        client.send(Publish("all", b"a", 2, 500))
        assert isinstance(client.read_packet(), Pubrec)
        client.send(Pubrel(500))
        assert isinstance(client.read_packet(), Pubcomp)
        assert main(["backup", "-q", "-c", str(broker.config), str(path)]) == 0
    return path


@pytest.mark.parametrize("n", [3, 2, 1])
def test_a_backup_is_restored_for_any_number_of_workers(small: Path, n: int) -> None:
    with tarfile.open(small) as tar:
        names = tar.getnames()
    assert len([name for name in names if name.startswith("store/streams/all/worker.")]) > 3
    assert {"store/workers", "store/worker.1/of", "store/worker.2/segment.000001", "store/worker.3/segment.000001"} <= set(names)
    with restored(small, n) as other:
        assert "because they come from a backup" in other.log()
        for i in range(N):
            assert waiting(other, f"s{i}", "e") == [(f"to/{i}", b"%d" % i), ("all", b"a")]
        assert streamed(other, "all", N) == {f"to/{i}": [b"%d" % i] for i in range(N)}
        reader = other.connect("reader")
        reader.send(Subscribe(1, (("to/#", 0),)))
        assert isinstance(reader.read_packet(), Suback)
        assert {reader.read_packet().payload for _ in range(N)} == {b"%d" % i for i in range(N)}     # type: ignore[union-attr]
        before = other.log().count("Dividing the stores")
        other.restart()
        assert other.log().count("Dividing the stores") == before       # it is settled once


def test_a_backup_under_load_has_all_that_was_acknowledged_before() -> None:
    """Clients of both workers publish with QoS 1 and 2 to sessions of both. A message that was acknowledged before the backup began is in
    all queues and in its stream, once, and none of them has a gap in the messages of one publisher."""
    with Workers(2, STORE) as broker:
        names = [broker.id_on(1), broker.id_on(2)]
        for name in names:
            keep(broker, name, "load/#", f"end/{name}")
        senders = {broker.id_on(worker, "p"): qos for worker in (1, 2) for qos in (1, 2)}
        acknowledged = dict.fromkeys(senders, 0)
        done = threading.Event()

        def publish(name: str, qos: int) -> None:
            client = broker.connect(name)
            while not done.is_set():
                number = acknowledged[name]
                client.send(Publish(f"load/{name}", b"%d" % number, qos, 1 + number % 60000))
                assert isinstance(client.read_packet(), Puback if qos == 1 else Pubrec)
                if qos == 2:
                    client.send(Pubrel(1 + number % 60000))
                    assert isinstance(client.read_packet(), Pubcomp)
                acknowledged[name] = number + 1

        threads = [threading.Thread(target=publish, args=one) for one in senders.items()]
        for thread in threads:
            thread.start()
        archives = []
        for i in range(6):
            before = dict(acknowledged)
            path = broker.dir / f"{i}.tar"
            save(str(broker.config), str(path), True, False, quiet)
            archives.append((path, before))
        done.set()
        for thread in threads:
            thread.join()
        for i, (path, before) in enumerate(archives):
            with restored(path, (2, 1, 3)[i % 3]) as other:
                kept = streamed(other, "load", sum(before.values()))
                for sender, n in before.items():
                    found = [int(one) for one in kept.get(f"load/{sender}", [])]
                    assert found == list(range(len(found))) and len(found) >= n
                for name in names:
                    got = waiting(other, name, "e")
                    for sender in senders:
                        numbers = [int(payload) for topic, payload in got if topic == f"load/{sender}"]
                        assert numbers == list(range(len(numbers))) and len(numbers) >= before[sender], (i, name, sender)


def test_a_division_during_a_backup_is_noticed(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with restored(small, 3) as other:
        real = saving._write_stores

        def late(*arguments: object) -> list[str]:
            path = other.dir / "mosquitto.db.store/workers"
            content = json.loads(path.read_text())
            path.write_text(json.dumps({**content, "stores": "0" * 16}))
            return real(*arguments)     # type: ignore[arg-type]

        monkeypatch.setattr(saving, "_write_stores", late)
        with pytest.raises(BackupError, match="divided for another number of workers while they were copied"):
            save(str(other.config), str(other.dir / "a.tar"), True, False, quiet)
        (other.dir / "mosquitto.db.store" / layout.DIVIDED).mkdir()
        with pytest.raises(BackupError, match="if it does not run, start it"):
            save(str(other.config), str(other.dir / "a.tar"), True, False, quiet)
        assert not list(other.dir.glob("a.tar*"))


# -- mosq db

@pytest.fixture
def folder(small: Path, tmp_path: Path) -> Path:
    """Return the stores of 3 workers, as a backup has them."""
    assert main(["restore", "-q", "--data-to", str(tmp_path), str(small)]) == 0
    return tmp_path / "mosquitto.db.store"


def test_mosq_db_reads_all_stores(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["db", "check", "--quiet", "--live", str(folder)]) == 0
    assert f"{N} sessions in the stores of 3 workers: all is well." in capsys.readouterr().out
    assert main(["db", "stats", "--quiet", str(tmp_path)]) == 0     # the folder above it, too
    text = capsys.readouterr().out
    assert f"{folder}, of 3 workers" in text and f"sessions         {N}, 0 of them connected" in text
    assert f"retained         {N}," in text and all(f"\nworker {i}  " in text for i in (1, 2, 3))
    assert main(["db", "stats", "--quiet", "--json", str(folder)]) == 0
    counted = json.loads(capsys.readouterr().out)
    assert counted["queued"] == 2 * N == sum(one["queued"] for one in counted["workers"])
    assert main(["db", "stats", "--quiet", "--kinds", str(folder)]) == 0
    assert capsys.readouterr().out.count("link_run") == 3


def test_mosq_db_dumps_the_records_of_all_workers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["db", "dump", "--json", "--kind", "session", str(folder)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["worker"] for line in lines} == {1, 2, 3} and {line["id"] for line in lines} >= {f"s{i}" for i in range(N)}
    assert main(["db", "dump", "--kind", "link_run", "--limit", "2", str(folder)]) == 0
    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()] == ["worker 1", "worker 2"]
    assert main(["db", "dump", "--from", "100", str(folder)]) == 1
    assert "expected the folder of one of them" in capsys.readouterr().err


def test_mosq_db_exports_the_stores_of_workers_as_one(folder: Path, tmp_path: Path) -> None:
    assert main(["db", "export", "--quiet", "--sqlite", str(tmp_path / "out.sqlite"), str(folder)]) == 0
    rows = sqlite3.connect(tmp_path / "out.sqlite").execute(
        "SELECT client_id, count(*) FROM deliveries JOIN sessions USING (sno) GROUP BY sno").fetchall()
    assert dict(rows) == {f"s{i}": 2 for i in range(N)}


def test_mosq_db_check_reports_faults_between_the_stores(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "worker.1").rename(folder / "worker.0")
    (folder / "worker.2").rename(folder / "worker.1")
    (folder / "worker.0").rename(folder / "worker.2")
    assert main(["db", "check", "--quiet", "--live", str(folder)]) == 1
    text = capsys.readouterr().out
    assert "is the store of another broker or of another worker" in text and "' belongs to worker 2" in text and "not all is well" in text
    (folder / "dividing").mkdir()
    (folder / "workers").unlink()
    assert main(["db", "check", "--quiet", "--live", str(folder)]) == 1
    text = capsys.readouterr().out
    assert "the file `workers` is missing" in text and "was interrupted" in text


def test_the_doctor_reports_what_the_start_does_with_the_stores_of_workers(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "mosq.conf"
    lines = f"listener 1883 127.0.0.1\nuser root\npersistence true\npersistence_location {tmp_path}/\n"

    def report(n: int) -> str:
        conf.write_text(f"{lines}cluster_local {n}\n")
        main(["doctor", str(conf)])
        return " ".join(capsys.readouterr().out.split())

    (tmp_path / "mosquitto.db").write_bytes(b"x" * 100)     # the stores do not know it
    text = report(3)
    assert "has the stores of 3 workers, from a backup; the next start settles" in text and "is not from the store" in text
    assert "has the stores of 3 workers; the next start joins them" in report(1)
    text = report(2)
    assert "the next start divides them among 2 workers" in text and "MB of free space" in text and "mosquitto.db:" not in text
    (folder / "restored").unlink()
    assert "has the stores of 3 workers" in report(3)
    (folder / "worker.2").rename(tmp_path / "away")
    text = report(3)
    assert "the folder worker.2 is missing" in text and "The broker will not start" in text
    (folder / "workers").unlink()
    assert "the file workers is missing" in report(3)


def test_a_restore_over_the_stores_of_a_running_broker_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Workers(2, STORE) as broker:
        archive = tmp_path / "archive"
        save(str(broker.config), str(archive), True, False, quiet)
        assert main(["restore", "-q", "--force", "-c", str(broker.config), str(archive)]) != 0
        assert "Stop the broker first" in capsys.readouterr().err
        assert (broker.dir / "mosquitto.db.store" / "worker.1").is_dir()
