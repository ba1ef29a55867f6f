"""Native plugins of a broker inside a program: threads and requests end with the broker."""

import threading

import pytest

import mosq
from mosq.auth.plugin import Plugin


class Closes(Plugin):
    closed = 0

    def close(self):
        Closes.closed += 1


def test_a_broker_with_a_plugin_that_wants_ticks_leaves_no_thread(compiled):
    threads = threading.enumerate()
    for _ in range(3):                      # the threads begin again with the next broker
        with mosq.Broker(plugin=str(compiled("events"))) as broker, broker.subscribe("made/#") as messages:
            begun = {thread.name.rpartition("-")[0] for thread in threading.enumerate()}
            assert {"mosq", "mosq-plugin-events.so"} <= begun
            broker.publish("made/x", b"1", qos=1)
            assert messages.get(5).payload == b"1"
        assert threading.enumerate() == threads


def test_a_broker_that_fails_at_its_second_plugin_has_ended_the_first(compiled):
    closed, threads = Closes.closed, threading.enumerate()
    config = f"listener 0 127.0.0.1\nplugin python:{__name__}:Closes\nplugin {compiled('events')}\nplugin /usr/lib/other.so\n"
    with pytest.raises(mosq.ConfigError, match="its library cannot be loaded"):
        mosq.Broker(config).start()
    assert (Closes.closed, threading.enumerate()) == (closed + 1, threads)
