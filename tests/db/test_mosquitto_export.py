"""Test the export of a store as mosquitto.db: the chunks, and that Mosquitto itself continues from the file."""

import io
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from mosq.tools.db import kinds
from mosq.tools.db.commands import db
from mosq.tools.db.mosquitto_export import MosquittoExport, Written
from mosq.tools.db.mosquitto_file import Chunk, Client, ClientMessage, Config, Message, MosquittoFile, Retain, Subscription
from mosq.tools.db.mosquitto_format import IN, OUT, QUEUED, WAIT_PUBACK, WAIT_PUBCOMP, WAIT_PUBREC, WAIT_PUBREL
from tests.db.fake import FakeSource, Record
from tests.db.test_debians import EXPIRY, V5, Mosquitto, subscribe
from tests.durable.test_restart import KEEP, Kept
from tests.harness.packets import Connack, Connect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe
from tests.harness.properties import P
from tests.harness.wire import Wire

NEVER = 0xFFFFFFFF
NOW_S = 1_800_000_000.0
BODY = {"qos": 1, "retain": False, "retained_set": False, "source_hash": 0, "topic": b"t", "expires_wall_ms": 0, "props": b"", "payload": b"p"}


def session(sno: int, id: bytes, **more: object) -> tuple[int, dict]:
    return kinds.SESSION, {"sno": sno, "connected": False, "expiry_s": NEVER, "ends_wall_ms": 0, "next": 0, "id": id, "user": None, **more}


def msg(entries: list[tuple[int, int, int, int, int]] = (), **more: object) -> tuple[int, dict]:  # type: ignore[assignment]
    return kinds.MSG, {**BODY, "entries": list(entries), **more}


def exported(tmp_path: Path, records: list, ports: dict[int, int] | None = None, source: FakeSource | None = None) -> tuple[list[Chunk], Written]:
    out = io.BytesIO()
    source = source or FakeSource(records)
    source.loss["end_lsn"] = source.end
    written = MosquittoExport({0: source}, out, ports=ports, now_s=NOW_S).run()
    path = tmp_path / "mosquitto.db"
    path.write_bytes(out.getvalue())
    with MosquittoFile(str(path)) as file:
        return list(file.chunks()), written


def of(chunks: list[Chunk], kind: type) -> list:
    return [chunk for chunk in chunks if isinstance(chunk, kind)]


def test_an_undelivered_message_is_queued_behind_the_others(tmp_path: Path) -> None:
    undelivered = {**BODY, "qos": 2, "id": b"pub", "user": None, "security": 0, "mount": b"", "expiry_s": None, "unjournalled": False}
    chunks, _ = exported(tmp_path, [
        (kinds.UNDELIVERED, {**undelivered, "number": 1, "sessions": [1, 2], "group": b"", "retained_set": True, "payload": b"late"}),
        (kinds.UNDELIVERED, {**undelivered, "number": 2, "sessions": [], "group": b"$share/g/t", "payload": b"shared"}),
        session(1, b"one", last_pid=3), session(2, b"pub", last_pid=0),
        (kinds.SUB, {"sno": 1, "filter": b"+", "options": 1, "sub_id": 5}),
        (kinds.SUB, {"sno": 1, "filter": b"$share/g/t", "options": 2, "sub_id": 0}),
        (kinds.SUB, {"sno": 2, "filter": b"t", "options": 2 | 4, "sub_id": 0}),
        msg([(1, 0, 3, 1, 0)], payload=b"before"),
    ])
    payloads = {message.id: message.payload for message in of(chunks, Message)}
    assert [(payloads[one.id], one.pid, one.qos, one.state) for one in of(chunks, ClientMessage)] == [
        (b"before", 3, 1, QUEUED), (b"late", 4, 1, QUEUED), (b"shared", 5, 2, QUEUED)]
    assert [payloads[one.id] for one in of(chunks, Retain)] == [b"late"]


