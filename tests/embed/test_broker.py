"""Test mosq.Broker for threads."""

import gc
import logging
import mmap
import os
import socket
import subprocess
import sys
import threading
import time
import weakref

import pytest

import mosq
from tests.embed.client import Outside
from tests.harness.packets import Connack, Connect, Puback, Publish, Suback, Subscribe
from tests.harness.wire import Wire


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_200_starts_and_stops_leave_nothing():
    def once():
        with mosq.Broker() as broker, broker.subscribe("a") as messages:
            broker.publish("a", b"1", qos=1)
            assert messages.get(5).payload == b"1"

    once()
    gc.collect()
    fds, threads = descriptors(), threading.active_count()
    for _ in range(200):
        once()
    gc.collect()
    assert descriptors() == fds
    assert threading.active_count() == threads


def test_two_brokers_are_independent(mosq_broker_factory):
    one, other = mosq_broker_factory(), mosq_broker_factory()
    assert one.port != other.port
    with one.subscribe("#") as of_one, other.subscribe("#") as of_other:
        one.publish("t", b"one", qos=1)
        other.publish("t", b"other", qos=1)
        assert (of_one.get(5).payload, of_other.get(5).payload) == (b"one", b"other")
        with pytest.raises(TimeoutError):
            of_one.get(0)


RELAY = """
import mmap, sys
from tests.embed.client import Outside
from tests.harness.packets import Connack, Connect, Puback, Publish, Suback, Subscribe
from tests.harness.wire import Wire
port, path, count = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
publisher, subscriber = Outside(port, "publisher"), Outside(port, "subscriber")
subscriber.subscribe("t")
for _ in range(count):
    publisher.publish("t", b"x" * 50)
    subscriber.message()
with open(path, "r+b") as file, mmap.mmap(file.fileno(), 1) as done:
    done[0] = 1
"""


def test_the_data_plane_neither_holds_nor_needs_the_gil(mosq_broker, tmp_path):
    """Test two clients of another process that send messages one by one while this thread never releases the GIL."""
    path = tmp_path / "done"
    path.write_bytes(b"\0")
    command = [sys.executable, "-c", RELAY, str(mosq_broker.port), str(path), "2000"]
    old = sys.getswitchinterval()
    turns = 0
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 1) as done, \
            subprocess.Popen(command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) as process:
        sys.setswitchinterval(1000)
        try:
            give_up = time.monotonic() + 60
            while not done[0] and time.monotonic() < give_up:
                turns += 1
        finally:
            sys.setswitchinterval(old)
        assert done[0] == 1
        assert process.wait(10) == 0
    assert turns > 10_000
    assert mosq_broker.stats()["publish_out"] >= 2000


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_qos(mosq_broker, qos):
    with mosq_broker.subscribe("a/+", "b", qos=qos) as messages:
        for i in range(300):
            mosq_broker.publish("a/b" if i % 2 else "b", str(i), qos=qos)
            message = messages.get(5)
            assert (message.payload, message.qos, message.retain) == (str(i).encode(), qos, False)


def test_properties_arrive(mosq_broker):
    with mosq_broker.subscribe("p") as messages:
        mosq_broker.publish("p", memoryview(b"x"), payload_format=1, message_expiry=100, content_type="text",
                            response_topic="r/é", correlation_data=b"\0\1", user_properties=[("a", "1"), ("a", "2")])
        got = messages.get(5)
    assert got == mosq.Message("p", b"x", 0, False, mosq.Properties(1, 100, "text", "r/é", b"\0\1",
                                                                      (("a", "1"), ("a", "2"))))


def test_retained(mosq_broker):
    mosq_broker.publish("r", b"kept", retain=True, qos=1)
    with mosq_broker.subscribe("r", retain_handling=2) as without, mosq_broker.subscribe("r") as messages:
        assert messages.get(5) == mosq.Message("r", b"kept", 0, True)
        mosq_broker.publish("r", retain=True, qos=1)
        assert not messages.get(5).retain
        assert without.get(5).payload == b""
    with mosq_broker.subscribe("r") as messages, pytest.raises(TimeoutError):
        messages.get(0.02)


