"""Test clients that one worker accepts and another one serves, as if each was on a machine of its own: their names and addresses, slow ones, and those
whose other worker does not answer."""

from __future__ import annotations

import re
import time

import pytest

from tests.cli.certified import context, site_files
from tests.cluster.pair import WIRES_HOST, Node, cluster, id_of
from tests.cluster.test_reach import relayed
from tests.harness.packets import Connect, Pingreq, Pingresp, Publish, Will
from tests.harness.proxy import Proxy
from tests.harness.wire import Wire
from tests.net import test_proxy
from tests.workers.case import accepted, until
from tests.workers.test_links import publish, received, subscribe

FIRST = "listener {port} {host}\nallow_anonymous true\n"
SLOW_S = 8.0            # longer than a worker may be silent


# ---------------------------------------------------------------- names and addresses

def test_the_address_of_a_proxy_goes_along() -> None:
    with cluster(2, f"{FIRST}listener {{second}} {{host}}\nenable_proxy_protocol 2\nrequire_certificate true\n"
                 "use_identity_as_username true\nallow_anonymous true\n") as nodes:
        client = nodes[0].wire(1)
        client.send(test_proxy.v2(tlvs=test_proxy.ssl(7, 0, test_proxy.tlv(0x22, b"device"))), Connect(id_of(1, 2, "behind")))
        accepted(client)
        until(lambda: re.search(r"New client connected from 10\.1\.2\.3:4321 as behind.*u'device'", nodes[1].log()), nodes[1].log)


def test_the_name_of_a_certificate_goes_along() -> None:
    tls = "cafile {dir}/ca.crt\ncertfile {dir}/server.crt\nkeyfile {dir}/server.key\nrequire_certificate true\nuse_identity_as_username true\n"
    with cluster(2, f"{FIRST}listener {{second}} {{host}}\nallow_anonymous true\n{tls}", site_files(tls)) as nodes:
        client = nodes[0].wire(1, tls=context("ann"))
        client.send(Connect(id_of(1, 2, "certified"), username="ben"))
        accepted(client)
        until(lambda: re.search(r"New client connected from .* as certified.*u'ann'", nodes[1].log()), nodes[1].log)


OPEN, CLOSED = "listener {port} {host}\nallow_anonymous true\n", "listener {port} {inner}\nallow_anonymous false\npassword_file {dir}/users\n"


def greet(node: Node, host: str, slot: int) -> int:
    """Return the reason code that a client without a user name gets; -1: no answer."""
    client = node.wire(host=host)
    client.send(Connect(id_of(slot, 2, "guest")))
    frame = client.read_frame()
    return frame[3] if frame is not None else -1


@pytest.mark.parametrize("listeners", [OPEN + CLOSED, CLOSED + OPEN])
def test_of_two_listeners_with_one_port_that_of_the_client_decides(listeners: str) -> None:
    """Test that a client which another node serves has the rights of its own listener, and not of one that is open for others."""
    with cluster(2, f"per_listener_settings true\n{listeners}", {"users": ""}) as nodes:
        for node in nodes:
            assert [greet(node, host, slot) for host in (node.host, node.inner) for slot in range(2)] == [0, 0, 0x87, 0x87]


def test_a_client_of_a_listener_that_decides_otherwise_is_refused() -> None:
    """Test that a client is not served by another one of two listeners with its port."""
    second = "listener {port} {inner}\nallow_anonymous true\nmax_qos 0\n"
    with cluster(2, f"per_listener_settings true\n{OPEN}{second}") as nodes:
        assert greet(nodes[0], nodes[0].inner, 1) == 0
        nodes[1].stop()
        nodes[1].config.write_text(nodes[1].config.read_text().replace("max_qos 0", "max_qos 1"))
        nodes[1].start()
        relayed(nodes)
        assert greet(nodes[0], nodes[0].inner, 1) == -1
        nodes[1].wait_log("that this node does not have. The client is refused. Give all nodes the same listeners, with the same options.")


def test_workers_reach_each_other_with_ipv6() -> None:
    with cluster(2, wires_host="::1") as nodes:
        receiver = relayed(nodes)
        subscribe(receiver, "six", qos=1)
        publish(nodes[0].connect(id_of(0, 2, "pub")), "six", b"1", 1, 1)
        assert received(receiver, 1) == [(b"1", 1)]


# ---------------------------------------------------------------- a slow client

