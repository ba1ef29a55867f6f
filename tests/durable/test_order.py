"""Test a store in which cleaning has moved records: a session's record may follow the records that belong to it, and a number may
have had earlier owners.
"""

from pathlib import Path
from typing import Any

from mosq._core import record_encode
from mosq.tools.db import kinds
from mosq.tools.db.store import write_store
from tests.harness.broker import Broker
from tests.harness.packets import Connack, Connect, Publish, Subscribe
from tests.harness.wire import Wire

NEVER = 0xFFFFFFFF
CONFIG = "listener {port} 127.0.0.1\nallow_anonymous true\nuser root\npersistence true\npersistence_location {dir}/\n"


def session(sno: int, id: bytes) -> tuple[int, bytes]:
    return kinds.SESSION, record_encode(kinds.SESSION, {"sno": sno, "connected": False, "expiry_s": NEVER, "ends_wall_ms": 0, "next": 0,
                                                        "id": id, "user": None})


def message(payload: bytes, *to: tuple[int, int]) -> tuple[int, bytes]:
    fields: dict[str, Any] = {"qos": 1, "retain": False, "retained_set": False, "expires_wall_ms": 0, "source_hash": 0, "topic": b"t",
                              "props": b"", "payload": payload, "entries": [(sno, position, position + 1, 1, 0) for sno, position in to]}
    return kinds.MSG, record_encode(kinds.MSG, fields)


def sub(sno: int, filter: bytes) -> tuple[int, bytes]:
    return kinds.SUB, record_encode(kinds.SUB, {"sno": sno, "options": 1, "sub_id": 0, "filter": filter})


def end(sno: int) -> tuple[int, bytes]:
    return kinds.END, record_encode(kinds.END, {"sno": sno})


def received_by(records: list[tuple[int, bytes]], *client_ids: str) -> dict[str, list[bytes] | None]:
    """Return the messages that each returning client receives from a broker on this store; None = an unknown client.

    The last entry is for a client that subscribed to `new`.
    """
    broker = Broker(CONFIG)
    write_store(str(broker.dir / "mosquitto.db.store"), records, "test", False, str(broker.dir))
    with broker:
        out: dict[str, list[bytes] | None] = {}
        for client_id in client_ids:
            wire = Wire(broker.port)
            # the end marker goes through the queue, because PINGRESP may arrive while the broker still reads the store
            wire.send(Connect(client_id, clean=False), Subscribe(1, (("end", 1),)), Publish("new", b"new", 1, mid=2), Publish("end", b"", 1, mid=3))
            connack = wire.read_packet()
            assert isinstance(connack, Connack)
            got = []
            while not isinstance(packet := wire.read_packet(), Publish) or packet.topic != "end":
                if isinstance(packet, Publish):
                    got.append(packet.payload)
            out[client_id] = got if connack.session else None
            wire.close()
        return out


def test_records_before_their_session_are_found() -> None:
    records = [message(b"m0", (1, 0), (2, 0)), sub(1, b"new"), message(b"m1", (1, 1)), session(2, b"two"), session(1, b"one"), message(b"m2", (1, 2))]
    assert received_by(records, "one", "two", "three") == {"one": [b"m0", b"m1", b"m2", b"new"], "two": [b"m0"], "three": None}


def test_records_before_the_end_of_a_session_number_are_ignored() -> None:
    records = [session(1, b"old"), sub(1, b"new"), message(b"olds", (1, 0)), end(1), session(1, b"one"), message(b"ones", (1, 0)), session(1, b"one")]
    assert received_by(records, "old", "one") == {"old": None, "one": [b"ones"]}


def test_records_before_a_new_name_of_a_number_are_ignored() -> None:
    """Test the state after damage: the end of the earlier session is lost."""
    records = [message(b"olds", (1, 0)), session(1, b"old"), sub(1, b"new"), session(1, b"one"), message(b"ones", (1, 1))]
    assert received_by(records, "old", "one") == {"old": None, "one": [b"ones"]}


def test_a_store_with_end_records_only(tmp_path: Path) -> None:
    assert received_by([end(1), end(7)], "one") == {"one": None}
