"""Test the lines of a start that Mosquitto logs and that people and tools look for."""

import signal

import pytest

from mosq.auth.hashes import SHA512, new_hash
from mosq.config.acl import acl_warnings, load_acl
from tests.cli.test_drop_in import logged
from tests.harness.broker import Broker

DEPRECATED = "option is now deprecated and will be removed in version 3.0."


def test_remarks_about_the_configuration_are_logged_at_the_start_and_at_each_reload():
    files = {"conf.d/b.conf": "message_size_limit 1000\n", "conf.d/a.conf": "allow_duplicate_messages true\n"}
    broker = Broker("port {port}\nbind_address 127.0.0.1\nauto_id_prefix x\nclientid_prefixes x\nper_listener_settings false\n"
                    "allow_anonymous true\ninclude_dir {dir}/conf.d\n")
    (broker.dir / "conf.d").mkdir()
    for name, content in files.items():
        (broker.dir / name).write_text(content)
    lines = [f"Loading config file '{broker.dir}/conf.d/a.conf'", f"Loading config file '{broker.dir}/conf.d/b.conf'",
             "Note: It is recommended to replace `message_size_limit` with `max_packet_size`.",
             *(f"The '{name}' {DEPRECATED}" for name in ("port", "bind_address", "auto_id_prefix", "clientid_prefixes",
                                                         "per_listener_settings", "allow_duplicate_messages")),
             "Creating default listener due to 'port' option."]
    with broker:
        for line in lines:
            assert len(logged(broker, line)) == 1
        broker.send_signal(signal.SIGHUP)
        for line in lines:
            logged(broker, line, 2)


def test_plugins_are_logged_with_the_events_that_they_receive():
    files = {"acl": "pattern read a/b\npattern write x/%c\n", "passwd": f"ann:{new_hash(SHA512, b'x')}\n"}
    config = ("listener {port} 127.0.0.1\nallow_anonymous true\nplugin /x/mosquitto_acl_file.so\nplugin_opt_acl_file {dir}/acl\n"
              "plugin password-file\nplugin_opt_password_file {dir}/passwd\nplugin sparkplug-aware\n"
              "plugin dynamic-security\nplugin_opt_config_file {dir}/d.json\nuser root\n")
    with Broker(config, files) as broker:
        for line in ("Loading plugin: /x/mosquitto_acl_file.so", "Plugin acl-file has registered to receive 'acl-check' events.",
                     "Plugin acl-file loaded.", "Plugin password-file has registered to receive 'basic-auth' events.",
                     "Plugin sparkplug-aware has registered to receive 'message-in' events.", "Plugin sparkplug-aware loaded.",
                     "Plugin dynamic-security has registered to receive 'control' events on topic $CONTROL/dynamic-security/v1.",
                     "Plugin dynamic-security has registered to receive 'tick' events."):
            assert len(logged(broker, line)) == 1
        broker.send_signal(signal.SIGHUP)
        assert len(logged(broker, "Warning: ACL pattern 'a/b' does not contain '%c' or '%u'.", 2)) == 2
        assert len(logged(broker, "Loading plugin: ")) == 4     # a reload loads none again


def test_persist_sqlite_without_a_file_keeps_nothing():
    with Broker("plugin persist-sqlite\n") as broker:
        logged(broker, "Warning: Sqlite persistence plugin has no plugin_opt_db_file defined. The plugin will not be activated.")
        assert not list(broker.dir.glob("*.store"))


@pytest.mark.parametrize(("n", "lines"), [(0, 0), (10, 10), (12, 11)])
def test_only_some_patterns_are_logged(tmp_path, n, lines):
    (tmp_path / "acl").write_text("".join(f"pattern a/{i}\n" for i in range(n)) + "pattern %u/x\npattern x/%c\ntopic y\n")
    found = acl_warnings(load_acl(str(tmp_path / "acl")))
    assert len(found) == lines
    assert n < 11 or found[-1] == "2 more ACL patterns do not contain '%c' or '%u'."
