"""Test Mosquitto's own plugins, which are recognised by their file names."""

import pytest
from hypothesis import given, strategies as st

from mosq.auth import sparkplug
from mosq.config.errors import ConfigError
from mosq.records import Content, MessageRequest, PublishCommand
from mosq.varint import varint

from .conftest import write_users
from .engine import config_of, plugin_line

SO = "/usr/lib/x86_64-linux-gnu/mosquitto_{}.so"
LET_IN, REFUSED = 0, 0x87


def test_password_file(engine, password_file):
    engine.start(config_of(plugins=[plugin_line(SO.format("password_file"), password_file=str(password_file))]))
    assert engine.login("ann", b"secret") == LET_IN
    assert engine.login("ann", b"x") == REFUSED


def test_a_password_file_of_a_plugin_comes_before_the_option(engine, password_file, tmp_path):
    write_users(tmp_path / "other", cid=b"three")
    engine.start(config_of(tmp_path / "other", [plugin_line("password-file", password_file=str(password_file))]))
    assert engine.login("ann", b"secret") == LET_IN
    assert engine.login("cid", b"three") == REFUSED         # unknown to the first plugin that knows users


def test_acl_file(engine, tmp_path):
    path = tmp_path / "acl"
    path.write_text("user ann\ntopic read a/#\n")
    path.chmod(0o600)
    engine.start(config_of(plugins=[plugin_line(SO.format("acl_file"), acl_file=str(path))]))
    (security,) = engine.access.securities()
    assert list(security["acl"]) == [("ann", "topic", "read", "a/#")]
    assert not security["authenticate"]
    assert not security["authorize"]


@pytest.mark.parametrize(("name", "options", "says"), [
    ("password_file", {}, "plugin_opt_password_file FILE"),
    ("password_file", {"file": "x"}, "plugin_opt_file"),
    ("password_file", {"password_file": "/no/such"}, "No such file"),
    ("acl_file", {}, "plugin_opt_acl_file FILE"),
    ("sparkplug_aware", {"colour": "red"}, "unknown option 'colour'"),
    ("sparkplug_aware", {"ndeath_timestamp": "1"}, "neither true nor false"),
])
def test_mistakes(engine, name, options, says):
    with pytest.raises(ConfigError) as error:
        engine.start(config_of(plugins=[plugin_line(SO.format(name), **options)]))
    assert says in str(error.value)
    assert error.value.origin is not None


def test_persist_sqlite_is_not_a_plugin_here(engine):
    """Test that the store replaces it: tests/durable/test_options.py."""
    engine.start(config_of(plugins=[plugin_line(SO.format("persist_sqlite"), db_file="/tmp/x")]))
    engine.access.tick()
    assert engine.lines == [] and not engine.access.securities()[0]["authenticate"]


# ---------------------------------------------------------------- sparkplug

@pytest.mark.parametrize("topic", ["spBv1.0/group/NBIRTH/node", "spBv1.0/group/DBIRTH/node/device"])
def test_births_are_retained_as_certificates(engine, topic):
    engine.start(config_of(plugins=[plugin_line(SO.format("sparkplug_aware"))]))
    request = MessageRequest("message_in", 5, 0, "c", None, topic, b"birth", 0, False, b"")
    assert engine.ask(request).content == Content(topic, b"birth", 0, False)
    assert engine.answers[0] == PublishCommand(f"$sparkplug/certificates/{topic}", b"birth", 0, True)


def test_declared_topics_of_sparkplug_aware(engine):
    engine.start(config_of(plugins=[plugin_line("sparkplug-aware")]))
    (security,) = engine.access.securities()
    assert security["transform_in"] == ("spBv1.0/+/NBIRTH/+", "spBv1.0/+/DBIRTH/+/+")
    assert security["transform_out"] == ()


def test_deaths_get_the_time_of_their_delivery(engine):
    engine.start(config_of(plugins=[plugin_line("sparkplug-aware", ndeath_timestamp="true")]))
    (security,) = engine.access.securities()
    assert security["transform_out"] == ("spBv1.0/+/NDEATH/+",)
    metric = b"\x12\x05bdSeq"
    payload = b"\x08\x80\x01" + metric
    changed = engine.ask(MessageRequest("message_out", 5, 0, "c", None, "spBv1.0/g/NDEATH/n", payload, 0, False, b"")).content.payload
    key, place = sparkplug.read_varint(changed, 0)
    timestamp, place = sparkplug.read_varint(changed, place)
    assert (key, changed[place:]) == (8, metric)
    assert timestamp > 1_700_000_000_000
    unchanged = engine.ask(MessageRequest("message_out", 6, 0, "c", None, "spBv1.0/g/NDEATH/n", b"\xff" * 20, 0, False, b"")).content.payload
    assert unchanged == b"\xff" * 20


@given(st.binary(max_size=100))
def test_any_payload_gets_a_timestamp_or_stays_unchanged(payload):
    changed = sparkplug.with_timestamp(payload, 12345)
    assert changed is None or changed.startswith(b"\x08\xb9\x60")


@given(st.integers(0, 2**64 - 1))
def test_varints(value):
    encoded = varint(value)
    assert sparkplug.read_varint(encoded, 0) == (value, len(encoded))
