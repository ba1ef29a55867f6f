"""A link to another broker, packet by packet: the test is the remote broker."""

from __future__ import annotations

import pytest

from tests.harness.links import Remote, line, linked, spec
from tests.harness.packets import Connack, Connect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe
from tests.harness.plane import Plane
from tests.harness.wire import Wire

LEVELS = pytest.mark.parametrize("level", [3, 4, 5])


def up(plane: Plane, level: int = 4, n_in: int = 0, present: bool = False, props: tuple = ()) -> Remote:
    remote = Remote(plane, level=level)
    remote.let_in(present, props)
    remote.grant(n_in)
    assert linked(plane)[3] == "up"
    return remote


def client(plane: Plane, *filters: tuple[str, int], level: int = 4) -> Wire:
    wire = plane.connect(Connect(f"c{len(plane.wires)}"), level)
    assert isinstance(wire.read_packet(), Connack)
    if filters:
        wire.send(Subscribe(1, filters))
        wire.read_packet()
    return wire


@LEVELS
def test_connect_says_what_was_configured(level: int) -> None:
    link = spec(version=level, keepalive_s=17, clean_start=True, remote_username="u", remote_password=b"p\xff", notifications=True,
                receive_maximum=7, topic_alias_max=3, session_expiry_s=99)
    with Plane(links=[link], allow_anonymous=True) as plane:
        remote = Remote(plane, level=level)
        got = remote.let_in()
        assert (got["version"], got["bridge"], got["clean_start"], got["keepalive"]) == (level, 0, 1, 17)
        assert (got["client_id"], got["username"], got["password"]) == (b"remote.b", b"u", b"p\xff")
        assert (got["will_topic"], got["will_payload"], got["will_qos"], got["will_retain"]) == (
            b"$SYS/broker/connection/remote.b/state", b"0", 1, 1)
        if level == 5:
            props = got["props"]
            assert (props[17], props[33], props[34], props[39]) == (99, 7, 3, 2000000)


@pytest.mark.parametrize("level", [3, 4])
def test_try_private_sets_the_bridge_bit(level: int) -> None:
    with Plane(links=[spec(version=level)], allow_anonymous=True) as plane:
        assert Remote(plane, level=level, private=True).let_in()["bridge"] == 1


@LEVELS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_published_here_goes_out_under_its_other_name(level: int, qos: int) -> None:
    with Plane(links=[spec(line("#", "out", 2, "l/", "r/"), version=level)], allow_anonymous=True) as plane:
        remote = up(plane, level)
        wire = client(plane)
        wire.send(Publish("l/a/b", b"x", qos, 5, retain=True), Pubrel(5) if qos == 2 else b"", Publish("other", b"y", qos, 6))
        got = remote.hears("publish")
        assert (got["topic"], got["payload"], got["qos"], got["retain"], got["dup"]) == (b"r/a/b", b"x", qos, 1, 0)


@LEVELS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_the_remote_publishes_comes_in_under_its_other_name(level: int, qos: int) -> None:
    with Plane(links=[spec(line("#", "in", qos, "l/", "r/"), version=level)], allow_anonymous=True) as plane:
        remote = Remote(plane, level=level)
        remote.let_in()
        assert remote.grant() == [("r/#", qos | (0x0C if level == 5 else 0))]
        wire = client(plane, ("#", 2))
        remote.send(Publish("r/a/b", b"x", qos, 5))
        if qos == 1:
            assert remote.hears("puback")["pid"] == 5
        if qos == 2:
            assert remote.hears("pubrec")["pid"] == 5
            remote.send(Pubrel(5))
            assert remote.hears("pubcomp")["pid"] == 5
        got = wire.read_packet()
        assert isinstance(got, Publish)
        assert (got.topic, got.payload, got.qos) == ("l/a/b", b"x", qos)


def test_both_ways_does_not_loop() -> None:
    with Plane(links=[spec(line("#", "both", 1, "l/", "r/"))], allow_anonymous=True) as plane:
        remote = up(plane, n_in=1)
        remote.send(Publish("r/a", b"x", 1, 5, retain=True))
        remote.hears("puback")
        wire = client(plane)
        wire.send(Publish("l/b", b"y"))
        assert remote.hears("publish")["topic"] == b"r/b"        # and not r/a