def test_large_payloads(mosq_broker_factory):
    broker = mosq_broker_factory(max_packet_size=20_000_000)
    payload = os.urandom(5_000_000)
    with broker.subscribe("big", qos=1) as messages:
        broker.publish("big", payload, qos=1)
        assert messages.get(10).payload == payload


def test_outside_clients(mosq_broker):
    with Outside(mosq_broker.port) as client, mosq_broker.subscribe("up") as messages:
        client.subscribe("down")
        mosq_broker.publish("down", b"hello")
        assert client.message().payload == b"hello"
        client.publish("up", b"hi")
        assert messages.get(5).payload == b"hi"


def test_clients_kick_stats(mosq_broker):
    with Outside(mosq_broker.port, "one") as client, mosq_broker.subscribe("x"):
        (found,) = mosq_broker.clients()
        assert (found["id"], found["version"], found["address"]) == ("one", 5, "127.0.0.1")
        assert mosq_broker.stats()["clients_connected"] == 2        # includes our own subscription
        assert mosq_broker.kick("one") is True
        first, body = client.packet()
        assert (first, body[0]) == (0xE0, 0x98)         # DISCONNECT, administrative action
        with pytest.raises(EOFError):
            client.packet()
        assert mosq_broker.kick("nobody") is False


def test_a_slow_subscription_does_not_delay_another(mosq_broker_factory):
    broker = mosq_broker_factory(max_queued_messages=50)
    with broker.subscribe("s", qos=1, receive_maximum=5) as slow, broker.subscribe("s", qos=1) as fast:
        for i in range(200):
            broker.publish("s", str(i), qos=1)
            assert fast.get(5).payload == str(i).encode()
        kept = [int(slow.get(5).payload) for _ in range(50)]
        assert kept == list(range(50))
        assert broker.stats()["drops_queue_messages"] > 100
        rest = 0
        while slow_has := next_or_none(slow):
            assert slow_has.qos == 1
            rest += 1
        assert len(kept) + rest + broker.stats()["drops_queue_messages"] == 200


def next_or_none(messages):
    try:
        return messages.get(0.05)
    except TimeoutError:
        return None


def test_a_kicked_subscription_raises_the_reason(mosq_broker):
    messages = mosq_broker.subscribe("t")
    assert mosq_broker.kick(messages._connection.client_id)
    for _ in range(2):
        with pytest.raises(mosq.Disconnected) as error:
            next(messages)
        assert error.value.reason == 0x98
    messages.close()


def test_a_program_without_stop_ends_with_status_0():
    script = ("import mosq, threading\nbroker = mosq.Broker().start()\nmessages = broker.subscribe('#')\n"
              "threading.Thread(target=list, args=(messages,), daemon=True).start()\nbroker.publish('a', qos=1)\n")
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=30,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_refusals(mosq_broker_factory):
    broker = mosq_broker_factory(message_size_limit=10, max_packet_size=1000, retain_available=False)
    for payload, more, reason in ((b"x" * 11, {}, 0x95), (b"x" * 2000, {}, 0x95), (b"", {"retain": True}, 0x9A)):
        with pytest.raises(mosq.PublishError) as error:
            broker.publish("t", payload, qos=1, **more)
        assert error.value.reason == reason
    for topic in ("", "a/+", "#", "a\0b", "x" * 65536):
        with pytest.raises(ValueError):
            broker.publish(topic)
    for bad in ({"qos": 3}, {"message_expiry": -1}, {"payload_format": 2}, {"response_topic": "#"}):
        with pytest.raises(ValueError):
            broker.publish("t", **bad)
    with pytest.raises(TypeError):
        broker.publish("t", 5)
    with pytest.raises(mosq.ReasonError):
        broker.subscribe("a/#/b")
    with broker.subscribe("t") as messages:         # the broker still works after the errors
        broker.publish("t", b"ok", qos=2)
        assert messages.get(5).payload == b"ok"


