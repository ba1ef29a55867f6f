"""A reload with native plugins: what waits for one is asked again under the configuration in force."""

import re
import signal
import threading

import pytest

from tests.harness.broker import Broker
from tests.harness.packets import Connect, Puback, Publish, Suback, Subscribe
from tests.harness.wire import Wire
from tests.native.test_events import closed_connections, config, connected, logged   # noqa: F401

PUBLISHERS, MESSAGES, WINDOW, RELOADS = 10, 300, 10, 10
ACCEPTED = (0, 0x10)            # with and without a subscriber


def reload(broker, text):
    """Replace the configuration. A client that connects after the signal waits until the reload is over."""
    broker.config.write_text(text)
    broker.send_signal(signal.SIGHUP)
    connected(broker, "after").close()


def without_plugin(text):
    return re.sub(r"(?m)^(plugin|plugin_.*) .*\n", "", text)


def received(wire, payloads):
    """Take messages until the one with the payload `end`."""
    while (message := wire.read_packet()).payload != b"end":
        payloads.add(message.payload)
        if message.qos:
            wire.send(Puback(message.mid))


def published(broker, name, acknowledged, denied):
    """Send messages, some of which the plugin drops, with several of them unacknowledged."""
    wire = Wire(broker.port, 5)
    wire.send(Connect(name))
    wire.read_packet()
    payloads = {}
    for i in range(MESSAGES + WINDOW):
        if i < MESSAGES:
            drop = i % 30 == 7
            payloads[i + 1] = f"{'drop' if drop else 'keep'} {name} {i}".encode()
            wire.send(Publish("slow/drop" if drop else "slow/keep", payloads[i + 1], 1, i + 1))
        if i >= WINDOW:
            ack = wire.read_packet()
            (acknowledged if ack.rc in ACCEPTED else denied).add(payloads[ack.mid])
    wire.close()


@pytest.mark.parametrize(("events", "then"), [
    ("in", "removed"), ("in", "replaced"), ("in", "kept"), ("acl", "removed"), ("out", "replaced")])
def test_a_reload_under_load_loses_no_acknowledged_message(compiled, events, then):
    with Broker(config(compiled("events"), events, "own", "max_queued_messages 100000\nmax_inflight_messages 0\n")) as broker:
        text = broker.config.read_text()
        other = {"removed": without_plugin(text), "replaced": text.replace("/events.so", "/events-1.so"), "kept": text}[then]
        compiled("events", OTHER=1)
        subscriber = connected(broker, "subscriber")
        subscriber.send(Subscribe(1, (("slow/#", 1), ("end", 1))))
        subscriber.read_packet()
        got, acknowledged, denied = set(), set(), set()
        reader = threading.Thread(target=received, args=(subscriber, got))
        publishers = [threading.Thread(target=published, args=(broker, f"p{i}", acknowledged, denied)) for i in range(PUBLISHERS)]
        for thread in (reader, *publishers):
            thread.start()
        for i in range(RELOADS):
            reload(broker, text if i % 2 else other)
        for thread in publishers:
            thread.join()
        connected(broker, "last").send(Publish("end", b"end", 1, 1))
        reader.join()
        assert len(acknowledged) == PUBLISHERS * MESSAGES and not denied
        lost = {payload for payload in acknowledged - got if not payload.startswith(b"drop")}
        assert not lost
        if then != "removed" and events != "acl":
            assert not [payload for payload in got if payload.startswith(b"drop")]


@pytest.mark.parametrize("events", ("in", "acl", "out", "subscribe"))
def test_what_waits_for_a_plugin_that_a_reload_removes(compiled, events):
    with Broker(config(compiled("events"), events, "own")) as broker:
        subscriber = connected(broker, "subscriber")
        subscriber.send(Subscribe(1, (("q/#", 0),)))
        subscriber.expect_packet(Suback(1, (0,)))
        holder, waiting, also = connected(broker, "holder"), connected(broker, "waiting"), connected(broker, "also")
        holder.send(Subscribe(1, (("hold/a", 0),)) if events == "subscribe" else Publish("hold/a", b"x", 1, 1))
        if events == "out":
            subscriber.send(Subscribe(2, (("hold/#", 0),)))
            subscriber.expect_packet(Suback(2, (0,)))
            holder.send(Publish("hold/b", b"x", 1, 2))
        logged(broker, "busy with hold/")
        waiting.send(Publish("q/a", b"a", 1, 1))
        also.send(Subscribe(1, (("q/a", 0),)))
        reload(broker, without_plugin(broker.config.read_text()))
        assert waiting.read_packet().rc in ACCEPTED
        also.expect_packet(Suback(1, (0,)))
        messages = [subscriber.read_packet() for _ in range(2 if events == "out" else 1)]
        assert messages[-1].payload == b"a"


def test_what_waits_is_decided_by_the_plugin_and_the_rules_of_the_new_configuration(compiled):
    other = compiled("events", OTHER=1)
    with Broker(config(compiled("events"), "in", "own"), {"acl": "topic write hold/#\ntopic write in/#\ntopic read #\n"}) as broker:
        subscriber = connected(broker, "subscriber")
        subscriber.send(Subscribe(1, (("in/#", 0), ("q/#", 0))))
        subscriber.read_packet()
        holder, dropped, changed, denied = (connected(broker, name) for name in ("holder", "dropped", "changed", "denied"))
        holder.send(Publish("hold/a", b"x", 1, 1))
        logged(broker, "busy with hold/a")
        dropped.send(Publish("in/drop", b"x", 1, 1))
        denied.send(Publish("q/a", b"x", 1, 1))
        changed.send(Publish("in/change", b"x", 1, 1))
        text = broker.config.read_text()
        reload(broker, re.sub(r"plugin /.*", f"plugin {other}", text) + f"acl_file {broker.dir}/acl\n")
        assert dropped.read_packet().rc in ACCEPTED and denied.read_packet().rc == 0x87, broker.log()
        assert subscriber.read_packet().payload == b"new"
        subscriber.expect_nothing()
