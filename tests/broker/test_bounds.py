"""Test every named bound, and the statistic that counts it (Engine.stats())."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

import mosq
from tests.harness.broker import ROOT
from tests.harness.packets import Connack, Connect, Pingreq, Pingresp, Puback, Publish, Received, Suback, Subscribe, Unsubscribe
from tests.harness.packets import decode, split
from tests.harness.properties import P, Props


class Client:
    """A blocking socket that sends and reads packets."""

    def __init__(self, port: int, client_id: str, level: int = 4, clean: bool = True, props: Props = (), rcvbuf: int = 0) -> None:
        self.level, self.data = level, b""
        self.sock = socket.socket()
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.sock.settimeout(20)
        try:
            self.sock.connect(("127.0.0.1", port))
        except OSError:
            self.sock.close()
            raise
        self.send(Connect(client_id, clean, props=props))

    def send(self, *packets: object) -> None:
        self.sock.sendall(b"".join(p.encode(self.level) for p in packets))  # type: ignore[attr-defined]

    def read(self) -> Received | None:
        """Return the next packet, or None if the broker closed the connection."""
        while not (n := split(self.data)):
            try:
                more = self.sock.recv(1 << 16)
            except ConnectionResetError:  # the broker closed before it read our CONNECT
                return None
            if not more:
                return None
            self.data += more
        packet = decode(self.level, self.data[:n])
        self.data = self.data[n:]
        return packet

    def up(self) -> Client:
        got = self.read()
        assert isinstance(got, Connack)
        assert got.rc == 0
        return self

    def round_trip(self) -> list[Received]:
        """Send PINGREQ; return all packets that arrive before its PINGRESP."""
        self.send(Pingreq())
        seen: list[Received] = []
        while not isinstance(got := self.read(), Pingresp):
            assert got is not None
            seen.append(got)
        return seen

    def close(self) -> None:
        self.sock.close()


Opener = Callable[..., Client]


@pytest.fixture
def opened() -> Iterator[Opener]:
    with ExitStack() as stack:
        def open_(broker: mosq.Broker, client_id: str, **options: object) -> Client:
            client = Client(broker.port, client_id, **options)  # type: ignore[arg-type]
            stack.callback(client.close)
            return client

        yield open_


def subscribe(client: Client, pattern: str, qos: int = 0) -> None:
    client.send(Subscribe(1, ((pattern, qos),)))
    assert isinstance(client.read(), Suback)


def rss_kb() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def until(what: Callable[[], bool]) -> None:
    """Wait up to 20 s for a condition that another thread brings about without a notification."""
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.005)


def test_queued_messages(opened: Opener) -> None:
    with mosq.Broker(max_queued_messages=3) as broker:
        subscriber = opened(broker, "s", clean=False).up()
        subscribe(subscriber, "t", 1)
        subscriber.close()
        until(lambda: broker.stats()["clients_connected"] <= 1)
        publisher = opened(broker, "p").up()
        publisher.send(*(Publish("t", b"%d" % n, 1, n + 1) for n in range(10)))
        assert len([publisher.read() for _ in range(10)]) == 10
        assert broker.stats()["drops_queue_messages"] == 7


def test_queued_bytes(opened: Opener) -> None:
    with mosq.Broker(max_queued_messages=0, max_queued_bytes=1000) as broker:
        subscriber = opened(broker, "s", clean=False).up()
        subscribe(subscriber, "t", 1)
        subscriber.close()
        until(lambda: broker.stats()["clients_connected"] <= 1)
        publisher = opened(broker, "p").up()
        publisher.send(*(Publish("t", b"x" * 299, 1, n + 1) for n in range(10)))
        assert len([publisher.read() for _ in range(10)]) == 10
        assert broker.stats()["drops_queue_bytes"] == 6


def test_a_subscriber_that_does_not_read(opened: Opener) -> None:
    """Test that while the socket is full, max_queued_messages messages of QoS 0 wait; the broker drops the rest and does
    not grow."""
    with mosq.Broker(max_queued_messages=100) as broker:
        subscribe(slow := opened(broker, "slow", rcvbuf=4096).up(), "t")
        publisher = opened(broker, "p").up()
        for _ in range(40):
            publisher.send(*(Publish("t", b"x" * 10_000) for _ in range(100)))
            publisher.round_trip()
        stats = broker.stats()
        assert stats["drops_qos0_blocked"] > 2000
        assert stats["store_bytes"] + stats["unsent_bytes"] + stats["buffers_used_bytes"] < 5_000_000  # of 40 MB published
        assert slow.round_trip()  # the client is served when it reads again


def test_output_bytes(opened: Opener) -> None:
    with mosq.Broker(max_queued_messages=0, max_output_bytes=1_000_000) as broker:
        subscribe(opened(broker, "slow", rcvbuf=4096).up(), "t")
        publisher = opened(broker, "p").up()
        for _ in range(100):
            publisher.send(Publish("t", b"x" * 100_000))
            publisher.round_trip()
        stats = broker.stats()
        assert stats["drops_output_bytes"] > 10
        assert stats["unsent_bytes"] <= 1_200_000


def test_a_client_that_reads_no_answers_is_not_read(opened: Opener) -> None:
    """Test a client that floods with PINGREQ and does not read: the broker stops reading at max_output_bytes instead of
    growing."""
    with mosq.Broker(max_output_bytes=65536) as broker:
        client = opened(broker, "flood", rcvbuf=4096).up()
        client.sock.settimeout(0.3)
        sent = 0
        with pytest.raises(TimeoutError):  # noqa: PT012 - the broker and both sockets are full at some point
            while True:
                sent += client.sock.send(b"\xc0\x00" * 32768)
        assert broker.stats()["unsent_bytes"] < 65536 + 2 * 131072
        client.sock.settimeout(20)
        answers = 0
        while answers < sent - 65536 * 2:  # each PINGREQ that the broker read is answered when the client reads
            answers += len(client.sock.recv(1 << 16))


def test_peer_maximum_packet_size(opened: Opener) -> None:
    with mosq.Broker() as broker:
        small = opened(broker, "small", level=5, props=((P.MAXIMUM_PACKET_SIZE, 50),)).up()
        subscribe(small, "t", 1)
        publisher = opened(broker, "p").up()
        publisher.send(Publish("t", b"x" * 100, 1, 1), Publish("t", b"fits", 1, 2))
        got = small.read()
        assert isinstance(got, Publish)
        assert got.payload == b"fits"
        assert broker.stats()["drops_packet_size"] == 1


def test_payload_size(opened: Opener) -> None:
    with mosq.Broker(message_size_limit=10) as broker:
        publisher = opened(broker, "p", level=5).up()
        publisher.send(Publish("t", b"x" * 11, 1, 1))
        got = publisher.read()
        assert isinstance(got, Puback)
        assert got.rc == 0x95
        assert broker.stats()["drops_payload_size"] == 1


def test_memory_limit_and_recovery(opened: Opener, caplog: pytest.LogCaptureFixture) -> None:
    with mosq.Broker(memory_limit=3_000_000, max_queued_messages=0) as broker:
        keeper = opened(broker, "keeper", clean=False).up()
        subscribe(keeper, "t", 1)
        keeper.close()
        publisher = opened(broker, "p", level=5).up()
        codes = []
        for n in range(100):
            publisher.send(Publish("t", b"x" * 50_000, 1, n + 1))
            got = publisher.read()
            assert isinstance(got, Puback)
            codes.append(got.rc)
        assert codes[0] == 0
        assert codes[-1] == 0x97
        assert broker.stats()["drops_memory"] > 10
        until(lambda: "memory_limit is reached: messages, connections and subscriptions hold" in caplog.text)
        refused = Client(broker.port, "new")
        got_new = refused.read()
        assert got_new is None or (isinstance(got_new, Connack) and got_new.rc == 3)
        refused.close()
        assert broker.stats()["refused_memory"] >= 1
        opened(broker, "keeper", level=5).up()  # a client with a session is accepted; clean start deletes its queue
        publisher.send(Publish("t", b"x", 1, 1))
        got = publisher.read()
        assert isinstance(got, Puback)
        assert got.rc == 0x10


@pytest.mark.parametrize(("option", "counted"), [("max_connections", "refused_max_connections"),
                                                 ("global_max_connections", "refused_global_max_connections")])
def test_connections(opened: Opener, option: str, counted: str) -> None:
    config = f"listener 1883 127.0.0.1\nallow_anonymous true\n{option} 2\n"
    with mosq.Broker(config, port=0) as broker:
        first = [opened(broker, f"c{n}").up() for n in range(2)]
        refused = opened(broker, "c3")
        assert refused.read() is None
        first[0].close()
        until(lambda: broker.stats()["sockets"] >= 3 and broker.stats()["clients_connected"] < 2)
        opened(broker, "c4").up()
        assert broker.stats()[counted] >= 1


def test_sessions(opened: Opener) -> None:
    with mosq.Broker(global_max_clients=2) as broker:
        for n in range(2):
            opened(broker, f"c{n}").up()
        refused = opened(broker, "c3", level=5)
        got = refused.read()
        assert isinstance(got, Connack)
        assert got.rc == 0x89
        assert broker.stats()["refused_global_max_clients"] == 1


def test_out_of_descriptors(tmp_path: os.PathLike[str]) -> None:
    """Test that without free descriptors the broker refuses connections, does not spin, and recovers.

    It has its own process, because the test lowers a limit of the process.
    """
    script = f"""
