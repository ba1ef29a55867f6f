"""Test `format("mqtt")` without Spark: receivers and writers with real brokers."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from paho.mqtt import client as paho, publish as paho_publish
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from pyspark.sql import Row
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from mosq.journal import Stream
from mosq.pipeline import MosqPipelineError
from mosq.pipeline.mqtt import MqttSource, create_sessions
from mosq.pipeline.mqtt.options import ReadOptions, WriteOptions
from mosq.pipeline.mqtt.publish import MqttWriter
from mosq.pipeline.mqtt.receiver import Receiver
from mosq.pipeline.mqtt.spool import READER, Received, Spool
from tests.harness.broker import Broker, free_port
from tests.harness.certificates import TLS_LINES, server_files
from tests.harness.effort import TIMEOUT_S
from tests.pipeline.processes import Killed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOSQUITTO = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin") or "mosquitto"
KEPT = "persistence true\npersistence_location {dir}/\nmax_queued_messages 0\n"


@pytest.fixture(scope="module", params=["mosq", "mosquitto"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with Broker(KEPT, command=[MOSQUITTO] if request.param == "mosquitto" else None) as started:
        yield started


@pytest.fixture(scope="module")
def kept_broker() -> Iterator[Broker]:
    with Broker(KEPT) as started:
        yield started


def options_of(broker: Broker, spool: Path, **more: object) -> dict[str, str]:
    """Return the options of a read; the test's name is its topic."""
    topic = f"{spool.parent.name}/#"
    return {"broker": f"mqtt://127.0.0.1:{broker.port}", "topics": topic, "spool": str(spool),
            **{name: str(value) for name, value in more.items()}}


def publish(broker: Broker, spool: Path, payloads: list[bytes], qos: int = 1) -> None:
    messages = [(f"{spool.parent.name}/{i % 3}", payload, qos, False) for i, payload in enumerate(payloads)]
    paho_publish.multiple(messages, "127.0.0.1", broker.port)


def records(spool: Path) -> list[Any]:
    """Return the records of all lanes; a record's client_id is its key."""
    found = []
    for path in spool.glob("*/"):
        stream = Stream(path)
        for lane in range(len(stream.marks())):
            found += stream.read(shard=lane)
    return found


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_messages_are_spooled_once_across_runs(broker: Broker, spool: Path, version: str) -> None:
    options = options_of(broker, spool, version=version)
    create_sessions(options)
    publish(broker, spool, [b"%d" % i for i in range(20)])      # stored by the broker
    receiver = Receiver(ReadOptions(options))
    receiver.start()
    publish(broker, spool, [b"%d" % i for i in range(20, 40)])
    until(lambda: len(records(spool)) == 40)
    receiver.stop()
    publish(broker, spool, [b"%d" % i for i in range(40, 60)])
    receiver = Receiver(ReadOptions(options))
    receiver.start()
    until(lambda: len(records(spool)) >= 60)
    receiver.drain()
    receiver.stop()
    found = records(spool)
    assert sorted(int(record.payload) for record in found) == list(range(60))
    assert len({record.client_id for record in found}) == 60 and {record.qos for record in found} == {1}


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_repeated_messages_after_a_kill_keep_their_key(
        broker: Broker, spool: Path, version: str) -> None:
    options = options_of(broker, spool, version=version, drainTime="0.5s")
    create_sessions(options)
    said_to = spool.parent / "options.json"
    said_to.write_text(json.dumps(options))
    same = [b"on"] * 6 + [b"%d" % i for i in range(6)]          # equal text does not make it the same message
    publish(broker, spool, same)
    for _ in range(2):
        there = len(records(spool)) + 12
        with Killed("tests.pipeline.processes", "receiver", said_to):
            until(lambda there=there: len(records(spool)) >= there)
    publish(broker, spool, [b"later"])
    receiver = Receiver(ReadOptions(options))
    receiver.start()
    until(lambda: any(record.payload == b"later" for record in records(spool)))
    receiver.drain()
    receiver.stop()
    found = records(spool)
    by_key: dict[str, list[Any]] = {}
    for record in found:
        by_key.setdefault(record.client_id, []).append(record)
    assert Counter(each[0].payload for each in by_key.values()) == Counter([*same, b"later"])
    for each in by_key.values():
        assert len({(record.topic, record.payload) for record in each}) == 1
        assert [record.dup for record in each] == [False] + [True] * (len(each) - 1)
    assert sorted(len(each) for each in by_key.values()) == [1] + [3] * 12
    # and now they are acknowledged
    receiver = Receiver(ReadOptions(options))
    receiver.start()
    receiver.drain()
    receiver.stop()
    assert len(records(spool)) == len(found)


