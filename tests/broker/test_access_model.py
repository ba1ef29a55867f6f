"""Compare every access decision of a running broker with a naive model: random rules, names, mount points, topics and filters.

One client subscribes, receives retained, live and queued messages, publishes (also by a topic alias) and leaves wills.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import mosq
from mosq.config.acl import is_filter
from tests.broker.acl_model import Rule, Site
from tests.broker.group import FOREVER, Member
from tests.harness.effort import tries
from tests.harness.packets import Connack, Connect, Puback, Publish, Suback, Subscribe, Will
from tests.harness.properties import P
from tests.harness.wire import Wire

NAMES = ("ann", "bob", "$a", "$SYS", "$CONTROL", "a/b", "/a", "a/", "a+b", "#", "a", "é", "$")
USERS = (None, *NAMES)
FIRST = ("a", "b", "", "ann", "é", "$a", "$", "$SYS", "$CONTROL", "$share")
LEVELS = ("a", "b", "", "ann", "bob", "$a", "mosq", "%u")
ALL = ("#", "$a/#", "$/#", "$SYS/#", "$CONTROL/#")          # filters that match every topic of this test
MOUNTS = ("",) * 8 + ("m/", "a/", "/", "$a/", "$SYS/", "$CONTROL/", "ann/bob/")


def paths(first: tuple[str, ...], levels: tuple[str, ...]) -> st.SearchStrategy[str]:
    return st.tuples(st.sampled_from(first), st.lists(st.sampled_from(levels), max_size=3)).map(
        lambda parts: "/".join([parts[0], *parts[1]])).filter(bool)


named = st.one_of(paths((*FIRST, *("%u", "%c", "$SYS", "$share") * 2), (*LEVELS, "%u", "%c")), st.sampled_from((
    "$SYS/broker/connection/a/state", "$CONTROL/mosq/index/v1", "$SYS", "$CONTROL")))      # topics, before names stand in them
foreign = paths((*FIRST, "+", "%u", "%c"), (*LEVELS, "+", "%u", "%c", "#")).map(lambda path: path.partition("#")[0] + "#" * ("#" in path))
access = st.sampled_from(("read", "write", "readwrite", "readwrite", "deny"))


@dataclass(frozen=True)
class Case:
    rules: list[Rule]
    mount: str
    refuses: bool
    user: str | None
    client_id: str
    topics: list[str]
    filters: list[str]


def plain(path: str) -> str:
    return path.replace("+", "a").replace("#", "a")


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Return a case in which many rules and filters are made of its topics, its names and its mount point."""
    user, client_id, mount = (draw(st.sampled_from(values)) for values in (USERS, NAMES, MOUNTS))

    def filled(path: str) -> str:
        return "/".join({"%u": user or "x", "%c": client_id}.get(level, level) for level in path.split("/"))

    def widened(path: str) -> str:
        levels = ["+" if draw(st.integers(0, 5)) == 0 else level for level in path.split("/")]
        cut = draw(st.integers(0, 3 * len(levels)))
        return "/".join([*levels[:cut], "#"] if cut <= len(levels) else levels)

    def rule() -> Rule:
        kind = draw(st.sampled_from(("topic", "pattern")))
        path = draw(st.one_of(foreign, own, own, own))
        whole = draw(st.sampled_from((mount, mount, mount, ""))) + widened(path if kind == "pattern" else plain(filled(path)))
        who = None if kind == "pattern" else draw(st.sampled_from((user, user, user, *USERS)))
        return who, kind, draw(access), whole if is_filter(whole) else "a"

    def topic_filter() -> str:
        path = widened(filled(draw(st.one_of(foreign, own, own))))
        return draw(st.sampled_from(("", "", "$share/g/"))) + (path if is_filter(path) and not path.startswith("$share") else "#")

    paths_of_topics = draw(st.lists(named, min_size=2, max_size=6))
    own = st.sampled_from(paths_of_topics)
    topics = sorted({plain(filled(path)) for path in paths_of_topics})
    return Case([rule() for _ in range(draw(st.integers(0, 8)))], mount, draw(st.booleans()), user, client_id, topics,
                sorted({topic_filter() for _ in range(draw(st.integers(1, 4)))}))