import resource, socket, sys, time
sys.path.insert(0, {str(ROOT)!r})
import mosq
with mosq.Broker() as broker:
    before = len(__import__("os").listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 40, before + 40))
    # a connection takes two descriptors here, as both ends are in this process
    held = []
    try:
        for n in range(60):
            held.append(socket.create_connection(("127.0.0.1", broker.port), timeout=5))
    except OSError:
        held.pop().close()
    end = time.monotonic() + 10
    while not broker.stats()["refused_descriptors"] and time.monotonic() < end:
        held and held.pop(0).close()
        try:
            held.append(socket.create_connection(("127.0.0.1", broker.port), timeout=5))
        except OSError:
            pass    # the broker was quicker to take what became free
    began, cpu = time.monotonic(), time.process_time()
    while time.monotonic() - began < 0.3:
        time.sleep(0.05)
    assert time.process_time() - cpu < 0.2, "the loop spins"
    for sock in held:
        sock.close()
    sock = socket.create_connection(("127.0.0.1", broker.port), timeout=5)
    sock.sendall(bytes.fromhex("101000044d5154540402003c000461626364"))
    assert sock.recv(4) == bytes.fromhex("20020000")
    sock.close()
    print("ok", broker.stats()["refused_descriptors"])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("ok"), done.stdout + done.stderr


