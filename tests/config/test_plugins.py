"""Test plugin lines, the listeners that they belong to, and the part that the data plane gets."""

import pytest

from mosq.config.errors import ConfigError
from mosq.config.plugin import refusal
from mosq.server.settings import engine_listeners, engine_securities, http_listeners, needs_access, securities_of


@pytest.mark.parametrize(("path", "kind"), [
    ("/usr/lib/x86_64-linux-gnu/mosquitto_acl_file.so", "acl-file"), ("mosquitto_password_file.so", "password-file"),
    ("C:\\mosquitto\\mosquitto_sparkplug_aware.dll", "sparkplug-aware"), ("/x/persist-sqlite", "persist-sqlite"),
    ("/usr/lib/mosquitto_persist_sqlite.so", "persist-sqlite"), ("/usr/lib/mosquitto_dynamic_security.so", "dynamic-security"),
    ("python:package.module:Class", "python"), ("/usr/lib/auth-plug.so", "native"), ("/x/acl_file.so/other.so", "native"),
])
def test_kinds(path, kind, read):
    assert read(f"plugin {path}").plugins[0].kind == kind


def test_a_bad_plugin_is_refused_at_the_start_and_not_when_read(read, tmp_path):
    for path in ("python:a:b:c",):
        config = read("listener 1883", f"plugin {path}", "plugin_opt_key secret")
        with pytest.raises(ConfigError, match=r"Expected .+python") as caught:
            engine_securities(config)
        assert str(caught.value).endswith("mosq.conf:2.")
        assert path in str(caught.value) and "secret" not in str(caught.value)
    assert refusal(read("plugin python:a.b:C").plugins[0]) is None
    assert refusal(read("plugin /usr/lib/auth-plug.so").plugins[0]) is None         # its library is loaded later


def test_the_thread_of_a_native_plugin(read, refuse):
    one, two = read("plugin /a.so", "plugin_thread loop", "plugin /b.so").plugins
    assert (one.on_loop, two.on_loop) == (True, False)
    assert "own" in refuse("plugin /a.so", "plugin_thread main")


def test_options_belong_to_the_plugin_above(read):
    config = read("plugin_load one /x/acl_file.so", "plugin_opt_acl_file /a", "plugin python:a:B", "plugin_opt_key  x y ",
                  "listener 1883", "plugin_use one", "auth_opt_late 1", "auth_plugin_deny_special_chars false")
    one, two = config.named_plugins["one"], config.plugins[0]
    assert (one.options, two.options) == ([("acl_file", "/a"), ("late", "1")], [("key", "x y")])
    assert (one.deny_special_chars, two.deny_special_chars) == (False, True)
    assert (one.option("acl_file"), one.option("none")) == ("/a", None)
    assert (one.scope, two.scope) == ("listener", "global")


def test_names(refuse):
    assert refuse("plugin_load a /x", "plugin_load a /y").startswith("Duplicate plugin name 'a'.")
    assert refuse("listener 1883", "plugin_use a").startswith("Plugin 'a' not previously loaded.")