def test_all_that_a_store_holds_is_in_the_file(tmp_path: Path) -> None:
    chunks, written = exported(tmp_path, [
        session(1, b"five", user=b"ann", next=3, expiry_s=60, ends_wall_ms=1_800_000_030_000, last_pid=9),
        session(2, b"three", user=b"cy", security=1, mount=b"", connected=True, expiry_s=7),
        (kinds.SUB, {"sno": 1, "filter": b"a/#", "options": 0x2E, "sub_id": 300}),
        (kinds.SUB, {"sno": 2, "filter": b"$share/g/b", "options": 1, "sub_id": 0}),
        msg([(1, 0, 1, 2, 0)], qos=2, payload=b"released"),
        msg([(1, 1, 2, 1, 300)], payload=b"sent", props=b"\x01\x01", expires_wall_ms=1_800_000_009_001),
        msg([(1, 2, 3, 2, 0), (2, 0, 1, 1, 0)], qos=2, payload=b"both"),
        msg([(1, 3, 4, 0x81, 0)], payload=b"waiting", retain=True),
        msg(retained_set=True, retain=True, topic=b"r", payload=b"kept"),
        (kinds.RETAINED_FROM, {"security": 1, "topic": b"r", "id": b"pub", "user": b"bob"}),
        (kinds.RELEASED, {"acks": [(1, 0, 1)]}),
        (kinds.INBOX, {**BODY, "sno": 2, "pid": 77, "refused": False, "qos": 2, "payload": b"inbound"}),
    ], ports={1: 1884})
    assert [(c.client_id, c.username, c.ends_s, c.expiry_s, c.last_pid) for c in of(chunks, Client)] == [
        (b"five", b"ann", 1_800_000_030, 60, 4), (b"three", b"cy", int(NOW_S) + 7, 7, 1)]
    assert [(s.client_id, s.filter, s.options, s.sub_id) for s in of(chunks, Subscription)] == [
        (b"five", b"a/#", 0x2E, 300), (b"three", b"$share/g/b", 1, 0)]
    messages = {m.id: m for m in of(chunks, Message)}
    rows = [(c.client_id, messages[c.id].payload, c.pid, c.qos, c.state, c.direction, c.retain, c.dup, c.sub_id) for c in of(chunks, ClientMessage)]
    assert rows == [
        (b"five", b"", 1, 2, WAIT_PUBCOMP, OUT, False, True, 0), (b"five", b"sent", 2, 1, WAIT_PUBACK, OUT, False, True, 300),
        (b"five", b"both", 3, 2, WAIT_PUBREC, OUT, False, True, 0), (b"five", b"waiting", 4, 1, QUEUED, OUT, True, False, 0),
        (b"three", b"inbound", 77, 2, WAIT_PUBREL, IN, False, False, 0), (b"three", b"both", 1, 1, WAIT_PUBACK, OUT, False, True, 0)]
    sent = next(m for m in messages.values() if m.payload == b"sent")
    assert (sent.properties, sent.expires_s) == (b"\x01\x01", 1_800_000_010)
    kept = messages[of(chunks, Retain)[0].id]
    assert (kept.topic, kept.payload, kept.retain, kept.source_id, kept.source_username) == (b"r", b"kept", True, b"pub", b"bob")
    held = next(m for m in messages.values() if m.payload == b"inbound")  # Mosquitto finds a repeated PUBLISH by its packet id
    assert (held.source_pid, held.source_id, held.source_username, held.source_port) == (77, b"three", b"cy", 1884)
    assert of(chunks, Config)[0].last_id == max(messages)
    assert (written.sessions, written.subscriptions, written.deliveries, written.retained, written.missing) == (2, 2, 5, 1, 0)


def test_what_is_done_is_not_in_the_file(tmp_path: Path) -> None:
    chunks, _ = exported(tmp_path, [
        session(1, b"c"), session(2, b"gone"), msg([(1, 0, 1, 1, 0)]), msg([(2, 0, 1, 1, 0)]), (kinds.ACKS, {"acks": [(1, 0)]}),
        msg(retained_set=True, topic=b"r"), (kinds.RETAINED_GONE, {"topic": b"r"}), (kinds.END, {"sno": 2}),
    ])
    assert [c.client_id for c in of(chunks, Client)] == [b"c"]
    assert not of(chunks, Message) and not of(chunks, ClientMessage) and not of(chunks, Retain)


class MovingSource(FakeSource):
    """A store whose first segment is cleaned between the two walks: its live records are at the end then."""

    def __init__(self, records: list, moved: list[int], later: list) -> None:
        super().__init__(records)
        self._walks = 0
        self._later = FakeSource(records + [records[i] for i in moved] + later).records[len(records):]
        self._moved = moved

    def scan(self, give) -> dict:  # type: ignore[no-untyped-def]
        self._walks += 1
        if self._walks == 2:
            kept: list[Record] = [record for i, record in enumerate(self.records) if i not in self._moved]
            self.records = kept + self._later
        return super().scan(give)


