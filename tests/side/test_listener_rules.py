"""Test on mosq and Debian's Mosquitto which rules decide about a session with `per_listener_settings`: those of the listener through which its
client is, or was last, connected. They decide about queued and live messages, and about wills."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.broker.group import FOREVER, Member
from tests.harness.broker import Broker, free_port
from tests.harness.packets import Connect, Will
from tests.harness.wire import Wire

MOSQUITTO = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin") or "mosquitto"
ALL = "topic readwrite #\nuser ann\ntopic readwrite #\n"
LESS = "user ann\ntopic readwrite open/#\n"

pytestmark = pytest.mark.interop


class Listeners(Broker):
    """Run a listener `all`, whose rules allow everything, and a listener `less`, whose rules allow only `open/#`."""

    def __init__(self, command: list[str] | None) -> None:
        self.ports = {"less": free_port()}
        super().__init__("per_listener_settings true\nlistener {port} 127.0.0.1\nallow_anonymous true\nacl_file {dir}/all\n"
                         f"listener {self.ports['less']} 127.0.0.1\nallow_anonymous true\nacl_file {{dir}}/less\n",
                         {"all": ALL, "less": LESS}, command)
        self.ports["all"] = self.port
        self.stack = ExitStack()

    def member(self, name: str, listener: str, user: str | None = "ann", clean: bool = False) -> Member:
        one = Member(self, name, user=user, clean=clean, expiry_s=FOREVER, port=self.ports[listener])
        self.stack.callback(one.close)
        return one

    def publishes(self, payload: bytes) -> None:
        publisher = self.member("pub", "all", None, True)
        for topic in ("closed/1", "open/1"):
            publisher.sends(topic, topic.partition("/")[0].encode() + payload, 1)
        publisher.leaves()


@pytest.fixture(params=["mosq", "Mosquitto"])
def broker(request: pytest.FixtureRequest) -> Iterator[Listeners]:
    with Listeners([MOSQUITTO] if request.param == "Mosquitto" else None) as running, running.stack:
        yield running


def test_queued_messages_are_decided_by_the_listener_that_resumes_the_session(broker: Listeners) -> None:
    broker.member("s", "all", clean=True).joins("+/+").leaves()
    broker.publishes(b" queued")
    session = broker.member("s", "less")
    assert (session.session, session.payloads()) == (True, [b"open queued"])
    broker.publishes(b" live")
    assert session.payloads() == [b"open live"]


def test_the_last_listener_decides_while_the_session_is_offline(broker: Listeners) -> None:
    broker.member("s", "less", clean=True).joins("+/+").leaves()
    broker.publishes(b" queued")
    session = broker.member("s", "all")
    assert (session.session, session.payloads()) == (True, [b"open queued"])
    broker.publishes(b" live")
    assert session.payloads() == [b"closed live", b"open live"]


@pytest.mark.parametrize(("listener", "sent"), [("all", [b"will"]), ("less", [])])
def test_a_will_is_decided_by_the_listener_of_its_connection(broker: Listeners, listener: str, sent: list[bytes]) -> None:
    watch = broker.member("w", "all", None, True).joins("closed/#")
    broker.member("s", "less" if listener == "all" else "all", clean=True).leaves()      # the session began at the other one
    dying = Wire(broker.ports[listener], 4)
    dying.send(Connect("s", False, username="ann", will=Will("closed/will", b"will")))
    dying.read_packet()
    dying.send(b"\x00\x00")         # no packet: the broker ends the connection
    dying.expect_closed()
    dying.close()
    assert watch.payloads() == sent
