"""Test that the examples of docs/plugins.md work unchanged."""

import hashlib
import hmac
import importlib
import json
import re
from pathlib import Path

import pytest

from mosq.config.parser import load_config
from mosq.records import AccessRequest, ExchangeRequest, LoginAnswer, MessageRequest

from .engine import config_of, plugin_line

PAGE = Path(__file__).resolve().parents[2] / "docs" / "plugins.md"
LET_IN, GO_ON, REFUSED = 0, 0x18, 0x87


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    """Make a module with all examples of the page."""
    (tmp_path / "fleet.py").write_text("\n\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)))
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield
    importlib.sys.modules.pop("fleet", None)


def test_devices(engine, fleet):
    engine.start(config_of(plugins=[plugin_line("python:fleet:Devices", fleet_key="sesame")]))
    assert engine.login("device-1", b"sesame") == LET_IN
    assert engine.login("device-1", b"x") == REFUSED
    assert engine.login("ann", b"sesame") == REFUSED
    for topic, allowed in (("fleet/device-1/x", True), ("fleet/device-2/x", False)):
        assert engine.ask(AccessRequest(engine.handle(), 0, "c", "device-1", "", 2, topic, 0, False)).allowed is allowed


def test_challenge(engine, fleet):
    engine.start(config_of(plugins=[plugin_line("python:fleet:Challenge", key="k")]))
    first = engine.connect("x", None, method="HMAC")
    challenge = engine.ask(first)
    assert challenge.code == GO_ON
    proof = hmac.digest(b"k", challenge.data, hashlib.sha256)
    engine.answers.clear()
    assert engine.ask(ExchangeRequest(first.handle, 0, "HMAC", proof, False)) == LoginAnswer(
        first.handle, LET_IN, "robot", hmac.digest(b"k", proof, hashlib.sha256))


def test_stamp(engine, fleet):
    engine.start(config_of(plugins=[plugin_line("python:fleet:Stamp")]))
    stamped = engine.ask(MessageRequest("message_in", 1, 0, "c", None, "sensors/a", b"21.5", 0, False, b""))
    assert json.loads(stamped.content.payload)["value"] == 21.5
    assert engine.ask(MessageRequest("message_in", 2, 0, "c", None, "sensors/a", b"{", 0, False, b"")).content is None


def test_every_configuration_of_the_page_loads(tmp_path):
    blocks = re.findall(r"^```\n((?:(?!```).+\n)+)```", PAGE.read_text(), re.MULTILINE)
    blocks = [block for block in blocks if "plugin " in block]
    assert len(blocks) == 4
    for block in blocks:
        path = tmp_path / "mosq.conf"
        path.write_text(block)
        assert len(load_config(str(path)).plugins) == 1
