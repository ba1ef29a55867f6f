"""Test bridges over a faulty network, and with faulty remote brokers: no message is lost, and local clients notice nothing."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.bridge import flow
from tests.bridge.conftest import Client, Site, World, block, unused_port, wait_for
from tests.harness.broker import Broker, free_port
from tests.harness.effort import AT_ONCE_S
from tests.harness.packets import Connack, Publish
from tests.net.test_outward import deaf

# the run with a million messages and a hundred cuts: python -m tests.bridge.flow --help
ROOM = "max_queued_messages 0\n"


@pytest.mark.parametrize(("qos", "direction", "far_is"), [
    (1, "out", "mosq"), (2, "in", "mosq"), (2, "out", "mosquitto"),
    *(pytest.param(*row, marks=pytest.mark.part("kills")) for row in ((1, "in", "mosq"), (2, "out", "mosq"), (1, "in", "mosquitto")))])
def test_repeated_connection_losses(world: World, qos: int, direction: str, far_is: str) -> None:
    """Test that no message is lost or out of order within a topic, and that no QoS 2 message arrives twice."""
    far = world.mosq(extra=ROOM) if far_is == "mosq" else world.mosquitto(ROOM + "max_inflight_messages 1000\n")
    proxy = world.proxy(far.port)
    near = world.mosq(block(proxy.port, topics=(f"flow/# {direction} {qos}", "joined out 0")), ROOM)
    wait_for(near, far, world)
    n = 3000
    for seed in range(qos, qos + 5):         # all messages may arrive before the second cut is due: then repeat the run
        count = flow.run(near.port, far.port, proxy, n, 2, qos, direction, by_bytes=True, seed=seed)
        assert (count.n, count.reordered) == (n, 0)
        if qos == 2:
            assert count.doubled == 0
        if proxy.n_cuts >= 2:
            break
    assert proxy.n_cuts >= 2


def test_a_slow_network_loses_no_message(world: World) -> None:
    far = world.mosq()
    proxy = world.proxy(far.port)
    near = world.mosq(block(proxy.port, topics=("flow/# out 1", "joined out 0")), ROOM)
    wait_for(near, far, world)
    proxy.delay_s = 0.005
    count = flow.run(near.port, far.port, proxy, 500, 0, 1)
    assert (count.n, count.reordered, count.doubled) == (500, 0, 0)


def test_the_keepalive_detects_a_silent_network(world: World) -> None:
    far = world.mosq(extra="max_keepalive 1\n")     # a bridge of 5.0 gets the value in CONNACK
    proxy = world.proxy(far.port)
    near = world.mosq(block(proxy.port, "bridge_protocol_version mqttv50", topics=("t out 1", "joined out 0")), ROOM)
    wait_for(near, far, world, keepalive=1)
    proxy.black_hole()
    world.client(near).publish("t", b"waits", 1, retain=True)
    near.logged("local.*disconnected: exceeded timeout")         # one keepalive interval without an answer
    proxy.black_hole(False)
    near.logged("Received PUBACK from local")
    there = world.client(far, "there", keepalive=1)
    there.subscribe("t", qos=1)
    assert there.got() == ("t", b"waits")


# ---------------------------------------------------------------- local clients go on

@contextlib.contextmanager
def silent() -> Iterator[int]:
    """Accept connections, and never send a byte."""
    with socket.create_server(("127.0.0.1", 0), backlog=50) as server:
        yield int(server.getsockname()[1])


@contextlib.contextmanager
def refusing() -> Iterator[int]:
    """Accept connections, and close them."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        ended = threading.Event()

        def serve() -> None:
            while not ended.is_set():
                with contextlib.suppress(OSError):
                    server.accept()[0].close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(server.getsockname()[1])
        ended.set()
        thread.join()


@contextlib.contextmanager
def without_listener() -> Iterator[int]:
    yield unused_port()


def round_trip(client: Client) -> None:
    client.publish("local", b"x", 1)


@pytest.mark.parametrize("remote", [without_listener, silent, refusing, deaf])
def test_local_clients_are_not_disturbed(world: World, remote: Any) -> None:
    """Test that messages for the other side wait."""
    with remote() as port:
        site = world.mosq("".join(block(port, name=f"b{i}", topics=("q/# out 1",)) for i in range(5)))
        client = world.client(site)
        client.subscribe("local", qos=1)
        other = world.client(site, "other")
        for i in range(200):
            other.publish("q/x", b"%d" % i, 1)
            other.publish("local", b"%d" % i, 1)
            assert client.got() == ("local", b"%d" % i)
        assert site.alive()


