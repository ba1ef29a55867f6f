"""Test the differences between two configurations, and the effect of a reload."""

import pytest

from mosq.config.change import changes
from mosq.config.options import LISTENER_RESTART, LIVE, NEW, OPTIONS, RESTART
from tests.config.keywords import ROWS


def changes_of(read, old, new):
    return [(c.option, c.scope, c.old, c.new, c.reload) for c in changes(read(*old), read(*new))]


def test_no_changes(read):
    lines = ("listener 1883", "max_qos 1", "plugin python:a:B", "plugin_opt_key x", "connection b", "address h", "topic #")
    assert changes_of(read, lines, ("# the same", *lines, "sys_interval 10")) == []


def test_globals_and_their_classes(read):
    assert changes_of(read, ("user a", "log_type all"), ("user b", "max_queued_messages 5", "persistent_client_expiration 1h", "set_tcp_nodelay 0")) == [
        ("user", "global", "a", "b", RESTART),
        ("set_tcp_nodelay", "global", "true", "false", NEW),
        ("max_queued_messages", "global", "1000", "5", LIVE),
        ("persistent_client_expiration", "global", "never", "3600s", LIVE),
        ("log_type", "global", "all", "(default)", LIVE)]


def test_added_removed_and_changed_listeners(read):
    assert changes_of(read, ("listener 1883", "listener 1884", "max_qos 1", "listener 0 /s"),
                ("listener 1884", "protocol websockets", "listener 1885 ::1", "listener 0 /s", "mount_point a/")) == [
        ("listener", "listener port 1883", "port 1883", None, LISTENER_RESTART),
        ("protocol", "listener port 1884", "mqtt", "websockets", LISTENER_RESTART),
        ("max_qos", "listener port 1884", "1", "2", LIVE),
        ("listener", "listener ::1:1885", None, "::1:1885", LIVE),
        ("mount_point", "listener /s", "(default)", "a/", LIVE)]


def test_security_by_listener(read):
    old = ("per_listener_settings true", "listener 1883", "acl_file /a", "listener 1884", "plugin python:a:B")
    new = ("per_listener_settings true", "listener 1883", "acl_file /b", "listener 1884", "allow_anonymous true")
    assert changes_of(read, old, new) == [
        ("acl_file", "listener port 1883", "/a", "/b", LIVE),
        ("allow_anonymous", "listener port 1884", "(default)", "true", LIVE),
        ("plugin", "listener port 1884", "python:a:B", None, LIVE)]


def test_a_changed_thread_of_a_plugin_needs_a_restart(read):
    old, new = ("plugin /a.so", "plugin_opt_key 1", "plugin /b.so"), ("plugin /a.so", "plugin_thread loop", "plugin_opt_key 2", "plugin /b.so")
    assert changes_of(read, old, new) == [("plugin_thread", "plugin /a.so", "own", "loop", RESTART),
                                          ("plugin_opt_*", "global", "(not shown)", "(not shown)", LIVE)]
    assert changes_of(read, old[2:], ("plugin /b.so", "plugin_thread own")) == []


def test_leaving_local_only_mode_changes_allow_anonymous(read):
    found = changes_of(read, ("max_qos 1",), ("listener 1883 127.0.0.1", "max_qos 1", "listener 1883 ::1", "max_qos 1"))
    assert [(option, old, new) for option, _, old, new, _ in found] == [("allow_anonymous", "true", "false")] * 2


def test_secrets_are_not_shown(read):
    bridge = ("connection b", "address h", "topic #")
    found = changes(read(*bridge, "remote_password hunter1", "plugin python:a:B", "plugin_opt_key hunter2"),
                    read(*bridge, "remote_password hunter3", "plugin python:a:B", "plugin_opt_key hunter4"))
    assert [change.option for change in found] == ["plugin_opt_*", "remote_password"]
    assert not [change for change in found if "hunter" in str(change)]


def test_bridges(read):
    old = ("connection a", "address h", "topic #", "connection b", "address h", "topic #")
    new = ("connection b", "address h i:1884", "topic # in 1", "cleansession true", "restart_timeout 5 10", "bridge_tcp_keepalive 1 2 3",
           "connection c", "address h", "topic #")
    assert [(option, scope, before, after) for option, scope, before, after, _ in changes_of(read, old, new)] == [
        ("connection", "bridge a", "a", None),
        ("address", "bridge b", "h:1883", "h:1883 i:1884"),
        ("topic", "bridge b", '# out 0 "" ""', '# in 1 "" ""'),
        ("cleansession", "bridge b", "false", "true"),
        ("restart_timeout", "bridge b", "5 30 0", "5 10 0"),
        ("bridge_tcp_keepalive", "bridge b", "(default)", "1 2 3"),
        ("connection", "bridge c", None, "c")]


# no changes: obsolete options, an unused plugin, an option of a plugin that sets the default
SILENT = {"retry_interval", "dhparamfile", "websockets_log_level", "plugin_load", "include_dir", "connection", "address",
          "addresses", "topic", "bridge_identity", "bridge_psk", "certfile", "keyfile"}


@pytest.mark.parametrize("keyword", sorted(set(ROWS) - SILENT))
def test_every_option_is_noticed(keyword, read, tmp_path):
    (tmp_path / "d").mkdir()
    lines = [line.replace("{folder}", str(tmp_path / "d")) for line in ROWS[keyword][0]]
    without = [line for line in lines if not line.startswith(keyword)]
    if keyword == "per_listener_settings":
        without = [line for line in without if "acl_file" not in line]
    if keyword in ("plugin", "auth_plugin", "global_plugin"):
        without = [line for line in without if "plugin" not in line]
    found = changes(read(*without), read(*lines))
    assert found
    assert all(change.reload in {option.reload for option in OPTIONS} and str(change) for change in found)
