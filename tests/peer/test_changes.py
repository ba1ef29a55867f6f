"""Test a reload that changes a bridge: waiting messages keep their remote names, lazy bridges continue, and bridges
exchange client ids."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.links import Remote, line, linked, spec
from tests.harness.packets import Connack, Connect, Puback, Pubcomp, Pubrec, Suback, Subscribe
from tests.harness.plane import Plane
from tests.peer.test_link import client, publish, reload, up
from mosq.records import KickCommand

RETAIN_HANDLING = 0x30
LINES_KNOWN = 17                # the current lines, and LINK_PAST_MAX


def down(plane: Plane, remote: Remote) -> None:
    remote.close()
    assert linked(plane).event == "down"


def sent(remote: Remote, n: int) -> list[tuple[str, bytes]]:
    found = []
    for _ in range(n):
        got = remote.hears("publish")
        found.append((got["topic"].decode(), got["payload"]))
        if got["qos"]:
            remote.send(Puback(got["pid"]))
    return found


def nothing_more(plane: Plane, remote: Remote) -> None:
    plane.until(lambda: plane.engine.bridges()[0]["pending"] == 0)
    with pytest.raises(TimeoutError):
        remote.read_frame(0)


# ---------------------------------------------------------------- names

OUT = line("#", "out", 1, "l/", "r/")


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("lines", [[], [line("other", "out", 1)], [line("#", "out", 1, "l/", "new/")], [line("#", "out", 1)],
                                   [line("a", "out", 1), line("#", "out", 1, "x/", "y/")]])
def test_queued_messages_keep_their_remote_name(level: int, lines: list[dict[str, Any]]) -> None:
    with Plane(bridges=[spec(OUT, version=level)], allow_anonymous=True) as plane:
        wire = client(plane)
        publish(wire, "l/a", b"1", 1)
        publish(wire, "l/b", b"x" * 40_000, 1)
        reload(plane, spec(*lines, version=level))
        publish(wire, "l/c", b"3", 1)
        remote = up(plane, level)
        assert sent(remote, 2) == [("r/a", b"1"), ("r/b", b"x" * 40_000)]
        found = lines and (lines[0]["local"] == "#" or lines[0]["remote_prefix"] == "new/")
        if found:
            assert sent(remote, 1) == [(lines[0]["remote_prefix"] + "l/c".removeprefix(lines[0]["local_prefix"]), b"3")]
        nothing_more(plane, remote)
        assert plane.stats()["drops_no_name"] == 0


def test_several_reloads_in_a_row() -> None:
    """Test that a message keeps the topic lines that were current when it was queued."""
    with Plane(bridges=[spec(OUT)], allow_anonymous=True) as plane:
        wire = client(plane)
        want = []
        for n, prefix in enumerate(("r/", "s/", "r/", "t/", "")):
            reload(plane, spec(line("#", "out", 1, "l/", prefix)))
            publish(wire, f"l/{n}", b"%d" % n, 1)
            want.append((f"{prefix}{n}", b"%d" % n))
        reload(plane, spec())
        remote = up(plane)
        assert sent(remote, 5) == want
        nothing_more(plane, remote)


def test_more_reloads_than_are_remembered() -> None:
    """Test that an older message uses the oldest known lines or is dropped; it never goes out under its local name."""
    with Plane(bridges=[spec(OUT)], allow_anonymous=True) as plane:
        wire = client(plane)
        publish(wire, "l/a", b"0", 1)
        publish(wire, "l/keep", b"1", 1)
        for n in range(40):
            reload(plane, spec(line("keep", "out", 1, "l/", f"{n}/"), line(f"t{n}", "out", 1)))
            publish(wire, f"t{n}", b"", 1)
        publish(wire, "t39", b"end", 1)
        remote = up(plane)
        found = []
        while not found or found[-1][1] != b"end":
            found += sent(remote, 1)
        nothing_more(plane, remote)
        oldest = 40 - len(found[1:-1])
        assert found == [(f"{oldest}/keep", b"1"), *((f"t{n}", b"") for n in range(oldest, 40)), ("t39", b"end")]
        assert oldest == 40 - LINES_KNOWN
        assert plane.stats()["drops_no_name"] == 1 + oldest


def test_earlier_lines_apply_to_queued_messages_only() -> None:
    """Test that waiting messages use the earlier lines, also if the last of them has no remote name any more."""
    with Plane(bridges=[spec(OUT)], allow_anonymous=True) as plane:
        wire = client(plane)
        publish(wire, "l/a", b"0", 1)
        for n in range(20):
            reload(plane, spec(line("#", "out", 1, f"{n}/", "s/")))
        reload(plane, spec(line("#", "out", 1, "l/", "now/")))
        remote = up(plane)
        nothing_more(plane, remote)
        assert plane.stats()["drops_no_name"] == 1
        publish(wire, "l/a", b"1", 0)
        publish(wire, "l/a", b"2", 1)
        assert sent(remote, 2) == [("now/a", b"1"), ("now/a", b"2")]


def test_a_reload_while_connected_applies_to_unsent_messages() -> None:
    with Plane(bridges=[spec(OUT)], allow_anonymous=True) as plane:
        wire = client(plane)
        remote = up(plane)
        reload(plane, spec(line("#", "out", 1, "l/", "new/")))
        publish(wire, "l/a", b"1", 1)
        assert remote.hears("publish")["topic"] == b"r/a"
        down(plane, remote)
        publish(wire, "l/b", b"2", 1)
        remote = up(plane, present=True)
        got = remote.hears("publish")
        assert (got["topic"], got["dup"]) == (b"r/a", 1)
        remote.send(Puback(got["pid"]))
        assert sent(remote, 1) == [("new/b", b"2")]


@pytest.mark.parametrize("present", [False, True])
def test_a_half_finished_qos_2_handshake_continues(present: bool) -> None:
    with Plane(bridges=[spec(line("#", "out", 2, "l/", "r/"))], allow_anonymous=True) as plane:
        wire = client(plane)
        remote = up(plane)
        for n in range(2):
            publish(wire, "l/a", b"%d" % n, 2)
        first, second = remote.hears("publish"), remote.hears("publish")
        remote.send(Pubrec(first["pid"]))
        assert remote.hears("pubrel")["pid"] == first["pid"]
        down(plane, remote)
        reload(plane, spec(line("#", "out", 2, "x/", "y/")))
        remote = up(plane, present=present)
        assert remote.hears("pubrel")["pid"] == first["pid"]
        remote.send(Pubcomp(first["pid"]))
        got = remote.hears("publish")
        assert (got["topic"], got["payload"], got["pid"], got["dup"]) == (b"r/a", b"1", second["pid"], 1)
        remote.send(Pubrec(got["pid"]))
        remote.hears("pubrel")
        remote.send(Pubcomp(got["pid"]))
        nothing_more(plane, remote)


def test_last_value_does_not_compare_earlier_remote_names() -> None:
    with Plane(bridges=[spec(OUT)], settings={"queue_overflow": "last_value"}, allow_anonymous=True) as plane:
        wire = client(plane)
        publish(wire, "l/a", b"1", 1)
        reload(plane, spec(line("#", "out", 1)))
        publish(wire, "r/a", b"2", 1)
        remote = up(plane)
        assert sent(remote, 2) == [("r/a", b"1"), ("r/a", b"2")]


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("level", [4, 5])
def test_messages_with_an_invalid_remote_name_are_dropped(level: int, qos: int) -> None:
    """Test a name that is empty without its prefix `l/`, or too long with a new one: it never goes out under its local name."""
    with Plane(bridges=[spec(line("#", "out", 1, "l/", ""), line("#", "out", 1, "m/", "r" * 65000 + "/"), version=level)], allow_anonymous=True) as plane:
        wire = client(plane)
        remote = up(plane, level)
        publish(wire, "l/", b"1", qos)
        publish(wire, "m/" + "x" * 1000, b"2", qos)
        publish(wire, "l/x", b"3", qos)
        assert sent(remote, 1) == [("x", b"3")]
        nothing_more(plane, remote)
        assert plane.stats()["drops_no_name"] == 2


def test_subscriptions_of_all_earlier_configurations_are_ended() -> None:
    """Test that the bridge also ends subscriptions of a configuration that later ones replaced while the bridge was down."""
    with Plane(bridges=[spec(line("a", "in", 1))], allow_anonymous=True) as plane:
        down(plane, up(plane, n_in=1))
        reload(plane, spec(line("b", "in", 1)))
        reload(plane, spec(line("c", "in", 1)))
        remote = Remote(plane)
        remote.accept_connect(present=True)
        assert remote.grant() == [("c", 1)]
        assert [item.decode() for item in remote.hears("unsubscribe")["items"]] == ["a"]


# ---------------------------------------------------------------- retained messages of the remote broker

def subscribed(plane: Plane, present: bool, code: int | None = None) -> int:
    """Connect as the bridge's remote broker; return the Retain Handling of its one SUBSCRIBE."""
    remote = Remote(plane, level=5)
    remote.accept_connect(present)
    fields = remote.hears("subscribe")
    options = fields["items"][0][1]
    remote.send(Suback(fields["pid"], (options & 3 if code is None else code,)))
    assert linked(plane).event == "up"
    plane.until(lambda: code is None or any("refused the subscription" in text for text in plane.lines))
    remote.close()
    assert linked(plane).event == "down"
    return int((options & RETAIN_HANDLING) >> 4)


