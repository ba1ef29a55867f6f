"""Test the syntax of the file, and the meaning of the order of lines."""

from pathlib import Path

import pytest

from mosq.config.errors import ConfigError
from mosq.config.parser import LINE_BYTES_MAX, load_config


def test_comments_blank_lines_and_blanks(read):
    config = read("# a comment", "", "   ", "\t", " max_qos 1", "\tsys_interval 5", "   # an indented comment", "#",
                  "max_keepalive   60   ", "max_queued_messages \t 7\t", "max_inflight_messages\t3", "# Größe: ½")
    assert config.listeners[0].max_qos == 1
    assert (config.sys_interval, config.max_keepalive) == (5, 60)
    assert (config.max_queued_messages, config.max_inflight_messages) == (7, 3)


def test_crlf_and_no_final_newline(tmp_path):
    path = tmp_path / "m.conf"
    path.write_bytes(b"listener 1883 127.0.0.1\r\n\r\n# x\r\nallow_anonymous true\r\nmax_connections 5\r\nmount_point a/")
    config = load_config(str(path))
    listener = config.listeners[0]
    assert (listener.port, listener.host, listener.max_connections, listener.mount_point) == (1883, "127.0.0.1", 5, "a/")
    assert config.allows_anonymous(listener)


def test_byte_order_mark_and_comments_that_are_not_utf8(read):
    assert read(b"\xef\xbb\xbfsys_interval 3", b"# caf\xe9").sys_interval == 3


def test_an_empty_file_means_local_only(read):
    config = read()
    assert config.local_only
    assert [(x.host, x.port) for x in config.listeners] == [("127.0.0.1", 1883), ("::1", 1883)]
    assert all(config.allows_anonymous(x) for x in config.listeners)


def test_the_first_mistake_is_reported_with_its_line(refuse):
    assert refuse("", "# x", "prot 1883", "sys_interval no", line=3).startswith("Unknown configuration variable 'prot'.")


@pytest.mark.parametrize(("line", "hint"), [
    ("max_conections 5", "Did you mean 'max_connections'?"), ("Listener 1883", "Did you mean 'listener'?"),
    ("allow_anonymous=true", "write `allow_anonymous true`"), ("zzzzzzzz 1", "Expected an option"),
    ("{{ if .x }}", "This is a template."),
])
def test_unknown_options_are_reported_with_a_hint(line, hint, refuse):
    said = refuse(line)
    assert said.startswith(f"Unknown configuration variable '{line.split()[0]}'.")
    assert hint in said


def test_hostile_lines(refuse, read):
    assert "zero byte" in refuse(b"pid_file /tmp/\0x")
    assert "Unknown" in refuse(b"\xff\xfe 1")
    assert "Unknown" in refuse(b"x" * 100_000)
    assert "Expected at most" in refuse(b"pid_file " + b"x" * LINE_BYTES_MAX)
    assert "Expected at most 65535 bytes, and not 100000" in refuse(b"user " + b"x" * 100_000)
    assert read(*["sys_interval 1"] * 20_000).sys_interval == 1


def test_a_file_that_cannot_be_read(tmp_path):
    path = tmp_path / "missing.conf"
    with pytest.raises(ConfigError, match=rf"^Error: Unable to open config file '{path}'\. .+No such file or directory\.$"):
        load_config(str(path))
    with pytest.raises(ConfigError, match=rf"^Error: Config file '{tmp_path}' is a directory\."):
        load_config(str(tmp_path))
    with pytest.raises(ConfigError, match="Unable to open config file"):
        load_config("a\0b")


# ---- listeners

def test_listeners(read):
    config = read("listener 1883", "listener 1884 127.0.0.1  # here", "max_qos 1", "listener 1885\t::1", "listener 0 /tmp/a b.sock")
    assert [(x.port, x.host, x.path, x.max_qos) for x in config.listeners] == [
        (1883, None, None, 2), (1884, "127.0.0.1", None, 1), (1885, "::1", None, 2), (0, None, "/tmp/a b.sock", 2)]
    assert not config.local_only


@pytest.mark.parametrize("value", ["65536", "-1", "99999999999"])
def test_invalid_ports(value, refuse):
    assert refuse(f"listener {value}").startswith(f"Invalid 'port' value ({value}). Expected a port from 1 to 65535")


@pytest.mark.parametrize("value", ["mqtt", "1883:1", "٣", "1_883", "0x", "089", "-"])
def test_listeners_without_a_port_number(value, refuse):
    assert refuse(f"listener {value}").startswith("'listener port' value not a number. Expected a port")


def test_text_after_a_value_is_ignored_with_a_warning(read):
    config = read("listener 1883 127.0.0.1 extra  # why", "max_qos 1 2", "protocol mqtt ws # why", "mount_point a b")
    listener = config.listeners[0]
    assert (listener.host, listener.max_qos, listener.protocol, listener.mount_point) == ("127.0.0.1", 1, "mqtt", "a b")
    assert ["'extra'" in config.warnings[0], "'2'" in config.warnings[1], "'ws'" in config.warnings[2]] == [True] * 3
    assert [f":{n})" in config.warnings[n - 1] for n in (1, 2, 3)] == [True] * 3


def test_port_zero_needs_a_path(read, refuse):
    assert read("listener 0 /tmp/a b\t# why").listeners[0].path == "/tmp/a b"
    for line in ("listener 0", "listener 0   # /tmp/x"):
        assert "A listener with port 0 must provide a Unix socket path" in refuse(line)


