"""Test the effect of each option of a bridge as the broker at the other end sees it; the test plays that broker."""

from __future__ import annotations

import re
import signal
import socket
import time
from typing import Any

import pytest

from tests.bridge.conftest import World, block, unused_port
from tests.harness.effort import AT_ONCE_S, TIMEOUT_S
from tests.harness.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Pubrec,
    Subscribe,
    Unsubscribe,
    Will,
)
from tests.harness.properties import P
from tests.harness.remote import Peer, Remote
from tests.harness.wire import Wire

HOST = socket.gethostname()


def linked(world: World, *lines: str, topics: tuple[str, ...] = ("# both 2",), extra: str = "", **how: Any) -> tuple[Any, Remote, Peer]:
    """Return a broker, the remote one, and the connection between them, after its CONNECT."""
    remote = world.remote(**how)
    site = world.mosq(block(remote.port, *lines, topics=topics), extra)
    return site, remote, remote.accept()


def connect_of(world: World, *lines: str) -> Connect:
    return linked(world, *lines)[2].connect


def filters(got: list[Any], kind: type) -> list[Any]:
    return [one for packet in got if isinstance(packet, kind) for one in packet.filters]


# ---------------------------------------------------------------- CONNECT

def test_connect_by_default(world: World) -> None:
    """Test connection and address: the bridge connects at once, because nothing fails before the loop runs."""
    site, _, peer = linked(world)
    assert "could not connect" not in site.log()
    got = peer.connect
    assert got == Connect(f"{HOST}.b", False, 60, None, None, None, (), "MQTT", 0x84, 0)


@pytest.mark.parametrize(("line", "field", "value"), [
    ("bridge_protocol_version mqttv31", ("protocol", "level_byte"), ("MQIsdp", 0x83)),
    ("bridge_protocol_version mqttv311", ("protocol", "level_byte"), ("MQTT", 0x84)),
    ("bridge_protocol_version mqttv50", ("protocol", "level_byte"), ("MQTT", 5)),
    ("try_private false", ("level_byte",), (4,)),
    ("remote_clientid rc", ("client_id",), ("rc",)),
    ("clientid rc", ("client_id",), ("rc",)),
    ("remote_username u\nremote_password p w", ("username", "password"), ("u", b"p w")),
    ("username u\npassword pw", ("username", "password"), ("u", b"pw")),
    ("cleansession true", ("clean",), (True,)),
    ("keepalive_interval 77", ("keepalive",), (77,)),
    ("notifications true", ("will",), (Will(f"$SYS/broker/connection/{HOST}.b/state", b"0", 1, True),)),
    ("notifications true\nremote_clientid rc", ("will",), (Will("$SYS/broker/connection/rc/state", b"0", 1, True),)),
    ("notifications true\nnotification_topic a/b", ("will",), (Will("a/b", b"0", 1, True),)),
    ("notifications true\nnotifications_local_only true", ("will",), (None,)),
])
def test_connect(world: World, line: str, field: tuple[str, ...], value: tuple[Any, ...]) -> None:
    got = connect_of(world, *line.split("\n"))
    assert tuple(getattr(got, name) for name in field) == value


@pytest.mark.parametrize(("line", "name", "value"), [
    ("bridge_session_expiry_interval 3600", P.SESSION_EXPIRY, 3600),
    ("bridge_receive_maximum 7", P.RECEIVE_MAXIMUM, 7),
    ("", P.RECEIVE_MAXIMUM, 20),
    ("bridge_max_topic_alias 3", P.TOPIC_ALIAS_MAXIMUM, 3),
    ("", P.TOPIC_ALIAS_MAXIMUM, 10),
    ("", P.MAXIMUM_PACKET_SIZE, None),
    ("bridge_max_packet_size 5000", P.MAXIMUM_PACKET_SIZE, None),
])
def test_connect_properties(world: World, line: str, name: P, value: int | None) -> None:
    got = connect_of(world, "bridge_protocol_version mqttv50", *([line] if line else []))
    assert dict(got.props).get(name) == value


def test_connect_has_the_maximum_packet_size_if_it_is_configured(world: World) -> None:
    remote = world.remote()
    world.mosq(block(remote.port, "bridge_protocol_version mqttv50"), "max_packet_size 70000\n")
    assert dict(remote.accept().connect.props)[P.MAXIMUM_PACKET_SIZE] == 70000


