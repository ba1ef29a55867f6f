"""Test which parts decide about an HTTP client."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from mosq.server.http.gate import Gate
from mosq.records import LoginAnswer, LoginRequest


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