def test_one_port_twice_on_one_address_causes_a_warning(read):
    assert len(read("listener 1883 127.0.0.1", "listener 1883 ::1").listeners) == 2
    assert len(read("listener 1883", "socket_domain ipv4", "listener 1883", "socket_domain ipv6").listeners) == 2
    for lines in (("listener 1883 127.0.0.1", "listener 1883 127.0.0.1"), ("protocol mqtt", "listener 1883")):
        assert "mosq.conf:2) is configured twice, first at " in read(*lines).warnings[0]


def test_port_and_bind_address_make_the_default_listener(read):
    for lines in (("port 1885", "bind_address 127.0.0.1"), ("bind_address 127.0.0.1", "port 1885")):
        config = read(*lines)
        assert [(x.port, x.host) for x in config.listeners] == [(1885, "127.0.0.1")]
        assert not config.local_only
    assert [(x.port, x.host) for x in read("bind_address ::1").listeners] == [(1883, "::1")]


def test_a_listener_option_before_any_listener_makes_the_default_one(read):
    config = read("max_connections 3", "listener 1884", "max_connections 4", "port 1885")
    assert [(x.port, x.max_connections) for x in config.listeners] == [(1885, 3), (1884, 4)]


def test_command_line_ports(tmp_path):
    ports = [(x.host, x.port) for x in load_config(None, (1884, 1885)).listeners]
    assert ports == [("127.0.0.1", 1884), ("::1", 1884), ("127.0.0.1", 1885), ("::1", 1885)]
    path = tmp_path / "m.conf"
    path.write_text("listener 1886\nallow_anonymous true\n")
    config = load_config(str(path), (1884,))
    assert [x.port for x in config.listeners] == [1886]
    assert "-p" in config.warnings[0]
    assert len(load_config(None, tuple(range(2000, 2010))).listeners) == 20
    with pytest.raises(ConfigError, match="Only 10 ports"):
        load_config(None, tuple(range(2000, 2011)))


# ---- access to listeners

def test_anonymous_clients_are_accepted_only_where_configured(read):
    config = read("listener 1883", "listener 1884", "listener_allow_anonymous true")
    assert [config.allows_anonymous(x) for x in config.listeners] == [False, True]
    assert "No client can connect to" in config.warnings[0]
    assert "1883" in config.warnings[0]
    config = read("allow_anonymous true", "listener 1883", "listener 1884", "listener_allow_anonymous false")
    assert [config.allows_anonymous(x) for x in config.listeners] == [True, False]
    config = read("allow_anonymous false")
    assert [config.allows_anonymous(x) for x in config.listeners] == [False, False]
    for line in ("password_file /p", "plugin python:a:B", "psk_file /p\npsk_hint x", "use_identity_as_username true"):
        assert not [w for w in read("listener 1883", line).warnings if "No client can connect to" in w]


def test_per_listener_settings(read, refuse):
    config = read("per_listener_settings true", "listener 1883", "allow_anonymous true", "auto_id_prefix a-",
                  "listener 1884")
    assert [config.allows_anonymous(x) for x in config.listeners] == [True, False]
    assert [config.auto_id_prefix_of(x) for x in config.listeners] == ["a-", "auto-"]
    assert "must be set before any other security settings" in refuse("allow_anonymous true", "per_listener_settings true")
    assert "must be set before" in refuse("plugin python:a:B", "per_listener_settings true")
    assert read("per_listener_settings true", "per_listener_settings false", "listener 1883").per_listener_settings
    for option in ("allow_anonymous true", "acl_file /a", "password_file /p", "plugin python:a:B", "auto_id_prefix x"):
        assert "requires a listener to be defined first" in refuse("per_listener_settings true", option)
    assert not read("allow_anonymous true", "per_listener_settings false").per_listener_settings


# ---- include_dir

def included(tmp_path: Path, **files: str) -> Path:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_include_order(read, tmp_path):
    names = ["b.conf", "A.conf", "01.conf", "a.conf", "B.conf", "00.conf", "aB.conf", "Aa.conf"]
    folder = included(tmp_path, **{name: f"log_type debug\nclientid_prefixes {name}\nlistener {2000 + i}\n"
                                   for i, name in enumerate(names)}, other="nonsense\n")
    config = read(f"include_dir {folder}")
    order = [names[x.port - 2000] for x in config.listeners]
    assert order == ["00.conf", "01.conf", "A.conf", "Aa.conf", "a.conf", "aB.conf", "B.conf", "b.conf"]
    assert config.clientid_prefixes == "b.conf"


def test_a_mistake_in_an_included_file_names_that_file(read, tmp_path):
    folder = included(tmp_path, **{"x.conf": "\nnonsense 1\n"})
    with pytest.raises(ConfigError, match=rf"Error found at {folder}/x.conf:2\.\nError found at .*/mosq.conf:2\.$"):
        read("listener 1883", f"include_dir {folder}")


def test_an_included_file_does_not_change_the_current_listener(read, tmp_path):
    folder = included(tmp_path, **{"x.conf": "max_qos 0\nlistener 1999\n"})
    config = read("listener 1885", f"include_dir {folder}", "max_connections 9")
    assert [(x.port, x.max_qos, x.max_connections) for x in config.listeners] == [
        (1885, 2, 9), (1883, 0, -1), (1999, 2, -1)]


def test_included_files_do_not_include(read, tmp_path):
    folder = included(tmp_path, **{"x.conf": "include_dir /nowhere\n"})
    with pytest.raises(ConfigError, match="The include_dir option is only valid in the main configuration file"):
        read(f"include_dir {folder}")


def test_a_missing_include_dir(refuse, tmp_path):
    assert "Unable to open include_dir" in refuse(f"include_dir {tmp_path}/none")


def test_a_missing_http_dir(refuse, tmp_path):
    assert refuse("listener 1883", f"http_dir {tmp_path}/none").startswith("Unable to open http_dir")
