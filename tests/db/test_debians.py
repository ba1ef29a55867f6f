"""Test the import of a mosquitto.db that Debian's Mosquitto has just written: mosq delivers all pending messages."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from mosq.tools.db.commands import db
from tests.bridge.conftest import block
from tests.harness.broker import Broker, free_port
from tests.harness.packets import Connack, Connect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe
from tests.harness.properties import P
from tests.harness.remote import Remote
from tests.harness.wire import Wire

V5 = 5
WAIT_S = 10.0
EXPIRY = ((P.SESSION_EXPIRY, 3600), (P.RECEIVE_MAXIMUM, 3))


class Mosquitto:
    """Run Debian's Mosquitto, or another one, with its persistence in a folder of the test."""

    def __init__(self, folder: Path, bridge: str = "", program: str | None = None) -> None:
        program = program or shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
        assert program, "the Debian package mosquitto is missing"
        self.folder, self.port = folder, free_port()
        config = folder / "mosquitto.conf"
        config.write_text(f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence true\npersistence_location {folder}/\n"
                          f"autosave_interval 0\nuser root\n{bridge}")
        self.process = subprocess.Popen([program, "-c", str(config)], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                Wire(self.port).close()
                return
            except OSError:
                assert self.process.poll() is None and time.monotonic() < deadline
                time.sleep(0.01)

    def client(self, client_id: str, level: int = V5, **more: object) -> Wire:
        wire = Wire(self.port, level)
        wire.send(Connect(client_id, clean=False, props=EXPIRY if level == V5 else (), **more))  # type: ignore[arg-type]
        assert isinstance(wire.read_packet(), Connack)
        return wire

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(WAIT_S)


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    broker = Mosquitto(tmp_path)
    yield broker
    broker.stop()


def subscribe(wire: Wire, *filters: tuple[str, int], **more: object) -> None:
    wire.send(Subscribe(1, filters, **more))  # type: ignore[arg-type]
    assert isinstance(wire.read_packet(), Suback)


def after(folder: Path) -> None:
    """Test a broker on the imported store: the client that was in the middle of three handshakes continues them."""
    with Broker(f"listener {{port}} 127.0.0.1\nallow_anonymous true\nuser root\npersistence true\n"
                f"persistence_location {folder}/") as broker:
        five = Wire(broker.port, V5)
        five.send(Connect("five", clean=False, username="ann", password=b"x", props=EXPIRY))
        connack = five.read_packet()
        assert isinstance(connack, Connack) and connack.session
        again = [five.read_packet() for _ in range(3)]
        assert Pubrel(1) in again                                       # PUBREL may precede or follow the messages
        assert [(p.mid, p.qos, p.dup, p.payload) for p in again if isinstance(p, Publish)] == [(2, 1, True, b"m2"), (3, 2, True, b"m3")]
        five.send(Pubcomp(1), Puback(2), Pubrec(3))
        rest = []
        while len(rest) < 3:
            packet = five.read_packet()
            if isinstance(packet, Publish):
                rest.append((packet.mid, packet.qos, packet.dup, packet.payload))
                five.send(Puback(packet.mid) if packet.qos == 1 else Pubrec(packet.mid))
            elif isinstance(packet, Pubrel):
                five.send(Pubcomp(packet.mid))
        assert rest == [(4, 1, False, b"m4"), (5, 2, False, b"m5"), (6, 1, False, b"m6")]
        pub = Wire(broker.port, V5)
        pub.send(Connect("pub", clean=False, username="bob", password=b"y", props=EXPIRY), Subscribe(1, (("held", 0),)))
        assert isinstance(pub.read_packet(), Connack) and isinstance(pub.read_packet(), Suback)
        pub.send(Pubrel(99))                                            # the message that Mosquitto held is sent now
        assert {type(packet): packet for packet in (pub.read_packet(), pub.read_packet())}[Publish].payload == b"inbound"  # type: ignore[union-attr]
        five.close()
        pub.close()


@pytest.mark.interop
def test_the_database_of_debians_mosquitto_is_imported(mosquitto: Mosquitto, tmp_path: Path) -> None:
    five = mosquitto.client("five", username="ann", password=b"x")
    subscribe(five, ("a/#", 0x2E), props=((P.SUBSCRIPTION_ID, 7),))
    three = mosquitto.client("three", 4)
    subscribe(three, ("a/+", 1), ("b", 2))
    three.send(b"\xe0\x00")
    three.close()
    pub = mosquitto.client("pub", username="bob", password=b"y")
    for i in range(1, 7):
        qos = 1 + i % 2
        props = ((P.CONTENT_TYPE, "t"), (P.EXPIRY, 1000), (P.USER, ("k", "v"))) if i == 2 else ()
        pub.send(Publish(f"a/{i}", b"m%d" % i, qos, i, retain=i == 1, props=props))
        answer = pub.read_packet()
        if qos == 2:
            assert isinstance(answer, Pubrec)
            pub.send(Pubrel(i))
            answer = pub.read_packet()
        assert answer.mid == i  # type: ignore[union-attr]
    got = [five.read_packet() for _ in range(3)]                         # the client's receive maximum
    assert [p.payload for p in got if isinstance(p, Publish)] == [b"m1", b"m2", b"m3"]
    five.send(Pubrec(1))                                                 # pending are PUBREL of 1, PUBACK of 2 and PUBREC of 3
    assert isinstance(five.read_packet(), Pubrel)
    pub.send(Publish("held", b"inbound", 2, 99))
    assert isinstance(pub.read_packet(), Pubrec)
    pub.send(Publish("r", b"kept", 1, 100, retain=True))
    assert isinstance(pub.read_packet(), Puback)
    five.close()
    pub.close()
    mosquitto.stop()

    def run(*arguments: object) -> list[dict]:
        result = CliRunner().invoke(db, [str(a) for a in arguments], standalone_mode=False)
        assert result.return_value == 0, result.output
        return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]

    run("import", tmp_path / "mosquitto.db")
    run("check", tmp_path)
    rows = run("export", "--jsonl", "-", tmp_path)
    sessions = {row["id"]: row for row in rows if row["type"] == "session"}
    assert {id: (s["user"], s["expiry_s"], s["ends"] is not None) for id, s in sessions.items()} == {
        "five": ("ann", 3600, True), "three": (None, None, False), "pub": ("bob", 3600, True)}
    assert [(s["filter"], s["options"], s["sub_id"]) for s in sessions["five"]["subscriptions"]] == [("a/#", 0x0E, 7)]     # 2.0 does not store retain handling
    assert {(s["filter"], s["qos"]) for s in sessions["three"]["subscriptions"]} == {("a/+", 1), ("b", 2)}
    messages = {row["lsn"]: row for row in rows if row["type"] == "message"}

    after(tmp_path)

    def queue(id: str) -> list[tuple]:
        deliveries = [row for row in rows if row["type"] == "delivery" and row["sno"] == sessions[id]["sno"]]
        return [(row["pid"], row["qos"], messages[row["lsn"]]["payload"] if row["lsn"] is not None else None, row["state"])
                for row in sorted(deliveries, key=lambda row: row["position"])]

    assert queue("five") == [(1, 2, None, "released"), (2, 1, "m2", "sent"), (3, 2, "m3", "sent"), (4, 1, "m4", "waiting"), (5, 2, "m5", "waiting"),
                             (6, 1, "m6", "waiting")]
    assert [(qos, payload, state) for _, qos, payload, state in queue("three")] == [(1, f"m{i}", "waiting") for i in range(1, 7)]
    second = next(m for m in messages.values() if m["payload"] == "m2")
    assert second["properties"] == {"content_type": "t", "user_properties": [["k", "v"]]} and "expires" in second
    assert {(m["topic"], m["payload"]) for m in messages.values() if m["retained"]} == {("a/1", "m1"), ("r", "kept")}
    assert [(row["pid"], row["topic"], row["payload"]) for row in rows if row["type"] == "inbox"] == [(99, "held", "inbound")]


