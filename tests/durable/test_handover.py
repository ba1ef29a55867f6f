"""Test mosquitto.db beside the store: when it is written, and which of both counts at a start."""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mosq.cli.commands import main
from mosq.tools.db.mark import former_line, former_stores
from mosq.tools.db.mosquitto_file import Client, ClientMessage, Message, MosquittoFile, Retain, Subscription
from tests.db import mosquitto_db as made
from tests.durable.test_restart import KEEP, Kept, publish, subscribe
from tests.harness.broker import ROOT
from tests.harness.effort import TIMEOUT_S
from tests.harness.packets import Publish, Suback, Subscribe

OURS = "user root\n" if os.geteuid() == 0 else ""       # the tests write files for the broker


@pytest.fixture
def broker() -> Iterator[Kept]:
    with Kept(KEEP + OURS) as running:
        yield running


@pytest.fixture
def stopped() -> Iterator[Kept]:
    kept = Kept(KEEP + OURS)
    yield kept
    kept.close()


def file_of(broker: Kept) -> Path:
    return broker.dir / "mosquitto.db"


def until(condition: Callable[[], bool], broker: Kept) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, broker.log()
        time.sleep(0.01)


def content(path: Path) -> tuple[list[bytes], list[bytes]]:
    """Return the client ids and the payloads of retained messages."""
    with MosquittoFile(str(path)) as file:
        chunks = list(file.chunks())
    payloads = {chunk.id: chunk.payload or b"" for chunk in chunks if isinstance(chunk, Message)}
    return ([chunk.client_id for chunk in chunks if isinstance(chunk, Client)],
            sorted(payloads[chunk.id] for chunk in chunks if isinstance(chunk, Retain)))


def mosquitto_wrote(path: Path, *clients: bytes, retained: bytes = b"by mosquitto") -> None:
    """Write the file as Mosquitto does: a new one in place of the old one."""
    part = path.with_suffix(".part")
    part.write_bytes(made.header() + made.config() + made.message(5, b"r", retained, retain=1) + b"".join(made.client(id) for id in clients)
                     + made.retain(5))
    os.replace(part, path)


def retained_of(broker: Kept) -> list[bytes]:
    wire = broker.client("asks", clean=True, level=4)
    wire.send(Subscribe(1, (("#", 0),)))
    assert isinstance(wire.read_packet(), Suback)
    found = []
    wire.send(b"\xc0\x00")
    while isinstance(packet := wire.read_packet(), Publish):
        found.append(packet.payload)
    wire.close()
    return found


def asides(broker: Kept, what: str) -> list[Path]:
    return list((broker.dir / "mosquitto.db.store").glob(f"{what}.*"))


def filled(broker: Kept) -> None:
    wire = broker.client("ours")
    subscribe(wire, ("a", 1))
    publish(wire, "r", b"by mosq", retain=True)
    wire.close()


# -- when the file is written


def test_the_file_is_written_at_the_end(broker: Kept) -> None:
    filled(broker)
    assert not file_of(broker).exists()
    assert broker.stop() == 0
    assert content(file_of(broker)) == ([b"ours"], [b"by mosq"])
    assert file_of(broker).stat().st_mode & 0o777 == 0o600
    assert not (broker.dir / "mosquitto.db.new").exists()
    assert "Saving in-memory database to" in broker.log()


def test_the_file_is_written_on_sigusr1_while_the_broker_runs(broker: Kept) -> None:
    filled(broker)
    broker.send_signal(signal.SIGUSR1)
    until(file_of(broker).exists, broker)
    assert content(file_of(broker)) == ([b"ours"], [b"by mosq"])
    late = broker.client("late")
    publish(late, "r", b"newer", retain=True)
    before = file_of(broker).stat().st_ino
    broker.send_signal(signal.SIGUSR1)
    until(lambda: file_of(broker).stat().st_ino != before, broker)
    assert content(file_of(broker)) == ([b"ours", b"late"], [b"newer"])


def test_autosave_counts_changes() -> None:
    with Kept(KEEP + OURS + "autosave_on_changes true\nautosave_interval 3\n") as broker:
        wire = broker.client("c", clean=True, level=4)
        for i in range(3):
            publish(wire, f"r/{i}", b"%d" % i, retain=True)
        until(file_of(broker).exists, broker)
        assert content(file_of(broker)) == ([], [b"0", b"1", b"2"])