SUBSCRIBERS = 3000


def many_subscribers(broker: mosq.Broker, n: int) -> list[socket.socket]:
    """Return n sockets, each of a client that subscribed to `fan`."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    socks = []
    for i in range(n):
        sock = socket.create_connection(("127.0.0.1", broker.port), timeout=20)
        sock.sendall(Connect(f"f{i}").encode(4) + Subscribe(1, (("fan", 0),)).encode(4))
        socks.append(sock)
    for sock in socks:
        data = b""
        while len(data) < 9:
            data += sock.recv(100)
    return socks


def test_huge_fan_out_in_slices(opened: Opener) -> None:
    """Test three messages to thousands of clients in slices of a small budget: each client gets them in order, other clients
    are served between the slices, and a client that leaves in the middle does no harm."""
    with mosq.Broker(turn_budget=10_000) as broker:
        socks = many_subscribers(broker, SUBSCRIBERS)
        try:
            publisher, other = opened(broker, "p").up(), opened(broker, "o").up()
            publisher.send(*(Publish("fan", b"%d" % n) for n in range(3)), Publish("last", b"x", 1, 9))
            for sock in socks[::10]:
                sock.close()
            gone = socks[5::10]
            for sock in gone:
                sock.sendall(Unsubscribe(2, ("fan",)).encode(4))
            for _ in range(20):
                assert other.round_trip() == []
            assert isinstance(publisher.read(), Puback)  # the broker served the publisher after its fan-outs, in order
            whole = b"".join(Publish("fan", b"%d" % n).encode(4) for n in range(3))
            for n, sock in enumerate(socks):
                if n % 10 and n % 10 != 5:
                    data = b""
                    while len(data) < len(whole):
                        data += sock.recv(4096)
                    assert data == whole
        finally:
            for sock in socks:
                sock.close()


def test_retained_replay_streams_to_a_slow_subscriber(opened: Opener) -> None:
    """Test 20,000 retained messages for a slow client at QoS 1 with the default limits: none is lost, and few are queued at
    a time."""
    total = 20_000
    with mosq.Broker() as broker:
        publisher = opened(broker, "p").up()
        for start in range(0, total, 500):
            publisher.send(*(Publish(f"r/{start + n}", b"v" * 50, 1, n + 1, retain=True) for n in range(500)))
            for _ in range(500):
                assert isinstance(publisher.read(), Puback)
        subscriber = opened(broker, "s", rcvbuf=4096).up()
        subscriber.send(Subscribe(1, (("r/#", 1),)))
        assert isinstance(subscriber.read(), Suback)
        seen = set()
        while len(seen) < total:
            got = subscriber.read()
            assert isinstance(got, Publish)
            assert got.retain
            seen.add(got.topic)
            subscriber.send(Puback(int(got.mid)))
            if len(seen) == 200:
                assert broker.stats()["unsent_bytes"] < 1_000_000
        assert broker.stats()["publish_dropped"] == 0


def test_a_flood_does_not_starve_other_clients(opened: Opener) -> None:
    with mosq.Broker(turn_budget=1000) as broker:
        stop = threading.Event()
        flooder = opened(broker, "flood").up()

        def flood() -> None:
            block = b"".join(Publish("nowhere", b"x" * 20).encode(4) for _ in range(5000))
            while not stop.is_set():
                flooder.sock.sendall(block)

        thread = threading.Thread(target=flood)
        thread.start()
        try:
            other = opened(broker, "o").up()
            for _ in range(50):
                assert other.round_trip() == []
        finally:
            stop.set()
            thread.join()


def test_a_session_with_many_subscriptions_ends_in_slices(opened: Opener) -> None:
    with mosq.Broker() as broker:
        client, other = opened(broker, "many").up(), opened(broker, "o").up()
        for start in range(0, 20_000, 1000):
            client.send(Subscribe(1, tuple((f"s/{start + n}/+", 0) for n in range(1000))))
            assert isinstance(client.read(), Suback)
        assert broker.stats()["subscriptions"] == 20_000
        client.close()
        opened(broker, "many").up()  # the client id is free at once
        until(lambda: other.round_trip() == [] and broker.stats()["subscriptions"] == 0)
        assert broker.stats()["index_nodes"] == 0


def test_take_over_storm(opened: Opener) -> None:
    with mosq.Broker() as broker:
        last = [opened(broker, "same", level=5) for _ in range(300)][-1]
        last.up()
        assert last.round_trip() == []
        until(lambda: broker.stats()["pool_used"] <= 2)  # the other clients' sockets are closed by now, or linger
        assert broker.stats()["clients_total"] <= 2


def test_first_connect_has_a_deadline() -> None:
    with mosq.Broker(connect_timeout=1) as broker, socket.create_connection(("127.0.0.1", broker.port), timeout=10) as sock:
        sock.sendall(b"\x10\x20\x00\x04MQ")  # an incomplete CONNECT
        assert sock.recv(10) == b""


def test_idle_connections_hold_no_buffer(opened: Opener) -> None:
    with mosq.Broker() as broker:
        clients = [opened(broker, f"i{n}").up() for n in range(100)]
        for client in clients:
            client.round_trip()
        assert broker.stats()["buffers_used_bytes"] == 0
        clients[0].sock.sendall(b"\x30\x7f\x00")  # the start of a packet
        until(lambda: broker.stats()["buffers_used_bytes"] == 2048)


@pytest.mark.timing
def test_memory_returns_after_churn() -> None:
    """Test 5,000 connections that open and close, twice: the second round takes no more memory."""
    with mosq.Broker() as broker:
        sizes = []
        for _ in range(3):
            for n in range(0, 5000, 100):
                clients = [Client(broker.port, f"x{n + k}") for k in range(100)]
                for client in clients:
                    client.up()
                    client.close()
            until(lambda: broker.stats()["clients_connected"] <= 1)
            sizes.append(rss_kb())
        assert sizes[2] - sizes[0] < 1000


@pytest.mark.parametrize("pool", ["on", "off"])
def test_the_pool_frees_memory_after_many_clients_left(pool: str) -> None:
    """Test 2,000 clients that subscribe and leave: the idle client contexts stay below the limit, and the subscription index
    is empty."""
    with mosq.Broker(pool=pool, pool_grow=100, pool_idle_max=300) as broker:
        clients = [Client(broker.port, f"c{n}") for n in range(2000)]
        for n, client in enumerate(clients):
            client.up()
            subscribe(client, f"crowd/{n}/+", 0)
        stats = broker.stats()
        assert stats["pool_used"] >= 2000
        assert stats["pool_idle"] <= (100 if pool == "on" else 0)
        for client in clients:
            client.close()
        until(lambda: broker.stats()["clients_connected"] <= 1)
        until(lambda: broker.stats()["subscriptions"] == 0)
        stats = broker.stats()
        assert stats["pool_idle"] <= (400 if pool == "on" else 0)       # the limit, and the rest of a block in use
        assert stats["filters"] == stats["index_nodes"] == 0


def test_expired_messages_are_counted(opened: Opener) -> None:
    with mosq.Broker() as broker:
        keeper = opened(broker, "k", level=5, clean=False, props=((P.SESSION_EXPIRY, 100),)).up()
        subscribe(keeper, "t", 1)
        keeper.close()
        until(lambda: broker.stats()["clients_connected"] <= 1)
        publisher = opened(broker, "p", level=5).up()
        publisher.send(Publish("t", b"short", 1, 1, props=((P.EXPIRY, 0),)), Publish("t", b"long", 1, 2, props=((P.EXPIRY, 100),)))
        assert isinstance(publisher.read(), Puback)
        assert isinstance(publisher.read(), Puback)
        time.sleep(0.005)  # only the clock makes a message expire
        again = opened(broker, "k", level=5, clean=False).up()
        got = again.read()
        assert isinstance(got, Publish)
        assert got.payload == b"long"
        assert broker.stats()["drops_expired"] == 1
