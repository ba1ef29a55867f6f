"""Test brokers whose store or dynamic security file is in a folder that is missing or cannot be written: `--test-config`, the
start and `mosq doctor` agree."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from mosq.config.parser import load_config
from mosq.log_types import ERROR, NOTICE, WARNING
from mosq.server.unkept import LOOK_EVERY_S, REPORT_EVERY_S, Unkept, unusable
from tests.cli.test_drop_in import connack, ended, logged
from tests.harness.broker import ROOT, Broker
from tests.harness.packets import Connack, Connect, Pingreq, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe, Will
from tests.harness.properties import P
from tests.harness.wire import Wire

LISTENER = "listener {port} 127.0.0.1\nallow_anonymous true\n"
NO_FOLDER = "persistence true\npersistence_location {dir}/none/\n"
A_FILE = "persistence true\npersistence_location {dir}/mosq.conf/\n"
UNKEPT = "Nothing is kept over a restart, although persistence is true: the store cannot be opened ("
NOT_USABLE = "the dynamic security file"


def mosq(*arguments):
    return subprocess.run([sys.executable, "-m", "mosq", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True,
                          timeout=60, check=False)


@pytest.mark.parametrize(("lines", "why"), [(NO_FOLDER, "none: No such file or directory"), (A_FILE, "mosq.conf: Not a directory")])
def test_persistence_alone_runs_without_its_folder_and_reports_that_nothing_is_kept(lines, why):
    with Broker(LISTENER + lines) as broker:
        assert connack(broker, client_id="c", clean=False).rc == 0
        assert f"{why})" in logged(broker, f"Error: {UNKEPT}")[0]
        checked = mosq("-c", broker.config, "--test-config")
        assert (checked.returncode, checked.stdout) == (0, "Configuration file is OK.\n")
        assert f"Warning: {UNKEPT}" in checked.stderr
        report = json.loads(mosq("doctor", "--json", broker.config).stdout)
        assert any(one["level"] == "attention" and UNKEPT in one["text"] for one in report["findings"])
        broker.send_signal(signal.SIGUSR1)
        logged(broker, f"Error: {UNKEPT}", 2)
        broker.send_signal(signal.SIGHUP)
        logged(broker, "Reloading config.")
        assert connack(broker).rc == 0
        assert broker.stop() == 0


@pytest.mark.parametrize(("promise", "option"), [
    ("durability group\n", "durability"), ("durability_topic strict a/#\n", "durability_topic"), ("stream s a/#\n", "stream"),
    ("listener_durability strict\n", "listener_durability"), ("plugin persist-sqlite\nplugin_opt_db_file x\n", "persist-sqlite"),
])
def test_a_promise_to_keep_messages_stops_the_broker(promise, option, tmp_path):
    config = tmp_path / "mosq.conf"
    config.write_text((LISTENER + NO_FOLDER + promise).format(port=1, dir=tmp_path) + "user root\n")
    for found in (ended(config), mosq("-c", config, "--test-config")):
        assert found.returncode == 1
        assert f"Error: The store cannot be opened ({tmp_path}/none: No such file or directory), and '{option}' promises" in found.stderr
    assert "OK" not in found.stdout


def test_dynamic_security_needs_a_folder_for_its_file(tmp_path):
    config = tmp_path / "mosq.conf"
    for path in (tmp_path / "none" / "d.json", config / "d.json"):
        config.write_text(LISTENER.format(port=1) + f"plugin dynamic-security\nplugin_opt_config_file {path}\nuser root\n")
        for found in (ended(config), mosq("-c", config, "--test-config")):
            assert found.returncode == 3
            assert NOT_USABLE in found.stderr and f"Error found at {config}:3." in found.stderr
    config.write_text(LISTENER.format(port=1) + f"plugin dynamic-security\nplugin_opt_config_file {tmp_path}/d.json\nuser root\n")
    assert mosq("-c", config, "--test-config").returncode == 0
    assert not (tmp_path / "d.json").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="root's rights are needed to take those of another user")
def test_the_check_looks_with_the_rights_of_the_broker(tmp_path):
    """Test a folder that only root may write."""
    (tmp_path / "root").mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    config = tmp_path / "mosq.conf"
    for user, is_kept in (("root", True), ("nobody", False)):
        config.write_text(f"listener 1 127.0.0.1\npersistence true\npersistence_location {tmp_path}/root/\nuser {user}\n")
        assert (UNKEPT in mosq("-c", config, "--test-config").stderr) != is_kept


@pytest.mark.skipif(os.geteuid() != 0, reason="root's rights are needed to take those of another user")
def test_a_file_that_is_ignored_is_named_and_the_advice_fits_the_folder(tmp_path):
    """Test a folder that the broker's user can read and not write."""
    folder = tmp_path / "root"
    folder.mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    config = tmp_path / "mosq.conf"
    config.write_text(f"listener 1 127.0.0.1\npersistence true\npersistence_location {folder}/\nuser nobody\n")
    (folder / "mosquitto.db").write_bytes(b"x")
    (folder / "mosquitto.db").chmod(0o644)
    line = mosq("-c", config, "--test-config").stderr
    assert f"({folder}: Permission denied). The sessions and messages in {folder}/mosquitto.db are used, and no change of them is kept. Give the folder to the user" in line
    (folder / "mosquitto.db").unlink()
    line = mosq("-c", config, "--test-config").stderr
    assert "are used" not in line and "Give the folder to the user" in line and "Make the folder" not in line
    config.write_text(config.read_text().replace(f"{folder}/", f"{folder}/none/").replace("nobody", "root"))
    assert "Make the folder" in mosq("-c", config, "--test-config").stderr


