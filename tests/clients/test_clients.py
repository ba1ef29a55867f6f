"""Test `mosq pub` and `mosq sub` by themselves: transports, TLS errors, lost connections, signals, closed pipes, limits."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mosq.cli.commands import main
from mosq.tools.clients.errors import ClientError
from mosq.tools.clients.output import compiled
from mosq.tools.clients.properties import take_properties
from tests.harness.broker import ROOT, Broker, free_port
from tests.harness.certificates import server_paths
from tests.harness.effort import TIMEOUT_S

CONFIG = """allow_anonymous true
listener {{port}} 127.0.0.1
listener 0 {{dir}}/sock
listener {ws} 127.0.0.1
protocol websockets
listener {tls} 127.0.0.1
{lines}"""


class Kinds:
    """A broker with a listener of each kind."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o755)
        self.folder, self.ws, self.tls = folder, free_port(), free_port()
        lines = "".join(f"{name} {path}\n" for name, path in server_paths(folder).items())
        for path in folder.iterdir():
            path.chmod(0o644)
        self.cafile = next(line.split()[1] for line in lines.splitlines() if line.startswith("cafile"))
        self.broker = Broker(CONFIG.format(ws=self.ws, tls=self.tls, lines=lines))


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kinds]:
    made = Kinds(tmp_path_factory.mktemp("kinds"))
    with made.broker:
        yield made


