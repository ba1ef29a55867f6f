"""Test the reading of a mosquitto.db written by hand: its content, the errors of damaged ones, and no crash."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mosq.tools.db.mosquitto_file import Client, ClientMessage, Config, FormatError, Message, MosquittoFile, Retain, Subscription
from mosq.tools.db.mosquitto_import import Import
from tests.db import mosquitto_db as db
from tests.harness.effort import tries

PROPS = b"\x01\x01\x03\x00\x01t&\x00\x01k\x00\x01v"
WHOLE = (db.header() + db.config() + db.message(5, b"a/b", b"hi", 2, 1, 77, PROPS, b"src", b"ann")
         + db.client(b"c1", 99, 60, 3, b"ann") + db.client_message(5, b"c1", 7, 2, 9, 1, 0x11, 9) + db.subscription(b"c1", b"a/#", 2, 0x2C, 9)
         + db.retain(5))


def file_of(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "mosquitto.db"
    path.write_bytes(data)
    return str(path)


def test_every_chunk(tmp_path: Path) -> None:
    with MosquittoFile(file_of(tmp_path, WHOLE)) as file:
        config, message, client, client_message, subscription, retain = file.chunks()
        assert file.format == 6 and not file.warnings
        assert isinstance(config, Config) and (config.last_id, config.shutdown) == (9, True)
        assert isinstance(message, Message)
        assert message == Message(message.offset, 5, 77, b"src", b"ann", b"a/b", 2, True, 2, PROPS, b"hi", 1883, 1)
        assert client == Client(client.offset, b"c1", b"ann", 99, 60, 3, 1883)
        assert client_message == ClientMessage(client_message.offset, 5, b"c1", 7, 2, 9, True, True, 1, 9)
        assert subscription == Subscription(subscription.offset, b"c1", b"a/#", 0x2E, 9)
        assert retain == Retain(retain.offset, 5)
        assert file.message_at(message.offset) == message
        without = next(c for c in file.chunks(with_payload=False) if isinstance(c, Message))
        assert without.payload is None and without.payload_bytes == 2 and without.properties == PROPS


def test_format_5_has_no_user_name(tmp_path: Path) -> None:
    with MosquittoFile(file_of(tmp_path, db.header(5) + db.client_5(b"c1", 99, 60, 3))) as file:
        (client,) = file.chunks()
        assert client == Client(client.offset, b"c1", None, 99, 60, 3)


def test_an_unknown_chunk_is_skipped(tmp_path: Path) -> None:
    with MosquittoFile(file_of(tmp_path, db.header() + db.chunk(7, b"xyz") + db.retain(5))) as file:
        (retain,) = file.chunks()
        assert isinstance(retain, Retain)
        assert file.warnings == [f"{file.path}: byte 23: skipped a chunk of unknown type 7"]


@pytest.mark.parametrize(("data", "said"), [
    (b"", "byte 0: the file is empty; expected"),
    (b"SQLite format 3\0", "byte 0: not a persistence file of Mosquitto; expected"),
    (db.header()[:20], "byte 20: the file ends; expected a header of 23 bytes"),
    (db.header(4), "byte 19: format 4; expected 5 (Mosquitto 1.6) or 6 (2.0, 2.1); a start and stop of Mosquitto 2"),
    (db.header(7), "byte 19: format 7; expected 5"),
    (db.header() + b"\0\0\0", "byte 23: the file ends; expected a chunk's header of 8 bytes"),
    (db.header() + db.config(id_size=4), "ids of 4 bytes; expected 8"),
    (db.header() + db.chunk(1, b"x" * 17), "in a configuration: ids of 120"),
    (db.header() + db.retain(5)[:-1], "byte 27: a retained message of 8 bytes; expected at most 7"),
    (db.header() + db.chunk(4, b"x" * 9), "byte 39: in a retained message: 1 bytes after its last field"),
    (db.header() + db.chunk(4, b"x" * 7), "in a retained message: its fixed part of 8 bytes; expected at most 7"),
    (db.header() + db.message(1, b"a", qos=3), "QoS 3; expected 0, 1 or 2"),
    (db.header() + db.message(1, b""), "no topic"),
    (db.header() + db.chunk(2, db.message(1, b"a", b"payload")[8:-1]), "payload of 7 bytes; expected at most 6"),
    (db.header() + db.chunk(2, db.message(1, b"a", b"p", props=PROPS)[8:-1]), "properties whose length does not fit"),
    (db.header() + db.client_message(1, b"c", 1, direction=2), "direction 2"),
    (db.header() + db.client_message(1, b"c", 1, state=12), "state 12; expected 1 to 11"),
    (db.header() + db.client_message(1, b"c", 1, qos=3), "QoS 3"),
    (db.header() + db.chunk(3, db.client_message(1, b"c", 1)[8:] + b"\x02\x0b"), "properties"),
    (db.header() + db.chunk(3, db.client_message(1, b"c", 1)[8:] + b"\x02\x01\x01"), "expected a Subscription Identifier alone"),
    (db.header() + db.subscription(b"c", b"a/b", sub_id=1 << 28), "a subscription identifier of 268435456; expected at most 268435455"),
    (db.header() + db.chunk(5, db.subscription(b"c", b"a/b")[8:-1]), "filter of 3 bytes; expected at most 2"),
    (db.header() + db.chunk(6, db.client(b"c")[8:] + b"x"), "1 bytes after its last field"),
])
def test_errors_name_their_position(tmp_path: Path, data: bytes, said: str) -> None:
    path = file_of(tmp_path, data)
    with pytest.raises(FormatError) as told, MosquittoFile(path) as file:
        list(file.chunks())
    assert str(told.value).startswith(f"{path}: byte ") and said in str(told.value)


def consume(path: str) -> None:
    try:
        with MosquittoFile(path) as file:
            for _ in Import(file, 1000.0).records():
                pass
    except FormatError:
        pass


def test_every_cut(tmp_path: Path) -> None:
    for n in range(len(WHOLE)):
        consume(file_of(tmp_path, WHOLE[:n]))


@settings(max_examples=tries(300))
@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=6), st.binary(max_size=20))
def test_flipped_bytes(tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]], more: bytes) -> None:
    data = bytearray(WHOLE)
    for at, byte in flips:
        data[at] = byte
    consume(file_of(tmp_path_factory.getbasetemp(), bytes(data) + more))
