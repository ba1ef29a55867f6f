"""Test a broker whose descriptors are exhausted by idle connections: the store, reloads and the log go on, and clients get in."""

from __future__ import annotations

import resource
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import mosq
from mosq.config.parser import load_config
from mosq.server.settings import descriptors_reserved
from tests.durable.test_restart import KEEP, Kept, offline_subscriber, publish, read_publishes
from tests.harness.broker import command
from tests.harness.faults import until
from tests.harness.networks import STAYING_MIN, begin_logins, finish_logins
from tests.harness.packets import Connack, Connect, Publish
from tests.harness.properties import P

LIMIT = 128
LOG = "log_dest file {dir}/own.log\nlog_type error warning notice information\n"


class Small(Kept):
    """A broker that may open LIMIT descriptors."""

    def __init__(self, config: str) -> None:
        super().__init__(config)
        self.command = ["sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", *command()]

    def own_log(self) -> str:
        path = self.dir / "own.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def small() -> Iterator[Small]:
    with Small(KEEP + LOG + "connect_timeout 3600\nmax_queued_messages 0\nqueue_memory 1000000\n") as broker:
        yield broker


@pytest.fixture
def idle(small: Small) -> Iterator[list[socket.socket]]:
    """Open more connections than the broker has descriptors, none of which logs in."""
    offline_subscriber(small, ("t", 1))
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(("127.0.0.1", small.port))) for _ in range(LIMIT + 100)]


def test_the_store_goes_on_while_idle_connections_use_all_descriptors(small: Small, idle: list[socket.socket]) -> None:
    pub = small.client("pub", clean=True)                # it gets in: the oldest connection without a login ends
    for n in range(300):                                 # 30 MB: the store opens segments
        publish(pub, "t", b"x" * 100_000, mid=n + 1)
    small.kill()
    for sock in idle:
        sock.close()
    assert len(read_publishes(small.client("sub", session=True), 20)) == 20


def test_the_reason_is_logged_once(small: Small, idle: list[socket.socket]) -> None:
    small.client("pub", clean=True)
    until(lambda: "LimitNOFILE" in small.own_log())      # another thread writes the log
    log = small.own_log()
    assert log.count('Try increasing "ulimit -n" or equivalent.') == 1
    assert log.count('Of the descriptors that "ulimit -n" (LimitNOFILE of systemd) allows') == 1


def test_a_reload_and_a_new_log_file_need_no_descriptor_of_a_client(small: Small, idle: list[socket.socket]) -> None:
    small.client("pub", clean=True)
    (small.dir / "own.log").rename(small.dir / "own.log.1")
    small.config.write_text(small.config.read_text() + "max_keepalive 7\n")
    small.send_signal(signal.SIGRTMIN)
    until(lambda: (small.dir / "own.log").exists())
    small.send_signal(signal.SIGHUP)
    until(lambda: "Reloading config." in small.own_log())
    until(lambda: keepalive(small) == 7)


def keepalive(broker: Kept) -> object:
    """Return the keepalive that the broker sets for a new client; None: the client's own."""
    wire = broker.wire()
    wire.send(Connect("after", keepalive=60))
    connack = wire.read_packet()
    assert isinstance(connack, Connack)
    return dict(connack.props).get(P.SERVER_KEEPALIVE)


def test_a_flood_of_idle_connections_ends_its_own(small: Small) -> None:
    """The older connections of other networks stay, though each new one of the flood ends one."""
    with ExitStack() as stack:
        others = begin_logins(stack, small.port)
        for _ in range(LIMIT + 100):
            stack.enter_context(socket.create_connection(("127.0.0.1", small.port)))
        small.client("pub", clean=True)
        assert finish_logins(others) >= STAYING_MIN
    until(lambda: "Client connection from 127.0.0.1 denied: no descriptor is left, and it had not logged in." in small.own_log())


def test_clients_that_have_logged_in_stay(small: Small) -> None:
    clients = [small.client(f"c{n}", clean=True) for n in range(20)]
    with ExitStack() as stack:
        for _ in range(LIMIT + 100):
            stack.enter_context(socket.create_connection(("127.0.0.1", small.port)))
        for wire in clients:
            wire.expect_nothing()


def test_connections_beyond_the_room_are_refused_when_all_have_logged_in(small: Small) -> None:
    offline_subscriber(small, ("t", 1))
    clients = []
    while True:
        wire = small.wire()
        try:
            wire.send(Connect(f"c{len(clients)}"))
            if wire.read_frame() is None:
                break
        except (BrokenPipeError, ConnectionResetError):
            break
        clients.append(wire)
    assert LIMIT // 4 < len(clients) <= LIMIT // 2 + 30
    for n in range(100):
        clients[0].send(Publish("t", b"x" * 100_000, 1, n + 1))
        clients[0].read_packet()
    clients.pop().close()
    until(lambda: admitted(small))


def admitted(small: Small) -> bool:
    wire = small.wire()
    wire.send(Connect("again"))
    try:
        return wire.read_frame() is not None
    except (BrokenPipeError, ConnectionResetError):
        return False


def test_the_reserve_grows_with_what_the_configuration_opens(tmp_path: Path) -> None:
    def reserved(text: str) -> int:
        path = tmp_path / "mosq.conf"
        path.write_text(text)
        return descriptors_reserved(load_config(str(path)))

    plain = reserved("listener 1883\n")
    assert reserved("listener 1883\nlistener 1884\nprotocol http_api\n") >= plain + 64
    assert reserved("listener 1883\npersistence true\nstream all # shards 8\n") >= plain + 16
    assert reserved("listener 1883\nconnection b\naddress h\ntopic #\n") > plain


def test_the_room_for_connections_is_a_statistic() -> None:
    with mosq.Broker() as broker:
        assert 0 < broker.stats()["connections_room"] < resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        with socket.create_connection(("127.0.0.1", broker.port)):
            until(lambda: broker.stats()["newcomers"] == 1)
        until(lambda: broker.stats()["newcomers"] == 0)