def test_a_bridge_of_5_0_falls_back_to_3_1_1(world: World) -> None:
    site, remote, peer = linked(world, "bridge_protocol_version mqttv50", "restart_timeout 1000", topics=("# both 1",))
    assert peer.connect.level_byte == 5
    peer.level = 4
    peer.send(Connack(False, 1))
    peer = remote.accept()
    assert peer.connect.level_byte == 0x84
    site.logged(r"Warning: Remote bridge b does not support MQTT v5\.0, reconnecting using MQTT v3\.1\.1\.")
    peer.welcome("#")
    world.client(site).publish("t", b"x", 1)
    got = peer.answered()
    assert isinstance(got, Publish)
    assert got.payload == b"x"


@pytest.mark.parametrize("version", ["mqttv311", "mqttv31"])
def test_try_private_is_retried_without_the_bridge_bit(world: World, version: str) -> None:
    _, remote, peer = linked(world, f"bridge_protocol_version {version}")
    assert peer.connect.level_byte is not None
    assert peer.connect.level_byte & 0x80
    peer.send(Connack(False, 1))
    again = remote.accept().connect.level_byte
    assert again == peer.connect.level_byte & 0x7F


# ---------------------------------------------------------------- topics

@pytest.mark.parametrize(("topic", "subscribed", "here", "there"), [
    ("a/# in 1", ("a/#", 1), "a/x", "a/x"),
    ("# in 2 l/ r/", ("r/#", 2), "l/x", "r/x"),
    ('# in 1 "" r/', ("r/#", 1), "x", "r/x"),
    ('# in 1 l/ ""', ("#", 1), "l/x", "x"),
    ('"" in 1 here there/y', ("there/y", 1), "here", "there/y"),
    ('"a b/#" both 1 l/ r/', ("r/a b/#", 1), "l/a b/x", "r/a b/x"),
    ("a/+/c both 1 l/ r/", ("r/a/+/c", 1), "l/a/b/c", "r/a/b/c"),
])
def test_topic_in(world: World, topic: str, subscribed: tuple[str, int], here: str, there: str) -> None:
    site, _, peer = linked(world, topics=(topic,))
    assert filters(peer.welcome(), Subscribe) == [subscribed]
    client = world.client(site)
    client.subscribe("#", qos=2)
    peer.send(Publish(there, b"in", 1, 7))
    assert client.got() == (here, b"in")
    assert peer.read() == Puback(7)


@pytest.mark.parametrize(("topic", "here", "there", "qos"), [
    ("a/# out 1", "a/x", "a/x", 1),
    ("a/# out", "a/x", "a/x", 0),
    ("a/# out 2", "a/x", "a/x", 2),
    ("# out 1 l/ r/", "l/x", "r/x", 1),
    ('# out 1 "" r/', "x", "r/x", 1),
    ('# out 1 l/ ""', "l/x", "x", 1),
    ('"" out 1 here there/y', "here", "there/y", 1),
    ('"a b/#" both 1 l/ r/', "l/a b/x", "r/a b/x", 1),
])
def test_topic_out(world: World, topic: str, here: str, there: str, qos: int) -> None:
    site, _, peer = linked(world, topics=(topic,))
    peer.welcome()
    client = world.client(site)
    client.publish("other/y", b"stays" if "# out 1 \"\"" not in topic and "l/ \"\"" not in topic else b"out", 2)
    client.publish(here, b"out", 2)
    got = peer.answered()
    while isinstance(got, Publish) and got.topic.endswith("other/y"):
        got = peer.answered()
    assert isinstance(got, Publish)
    assert (got.topic, got.payload, got.qos) == (there, b"out", qos)


def test_addresses_and_several_topics(world: World) -> None:
    remote = world.remote()
    world.mosq(block(f"127.0.0.1:{remote.port}", topics=("a in 0", "b in 1", "c out 1", "d both 2")).replace("address", "addresses"))
    got = remote.accept().welcome("a", "b", "c", "d")
    assert filters(got, Subscribe) == [("a", 0), ("b", 1), ("d", 2)]
    assert filters(got, Unsubscribe) == ["c"]


def test_bridge_attempt_unsubscribe(world: World) -> None:
    _, _, peer = linked(world, "bridge_attempt_unsubscribe false", topics=("c out 1", "d in 1"))
    assert not filters(peer.welcome("d"), Unsubscribe)


