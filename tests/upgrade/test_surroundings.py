"""Test upgrades in bad surroundings: an older version, a full disk, clients that stall, and what is counted."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mosq.server import process
from mosq.server.signals import REOPEN_LOG, UPGRADE
from mosq.server.upgrade import leaving
from tests.durable.test_disk import spare_written
from tests.harness.broker import free_port
from tests.harness.faults import Faults, until
from tests.harness.packets import Connack, Connect, Disconnect, Pingreq, Pingresp, Puback, Publish, Suback, Subscribe
from tests.harness.wire import Wire
from tests.upgrade.case import MEMORY, STORE, Upgraded
from tests.upgrade.test_failures import LISTENER, PROGRAM, STEPS, Pair

# A version from before upgrades: it does not know the variable, and starts as usual.
OLDER = "import os\nos.environ.pop('MOSQ_UPGRADE_FD', None)\n" + PROGRAM


@pytest.fixture
def faults() -> Iterator[Faults]:
    faults = Faults()
    yield faults
    faults.close()


@pytest.mark.parametrize("kind", [MEMORY, STORE], ids=["memory", "store"])
def test_an_older_version_changes_nothing(kind: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with Upgraded(LISTENER + kind, command=[sys.executable, str(program)]) as broker:
        pair = Pair(broker)
        pair.step()
        program.write_text(OLDER)
        broker.fail()
        pair.step()
        program.write_text(PROGRAM)
        broker.upgrade()
        pair.finish()


def test_an_upgrade_is_refused_while_the_disk_is_full(faults: Faults, tmp_path: Path) -> None:
    with Upgraded(LISTENER + STORE + "stream all t/#\n", env=faults.env) as broker:
        spare_written(broker.dir)
        wire = broker.wire()
        wire.send(Connect("c"), Publish("t/1", b"1", 1, 1))
        assert isinstance(wire.read_packet(), Connack)
        wire.expect_packet(Puback(1, 0x10))
        faults.set(full=1)
        wire.send(Publish("t/2", b"2", 1, 2))                # it waits
        broker.wait_log("Error: the disk is full")
        broker.fail()
        faults.set(full=0)
        wire.expect_packet(Puback(2, 0x10))
        broker.wait_log("The disk has room again")
        broker.upgrade()
        wire.send(Publish("t/4", b"4", 1, 4))
        wire.expect_packet(Puback(4, 0x10))


def test_a_disk_that_becomes_full_during_a_failing_upgrade_changes_nothing(faults: Faults, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with Upgraded(LISTENER + STORE, command=[sys.executable, str(program)], env=faults.env) as broker:
        pair = Pair(broker)
        pair.step()
        stop = tmp_path / "stop"
        program.write_text(STEPS.replace("{step}", "wait_go").replace("{act}", f"open({str(stop)!r}, 'w').close(); time.sleep(0.5); sys.exit(1)"))
        before = broker.begin()
        until(stop.exists)
        faults.set(full=1)
        broker.wait_log("This process goes on.")
        faults.set(full=0)
        assert broker.pid() == before
        program.write_text(PROGRAM)
        pair.step()
        broker.upgrade()
        pair.finish()


def test_a_client_with_a_slow_retained_replay_is_closed() -> None:
    """All others move."""
    with Upgraded(LISTENER + MEMORY) as broker:
        sender, slow, idle = broker.wire(), broker.wire(), broker.wire()
        for wire, name in ((sender, "sender"), (slow, "slow"), (idle, "idle")):
            wire.send(Connect(name))
            assert isinstance(wire.read_packet(), Connack)
        for n in range(300):
            sender.send(Publish(f"r/{n}", bytes(100_000), 1, n + 1, retain=True))
            assert isinstance(sender.read_packet(), Puback)
        slow.send(Subscribe(1, (("r/#", 1),)))
        assert isinstance(slow.read_packet(), Suback)
        sender.send(Pingreq())
        sender.expect_packet(Pingresp())
        broker.upgrade()
        assert "2 connections moved, 1 were closed" in broker.log()
        for wire in (sender, idle):
            wire.send(Pingreq())
            wire.expect_packet(Pingresp())


def statistics(wire: Wire) -> dict[str, int]:
    """Return the values below $SYS/broker/upgrades."""
    wire.send(Subscribe(2, (("$SYS/broker/upgrades/#", 0),)))
    assert isinstance(wire.read_packet(), Suback)
    found: dict[str, int] = {}
    while len(found) < 4 or not found["pause"]:              # the pause is known a moment later
        packet = wire.read_packet()
        found[packet.topic.removeprefix("$SYS/broker/upgrades/")] = int(packet.payload)
    return found


def test_upgrades_are_counted() -> None:
    with Upgraded(LISTENER + MEMORY + "sys_interval 1\n") as broker:
        wire = broker.wire()
        wire.send(Connect("c"))
        assert isinstance(wire.read_packet(), Connack)
        for n in (1, 2):
            broker.upgrade()
            late = broker.wire()
            late.send(Connect("late"))
            assert isinstance(late.read_packet(), Connack)
            found = statistics(late)
            assert (found["count"], found["connections/moved"], found["connections/closed"]) == (n, n, 0)
            assert 0 < found["pause"] < 60_000_000
            late.send(Disconnect())
            late.expect_closed()


def test_a_pid_file_that_cannot_be_written_again(tmp_path: Path) -> None:
    """The old process is gone when the new one writes the file, so this must not end it."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with Upgraded(LISTENER + MEMORY, command=[sys.executable, str(program)]) as broker:
        pair = Pair(broker)
        pair.step()
        old = broker.pid()
        program.write_text(STEPS.replace("{step}", "wait_go").replace("{act}", f"os.unlink({str(broker.dir / 'pid')!r}); os.mkdir({str(broker.dir / 'pid')!r})"))
        os.kill(old, UPGRADE)
        broker.wait_log("The file has the number of the old process")
        broker.wait_log(" running\n", 2)
        new = int(broker.log().rpartition("this one is ")[2].split(".")[0])
        broker.wait_end(old)
        (broker.dir / "pid").rmdir()
        (broker.dir / "pid").write_text(str(new))
        pair.finish()