def test_options_of_a_plugin_must_be_in_its_file(read, tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/x.conf").write_text("plugin python:a:B\n")
    with pytest.raises(ConfigError, match="requires plugin/global_plugin/plugin_load"):
        read(f"include_dir {tmp_path}/d", "plugin_opt_key x")


def test_one_security_for_all(read):
    config = read("allow_anonymous true", "acl_file /a", "listener 1883", "listener 1884", "password_file /p", "psk_file /k")
    (source,) = securities_of(config)
    assert (source.acl_file, source.password_file, source.psk_file, source.allow_anonymous) == ("/a", "/p", "/k", True)
    assert [str(origin).rpartition(":")[2] for origin in (source.acl_origin, source.password_origin, source.psk_origin)] == ["2", "5", "6"]
    assert source.listeners == config.listeners
    assert [spec["security"] for spec in engine_listeners(config)] == [0, 0]
    assert needs_access(config)
    assert not needs_access(read("acl_file /a"))


def test_one_security_for_each_listener(read):
    config = read("per_listener_settings true", "global_plugin python:g:G",
                  "listener 1883", "acl_file /a", "allow_anonymous true", "plugin python:a:A",
                  "listener 1884", "password_file /p", "allow_zero_length_clientid false", "psk_file /k", "auto_id_prefix p-")
    first, second = securities_of(config)
    assert (first.acl_file, first.password_file, first.allow_anonymous) == ("/a", None, True)
    assert (second.acl_file, second.password_file, second.psk_file, second.allow_anonymous) == (None, "/p", "/k", False)
    assert [[p.path[7:] for p in source.plugins] for source in (first, second)] == [["g:G", "a:A"], ["g:G"]]
    specs = engine_listeners(config)
    assert [spec["security"] for spec in specs] == [0, 1]
    assert [spec["allow_zero_length_clientid"] for spec in specs] == [1, 0]
    assert [spec["psk_file"] for spec in specs] == ["", "/k"]
    assert [spec["auto_id_prefix"] for spec in specs] == ["auto-", "p-"]


def test_a_listener_with_its_own_plugins_has_its_own_security(read):
    config = read("acl_file /a", "plugin python:g:G", "plugin_load p python:p:P",
                  "listener 1883", "listener 1884", "plugin_use p", "listener 1885")
    shared, own = securities_of(config)
    assert (shared.acl_file, own.acl_file) == ("/a", "/a")
    assert [[p.path[7:] for p in source.plugins] for source in (shared, own)] == [["g:G"], ["g:G", "p:P"]]
    assert [spec["security"] for spec in engine_listeners(config)] == [0, 1, 0]


def test_acl_files_differ_by_listener(read, tmp_path):
    (tmp_path / "a").write_text("topic a\n")
    (tmp_path / "b").write_text("topic b\n")
    config = read("per_listener_settings true", "listener 1883", f"acl_file {tmp_path}/a", "listener 1884", f"acl_file {tmp_path}/b",
                  "listener 1885", "listener 1886", f"acl_file {tmp_path}/a")
    assert [security["acl"] and security["acl"][0][3] for security in engine_securities(config)] == ["a", "b", None, "a"]


def test_password_options_without_access_control_are_refused(read):
    for line in ("password_file /p", "plugin python:a:B"):
        with pytest.raises(ConfigError, match="cannot be used here"):
            engine_securities(read("listener 1883", line))


def test_http_listeners_stay_in_the_control_plane(read, tmp_path):
    config = read("listener 1883", "listener 9883 127.0.0.1", "protocol http_api", f"http_dir {tmp_path}", "listener 8080", "protocol websockets")
    assert [listener.port for listener in http_listeners(config)] == [9883]
    assert [spec["port"] for spec in engine_listeners(config)] == [1883, 8080]


@pytest.mark.parametrize(("lines", "said", "line"), [
    (("certfile /c",), "Both certfile and keyfile must be provided to enable a TLS listener.", 2),
    (("keyfile /k",), "Both certfile and keyfile must be provided to enable a TLS listener.", 2),
    (("cafile /a",), "cafile specified without certfile and keyfile.", 2),
    (("capath /a",), "capath specified without certfile and keyfile.", 2),
    (("psk_hint x", "certfile /c"), "Cannot use both certificate and psk encryption in a single listener.", 3),
    (("psk_hint x", "cafile /c"), "Cannot use both certificate and psk encryption in a single listener.", 3),
    (("certfile /c", "psk_file /k"), "Cannot use both certificate and psk encryption in a single listener.", 3),
    (("enable_proxy_protocol 2", "use_subject_as_username true"), "use_subject_as_username cannot be used with `enable_proxy_protocol 2`.", 3),
    (("enable_proxy_protocol 2", "certfile /c", "keyfile /k"), "certfile and keyfile cannot be used with `enable_proxy_protocol 2`.", 3),
])
def test_contradictory_tls_options(lines, said, line, refuse):
    assert refuse("listener 1883", *lines, line=line).startswith(said)
