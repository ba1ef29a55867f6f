"""Test the configuration of an embedded broker: sources, options that override, errors."""

import gc
import os
import socket

import pytest

import mosq
from mosq.config.embedded import embedded_config


def test_defaults():
    config = embedded_config(None, {})
    (listener,) = config.listeners
    assert (listener.host, listener.port, config.allows_anonymous(listener)) == ("127.0.0.1", 0, True)
    assert config.warnings == []


def test_text_file_and_options(tmp_path):
    path = tmp_path / "m.conf"
    path.write_text("max_inflight_messages 7\n")
    for source in (str(path), path, path.read_text()):
        config = embedded_config(source, {"max_queued_messages": 9, "persistent_client_expiration": 60, "max_qos": None,
                                          "set_tcp_nodelay": False, "log_type": ["error", "warning"]})
        assert (config.max_inflight_messages, config.max_queued_messages) == (7, 9)
        assert (config.persistent_client_expiration, config.set_tcp_nodelay) == (60, False)
        assert config.log_type == ("error", "warning")
        assert config.allows_anonymous(config.listeners[0])


def test_options_override_every_listener():
    text = "listener 1883\nmax_qos 2\nlistener 1884\nmax_qos 0\nallow_anonymous true\nlog_type all\n"
    config = embedded_config(text, {"max_qos": 1, "port": 0, "log_type": "error"})
    assert [(x.port, x.max_qos) for x in config.listeners] == [(0, 1), (0, 1)]
    assert config.log_type == ("error",)


def test_per_listener_settings():
    text = "per_listener_settings true\nlistener 1883\nallow_anonymous false\nlistener 1884\nallow_anonymous true\n"
    config = embedded_config(text, {"allow_anonymous": True})
    assert all(config.allows_anonymous(x) for x in config.listeners)


def test_a_listener_option_alone_keeps_the_free_port():
    config = embedded_config("max_qos 1\n", {})
    (listener,) = config.listeners
    assert (listener.host, listener.port, listener.max_qos, config.local_only) == ("127.0.0.1", 0, 1, True)
    assert embedded_config("port 1999\nmax_qos 1\n", {}).listeners[0].port == 1999


def test_anonymous_access_at_a_chosen_listener():
    assert not embedded_config("listener 1883\n", {}).local_only
    config = embedded_config(None, {"bind_address": "0.0.0.0"})
    assert not config.allows_anonymous(config.listeners[0])
    config = embedded_config(None, {"port": 1999})
    assert config.allows_anonymous(config.listeners[0])
    config = embedded_config(None, {"listener": ["1884 127.0.0.1", "1885 127.0.0.1"], "allow_anonymous": True})
    assert [x.port for x in config.listeners] == [1884, 1885]


def test_several_free_ports_and_a_unix_socket(tmp_path):
    text = f"allow_anonymous true\nlistener 1883 127.0.0.1\nlistener 0 {tmp_path}/s\nlistener 1883 127.0.0.1\n"
    with mosq.Broker(text.replace("1883", "1999", 1), port=0) as broker:
        first, unix, third = broker.ports
        assert unix == 0 and first != third and broker.port == first
        assert broker.url == f"mqtt://127.0.0.1:{first}"
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"{tmp_path}/s")
    with mosq.Broker(f"listener 0 {tmp_path}/s\n") as broker:
        assert (broker.port, broker.url) == (0, f"unix://{tmp_path}/s")


@pytest.mark.parametrize(("config", "options", "text"), [
    (None, {"max_qos": 3}, "max_qos"),
    (None, {"max_qos": True}, "max_qos"),
    (None, {"allow_anonymous": "yes"}, "true or false"),
    (None, {"no_such_option": 1}, "no_such_option"),
    (None, {"log_type": ["error", "loud"]}, "loud"),
    (None, {"port": 70000}, "port"),
    (None, {"port": "x"}, "port"),
    (None, {"mount_point": "a\nb"}, "line break"),
    (None, {"listener": []}, "listener"),
    ("listener 1\nlistener 2\n", {"port": 3}, "one TCP listener"),
    ("\nmax_qos 3\n", {}, "<config>:2"),
    ("/no/such/file", {}, "/no/such/file"),
])
def test_errors(config, options, text):
    with pytest.raises(mosq.ConfigError, match=text.replace("<", ".")) as error:
        mosq.Broker(config, **options)
    assert "<options>" not in str(error.value)


def test_a_port_in_use_leaves_nothing_behind(tmp_path):
    with mosq.Broker() as broker:
        def descriptors():
            return len(os.listdir("/proc/self/fd"))

        other = mosq.Broker(f"listener 0 {tmp_path}/s\nlistener {broker.port} 127.0.0.1\n")
        gc.collect()                    # garbage of earlier tests in this process
        before = descriptors()
        with pytest.raises(OSError, match=str(broker.port)):
            other.start()
        gc.collect()
        assert descriptors() == before


def test_a_missing_acl_file():
    with pytest.raises(mosq.ConfigError, match="acl_file"):
        mosq.Broker(acl_file="/no/such").start()


def test_an_option_that_a_file_may_have_once_can_be_overridden():
    text = "listener 1883 127.0.0.1\nlistener_auto_id_prefix a-\nallow_anonymous true\npid_file /a\n"
    config = embedded_config(text, {"listener_auto_id_prefix": "b-", "pid_file": "/b", "log_dest": ["none"]})
    assert (config.listeners[0].listener_auto_id_prefix, config.pid_file, config.log_dest) == ("b-", "/b", ("none",))


@pytest.mark.one_process("with workers, the contradiction between both options is found first")
def test_a_broker_inside_a_program_is_no_node_of_a_cluster() -> None:
    with pytest.raises(mosq.ConfigError, match="cannot be a node of a cluster"):
        mosq.Broker("cluster redis://127.0.0.1\ncluster_node a\npersistence true\n")