def test_the_embedding_program_is_not_subject_to_the_acl(tmp_path, mosq_broker_factory):
    acl = tmp_path / "acl"
    acl.write_text("topic read nothing\n")
    broker = mosq_broker_factory(acl_file=acl)
    with broker.subscribe("x") as messages, Outside(broker.port) as client:
        client.publish("x", b"denied")
        broker.publish("x", b"mine", qos=1)
        assert messages.get(5).payload == b"mine"


def test_the_publishing_connection_is_restored(mosq_broker):
    mosq_broker.publish("t", qos=1)
    assert mosq_broker.kick(mosq_broker._connection.client_id)
    mosq_broker.publish("t", qos=1)


def test_stop_ends_iteration(mosq_broker):
    got = []
    ready = threading.Event()

    def consume():
        for message in mosq_broker.subscribe("t", qos=1):
            got.append(message.payload)
            ready.set()

    thread = threading.Thread(target=consume)
    thread.start()
    while not ready.is_set():
        mosq_broker.publish("t", b"1", qos=1)       # repeat until the thread has subscribed
        ready.wait(0.01)
    mosq_broker.stop()
    thread.join(5)
    assert not thread.is_alive()
    assert set(got) == {b"1"}
    for question in (mosq_broker.stats, mosq_broker.clients, lambda: mosq_broker.publish("t"),
                     lambda: mosq_broker.kick("x"), lambda: mosq_broker.subscribe("t")):
        with pytest.raises(mosq.BrokerStopped):
            question()


def test_messages_from_before_the_end_can_be_read():
    with mosq.Broker() as broker:
        messages = broker.subscribe("t", qos=1)
        for i in range(10):
            broker.publish("t", str(i), qos=1)
    assert [int(m.payload) for m in messages] == list(range(10))
    with pytest.raises(mosq.SubscriptionClosed):
        messages.get(5)
    messages.close()


def test_close_wakes_a_waiting_thread(mosq_broker):
    messages = mosq_broker.subscribe("t")
    ended = threading.Event()

    def consume():
        list(messages)
        ended.set()

    thread = threading.Thread(target=consume)
    thread.start()
    messages.close()
    assert ended.wait(5)
    thread.join()


def test_stop_from_several_threads(mosq_broker):
    threads = [threading.Thread(target=mosq_broker.stop) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", mosq_broker._running.ports[0]))


def test_many_threads_publish(mosq_broker):
    with mosq_broker.subscribe("t/+", qos=2) as messages:
        threads = [threading.Thread(target=lambda i=i: [mosq_broker.publish(f"t/{i}", str(n), qos=2) for n in range(50)])
                   for i in range(8)]
        for thread in threads:
            thread.start()
        seen = [messages.get(5) for _ in range(400)]
        for thread in threads:
            thread.join()
    for i in range(8):
        assert [int(m.payload) for m in seen if m.topic == f"t/{i}"] == list(range(50))


@pytest.mark.one_process("looks at objects in the program, which has none of the workers")
def test_a_forgotten_broker_stops():
    broker = mosq.Broker().start()
    running = broker._running
    gone = weakref.ref(broker)
    del broker
    gc.collect()
    assert gone() is None
    assert running.engine is None
    assert not running._loop.is_alive()


def test_a_broker_starts_only_once():
    broker = mosq.Broker()
    with pytest.raises(mosq.BrokerStopped):
        _ = broker.port
    with broker, pytest.raises(RuntimeError):
        broker.start()
    broker.stop()


def test_log_lines(caplog):
    with caplog.at_level(logging.INFO, "mosq"), mosq.Broker() as broker, Outside(broker.port, "seen"):
        pass
    assert any("as seen" in record.getMessage() and record.levelno == logging.INFO for record in caplog.records)
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "mosq"), mosq.Broker(log_dest="none") as broker, Outside(broker.port):
        pass
    assert not caplog.records