@pytest.mark.interop
def test_messages_queued_for_a_bridge_are_imported(tmp_path: Path) -> None:
    mosquitto = Mosquitto(tmp_path, block(free_port(), topics=("q/# out 2",)))
    try:
        client = mosquitto.client("c")
        for i in (1, 2):
            client.send(Publish(f"q/{i}", b"%d" % i, 1, i))
            assert client.read_packet().mid == i  # type: ignore[union-attr]
        client.close()
    finally:
        mosquitto.stop()
    result = CliRunner().invoke(db, ["import", "-c", str(tmp_path / "mosquitto.conf"), str(tmp_path / "mosquitto.db")], standalone_mode=False)
    assert result.return_value == 0, result.output
    assert "2 sessions (1 of bridges)" in result.output
    with Remote() as remote, Broker(f"listener {{port}} 127.0.0.1\nallow_anonymous true\nuser root\npersistence true\n"
                                    f"persistence_location {tmp_path}/\n" + block(remote.port, topics=("q/# out 2",))):
        peer = remote.accept()
        peer.welcome()
        got = [peer.answered() for _ in range(2)]
        assert [(p.topic, p.payload) for p in got if isinstance(p, Publish)] == [("q/1", b"1"), ("q/2", b"2")]


def test_an_invalid_configuration_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "mosquitto.conf").write_text("nonsense\n")
    result = CliRunner().invoke(db, ["import", "-c", str(tmp_path / "mosquitto.conf"), str(tmp_path / "mosquitto.db")], standalone_mode=False)
    assert result.return_value == 1
    assert "mosquitto.conf" in result.output