def test_subscriptions_of_5_0_set_no_local(world: World) -> None:
    """Test [v5 3.8.3.1]: No Local and Retain As Published avoid circles and keep the flags."""
    _, _, peer = linked(world, "bridge_protocol_version mqttv50", topics=("d both 1",))
    (_, options), = filters(peer.welcome(), Subscribe)
    assert options & 0x0F == 1 | 4 | 8


def test_messages_do_not_return_to_the_remote_broker(world: World) -> None:
    site, _, peer = linked(world, topics=("# both 1",))
    peer.welcome()
    client = world.client(site)
    client.subscribe("#", qos=1)
    peer.send(Publish("t", b"in", 1, 1))
    assert client.got() == ("t", b"in")
    assert peer.read() == Puback(1)
    world.client(site, "pub").publish("t", b"out", 1)
    got = peer.answered()
    assert isinstance(got, Publish)
    assert got.payload == b"out"


def test_messages_outside_of_the_topic_lines_are_dropped(world: World) -> None:
    site, _, peer = linked(world, topics=("a/# in 1", "b/# out 1"))
    peer.welcome("a/#", "b/#")
    client = world.client(site)
    client.subscribe("#", qos=1)
    peer.send(Publish("b/x", b"no", 1, 1), Publish("$SYS/x", b"no", 1, 2), Publish("a/x", b"yes", 1, 3))
    assert client.got() == ("a/x", b"yes")


# ---------------------------------------------------------------- how messages go

def test_bridge_outgoing_retain(world: World) -> None:
    for line, retain in (("bridge_outgoing_retain false", False), ("bridge_outgoing_retain true", True)):
        site, _, peer = linked(world, line, topics=("# out 1",))
        peer.welcome()
        world.client(site).publish("t", b"x", 1, retain=True)
        got = peer.answered()
        assert isinstance(got, Publish)
        assert got.retain is retain


def test_local_retained_messages_are_sent_on_connect(world: World) -> None:
    remote = world.remote()
    site = world.mosq(block(remote.port, topics=("a/# out 1",)))
    peer = remote.accept()
    client = world.client(site)
    client.publish("a/1", b"kept", 1, retain=True)
    client.publish("b/1", b"stays", 1, retain=True)
    peer.send(Connack())
    seen = []
    while not any(isinstance(got, Publish) for got in seen):
        seen.append(peer.answered())
    assert [(got.topic, got.payload, got.retain) for got in seen if isinstance(got, Publish)] == [("a/1", b"kept", True)]


def test_bridge_max_packet_size(world: World) -> None:
    site, _, peer = linked(world, "bridge_max_packet_size 60", topics=("# out 1",))
    peer.welcome()
    client = world.client(site)
    client.publish("t", b"x" * 100, 1)
    client.publish("t", b"small", 1)
    got = peer.answered()
    assert isinstance(got, Publish)
    assert got.payload == b"small"


def test_receive_maximum_of_the_other_broker(world: World) -> None:
    site, _, peer = linked(world, "bridge_protocol_version mqttv50", topics=("# out 1",))
    peer.welcome(props=((P.RECEIVE_MAXIMUM, 3),))
    client = world.client(site)
    for i in range(6):
        client.publish("t", b"%d" % i, 1)
    got = [peer.read() for _ in range(3)]
    with pytest.raises(TimeoutError):
        peer.read(0.1)
    for one in got:
        assert isinstance(one, Publish)
        peer.send(Puback(one.mid))
    assert [one.payload for one in (peer.answered() for _ in range(3)) if isinstance(one, Publish)] == [b"3", b"4", b"5"]


def test_bridge_max_topic_alias(world: World) -> None:
    site, _, peer = linked(world, "bridge_protocol_version mqttv50", topics=("# both 1",))
    peer.welcome(props=((P.TOPIC_ALIAS_MAXIMUM, 10),))
    client = world.client(site)
    client.subscribe("in/#", qos=1)
    for i in range(2):
        peer.send(Publish("in/x" if i == 0 else "", b"%d" % i, 1, i + 1, props=((P.TOPIC_ALIAS, 2),)))
        assert client.got() == ("in/x", b"%d" % i)
        assert isinstance(peer.read(), Puback)
    for _ in range(2):
        client.publish("out/a/long/topic", b"x", 1)
    first, second = peer.answered(), peer.answered()
    assert isinstance(first, Publish)
    assert isinstance(second, Publish)
    assert (first.topic, second.topic) == ("out/a/long/topic", "")
    assert dict(first.props)[P.TOPIC_ALIAS] == dict(second.props)[P.TOPIC_ALIAS]


