"""Test hostile input: any payload on a control topic gets responses, and `mosq ctl` shows or refuses any answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mosq.server.admin import broker, inspect
from mosq.server.admin.control import Requester
from mosq.config.embedded import embedded_config
from mosq.tools.ctl.command import MODULES
from mosq.records import SessionDetail, SessionSlice, SessionSubscription, SlowSlice
from tests.harness.control import asked
from tests.harness.effort import tries

JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
                    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
                        st.text(max_size=6) | st.sampled_from(("clients", "clientid", "username", "roles", "acls", "plugins", "cursor", "subscriptions")), inner, max_size=4),
                    max_leaves=12)  # fmt: skip
NAMES = ("listPlugins", "listListeners", "listClients", "getClient", "kickClient", "listSubscriptions", "getStats", "listBridges", "hot", "NOPE")
FIELDS = ("clientid", "count", "cursor", "offset", "connected", "username", "prefix", "limit", "correlationData", "Count")
COMMAND = st.fixed_dictionaries({"command": st.sampled_from(NAMES) | JSON}, optional=dict.fromkeys(FIELDS, JSON)) | JSON
ROW: dict[str, Any] = {"id": "c", "username": None, "connected": False, "expiry_s": None, "will": False, "subscriptions": 1, "waiting": 0, "inflight": 0,
                       "pending": 0, "inbox": 0, "queue_bytes": 0}  # fmt: skip


class Engine:
    def sessions(self, cursor: int, most: int) -> SessionSlice:
        assert 0 <= cursor <= 0xFFFFFFFF
        assert 0 < most <= 1000
        return SessionSlice([ROW], 0)

    def session(self, client_id: str, skip: int) -> SessionDetail:
        assert 0 <= skip <= 100_000
        return SessionDetail(ROW, [SessionSubscription("t", 1, 0)], 0)

    def kick(self, client_id: str) -> bool:
        return bool(client_id.encode())

    def hot(self, what: str) -> None:
        return None

    def slow(self, position: int, limits: tuple[int, ...]) -> SlowSlice:
        return SlowSlice([], 0, 0, 0, 0)

    def stats(self) -> dict[str, int]:
        return {"disk_trouble": 0, **{name: 0 for names in inspect.GROUPS.values() for name in names}}


HANDLERS = (broker.commands(embedded_config(None, {}), lambda: (), lambda kind, text: None),
            inspect.commands(Engine, None, lambda kind, text: None))  # type: ignore[arg-type]


def responses(payload: bytes) -> list[Any]:
    found = []
    for handler in HANDLERS:
        [(topic, answer)] = asked(handler, Requester("c", None, "::1", 0), payload)
        assert topic.endswith("/response")
        found += json.loads(answer)["responses"]
    return found


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
@pytest.mark.again("hostile")
@settings(max_examples=tries(400, 60))
def test_any_bytes(payload: bytes) -> None:
    assert all("command" in one for one in responses(payload))


@given(st.lists(COMMAND, max_size=4))
@pytest.mark.again("hostile")
@settings(max_examples=tries(200, 30))
def test_any_commands(given: list[Any]) -> None:
    found = responses(json.dumps({"commands": given}).encode())
    assert all(("error" in one) or one["command"] in NAMES for one in found)


SHOWN = [spec for module in MODULES for spec in module.specs.values() if spec.show is not None]


@given(st.sampled_from(SHOWN), JSON)
@pytest.mark.again("hostile")
@settings(max_examples=tries(600, 80))
def test_any_answer(spec: Any, data: Any) -> None:
    try:
        lines = list(spec.show(data))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return
    assert all(line.isprintable() for line in lines)
