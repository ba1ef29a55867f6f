"""Test real files: the examples of `conf/`, and files of other people if they are available."""

import os
from pathlib import Path

import pytest

from mosq.config.acl import load_acl
from mosq.config.parser import load_config
from mosq.server.settings import engine_listeners, engine_securities, engine_settings, securities_of

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "conf").glob("*.conf"))
CORPUS = Path(os.environ.get("MOSQ_CORPUS", ROOT.parent / "shared" / "corpus"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_loads_without_a_warning(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    config = load_config(str(path))
    assert config.warnings == []
    assert not config.local_only
    assert engine_settings(config, 0)
    assert len(engine_listeners(config)) == len(config.listeners)
    engine_securities(config)


def test_make_run_serves_anonymous_clients_on_1883():
    config = load_config(str(ROOT / "conf/mosquitto.conf"))
    assert [(x.port, x.host, config.allows_anonymous(x)) for x in config.listeners] == [(1883, None, True)]


def test_acl_files_of_other_projects_load():
    for path in sorted(CORPUS.glob("acl/*.acl")):
        assert load_acl(str(path)), path.name


# ---- files like those of users, written for these tests: FILES/NAME.conf -> listeners, and the expected texts

FILES = Path(__file__).parent / "files"
KINDS = {
    "container": (["port 1883"], []),
    "home-automation": (["0.0.0.0:1883", "port 9001"], []),
    "gateway": (["192.168.1.10:1883", "127.0.0.1:1884"], []),
    "mtls": (["port 8883", "127.0.0.1:1883", "port 8884"], []),
    "bridges": (["port 1883"], []),
    "old-1x": (["127.0.0.1:1883"], ["The 'retry_interval' option is no longer available", "dhparamfile is no longer required", "websockets_log_level"]),
    "plugins": (["port 1883", "port 1884"], []),
}


def test_every_kind_has_its_row():
    assert sorted(KINDS) == sorted(path.stem for path in FILES.glob("*.conf"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_its_kind(kind):
    config = load_config(str(FILES / f"{kind}.conf"))
    where, said = KINDS[kind]
    assert [listener.where for listener in config.listeners] == where
    assert len(config.warnings) == len(said)
    assert all(word in warning for word, warning in zip(said, config.warnings, strict=True))
    assert [spec["security"] for spec in engine_listeners(config)] == list(range(len(where))) if config.per_listener_settings else True


def test_settings_of_some_corpus_files():
    gateway = load_config(str(FILES / "gateway.conf"))
    assert (gateway.listeners[0].max_connections, gateway.listeners[1].mount_point, gateway.log_type) == (50, "gateway/", ("all",))
    old = load_config(str(FILES / "old-1x.conf"))
    assert (old.persistent_client_expiration, old.log_dest, old.log_facility, old.listeners[0].max_qos) == (5184000, ("syslog",), 5, 1)
    assert old.plugins[0].options == [("password_file", "/etc/mosquitto/passwd")]
    cloud, neighbour = load_config(str(FILES / "bridges.conf")).bridges
    assert [topic.key() for topic in cloud.topics] == [("#", "out", 1, "site/7/", "in/7/"), ("commands for/#", "in", 2, "", "site/7/"),
                                                       (None, "both", 0, "local/state", "remote/state")]
    assert neighbour.addresses == [("192.168.1.20", 1883), ("192.168.1.21", 1884)]
    mtls = load_config(str(FILES / "mtls.conf"))
    assert [source.acl_file for source in securities_of(mtls)] == ["/etc/mosquitto/devices.acl", "/etc/mosquitto/people.acl", None]