@pytest.fixture(params=["store", "file"])
def left(request):
    """Return a broker that has stored a session and a retained message, and has lost the right to write the folder."""
    with contextlib.closing(Broker(f"{LISTENER}user nobody\npersistence true\npersistence_location {{dir}}/kept/\n")) as broker:
        kept = broker.dir / "kept"
        kept.mkdir()
        shutil.chown(kept, "nobody")
        broker.start()
        wire = Wire(broker.port, 5)
        wire.send(Connect("c", False, props=((P.SESSION_EXPIRY, 3600),)), Publish("r", b"kept", 1, 1, True), Subscribe(2, (("q", 1),)))
        while not isinstance(wire.read_packet(), Suback):
            pass
        wire.close()
        assert broker.stop() == 0
        if request.param == "file":
            shutil.rmtree(kept / "mosquitto.db.store")
        else:
            (kept / "mosquitto.db").unlink()
            shutil.chown(kept / "mosquitto.db.store", "root")
            (kept / "mosquitto.db.store").chmod(0o755)
        shutil.chown(kept, "root")
        yield broker, kept


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.skipif(os.geteuid() != 0, reason="root's rights are needed to take those of another user")
def test_what_can_be_read_is_loaded_from_a_copy(left, monkeypatch):
    """As with Mosquitto, the broker has the sessions and messages of a folder that it cannot write."""
    broker, kept = left
    copies = broker.dir / "copies"
    copies.mkdir()
    copies.chmod(0o777)
    monkeypatch.setenv("TMPDIR", str(copies))
    before = content(kept)
    broker.start()
    assert "are used, and no change of them is kept. Give the folder to the user" in logged(broker, f"Error: {UNKEPT}")[0]
    assert "1 sessions, 1 subscriptions, 0 queued and 1 retained messages." in logged(broker, "Loaded a copy of")[0]
    wire = Wire(broker.port, 5)
    wire.send(Connect("c", False, props=((P.SESSION_EXPIRY, 3600),)), Subscribe(1, (("r", 0),)), Publish("q", b"1", 1, 1))
    got = [wire.read_packet() for _ in range(5)]
    assert got[0].session
    assert {(one.topic, one.payload) for one in got if isinstance(one, Publish)} == {("r", b"kept"), ("q", b"1")}
    wire.close()
    broker.send_signal(signal.SIGUSR1)
    logged(broker, f"Error: {UNKEPT}", 2)
    assert len([*copies.glob("mosq-copy-*")]) == 1
    for folder in (kept, kept / "mosquitto.db.store"):
        if folder.exists():
            shutil.chown(folder, "nobody")
    broker.send_signal(signal.SIGHUP)
    assert "Restart mosq to use it; changes since this start are lost then." in logged(broker, "Warning: The folder of the store")[0]
    assert broker.stop() == 0
    assert content(kept) == before and not [*copies.iterdir()]


@pytest.mark.skipif(os.geteuid() != 0, reason="root's rights are needed to take those of another user")
def test_a_damaged_file_in_such_a_folder_is_reported(left):
    broker, kept = left
    shutil.rmtree(kept / "mosquitto.db.store", ignore_errors=True)
    (kept / "mosquitto.db").write_bytes(b"no database")
    (kept / "mosquitto.db").chmod(0o644)
    broker.start()
    assert "The broker has none of its sessions and messages." in logged(broker, f"Error: {kept}/mosquitto.db cannot be loaded:")[0]
    assert connack(broker, client_id="c", clean=False).session is False
    assert broker.stop() == 0


