"""Every way that a message takes leads into the streams that want it, once."""

from __future__ import annotations

import time

from tests.durable.test_restart import FOR_LONG, Kept, publish, subscribe
from tests.harness.packets import Connect, Disconnect, Puback, Publish, Pubcomp, Pubrec, Pubrel, Will
from tests.harness.properties import P
from tests.streams.journalled import MESSAGE, keeping, payloads, records, stopped


def test_what_a_record_says() -> None:
    with Kept(keeping("stream all #")) as broker:
        before = time.time_ns() // 1000
        pub = broker.client("pub", clean=True, username="ann")
        publish(pub, "a/b", b"one", 1)
        pub.send(Publish("a/b", b"two", 1, 8, dup=True), Publish("c", b"three", 0, retain=True, props=((P.USER, ("k", "v")),)))
        assert pub.read_packet() == Puback(8, 0x10)         # a stream is nobody who subscribes
        publish(pub, "c", b"four", 2)
        one, two, three, four = records(broker, 4)
        assert (one.kind, one.qos, one.retain, one.dup, one.topic, one.payload) == (MESSAGE, 1, False, False, "a/b", b"one")
        assert (one.client_id, one.username, one.properties) == ("pub", "ann", b"")
        assert before <= one.time_us <= one.commit_us <= time.time_ns() // 1000
        assert (two.qos, two.dup) == (1, True)
        assert (three.qos, three.retain, three.topic, three.properties) == (0, True, "c", b"\x26\0\1k\0\1v")
        assert (four.qos, four.dup, four.payload) == (2, False, b"four")