@pytest.mark.parametrize("guard", [True, False])
def test_bridge_loop_guard(world: World, guard: bool) -> None:
    site, _, peer = linked(world, "bridge_protocol_version mqttv50", *(["bridge_loop_guard true"] if guard else []), topics=("# both 1",))
    peer.welcome()
    client = world.client(site, level=5)
    client.publish("t", b"x", 1)
    got = peer.answered()
    assert isinstance(got, Publish)
    assert [value for name, value in got.props if name == P.USER and value[0] == "mosq-via"] == [dict(got.props)[P.USER]] if guard else not got.props
    client.subscribe("t", qos=1)
    peer.send(Publish("t", b"back", 1, 9, props=got.props), Publish("t", b"new", 1, 10))
    assert peer.answered() == Puback(9)
    if not guard:
        assert client.got() == ("t", b"back")
    assert client.got() == ("t", b"new")


def test_messages_are_queued_while_the_bridge_is_offline(world: World) -> None:
    site, remote, peer = linked(world, topics=("# out 2",))
    peer.welcome()
    peer.reset()
    client = world.client(site)
    for i in range(5):
        client.publish("t", b"%d" % i, i % 3)
    peer = remote.accept()
    assert not peer.connect.clean
    peer.send(Connack(True))
    got: list[bytes] = []
    while len(got) < 3:
        packet = peer.answered()
        if isinstance(packet, Publish):
            got.append(packet.payload)
    assert got == [b"1", b"2", b"4"]            # QoS 0 for an offline bridge is not queued


@pytest.mark.parametrize(("lines", "kept"), [
    (("local_cleansession true",), False), (("cleansession true",), False), (("cleansession true", "local_cleansession false"), True)])
def test_local_cleansession(world: World, lines: tuple[str, ...], kept: bool) -> None:
    site, remote, peer = linked(world, *lines, topics=("# out 1",))
    peer.welcome()
    peer.reset()
    site.logged("disconnected|closed|reset")
    client = world.client(site)
    client.publish("t", b"while away", 1)
    peer = remote.accept()
    peer.welcome()
    client.publish("t", b"after", 1)
    got = peer.answered()
    assert isinstance(got, Publish)
    assert got.payload == (b"while away" if kept else b"after")


@pytest.mark.parametrize("clean", ["true", "false"])
def test_messages_wait_from_the_attempt_on(world: World, clean: str) -> None:
    """A client that publishes before CONNACK, for example right after the start, loses nothing, as with Mosquitto."""
    site, _, peer = linked(world, f"local_cleansession {clean}", topics=("# out 1",))
    world.client(site).publish("t", b"before CONNACK", 1)
    peer.welcome()
    got = peer.answered()
    assert isinstance(got, Publish)
    assert got.payload == b"before CONNACK"


def test_the_first_client_finds_the_bridge(world: World) -> None:
    """A client that connects as soon as the broker listens is served when the first attempt has begun."""
    remote = world.remote()
    site = world.mosq(block(remote.port, "local_cleansession true", topics=("# out 1",)))
    world.client(site).publish("t", b"first", 1)
    peer = remote.accept()
    peer.welcome()
    got = peer.answered()
    assert isinstance(got, Publish)
    assert got.payload == b"first"


def test_a_remote_broker_that_takes_only_small_packets(world: World) -> None:
    """Test that the bridge sends nothing larger, reports it, and stays connected [v5 3.2.2-15]."""
    site, _, peer = linked(world, "bridge_protocol_version mqttv50", "notifications true", topics=("# both 2",))
    here = world.client(site)
    here.subscribe("#")
    peer.send(Connack(False, 0, ((P.MAXIMUM_PACKET_SIZE, 2),)))
    site.logged(r"Warning: Bridge b does not send its notification .*: it has \d+ bytes, and the remote broker takes packets of 2\.")
    site.logged(r"Warning: Bridge b does not send SUBSCRIBE to #: it has 9 bytes")
    here.publish("t", b"x", 1)
    peer.send(Publish("from/remote", b"y"))
    while here.take().topic != "from/remote":
        pass
    peer.sock.setblocking(False)
    with pytest.raises(BlockingIOError):
        peer.sock.recv(1)


