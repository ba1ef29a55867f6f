"""Test how `mosq ctl` connects to a broker: options, the options file, URLs, sockets, TLS, passwords; and its errors."""

from __future__ import annotations

import gc
import io
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import mosq
from mosq.cli.commands import main
from mosq.tools.ctl import conversation
from mosq.tools.ctl.connection import Connection
from mosq.tools.extras import install_advice
from mosq.records import AccessAnswer, LoginAnswer, PublishCommand
from tests.ctl.answering import Answering
from tests.harness.broker import free_port
from tests.harness.certificates import TLS_LINES, authority, server_paths
from tests.harness.plane import Plane


@pytest.fixture(scope="module")
def there() -> Iterator[Answering]:
    with Answering(lambda command: {"data": {"roles": ["r"]}}) as made:
        yield made


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


LIST = ("dynsec", "listRoles")


# ---------------------------------------------------------------- the options file

def test_the_options_file(there: Answering, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "mosquitto_ctrl").write_text(f"# ours\n\n-p {there.port}\n--quiet\n-V   311\n")
    assert main(["ctl", *LIST]) == 0
    assert capsys.readouterr().out == "r\n"
    (home / "mosquitto_ctrl").write_text("-p 1\n")
    assert main(["ctl", "-p", str(there.port), *LIST]) == 0       # the command line overrides the file
    (home / "other").write_text(f"--port {there.port}\n")
    assert main(["ctl", "-o", str(home / "other"), *LIST]) == 0


def test_without_xdg_the_options_file_is_below_home(there: Answering, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(home))
    (home / ".config").mkdir()
    (home / ".config/mosquitto_ctrl").write_text(f"-p {there.port}\n")
    assert main(["ctl", *LIST]) == 0


def test_the_address_option_replaces_host_and_port(there: Answering, home: Path) -> None:
    (home / "mosquitto_ctrl").write_text("-h elsewhere.invalid\n-p 1\n")
    assert main(["ctl", "-L", f"mqtt://127.0.0.1:{there.port}", *LIST]) == 0


@pytest.mark.parametrize(("line", "why"), [("-p x", "'x' is not a valid"), ("--nope", "No such option"), ("-u", "requires an argument"),
                                           ("dynsec listRoles", "unexpected extra")])
def test_a_line_that_is_wrong(home: Path, capsys: pytest.CaptureFixture[str], line: str, why: str) -> None:
    (home / "mosquitto_ctrl").write_text(f"# 1\n{line}\n")
    assert main(["ctl", *LIST]) == 3
    err = capsys.readouterr().err
    assert f"{home}/mosquitto_ctrl, line 2: " in err
    assert why in err


# ---------------------------------------------------------------- URLs

@pytest.mark.parametrize(("url", "shown", "encrypted", "username", "password"), [
    ("mqtt://h", "mqtt://h:1883", False, None, None), ("mqtt://h/topic", "mqtt://h:1883", False, None, None),
    ("mqtts://u:p%40@h", "mqtts://h:8883", True, "u", "p@"), ("mqtts://u@h:1", "mqtts://h:1", True, "u", None),
    ("ws://h", "ws://h:80", False, None, None), ("wss://h:9/mqtt", "wss://h:9", True, None, None), ("mqtt://[::1]:5", "mqtt://[::1]:5", False, None, None),
])
def test_urls(url: str, shown: str, encrypted: bool, username: str | None, password: str | None) -> None:
    made = Connection()
    made.take_url(url)
    assert (made.url, made.is_encrypted, made.username, made.password) == (shown, encrypted, username, password)


@pytest.mark.parametrize(("host", "files", "warned"), [("h", {}, True), ("localhost", {}, False), ("127.0.0.1", {}, False), ("h", {"cafile": "x"}, False)])
def test_connections_that_others_can_read(host: str, files: dict[str, str], warned: bool) -> None:
    made = Connection()
    made.host, made.tls_files = host, files
    assert made.is_readable_by_others == warned