def test_a_record_that_cleaning_moves_during_the_export_is_in_the_file(tmp_path: Path) -> None:
    records = [session(1, b"c"), msg([(1, 0, 1, 1, 0)], payload=b"one"), msg(retained_set=True, topic=b"r", payload=b"kept"),
               msg([(1, 1, 2, 1, 0)], payload=b"two")]
    chunks, written = exported(tmp_path, [], source=MovingSource(records, [1, 2], [msg([(1, 2, 3, 1, 0)], payload=b"too late")]))
    messages = {m.id: m.payload for m in of(chunks, Message)}
    assert [messages[c.id] for c in of(chunks, ClientMessage)] == [b"one", b"two"]
    assert [messages[r.id] for r in of(chunks, Retain)] == [b"kept"] and written.missing == 0


def test_a_session_number_that_gets_another_client_during_the_export_gives_it_nothing(tmp_path: Path) -> None:
    records = [session(1, b"old"), msg([(1, 0, 1, 1, 0)], payload=b"secret of old")]
    later = [(kinds.END, {"sno": 1}), session(1, b"new"), msg([(1, 0, 1, 1, 0)], payload=b"for new")]
    chunks, _ = exported(tmp_path, [], source=MovingSource(records, [1], later))
    assert not of(chunks, ClientMessage) and not of(chunks, Client)


def test_the_command_writes_the_file_and_replaces_one_only_with_force(tmp_path: Path) -> None:
    with Kept(KEEP) as broker:
        wire = broker.client("c")
        subscribe(wire, ("a", 1))
        file = tmp_path / "mosquitto.db"
        arguments = ["export", "--mosquitto", str(file), str(broker.dir)]
        assert CliRunner().invoke(db, arguments, standalone_mode=False).return_value == 0
        with MosquittoFile(str(file)) as found:
            assert [c.client_id for c in of(list(found.chunks()), Client)] == [b"c"]
        assert file.stat().st_mode & 0o777 == 0o600 and not (tmp_path / "mosquitto.db.new").exists()
        again = CliRunner().invoke(db, arguments, standalone_mode=False)
        assert again.return_value == 1 and "exists already" in again.output
        assert CliRunner().invoke(db, [*arguments, "--force"], standalone_mode=False).return_value == 0


# -- Mosquitto continues


@pytest.fixture
def kept() -> Iterator[Kept]:
    with Kept(KEEP + "user root\nmax_inflight_messages 0\n") as running:
        yield running


def programs() -> list[str | None]:
    """Return Debian's Mosquitto (None), and those that MOSQ_OTHER_MOSQUITTO names."""
    return [None, *filter(None, os.environ.get("MOSQ_OTHER_MOSQUITTO", "").split(os.pathsep))]


@pytest.mark.interop
@pytest.mark.parametrize("program", programs(), ids=lambda program: Path(program).name + "-other" if program else "debian")
def test_mosquitto_continues_where_mosq_stopped(kept: Kept, tmp_path: Path, program: str | None) -> None:
    five = kept.wire()
    five.send(Connect("five", clean=False, username="ann", password=b"x", props=EXPIRY))
    assert isinstance(five.read_packet(), Connack)
    subscribe(five, ("a/#", 0x0E), props=((P.SUBSCRIPTION_ID, 7),))
    three = kept.client("three", level=4)
    subscribe(three, ("a/+", 1), ("b", 2))
    three.close()
    pub = kept.client("pub")
    for i in range(1, 7):
        qos = 1 + i % 2
        pub.send(Publish(f"a/{i}", b"m%d" % i, qos, i, retain=i == 1, props=((P.USER, ("k", "v")),) if i == 2 else ()))
        answer = pub.read_packet()
        if qos == 2:
            assert isinstance(answer, Pubrec)
            pub.send(Pubrel(i))
            assert isinstance(pub.read_packet(), Pubcomp)
    got = [five.read_packet() for _ in range(3)]                        # its receive maximum
    assert [p.payload for p in got if isinstance(p, Publish)] == [b"m1", b"m2", b"m3"]
    five.send(Pubrec(1))
    assert isinstance(five.read_packet(), Pubrel)
    pub.send(Publish("held", b"inbound", 2, 99))
    assert isinstance(pub.read_packet(), Pubrec)
    assert kept.stop() == 0
    os.rename(kept.dir / "mosquitto.db", tmp_path / "mosquitto.db")

    mosquitto = Mosquitto(tmp_path, program=program)
    try:
        five = Wire(mosquitto.port, V5)
        five.send(Connect("five", clean=False, username="ann", password=b"x", props=EXPIRY))
        connack = five.read_packet()
        assert isinstance(connack, Connack) and connack.session
        again = [five.read_packet() for _ in range(3)]
        assert Pubrel(1) in again
        assert [(p.mid, p.qos, p.dup, p.payload) for p in again if isinstance(p, Publish)] == [(2, 1, True, b"m2"), (3, 2, True, b"m3")]
        assert ((P.USER, ("k", "v")) in next(p.props for p in again if isinstance(p, Publish)))
        five.send(Pubcomp(1), Puback(2), Pubrec(3))
        rest = []
        while len(rest) < 3:
            packet = five.read_packet()
            if isinstance(packet, Publish):
                rest.append((packet.payload, packet.dup))
                five.send(Puback(packet.mid) if packet.qos == 1 else Pubrec(packet.mid))
            elif isinstance(packet, Pubrel):
                five.send(Pubcomp(packet.mid))
        assert rest == [(b"m4", False), (b"m5", False), (b"m6", False)]
        three = mosquitto.client("three", 4)
        waiting = [three.read_packet() for _ in range(6)]
        assert [p.payload for p in waiting if isinstance(p, Publish)] == [b"m%d" % i for i in range(1, 7)]
        pub = mosquitto.client("pub")
        pub.send(Subscribe(1, (("held", 0), ("a/1", 0))))
        assert isinstance(pub.read_packet(), Suback)
        kept_message = pub.read_packet()
        assert isinstance(kept_message, Publish) and kept_message.payload == b"m1" and kept_message.retain
        pub.send(Pubrel(99))
        packets = {type(packet): packet for packet in (pub.read_packet(), pub.read_packet())}
        assert packets[Publish].payload == b"inbound"  # type: ignore[union-attr]
        for wire in (five, three, pub):
            wire.close()
    finally:
        mosquitto.stop()