@pytest.mark.timing
def test_a_relayed_client_that_does_not_read_is_kept_and_delays_no_other() -> None:
    """TCP_USER_TIMEOUT would end its relay: the accepting worker does not read from the other one while the client's output is full."""
    with cluster(2, "max_keepalive 0\nsys_interval 1\n") as nodes:
        slow, quick = relayed(nodes, "slow"), relayed(nodes, "quick")
        sender, watcher = nodes[1].connect(id_of(1, 2, "pub")), nodes[1].connect(id_of(1, 2, "watch"))
        subscribe(slow, "much")
        subscribe(quick, "much")
        subscribe(watcher, "$SYS/broker/publish/messages/dropped")
        sent = 0
        while not dropped(watcher):
            sent_to(sender, quick, b"x" * 60_000, 100)
            sent += 100
        until_s = time.monotonic() + SLOW_S
        while time.monotonic() < until_s:
            sent_to(sender, quick, b"small")
            sent += 1
            time.sleep(0.05)
        slow.send(Pingreq())
        got = 0
        while not isinstance(one := slow.read_packet(), Pingresp):
            assert isinstance(one, Publish)
            got += 1
        assert 0 < got < sent


def sent_to(sender: Wire, quick: Wire, payload: bytes, times: int = 1) -> None:
    for _ in range(times):
        sender.send(Publish("much", payload))
        quick.expect_packet(Publish("much", payload))


def dropped(watcher: Wire) -> bool:
    """Return whether the broker reports that it has dropped a message."""
    try:
        one = watcher.read_packet(timeout_s=0.01)
    except TimeoutError:
        return False
    assert isinstance(one, Publish)
    return int(one.payload) > 0


# ---------------------------------------------------------------- a worker that does not answer

def test_a_client_that_is_relayed_to_a_stopped_worker_is_disconnected() -> None:
    with cluster(2, "cluster_watchdog 60\n") as nodes:
        client, receiver = relayed(nodes, level=4), nodes[0].connect(id_of(0, 2, "sub"))
        subscribe(receiver, "after", qos=1)
        nodes[1].suspend()
        client.expect_closed()
        nodes[0].wait_log("worker 2 at 127.0.0.1")
        again = nodes[0].wire()
        again.send(Connect(id_of(1, 2, "again")))       # it waits
        nodes[1].resume()
        accepted(again)
        publish(again, "after", b"1", 1, 1)
        assert received(receiver, 1) == [(b"1", 1)]


def test_a_network_that_carries_nothing_ends_relays_on_both_sides() -> None:
    with cluster(2) as nodes, Proxy(nodes[0].wires_port) as to_0, Proxy(nodes[1].wires_port) as to_1:
        through(nodes, to_0, to_1)
        receivers = [node.connect(id_of(node.slot, 2, "sub")) for node in nodes]
        for receiver in receivers:
            subscribe(receiver, "will", "after", qos=1)
        client = relayed(nodes, "dies", level=4, will=Will("will", b"gone", 1))
        for proxy in (to_0, to_1):
            proxy.black_hole()
        client.expect_closed()
        assert received(receivers[1], 1) == [(b"gone", 1)]
        for proxy in (to_0, to_1):
            proxy.black_hole(False)
        assert received(receivers[0], 1) == [(b"gone", 1)]
        publish(relayed(nodes, "again"), "after", b"1", 1, 1)
        for receiver in receivers:
            assert received(receiver, 1) == [(b"1", 1)]


def through(nodes: list[Node], to_0: Proxy, to_1: Proxy) -> None:
    """Let both workers reach each other through proxies only, and return when they have closed what they had before."""
    nodes[0].know({1: (WIRES_HOST, to_1.port, 1)})
    nodes[1].know({0: (WIRES_HOST, to_0.port, 1)})
    for node, proxy in zip(nodes, (to_1, to_0), strict=True):
        node.wait_log(f"at {WIRES_HOST}:{proxy.port} is open")


def test_relays_of_a_process_that_has_ended_are_closed_on_both_sides() -> None:
    """Only the table of workers knows the end here: no connection ends, and no time passes."""
    with cluster(2, "cluster_watchdog 60\n") as nodes:
        receiver = nodes[1].connect(id_of(1, 2, "sub"))
        subscribe(receiver, "will", qos=1)
        relayed(nodes, "served", level=4, will=Will("will", b"gone", 1))
        nodes[1].know({0: None})
        assert received(receiver, 1) == [(b"gone", 1)]
        nodes[1].know({0: (WIRES_HOST, nodes[0].wires_port, 2)})