def test_the_warning(there: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    """Test mosquitto_ctrl's warning, which is not printed for this machine."""
    assert main(["ctl", "-h", "127.0.0.2", "-A", "127.0.0.1", "-p", str(there.port), *LIST]) == 1    # the broker listens on 127.0.0.1 only
    assert capsys.readouterr().err.startswith("Warning: You are running mosq ctl without encryption.\nThis means all of the")
    assert main(["ctl", "-h", "127.0.0.2", "--quiet", "-p", str(there.port), *LIST]) == 1
    assert "Warning" not in capsys.readouterr().err


# ---------------------------------------------------------------- transports

CONFIG = """enable_control_api true
control_loopback true
listener {mqtt} 127.0.0.1
listener 0 {dir}/sock
listener {ws} 127.0.0.1
protocol websockets
listener {tls} 127.0.0.1
{lines}require_certificate true
use_identity_as_username true
listener {wss} 127.0.0.1
protocol websockets
{lines}"""


@pytest.fixture(scope="module")
def all_kinds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Run a broker with a listener of each kind."""
    folder = tmp_path_factory.mktemp("kinds")
    server_paths(folder)
    _, certificate, key = authority().issue("ann")
    (folder / "client.crt").write_text(certificate)
    (folder / "client.key").write_text(key)
    (folder / "authorities").mkdir()
    (folder / "authorities/ca.pem").write_text(authority().pem)
    subprocess.run(["openssl", "rehash", folder / "authorities"], check=True, capture_output=True)
    ports = {name: free_port() for name in ("mqtt", "ws", "tls", "wss")}
    config = CONFIG.format(dir=folder, lines=TLS_LINES.format(dir=folder), **ports)
    with mosq.Broker(config, allow_anonymous=True):
        yield {**ports, "dir": folder}


KINDS = {
    "mqtt": "-p {mqtt}", "bound": "-p {mqtt} -A 127.0.0.1 -h 127.0.0.1", "unix": "--unix {dir}/sock",
    "ws": "-L ws://127.0.0.1:{ws}", "tls": "--cafile {dir}/ca.crt --cert {dir}/client.crt --key {dir}/client.key -p {tls}",
    "capath": "--capath {dir}/authorities --cert {dir}/client.crt --key {dir}/client.key -p {tls}",
    "wss": "--cafile {dir}/ca.crt -L wss://localhost:{wss}/mqtt",
    "tls-version": "--cafile {dir}/ca.crt --cert {dir}/client.crt --key {dir}/client.key -p {tls} --tls-version tlsv1.2 --ciphers ECDHE+AESGCM --keyform pem",
    "alpn": "--cafile {dir}/ca.crt --cert {dir}/client.crt --key {dir}/client.key -p {tls} --tls-alpn mqtt",
    "insecure": "--cafile {dir}/ca.crt --cert {dir}/client.crt --key {dir}/client.key -h 127.0.0.1 --insecure -p {tls}",
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_listener(all_kinds: dict[str, Any], capsys: pytest.CaptureFixture[str], kind: str) -> None:
    assert main(["ctl", *KINDS[kind].format(**all_kinds).split(), "-i", "me", "--json", "broker", "getClient", "me"]) == 0
    client = json.loads(capsys.readouterr().out)["data"]["client"]
    assert client["protocol"] == ("websockets" if kind in ("ws", "wss") else "mqtt")
    assert client["tls"] == (kind in ("tls", "capath", "wss", "tls-version", "alpn", "insecure"))
    assert client["username"] == ("ann" if client["tls"] and kind != "wss" else None)


@pytest.mark.parametrize(("options", "why"), [
    ("--cafile {dir}/none -p {tls}", "Problem setting TLS options: No such file or directory."),
    ("--cafile {dir}/client.key -p {tls}", "Problem setting TLS options: "),
    ("--tls-use-os-certs -p {tls}", "certificate verify failed"),
    ("--cafile {dir}/ca.crt --tls-version tls1 -p {tls}", "Unknown TLS version 'tls1'; expected tlsv1.2 or tlsv1.3."),
    ("--unix {dir}/none", "No such file or directory. Is there a broker at"),
    ("--proxy http://h -p {mqtt}", "Unsupported proxy 'http://h'"),
])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")      # paho leaves the socket of a failed connection to the garbage collector
def test_connection_errors_are_printed(all_kinds: dict[str, Any], capsys: pytest.CaptureFixture[str], options: str, why: str) -> None:
    assert main(["ctl", *options.format(**all_kinds).split(), "broker", "listListeners"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("Error: ")
    assert why in err
    gc.collect()


def test_a_connection_through_a_proxy(there: Answering, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Test the arguments that paho gets for PySocks, if that is installed."""
    made: list[tuple[Any, ...]] = []

    def create_connection(*target: Any, **how: Any) -> socket.socket:
        made.append((target[0], {name: how[name] for name in how if name.startswith("proxy_")}))
        return socket.create_connection(target[0])

    fake = SimpleNamespace(HTTP=3, SOCKS4=1, SOCKS5=2, create_connection=create_connection)
    monkeypatch.setitem(sys.modules, "socks", fake)
    monkeypatch.setattr("paho.mqtt.client.socks", fake, raising=False)
    assert main(["ctl", "--proxy", "socks5h://u:p%40@p.invalid:1081", "-p", str(there.port), *LIST]) == 0
    assert made == [(("localhost", there.port), {"proxy_type": 2, "proxy_addr": "p.invalid", "proxy_port": 1081, "proxy_rdns": True, "proxy_username": "u",
                                                 "proxy_password": "p@"})]  # fmt: skip
    monkeypatch.setitem(sys.modules, "socks", None)
    assert main(["ctl", "--proxy", "socks5h://h", "-p", str(there.port), *LIST]) == 1
    assert install_advice("socks") in capsys.readouterr().err


def test_debug_prints_the_packets(there: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ctl", "-d", "-p", str(there.port), *LIST]) == 0
    assert "CONNECT" in capsys.readouterr().out


# ---------------------------------------------------------------- no answer

def test_no_broker_at_the_address(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    assert main(["ctl", "-p", str(port), *LIST]) == 1
    assert capsys.readouterr().err == f"Error: Connection refused. Is there a broker at localhost port {port}?\n"


@pytest.mark.parametrize("level", ["311", "5"])
def test_a_refused_connection(capsys: pytest.CaptureFixture[str], level: str) -> None:
    with Plane(allow_anonymous=False) as plane:
        assert main(["ctl", "-V", level, "-p", str(plane.port), *LIST]) == 1
    assert capsys.readouterr().err == "Connection error: Not authorized\n"


def test_a_denied_request(capsys: pytest.CaptureFixture[str]) -> None:
    with Plane({"acl": []}, allow_anonymous=True) as plane:
        assert main(["ctl", "-p", str(plane.port), *LIST]) == 1
        assert capsys.readouterr().err == "Publish error: Not authorized\n"


def test_a_denied_request_for_data_of_clients_has_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    with Plane(allow_anonymous=True) as plane:
        assert main(["ctl", "-p", str(plane.port), "broker", "listClients"]) == 1
    err = capsys.readouterr().err
    assert err == f"Publish error: Not authorized{conversation.HINT}\n"
    for way in ("enable_control_api true", "topic readwrite $CONTROL/mosq/#", "--unix", "control_loopback true"):
        assert way in err


@pytest.mark.parametrize(("words", "remedy"), [
    (("dynsec", "listRoles"), "check that the plugin is configured there."), (("broker", "listPlugins"), "with `enable_control_api true`"),
    (("broker", "listClients"), "this needs mosq with `enable_control_api true`"),
])
def test_a_broker_without_the_control_topic(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], remedy: str) -> None:
    with Plane(settings={"control_loopback": 1}, allow_anonymous=True) as plane:
        assert main(["ctl", "-p", str(plane.port), *words]) == 1
    assert remedy in capsys.readouterr().err


def test_a_broker_that_does_not_answer(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "TIMEOUT_S", 0.3)
    with Plane(settings={"control_topics": ("$CONTROL/dynamic-security/v1",)}, allow_anonymous=True) as plane:
        assert main(["ctl", "-p", str(plane.port), *LIST]) == 1
    assert capsys.readouterr().err == "Error: No response on $CONTROL/dynamic-security/v1/response within 0.3 s.\n"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert main(["ctl", "-h", "127.0.0.1", "-p", str(silent.getsockname()[1]), *LIST]) == 1
    assert capsys.readouterr().err == "Error: The broker has not answered CONNECT within 0.3 s.\n"


def test_a_broker_that_closes_the_connection(capsys: pytest.CaptureFixture[str]) -> None:
    def kick(command: dict[str, Any]) -> dict[str, Any]:
        there.plane.engine.kick("me")
        return {}

    with Answering(kick) as there:
        assert main(["ctl", "-p", str(there.port), "-i", "me", *LIST]) == 1
    assert "The broker has closed the connection" in capsys.readouterr().err


def test_responses_to_other_clients_are_ignored(there: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    """Test a topic of Mosquitto's, on which all subscribers receive all responses."""
    def also_others(command: dict[str, Any]) -> dict[str, Any]:
        for payload in (b'{"responses":[{"command":"listRoles","data":{"roles":["x"]},"correlationData":"other"}]}', b"no json", b"[]", b'{"responses":[3]}',
                        b'{"responses":[{"command":"listRoles","data":{"roles":["x"]}}]}'):
            loud.plane.answer(PublishCommand("$CONTROL/dynamic-security/v1/response", payload, 0, False))
        return {"data": {"roles": ["ours"]}}

    with Answering(also_others) as loud:
        assert main(["ctl", "-p", str(loud.port), *LIST]) == 0
    assert capsys.readouterr().out == "ours\n"


def test_a_broker_that_refuses_the_subscription(capsys: pytest.CaptureFixture[str]) -> None:
    with Plane({"authorize": True}, settings={"control_topics": ("$CONTROL/dynamic-security/v1",)}, allow_anonymous=True) as plane:
        done: list[int] = []
        thread = threading.Thread(target=lambda: done.append(main(["ctl", "-p", str(plane.port), *LIST])))
        thread.start()
        asked = plane.ask("acl")
        plane.answer(AccessAnswer(asked.handle, False))
        thread.join()
    assert done == [1]
    assert capsys.readouterr().err == "Subscribe error: Not authorized\n"


# ---------------------------------------------------------------- passwords

def typed(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def login(plane: Plane, words: list[str]) -> tuple[str, bytes]:
    """Return user name and password that a command sends; the login is then refused."""
    thread = threading.Thread(target=main, args=(words,))
    thread.start()
    asked = plane.ask("connect")
    plane.answer(LoginAnswer(asked.handle, 0x87))
    thread.join()
    return asked.username, asked.password


def test_the_password_is_read_from_the_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with Plane({"authenticate": True}, allow_anonymous=False) as plane:
        typed(monkeypatch, "se cret")
        assert login(plane, ["ctl", "-p", str(plane.port), "-u", "ann", *LIST]) == ("ann", b"se cret")
        assert capsys.readouterr().out == "Password for ann: \n"
        assert login(plane, ["ctl", "-p", str(plane.port), "-u", "ann", "-P", "x", *LIST]) == ("ann", b"x")
        assert login(plane, ["ctl", "-L", f"mqtt://u:y@127.0.0.1:{plane.port}/x", *LIST]) == ("u", b"y")
        typed(monkeypatch)
        assert main(["ctl", "-p", str(plane.port), "-u", "ann", *LIST]) == 1
        assert "No password was given." in capsys.readouterr().err


@pytest.mark.parametrize(("words", "lines", "asked", "status"), [
    ("createClient ann", ("new", "new"), {"username": "ann", "password": "new"}, 0), ("createClient ann -i c", ("",), {"username": "ann", "clientid": "c"}, 0),
    ("createClient ann", ("new", "other"), None, 1), ("setClientPassword ann", ("new", "new"), {"username": "ann", "password": "new"}, 0),
    ("setClientPassword ann", ("",), None, 1), ("setClientPassword ann", ("a", "b"), None, 1),
])
def test_a_new_password_is_asked_for_twice(there: Answering, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str,
                                           lines: tuple[str, ...], asked: dict[str, str] | None, status: int) -> None:
    there.asked.clear()
    typed(monkeypatch, *lines)
    assert main(["ctl", "-p", str(there.port), "dynsec", *words.split()]) == status
    assert [command for _, command in there.asked] == ([] if asked is None else [{"command": words.split()[0], **asked}])
    out, err = capsys.readouterr()
    assert "New password for ann: " in out
    assert ("Passwords do not match." in err) == (status == 1 and len(lines) == 2)


def test_psk_needs_python_3_13(there: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    if sys.version_info < (3, 13):
        assert main(["ctl", "--psk", "00ff", "--psk-identity", "me", "-p", str(there.port), *LIST]) == 1
        assert "3.13" in capsys.readouterr().err
    else:
        made = Connection()
        made.psk, made.psk_identity = "00ff", "me"
        assert made.tls_context() is not None