def test_a_remote_broker_without_qos_1(world: World) -> None:
    """Test that the bridge sends and subscribes with QoS 0 [v5 3.2.2-11], and that local publishers are acknowledged."""
    site, _, peer = linked(world, "bridge_protocol_version mqttv50", "notifications true", topics=("# both 2",))
    here = world.client(site)
    here.publish("t", b"before", 2)
    got = peer.welcome("#", props=((P.MAXIMUM_QOS, 0),))
    assert [one.qos for one in got if isinstance(one, Publish)] == [0]
    assert [one.filters for one in got if isinstance(one, Subscribe)] == [(("#", 0x0C),)]
    here.publish("t", b"after", 1)
    for payload in (b"before", b"after"):
        packet = peer.answered()
        assert isinstance(packet, Publish)
        assert (packet.qos, packet.payload) == (0, payload)


def test_local_clientid(world: World) -> None:
    """Test that a local client with that id is refused, and does not take it over."""
    site, _, peer = linked(world, "local_clientid me", topics=("# out 1",))
    peer.welcome()
    wire = Wire(site.port)
    wire.send(Connect("me"))
    raw = wire.read_frame()
    assert raw is None or raw[3] != 0
    wire.close()
    world.client(site).publish("t", b"x", 1)
    assert isinstance(peer.answered(), Publish)


# ---------------------------------------------------------------- notifications

def test_notifications(world: World) -> None:
    site, _, peer = linked(world, "notifications true", "remote_clientid rc")
    topic = "$SYS/broker/connection/rc/state"
    client = world.client(site)
    client.subscribe(topic, qos=1)
    assert client.got() == (topic, b"0")
    got = peer.welcome()
    assert client.got() == (topic, b"1")
    assert [(one.topic, one.payload, one.retain) for one in got if isinstance(one, Publish)] == [(topic, b"1", True)]
    peer.reset()
    assert client.got() == (topic, b"0")


def test_notifications_local_only(world: World) -> None:
    site, _, peer = linked(world, "notifications true", "notifications_local_only true", "notification_topic n", topics=("a in 1",))
    client = world.client(site)
    client.subscribe("n", qos=1)
    assert client.got() == ("n", b"0")
    assert not [one for one in peer.welcome() if isinstance(one, Publish)]
    assert client.got() == ("n", b"1")


# ---------------------------------------------------------------- TCP

def test_bridge_bind_address(world: World) -> None:
    _, remote, _ = linked(world, "bridge_bind_address 127.0.0.9")
    assert remote.from_address[0] == "127.0.0.9"


def test_a_bind_address_of_another_machine(world: World) -> None:
    site = world.mosq(block(unused_port(), "bridge_bind_address 192.0.2.7"))
    site.logged(re.escape("could not connect to 127.0.0.1:"))
    assert socket.create_connection(("127.0.0.1", site.port)).close() is None


def of_kernel(port: int) -> str:
    """Return the timer that the kernel has armed for the connection to that port."""
    import subprocess

    return subprocess.run(["ss", "-tnoH", "dport", "=", f":{port}"], capture_output=True, text=True, check=True).stdout


def test_bridge_tcp_keepalive_and_user_timeout(world: World) -> None:
    """Test the effect; tests/net/test_outward.py tests that each reaches its socket option."""
    _, remote, peer = linked(world, "bridge_tcp_keepalive 7200 10 3", "bridge_tcp_user_timeout 5000")
    peer.welcome()
    assert "timer:(keepalive" in of_kernel(remote.port)
    _, remote, peer = linked(world)
    peer.welcome()
    assert "timer:(keepalive" not in of_kernel(remote.port)


def test_keepalive_interval(world: World) -> None:
    """Test pings when nothing else is sent; a remote that does not answer is disconnected."""
    _, _, peer = linked(world, "keepalive_interval 5", "bridge_protocol_version mqttv50")
    peer.welcome(props=((P.SERVER_KEEPALIVE, 1),))
    assert peer.read() == Pingreq()
    peer.send(Pingresp())
    assert peer.read() == Pingreq()
    peer.closed()


