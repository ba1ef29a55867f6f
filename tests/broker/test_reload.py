"""Give a running engine a new configuration: check changed, unchanged and reverted settings. tests/cli tests the control plane's
part (files, signals)."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mosq.engine import new_engine
from tests.harness.broker import free_port
from tests.harness.effort import TIMEOUT_S
from tests.harness.packets import Connack, Connect, Publish, Suback, Subscribe
from tests.harness.properties import P
from tests.harness.wire import Wire

LOCAL = "127.0.0.1"


def listener(port: int, **options: object) -> dict[int, object]:
    return {"port": port, "host": LOCAL, "allow_anonymous": True, **options}


class Running:
    def __init__(self, settings: dict[str, object], listeners: list[dict[str, object]], securities: list[dict[str, object]]) -> None:
        self.engine = new_engine({"log_mask": 0, **settings}, listeners, securities)  # type: ignore[arg-type]
        self.engine.open()
        started = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        self.thread.start()
        started.wait()

    def _run(self, started: threading.Event) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {signal.SIGSEGV, signal.SIGABRT})
        self.engine.run(started.set)

    def reload(self, settings: dict[str, object], listeners: list[dict[str, object]], securities: list[dict[str, object]] | None = None) -> None:
        self.engine.reload({"log_mask": 0, **settings}, listeners, securities or [{}])  # type: ignore[arg-type]

    def stop(self) -> None:
        self.engine.stop()
        self.thread.join()


Run = Callable[..., Running]


@pytest.fixture
def run() -> Iterator[Run]:
    made: list[Running] = []

    def make(settings: dict[str, object], listeners: list[dict[str, object]], securities: list[dict[str, object]] | None = None) -> Running:
        made.append(Running(settings, listeners, securities or [{}]))
        return made[-1]

    yield make
    for one in made:
        one.stop()


Dial = Callable[..., Wire]


@pytest.fixture
def dial() -> Iterator[Dial]:
    made: list[Wire] = []

    def make(port: int, client_id: str, level: int = 5) -> Wire:
        made.append(Wire(port, level))
        made[-1].send(Connect(client_id=client_id))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def connected(dial: Dial) -> Dial:
    def make(port: int, client_id: str, level: int = 5) -> Wire:
        wire = dial(port, client_id, level)
        answer = wire.read_packet()
        assert isinstance(answer, Connack), answer
        return wire

    return make


def connack_props(wire: Wire) -> dict[int, object]:
    answer = wire.read_packet()
    assert isinstance(answer, Connack), answer
    return dict(answer.props)


def refused(port: int) -> bool:
    try:
        socket.create_connection((LOCAL, port), timeout=2).close()
    except ConnectionRefusedError:
        return True
    return False


def subscribe(wire: Wire, pattern: str) -> None:
    wire.send(Subscribe(1, ((pattern, 0),)))
    assert isinstance(wire.read_packet(), Suback)


def test_a_reload_adds_and_removes_listeners(run: Run, dial: Dial, connected: Dial) -> None:
    ports = [free_port() for _ in range(3)]
    broker = run({}, [listener(ports[0]), listener(ports[1])])
    stays, goes = connected(ports[0], "stays"), connected(ports[1], "goes")
    broker.reload({}, [listener(ports[2]), listener(ports[0])])
    assert broker.engine.ports() == [ports[2], ports[0]]
    assert goes.read_frame() == b"\xe0\x01\x98"     # reason code: administrative action, because its listener is gone
    goes.expect_closed()
    assert refused(ports[1])
    stays.expect_nothing()
    connected(ports[2], "new").expect_nothing()
    connected(ports[0], "also new").expect_nothing()


def test_the_only_listener_moves_to_another_address_of_its_port(run: Run, dial: Dial, connected: Dial) -> None:
    port = free_port()
    broker = run({}, [listener(port)])
    broker.reload({}, [listener(port, host="127.0.0.2")])
    assert refused(port)
    with socket.create_connection(("127.0.0.2", port), timeout=2) as sock:
        sock.sendall(Connect(client_id="x").encode(4))
        assert sock.recv(4) == b"\x20\x02\x00\x00"
    broker.reload({}, [listener(port, host="0.0.0.0")])
    connected(port, "y").expect_nothing()


def test_a_port_in_use_changes_nothing(run: Run, dial: Dial, connected: Dial) -> None:
    port, other = free_port(), free_port()
    broker = run({"max_keepalive": 0}, [listener(port, max_qos=2), listener(other)])
    here = connected(port, "here")
    with socket.socket() as taken:
        taken.bind((LOCAL, 0))
        taken.listen()
        in_use = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on {LOCAL} port {in_use}"):
            broker.reload({"max_keepalive": 10}, [listener(port, max_qos=0), listener(other, host="127.0.0.3"), listener(in_use)])
    here.expect_nothing()
    for p in (port, other):             # the reload closed `other` first, and opened it again
        props = connack_props(dial(p, f"c{p}"))
        assert P.SERVER_KEEPALIVE not in props
        assert P.MAXIMUM_QOS not in props


def test_invalid_settings_change_nothing(run: Run, dial: Dial, connected: Dial) -> None:
    port = free_port()
    broker = run({}, [listener(port)])
    with pytest.raises(ValueError, match="max_inflight_messages is 70000"):
        broker.reload({"max_inflight_messages": 70000}, [listener(port)])
    with pytest.raises(ValueError, match="security is 1"):
        broker.reload({}, [listener(port, security=1)])
    connected(port, "x").expect_nothing()


def test_new_settings_apply_to_later_connections(run: Run, dial: Dial, connected: Dial) -> None:
    port = free_port()
    broker = run({}, [listener(port)])
    before = connected(port, "before")
    broker.reload({"max_packet_size": 1000, "max_inflight_messages": 7, "retain_available": 0},
                  [listener(port, max_qos=1, max_topic_alias=3, auto_id_prefix="new-")])
    props = connack_props(dial(port, ""))
    assert str(props.pop(P.ASSIGNED_ID)).startswith("new-")
    assert props == {P.TOPIC_ALIAS_MAXIMUM: 3, P.MAXIMUM_PACKET_SIZE: 1000, P.RECEIVE_MAXIMUM: 7, P.MAXIMUM_QOS: 1, P.RETAIN_AVAILABLE: 0}
    before.send(Publish("a", b"x", props=((P.TOPIC_ALIAS, 10),)))      # the maximum from its CONNACK stays valid [v5 3.2.2.3.8]
    before.expect_nothing()
    before.send(Publish("", b"x", props=((P.TOPIC_ALIAS, 10),)))
    before.expect_nothing()


def test_new_access_rules_apply_to_connected_clients(run: Run, dial: Dial, connected: Dial) -> None:
    port = free_port()
    everything = [{"acl": [(None, "topic", "readwrite", "#")]}]
    broker = run({}, [listener(port)], everything)
    wire = connected(port, "x", 4)
    subscribe(wire, "a/#")
    wire.send(Publish("a/1", b"1"))
    assert wire.expect_packet(Publish("a/1", b"1"))
    broker.reload({}, [listener(port)], [{"acl": [(None, "topic", "read", "#")]}])
    wire.send(Publish("a/1", b"2"))
    wire.expect_nothing()
    broker.reload({}, [listener(port)], [{"acl": None}])
    wire.send(Publish("a/1", b"3"))
    assert wire.expect_packet(Publish("a/1", b"3"))


def test_again_and_again(run: Run, dial: Dial, connected: Dial) -> None:
    ports = [free_port() for _ in range(4)]
    broker = run({}, [listener(ports[0])])
    keeper = connected(ports[0], "keeper")
    fds = len(os.listdir("/proc/self/fd"))
    for i in range(60):
        some = [listener(port) for k, port in enumerate(ports[1:]) if (i >> k) & 1]
        securities: list[dict[str, object]] = [{"acl": None}, *({"acl": [(None, "topic", "read", f"{i}/#")]} for _ in some)]
        broker.reload({"sys_interval": i % 3, "shared_strategy": "random\nsticky g"},
                      [listener(ports[0]), *(dict(one, security=k + 1) for k, one in enumerate(some))], securities)
        for one in some:
            connected(int(str(one["port"])), f"c{one['port']}").close()
    broker.reload({}, [listener(ports[0])])
    keeper.expect_nothing()
    assert len(os.listdir("/proc/self/fd")) <= fds + 20     # clients of the last round may still be closing


def test_a_reload_of_a_stopped_broker() -> None:
    port = free_port()
    engine = new_engine({}, [listener(port)], [{}])  # type: ignore[list-item]
    with pytest.raises(RuntimeError, match="not running"):
        engine.reload({}, [listener(port)], [{}])  # type: ignore[list-item]


# ---------------------------------------------------------------- options of sockets and listeners


def nodelay(client: Wire) -> bool:
    """Return TCP_NODELAY of the broker's socket for this client; the broker runs in this process."""
    ours = client.sock.getsockname()
    for fd in os.listdir("/proc/self/fd"):
        try:
            copy = os.dup(int(fd))
        except OSError:             # the descriptor of the directory listing
            continue
        if not os.path.sameopenfile(copy, client.sock.fileno()) and os.fstat(copy).st_mode & 0o170000 == 0o140000:
            with socket.socket(fileno=copy) as end:
                try:
                    if end.getpeername() == ours:
                        return bool(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
                except OSError:     # a listening socket, or one of another family
                    continue
        else:
            os.close(copy)
    raise AssertionError("the broker's end is not here")


@pytest.mark.parametrize("first", [0, 1])
def test_set_tcp_nodelay(run: Run, connected: Dial, first: int) -> None:
    port = free_port()
    broker = run({"set_tcp_nodelay": first}, [listener(port)])
    before = connected(port, "before")
    assert nodelay(before) == bool(first)
    broker.reload({"set_tcp_nodelay": 1 - first}, [listener(port)])
    assert nodelay(connected(port, "after")) == (not first)
    assert nodelay(before) == bool(first)
    before.expect_nothing()


@pytest.mark.parametrize(("was", "becomes"), [
    ({}, {"protocol": "websockets"}), ({"protocol": "websockets"}, {}), ({}, {"enable_proxy_protocol": 1}), ({"enable_proxy_protocol": 1}, {}),
])
def test_another_protocol_restarts_the_listener(run: Run, was: dict[str, object], becomes: dict[str, object]) -> None:
    """Test that the listener disconnects its clients when it changes to another protocol; its port stays the same."""
    port, other = free_port(), free_port()
    broker = run({}, [listener(port, **was), listener(other)])
    clients = [speaks(port, "here", was), speaks(other, "there", {})]
    broker.reload({}, [listener(port, **becomes), listener(other)])
    assert broker.engine.ports() == [port, other]
    clients[0].expect(b"\xe0\x01\x98")
    clients[0].expect_closed()
    clients[1].expect_nothing()
    clients.append(speaks(port, "new", becomes))
    clients[2].expect_nothing()
    for client in clients:
        client.close()


def speaks(port: int, client_id: str, options: dict[str, object]) -> Wire:
    """Connect a client to a listener with these options."""
    wire = Wire(port, 5, websocket=options.get("protocol") == "websockets")
    if options.get("enable_proxy_protocol"):
        wire.send(b"PROXY TCP4 10.1.2.3 10.0.0.1 4321 1883\r\n")
    wire.send(Connect(client_id=client_id))
    assert isinstance(wire.read_packet(), Connack)
    return wire


def test_another_protocol_at_a_unix_socket_keeps_its_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "s"
    broker = run({}, [unix(path)])
    inode = path.stat().st_ino
    broker.reload({}, [unix(path, enable_proxy_protocol=1)])
    assert path.stat().st_ino == inode
    assert response(path, b"PROXY UNKNOWN\r\n" + Connect(client_id="x").encode(4)) == b"\x20\x02\x00\x00"
    broker.reload({}, [unix(path)])
    assert response(path, Connect(client_id="x").encode(4)) == b"\x20\x02\x00\x00"
    broker.reload({}, [listener(free_port())])
    assert not path.exists()


def test_another_protocol_in_a_reload_that_fails_changes_nothing(run: Run, tmp_path: Path) -> None:
    path, port = tmp_path / "s", free_port()
    broker = run({}, [listener(port), unix(path)])
    here = speaks(port, "here", {})
    with socket.create_server((LOCAL, 0)) as taken, pytest.raises(OSError, match="in use"):
        broker.reload({}, [listener(port, protocol="websockets"), unix(path, enable_proxy_protocol=1), listener(taken.getsockname()[1])])
    here.expect_nothing()
    here.close()
    speaks(port, "again", {}).close()
    assert response(path, Connect(client_id="x").encode(4)) == b"\x20\x02\x00\x00"


def unix(path: Path, **options: object) -> dict[str, object]:
    return {"path": str(path), "port": 0, "allow_anonymous": True, **options}


def response(path: Path, to: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(TIMEOUT_S)
        sock.connect(str(path))
        sock.sendall(to)
        return sock.recv(4)
