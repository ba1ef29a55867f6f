"""Test workers that are linked over TCP, as if each was on a machine of its own."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

import pytest

from cext.testing import link_api
from mosq.cluster import wires
from mosq.cluster.reach import PER_ADDRESS
from tests.cli.certified import context, site_files
from tests.cluster.pair import SECRET, WIRES_HOST, Node, cluster, id_of, introduce, three_ports
from tests.harness.broker import free_port
from tests.harness.packets import Connect, Disconnect, Pingreq, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel, Will
from tests.harness.properties import P
from tests.harness.proxy import Proxy
from tests.harness.wire import Wire
from tests.link.test_frames import HELLO, OPEN
from tests.workers.case import accepted, until
from tests.workers.test_links import NO_RETAINED, publish, received, subscribe

FIRST = "listener {port} {host}\nallow_anonymous true\n"
NO_SUBSCRIBER = 0x10
STORE = "persistence true\npersistence_location {dir}/\n"
SESSION = ((P.SESSION_EXPIRY, 600),)


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Node]]:
    with cluster(2, "max_keepalive 0\n") as running:
        yield running


@pytest.fixture(scope="module")
def listeners() -> Iterator[list[Node]]:
    """Run two workers; their second listener has WebSockets, and their third one TLS."""
    tls = "cafile {dir}/ca.crt\ncertfile {dir}/server.crt\nkeyfile {dir}/server.key\n"
    with cluster(2, f"{FIRST}listener {{second}} {{host}}\nprotocol websockets\nallow_anonymous true\nlistener {{third}} {{host}}\nallow_anonymous true\n{tls}",
                 site_files(tls)) as running:
        yield running


# ---------------------------------------------------------------- links

@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_reaches_a_subscriber_on_another_machine(nodes: list[Node], qos: int) -> None:
    receiver, sender = nodes[1].connect(id_of(1, 2, "sub")), nodes[0].connect(id_of(0, 2, "pub"))
    subscribe(receiver, f"far/{qos}", qos=qos)
    for mid in range(1, 20):
        publish(sender, f"far/{qos}", b"%d" % mid, qos, mid)
    assert received(receiver, 19) == [(b"%d" % mid, qos) for mid in range(1, 20)]


def test_a_retained_message_is_known_on_another_machine(nodes: list[Node]) -> None:
    sender, receiver = nodes[0].connect(id_of(0, 2, "pub")), nodes[1].connect(id_of(1, 2, "sub"))
    for name in ("kept/a", "kept/b", "kept/c"):        # each has its own owner
        sender.send(Publish(name, name.encode(), 1, 1, retain=True))
        sender.expect_packet(Puback(1, NO_SUBSCRIBER))
    subscribe(receiver, "kept/#")
    assert {payload for payload, _ in received(receiver, 3)} == {b"kept/a", b"kept/b", b"kept/c"}


def test_a_shared_group_has_members_on_both_machines(nodes: list[Node]) -> None:
    members = [node.connect(id_of(node.slot, 2, "member")) for node in nodes]
    for member in members:
        subscribe(member, "$share/g/work", qos=1)
    sender = nodes[0].connect(id_of(0, 2, "pub"))
    got: list[bytes] = []
    for mid in range(1, 17):
        publish(sender, "work", b"%d" % mid, 1, mid)
    for member in members:
        member.send(Pingreq())
        while not isinstance(one := member.read_packet(), Pingresp):
            assert isinstance(one, Publish)
            got.append(one.payload)
            member.send(Puback(one.mid))
    assert sorted(got) == sorted(b"%d" % mid for mid in range(1, 17))


def test_the_will_of_a_client_reaches_another_machine(nodes: list[Node]) -> None:
    receiver = nodes[1].connect(id_of(1, 2, "sub"))
    subscribe(receiver, "will", qos=1)
    nodes[0].connect(id_of(0, 2, "dies"), will=Will("will", b"gone", 1)).reset()
    assert received(receiver, 1) == [(b"gone", 1)]


# ---------------------------------------------------------------- processes and connections that end

def test_a_killed_worker_comes_back_with_its_sessions() -> None:
    with cluster(2, STORE) as nodes:
        name = id_of(1, 2, "durable")
        subscribe(nodes[1].connect(name, clean=False, props=SESSION), "again", qos=1)
        sender = nodes[0].connect(id_of(0, 2, "pub"))
        nodes[1].die()
        sender.send(Publish("again", b"1", 1, 1))       # it is acknowledged when the other worker is back
        nodes[1].start()
        introduce(nodes)
        sender.expect_packet(Puback(1))
        assert received(nodes[1].connect(name, clean=False, props=SESSION), 1) == [(b"1", 1)]


def test_a_late_end_of_an_earlier_process_does_not_lock_out_the_later_one() -> None:
    with cluster(2) as nodes:
        nodes[1].wait_log("The link to worker 1", 1)
        nodes[1].die()
        nodes[1].start()
        nodes[1].know({0: nodes[0].place()})            # the later process proves itself before the table names it
        nodes[1].wait_log("The link to worker 1", 2)
        nodes[0].know({1: None})                        # its connections are closed, and it opens them again
        nodes[1].wait_log("The link to worker 1", 3)
        nodes[0].know({1: nodes[1].place()})
        receiver, sender = nodes[1].connect(id_of(1, 2, "sub")), nodes[0].connect(id_of(0, 2, "pub"))
        subscribe(receiver, "later", qos=1)
        publish(sender, "later", b"1", 1, 1)
        assert received(receiver, 1) == [(b"1", 1)]


def test_a_process_that_others_take_for_replaced_ends() -> None:
    with cluster(2) as nodes:
        nodes[1].die()
        nodes[1].start()
        introduce(nodes)
        nodes[1].connect(id_of(1, 2, "c"))              # the others know token 2
        nodes[1].die()
        nodes[1].token = 0
        nodes[1].start()
        nodes[1].know({0: nodes[0].place()})
        until(lambda: not nodes[1].alive(), nodes[1].log)
        assert "Error: Other workers refuse this process, because they know a later one of its worker." in nodes[1].log()


def test_a_worker_that_has_ended_for_sure_delays_no_subscription() -> None:
    with cluster(2, "route_timeout 3600\n") as nodes:
        nodes[1].die()
        nodes[0].know({1: None})
        subscribe(nodes[0].connect(id_of(0, 2, "sub")), "new", qos=NO_RETAINED)


def test_a_worker_moves_to_another_address() -> None:
    with cluster(2) as nodes:
        receiver = nodes[0].connect(id_of(0, 2, "sub"))
        subscribe(receiver, "moved", qos=1)
        nodes[1].die()
        nodes[0].know({1: None})
        nodes[1].wires_port = free_port()
        nodes[1].start()
        introduce(nodes)
        publish(nodes[1].connect(id_of(1, 2, "pub")), "moved", b"1", 1, 1)
        assert received(receiver, 1) == [(b"1", 1)]


def test_links_that_are_cut_lose_and_double_nothing() -> None:
    """Cut the connections between PUBLISH, PUBREC and PUBREL, again and again, in both directions."""
    with cluster(2, STORE) as nodes, Proxy(nodes[0].wires_port) as to_0, Proxy(nodes[1].wires_port) as to_1:
        nodes[0].know({1: (WIRES_HOST, to_1.port, 1)})
        nodes[1].know({0: (WIRES_HOST, to_0.port, 1)})
        receivers = [node.connect(id_of(node.slot, 2, "sub")) for node in nodes]
        senders = [node.connect(id_of(node.slot, 2, "pub")) for node in nodes]
        for receiver, name in zip(receivers, ("from1", "from0"), strict=True):
            subscribe(receiver, name, qos=2)
        for mid in range(1, 101):
            for slot, sender in enumerate(senders):
                sender.send(Publish(f"from{slot}", b"%d" % mid, 2, mid))
                cut_at(mid % 8 == 0, to_0, to_1)
                sender.expect_packet(Pubrec(mid))
                cut_at(mid % 8 == 4, to_0, to_1)
                sender.send(Pubrel(mid))
                sender.expect_packet(Pubcomp(mid))
        for receiver in receivers:
            assert received(receiver, 100) == [(b"%d" % mid, 2) for mid in range(1, 101)]
        assert to_0.n_cuts and to_1.n_cuts


def cut_at(now: bool, *proxies: Proxy) -> None:
    for proxy in proxies if now else ():
        proxy.cut()


def test_a_worker_of_an_older_run_gets_no_link() -> None:
    with cluster(2) as nodes:
        nodes[1].know({0: (WIRES_HOST, nodes[0].wires_port, 2)})        # a newer process of this worker is announced
        nodes[1].wait_log("another one has replaced")


# ---------------------------------------------------------------- relays

def relayed(nodes: list[Node], name: str = "relayed", **how: object) -> Wire:
    """Return a client that has come to the first worker, and belongs to the second one."""
    return nodes[0].connect(id_of(1, 2, name), **how)       # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, 20_000, 1_900_000])
def test_a_client_is_served_by_the_worker_of_its_id(nodes: list[Node], size: int) -> None:
    client, other = relayed(nodes), nodes[1].connect(id_of(1, 2, "other"))
    subscribe(client, "to/relayed", qos=1)
    subscribe(other, "from/relayed", qos=1)
    payload = bytes(range(256)) * (size // 256)
    publish(other, "to/relayed", payload, 1, 1)
    assert received(client, 1) == [(payload, 1)]
    publish(client, "from/relayed", payload, 1, 1)
    assert received(other, 1) == [(payload, 1)]
    client.send(Disconnect())
    client.expect_closed()


def test_many_clients_come_at_once(nodes: list[Node]) -> None:
    clients = [nodes[0].wire() for _ in range(100)]
    for i, client in enumerate(clients):
        client.send(Connect(id_of(1, 2, f"many{i}-")))
    for client in clients:
        accepted(client)
        client.close()


def test_bytes_behind_connect_are_not_lost(nodes: list[Node]) -> None:
    client = nodes[0].wire()
    client.send(Connect(id_of(1, 2, "early")), Publish("nowhere", b"x" * 50_000, 1, 1), Pingreq())
    accepted(client)
    client.expect_packet(Puback(1, NO_SUBSCRIBER))
    client.expect_packet(Pingresp())


@pytest.mark.parametrize("listener", [1, 2], ids=["websocket", "tls"])
def test_transports_end_at_the_accepting_worker(listeners: list[Node], listener: int) -> None:
    how: dict[str, object] = {"tls": context(None)} if listener == 2 else {"websocket": True}
    client = listeners[0].wire(listener, **how)
    client.send(Connect(id_of(1, 2, "relayed")))
    accepted(client)
    subscribe(client, "loop", qos=1)
    client.send(Publish("loop", b"x" * 200_000, 1, 7))
    found = [client.read_packet() for _ in range(2)]
    assert Puback(7) in found and any(isinstance(one, Publish) and len(one.payload) == 200_000 for one in found)


def test_keepalive_counts_where_the_client_is_served(nodes: list[Node]) -> None:
    client = relayed(nodes, "silent", level=4, keepalive=1)
    client.expect_closed()
    nodes[1].wait_log("disconnected: exceeded timeout")


def test_the_will_of_a_relayed_client_is_sent(nodes: list[Node]) -> None:
    receiver = nodes[1].connect(id_of(1, 2, "sub"))
    subscribe(receiver, "will/relayed", qos=1)
    relayed(nodes, "dies", will=Will("will/relayed", b"gone", 1)).reset()
    assert received(receiver, 1) == [(b"gone", 1)]


def test_a_client_that_comes_to_the_other_machine_takes_over(nodes: list[Node]) -> None:
    first = relayed(nodes, "moves", level=4)
    nodes[1].connect(id_of(1, 2, "moves"), level=4)
    first.expect_closed()


def test_a_relay_that_breaks_ends_its_client() -> None:
    with cluster(2) as nodes, Proxy(nodes[1].wires_port) as proxy:
        nodes[0].know({1: (WIRES_HOST, proxy.port, 1)})
        receiver = nodes[1].connect(id_of(1, 2, "sub"))
        subscribe(receiver, "will", qos=1)
        with_will = relayed(nodes, "dies", level=4, will=Will("will", b"gone", 1))
        proxy.cut()
        with_will.expect_closed()
        assert received(receiver, 1) == [(b"gone", 1)]
        last = until(lambda: attempt(nodes, "last"))    # it may get a connection whose reset is still on its way
        nodes[1].die()
        last.expect_closed()


def attempt(nodes: list[Node], name: str) -> Wire | None:
    """Return a relayed client; None if its connection ends before it is accepted."""
    client = nodes[0].wire(level=4)
    client.send(Connect(id_of(1, 2, name)))
    return client if client.read_frame() is not None else None


def test_a_client_of_a_listener_that_the_other_machine_lacks_is_refused() -> None:
    ports = three_ports()
    with Node(0, 2, FIRST + "listener {second} {host}\nallow_anonymous true\n", ports=ports) as one, Node(1, 2, FIRST, ports=ports) as other:
        introduce([one, other])
        client = one.wire(1)
        client.send(Connect(id_of(1, 2)))
        client.expect_closed()
        other.wait_log(f"a listener on port {ports[1]} that this node does not have")


# ---------------------------------------------------------------- strangers

@pytest.mark.parametrize(("how", "line"), [({"secret": b"the secret of another one, long enough"}, "the secrets differ"), ({"cluster": "two"}, "belongs to another cluster")])
def test_workers_that_do_not_belong_together_say_so(how: dict[str, object], line: str) -> None:
    with Node(0, 2) as one, Node(1, 2, **how) as other:      # type: ignore[arg-type]
        introduce([one, other])
        one.wait_log(line)
        other.wait_log(line)


def stranger(node: Node, source: str = "127.0.0.9") -> socket.socket:
    return socket.create_connection((WIRES_HOST, node.wires_port), source_address=(source, 0), timeout=20)


def proved(node: Node, kind: int, slot: int, token: int = 1) -> tuple[socket.socket, wires.Dialling]:
    """Return a connection of a peer that has proved to be this worker, which `node` has accepted, and its side of the handshake."""
    side = wires.Dialling(wires.Own("one", SECRET, slot, token), os.urandom(wires.NONCE_BYTES), kind, node.slot)
    sock = stranger(node)
    sock.sendall(side.begin())
    while side.wants:
        sock.sendall(side.take(sock.recv(side.wants)))
    return sock, side


def test_garbage_is_refused(nodes: list[Node]) -> None:
    with stranger(nodes[0], "127.0.0.8") as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(100) == b""
    nodes[0].wait_log("a connection from 127.0.0.8 is refused: the other side does not speak the protocol of workers")


def test_a_worker_cannot_open_the_link_of_another_one() -> None:
    """Prove to be worker 3, and send the HELLO of worker 2. Several attempts have one line in the log."""
    hello = link_api.encode({"type": HELLO, "version": 1, "slot": 1, "workers": 3, "log": 5, "run": 1})
    other = link_api.encode({"type": OPEN, "identity": 77})
    with cluster(3) as nodes, contextlib.ExitStack() as open_ones:
        for frame in (hello, hello, hello, other):
            sock = open_ones.enter_context(proved(nodes[0], wires.LINK, 2)[0])
            sock.sendall(frame)
            with contextlib.suppress(ConnectionResetError):
                assert sock.recv(100) == b""
        nodes[0].wait_log("worker 3 has sent a frame with a wrong type")
        assert nodes[0].log().count("worker 3 has sent a frame with a wrong number of the worker") == 1


def test_half_handshakes_of_a_stranger_are_bounded_and_delay_no_worker() -> None:
    with cluster(2) as nodes, contextlib.ExitStack() as open_ones:
        for _ in range(PER_ADDRESS):
            open_ones.enter_context(stranger(nodes[0])).sendall(b"mq")
        refused = open_ones.enter_context(stranger(nodes[0]))
        refused.sendall(b"mq")
        assert refused.recv(100) == wires.refusal(wires.BUSY)
        nodes[1].die()
        nodes[1].start()
        introduce(nodes)
        nodes[1].connect(id_of(1, 2)).close()