# ---------------------------------------------------------------- when

def test_restart_timeout(world: World) -> None:
    site, remote, peer = linked(world, "restart_timeout 1 2 60")
    peer.reset()
    line = site.logged("Bridge b next backoff will be [0-9]+ ms")
    assert 1000 <= int(line.split()[-2]) <= 2000
    began = time.monotonic()
    remote.accept()
    assert time.monotonic() - began < AT_ONCE_S


def test_start_type_lazy_threshold_and_idle_timeout(world: World) -> None:
    remote = world.remote()
    site = world.mosq(block(remote.port, "start_type lazy", "threshold 3", "idle_timeout 1", topics=("# out 1",)))
    client = world.client(site)
    client.publish("t", b"0", 1)
    client.publish("t", b"1", 1)
    with pytest.raises(TimeoutError):
        remote.accept(0.3)
    client.publish("t", b"2", 1)
    peer = remote.accept()
    peer.send(Connack())
    got: list[bytes] = []
    while len(got) < 3:
        packet = peer.answered()
        if isinstance(packet, Publish):
            got.append(packet.payload)
    assert got == [b"0", b"1", b"2"]
    began = time.monotonic()
    while (raw := peer.frame()) is not None:        # idle: it sends DISCONNECT and closes
        assert raw == b"\xe0\x00" or raw[0] >> 4 in (8, 10)
    assert time.monotonic() - began < AT_ONCE_S
    for i in range(3):
        client.publish("t", b"%d" % i, 1)
    remote.accept()


def test_start_type_once(world: World) -> None:
    site, remote, peer = linked(world, "start_type once")
    peer.welcome()
    peer.reset()
    with pytest.raises(TimeoutError):
        remote.accept(1.3)             # its pause would be over
    assert site.alive()


def test_start_type_manual_is_refused(world: World) -> None:
    with pytest.raises(RuntimeError, match="Manual start_type not supported"):
        world.mosq(block(unused_port(), "start_type manual"))


def test_round_robin_and_the_first_address(world: World) -> None:
    first, second = world.remote(), world.remote()
    dead = unused_port()
    site = world.mosq(block(f"127.0.0.1:{dead} 127.0.0.1:{first.port} 127.0.0.1:{second.port}", "round_robin true"))
    first.accept().welcome()
    with pytest.raises(TimeoutError):
        second.accept(0.1)
    assert site.alive()


def test_without_round_robin_the_bridge_returns_to_the_first(world: World) -> None:
    second = world.remote()
    main = unused_port()
    world.mosq(block(f"127.0.0.1:{main} 127.0.0.1:{second.port}", "round_robin false"))
    peer = second.accept()
    peer.welcome()
    with socket.create_server(("127.0.0.1", main)) as server:
        server.settimeout(TIMEOUT_S)
        probe, _ = server.accept()              # does it listen?
        assert probe.recv(1) == b""
        probe.close()
        peer.closed()
        while True:
            back, _ = server.accept()
            back.settimeout(TIMEOUT_S)
            if back.recv(1, socket.MSG_PEEK):
                break
            back.close()                        # another probe of the port
        assert Peer(back).connect.client_id == f"{HOST}.b"
        back.close()


# ---------------------------------------------------------------- reload

@pytest.mark.parametrize("kind", ["lazy", "immediate"])
def test_bridge_reload_type(world: World, kind: str) -> None:
    here = "user root\nlistener {port} 127.0.0.1\nallow_anonymous true\n"
    one, two = world.remote(), world.remote()
    site = world.mosq(block(one.port, "local_clientid same"))      # another id could move the bridge to another worker
    peer = one.accept()
    peer.welcome()
    site.rewrite(here + block(two.port, f"bridge_reload_type {kind}", "remote_clientid new", "local_clientid same") + "retry_interval 1\n")
    site.send_signal(signal.SIGHUP)
    site.logged("'retry_interval' option")
    if kind == "lazy":
        with pytest.raises(TimeoutError):
            two.accept(0.2)
        peer.reset()
    else:
        peer.closed()
    assert two.accept().connect.client_id == "new"