def test_lanes_share_the_messages(broker: Broker, spool: Path) -> None:
    options = options_of(broker, spool, lanes=3)
    receiver = Receiver(ReadOptions(options))
    receiver.start()
    publish(broker, spool, [b"%d" % i for i in range(90)])
    until(lambda: len(records(spool)) >= 90)
    receiver.stop()
    assert sorted(int(record.payload) for record in records(spool)) == list(range(90))
    used = [mark.seq for mark in Stream(next(spool.glob("*/"))).marks()]
    assert len(used) == 3 and min(used) > 0
    assert ReadOptions(options).name != ReadOptions({**options, "lanes": "2"}).name


def test_messages_beyond_the_queue_of_the_broker_never_come(spool: Path) -> None:
    """Test what the page says of max_queued_messages, which the client cannot see."""
    with Broker(KEPT.replace("max_queued_messages 0", "max_queued_messages 10\nmax_inflight_messages 0")) as small:
        options = options_of(small, spool, drainTime="0.3s")
        create_sessions(options)
        publish(small, spool, [b"%d" % i for i in range(30)])
        receiver = Receiver(ReadOptions(options))
        receiver.start()
        publish(small, spool, [b"later"])
        until(lambda: any(record.payload == b"later" for record in records(spool)))
        receiver.drain()
        receiver.stop()
    found = records(spool)
    assert [record.payload for record in found] == [*(b"%d" % i for i in range(10)), b"later"]
    assert {record.kind for record in found} == {1}, "no row stands for the lost messages"


def test_a_publisher_may_give_the_key(kept_broker: Broker, spool: Path) -> None:
    receiver = Receiver(ReadOptions(options_of(kept_broker, spool, keyProperty="id")))
    receiver.start()
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = [("other", "x"), ("id", "order-7")]
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.connect("127.0.0.1", kept_broker.port)
    client.loop_start()
    client.publish(f"{spool.parent.name}/x", b"1", 1, properties=properties).wait_for_publish(TIMEOUT_S)
    client.disconnect()
    client.loop_stop()
    until(lambda: len(records(spool)) == 1)
    receiver.stop()
    record = records(spool)[0]
    assert record.client_id == "order-7"
    assert record.properties == b"\x26\x00\x05other\x00\x01x\x26\x00\x02id\x00\x07order-7"


def test_a_session_that_the_broker_lost_is_reported(kept_broker: Broker, spool: Path) -> None:
    options = options_of(kept_broker, spool)
    create_sessions(options)
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, ReadOptions(options).client_id(0), clean_session=True)
    client.connect("127.0.0.1", kept_broker.port)
    until(lambda: client.loop(0.1) == 0 and client.is_connected())
    client.disconnect()
    for _ in range(2):      # the same at the second start
        with pytest.raises(MosqPipelineError, match=r"has no session mosq-pipeline-.*-0 any more: .*Set failOnDataLoss=false"):
            create_sessions(options)
    receiver = Receiver(ReadOptions({**options, "failOnDataLoss": "false"}))
    receiver.start()
    publish(kept_broker, spool, [b"1"])
    until(lambda: len(records(spool)) == 2)
    receiver.stop()
    gap, message = records(spool)
    assert (gap.kind, message.kind, message.payload) == (10, 1, b"1")
    assert json.loads(gap.payload)["why"].startswith("the broker had lost the session")
    create_sessions(options)


