"""Test the import of a mosquitto.db: queues with their progress and packet ids, omitted parts and their warnings."""

from pathlib import Path
from typing import Any

import pytest

from mosq._core import record_decode
from mosq.tools.db import kinds
from mosq.tools.db.mosquitto_file import FormatError, MosquittoFile
from mosq.tools.db.mosquitto_import import Counts, Import, filter_problem, import_file, topic_problem
from mosq.tools.db.properties import forwardable, readable
from tests.db import mosquitto_db as db

NOW = 1000.0
PUBACK, PUBREC, PUBREL_AGAIN, PUBCOMP, QUEUED = 3, 5, 6, 9, 11
HELD, OUT, IN = 7, 1, 0
THROUGH = 0xC000_0000   # origin of a session or message, with the port of its listener


def imported(tmp_path: Path, *chunks: bytes, bridges: tuple[bytes, ...] = ()) -> tuple[list[tuple[int, dict[Any, Any]]], Counts]:
    path = tmp_path / "mosquitto.db"
    path.write_bytes(db.header() + db.config() + b"".join(chunks))
    with MosquittoFile(str(path)) as file:
        run = Import(file, NOW, bridges=bridges)
        return [(kind, record_decode(kind, body)) for kind, body in run.records()], run.counts


def deliveries_of(records: list[tuple[int, dict[Any, Any]]], sno: int) -> list[tuple[int, int, int, bytes]]:
    """Return (position, packet id, qos, payload) in the order of the queue."""
    return sorted((position, pid, qos, f["payload"]) for kind, f in records if kind == kinds.MSG
                  for of, position, pid, qos, _ in f["entries"] if of == sno)


def test_a_queue_keeps_the_ids_of_sent_messages(tmp_path: Path) -> None:
    records, counts = imported(
        tmp_path, *(db.message(i, b"t", b"m%d" % i, 2) for i in range(1, 7)), db.client(b"c", last_pid=70),
        db.client_message(1, b"c", 65, 1, PUBACK), db.client_message(2, b"c", 66, 2, PUBREC), db.client_message(3, b"c", 69, 2, PUBCOMP),
        db.client_message(4, b"c", 70, 2, QUEUED, retain_dup=0x10), db.client_message(5, b"c", 0, 0, QUEUED), db.client_message(6, b"c", 71, 1, QUEUED))
    # 67 and 68 were acknowledged: their positions are holes
    assert deliveries_of(records, 1) == [(0, 65, 1, b"m1"), (1, 66, 2, b"m2"), (5, 70, 0x82, b"m4"), (6, 70, 0, b"m5"), (7, 71, 1, b"m6")]
    assert [f for kind, f in records if kind == kinds.RELEASED] == [{"acks": [(1, 4, 69)]}]
    assert [f["next"] for kind, f in records if kind == kinds.SESSION] == [5]
    assert counts == Counts(sessions=1, deliveries=6)


def test_packet_ids_wrap(tmp_path: Path) -> None:
    records, _ = imported(tmp_path, *(db.message(i, b"t", b"m%d" % i) for i in range(1, 5)), db.client(b"c", last_pid=2),
                          db.client_message(1, b"c", 65535, 1, PUBACK), db.client_message(2, b"c", 1, 1, PUBACK),
                          db.client_message(3, b"c", 2, 1, QUEUED), db.client_message(4, b"c", 3, 1, QUEUED))
    assert deliveries_of(records, 1) == [(0, 65535, 1, b"m1"), (1, 1, 1, b"m2"), (2, 2, 1, b"m3"), (3, 3, 1, b"m4")]


def test_ids_that_cannot_be_in_flight_are_new(tmp_path: Path) -> None:
    records, counts = imported(tmp_path, *(db.message(i, b"t", b"m%d" % i) for i in range(1, 4)), db.client(b"c"),
                               db.client_message(1, b"c", 5, 1, PUBACK), db.client_message(2, b"c", 5, 1, PUBACK),
                               db.client_message(3, b"c", 4, 1, PUBACK))
    assert [(position, pid) for position, pid, *_ in deliveries_of(records, 1)] == [(0, 5), (1, 6), (2, 7)]
    assert len(counts.refused) == 2 and "packet id 5 after 5" in counts.refused[0]


