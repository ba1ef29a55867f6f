"""Test TLS and WebSockets: every scenario works, errors are reported, and no hostile peer crashes the generator."""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mosq._bench import self_signed
from mosq.tools.bench.transport import handshake
from mosq.tools.bench.scenarios import SCENARIOS
from mosq.tools.bench.spec import Spec
from mosq.cli.commands import main
from tests.harness.effort import tries
from tests.harness import certificates
from tests.net.frames import BINARY, CLOSE, CONTINUATION, PING, TEXT

SMALL = {"publishers": 4, "subscribers": 3, "clients": 10, "topics": 100, "filters": 200, "messages": 100, "rounds": 2, "hold": 0.0,
         "sizes": (16, 100_000), "window": 200}


@pytest.mark.parametrize(("tls", "ws"), [(True, False), (False, True), (True, True)], ids=["tls", "ws", "wss"])
def test_every_scenario(bench, broker_with, tls: bool, ws: bool) -> None:
    with broker_with(tls=tls, ws=ws) as (broker, way):
        for scenario in SCENARIOS:
            result = bench(scenario, broker.port, version=5 if tls else 4, qos=2 if ws else 1, **SMALL, **way)
            assert (result.complete, result.why, result.exact) == (True, "", True), scenario
            assert all(phase.foreign == 0 and phase.per for phase in result.phases)


def test_handshakes_are_reported(bench, broker_with) -> None:
    with broker_with(tls=True, ws=True) as (broker, way):
        phase = bench("connect", broker.port, **SMALL, **way).phases[0]
    assert phase.handshake["count"] == phase.connect["count"] == 10
    assert 0 < phase.handshake["min_us"] <= phase.connect["max_us"]
    assert phase.extra["tls"].startswith("TLSv1.3, TLS_AES_")
    with broker_with() as (broker, way):
        phase = bench("connect", broker.port, **SMALL, **way).phases[0]
    assert phase.handshake == {"count": 0} and "tls" not in phase.extra


def test_tls_12_with_pre_shared_keys(bench, broker_with, tmp_path: Path) -> None:
    (tmp_path / "psk").write_text("bench:c0ffee\n")
    with broker_with("psk_hint h", f"psk_file {tmp_path}/psk") as (broker, _):
        result = bench("pairs", broker.port, publishers=1, tls=True, psk="c0ffee", psk_identity="bench")
        wrong = bench("connect", broker.port, clients=1, tls=True, psk="c0ffe0", psk_identity="bench")
    assert result.exact and "PSK" in result.phases[0].extra["tls"] and "c0ffee" not in json.dumps(result.as_dict())
    assert not wrong.complete and "TLS with" in wrong.why


def test_clients_show_their_certificate(bench, broker_with, tmp_path: Path) -> None:
    _, pem, key = certificates.authority().issue("bench")
    (tmp_path / "client.crt").write_text(pem)
    (tmp_path / "client.key").write_text(key)
    with broker_with("require_certificate true", tls=True) as (broker, way):
        assert bench("pairs", broker.port, cert=str(tmp_path / "client.crt"), key=str(tmp_path / "client.key"), **way).exact
        why = bench("pairs", broker.port, **way).why
    assert "certificate required" in why or "closed the connection" in why


# ---------------------------------------------------------------- errors

def test_a_certificate_that_is_not_trusted(bench, broker_with, tmp_path: Path) -> None:
    (tmp_path / "other.crt").write_bytes(self_signed("DNS:localhost")[0])
    with broker_with(tls=True) as (broker, way):
        way["cafile"] = str(tmp_path / "other.crt")
        result = bench("pairs", broker.port, **way)
        assert bench("pairs", broker.port, insecure=True, **way).exact
    assert result.why.startswith(f"the certificate of 127.0.0.1:{broker.port} was not accepted: ")
    assert "--cafile sets the trusted CAs" in result.why and not result.phases


def test_a_certificate_of_another_host(bench, broker_with) -> None:
    with broker_with(tls=True) as (broker, way):
        why = bench("pairs", broker.port, servername="broker.example", **way).why
        assert bench("pairs", broker.port, servername="localhost", **way).exact
    assert "hostname mismatch; --servername sets the expected name" in why


@pytest.mark.parametrize(("there", "asked", "words"), [
    ({}, {"tls": True, "insecure": True}, "in the TLS handshake"),
    ({}, {"ws": True}, "in the WebSocket handshake"),
    ({"ws": True}, {"tls": True, "insecure": True}, "TLS with 127.0.0.1:{port} failed for client C: wrong version number; is this the port for it?"),
    ({"tls": True}, {"ws": True}, "in the WebSocket handshake"),
    ({"tls": True}, {}, "in the MQTT handshake: without a reason; is this the port for it?"),
    ({"ws": True}, {}, "speaks HTTP and not MQTT: try with --ws"),
    ({"tls": True}, {"tls": True, "ws": True, "insecure": True}, "in the WebSocket handshake"),
    ({"tls": True, "ws": True}, {"tls": True, "insecure": True}, "speaks HTTP and not MQTT: try with --ws")], ids=str)