@pytest.mark.interop
@pytest.mark.parametrize("level", [4, V5])
@pytest.mark.parametrize("program", programs(), ids=lambda program: Path(program).name + "-other" if program else "debian")
def test_mosquitto_delivers_a_repeated_qos_2_publication_once(kept: Kept, program: str | None, level: int) -> None:
    """The publisher has PUBREC from mosq, and repeats PUBLISH to Mosquitto. Its own No Local subscription gets no copy."""
    reader = kept.client("reader")
    subscribe(reader, ("held/#", 2))
    reader.close()
    pub = kept.client("pub", level=level)
    if level == V5:
        subscribe(pub, ("held/#", 6))                                   # QoS 2, No Local
    for mid in (500, 501):
        pub.send(Publish("held/a", b"inbound", 2, mid))
        assert isinstance(pub.read_packet(), Pubrec)
    pub.close()
    assert kept.stop() == 0

    mosquitto = Mosquitto(kept.dir, program=program)
    try:
        pub = mosquitto.client("pub", level)
        for mid in (500, 501):
            pub.send(Publish("held/a", b"inbound", 2, mid, dup=True))
            assert isinstance(pub.read_packet(), Pubrec)
            pub.send(Pubrel(mid))
            assert isinstance(pub.read_packet(), Pubcomp)               # no copy for the publisher itself
        pub.send(Publish("held/z", b"last", 1, 9))
        assert isinstance(pub.read_packet(), Puback)
        reader = mosquitto.client("reader")
        got = []
        while b"last" not in got:
            packet = reader.read_packet()
            if isinstance(packet, Publish):
                got.append(packet.payload)
                reader.send(Pubrec(packet.mid) if packet.qos == 2 else Puback(packet.mid))
        assert got == [b"inbound", b"inbound", b"last"]
        pub.close()
        reader.close()
    finally:
        mosquitto.stop()


@pytest.mark.interop
@pytest.mark.parametrize("program", programs(), ids=lambda program: Path(program).name + "-other" if program else "debian")
def test_a_shared_subscription_goes_to_mosquitto_and_back(kept: Kept, program: str | None) -> None:
    wire = kept.client("member")
    subscribe(wire, ("$share/g/q/#", 1))
    wire.close()
    kept.stop()
    mosquitto = Mosquitto(kept.dir, program=program)
    try:
        pub = mosquitto.client("pub")
        pub.send(Publish("q/1", b"shared", 1, 1))
        assert isinstance(pub.read_packet(), Puback)
        pub.close()
    finally:
        mosquitto.stop()
    kept.start()
    assert f"Taking over {kept.dir}/mosquitto.db" in kept.log()
    again = kept.client("member", session=True)
    packet = again.read_packet()
    assert isinstance(packet, Publish) and packet.payload == b"shared"


def test_a_process_writes_the_file_without_importing_click(tmp_path: Path) -> None:
    """The save of autosave_on_changes must be quick, and click takes 35 ms."""
    import sys

    code = "import sys; sys.argv = ['x']; import mosq.tools.db.mosquitto_save; print('click' in sys.modules, 'sqlite3' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "False"]