def test_autosave_counts_seconds() -> None:
    with Kept(KEEP + OURS + "autosave_interval 1\n") as broker:
        publish(broker.client("c", clean=True, level=4), "r", b"kept", retain=True)
        until(file_of(broker).exists, broker)
        assert content(file_of(broker))[1] == [b"kept"]


@pytest.mark.parametrize("options", ["persistence false", "persistence true\nmosquitto_db false", "persistence true\ndurability none"])
def test_no_file_is_written_where_none_is_wanted(options: str) -> None:
    with Kept(f"persistence_location {{dir}}\n{options}\n{OURS}") as broker:
        publish(broker.client("c", clean=True, level=4), "r", b"kept", retain=True)
        broker.send_signal(signal.SIGUSR1)
        until(lambda: "Nothing to save" in broker.log(), broker)
        broker.stop()
        assert not file_of(broker).exists()


def test_a_save_that_takes_too_long_at_the_end_leaves_the_old_file() -> None:
    with Kept(KEEP + OURS + "mosquitto_db_seconds 0\n") as broker:
        wire = broker.client("c", clean=True, level=4)
        for i in range(20):
            publish(wire, f"r/{i}", bytes(100_000), retain=True)
        file_of(broker).write_bytes(b"old")
        assert broker.stop() == 0
        assert "was not written within 0 s (mosquitto_db_seconds)" in broker.log()
        assert file_of(broker).read_bytes() == b"old"
        assert not (broker.dir / "mosquitto.db.new").exists()


def test_a_place_that_cannot_be_written_is_an_error_in_the_log_and_nothing_else(broker: Kept) -> None:
    filled(broker)
    file_of(broker).mkdir()
    (file_of(broker) / "x").write_text("x")
    broker.send_signal(signal.SIGUSR1)
    until(lambda: "mosquitto.db could not be written" in broker.log(), broker)
    assert broker.stop() == 0
    file_of(broker).rename(broker.dir / "away")
    broker.start()
    broker.client("ours", session=True)


def test_the_file_of_a_killed_save_does_not_disturb(broker: Kept) -> None:
    (broker.dir / "mosquitto.db.new").write_bytes(b"half")
    filled(broker)
    broker.stop()
    assert content(file_of(broker)) == ([b"ours"], [b"by mosq"])


# -- what counts at a start


def test_the_first_start_takes_over_the_file_and_keeps_it(stopped: Kept) -> None:
    mosquitto_wrote(file_of(stopped), b"theirs")
    original = file_of(stopped).read_bytes()
    stopped.start()
    assert "1 sessions, 0 subscriptions, 0 deliveries and 1 retained messages taken over" in stopped.log()
    stopped.client("theirs", session=True)
    assert retained_of(stopped) == [b"by mosquitto"]
    assert file_of(stopped).read_bytes() == original
    stopped.stop()
    assert (stopped.dir / "mosquitto.db.kept").read_bytes() == original
    assert content(file_of(stopped)) == ([b"theirs"], [b"by mosquitto"])
    stopped.start()
    assert stopped.log().count("Taking over") == 1
    assert f"The file {file_of(stopped)} that was taken over is now {file_of(stopped)}.kept." in stopped.log()
    assert "was not written by this broker" not in stopped.log()


@pytest.mark.parametrize("by_signal", [False, True])
def test_round_trips_to_mosquitto_do_not_accumulate_files(stopped: Kept, by_signal: bool) -> None:
    """All of the second file is in the store and in the file that replaces it, so no copy of it is needed."""
    for n in range(3):
        mosquitto_wrote(file_of(stopped), b"c%d" % n)
        before = file_of(stopped).stat().st_ino
        stopped.start()
        if by_signal:
            stopped.send_signal(signal.SIGUSR1)
            until(lambda before=before: file_of(stopped).stat().st_ino != before, stopped)  # type: ignore[misc]
        stopped.stop()
        assert content(file_of(stopped))[0] == [b"c%d" % n]
    assert [path.name for path in stopped.dir.glob("mosquitto.db.kept*")] == ["mosquitto.db.kept"]
    assert content(stopped.dir / "mosquitto.db.kept")[0] == [b"c0"]
    assert "was not written by this broker" not in stopped.log()