def test_retained_messages_are_requested_after_a_lost_state() -> None:
    """Test that Retain Handling 1 asks for retained messages only if the subscription is new [v5 3.8.3.1]."""
    with Plane(bridges=[spec(line("a", "in", 1), version=5)], allow_anonymous=True) as plane:
        assert subscribed(plane, present=True) == 0      # the remote broker has a session; our broker does not know its SUBACK
        assert subscribed(plane, present=True) == 1
        assert subscribed(plane, present=False, code=0x87) == 0
        assert subscribed(plane, present=True) == 0      # the subscription was refused: no retained message has arrived
        assert subscribed(plane, present=True) == 1


# ---------------------------------------------------------------- lazy

def test_a_reload_lets_a_lazy_bridge_connect_again() -> None:
    """Test that the new threshold applies, also if no further message arrives."""
    with Plane(bridges=[spec(line("#", "out", 1), threshold=2)], allow_anonymous=True) as plane:
        wire = client(plane)
        for _ in range(2):
            publish(wire, "t", b"x", 1)
        assert linked(plane).event == "wanted"
        reload(plane, spec(line("#", "out", 1), threshold=2, keepalive_s=61))
        assert linked(plane).event == "wanted"
        reload(plane, spec(line("#", "out", 1), threshold=4))
        publish(wire, "t", b"x", 1)
        plane.asks_nothing()
        publish(wire, "t", b"x", 1)
        assert linked(plane).event == "wanted"