def test_a_queue_keeps_its_order_where_an_older_message_waits_behind_one_in_flight(tmp_path: Path) -> None:
    """Test what Mosquitto writes for a bridge if a message comes during its attempt to connect, and others came before."""
    records, counts = imported(
        tmp_path, *(db.message(i, b"t", b"m%d" % i) for i in range(1, 6)), db.message(6, b"t", b"gone", expires_s=999), db.client(b"c", last_pid=2),
        db.client_message(4, b"c", 2, 1, PUBACK), db.client_message(6, b"c", 0), db.client_message(1, b"c", 0), db.client_message(2, b"c", 0, 0),
        db.client_message(3, b"c", 0, 2), db.client_message(5, b"c", 0))
    assert deliveries_of(records, 1) == [(0, 65534, 1, b"m1"), (1, 65535, 0, b"m2"), (2, 1, 2, b"m3"), (3, 2, 1, b"m4"), (4, 3, 1, b"m5")]
    assert [(f["next"], f["last_pid"]) for kind, f in records if kind == kinds.SESSION] == [(4, 2)]
    assert (counts.deliveries, counts.messages_expired) == (5, 1)


def test_retained_messages_keep_their_publishers(tmp_path: Path) -> None:
    records, _ = imported(
        tmp_path, db.message(1, b"t", b"m", source=b"dev", user=b"ann"), db.retain(1), db.message(2, b"u", b"m"), db.retain(2),
        db.message(3, b"v", b"m", source=b"dev", user=b"\xff", port=8883), db.retain(3))
    assert [f for kind, f in records if kind == kinds.RETAINED_FROM] == [
        {"topic": b"t", "id": b"dev", "user": b"ann", "security": THROUGH | 1883}, {"topic": b"v", "id": b"dev", "user": b"", "security": THROUGH | 8883}]


def test_a_file_that_changes_while_it_is_read_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    path, store = tmp_path / "mosquitto.db", tmp_path / "store"
    path.write_bytes(db.header() + db.config() + db.client(b"c"))
    seen: list[int] = []

    def mosquitto_saves(_done: int, _total: int) -> None:
        if not seen:
            seen.append(1)
            (tmp_path / "new").write_bytes(path.read_bytes() + db.client(b"d"))
            (tmp_path / "new").rename(path)

    with pytest.raises(FormatError, match="it changed while it was read; expected that no broker uses it"):
        import_file(str(path), str(store), NOW, progress=mosquitto_saves)
    assert seen and not list(store.glob("segment.*"))


def test_a_message_for_many_sessions_is_one_record(tmp_path: Path) -> None:
    records, counts = imported(tmp_path, db.message(1, b"t", b"m", retain=1), db.client(b"a"), db.client_message(1, b"a", 1),
                               db.client(b"b"), db.client_message(1, b"b", 9, sub_id=4), db.retain(1))
    (message,) = [f for kind, f in records if kind == kinds.MSG]
    assert message["entries"] == [(1, 0, 1, 1, 0), (2, 0, 1, 1, 4)]
    assert message["retain"] and message["retained_set"]
    assert (counts.deliveries, counts.retained) == (2, 1)


def test_inbound_qos_2(tmp_path: Path) -> None:
    records, _ = imported(tmp_path, db.message(1, b"t", b"m", 2), db.client(b"a"), db.client_message(1, b"a", 12, 2, HELD, IN))
    (held,) = [f for kind, f in records if kind == kinds.INBOX]
    assert (held["sno"], held["pid"], held["refused"], held["topic"], held["payload"], held["qos"]) == (1, 12, False, b"t", b"m", 2)
    assert not [f for kind, f in records if kind == kinds.MSG]


def test_sessions_and_their_ends(tmp_path: Path) -> None:
    records, counts = imported(
        tmp_path, db.client(b"never"), db.client(b"later", 2000, 60, user=b"ann"), db.client(b"connected", 0, 60), db.client(b"gone", 999, 60),
        db.subscription(b"never", b"a/+", 2, 0x2C, 7), db.subscription(b"gone", b"b"), db.message(1, b"t"), db.client_message(1, b"gone", 1))
    sessions = {f["id"]: f for kind, f in records if kind == kinds.SESSION}
    assert {id: (f["ends_wall_ms"], f["expiry_s"], f["user"], f["connected"]) for id, f in sessions.items()} == {
        b"never": (0, 0xFFFFFFFF, None, False), b"later": (2_000_000, 60, b"ann", False), b"connected": (1_060_000, 60, None, False)}
    assert [f for kind, f in records if kind == kinds.SUB] == [{"sno": 1, "options": 0x2E, "sub_id": 7, "filter": b"a/+"}]
    assert counts == Counts(sessions=3, subscriptions=1, sessions_expired=1, deliveries_expired=1)
    assert "Left out: 1 sessions that have expired, 1 deliveries to them." in counts.text("imported")


