"""Test a bridge over kill -9: waiting messages exist, under their current name, and the session belongs only to the bridge."""

from __future__ import annotations

import signal

import pytest

from tests.bridge.conftest import Site, World, block
from tests.harness.packets import Connack, Connect, Pubcomp, Publish, Pubrec, Pubrel
from tests.harness.remote import Peer, Remote
from tests.harness.wire import Wire

HEAD = "user root\nlog_type all\nlistener {port} 127.0.0.1\nallow_anonymous true\npersistence true\npersistence_location {dir}\n"


def again(site: Site, bridge: str) -> None:
    site.die()
    site.rewrite(HEAD + bridge)
    site.start()


def away(world: World, topic: str) -> tuple[Site, Remote, str]:
    """Return a broker with a store and a bridge whose remote does not answer yet, and the lines of the bridge without topics."""
    remote = world.remote()
    site = world.mosq(block(remote.port, topics=(topic,)), "persistence true\npersistence_location {dir}\n")
    remote.accept()
    return site, remote, block(remote.port, topics=())


def sent(peer: Peer) -> tuple[str, bytes]:
    got = peer.answered()
    assert isinstance(got, Publish), got
    return got.topic, got.payload


@pytest.mark.parametrize(("topic", "want", "dropped"), [
    ("topic # out 1 l/ r/", [("r/a", b"1"), ("r/b", b"2")], 0), ("topic # out 1 l/ s/", [("s/a", b"1"), ("s/b", b"2")], 0),
    ("topic b out 1 l/ r/", [("r/b", b"2")], 1), ("topic x out 1", [], 2)])
def test_a_restart_with_other_topic_lines(world: World, topic: str, want: list[tuple[str, bytes]], dropped: int) -> None:
    """Test the current lines: messages that none of them sends out are dropped and logged."""
    site, remote, lines = away(world, "# out 1 l/ r/")
    client = world.client(site)
    client.publish("l/a", b"1", 1)
    client.publish("l/b", b"2", 1)
    again(site, lines + topic + "\ntopic end out 1\n")
    peer = remote.accept()
    peer.welcome("end")
    world.client(site).publish("end", b"", 1)
    assert [sent(peer) for _ in range(len(want) + 1)] == [*want, ("end", b"")]
    if dropped:
        site.logged(r"Outgoing messages are being dropped for client local\..*\.b\.")


def test_a_reload_after_a_restart(world: World) -> None:
    """Test messages from before the start, which are only on the disk, with the lines from before the reload."""
    site, remote, lines = away(world, "# out 1 l/ r/")
    world.client(site).publish("l/a", b"1", 1)
    again(site, lines + "topic # out 1 l/ r/\n")
    remote.accept()
    site.rewrite(HEAD + lines + "topic x out 1\n")
    site.send_signal(signal.SIGHUP)
    site.logged("doing local SUBSCRIBE on topic x")
    peer = remote.accept()
    world.client(site).publish("x", b"2", 1)
    peer.welcome()
    assert [sent(peer) for _ in range(2)] == [("r/a", b"1"), ("x", b"2")]


def test_a_half_sent_qos_2_message_of_a_removed_line(world: World) -> None:
    """Test a message that may have arrived: it is released, so that it counts there once, under its earlier name."""
    remote = world.remote()
    site = world.mosq(block(remote.port, topics=("# out 2 l/ r/",)), "persistence true\npersistence_location {dir}\n")
    lines = block(remote.port, topics=())
    peer = remote.accept()
    peer.welcome()
    world.client(site).publish("l/a", b"1", 2)
    got = peer.read()
    assert isinstance(got, Publish)
    assert got.topic == "r/a"
    peer.send(Pubrec(got.mid))
    assert peer.read() == Pubrel(got.mid)
    world.client(site).publish("l/a", b"2", 2)
    second = peer.read()
    assert isinstance(second, Publish)
    again(site, lines + "topic x out 2\n")
    peer = remote.accept()
    peer.send(Connack(True, 0))
    for mid in (got.mid, second.mid):
        while (packet := peer.read()) != Pubrel(mid):
            assert not isinstance(packet, Publish)
        peer.send(Pubcomp(mid))
    world.client(site).publish("x", b"3", 1)
    got = peer.read()
    assert isinstance(got, Publish)
    assert got.topic == "x"


def refused(site: Site, client_id: str) -> bool:
    wire = Wire(site.port)
    wire.send(Connect(client_id, clean=False))
    got = wire.read_packet()
    wire.close()
    assert isinstance(got, Connack)
    assert not got.session
    return got.rc == 2


def test_the_session_of_a_removed_bridge_is_removed(world: World) -> None:
    """Test that no client and no later bridge finds messages for a removed bridge."""
    site, remote, lines = away(world, "# out 1")
    bridge = lines + "topic # out 1\nlocal_clientid me\n"
    again(site, bridge)
    remote.accept()
    world.client(site).publish("t", b"1", 1)
    again(site, bridge)
    remote.accept()
    assert refused(site, "me")
    again(site, "")
    site.logged("Expiring client me due to timeout.")
    site.logged("Warning: No bridge has the client id me any more: 1 messages that waited for it are lost.")
    assert not refused(site, "me")
    again(site, bridge)
    site.logged("Warning: Bridge b takes the client id me: the session of the client that had it ends, with 0 messages.")
    world.client(site).publish("t", b"2", 1)
    peer = remote.accept()
    peer.welcome()
    assert sent(peer) == ("t", b"2")


def test_a_new_local_client_id_loses_the_queue_with_a_warning(world: World) -> None:
    site, _, lines = away(world, "# out 1")
    world.client(site).publish("t", b"1", 1)
    site.rewrite(HEAD + lines + "topic # out 1\nlocal_clientid other\nbridge_reload_type immediate\n")
    site.send_signal(signal.SIGHUP)
    site.logged(r"Warning: Bridge b has no longer the client id local\..*\.b: 1 messages that waited for it are lost\.")


def test_a_lazy_bridge_connects_for_messages_from_before_a_restart(world: World) -> None:
    site, remote, lines = away(world, "# out 1")
    client = world.client(site)
    for n in range(2):
        client.publish("t", b"%d" % n, 1)
    again(site, lines + "topic # out 1\nstart_type lazy\nthreshold 2\n")
    peer = remote.accept()
    peer.welcome()
    assert [sent(peer) for _ in range(2)] == [("t", b"0"), ("t", b"1")]