def test_the_package_is_light_and_sync_use_needs_no_asyncio():
    light = "import sys, mosq; assert not {'threading', 'logging', 'socket', 'mosq.embed'} & set(sys.modules)"
    sync = ("import sys, mosq\nwith mosq.Broker() as b, b.subscribe('x') as s:\n b.publish('x', qos=1); s.get(5)\n"
            "assert 'asyncio' not in sys.modules")
    for script in (light, sync):
        subprocess.run([sys.executable, "-c", script], check=True, timeout=30,
                       env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


def test_explain(mosq_broker):
    with mosq_broker.subscribe("a/+", "$share/g/a/#"):
        explained = mosq_broker.explain("a/b")
        assert sorted(f["filter"] for f in explained["filters"]) == ["a/#", "a/+"]
        assert explained["totals"] == {"filters": 2, "lists": 1, "subscribers": 1, "groups": 1}
        mosq_broker.publish("a/b", qos=1)                   # over the same connection, before and after
        assert mosq_broker.explain("b")["filters"] == []


@pytest.mark.parametrize("topic", ["", "a/#", "a\0b", "a\x01", "/" * 201, "x" * 65536])
def test_explain_of_an_invalid_topic(topic, mosq_broker):
    with pytest.raises(ValueError):
        mosq_broker.explain(topic)
    assert mosq_broker.explain("a")["totals"]["filters"] == 0


def test_explain_of_a_stopped_broker():
    broker = mosq.Broker()
    with pytest.raises(mosq.BrokerStopped):
        broker.explain("a")
    with broker:
        broker.explain("a")
    with pytest.raises(mosq.BrokerStopped):
        broker.explain("a")


@pytest.mark.mosq("acl_file /dev/null\n", max_qos=0)
def test_explain_ignores_the_acl(mosq_broker):
    assert mosq_broker.explain("a")["filters"] == []


def test_an_embedded_broker_stores_retained_messages(tmp_path):
    options = {"persistence": True, "persistence_location": f"{tmp_path}/"}
    with mosq.Broker(**options) as broker:
        broker.publish("kept", b"x", qos=1, retain=True)
    with mosq.Broker(**options) as broker, broker.subscribe("kept") as messages:
        assert next(messages).payload == b"x"


@pytest.mark.one_process("looks at objects in the program, which has none of the workers")
def test_an_exception_in_the_control_thread_does_not_end_it(monkeypatch, caplog):
    """Test here a filter of the program's logging, and a function that answers control topics."""
    hit = threading.Event()

    class Breaks(logging.Filter):
        def filter(self, record):
            hit.set()
            raise KeyError(record.getMessage())

    monkeypatch.setattr(logging, "raiseExceptions", False)
    logger, breaks = logging.getLogger("mosq"), Breaks()
    with caplog.at_level(logging.INFO, "mosq"), mosq.Broker(enable_control_api=True) as broker:
        logger.addFilter(breaks)
        wire = Wire(broker.port)
        wire.send(Connect("c"), Subscribe(1, (("$CONTROL/broker/v1/response", 0),)))
        assert isinstance(wire.read_packet(), Connack)
        assert isinstance(wire.read_packet(), Suback)
        assert hit.wait(10)
        logger.removeFilter(breaks)
        topics = broker._running._topics
        take = topics.take

        def breaks_once(requests):
            if any(request.kind == "control" for request in requests):
                topics.take = take
                raise MemoryError
            return take(requests)

        topics.take = breaks_once
        ask = Publish("$CONTROL/broker/v1", b"1", 1, 1)
        wire.send(ask)
        assert wire.read_packet() == Puback(1)
        deadline = time.monotonic() + 10
        while "Requests on $CONTROL/ topics could not be answered: MemoryError" not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        wire.send(ask)
        assert {type(wire.read_packet()) for _ in range(2)} == {Puback, Publish}
        wire.close()