def test_what_no_line_asked_for_does_not_come_in() -> None:
    with Plane(links=[spec(line("#", "in", 1, "l/", "r/"), line("$CONTROL/#", "in", 1))], allow_anonymous=True) as plane:
        remote = up(plane, n_in=2)
        wire = client(plane, ("#", 0), ("$CONTROL/#", 0))
        remote.send(Publish("other", b"x", 1, 5), Publish("$CONTROL/mosq/index/v1", b"a", 1, 6), Publish("r/good", b"z", 1, 7))
        assert [remote.hears("puback")["pid"] for _ in range(3)] == [5, 6, 7]
        got = wire.read_packet()
        assert isinstance(got, Publish)
        assert (got.topic, got.payload) == ("l/good", b"z")


@LEVELS
def test_a_refusal_is_told_with_its_code(level: int) -> None:
    with Plane(links=[spec(version=level)], allow_anonymous=True) as plane:
        remote = Remote(plane, level=level)
        remote.hears("connect")
        remote.send(Connack(False, 0x84 if level == 5 else 1))
        event = linked(plane)
        assert event[3] == "refused"
        assert event[4].split()[0] == ("132" if level == 5 else "1")
        assert remote.heard()[0] == "closed"
        up(plane, level)


def test_a_server_of_3_refuses_5_in_its_own_words() -> None:
    with Plane(links=[spec(version=5)], allow_anonymous=True) as plane:
        remote = Remote(plane, level=5)
        remote.hears("connect")
        remote.send(b"\x20\x02\x00\x01")
        assert linked(plane)[3:] == ("refused", "1 unacceptable protocol version")


@LEVELS
def test_messages_wait_while_the_link_is_down_and_go_out_in_order(level: int) -> None:
    with Plane(links=[spec(line("#", "out", 1), version=level)], allow_anonymous=True) as plane:
        wire = client(plane)
        for n in range(30):
            wire.send(Publish("t", b"%d" % n, 1, n + 1))
            wire.read_packet()
        remote = up(plane, level)
        for n in range(30):
            got = remote.hears("publish")
            assert (got["payload"], got["dup"]) == (b"%d" % n, 0)
            remote.send(Puback(got["pid"]))


@pytest.mark.parametrize("present", [False, True])
def test_qos_2_over_a_cut(present: bool) -> None:
    with Plane(links=[spec(line("#", "out", 2))], allow_anonymous=True) as plane:
        wire = client(plane)
        remote = up(plane)
        for n in range(3):
            wire.send(Publish("t", b"%d" % n, 2, n + 1))
            wire.read_packet()
            wire.send(Pubrel(n + 1))
            wire.read_packet()
        first, second, third = (remote.hears("publish") for _ in range(3))
        remote.send(Pubrec(first["pid"]))
        assert remote.hears("pubrel")["pid"] == first["pid"]
        remote.close()
        assert linked(plane)[3] == "down"
        remote = up(plane, present=present)
        if present:
            assert remote.hears("pubrel")["pid"] == first["pid"]
            remote.send(Pubcomp(first["pid"]))
        for old in (second, third):
            got = remote.hears("publish")
            assert (got["payload"], got["pid"], got["dup"]) == (old["payload"], old["pid"], int(present))
        for old in (second, third):
            remote.send(Pubrec(old["pid"]))
            assert remote.hears("pubrel")["pid"] == old["pid"]
            remote.send(Pubcomp(old["pid"]))
        plane.until(lambda: plane.engine.links()[0]["pending"] == 0)


@pytest.mark.parametrize("present", [False, True])
def test_qos_2_inbound_over_a_cut_comes_once(present: bool) -> None:
    with Plane(links=[spec(line("#", "in", 2))], allow_anonymous=True) as plane:
        wire = client(plane, ("#", 2))
        remote = up(plane, n_in=1)
        remote.send(Publish("t", b"x", 2, 9))
        remote.hears("pubrec")
        remote.close()
        assert linked(plane)[3] == "down"
        remote = Remote(plane)
        remote.let_in(present)
        if present:
            remote.send(Publish("t", b"x", 2, 9, dup=True))
            assert remote.hears("pubrec")["pid"] == 9
            remote.send(Pubrel(9))
            assert remote.hears("pubcomp")["pid"] == 9
        else:
            remote.grant()
            remote.send(Publish("t", b"other", 2, 9))
            assert remote.hears("pubrec")["pid"] == 9
        got = wire.read_packet()
        assert isinstance(got, Publish)
        assert got.payload == b"x"
        assert isinstance(got.mid, int)
        wire.send(Pubrec(got.mid))
        wire.read_packet()
        wire.expect_nothing()