def acl_file(rules: list[Rule]) -> str:
    """Return the text of the rules. A rule without a user comes before the first `user` line."""
    lines = [f"{kind} {access} {text}" for user, kind, access, text in rules if user is None]
    for user in USERS[1:]:
        lines += [f"user {user}", *(f"{kind} {access} {text}" for who, kind, access, text in rules if who == user)]
    return "\n".join(lines) + "\n"


class Scene:
    """Run a broker with one listener for the client and one without rules."""

    def __init__(self, broker: mosq.Broker, case: Case, stack: ExitStack) -> None:
        self.broker, self.case, self.stack = broker, case, stack
        self.site = Site(case.rules, case.mount, case.refuses)
        self.who = case.user, case.client_id
        # what the program itself publishes; the broker routes no topic below $CONTROL
        self.wholes = sorted({whole for topic in case.topics for whole in (topic, case.mount + topic) if not whole.startswith("$CONTROL/")})

    def watch(self, name: str) -> Member:
        watch = Member(self.broker, name, port=self.broker.ports[1])
        self.stack.callback(watch.close)
        watch.wire.send(Subscribe(1, tuple((pattern, 1) for pattern in ALL)))
        watch.wire.expect_packet(Suback(1, (1,) * len(ALL)))
        return watch

    def client(self, clean: bool) -> Member:
        client = Member(self.broker, self.case.client_id, user=self.case.user, clean=clean, expiry_s=FOREVER)
        self.stack.callback(client.close)
        return client

    def tell(self, payload: bytes, retain: bool = False) -> None:
        for whole in self.wholes:
            self.broker.publish(whole, payload, qos=1, retain=retain)

    def readable(self, shared: bool = True) -> set[tuple[str, int]]:
        """Return (topic for the client, subscription identifier) for each message that the client must receive."""
        return {(self.own_name(whole), number) for (number, pattern), whole in product(enumerate(self.case.filters, 1), self.wholes)
                if (shared or not pattern.startswith("$share/")) and self.site.reads(*self.who, pattern, whole)}

    def own_name(self, whole: str) -> str:
        """Return a topic as the client receives it. A topic that is the mount point itself has no other name: an empty topic is none [v5 4.7.3-1]."""
        return whole.removeprefix(self.case.mount) or whole

    def writable(self) -> set[str]:
        """Return the topics, by their name in the broker, on which others receive what the client publishes."""
        return {self.case.mount + topic for topic in self.case.topics
                if not self.site.for_the_broker(topic) and self.site.writes(*self.who, topic)}


def received(client: Member, payload: bytes) -> set[tuple[str, int]]:
    got = client.gets()
    assert {packet.payload for packet in got} <= {payload}
    return {(packet.topic, number) for packet in got for name, number in packet.props if name == P.SUBSCRIPTION_ID}  # type: ignore[misc]


def topics_of(watch: Member, payload: bytes, retained: bool = False) -> set[str]:
    return {packet.topic for packet in watch.gets() if packet.payload == payload and packet.retain == retained}


def check_subscriptions(scene: Scene) -> None:
    """Check the answers to SUBSCRIBE, and retained, live and queued messages."""
    scene.tell(b"kept", retain=True)
    client = scene.client(clean=True)
    for number, pattern in enumerate(scene.case.filters, 1):
        client.wire.send(Subscribe(number, ((pattern, 1),), ((P.SUBSCRIPTION_ID, number),)))
        assert client.wire.read_packet() == Suback(number, (1 if scene.site.subscribes(*scene.who, pattern) else 0x87,)), pattern
        seen = received(client, b"kept")
        assert seen == {pair for pair in scene.readable(shared=False) if pair[1] == number}, "retained"
    scene.tell(b"live")
    assert received(client, b"live") == scene.readable(), "live"
    client.leaves()
    scene.tell(b"queued")
    client = scene.client(clean=False)
    assert received(client, b"queued") == scene.readable(), "queued"
    client.leaves()