def test_a_file_of_which_parts_were_left_out_is_always_kept(stopped: Kept) -> None:
    for n in range(2):
        mosquitto_wrote(file_of(stopped), b"bad\xff", b"c%d" % n)
        stopped.start()
        stopped.stop()
    assert sorted(path.name for path in stopped.dir.glob("mosquitto.db.kept*")) == ["mosquitto.db.kept", "mosquitto.db.kept.1"]


@pytest.mark.parametrize("by_signal", [False, True])
def test_a_broker_that_stored_nothing_saves_nothing_and_logs_no_error(broker: Kept, by_signal: bool) -> None:
    if by_signal:
        broker.send_signal(signal.SIGUSR1)
        until(lambda: "Nothing to save: no session and no retained message has been stored." in broker.log(), broker)
    assert broker.stop() == 0
    assert "Error" not in broker.log() and "Saving" not in broker.log()
    broker.start()
    filled(broker)
    broker.stop()
    assert content(file_of(broker))[0] == [b"ours"]


@pytest.mark.parametrize("kind", ["folder", "pipe", "link"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_name_that_is_no_file_is_reported_and_holds_up_no_start(stopped: Kept, kind: str, is_first: bool) -> None:
    if not is_first:
        stopped.start()
        filled(stopped)
        stopped.stop()
        file_of(stopped).unlink()
    if kind == "folder":
        file_of(stopped).mkdir()
    elif kind == "pipe":
        os.mkfifo(file_of(stopped))
    else:
        file_of(stopped).symlink_to(stopped.dir / "none")
    stopped.start()
    if is_first or kind != "link":          # a file that is gone after a save means an empty start
        why = "is a link to a file that is missing" if kind == "link" else "is not a file"
        assert f"Warning: {file_of(stopped)} {why}" in stopped.log()


def advice_for(error: Exception, stopped: Kept, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the text with which the first start ends when an import raises this error."""
    import mosq.tools.db.mosquitto_import as module
    from mosq.config.parser import load_config
    from mosq.server.handover import settle

    def failing(*_: object, **__: object) -> None:
        raise error

    mosquitto_wrote(file_of(stopped), b"c")
    monkeypatch.setattr(module, "import_file", failing)
    conf = stopped.dir / "m.conf"
    conf.write_text(KEEP.format(dir=stopped.dir))
    with pytest.raises(ValueError) as found:
        settle(load_config(str(conf)), str(stopped.dir / "mosquitto.db.store"), lambda _type, _text: None)
    return str(found.value)


def test_each_failure_of_a_take_over_has_its_own_advice(stopped: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    from mosq.tools.db.mosquitto_file import InUseError
    from mosq.tools.db.store import StoreError

    path = str(file_of(stopped))
    denied = advice_for(PermissionError(errno.EACCES, "Permission denied", path), stopped, monkeypatch)
    assert denied == f"{path}: Permission denied. {path} cannot be taken over, and nothing was changed. " \
                     "Give it to the user that the broker runs as (chown), and start again."
    for full in (OSError(errno.ENOSPC, "No space left on device", path), StoreError(f"{path}: No space left on device")):
        assert "Free as much space as it has bytes" in advice_for(full, stopped, monkeypatch)
    in_use = advice_for(InUseError(path, None, "process 7 has it open; expected that no broker uses it: stop Mosquitto first"), stopped, monkeypatch)
    assert in_use.endswith("nothing was changed.") and "Repair" not in in_use


DEBIANS = """pid_file {dir}/mosquitto.pid
persistence true
persistence_location {dir}/
log_dest file {dir}/mosquitto.log
log_dest stdout
include_dir {dir}/conf.d
"""


def everything_in(path: Path) -> tuple[object, ...]:
    """Return sessions, subscriptions, queues in their order, and retained messages with their publishers."""
    with MosquittoFile(str(path)) as file:
        chunks = list(file.chunks())
    messages = {chunk.id: chunk for chunk in chunks if isinstance(chunk, Message)}
    queues: dict[bytes, list[object]] = {}
    for one in chunks:
        if isinstance(one, ClientMessage):
            queues.setdefault(one.client_id, []).append((messages[one.id].topic, messages[one.id].payload, one.qos, one.direction))
    return ({one.client_id: (one.username, one.expiry_s) for one in chunks if isinstance(one, Client)},
            {(one.client_id, one.filter): one.options for one in chunks if isinstance(one, Subscription)}, queues,
            {messages[one.id].topic: (messages[one.id].payload, messages[one.id].source_id, messages[one.id].source_username)
             for one in chunks if isinstance(one, Retain)})


def test_debians_configuration_keeps_all_of_mosquittos_file_without_a_manual_step() -> None:
    kept = Kept(DEBIANS + OURS + "check_retain_source true\nlistener {port} 127.0.0.1\nallow_anonymous true\n")
    try:
        (kept.dir / "conf.d").mkdir()
        ids = [b"client %d" % i for i in range(50)]
        parts = [made.header(), made.config(2000)]
        parts += [made.message(i, b"q/%d" % i, b"payload %d" % i, i % 3) for i in range(1, 1001)]
        parts += [made.message(i, b"r/%d" % i, b"kept %d" % i, 1, 1, source=b"pub", user=b"ann") for i in range(1001, 1101)]
        for n, id in enumerate(ids):
            parts += [made.client(id, user=b"ann" if n % 2 else b""), made.subscription(id, b"q/#", n % 3), made.subscription(id, b"r/%d" % n, 1, 0x08)]
            parts += [made.client_message(i, id, 0, i % 3) for i in range(n + 1, 1001, 50)]
        parts += [made.retain(i) for i in range(1001, 1101)]
        file_of(kept).write_bytes(b"".join(parts))
        before = everything_in(file_of(kept))
        kept.start()
        assert "50 sessions, 100 subscriptions, 1,000 deliveries and 100 retained messages taken over" in kept.log()
        kept.stop()
        assert everything_in(file_of(kept)) == before
        assert everything_in(kept.dir / "mosquitto.db.kept") == before
        kept.start()
        kept.client("client 7", session=True, level=4, username="ann")
        assert len(retained_of(kept)) == 100
    finally:
        kept.close()


def test_the_store_counts_after_a_kill_although_the_file_is_older(broker: Kept) -> None:
    filled(broker)
    broker.restart()
    publish(broker.client("p", clean=True, level=4), "r", b"newer", retain=True)
    broker.kill()
    assert retained_of(broker) == [b"newer"]
    assert "Taking over" not in broker.log()


def test_a_file_that_an_operator_removes_means_an_empty_start(broker: Kept) -> None:
    filled(broker)
    broker.stop()
    file_of(broker).unlink()
    broker.start()
    assert retained_of(broker) == []
    assert "mosquitto.db was removed" in broker.log()
    aside, = asides(broker, "removed")
    assert list(aside.glob("segment.*"))
    broker.stop()
    for segment in (broker.dir / "mosquitto.db.store").glob("segment.*"):       # the way back, as the log describes it
        segment.unlink()
    for segment in aside.glob("segment.*"):
        segment.rename(broker.dir / "mosquitto.db.store" / segment.name)
    broker.start()
    broker.client("ours", session=True)


def test_a_file_that_was_never_written_is_not_missed(broker: Kept) -> None:
    filled(broker)
    broker.kill()
    broker.client("ours", session=True)


def test_a_file_that_mosquitto_changed_is_taken_over_and_the_store_is_set_aside(broker: Kept) -> None:
    filled(broker)
    broker.stop()
    mosquitto_wrote(file_of(broker), b"ours", b"theirs")
    broker.start()
    broker.client("theirs", session=True)
    assert retained_of(broker) == [b"by mosquitto"]
    assert "was changed by another program" in broker.log()
    assert len(asides(broker, "replaced")) == 1
    assert "former stores" not in broker.log()


def test_former_stores_that_pile_up_are_counted_in_the_log_and_by_doctor(broker: Kept, capsys: pytest.CaptureFixture[str]) -> None:
    filled(broker)
    store = broker.dir / "mosquitto.db.store"
    for name in ("replaced.20200101T000000.7", "removed.20190101T000000.7"):
        (store / name).mkdir()
        (store / name / "segment.000001").write_bytes(bytes(1_500_000))
    assert former_line(str(store)) == ""
    broker.stop()
    mosquitto_wrote(file_of(broker), b"ours")
    broker.start()
    line = f"3 former stores with {former_stores(str(store))[1] / 1e6:,.1f} MB are kept in and beside {store}, the oldest in {store}/removed.20190101T000000.7."
    assert f"Warning: {line} mosq does not read them again. Remove those that you no longer need." in broker.log()
    assert former_stores(str(store))[1] > 3_000_000
    assert main(["doctor", "--json", str(broker.config)]) == 1
    assert line in capsys.readouterr().out


@pytest.mark.parametrize("bad", [b"", made.header() + made.config(), made.header() + made.message(5, b"r", b"x")[:-1], made.header(7), b"SQLite format 3\0x"])
def test_a_changed_file_that_is_empty_damaged_or_newer_is_not_taken_over(broker: Kept, bad: bytes) -> None:
    filled(broker)
    broker.stop()
    file_of(broker).write_bytes(bad)
    broker.start()
    broker.client("ours", session=True)
    assert retained_of(broker) == [b"by mosq"]
    assert f"The store {broker.dir}/mosquitto.db.store is used." in broker.log()
    broker.stop()
    assert (broker.dir / "mosquitto.db.kept").read_bytes() == bad
    assert content(file_of(broker))[0] == [b"ours"]


@pytest.mark.parametrize(("bad", "why"), [(made.header() + made.client(b"c")[:-1], "a client of 25 bytes; expected at most 24"), (made.header(7), "format 7; expected 5"),
                                          (b"nonsense", "not a persistence file of Mosquitto")])
def test_the_first_start_refuses_a_file_that_cannot_be_taken_over(stopped: Kept, bad: bytes, why: str) -> None:
    file_of(stopped).write_bytes(bad)
    with pytest.raises(RuntimeError, match="status 3") as error:
        stopped.start()
    assert why in str(error.value) and "move it away" in str(error.value)
    assert file_of(stopped).read_bytes() == bad
    assert not list(stopped.dir.glob("mosquitto.db.*"))
    file_of(stopped).unlink()
    stopped.start()


def test_a_restored_copy_of_the_folder_keeps_the_store(broker: Kept, tmp_path: Path) -> None:
    """A backup tool may restore the store alone, or give the file another time: that is no order to drop the store."""
    filled(broker)
    broker.stop()
    for without_file in (True, False):
        shutil.copytree(broker.dir / "mosquitto.db.store", tmp_path / "copy")
        shutil.rmtree(broker.dir / "mosquitto.db.store")
        (tmp_path / "copy").rename(broker.dir / "mosquitto.db.store")
        if without_file:
            file_of(broker).unlink()
        broker.start()
        broker.client("ours", session=True)
        broker.stop()


def test_a_store_that_was_imported_by_hand_does_not_need_the_file(stopped: Kept) -> None:
    from click.testing import CliRunner

    from mosq.tools.db.commands import db

    mosquitto_wrote(file_of(stopped), b"theirs")
    assert CliRunner().invoke(db, ["import", str(file_of(stopped))], standalone_mode=False).return_value == 0
    file_of(stopped).unlink()
    stopped.start()
    stopped.client("theirs", session=True)


def test_streams_stay_when_the_store_is_set_aside() -> None:
    with Kept(KEEP + OURS + "stream all a/#\n") as broker:
        publish(broker.client("p", clean=True, level=4), "a/1", b"one")
        broker.stop()
        file_of(broker).unlink()
        broker.start()
        publish(broker.client("p", clean=True, level=4), "a/2", b"two")
        broker.stop()
        import subprocess
        import sys

        found = subprocess.run([sys.executable, "-m", "mosq", "journal", "dump", str(broker.dir / "mosquitto.db.store/streams/all")],
                               capture_output=True, text=True, check=True, cwd=ROOT)
        assert "one" in found.stdout and "two" in found.stdout


def test_a_broker_that_cannot_read_python_any_more_saves_too() -> None:
    """Root starts the broker, and its user may not be able to read the installation: then the save is a fork."""
    with Kept(KEEP) as broker:
        filled(broker)
        broker.send_signal(signal.SIGUSR1)
        until(file_of(broker).exists, broker)
        assert content(file_of(broker))[0] == [b"ours"]
        assert broker.stop() == 0