@pytest.fixture(autouse=True)
def no_options_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def started(*words: str, **more: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "mosq", *words], **{"cwd": ROOT, "stdin": subprocess.DEVNULL,  # type: ignore[call-overload,no-any-return]
                            "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more})


def ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def at(port: int) -> tuple[str, ...]:
    return "-h", "127.0.0.1", "-p", str(port)


# ---------------------------------------------------------------- transports

def test_each_transport_carries_messages(kinds: Kinds, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    ways = {"tcp": at(kinds.broker.port), "unix": ("--unix", f"{kinds.broker.dir}/sock"), "ws": ("--ws", *at(kinds.ws)),
            "ws url": ("-L", f"ws://127.0.0.1:{kinds.ws}/mqtt"), "tls": ("-h", "localhost", "-p", str(kinds.tls), "--cafile", kinds.cafile),
            "insecure": ("-h", "localhost", "-p", str(kinds.tls), "--cafile", kinds.cafile, "--insecure", "--tls-version", "tlsv1.3")}
    for name, way in ways.items():
        assert main(["pub", *way, "-t", f"t/{name}", "-r", "-q", "1", "-m", name, "--nodelay"]) == 0
        assert main(["sub", *way, "-t", f"t/{name}", "-C", "1"]) == 0
        assert capfdbinary.readouterr() == (f"{name}\n".encode(), b"")


def test_the_path_of_a_url_is_the_topic(kinds: Kinds, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["pub", "-L", f"mqtt://127.0.0.1:{kinds.broker.port}/u/1", "-r", "-q", "1", "-m", "x"]) == 0
    assert main(["sub", "-L", f"mqtt://127.0.0.1:{kinds.broker.port}/u/#", "-v", "-C", "1"]) == 0
    assert capfdbinary.readouterr().out == b"u/1 x\n"


@pytest.mark.parametrize(("host", "cafile", "advice"), [("localhost", "/etc/ssl/certs/ca-certificates.crt", b"Give the certificate of the broker's CA"),
                                                        ("0.0.0.0", "", b"The certificate is for another name")])
def test_an_error_of_tls_ends_with_8_and_advice(kinds: Kinds, host: str, cafile: str, advice: bytes) -> None:
    """On Linux, 0.0.0.0 is this machine; no certificate has that address."""
    with started("pub", "-h", host, "-p", str(kinds.tls), "--cafile", cafile or kinds.cafile, "-t", "a", "-m", "x") as process:
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 8
    assert err.startswith(b"Error: A TLS error occurred: ")
    assert advice in err


def test_plain_text_to_a_tls_port_is_an_error(kinds: Kinds, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["pub", *at(kinds.tls), "-t", "a", "-m", "x"]) == 7
    assert capfd.readouterr().err == "Error: The connection was lost.\n"


def test_a_port_that_never_answers_is_reported(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    for module in ("publish", "subscribe"):
        monkeypatch.setattr(f"mosq.tools.clients.{module}.CONNECT_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert main(["pub", *at(port), "-t", "a", "-m", "x"]) == 1
        assert main(["sub", *at(port), "-t", "a"]) == 1
    assert capfd.readouterr().err.count("Is it an MQTT broker?") == 2


# ---------------------------------------------------------------- options files

def test_options_are_read_from_the_file(kinds: Kinds, no_options_file: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    main(["pub", *at(kinds.broker.port), "-t", "o/1", "-r", "-q", "1", "-m", "x"])
    (no_options_file / "mosquitto_sub").write_text(f"# mine\n-h 127.0.0.1\n-p {kinds.broker.port}\n-v\n-t o/#\n")
    assert main(["sub", "-C", "1"]) == 0
    assert capfdbinary.readouterr().out == b"o/1 x\n"
    other = no_options_file / "other"
    other.write_text("-F %p!\n")
    assert main(["sub", *at(kinds.broker.port), "-t", "o/1", "-C", "1", "-o", str(other)]) == 0
    assert capfdbinary.readouterr().out == b"x!\n"
    assert main(["sub", "-t", "a", "-o", str(other) + "none"]) == 1
    assert b"Unable to read the options file" in capfdbinary.readouterr().err


# ---------------------------------------------------------------- the life of a client

def subscribed(process: subprocess.Popen[bytes]) -> None:
    """Wait for the line of `-d`."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(b"Subscribed"):
            return
    raise AssertionError(process.stderr and process.stderr.read())


def test_sub_connects_again_after_a_restart() -> None:
    with Broker("") as broker, started("sub", *at(broker.port), "-t", "a", "-d", "-C", "1", "-W", "60") as process:
        try:
            subscribed(process)
            broker.restart()
            subscribed(process)
            assert main(["pub", *at(broker.port), "-t", "a", "-m", "again"]) == 0
            out, _ = process.communicate(timeout=TIMEOUT_S)
            assert b"\nagain\n" in out
            assert process.returncode == 0
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_sub_quietly(kinds: Kinds, number: int) -> None:
    with started("sub", *at(kinds.broker.port), "-t", "a", "-d") as process:
        subscribed(process)
        process.send_signal(number)
        _, err = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, err) == (0, b"")


@pytest.mark.parametrize("has_broker", [True, False], ids=["served", "retrying"])
def test_sigterm_ends_sub_in_the_background_of_a_script(has_broker: bool) -> None:
    """A shell without job control starts `mosq sub &` with SIGINT ignored."""
    with Broker("") as broker, started("sub", *at(broker.port), "-t", "a", "-d", preexec_fn=ignore_interrupts) as process:
        try:
            subscribed(process)
            if not has_broker:
                broker.stop()
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=TIMEOUT_S)
            assert (process.returncode, err) == (0, b"")
        finally:
            process.kill()


def test_sigterm_ends_pub_that_waits_for_input(kinds: Kinds) -> None:
    with started("pub", *at(kinds.broker.port), "-t", "a", "-l", "-d", stdin=subprocess.PIPE, preexec_fn=ignore_interrupts) as process:
        assert process.stdout is not None
        while b"CONNACK" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0


def test_a_closed_pipe_ends_sub_quietly(kinds: Kinds) -> None:
    with started("sub", *at(kinds.broker.port), "-t", "pipe", "-d") as process:
        subscribed(process)
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        while process.poll() is None:
            main(["pub", *at(kinds.broker.port), "-t", "pipe", "-m", "x"])
        assert process.stderr.read() == b""
        assert process.returncode == 0


def test_the_will_is_sent_when_sub_is_killed(kinds: Kinds) -> None:
    words = at(kinds.broker.port)
    with started("sub", *words, "-t", "will/#", "-v", "-C", "1", "-d") as watching, \
            started("sub", *words, "-t", "x", "-d", "--will-topic", "will/1", "--will-payload", "gone", "--will-qos", "1") as client:
        subscribed(watching)
        subscribed(client)
        client.kill()
        out, _ = watching.communicate(timeout=TIMEOUT_S)
        assert b"\nwill/1 gone\n" in out


def test_a_lost_connection_ends_pub_with_7(kinds: Kinds) -> None:
    """Input from a pipe that stays open: `pub` waits for a line when the broker ends the connection."""
    reading, writing = os.pipe()
    with Broker("") as broker, subprocess.Popen([sys.executable, "-m", "mosq", "pub", *at(broker.port), "-t", "a", "-l", "-q", "1", "-d"], cwd=ROOT,
                                                stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.close(reading)
        os.write(writing, b"one\n")
        assert process.stdout is not None
        assert any(b"received PUBACK" in line for line in process.stdout)
        broker.stop()
        os.write(writing, b"two\n")
        _, err = process.communicate(timeout=TIMEOUT_S)
        os.close(writing)
        assert (process.returncode, err) == (7, b"Error: The connection was lost.\n")


def test_a_long_input_waits_for_the_broker(kinds: Kinds, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for 10 messages, 500 lines never have more than 10 on their way."""
    from mosq.tools.clients import publish

    monkeypatch.setattr(publish, "QUEUED_MAX", 10)
    most = 0
    real = publish.Publisher._publish

    def counted(self: publish.Publisher, payload: bytes) -> None:
        nonlocal most
        real(self, payload)
        most = max(most, len(self._open))

    monkeypatch.setattr(publish.Publisher, "_publish", counted)
    assert main(["pub", *at(kinds.broker.port), "-t", "many", "-q", "1", "-m", "x", "--repeat", "500"]) == 0
    assert 1 <= most <= 10


# ---------------------------------------------------------------- bad input

@pytest.mark.parametrize("text", ["%99999999999t", "%20000t", "%.99999999t", "%-", "%5", "@", "\\"])
def test_a_wrong_format_is_refused(text: str) -> None:
    with pytest.raises(ClientError):
        compiled(text, False)


def test_a_value_that_looks_like_the_property_option_is_a_value() -> None:
    assert take_properties(["-m", "-D", "-D", "PUBLISH", "user-property", "a", "b", "-r"], frozenset({"-m"})) == (
        ["-m", "-D", "-r"], [["PUBLISH", "user-property", "a", "b"]])


@pytest.mark.parametrize(("words", "text"), [(("sub",), "Error: You must specify a topic to subscribe to."), (("sub", "-v"), "Error: You must specify a topic"),
                                             (("pub",), "Error: Both topic and message must be supplied.")])
def test_a_missing_topic_is_one_line(words: tuple[str, ...], text: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*words]) == 1
    out, err = capfd.readouterr()
    assert out == "" and err.startswith(text) and len(err.splitlines()) == 1


def test_deep_json_is_reported(kinds: Kinds, capfd: pytest.CaptureFixture[str]) -> None:
    for depth in (400, 100_000):
        main(["pub", *at(kinds.broker.port), "-t", "deep", "-r", "-q", "1", "-m", "[" * depth + "]" * depth])
        assert main(["sub", *at(kinds.broker.port), "-t", "deep", "-C", "1", "-F", "%J", "--pretty"]) == 0
    assert "not valid JSON on topic deep" in capfd.readouterr().err


@pytest.mark.parametrize("words", [("pub", "-t", "a\udcff", "-m", "x"), ("sub", "-t", "a\udcff"), ("pub", "-t", "a" * 70000, "-m", "x"),
                                   ("sub", "-t", "a", "-x", "-2"), ("pub", "-t", "a", "-m", "x", "-D", "PUBLISH", "content-type", "x" * 70000),
                                   ("sub", "-t", "a", "--random-filter", "nan"), ("pub", "-t", "a", "-m", "x", "--repeat-delay", "inf")], ids=lambda w: w[0])
def test_bad_values_are_refused_before_connecting(words: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "-p", "1"]) == 1
    err = capfd.readouterr().err
    assert err.startswith("Error: ")
    assert "refused" not in err
