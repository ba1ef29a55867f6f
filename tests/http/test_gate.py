"""Test which parts decide about an HTTP client."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given, settings

from mosq.server.http.gate import CLIENT_ID, LOGINS_MAX, Gate, may_read
from mosq.records import LoginAnswer, LoginRequest
from tests.broker.acl_model import Model, Rule
from tests.broker.test_acl import rules, topics, users
from tests.harness.effort import tries


@pytest.mark.parametrize(("asks", "verdict", "allowed"), [(True, 0x87, False), (True, 0, True), (True, -1, True), (False, 0x87, True)])
def test_plugins_decide_about_clients_without_a_user_name(asks: bool, verdict: int, allowed: bool) -> None:
    listener = SimpleNamespace()
    asked = []

    def post(request: LoginRequest) -> None:
        asked.append(request)
        gate.answered(LoginAnswer(request.handle, verdict))

    security = {"authenticate": True, "login_anonymous": asks, "authorize": False, "acl": None}
    gate = Gate(SimpleNamespace(allows_anonymous=lambda listener: True), [security], {id(listener): 0}, post, 5.0)
    assert asyncio.run(gate.allows(listener, None, None, "127.0.0.1", 1, "/")) is allowed
    assert [request.username for request in asked] == ([None] if asks else [])


def test_few_logins_are_checked_at_a_time_and_urgent_ones_do_not_wait_for_them() -> None:
    listener, asked = SimpleNamespace(), []
    security = {"authenticate": True, "authorize": False, "acl": None}

    async def clients() -> None:
        gate = Gate(SimpleNamespace(), [security], {id(listener): 0}, asked.append, 30.0)
        guesses = [asyncio.create_task(gate.allows(listener, "ann", b"guess", "127.0.0.1", 1, "/")) for _ in range(20)]
        probe = asyncio.create_task(gate.allows(listener, "ann", b"anns", "127.0.0.1", 1, "/health", True))
        while len(asked) < LOGINS_MAX + 1:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert [request.password for request in asked] == [b"guess"] * LOGINS_MAX + [b"anns"]
        gate.answered(LoginAnswer(asked[-1].handle, 0))
        assert await probe is True
        for answered in range(20):
            while len(asked) < min(answered + LOGINS_MAX, 20) + 1:
                await asyncio.sleep(0)
            gate.answered(LoginAnswer([request for request in asked if request.password == b"guess"][answered].handle, 0x87))
            while sum(guess.done() for guess in guesses) <= answered:
                await asyncio.sleep(0)
        assert not any(await asyncio.gather(*guesses))

    asyncio.run(clients())


def test_an_answer_from_before_a_reload_settles_no_later_request() -> None:
    listener, asked = SimpleNamespace(), []
    security = {"authenticate": True, "authorize": False, "acl": None}

    async def clients() -> None:
        old, new = (Gate(SimpleNamespace(), [security], {id(listener): 0}, asked.append, 30.0) for _ in range(2))
        requests = [asyncio.create_task(gate.allows(listener, "ann", b"guess", "127.0.0.1", 1, "/")) for gate in (old, new)]
        while len(asked) < 2:
            await asyncio.sleep(0)
        new.answered(LoginAnswer(asked[0].handle, 0))       # the control plane passes answers to the gate in force
        for _ in range(10):
            await asyncio.sleep(0)
        assert not any(request.done() for request in requests)
        for gate, request in zip((old, new), asked, strict=True):
            gate.answered(LoginAnswer(request.handle, 0x87))
        assert await asyncio.gather(*requests) == [False, False]

    asyncio.run(clients())


@pytest.mark.again("properties")
@settings(max_examples=tries(3000, 300))
@given(rules, users, topics)
def test_the_rules_decide_about_a_page_as_about_a_topic(given_rules: list[Rule], user: str | None, topic: str) -> None:
    assert may_read(given_rules, user, topic) == Model(given_rules).allows(user, CLIENT_ID, topic, "read")


@pytest.mark.parametrize(("user", "allowed"), [("ann", True), ("site/bob", False)])
def test_a_name_with_a_slash_is_denied_what_its_pattern_denies(user: str, allowed: bool) -> None:
    given_rules: list[Rule] = [(None, "pattern", "read", "/files/#"), (None, "pattern", "deny", "/files/%u/secret")]
    assert may_read(given_rules, user, "/files/site/bob/secret") is allowed
