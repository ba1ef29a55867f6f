"""Test which parts decide about an HTTP client."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given, settings

from mosq.auth.networks import subscriber_of
from mosq.server.http.gate import CLIENT_ID, LOGINS_MAX, Gate, may_use
from mosq.server.http.logins import BusyError, Logins
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
    assert asyncio.run(gate.allows(listener, None, None, ("127.0.0.1", 1), "/")) is allowed
    assert [request.username for request in asked] == ([None] if asks else [])


def test_few_logins_are_checked_at_a_time_and_urgent_ones_do_not_wait_for_them() -> None:
    listener, asked = SimpleNamespace(), []
    security = {"authenticate": True, "authorize": False, "acl": None}

    async def clients() -> None:
        gate = Gate(SimpleNamespace(), [security], {id(listener): 0}, asked.append, 30.0)
        guesses = [asyncio.create_task(gate.logs_in(listener, "ann", b"guess", ("127.0.0.1", 1))) for _ in range(20)]
        probe = asyncio.create_task(gate.logs_in(listener, "ann", b"anns", ("127.0.0.1", 1), True))
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


def test_logins_of_another_network_wait_for_one_check_and_a_network_for_few() -> None:
    async def clients() -> None:
        logins, places, order = Logins(1, 3, 30.0), [], []

        async def login(address: str) -> None:
            await logins.enter(subscriber_of(address), places.append)
            order.append(address)

        await login("192.0.2.1")
        flood = [asyncio.create_task(login(f"2001:db8::{i}")) for i in range(5)]
        probe = asyncio.create_task(login("192.0.2.9"))
        while len(places) < 4:
            await asyncio.sleep(0)
        for _ in range(6):
            await asyncio.sleep(0)
        assert [isinstance(one.exception(), BusyError) for one in flood if one.done()] == [True, True]
        places[0].set_result(False)         # its client has gone, so it gets no turn
        for _ in range(3):
            logins.leave()
            for _ in range(6):
                await asyncio.sleep(0)
        assert order == ["192.0.2.1", "2001:db8::1", "192.0.2.9", "2001:db8::2"]
        await probe
        with pytest.raises(BusyError):
            await flood[0]
        assert not logins.waiting
        logins.leave()
        assert logins.free == 1

    asyncio.run(clients())


def test_a_login_that_is_cancelled_or_waits_too_long_keeps_no_place() -> None:
    async def clients() -> None:
        logins = Logins(1, 9, 0.01)
        await logins.enter(b"a", lambda place: None)
        with pytest.raises(BusyError):
            await logins.enter(b"b", lambda place: None)
        waiting = asyncio.create_task(logins.enter(b"b", lambda place: None))
        await asyncio.sleep(0)
        logins.leave()                      # it gets the place, and is cancelled before it notices
        waiting.cancel()
        try:
            await waiting
        except asyncio.CancelledError:
            pass
        else:
            logins.leave()                  # Python 3.11 does not cancel a wait that has ended
        assert logins.free == 1
        assert not logins.waiting

    asyncio.run(clients())


def test_an_answer_from_before_a_reload_settles_no_later_request() -> None:
    listener, asked = SimpleNamespace(), []
    security = {"authenticate": True, "authorize": False, "acl": None}

    async def clients() -> None:
        old, new = (Gate(SimpleNamespace(), [security], {id(listener): 0}, asked.append, 30.0) for _ in range(2))
        requests = [asyncio.create_task(gate.logs_in(listener, "ann", b"guess", ("127.0.0.1", 1))) for gate in (old, new)]
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


def test_a_closed_gate_asks_nothing_and_refuses_what_waits() -> None:
    """A reload closes it: its questions would name securities of another configuration."""
    listener, asked = SimpleNamespace(), []
    security = {"authenticate": True, "authorize": False, "acl": None}

    async def clients() -> None:
        gate = Gate(SimpleNamespace(), [security], {id(listener): 0}, asked.append, 30.0)
        waits = [asyncio.create_task(gate.logs_in(listener, "ann", b"anns", ("127.0.0.1", 1))) for _ in range(LOGINS_MAX + 3)]
        while len(asked) < LOGINS_MAX:
            await asyncio.sleep(0)
        gate.close()
        gate.answered(LoginAnswer(asked[0].handle, 0))
        waits.append(asyncio.create_task(gate.logs_in(listener, "ann", b"anns", ("127.0.0.1", 1))))
        assert {type(one) for one in await asyncio.gather(*waits, return_exceptions=True)} == {BusyError}
        assert len(asked) == LOGINS_MAX

    asyncio.run(clients())


@pytest.mark.again("properties")
@settings(max_examples=tries(3000, 300))
@given(rules, users, topics)
def test_the_rules_decide_about_a_page_as_about_a_topic(given_rules: list[Rule], user: str | None, topic: str) -> None:
    assert may_use(given_rules, user, topic) == Model(given_rules).allows(user, CLIENT_ID, topic, "read")


@pytest.mark.parametrize(("user", "allowed"), [("ann", True), ("site/bob", False)])
def test_a_name_with_a_slash_is_denied_what_its_pattern_denies(user: str, allowed: bool) -> None:
    given_rules: list[Rule] = [(None, "pattern", "read", "/files/#"), (None, "pattern", "deny", "/files/%u/secret")]
    assert may_use(given_rules, user, "/files/site/bob/secret") is allowed