def test_a_broken_lazy_bridge_reconnects_for_queued_messages() -> None:
    """Test that the event "wanted" follows the event "down"."""
    with Plane(bridges=[spec(line("#", "out", 1), threshold=2)], allow_anonymous=True) as plane:
        wire = client(plane)
        remote = up(plane)
        for _ in range(2):
            publish(wire, "t", b"x", 1)
        remote.close()
        assert linked(plane).event == "down"
        assert linked(plane).event == "wanted"


# ---------------------------------------------------------------- client ids

def held(plane: Plane, client_id: str) -> bool:
    """Return whether the broker refuses this client id to clients because a bridge uses it."""
    got = plane.connect(Connect(client_id, clean=False)).read_packet()
    assert isinstance(got, Connack)
    return got.rc == 2


@pytest.mark.parametrize("clean", [False, True])
def test_the_client_id_of_an_offline_bridge_stays_reserved(clean: bool) -> None:
    with Plane(bridges=[spec(line("#", "out", 1), local_clean=clean)], allow_anonymous=True) as plane:
        assert held(plane, "local.b")
        down(plane, up(plane))
        assert held(plane, "local.b")


@pytest.mark.parametrize("here", [False, True])
def test_a_bridge_does_not_take_the_queue_of_a_client(here: bool) -> None:
    with Plane(allow_anonymous=True) as plane:
        old = plane.connect(Connect("local.b", clean=False))
        old.read_packet()
        old.send(Subscribe(1, (("secret", 1),)))
        old.read_packet()
        if not here:
            old.close()
            plane.until(lambda: plane.stats()["clients_connected"] == 0)
        wire = client(plane)
        publish(wire, "secret", b"x", 1)
        reload(plane, spec(line("#", "out", 1)))
        plane.until(lambda: any("Warning: Bridge b takes the client id local.b:" in text for text in plane.lines))
        publish(wire, "t", b"y", 1)
        remote = up(plane)
        assert sent(remote, 1) == [("t", b"y")]
        nothing_more(plane, remote)
        assert held(plane, "local.b")


def named(name: str, local_id: str, **more: Any) -> dict[str, Any]:
    return spec(line("#", "out", 1), name=name, local_clientid=local_id, **more)


def test_a_renamed_bridge_takes_over_the_client_id() -> None:
    with Plane(bridges=[named("b", "id")], allow_anonymous=True) as plane:
        reload(plane, named("c", "id"))
        publish(client(plane), "t", b"x", 1)
        assert [(each["name"], each["pending"]) for each in plane.engine.bridges()] == [("c", 1)]
        assert held(plane, "id")


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("connected", [(), ("b",), ("c",), ("b", "c")])
def test_two_bridges_exchange_their_client_ids(connected: tuple[str, ...], lazy: bool) -> None:
    with Plane(bridges=[named("b", "x"), named("c", "y")], allow_anonymous=True) as plane:
        remotes = [Remote(plane, name) for name in connected]
        for name, remote in zip(connected, remotes, strict=True):
            remote.accept_connect()
            assert linked(plane, name).event == "up"
        reload(plane, named("b", "y", reload_lazy=lazy), named("c", "x", reload_lazy=lazy))
        for remote in remotes:
            remote.close()
        for name in connected:
            assert linked(plane, name).event == "down"
        publish(client(plane), "t", b"x", 1)
        assert [each["pending"] for each in plane.engine.bridges()] == [1, 1]
        for name in ("b", "c"):
            again = Remote(plane, name)
            again.accept_connect()
            assert again.hears("publish")["topic"] == b"t"
        assert held(plane, "x")
        assert held(plane, "y")


def test_a_kick_of_anonymous_clients_leaves_bridges_alone() -> None:
    with Plane(bridges=[spec(line("#", "out", 1))], allow_anonymous=True) as plane:
        up(plane)
        wire = client(plane)
        plane.answer(KickCommand([None]))
        assert wire.read_frame() is None         # a client without a user name that is no bridge
        plane.asks_nothing()
        assert plane.engine.bridges()[0]["state"] == "up"