def test_a_file_of_root_is_replaced_in_a_folder_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, right = tmp_path / "pid", os.open
    path.write_text("1234567890")
    inode = path.stat().st_ino

    def refuses(name: str, *more: int) -> int:
        if name == str(path):
            raise PermissionError(13, "Permission denied")
        return right(name, *more)

    monkeypatch.setattr(os, "open", refuses)
    process.write_pid_file(str(path))
    assert path.read_text() == str(os.getpid()) and path.stat().st_ino != inode
    assert [one.name for one in tmp_path.iterdir()] == ["pid"]


def test_failed_upgrades_of_a_broker_that_ignores_sigchld(tmp_path: Path) -> None:
    """A supervisor may pass that on. Then the kernel waits for the new process, and the broker cannot."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    starter = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    with Upgraded(LISTENER + MEMORY, command=[sys.executable, "-c", starter, sys.executable, str(program)]) as broker:
        pair = Pair(broker)
        for broken in ("raise SystemExit(7)", "import os; os.kill(os.getpid(), 9)"):
            program.write_text(broken)
            broker.fail()
            pair.step()
        program.write_text(PROGRAM)
        broker.upgrade()
        pair.finish()


def test_the_first_process_of_a_container_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with pytest.raises(OSError, match="container"):
        leaving.Upgrade(None, lambda _level, _text: None, (), lambda: None, lambda: None, None)      # type: ignore[arg-type]


@pytest.mark.parametrize("notifies", [False, True])
def test_a_service_whose_systemd_does_not_hear_of_the_new_process_refuses(monkeypatch: pytest.MonkeyPatch, notifies: bool) -> None:
    monkeypatch.setenv("SYSTEMD_EXEC_PID", str(os.getpid()))
    if notifies:
        monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere")
        monkeypatch.setattr(os, "access", lambda _path, _mode: False)      # the next check
    else:
        monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    with pytest.raises(OSError, match="cannot read Python" if notifies else "Type=notify"):
        leaving.Upgrade(None, lambda _level, _text: None, (), lambda: None, lambda: None, None)      # type: ignore[arg-type]


def test_a_store_whose_folder_is_gone_is_kept_open() -> None:
    """The old process could not open it again after a failed upgrade."""
    with Upgraded(LISTENER + STORE) as broker:
        pair = Pair(broker)
        pair.step()
        store = broker.dir / "mosquitto.db.store"
        store.rename(broker.dir / "away")
        before = broker.begin()
        broker.wait_log("does not exist any more")
        assert broker.pid() == before
        (broker.dir / "away").rename(store)
        pair.step()
        broker.upgrade()
        pair.finish()


def test_a_log_that_is_rotated_during_an_upgrade(tmp_path: Path) -> None:
    """The new process has opened the log before: it must open it again."""
    program, log = tmp_path / "program.py", tmp_path / "log"
    program.write_text(PROGRAM)
    with Upgraded(LISTENER + MEMORY + f"log_dest file {log}\nlog_dest stdout\n", command=[sys.executable, str(program)]) as broker:
        rotates = f"os.rename({str(log)!r}, {str(log) + '.1'!r}); os.kill(os.getppid(), {REOPEN_LOG})\n    while not os.path.exists({str(log)!r}): time.sleep(0.01)"
        program.write_text(STEPS.replace("{step}", "hello").replace("{act}", rotates))
        broker.wait_log(" running\n")           # else the old process's line counts as that of the new one
        broker.upgrade()

        def logged() -> bool:
            wire = broker.wire()
            wire.send(Connect("after"))
            assert isinstance(wire.read_packet(), Connack)
            return "as after" in log.read_text()

        until(logged)           # the old process passes the signal on while the new one serves


def test_a_listener_that_the_new_configuration_lacks_is_closed() -> None:
    other = free_port()
    with Upgraded(LISTENER + f"listener {other} 127.0.0.1\n" + MEMORY) as broker:
        Wire(other).close()
        broker.config.write_text(broker.config.read_text().replace(f"listener {other} 127.0.0.1\n", ""))
        broker.upgrade()
        with pytest.raises(ConnectionRefusedError):
            Wire(other)


@pytest.mark.parametrize("kind", [MEMORY, STORE], ids=["memory", "store"])
def test_an_upgrade_to_another_store_is_refused_and_makes_none(kind: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with Upgraded(LISTENER + kind) as broker:
        pair = Pair(broker)
        pair.step()
        text = broker.config.read_text()
        place = f"persistence true\npersistence_location {other}/\n"
        broker.config.write_text(text.replace(f"persistence true\npersistence_location {broker.dir}/\n", "") + place)
        broker.fail()
        assert "the broker before had no store" in broker.log() or "is not that of the broker before" in broker.log()
        assert not list(other.iterdir())
        broker.config.write_text(text)
        broker.upgrade()
        pair.finish()


def test_a_change_of_the_rules_before_the_freezing_ends_the_upgrade(tmp_path: Path) -> None:
    """The new program has read the file of dynamic security before the command changed it."""
    program, late, go = tmp_path / "program.py", tmp_path / "late", tmp_path / "go"
    program.write_text(PROGRAM)
    config = LISTENER + MEMORY + "allow_anonymous false\nplugin mosquitto_dynamic_security.so\nplugin_opt_config_file {dir}/dynsec.json\n"
    config = config.replace("allow_anonymous true\n", "")
    with Upgraded(config, command=[sys.executable, str(program)], env={"MOSQUITTO_DYNSEC_PASSWORD": "a-secret-word"}) as broker:
        admin = broker.wire()
        admin.send(Connect("a", username="admin", password=b"a-secret-word"), Subscribe(1, (("$CONTROL/dynamic-security/v1/response", 1),)))
        assert isinstance(admin.read_packet(), Connack) and isinstance(admin.read_packet(), Suback)
        wait = f"open({str(late)!r}, 'w').close()\n    while not os.path.exists({str(go)!r}): time.sleep(0.01)"
        program.write_text(STEPS.replace("{step}", "hello").replace("{act}", wait))
        before = broker.begin()
        until(late.exists)
        command = b'{"commands":[{"command":"createRole","rolename":"r"},{"command":"addGroupRole","groupname":"none","rolename":"r"},' \
                  b'{"command":"createClient","username":"joe","password":"long-enough","roles":[{"rolename":"r"}]}]}'
        admin.send(Publish("$CONTROL/dynamic-security/v1", command, 1, 2))
        got = [admin.read_packet() for _ in range(2)]
        assert any(isinstance(one, Publish) and b"createClient" in one.payload for one in got)
        go.touch()
        broker.wait_log("access rules changed while the new program started; try again. This process goes on.")
        assert broker.pid() == before
        program.write_text(PROGRAM)
        broker.upgrade()
        joe = broker.wire()
        joe.send(Connect("j", username="joe", password=b"long-enough"))
        answer = joe.read_packet()
        assert isinstance(answer, Connack) and answer.rc == 0


def test_a_new_process_whose_storage_thread_cannot_start_is_refused(faults: Faults, tmp_path: Path) -> None:
    """The old process cannot start its own again either, until the system allows it; then clients are served."""
    program, late, go = tmp_path / "program.py", tmp_path / "late", tmp_path / "go"
    program.write_text(PROGRAM)
    with Upgraded(LISTENER + STORE, command=[sys.executable, str(program)], env=faults.env) as broker:
        pair = Pair(broker)
        pair.step()
        wait = f"open({str(late)!r}, 'w').close()\n    while not os.path.exists({str(go)!r}): time.sleep(0.01)"
        program.write_text(STEPS.replace("{step}", "restore").replace("{act}", wait))
        before = broker.begin()
        until(late.exists)
        faults.set(threads_refused=1)
        go.touch()
        broker.wait_log("the storage thread cannot be started. This process goes on.")
        broker.wait_log("no client is served until the store can be opened again")
        faults.set(threads_refused=0)
        broker.wait_log("the store is open again, and clients are served")
        assert broker.pid() == before
        pair.step()
        program.write_text(PROGRAM)
        broker.upgrade()
        pair.finish()