class Attaching:
    """An engine that takes a store, or refuses it."""

    def __init__(self):
        self.taken, self.refusal = [], ""

    def attach(self, directory, durability, interval_ms):
        os.makedirs(directory, exist_ok=True)
        if self.refusal:
            with open(os.path.join(directory, "segment.x"), "w"):
                raise OSError(self.refusal)
        self.taken.append((directory, durability, interval_ms))


def test_the_broker_looks_again_until_the_folder_is_there(tmp_path):
    path, engine = tmp_path / "m.conf", Attaching()
    path.write_text(NO_FOLDER.format(dir=tmp_path))
    config = load_config(str(path))
    config.without_store = unusable(config)
    lines = []
    unkept = Unkept(config, lambda kind, text: lines.append((kind, text)), 0.0)
    assert lines.pop()[1].startswith("Error: Nothing is kept")
    assert unkept.due_in_s(1.0) == LOOK_EVERY_S - 1
    assert not unkept.look(LOOK_EVERY_S, engine)
    assert not lines                        # nothing new, and no time yet for the line again
    assert not unkept.look(REPORT_EVERY_S, engine)
    assert lines.pop()[1].startswith("Error: Nothing is kept")
    (tmp_path / "none").mkdir()
    assert not unkept.look(REPORT_EVERY_S + 1, engine)
    assert not lines                        # not due
    engine.refusal = "no memory"
    assert not unkept.look(2 * REPORT_EVERY_S, engine)
    kind, line = lines.pop()
    assert kind == ERROR and "no memory" in line
    store = tmp_path / "none" / "mosquitto.db.store"
    assert os.listdir(store) == []          # the next look finds no store there
    engine.refusal = ""
    assert unkept.look(2 * REPORT_EVERY_S + 1, engine, at_once=True)
    assert engine.taken == [(str(store), "group", config.durability_interval)]
    kind, line = lines.pop()
    assert kind == NOTICE and f"are kept in {store} (durability group)" in line


@pytest.mark.parametrize("left", ["mosquitto.db", "mosquitto.db.store/segment.1"])
def test_what_an_earlier_start_has_left_is_not_touched(left, tmp_path):
    path, engine = tmp_path / "m.conf", Attaching()
    path.write_text(NO_FOLDER.format(dir=tmp_path))
    config = load_config(str(path))
    config.without_store = unusable(config)
    lines = []
    unkept = Unkept(config, lambda kind, text: lines.append((kind, text)), 0.0)
    (tmp_path / "none" / "mosquitto.db.store").mkdir(parents=True)
    (tmp_path / "none" / left).write_text("x")
    for n in range(1, 4):
        assert not unkept.look(n * LOOK_EVERY_S, engine)
    assert not engine.taken and len(lines) == 2
    assert lines[1][0] == WARNING and "is from an earlier start. Restart mosq to use it" in lines[1][1]


def filled(broker):
    """Make sessions, queues in all states, inbound QoS 2, wills and retained messages; return the connections."""
    lasting = ((P.SESSION_EXPIRY, 3600),)
    reader = Wire(broker.port, 5)
    reader.send(Connect("reader", False, props=((P.RECEIVE_MAXIMUM, 3), *lasting)), Subscribe(1, (("q/#", 2), ("$share/g/s", 1)), ((P.SUBSCRIPTION_ID, 7),)))
    writer = Wire(broker.port, 5)
    writer.send(Connect("writer", False, will=Will("will", b"gone", 1), props=lasting))
    for wire, n in ((reader, 2), (writer, 1)):
        for _ in range(n):
            wire.read_packet()
    for n in range(1, 6):
        writer.send(Publish(f"q/{n}", b"m%d" % n, 1 + n % 2, n))
        if n % 2:
            assert isinstance(writer.read_packet(), Pubrec)
            writer.send(Pubrel(n))
        writer.read_packet()
    got = [reader.read_packet() for _ in range(3)]
    assert [(p.mid, p.qos) for p in got] == [(1, 2), (2, 1), (3, 2)]
    reader.send(Pubrec(1))
    assert isinstance(reader.read_packet(), Pubrel)
    for n, topic in enumerate(("r/1", "r/2", "r/2/deeper", "$own/r")):
        writer.send(Publish(topic, b"kept", 1, 20 + n, True))
        assert isinstance(writer.read_packet(), Puback)
    writer.send(Publish("held", b"inbound", 2, 99))
    assert isinstance(writer.read_packet(), Pubrec)
    brief = Wire(broker.port, 4)
    brief.send(Connect("brief", True, will=Will("brief", b"gone", 1, True)))
    brief.read_packet()
    return reader, writer, brief