def check_publishing(scene: Scene) -> None:
    """Check PUBACK and what others receive, at once and retained; then the same by a topic alias."""
    client, watch = scene.client(clean=True), scene.watch("watch")
    watch.gets()
    for payload, by_alias in ((b"named", False), (b"alias", True)):
        for topic in scene.case.topics:
            client.wire.send(*[Publish(topic, b"set", props=((P.TOPIC_ALIAS, 1),))] if by_alias else [])
            client.wire.send(Publish("" if by_alias else topic, payload, 1, 1, retain=True, props=((P.TOPIC_ALIAS, 1),) if by_alias else ()))
            answers = []
            while not isinstance(answer := client.wire.read_packet(), Puback):
                assert isinstance(answer, Publish)
                answers.append(answer.topic)
            allowed = scene.site.writes(*scene.who, topic)
            if topic != "$CONTROL/mosq/index/v1":           # its payload is no topic to explain
                assert (answer.rc < 0x80) == allowed, topic
                assert answers == [topic + "/response"] * ((1 + by_alias) * (allowed and scene.site.for_the_broker(topic))), topic
            assert allowed or answer.rc == 0x87, topic
        assert topics_of(watch, payload) == scene.writable(), "published"
        assert topics_of(scene.watch("later"), payload, retained=True) == scene.writable(), "retained by the client"
    client.leaves()


def check_wills(scene: Scene) -> None:
    watch = scene.watch("watch")
    watch.gets()
    for topic in scene.case.topics:
        wire = Wire(scene.broker.port, 4)
        scene.stack.callback(wire.close)
        wire.send(Connect(scene.case.client_id, username=scene.case.user, will=Will(topic, b"will", retain=True)))
        assert wire.read_packet() == Connack()
        wire.send(b"\xf0\x00")          # no packet of 3.1.1: the broker ends the connection
        wire.expect_closed()
    assert topics_of(watch, b"will") == scene.writable(), "wills"
    assert topics_of(scene.watch("later"), b"will", retained=True) == scene.writable(), "retained wills"


@contextmanager
def running(case: Case, folder: Path) -> Iterator[Scene]:
    (folder / "acl").write_text(acl_file(case.rules))
    mount = f"mount_point {case.mount}\n" * bool(case.mount)
    config = f"per_listener_settings true\nlistener 1 127.0.0.1\nallow_anonymous true\nacl_file {folder}/acl\n{mount}listener 2 127.0.0.1\nallow_anonymous true\n"
    with ExitStack() as stack, mosq.Broker(config, port=0, sys_interval=0, acl_refuse_subscribe=case.refuses) as broker:
        yield Scene(broker, case, stack)


@pytest.mark.again("properties")
@settings(max_examples=tries(2000, 200), derandomize="MOSQ_TESTS_FULL" not in os.environ,
          suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@example(Case([(None, "pattern", "readwrite", "%c/#")], "", True, None, "$a", ["$a", "$a/b"], ["#", "$a/#", "$share/g/$a/#"]))
@example(Case([(None, "pattern", "readwrite", "%u/mosq/#")], "", True, "$CONTROL", "c", ["$CONTROL/mosq/broker/v1"], ["$CONTROL/#"]))
@example(Case([(None, "topic", "read", "a/#")], "a/", False, None, "a/", ["a", "a/"], ["#", "$share/g/#"]))
@example(Case([(None, "topic", "readwrite", "$share/#")], "", False, None, "c", ["$share/g/a", "$shared"], ["#"]))
@given(cases())
def test_a_broker_decides_as_the_model(tmp_path: Path, case: Case) -> None:
    with running(case, tmp_path) as scene:
        check_subscriptions(scene)
        check_publishing(scene)
        check_wills(scene)
