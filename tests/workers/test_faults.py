"""Test faults of one worker: each has a defined outcome, the clients of the other worker go on at their pace, and no
acknowledged message is lost.

Pace is counted in round trips while the fault lasts, not in seconds: a client that waits for the worker at fault makes none."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mosq.engine import worker_place
from tests.durable.test_disk import may_mount
from tests.harness.broker import command
from tests.harness.effort import SANITIZED
from tests.harness.packets import Connack, Connect, Pingreq, Pingresp, Puback, Publish, Suback, Subscribe
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.workers.case import Workers, until

CONFIG = "max_keepalive 0\n"
STORE = "persistence true\npersistence_location {dir}/\nautosave_interval 0\nmax_queued_messages 0\nmax_queued_bytes 0\nqueue_memory 268435456\n"
SESSION = ((P.SESSION_EXPIRY, 3600),)
ROUNDS = 100
QUOTA = 0x97
BYTES = 100_000
WAITS_S = 3.0


def subscribed(client: Wire, topic: str, qos: int = 1) -> None:
    client.send(Subscribe(1, ((topic, qos),)))
    assert client.read_packet() == Suback(1, (qos,))


class Healthy:
    """A subscriber and a publisher of one worker."""

    def __init__(self, broker: Workers, number: int) -> None:
        self.subscriber, self.publisher = (broker.connect(broker.id_on(number, name)) for name in ("sub", "pub"))
        self.topic, self.n = f"healthy/{number}", 0
        subscribed(self.subscriber, self.topic)

    def go_on(self, rounds: int = ROUNDS) -> None:
        for _ in range(rounds):
            self.n += 1
            self.publisher.send(Publish(self.topic, b"%d" % self.n, 1, 1))
            assert self.publisher.read_packet() in (Puback(1), Puback(1, 0))
            got = self.subscriber.read_packet()
            assert isinstance(got, Publish) and got.payload == b"%d" % self.n
            self.subscriber.send(Puback(got.mid))
        self.publisher.send(Pingreq())
        self.publisher.expect_packet(Pingresp())


class Sleeper:
    """A durable session without a connection, at one worker, and what was acknowledged for it."""

    def __init__(self, broker: Workers, number: int) -> None:
        self.broker, self.name = broker, broker.id_on(number, "sleeper")
        self.taken: list[bytes] = []
        self.beside: list[bytes] = []       # the same, in no order with the others
        client = broker.connect(self.name, clean=True, props=SESSION)
        subscribed(client, "kept/#")
        client.close()

    def publish(self, client: Wire, size: int = BYTES) -> int:
        """Publish one message; return the reason code. A closed connection: raises."""
        payload = b"%d " % len(self.taken) + os.urandom(8).hex().encode() + b"x" * size
        client.send(Publish("kept/a", payload, 1, 1))
        answer = client.read_packet()
        assert isinstance(answer, Puback), answer
        if answer.rc in (0, 0x10):
            self.taken.append(payload)
        return answer.rc

    def check(self) -> None:
        """Check that the acknowledged messages are there, once and in order. Others may be there too."""
        client = self.broker.connect(self.name, clean=False, props=SESSION)
        found: list[bytes] = []
        while not found or found[-1] != b"end":
            if not found:
                publisher = self.broker.connect("the-end")
                publisher.send(Publish("kept/a", b"end", 1, 1))
            got = client.read_packet()
            assert isinstance(got, Publish), got
            found.append(got.payload)
            client.send(Puback(got.mid))
        assert [found.count(one) for one in self.beside] == [1] * len(self.beside)
        wanted = set(self.taken)
        assert [one for one in found if one in wanted] == self.taken


# ---------------------------------------------------------------- a number of workers that makes no sense

@pytest.mark.parametrize("number", ["0", "-1", "65", "1000000", "99999999999999999999", "two", "2.5", "", "\uff12", "2 3", "0x2", "+2", "02"])
@pytest.mark.parametrize("where", ["file", "command line"])
def test_a_number_of_workers_that_makes_no_sense_is_refused(number: str, where: str, tmp_path: Path) -> None:
    path = tmp_path / "mosq.conf"
    path.write_text(f"listener 0 {tmp_path}/socket\nallow_anonymous true\n" + (f"cluster_local {number}\n" if where == "file" else ""))
    more = [f"--workers={number}"] if where == "command line" else []
    done = subprocess.run([*command(), "-c", str(path), *more], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 3, done
    assert (f"{path}:3" if where == "file" else "--workers") in done.stderr, done
    assert "from 1 to 64" in done.stderr, done
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "socket").exists()


# ---------------------------------------------------------------- killed, stopped

@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGSTOP] + [signal.SIGSEGV] * (not SANITIZED))     # the sanitizer would report it
def test_a_worker_that_is_killed_or_stopped_under_load(by: signal.Signals) -> None:
    with Workers(2, CONFIG + STORE + "cluster_watchdog 2\n") as broker:
        healthy, sleeper = Healthy(broker, 1), Sleeper(broker, 2)
        publisher = broker.connect(broker.id_on(1, "far"))
        for _ in range(20):
            assert sleeper.publish(publisher) in (0, 0x10)
        before = broker.kill(2, by)
        publisher.send(Publish("kept/a", b"waits", 1, 9))
        healthy.go_on()
        assert broker.pids().get(2) in (before, None) or by != signal.SIGSTOP, "the fault did not last"
        assert publisher.read_packet() in (Puback(9), Puback(9, 0))         # when the worker is there again
        sleeper.taken.append(b"waits")
        until(lambda: broker.pids().get(2, before) != before)       # the signal may come after the PUBACK
        healthy.go_on()
        sleeper.check()


# ---------------------------------------------------------------- no memory

@pytest.mark.skipif(SANITIZED, reason="the sanitizer ends a process that gets no memory")
@pytest.mark.parametrize("level", [5, 4])
def test_a_worker_without_memory(level: int) -> None:
    """Messages for its sessions wait, or their publishers are disconnected; the messages that were acknowledged are there."""
    with Workers(2, CONFIG + STORE) as broker:
        healthy, sleeper = Healthy(broker, 1), Sleeper(broker, 2)
        near, far = broker.connect(broker.id_on(2, "near"), level), broker.connect(broker.id_on(1, "far"), level)
        for client in (near, far):
            assert sleeper.publish(client) in (0, 0x10)
        pid = broker.pids()[2]
        resource.prlimit(pid, resource.RLIMIT_AS, (1 << 20, resource.RLIM_INFINITY))       # less than it has: no more
        waiting = [far, near]
        for client in (far, near):
            for i in range(400):
                payload = b"%d " % i + os.urandom(8).hex().encode() + b"y" * 300_000
                try:
                    client.send(Publish("kept/a", payload, 1, 2))
                    answer = client.read_packet(WAITS_S)
                except TimeoutError:                    # it waits
                    break
                except (AssertionError, OSError):       # closed
                    waiting.remove(client)
                    break
                if not isinstance(answer, Puback):      # DISCONNECT
                    waiting.remove(client)
                    break
                if answer.rc in (0, 0x10):
                    sleeper.taken.append(payload)
                else:                                   # refused
                    waiting.remove(client)
                    break
            else:
                pytest.fail("there was memory enough")
        healthy.go_on()
        assert broker.pids()[2] == pid
        resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        for client in waiting:
            answer = client.read_packet()
            assert isinstance(answer, Puback), answer
        sleeper.check()
        healthy.go_on()


# ---------------------------------------------------------------- a full disk

@pytest.fixture
def small_disk() -> Iterator[Workers]:
    """A broker whose second worker has its store on a small disk."""
    broker = Workers(2, CONFIG + STORE)
    store = broker.dir / "mosquitto.db.store" / "worker.2"
    try:
        broker.start()
        broker.stop()
        aside = broker.dir / "aside"
        shutil.copytree(store, aside)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=60m,mode=700", "none", store], check=True)
        for file in aside.iterdir():
            shutil.copy2(file, store)
        broker.start()
        yield broker
    finally:
        broker.close()
        subprocess.run(["umount", "-l", store], check=False)
        shutil.rmtree(broker.dir, ignore_errors=True)


@pytest.mark.skipif(not may_mount(), reason="needs the right to mount")
def test_a_full_disk_of_one_worker(small_disk: Workers) -> None:
    broker = small_disk
    healthy, sleeper = Healthy(broker, 1), Sleeper(broker, 2)
    near, far = broker.connect(broker.id_on(2, "near")), broker.connect(broker.id_on(1, "far"))
    disk = broker.dir / "mosquitto.db.store" / "worker.2"
    for client in (near, far):
        assert sleeper.publish(client) in (0, 0x10)
    # the segment of before, the present one, and the spare one
    until(lambda: len(files := sorted(disk.glob("segment.*"))) > 2 and files[-1].stat().st_size == 16 << 20, broker.log)
    with (disk / "large").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass
    for _ in range(1000):
        if sleeper.publish(near) == QUOTA:
            break
    else:
        pytest.fail("the disk was never full")
    broker.wait_log("Worker 2: Error: the disk is full: ")
    # a message from the other worker waits at the link; its publisher is not acknowledged
    far.send(Publish("kept/a", b"from afar", 1, 7))
    healthy.go_on()
    pids = broker.pids()
    (disk / "large").unlink()
    until(lambda: sleeper.publish(near) in (0, 0x10))
    answer = far.read_packet()
    assert isinstance(answer, Puback)
    if answer.rc == 0:
        sleeper.beside.append(b"from afar")
    until(lambda: sleeper.publish(far) in (0, 0x10))
    assert broker.pids() == pids and "Error: Worker" not in broker.log()
    sleeper.check()


# ---------------------------------------------------------------- a reload that one worker refuses

@pytest.mark.parametrize("number", [1, 2])
def test_a_reload_that_one_worker_refuses_changes_none(number: int) -> None:
    """This worker may open no file."""
    with Workers(2, CONFIG + "acl_file {dir}/acl\n", {"acl": "topic readwrite #\n"}) as broker:
        healthy = Healthy(broker, 3 - number)
        pid = broker.pids()[number]
        most = max(int(one.name) for one in Path(f"/proc/{pid}/fd").iterdir())
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        taken = {int(one.name) for one in Path(f"/proc/{pid}/fd").iterdir()}
        least = min(set(range(most + 2)) - taken)       # the next descriptor
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (least, before[1]))
        (broker.dir / "acl").write_text("topic readwrite none\n")
        broker.send_signal(signal.SIGHUP)
        broker.wait_log(f"The configuration was not reloaded, the old one stays in force: Worker {number}: ")
        healthy.go_on()                                 # the old rules allow it
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        assert broker.pids()[number] == pid
        client = broker.connect(broker.id_on(number))
        subscribed(client, "x")
        client.send(Publish("x", b"1", 0))
        client.expect_packet(Publish("x", b"1", 0))
        broker.send_signal(signal.SIGHUP)               # now it can
        until(lambda: _code(client) == 0x87)


def _code(client: Wire) -> int:
    client.send(Publish("y", b"1", 1, 3))
    answer = client.read_packet()
    assert isinstance(answer, Puback)
    return answer.rc


# ---------------------------------------------------------------- much for one worker

def test_a_flood_to_one_worker_delays_no_client_of_the_other() -> None:
    with Workers(2, CONFIG) as broker:
        healthy = Healthy(broker, 1)
        flood = [broker.connect(broker.id_on(2, "flood")) for _ in range(4)]
        for client in flood:
            subscribed(client, "flood/#", 0)
        block = Publish("flood/x", b"z" * 200, 0).encode(5) * 50
        sockets = [client.sock for client in flood if isinstance(client.sock, socket.socket)]
        for one in sockets:
            one.settimeout(0.0)
        for _ in range(100):
            for one in sockets:
                with contextlib.suppress(BlockingIOError):
                    one.send(block)                     # not read: the worker has full outputs and inputs
            healthy.go_on(5)
        again = broker.connect(broker.id_on(1))
        again.close()


def test_client_ids_do_not_tell_their_worker() -> None:
    """Each broker has a key of its own, so ids that meet at one worker of a broker are spread over those of another."""
    with Workers(2) as one, Workers(2) as other:
        met = [one.id_on(1, "chosen") for _ in range(24)]
        places = {other.holder(other.connect(name)) for name in met}
        assert places == {1, 2}         # by chance the same: 1 in 8 million
    names = [b"%d" % i for i in range(200)]
    keys = [bytes([i]) * 16 for i in range(1, 5)]
    spreads = {tuple(worker_place(key, name, 2) for name in names) for key in keys}
    assert len(spreads) == len(keys)
    assert all(60 < sum(one) < 140 for one in spreads)


def test_half_connects_at_one_worker_delay_no_client() -> None:
    """Connections that never send the end of CONNECT wait at the worker that accepted them."""
    with Workers(2, CONFIG) as broker:
        healthy = [Healthy(broker, number) for number in (1, 2)]
        packets = Connect("x" * 200).encode(5)
        half = [Wire(broker.port, 5) for _ in range(60)]
        for place in range(0, len(packets) - 1, 7):
            for client in half:
                client.send(packets[place:place + 7][:len(packets) - 1 - place])
            for one in healthy:
                one.go_on(3)
        half[-1].send(packets[-1:])
        accept = half[-1].read_packet()
        assert isinstance(accept, Connack) and accept.rc == 0
        for client in half:
            client.close()