def checked(broker):
    """Check after a kill that all of it is there."""
    reader = Wire(broker.port, 5)
    reader.send(Connect("reader", False, props=((P.SESSION_EXPIRY, 3600),)))
    connack = reader.read_packet()
    assert isinstance(connack, Connack) and connack.session
    found, released = [], []
    while len(found) < 4 or 1 not in released:          # PUBREL may precede or follow the messages
        got = reader.read_packet()
        if isinstance(got, Pubrel):
            released.append(got.mid)
            reader.send(Pubcomp(got.mid))
        elif isinstance(got, Publish):
            found.append((got.topic, got.payload, got.qos))
            assert (P.SUBSCRIPTION_ID, 7) in got.props
            reader.send(Puback(got.mid) if got.qos == 1 else Pubrec(got.mid))
    assert found == [("q/2", b"m2", 1), ("q/3", b"m3", 2), ("q/4", b"m4", 1), ("q/5", b"m5", 2)]
    writer = Wire(broker.port, 5)
    writer.send(Connect("writer", False, props=((P.SESSION_EXPIRY, 3600),)), Subscribe(1, (("held", 0), ("r/#", 0), ("$own/#", 0), ("brief", 0))))
    kept = set()
    writer.read_packet()
    while len(kept) < 5:
        got = writer.read_packet()
        if isinstance(got, Publish):
            kept.add(got.topic)
    assert kept == {"r/1", "r/2", "r/2/deeper", "$own/r", "brief"}
    writer.send(Pubrel(99))
    while not isinstance(got := writer.read_packet(), Publish):
        pass
    assert (got.topic, got.payload) == ("held", b"inbound")
    reader.close()
    writer.close()


def test_the_store_is_taken_into_use_with_all_that_the_broker_has():
    with Broker(LISTENER + NO_FOLDER) as broker:
        logged(broker, f"Error: {UNKEPT}")
        wires = filled(broker)
        (broker.dir / "none").mkdir()
        (broker.dir / "none").chmod(0o777)
        broker.send_signal(signal.SIGHUP)
        logged(broker, "The folder of the store can be used now: all sessions and retained messages are kept in")
        late = Wire(broker.port, 5)
        late.send(Connect("late", False, props=((P.SESSION_EXPIRY, 3600),)), Publish("r/1", b"newer", 1, 1, True))
        assert isinstance(late.read_packet(), Connack) and isinstance(late.read_packet(), Puback)
        broker.process.kill()
        broker.process.wait()
        for wire in (*wires, late):
            wire.close()
        broker.start()
        late = Wire(broker.port, 5)
        late.send(Connect("late", False), Subscribe(1, (("r/1", 0),)))
        connack = late.read_packet()
        assert connack.session
        assert {type(got): got for got in (late.read_packet(), late.read_packet())}[Publish].payload == b"newer"
        late.close()
        checked(broker)
        assert broker.stop() == 0
        report = mosq("db", "check", broker.dir / "none" / "mosquitto.db.store")
        assert report.returncode == 0, report.stdout


def test_acknowledgements_after_the_store_was_taken_into_use_are_kept():
    """Test that what was queued before is not sent again after it was acknowledged."""
    with Broker(LISTENER + NO_FOLDER) as broker:
        wires = filled(broker)
        (broker.dir / "none").mkdir()
        (broker.dir / "none").chmod(0o777)
        broker.send_signal(signal.SIGUSR1)
        logged(broker, "The folder of the store can be used now")
        reader = wires[0]
        reader.send(Pubcomp(1), Puback(2))
        got = reader.read_packet()
        while not (isinstance(got, Publish) and got.topic == "q/5"):
            if isinstance(got, Publish) and got.qos == 1:
                reader.send(Puback(got.mid))
            got = reader.read_packet()
        reader.send(Pingreq())
        assert isinstance(reader.read_packet(), Pingresp)
        broker.stop()
        for wire in wires:
            wire.close()
        broker.start()
        again = Wire(broker.port, 5)
        again.send(Connect("reader", False, props=((P.SESSION_EXPIRY, 3600),)))
        got = [again.read_packet() for _ in range(3)]
        assert [(one.topic, one.dup) for one in got[1:]] == [("q/3", True), ("q/5", True)]
        again.send(Pingreq())
        assert isinstance(again.read_packet(), Pingresp)
        again.close()