def test_a_port_with_another_protocol(bench, broker_with, there: dict[str, bool], asked: dict[str, bool], words: str) -> None:
    with broker_with(**there) as (broker, _):
        result = bench("pairs", broker.port, **asked)
    assert not result.complete and words.format(port=broker.port) in re.sub(r"client \d", "client C", result.why)


@pytest.mark.parametrize(("files", "words"), [
    ({"cafile": "nowhere"}, "check --cafile \"nowhere\". Expected certificates in PEM form. (No such file or directory)"),
    ({"cert": "nowhere", "key": "nowhere"}, "check --cert \"nowhere\""),
    ({"psk": "xyz", "psk_identity": "a"}, "--psk is not a key in hexadecimal")])
def test_missing_files(bench, files: dict[str, str], words: str) -> None:
    result = bench("pairs", 1, tls=True, **files)
    assert not result.complete and words in result.why and "bridge" not in result.why


# ---------------------------------------------------------------- hostile peers

@contextlib.contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Listen on a port; call `answer` with each connection in turn, then close it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    door, _ = listener.accept()
                    with door, contextlib.suppress(OSError):
                        answer(door)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


OTHER = b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n"


@pytest.mark.parametrize(("answer", "words"), [
    (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP status 404 (--ws-path sets the path)"),
    (b"HTTP/1.1 200 OK\r\n\r\n<html>", "HTTP status 200"), (OTHER, "has the wrong key"),
    (b"HTTP/1.1 101 x\r\n\r\n", "has the wrong key"), (b"\x20\x02\0\0", "the answer is not HTTP"), (b"HTTP/1.1 1x1 y\r\n\r\n", "the answer is not HTTP"),
    (b"HTTP/1.1 \r\n\r\n", "the answer is not HTTP"), (b"HTTP/1.1 101 " + b"x" * 9000, "the answer is not HTTP"), (b"HTTP/1.1 101", "WebSocket handshake")])
def test_answers_that_are_no_websocket(bench, answer: bytes, words: str) -> None:
    def say(door: socket.socket) -> None:
        door.recv(65536)
        door.sendall(answer)
        door.shutdown(socket.SHUT_WR)
        while door.recv(65536):
            pass

    with answering(say) as port:
        result = bench("connect", port, ws=True, clients=1)
    assert not result.complete and words in result.why


@pytest.mark.parametrize(("answer", "words"), [
    (b"\x15\x03\x01\0\x02\x02\x46", "speaks TLS and not MQTT: try with --tls"),
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP and not MQTT: try with --ws")])
def test_answers_to_connect_that_are_no_connack(bench, answer: bytes, words: str) -> None:
    with answering(lambda door: door.sendall(door.recv(65536)[:0] + answer)) as port:
        assert words in bench("connect", port, clients=1).why


def frame(opcode: int, payload: bytes, first: int = 0x80, mask: bool = False) -> bytes:
    n = len(payload)
    size = bytes((n | 0x80 * mask,)) if n < 126 else bytes((126,)) + n.to_bytes(2)
    return bytes((first | opcode,)) + size + bytes(4 * mask) + payload


@pytest.mark.parametrize(("frames", "words"), [
    (frame(TEXT, b"x"), "(1003)"), (frame(BINARY, b"x", mask=True), "(1002)"), (frame(CONTINUATION, b"x"), "(1002)"),
    (frame(BINARY, b"x", first=0xC0), "(1002)"), (frame(PING, b"x" * 126), "(1002)"), (b"\x82\x7f" + b"\xff" * 8, "(1002)"),
    (b"\x82\x7f\0\0\0\x7f\xff\xff\xff\xff", "(1009)"), (frame(CLOSE, b"\x03\xe8"), "closed the connection"),
    (frame(BINARY, b"\xf0\0"), "malformed or unexpected MQTT"), (frame(BINARY, b""), "closed the connection")])
def test_frames_that_break_the_rules(bench, monkeypatch, frames: bytes, words: str) -> None:
    assert words in web(bench, monkeypatch, frames).why


def web(bench, monkeypatch, said: bytes):
    """Return the result of a client that receives these bytes instead of CONNACK."""
    request, accept = handshake(Spec("connect"))
    monkeypatch.setattr("mosq.tools.bench.transport.handshake", lambda spec: (request, accept))

    def say(door: socket.socket) -> None:
        door.recv(65536)
        door.sendall(b"HTTP/1.1 101 x\r\nsec-websocket-accept:  " + accept + b"\r\n\r\n" + said)
        door.shutdown(socket.SHUT_WR)
        while door.recv(65536):
            pass

    with answering(say) as port:
        result = bench("connect", port, ws=True, clients=1)
    assert not result.complete
    return result


def test_pings_are_answered_and_packets_may_be_split(bench, monkeypatch) -> None:
    request, accept = handshake(Spec("connect"))
    monkeypatch.setattr("mosq.tools.bench.transport.handshake", lambda spec: (request, accept))
    heard: list[bytes] = []

    def say(door: socket.socket) -> None:
        door.recv(65536)
        answer = b"HTTP/1.1 101 x\r\nSEC-WEBSOCKET-ACCEPT:" + accept + b"\r\n\r\n"
        for one in (answer[:9], answer[9:] + frame(PING, b"who?"), frame(BINARY, b"\x20\x02", first=0), frame(CONTINUATION, b"\0\0")):
            door.sendall(one)
        heard.append(b"".join(iter(lambda: door.recv(65536), b"")))

    with answering(say) as port:
        assert bench("connect", port, ws=True, clients=1, hold=0.0).exact
    mask = heard[0][heard[0].index(b"\x8a\x84") + 2:][:4]
    assert bytes(a ^ b for a, b in zip(b"who?", mask, strict=True)) in heard[0]


@pytest.mark.again("hostile")
def test_random_frames(bench, monkeypatch) -> None:
    dice = random.Random(7)
    for _ in range(tries(120, 15)):
        said = b"".join(frame(dice.choice((0, 1, 2, 2, 2, 8, 9, 10, 15)), dice.randbytes(dice.choice((0, 1, 3, 125, 126, 3000))),
                              first=dice.choice((0, 0x80, 0x80, 0x80, 0xF0))) for _ in range(dice.randrange(1, 6)))
        web(bench, monkeypatch, said[:dice.randrange(1, len(said) + 1)])


@pytest.mark.again("hostile")
def test_random_records(bench, broker_with) -> None:
    """Test a real handshake with one changed byte, in each direction, and bytes that are not TLS at all."""
    dice = random.Random(7)

    def garbage(door: socket.socket) -> None:
        door.recv(65536)
        head = bytes((dice.choice((20, 21, 22, 23, 99)), 3, dice.choice((1, 3, 4))))
        door.sendall(head + dice.randbytes(dice.randrange(300)))

    with broker_with(tls=True) as (broker, way), answering(garbage) as port:
        for _ in range(tries(20, 5)):
            assert not bench("connect", port, tls=True, cafile=way["cafile"], clients=1).complete

        def turning(door: socket.socket) -> None:
            with socket.create_connection(("127.0.0.1", broker.port)) as there:
                there.sendall(door.recv(65536))
                said = bytearray(there.recv(65536))
                said[dice.randrange(len(said))] ^= 1 << dice.randrange(8)
                door.sendall(said)

        with answering(turning) as turned:
            for _ in range(tries(20, 5)):
                assert not bench("connect", turned, clients=1, **{**way, "insecure": True}).complete


# ---------------------------------------------------------------- the command line

@pytest.mark.parametrize("ways", [("--tls",), ("--tls", "--ws")], ids=" ".join)
def test_a_fresh_broker_with_a_certificate_of_its_own(capfd, ways: tuple[str, ...]) -> None:
    status = main(["bench", "fan-in", "--start", "--messages", "200", "--publishers", "2", "--json", "-", *ways])
    out, err = capfd.readouterr()
    told = json.loads(out)
    assert status == 0, err
    assert told["phases"][0]["delivered"] == 200 and told["phases"][0]["extra"]["tls"] and "tls: TLSv1.3" in err
    assert told["where"] == "mosq"
    assert told["options"]["cafile"] is None and "mosq-bench-" not in out     # otherwise each repetition would be a separate case


@pytest.mark.parametrize(("arguments", "words"), [
    (["--cert", "x"], "--cert and --key go together"), (["--psk", "00"], "--psk and --psk-identity go together"),
    (["--psk", "00", "--psk-identity", "a", "--cafile", "x"], "--psk and certificates"), (["--ws", "--ws-path", "mqtt"], "expected a path"),
    (["--start", "--cafile", "x"], "--start and --cafile")])
def test_mistakes(capfd, arguments: list[str], words: str) -> None:
    assert main(["bench", "pairs", *arguments]) == 3
    assert words in capfd.readouterr().err


def test_options_of_tls_imply_tls_and_its_port(capfd) -> None:
    main(["bench", "connect", "--clients", "1", "--insecure", "--json", "-"])
    told = json.loads(capfd.readouterr().out)
    assert told["options"]["tls"] is True and told["options"]["port"] == 8883


def test_a_certificate_needs_a_valid_host_name() -> None:
    with pytest.raises(ValueError, match="cannot be made"):
        self_signed("what?")