def test_a_spool_that_cannot_be_written_acknowledges_nothing(kept_broker: Broker, spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = options_of(kept_broker, spool, drainTime="0.3s")
    receiver = Receiver(ReadOptions(options))

    def full() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(receiver.spool._writer, "commit", full)
    receiver.start()
    publish(kept_broker, spool, [b"1", b"2"])
    until(lambda: receiver._failed is not None)
    with pytest.raises(MosqPipelineError, match=r"the spool .* cannot be written: .*No space left.*none is lost: free some space"):
        receiver.check()
    receiver.stop()
    assert records(spool) == []
    receiver = Receiver(ReadOptions(options))
    receiver.start()
    until(lambda: len(records(spool)) == 2)
    receiver.stop()


def test_processed_records_are_deleted(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mosq.pipeline.mqtt.spool.SEGMENT_BYTES", 8192)
    each = Spool(spool, "a", 1, window=10)
    for number in range(200):
        each.append(Received(0, "t", bytes(500), 1, False, False, number + 1, b"", None))
        if number % 5 == 4:
            each.commit()
    each.retain()
    stream = Stream(spool / "a")
    assert stream.marks()[0].first_seq == 0         # no reader has read it yet
    stream.put_consumer(READER, [150])
    each.retain()
    assert 100 < stream.marks()[0].first_seq <= 150
    each.close()


def test_only_one_query_uses_a_spool(kept_broker: Broker, spool: Path) -> None:
    receiver = Receiver(ReadOptions(options_of(kept_broker, spool)))
    for other in (options_of(kept_broker, spool), options_of(kept_broker, spool, topics="other")):
        with pytest.raises(MosqPipelineError, match=r"the spool .* cannot be opened: .*Only one query may use a spool"):
            Receiver(ReadOptions(other))
    receiver.stop()
    Receiver(ReadOptions(options_of(kept_broker, spool, topics="other"))).stop()


# ---- refusals

def test_refusals_are_reported(spool: Path) -> None:
    port = free_port()
    with pytest.raises(MosqPipelineError, match=rf"mqtt://127.0.0.1:{port} cannot be reached: .*refused. Is the broker running"):
        create_sessions({"broker": f"mqtt://127.0.0.1:{port}", "topics": "a", "spool": str(spool)})
    with Broker("listener {port} 127.0.0.1\nallow_anonymous false\npassword_file {dir}/users\n", {"users": ""}) as broker:
        options = options_of(broker, spool, username="joe", password="geheim")
        for version, why in (("5", "Not authorized"), ("3.1.1", "Not authorized|Bad user name or password")):
            with pytest.raises(MosqPipelineError, match=f"refuses the connection: ({why}); set username") as raised:
                create_sessions({**options, "version": version})
            assert "geheim" not in str(raised.value)
        with pytest.raises(MosqPipelineError, match="refuses the connection: "):
            MqttWriter(WriteOptions({"broker": options["broker"]})).write(iter([Row(topic="a", payload=b"")]))
    readers = "listener {port} 127.0.0.1\nallow_anonymous true\nacl_file {dir}/acl\n"
    with Broker(readers, {"acl": "topic read other\n"}) as broker, pytest.raises(MosqPipelineError, match=r"refuses a message: Not authorized"):
        MqttWriter(WriteOptions({"broker": f"127.0.0.1:{broker.port}"})).write(iter([Row(topic="a", payload=b"")]))


@pytest.mark.parametrize(("options", "wanted"), [
    ({}, "needs the option broker"),
    ({"broker": "http://a"}, "option broker is 'http://a': expected mqtt://HOST"),
    ({"broker": "mqtt://joe:geheim@a"}, "option broker: expected no user in the URL"),
    ({"broker": "mqtt://joe:ge/heim@a"}, "option broker: expected no user in the URL"),
    ({"broker": "mqtt://a:x"}, "option broker is 'mqtt://a:x'"),
    ({"broker": "a"}, "needs the option topics"),
    ({"broker": "a", "topics": "t"}, "needs the option spool"),
    ({"broker": "a", "topics": "t", "spool": "/x", "qos": "2"}, "option qos is '2': expected a number from 0 to 1"),
    ({"broker": "a", "topics": "t", "spool": "/x", "version": "4"}, "option version is '4': expected 5 or 3.1.1"),
    ({"broker": "a", "topics": "$share/g/t", "spool": "/x", "lanes": "2"}, "no .share/ with several lanes"),
    ({"broker": "a", "topics": "t", "spool": "/x", "sessionExpiry": "soon"}, "option sessionExpiry is 'soon'"),
    ({"broker": "a", "topics": "t", "spool": "/x", "sessionExpiry": "0"}, "option sessionExpiry: expected more than 0"),
    ({"broker": "a", "topics": "t", "spool": "/x", "topic": "t"}, "has no option topic here; expected one of broker"),
    ({"broker": "a", "topics": "t", "spool": "/x", "caFile": "/c"}, "expected mqtts://, because caFile"),
])
def test_a_wrong_option_is_reported(options: dict[str, str], wanted: str) -> None:
    with pytest.raises(MosqPipelineError, match=wanted) as raised:
        ReadOptions(options)
    assert "geheim" not in str(raised.value)


def test_passwords_may_lie_in_files(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("geheim\n")
    options = ReadOptions({"broker": "a", "topics": "t", "spool": "/x", "passwordFile": str(tmp_path / "secret")})
    assert options.access.password() == "geheim"
    gone = ReadOptions({"broker": "a", "topics": "t", "spool": "/x", "passwordFile": str(tmp_path / "gone")})
    with pytest.raises(MosqPipelineError, match=r"the password cannot be read: .*gone"):
        gone.access.password()


# ---- writing

def collected(broker: Broker, filter: str, n: int, rows: list[Row], **options: object) -> list[tuple[str, bytes, int, bool]]:
    """Return the messages that a subscriber receives from n rows."""
    got: list[tuple[str, bytes, int, bool]] = []
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.on_message = lambda _, __, message: got.append((message.topic, message.payload, message.qos, message.retain))
    client.connect("127.0.0.1", broker.port)
    client.on_connect = lambda *_: client.subscribe(filter, 2)
    granted: list[object] = []
    client.on_subscribe = lambda *arguments: granted.append(arguments)
    client.loop_start()
    until(lambda: bool(granted))
    told = {"broker": f"127.0.0.1:{broker.port}", **{name: str(value) for name, value in options.items()}}
    assert MqttWriter(WriteOptions(told)).write(iter(rows)).messages == n
    until(lambda: len(got) == n)
    client.disconnect()
    client.loop_stop()
    return got


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_rows_are_published(broker: Broker, tmp_path: Path, version: str) -> None:
    base = tmp_path.name
    rows = [Row(topic=f"{base}/{i}", payload=bytearray(b"%d" % i)) for i in range(500)]
    got = collected(broker, f"{base}/#", 500, rows, version=version)
    assert [(topic, payload, qos) for topic, payload, qos, _ in got] == [(f"{base}/{i}", b"%d" % i, 1) for i in range(500)]
    got = collected(broker, f"{base}/#", 2, [Row(payload="text", qos=2, topic=None), Row(payload=None, qos=0, topic=None)],
                    version=version, topic=f"{base}/alerts")
    assert sorted(got) == [(f"{base}/alerts", b"", 0, False), (f"{base}/alerts", b"text", 2, False)]


def test_rows_that_cannot_be_published_are_reported(kept_broker: Broker) -> None:
    port = free_port()
    with pytest.raises(MosqPipelineError, match=rf"mqtt://127.0.0.1:{port} cannot be reached: .*refused"):
        MqttWriter(WriteOptions({"broker": f"127.0.0.1:{port}"})).write(iter([Row(topic="a", payload=b"")]))
    writer = MqttWriter(WriteOptions({"broker": f"127.0.0.1:{kept_broker.port}"}))
    for row, why in ((Row(topic="a/#", payload=b""), "cannot be published to the topic 'a/#'"), (Row(topic=None, payload=b""), "a row has no topic"),
                     (Row(topic="a", payload=b"", qos=3), "QoS 3")):
        with pytest.raises(MosqPipelineError, match=why):
            writer.write(iter([row]))
    source = MqttSource({"broker": "a"})
    with pytest.raises(MosqPipelineError, match="cannot write the column value int: the columns are topic string, payload"):
        source.streamWriter(StructType().add("value", IntegerType()), False)
    with pytest.raises(MosqPipelineError, match="needs a column topic, or the option topic"):
        source.writer(StructType().add("payload", BinaryType()), False)
    assert MqttSource({"broker": "a", "topic": "t"}).streamWriter(StructType().add("payload", StringType()), False)


# paho leaves the socket of a failed handshake to the garbage collector
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_tls(spool: Path) -> None:
    files = server_files()
    with Broker("listener {port} 127.0.0.1\nallow_anonymous true\n" + TLS_LINES, files) as broker:
        options = options_of(broker, spool, caFile=broker.dir / "ca.crt") | {"broker": f"mqtts://localhost:{broker.port}"}
        receiver = Receiver(ReadOptions(options))
        receiver.start()
        writing = {name: options[name] for name in ("broker", "caFile")}
        MqttWriter(WriteOptions(writing)).write(iter([Row(topic=f"{spool.parent.name}/x", payload=b"1")]))
        until(lambda: len(records(spool)) == 1)
        receiver.stop()
        del writing["caFile"]
        with pytest.raises(MosqPipelineError, match=r"mqtts://localhost:\d+ cannot be reached: .*certificate verify failed"):
            MqttWriter(WriteOptions(writing)).write(iter([]))
        with pytest.raises(MosqPipelineError, match=r"TLS to mqtts://localhost:\d+: .*options caFile"):
            MqttWriter(WriteOptions(writing | {"caFile": "/gone"})).write(iter([]))