def test_a_reload_adds_and_removes_bridges(world: World) -> None:
    here = "user root\nlistener {port} 127.0.0.1\nallow_anonymous true\n"
    one, two = world.remote(), world.remote()
    site = world.mosq(block(one.port))
    peer = one.accept()
    peer.welcome()
    site.rewrite(here + block(two.port, name="other"))
    site.send_signal(signal.SIGHUP)
    peer.closed()
    other = two.accept()
    other.welcome()
    site.rewrite(here)
    site.send_signal(signal.SIGHUP)
    other.closed()
    site.rewrite(here + block(one.port))
    site.send_signal(signal.SIGHUP)
    one.accept()


def test_a_first_bridge_at_a_reload(world: World) -> None:
    remote = world.remote()
    site = world.mosq()
    site.rewrite("user root\nlistener {port} 127.0.0.1\nallow_anonymous true\n" + block(remote.port))
    site.send_signal(signal.SIGHUP)
    remote.accept().welcome()


def test_a_stopping_broker_sends_disconnect(world: World) -> None:
    site, _, peer = linked(world)
    peer.welcome()
    site.send_signal(signal.SIGTERM)
    assert peer.read() == Disconnect()
    peer.closed()


def test_qos_2_messages_in_both_directions(world: World) -> None:
    site, _, peer = linked(world, topics=("# both 2",))
    peer.welcome()
    client = world.client(site)
    client.subscribe("in", qos=2)
    peer.send(Publish("in", b"x", 2, 9))
    assert peer.read() == Pubrec(9)
    peer.send(b"\x62\x02\x00\x09")
    assert peer.read().encode(4) == b"\x70\x02\x00\x09"     # type: ignore[union-attr]
    assert client.got() == ("in", b"x")
    world.client(site, "pub").publish("out", b"y", 2)
    got = peer.answered()
    assert isinstance(got, Publish)
    assert got.qos == 2
    peer.answered()


def test_the_control_api_returns_the_state_of_a_bridge(world: World) -> None:
    import json

    remote = world.remote()
    site = world.mosq(block(remote.port), "enable_control_api true\ncontrol_loopback true\n")
    remote.accept().welcome()
    client = world.client(site, level=5)
    for _ in range(50):         # CONNACK arrives before the control plane learns of it
        client.publish("$CONTROL/mosq/broker/v1", json.dumps({"commands": [{"command": "listBridges"}]}).encode(), 1)
        answer, = json.loads(client.take().payload)["responses"]
        if answer["data"]["bridges"][0]["state"] == "connected":
            break
    told, = answer["data"]["bridges"]
    assert (told["name"], told["state"], told["address"], told["queued"]) == ("b", "connected", f"127.0.0.1:{remote.port}", 0)


# ---------------------------------------------------------------- QoS 0

def published(peer: Peer, last: bytes) -> list[bytes]:
    """Return the payloads up to this one."""
    found: list[bytes] = []
    while last not in found:
        got = peer.answered()
        if isinstance(got, Publish):
            found.append(got.payload)
    return found


def test_qos_0_messages_wait_for_the_end_of_an_attempt(world: World) -> None:
    """Test that no message is lost while the remote broker has not answered CONNECT, as in Mosquitto, and that few of them may wait."""
    site, remote, peer = linked(world, "restart_timeout 1", topics=("# out 1",))
    client = world.client(site)
    client.publish("t", b"first")
    for n in range(150):
        client.publish("t", b"%d" % n)
    client.publish("t", b"last", 1)
    peer.send(Connack())
    assert published(peer, b"last") == [b"first", *(b"%d" % n for n in range(99)), b"last"]
    client.publish("t", b"up")
    assert published(peer, b"up") == [b"up"]
    peer.reset()
    site.logged("local.*disconnected")
    client.publish("t", b"down")         # between two attempts it is lost, as in Mosquitto
    client.publish("t", b"known", 1)
    again = remote.accept()
    client.publish("t", b"again")
    client.publish("t", b"end", 1)
    again.send(Connack())
    assert published(again, b"end") == [b"known", b"again", b"end"]


def test_a_large_qos_0_message_does_not_wait(world: World) -> None:
    site, _, peer = linked(world, topics=("# out 1",))
    client = world.client(site)
    client.publish("t", bytes(900_000))
    client.publish("t", bytes(200_000))
    client.publish("t", bytes(100_000))
    client.publish("t", b"last", 1)
    peer.send(Connack())
    assert [len(payload) for payload in published(peer, b"last")] == [900_000, 100_000, 4]
