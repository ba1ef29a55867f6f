"""Test the parent: names, exit statuses, signals, and what happens when a worker dies or stops."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from mosq.server.workers.channel import channel_pair
from mosq.server.workers.worker import Worker
from tests.harness.broker import Broker, command, free_port
from tests.harness.packets import Connect, Puback, Publish, Suback, Subscribe
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.workers.case import Workers, pinged, sockets, until

NOT_AUTHORIZED = 0x87
PIDFD_GETFD = 438               # number of the system call
STORE = "persistence true\npersistence_location {dir}/\n"
SESSION = ((P.SESSION_EXPIRY, 600),)


def subscribed(client: Wire, topic: str, qos: int = 1) -> None:
    client.send(Subscribe(3, ((topic, qos),)))
    assert isinstance(client.read_packet(), Suback)


def acknowledged(client: Wire, topic: str, payload: bytes = b"x") -> int:
    client.send(Publish(topic, payload, 1, 4))
    answer = client.read_packet()
    assert isinstance(answer, Puback), answer
    return answer.rc


def test_processes_have_names_and_one_pid_file() -> None:
    with Workers(2, "pid_file {dir}/pid\n") as broker:
        assert broker.process is not None
        assert (broker.dir / "pid").read_text() == str(broker.process.pid)
        assert Path(f"/proc/{broker.process.pid}/comm").read_text() == "mosq\n"
        for number, pid in broker.pids().items():
            assert Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0") == f"mosq: worker {number}".encode()
        pids = broker.pids()
        assert set(pids) == {1, 2}
        began = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - began < 5
        assert not (broker.dir / "pid").exists()
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids.values())


def test_an_upgrade_is_refused_with_the_reason() -> None:
    with Workers(2) as broker:
        assert broker.process is not None
        client = broker.connect("c")
        pids = broker.pids()
        for times, pid in enumerate((broker.process.pid, *pids.values()), 1):
            done = subprocess.run([*command(), "upgrade", "-p", str(pid)], capture_output=True, text=True, timeout=30, check=False)
            assert (done.returncode, done.stderr) == (
                1, f"Error: Process {pid}: it has workers (cluster_local), which cannot be upgraded while they run; restart it.\n")
            broker.wait_log("Error: Upgrade: a broker with workers (cluster_local) cannot be upgraded while it runs; restart it. All processes go on.", times)
        pinged(client)
        assert broker.pids() == pids


def test_there_may_be_more_workers_than_cores() -> None:
    with Workers(9) as broker:
        assert len(broker.pids()) == 9
        held = {broker.holder(broker.connect(f"many{i}")) for i in range(60)}
        assert len(held) > 4


@pytest.mark.parametrize("number", [1, 2])
def test_a_killed_worker_comes_back_with_its_sessions(number: int) -> None:
    with Workers(2, STORE) as broker:
        name, other = broker.id_on(number), broker.id_on(3 - number)
        durable = broker.connect(name, clean=True, props=SESSION)
        subscribed(durable, "kept/#")
        durable.close()
        publisher = broker.connect(broker.id_on(number, "pub"))
        assert acknowledged(publisher, "kept/1", b"before") == 0
        witness = broker.connect(other)
        gone = broker.kill(number)
        began = time.monotonic()
        pinged(witness)                             # the other worker serves
        back = broker.connect(name, clean=False, props=SESSION)     # waits until the worker is there again
        assert time.monotonic() - began < 2 + 8     # 2 s on a quiet machine
        got = back.read_packet()
        assert isinstance(got, Publish) and got.payload == b"before"
        assert broker.holder(back) == number
        assert broker.pids()[number] != gone
        broker.wait_log(f"Error: Worker {number} (process {gone}) was ended by signal 9. It is started again in 0.1 seconds.")
        broker.wait_log(f"Worker {number} (process {broker.pids()[number]}) serves clients again.")
        pinged(witness)
        publisher.expect_closed()
        for client in (publisher, witness, back):
            client.close()


def test_connections_that_wait_for_a_dead_worker_are_received_by_the_next() -> None:
    with Workers(2) as broker:
        name = broker.id_on(2)
        broker.kill(2)
        clients = [broker.connect(name) for _ in range(3)]
        pinged(clients[-1])
        for client in clients:
            client.close()


def test_the_pause_before_a_restart_grows() -> None:
    with Workers(2) as broker:
        for pause, times in (("0.1", 1), ("0.2", 2), ("0.4", 3)):
            until(lambda: 1 in broker.pids(), broker.log)
            until(lambda times=times: f"Worker {1}" is not None and len(broker.pids()) == 2, broker.log)
            broker.kill(1)
            broker.wait_log("was ended by signal 9", times)
            assert f"It is started again in {pause} seconds." in broker.log()


def test_a_stopped_worker_is_killed_and_started_again() -> None:
    with Workers(2, "cluster_watchdog 1\n") as broker:
        name, other = broker.id_on(2), broker.id_on(1)
        witness = broker.connect(other)
        before = broker.kill(2, signal.SIGSTOP)
        pinged(witness)
        broker.wait_log(f"Error: Worker 2 (process {before}) has given no sign of life for 1 seconds, and was killed. It is started again in 0.1 seconds.")
        back = broker.connect(name)
        assert broker.holder(back) == 2 and broker.pids()[2] != before
        assert broker.log().count(f"Error: Worker 2 (process {before})") == 1
        pinged(witness)
        for client in (back, witness):
            client.close()


def test_a_worker_that_is_stopped_in_its_start_is_killed() -> None:
    with Workers(2, "cluster_watchdog 1\n") as broker:
        name = broker.id_on(2)
        old = set(broker.children())
        broker.kill(2)
        until(lambda: set(broker.children()) - old)
        (stopped,) = set(broker.children()) - old
        os.kill(stopped, signal.SIGSTOP)
        until(lambda: not Path(f"/proc/{stopped}").exists(), broker.log)
        assert broker.holder(broker.connect(name)) == 2


def test_workers_outlive_a_parent_that_is_stopped_for_long() -> None:
    """Their reports would fill the channel: its room is the least that the kernel allows."""
    one, other = channel_pair()
    one._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 0)
    worker = Worker.__new__(Worker)
    worker.channel, worker._messages, worker._commits = one, 0, 0
    for _ in range(1000):
        worker.alive()
        worker.changed(2, 1)
    assert not one.closed
    got = [message for message, _ in other.receive()]
    worker.changed(2, 1)
    got += [message for message, _ in other.receive()]
    assert {"is": "alive"} in got
    assert sum(message.get("messages", 0) for message in got) == 2002
    one.close()
    other.close()


def test_a_stopped_worker_that_the_stop_kills_has_one_line() -> None:
    with Workers(2) as broker:
        broker.kill(2, signal.SIGSTOP)
        assert broker.stop() == 0
        assert broker.log().count("Worker 2 did not stop in time, and is killed.") == 1
        assert "Worker 1 did not stop" not in broker.log()


def test_workers_end_when_their_parent_is_killed() -> None:
    with Workers(2) as broker:
        pids = broker.pids()
        assert broker.process is not None
        broker.process.kill()
        broker.process.wait()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.values()))


@pytest.mark.parametrize("user", ["root", "nobody"])
def test_a_stopped_worker_ends_when_its_parent_is_killed(user: str) -> None:
    """Otherwise it would keep the port, and the next broker would share it with a process that accepts no connection."""
    with Workers(2, user=user) as broker:
        pids = broker.pids()
        broker.kill(2, signal.SIGSTOP)
        assert broker.process is not None
        broker.process.kill()
        broker.process.wait()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.values()))
        broker.start()
        for n in range(8):
            broker.connect(f"again{n}")


def passage_of(pid: int) -> socket.socket:
    """Return the socket on which a worker waits for connections from others: the one of packets in its epoll."""
    kinds = {line.split()[6]: int(line.split()[4], 16) for line in Path("/proc/net/unix").read_text().splitlines()[1:]}
    for entry in Path(f"/proc/{pid}/fdinfo").iterdir():
        for number in re.findall(r"^tfd: +(\d+)", entry.read_text(), re.MULTILINE):
            inode = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{number}"))
            if inode and kinds.get(inode[1]) == socket.SOCK_SEQPACKET:
                process = os.pidfd_open(pid)
                fd = ctypes.CDLL(None).syscall(PIDFD_GETFD, process, int(number), 0)
                os.close(process)
                return socket.socket(fileno=fd)
    raise AssertionError("the worker waits for no connections")


def reached(broker: Workers, name: str) -> bool:
    """Return whether a client is served; a connection that was sent into the old socket is closed."""
    client = Wire(broker.port, 5)
    broker.opened.append(client)
    client.send(Connect(name))
    try:
        answer = client.read_frame()
    except ConnectionError:
        return False
    return answer is not None


def test_a_passage_that_is_shut_down_is_replaced_with_its_worker() -> None:
    with Workers(2) as broker:
        name = broker.id_on(2)
        before = broker.pids()
        with passage_of(before[2]) as passage:
            passage.shutdown(socket.SHUT_RDWR)
        broker.wait_log("Worker 2: Error: the socket for connections from other workers was shut down. This worker ends.")
        broker.wait_log("Warning: the socket for connections to Worker 2 was shut down, and is replaced.")
        until(lambda: broker.pids().get(2, before[2]) != before[2], broker.log)
        until(lambda: all(reached(broker, name) for _ in range(24)), broker.log)    # about half are accepted by worker 1
        assert broker.pids()[1] == before[1]


# ---------------------------------------------------------------- signals

def test_sighup_changes_all_workers() -> None:
    with Workers(2, "acl_file {dir}/acl\n", {"acl": "topic readwrite old\n"}) as broker:
        clients = [broker.connect(broker.id_on(number)) for number in (1, 2)]
        assert [acknowledged(client, "new") for client in clients] == [NOT_AUTHORIZED] * 2
        (broker.dir / "acl").write_text("topic readwrite new\n")
        broker.config.write_text(broker.config.read_text() + "retry_interval 1\n")
        broker.send_signal(signal.SIGHUP)
        broker.wait_log("'retry_interval' option")
        until(lambda: [acknowledged(client, "new") in (0, 0x10) for client in clients] == [True, True], broker.log)
        assert broker.log().count("Reloading config.") == broker.log().count("'retry_interval' option") == 1
        for client in clients:
            client.close()


def test_sighup_that_a_worker_cannot_read_changes_none() -> None:
    with Workers(2, "acl_file {dir}/acl\n", {"acl": "topic readwrite old\n"}) as broker:
        clients = [broker.connect(broker.id_on(number)) for number in (1, 2)]
        (broker.dir / "acl").write_text("nonsense\n")
        broker.send_signal(signal.SIGHUP)
        broker.wait_log("Error: The configuration was not reloaded, the old one stays in force: Worker ")
        assert [acknowledged(client, "old") in (0, 0x10) for client in clients] == [True, True]
        pinged(broker.connect("later"))
        for client in clients:
            client.close()


def test_sighup_that_one_worker_does_not_answer_changes_none() -> None:
    with Workers(2, "acl_file {dir}/acl\ncluster_watchdog 1\n", {"acl": "topic readwrite old\n"}) as broker:
        client = broker.connect(broker.id_on(1))
        broker.kill(2, signal.SIGSTOP)
        (broker.dir / "acl").write_text("topic readwrite new\n")
        broker.send_signal(signal.SIGHUP)
        broker.wait_log("stays in force: Worker 2 has ended")
        assert acknowledged(client, "new") == NOT_AUTHORIZED
        client.close()


@pytest.mark.parametrize(("lines", "why"), [
    ("plugin mosquitto_persist_sqlite.so\nplugin_opt_db_file {dir}x.db\n", "cannot be used with `cluster_local 2` yet"),
    ("listener {other} 127.0.0.1\n", "a reload cannot add, remove or move a listener yet"),
    ("nonsense 1\n", "Unknown configuration variable 'nonsense'"),
])
def test_sighup_that_the_parent_refuses(lines: str, why: str) -> None:
    with Workers(2) as broker:
        lines = lines.replace("{dir}", f"{broker.dir}/").replace("{other}", str(free_port()))
        broker.config.write_text(broker.config.read_text() + lines)
        broker.send_signal(signal.SIGHUP)
        broker.wait_log("The configuration was not reloaded")
        assert why in broker.log()
        pinged(broker.connect("c"))


def test_other_workers_number_needs_a_restart() -> None:
    with Workers(2) as broker:
        broker.config.write_text(broker.config.read_text().replace("cluster_local 2", "cluster_local 3"))
        broker.send_signal(signal.SIGHUP)
        broker.wait_log("'cluster_local' has changed; the change takes effect at the next start.")
        assert len(broker.pids()) == 2
        broker.restart()
        assert len(broker.pids()) == 3


def test_the_log_file_is_opened_again_by_all() -> None:
    with Workers(2, "log_dest stderr\nlog_dest file {dir}/mosq.log\nlog_format json\n") as broker:
        log = broker.dir / "mosq.log"
        names = [broker.id_on(number) for number in (1, 2)]
        until(lambda: '"worker": 1' in log.read_text() and '"worker": 2' in log.read_text())
        log.rename(broker.dir / "old.log")
        broker.send_signal(signal.SIGRTMIN)
        until(log.exists)

        def both() -> bool:
            for name in names:
                broker.connect(name).close()
            return '"worker": 1' in log.read_text() and '"worker": 2' in log.read_text()

        until(both)


def test_subscriptions_of_all_workers_are_printed() -> None:
    with Workers(2) as broker:
        names = [broker.id_on(number) for number in (1, 2)]
        clients = [broker.connect(name) for name in names]
        for i, client in enumerate(clients):
            subscribed(client, f"tree{i}/x")
        broker.send_signal(signal.SIGUSR2)
        for number in (1, 2):           # the name of the worker is in front of its trees
            broker.wait_log(f"Worker {number}:\n    \n      \n        tree{number - 1}\n          x ({names[number - 1]}, 1)\n")
        for client in clients:
            client.close()


# ---------------------------------------------------------------- start

def started(config: str, *arguments: str, files: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    broker = Broker(config, files)
    try:
        return subprocess.run([*command(), "-c", str(broker.config), *arguments], capture_output=True, text=True, timeout=30,
                              check=False)
    finally:
        broker.close()


@pytest.mark.parametrize(("lines", "what"), [
    ("plugin mosquitto_persist_sqlite.so\nplugin_opt_db_file {dir}/x.db\n", "The plugin 'mosquitto_persist_sqlite.so'"),
])
def test_what_workers_cannot_do_yet_is_refused(lines: str, what: str) -> None:
    done = started(f"listener {{port}} 127.0.0.1\nallow_anonymous true\ncluster_local 2\nuser root\n{lines}")
    assert done.returncode == 3
    assert what in done.stderr
    assert "cannot be used with `cluster_local 2` yet" in done.stderr


def test_an_error_that_a_worker_finds_ends_the_start_once() -> None:
    done = started("cluster_local 4\nuser root\nacl_file {dir}/acl\n", files={"acl": "nonsense\n"})
    assert done.returncode == 3
    assert done.stderr.count("nonsense") == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_the_log_has_the_error_of_a_start(workers: int, tmp_path: Path) -> None:
    """The log of the parent has what it finds itself, and the log of the worker what only a worker finds."""
    log = tmp_path / "log"
    config = f"listener {{port}} 127.0.0.1\nuser root\ncluster_local {workers}\nlog_dest file {log}\n"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = started(config.replace("{port}", str(taken.getsockname()[1])))
    assert (done.returncode, done.stderr.count("Address already in use")) == (1, 1)
    assert log.read_text().count(": Error: Address already in use") == 1
    done = started(f"{config}acl_file {{dir}}/acl\n", files={"acl": "nonsense\n"})
    prefix = "Worker 1: " if workers > 1 else ""
    assert (done.returncode, done.stderr.count("nonsense")) == (3, 1)
    logged = [line.partition(": ")[2] for line in log.read_text().splitlines()]
    for line in done.stderr.splitlines():
        assert f"{prefix}{line}" in logged


@pytest.mark.parametrize("folder", ["", "worker.2", "streams/s"])
def test_a_folder_that_the_user_may_not_read_is_named(folder: str) -> None:
    broker = Workers(2, STORE + "stream s a/#\nlistener {port}\nallow_anonymous true\n", user="nobody")
    try:
        broker.start()
        assert broker.stop() == 0
        path = broker.dir / "mosquitto.db.store" / folder
        path.chmod(0)
        done = subprocess.run([*command(), "-c", str(broker.config)], capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 1, done
        assert str(path) in done.stderr and "Permission denied" in done.stderr and "Traceback" not in done.stderr, done
        assert folder == "streams/s" or f"chown -R USER {broker.dir / 'mosquitto.db.store'}" in done.stderr, done
    finally:
        broker.close()


def test_a_port_in_use_ends_the_start_with_status_1() -> None:
    with Workers(2) as broker:
        done = started(f"listener {broker.port} 127.0.0.1\nallow_anonymous true\nuser root\n")
        again = started(f"listener {broker.port} 127.0.0.1\nallow_anonymous true\nuser root\ncluster_local 2\n")
        assert done.returncode == again.returncode == 1
        assert done.stderr.splitlines()[-1] == again.stderr.splitlines()[-1]


def test_the_command_line_sets_the_number_of_workers() -> None:
    broker = Broker("user root\n", command=[*command(), "--workers", "2"])
    with broker:
        assert broker.process is not None
        assert "2 workers serve the clients." in broker.log()


def test_a_stop_while_workers_start() -> None:
    broker = Workers(8)
    broker.process = subprocess.Popen([*command(), "-c", str(broker.config)], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                      stdout=subprocess.DEVNULL)
    try:
        until(broker.pids)
        os.kill(broker.process.pid, signal.SIGTERM)
        assert broker.process.wait(20) == 0
    finally:
        broker.close()


@pytest.mark.timing
def test_a_reload_that_waits_for_a_file_kills_no_worker() -> None:
    with Workers(2, "acl_file {dir}/acl\ncluster_watchdog 1\n", {"acl": "topic readwrite old\n"}) as broker:
        client, pids = broker.connect("c"), broker.pids()
        (broker.dir / "acl").unlink()
        os.mkfifo(broker.dir / "acl")
        broker.send_signal(signal.SIGHUP)
        for _ in range(25):                 # longer than the watchdog
            pinged(client)
            time.sleep(0.1)
        assert broker.pids() == pids
        broker.send_signal(signal.SIGTERM)
        assert broker.process is not None and broker.process.wait(20) == 0


def test_each_worker_is_linked_with_each_other() -> None:
    with Workers(3) as broker:
        def links() -> list[int]:
            """Return the unix sockets of each worker: the links are two for each other worker."""
            return [len(sockets(pid)) for pid in broker.pids().values()]

        until(lambda: len(set(links())) == 1 and len(links()) == 3, broker.log)
        before = links()
        broker.kill(2)
        until(lambda: len(broker.pids()) == 3 and links() == before, broker.log)


def test_a_check_of_the_configuration_refuses_the_same() -> None:
    done = started("cluster_local 2\nuser root\nplugin mosquitto_persist_sqlite.so\nplugin_opt_db_file {dir}/x.db\n", "--test-config")
    assert done.returncode == 3
    assert "The plugin 'mosquitto_persist_sqlite.so' cannot be used with `cluster_local 2` yet" in done.stderr