def test_sessions_of_bridges_are_marked_and_do_not_expire(tmp_path: Path) -> None:
    """Test both versions: 2.0 marks them by an expiry of 0; the caller must know those of 2.1."""
    records, counts = imported(
        tmp_path, db.message(1, b"t", b"m"), db.client(b"local.h.b", 999, 0), db.client_message(1, b"local.h.b", 1), db.client(b"b21", 999, 60),
        db.client_message(1, b"b21", 1), db.client(b"c"), bridges=(b"b21", b"nobody"))
    sessions = {f["id"]: f for kind, f in records if kind == kinds.SESSION}
    assert {id: (f["ends_wall_ms"], f["expiry_s"], f.get("link", False)) for id, f in sessions.items()} == {
        b"local.h.b": (0, 0xFFFFFFFF, True), b"b21": (0, 0xFFFFFFFF, True), b"c": (0, 0xFFFFFFFF, False)}
    assert deliveries_of(records, 1) == deliveries_of(records, 2) == [(0, 1, 1, b"m")]
    assert counts == Counts(sessions=3, bridges=2, deliveries=2)
    assert counts.text("imported").startswith("3 sessions (2 of bridges), 0 subscriptions, 2 deliveries")


def test_an_invalid_user_name_is_left_out(tmp_path: Path) -> None:
    """Test a name that 2.0.11 writes for a client that has none."""
    records, counts = imported(tmp_path, db.client(b"c", user=b"ann\0secret"))
    assert [f["user"] for kind, f in records if kind == kinds.SESSION] == [None]
    assert len(counts.refused) == 1 and "secret" not in counts.refused[0] and "an invalid user name" in counts.refused[0]


def test_records_that_are_left_out(tmp_path: Path) -> None:
    records, counts = imported(
        tmp_path, db.message(1, b"t", b"old", expires_s=999), db.message(2, b"t", b"new", expires_s=1001), db.message(3, b"a/+", b"wild"),
        db.message(4, b"\xff", b"bad"), db.message(5, b"t", b"props", props=b"\x55"), db.message(6, b"alone", b"nobody's"),
        db.client(b"c"), *(db.client_message(i, b"c", i) for i in (1, 2, 3, 4, 5, 99)), db.client(b"c"), db.client(b""),
        db.subscription(b"c", b"a/#/b"), db.subscription(b"c", b"a\0"), db.subscription(b"nobody", b"a"), db.retain(1), db.retain(98))
    assert [(pid, payload) for _, pid, _, payload in deliveries_of(records, 1)] == [(1, b"new")]
    assert [f["expires_wall_ms"] for kind, f in records if kind == kinds.MSG] == [1_001_000]
    assert (counts.messages_expired, counts.orphans) == (2, 3)
    said = "\n".join(counts.refused)
    for text in ("there already", "an id that is empty", "not a filter", "a zero byte", "a wildcard", "not UTF-8", "bad properties"):
        assert text in said
    assert "Left out: 2 uses of expired messages, 3 that belong to nothing, 7 that MQTT does not allow." in counts.text("imported")


@pytest.mark.parametrize(("block", "out"), [
    (b"", b""), (b"\x01\x01", b"\x01\x01"), (b"\x02\0\0\0\x05\x03\0\x01t", b"\x03\0\x01t"), (b"\x0b\x81\x01\x23\0\x01", b""),
    (b"\x26\0\x01k\0\x01v", b"\x26\0\x01k\0\x01v"), (b"\x26\0\x01k\0\x02v", None), (b"\x55", None), (b"\x01", None), (b"\x03\0", None),
    (b"\x0b\x81", None),
])
def test_forwardable(block: bytes, out: bytes | None) -> None:
    assert forwardable(block) == out


def test_readable_properties() -> None:
    block = b"\x01\x01\x03\0\x01t\x08\0\x01r\x09\0\x02\x01\x02\x26\0\x01k\0\x01v\x26\0\x01k\0\x01w"
    assert readable(block) == {"payload_format": 1, "content_type": "t", "response_topic": "r", "correlation_data": "0102",
                               "user_properties": [["k", "v"], ["k", "w"]]}
    assert readable(b"\x55") == {"undecodable": "55"}


def test_names() -> None:
    assert [topic_problem(t) is None for t in (b"a/b", b"", b"+", b"a\0", b"\xc3")] == [True, True, False, False, False]
    assert [filter_problem(f) is None for f in (b"a/+/#", b"#", b"", b"a/#/b", b"a+", b"+/\xff")] == [True, True, False, False, False, False]
