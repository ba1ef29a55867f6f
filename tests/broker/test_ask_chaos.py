"""Run random sessions while a control plane answers at random: late, twice, never, out of order, for clients that are gone.

tests/fuzz/chaos.py describes the actions of the clients. Here each client has a user name, and some clients send an
Authentication Method."""

from __future__ import annotations

import dataclasses
import random
import socket
from typing import Any

import pytest

from tests.fuzz.chaos import Chaos
from tests.harness.packets import Auth, Connack, Connect
from tests.harness.plane import Plane
from tests.harness.properties import P
from mosq.records import AccessAnswer, Content, LoginAnswer, MessageAnswer, Record

EVERYTHING: dict[str, Any] = {
    "authenticate": True, "extended": True, "authorize": True, "events": True, "transform_in": ("b", "deep/#"), "transform_out": ("a/#",),
    "acl": [("u0", "topic", "readwrite", "#"), (None, "pattern", "read", "%c/#"), ("u1", "topic", "deny", "b")],
}


class Guests(Chaos):
    """Random clients with user names, authentication methods and AUTH packets."""

    def send(self, sock: socket.socket, level: int, packet: object) -> bool:
        if isinstance(packet, Connect):
            packet = dataclasses.replace(packet, username=self.random.choice(("u0", "u1", "u2")), password=b"p")
            if level == 5 and self.random.random() < 0.5:
                packet = dataclasses.replace(packet, props=(*packet.props, (P.AUTH_METHOD, "M")))
        return super().send(sock, level, packet)

    def packet(self, level: int) -> object:
        if level == 5 and self.random.random() < 0.1:
            return Auth(self.random.choice((0x18, 0x19)), ((P.AUTH_METHOD, "M"), (P.AUTH_DATA, b"d")))
        return super().packet(level)


class Fickle:
    """A control plane that answers at random times with random results."""

    def __init__(self, plane: Plane, seed: int) -> None:
        self.plane, self.random = plane, random.Random(seed)
        self.kept: list[Any] = []

    def act(self) -> None:
        self.plane.look(0)
        while self.plane.waiting:
            self.kept.append(self.plane.waiting.popleft())
        self.random.shuffle(self.kept)
        for _ in range(self.random.randrange(10)):
            if self.kept:
                request = self.kept.pop() if self.random.random() < 0.9 else self.kept[-1]  # some requests get a second answer
                if self.random.random() < 0.95:
                    self.plane.answer(self.verdict(request))

    def verdict(self, request: Any) -> Record:
        r, kind, handle = self.random, request.kind, request.handle
        if kind in ("connect", "auth"):
            rc = r.choice((0, 0, 0, 0x87, 0x18))
            return LoginAnswer(handle, rc, **r.choice(({}, {"username": "u9"}, {"data": b"more"})))
        if kind == "acl":
            return AccessAnswer(handle, r.choice((True, True, False, None)))
        if r.random() < 0.2:
            return MessageAnswer(kind, handle, None)
        topic, payload = request.topic + r.choice(("", "/x")), request.payload * r.randrange(3)
        return MessageAnswer(kind, handle, Content(topic, payload, request.qos, request.retain))


def run(settings: dict[str, Any], seed: int, actions: int) -> None:
    with Plane(EVERYTHING, {}, settings={"auth_timeout": 1, "sys_interval": 1, **settings}, allow_anonymous=True) as plane:
        guests, fickle = Guests(plane.port, seed), Fickle(plane, seed)
        try:
            for n in range(actions):
                guests.act()
                fickle.act()
                if n % 400 == 399:
                    plane.engine.reload(plane.settings, plane.listeners, [EVERYTHING if n % 800 == 799 else {**EVERYTHING, "authorize": False}, {}])
            well = plane.connect(Connect("well-behaved"), security=1)
            assert isinstance(well.read_packet(), Connack)
            well.expect_nothing()
            if seed % 2:
                return  # the broker stops with open requests and connections
        finally:
            for sock, _ in guests.sockets:
                sock.close()
        plane.until(lambda: plane.stats()["asks_open"] == 0)  # each request was answered or timed out
        assert plane.stats()["asks_timed_out"] > 0


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("settings", [
    {}, {"max_queued_messages": 5, "max_inflight_messages": 3, "turn_budget": 1000, "queue_qos0_messages": 1}], ids=["default", "tight"])
def test_the_broker_survives_and_serves_clients(settings: dict[str, Any], seed: int) -> None:
    run(settings, seed, actions=1500)