def test_a_hanging_resolver_delays_no_client(world: World, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test a name server that never answers: the start, local clients, other bridges, a reload and the stop continue."""
    (tmp_path / "sitecustomize.py").write_text(
        "import socket, threading\n"
        "real = socket.getaddrinfo\n"
        "def getaddrinfo(host, *more, flags=0, **named):\n"
        "    if 'never' in str(host) and not flags & socket.AI_NUMERICHOST:\n"
        "        threading.Event().wait()\n"
        "    return real(host, *more, flags=flags, **named)\n"
        "socket.getaddrinfo = getaddrinfo\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    remote = world.remote()
    began = time.monotonic()
    bridges = block("never.example", name="hangs", topics=("q/# out 1",)) + block(f"localhost:{remote.port}", name="works", topics=("q/# out 1",))
    site = world.mosq(bridges)
    assert time.monotonic() - began < AT_ONCE_S
    peer = remote.accept()
    peer.welcome()
    client = world.client(site)
    for _ in range(50):
        round_trip(client)
    site.rewrite("user root\nlistener {port} 127.0.0.1\nallow_anonymous true\nretry_interval 1\n" + bridges)
    site.send_signal(1)
    site.logged("'retry_interval' option")
    began = time.monotonic()
    assert site.stop() == 0
    assert time.monotonic() - began < AT_ONCE_S


def test_failover_after_an_unknown_host_name(world: World) -> None:
    remote = world.remote()
    site = world.mosq(block(f"no-such-host.invalid:1883 127.0.0.1:{remote.port}"))
    remote.accept()
    site.logged("Error creating bridge b: no-such-host.invalid: .*")


def test_a_tls_handshake_that_never_ends(world: World) -> None:
    from tests.harness.certificates import authority

    with silent() as port:
        site = world.mosq(block(f"localhost:{port}", "bridge_cafile {dir}/ca.crt"), files={"ca.crt": authority().pem})
        client = world.client(site)
        for _ in range(100):
            round_trip(client)


@pytest.mark.parametrize("said", [b"\x20\x02\x00\x05", b"\x20\x7f", b"\x30\x00", b"HTTP/1.0 400 what?\r\n\r\n", b"\xff" * 100, b"\x20\x02\x02\x00",
                                  b"\x20\x02\x00\x00\x90\x03\xff\xff\x80", b"\x20\x02\x00\x00" * 2, b"\x20\x02\x00\x00\xd0\x01\x00"])
def test_a_bridge_connects_again_after_invalid_bytes(world: World, said: bytes) -> None:
    remote = world.remote()
    site = world.mosq(block(remote.port, topics=("# both 1",)))
    sock = remote.accept_raw()
    sock.sendall(said)
    client = world.client(site)
    for _ in range(20):
        round_trip(client)
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
    again = remote.accept()                 # the bridge tries again, as after any other failure
    again.send(Connack())


# ---------------------------------------------------------------- rings

def ring(world: World, n: int, version: str = "mqttv50") -> list[Broker]:
    """Start brokers of which each bridges everything, both ways, to the next."""
    ports = [free_port() for _ in range(n)]
    sites: list[Broker] = []
    for i, port in enumerate(ports):
        site = Site(f"user root\nlog_type all\nlistener {port} 127.0.0.1\nallow_anonymous true\n"
                    + block(ports[(i + 1) % n], f"bridge_protocol_version {version}", "bridge_loop_guard true", f"remote_clientid from{i}", topics=("# both 2",)))
        site.port = port
        sites.append(site)
    for site in reversed(sites):        # reversed, so that most brokers find the next one at once
        world.stack.enter_context(site)
    for i, site in enumerate(sites):
        site.logged(f"Received (SUBACK|SUBSCRIBE) from local.from{i}|Received SUBACK")
    return sites


def stands_still(sites: list[Broker]) -> None:
    """Check that no message circulates: the counts of sent messages in the logs stay the same when each broker has answered twice."""
    def carried() -> list[int]:
        return [site.log().count("Sending PUBLISH") for site in sites]

    deadline = time.monotonic() + 10
    before, same = carried(), 0
    while same < 5:
        assert time.monotonic() < deadline, before
        time.sleep(0.05)
        now = carried()
        same = same + 1 if now == before else 0
        before = now


@pytest.mark.parametrize("n", [2, 3])
def test_messages_do_not_loop_in_a_ring_of_bridges(world: World, n: int) -> None:
    """Test 5.0: a client in a ring gets a message once for each direction of the ring, and no more."""
    sites = ring(world, n)
    clients = [world.client(site, "sub", 5) for site in sites]
    for client in clients:
        client.subscribe("t", qos=1)
    world.client(sites[0], "pub", 5).publish("t", b"x", 1)
    for client in clients:
        assert client.take().payload == b"x"
    stands_still(sites)
    for client in clients:
        copies = 1
        with contextlib.suppress(TimeoutError):
            while client.take(0.01):
                copies += 1
        assert copies <= 4


def test_messages_cross_a_chain_of_three_brokers(world: World) -> None:
    """Test any mix of versions."""
    last = world.mosq()
    middle = world.mosq(block(last.port, "remote_clientid middle", topics=("# both 2", "joined out 0")))
    first = world.mosq(block(middle.port, "remote_clientid first", "bridge_protocol_version mqttv50", topics=("# both 2", "joined out 0")))
    wait_for(first, last, world)
    clients = [world.client(site, "sub") for site in (first, middle, last)]
    for client in clients:
        client.subscribe("t", qos=2)
    world.client(first, "pub").publish("t", b"down", 2)
    world.client(last, "pub").publish("t", b"up", 2)
    for client in clients:
        assert {client.take().payload, client.take().payload} == {b"down", b"up"}
        client.expect_nothing()


def test_a_bridge_of_an_embedded_broker(world: World) -> None:
    import mosq

    remote = world.remote()
    with mosq.Broker("sys_interval 0\n" + block(f"localhost:{remote.port}", topics=("# both 1",))) as inside:
        peer = remote.accept()
        peer.welcome()
        world.client(inside.port).publish("t", b"x", 1)
        assert isinstance(peer.answered(), Publish)
        peer.reset()
        remote.accept()                 # it connects again after its pause
