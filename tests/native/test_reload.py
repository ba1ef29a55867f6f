"""The start and the reload of native plugins: requests that wait for one are asked again under the configuration in force, and one that is
initialized for long delays no client."""

import re
import signal
import subprocess
import threading
import time

import pytest

from mosq.auth.runner import Runner, connection_of
from mosq.config.parser import load_config
from mosq.records import ClientNotice
from mosq.server.access import Access
from mosq.server.signals import Reading, Stopped
from tests.harness.broker import Broker, command
from tests.harness.packets import Connect, Puback, Publish, Suback, Subscribe
from tests.harness.wire import Wire
from tests.native.test_events import WAIT_S, closed_connections, config, connected, logged, refused   # noqa: F401

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
    with Broker(config(compiled("events"), events, "own", "max_queued_messages 100000\nmax_inflight_messages 0\nauth_timeout 60\n")) as broker:
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


def births(broker, n):
    """Return the retained messages that the first client gets."""
    wire = connected(broker, "first")
    wire.send(Subscribe(1, (("birth/#", 0),)))
    wire.expect_packet(Suback(1, (0,)))
    return {wire.read_packet().topic for _ in range(n)} == {f"birth/{i}" for i in range(n)}


@pytest.mark.parametrize("thread", ("own", "loop"))
def test_messages_of_an_initialization_are_there_for_the_first_client(compiled, thread):
    with Broker(config(compiled("events"), "none", thread, "plugin_opt_birth 500\nlog_type error\nlog_type warning\n")) as broker:
        assert births(broker, 500)
        assert "Warning" not in broker.log()


def test_messages_of_an_initialization_at_a_reload(compiled):
    with Broker(config(compiled("events"), "none")) as broker:
        reload(broker, broker.config.read_text() + f"plugin {compiled('events', OTHER=1)}\nplugin_opt_birth 500\n")
        assert births(broker, 500)


def test_a_changed_thread_needs_a_restart(compiled):
    with Broker(config(compiled("events"), "basic", "own", "plugin_opt_gate {dir}/go\n")) as broker:
        text = broker.config.read_text()
        reload(broker, text.replace("plugin_thread own", "plugin_thread loop"))
        logged(broker, "Warning: 'plugin_thread' has changed; the change takes effect at the next start.")
        slow, other = connected(broker, "one"), connected(broker, "other")
        slow.close()
        wire = Wire(broker.port, 5)
        wire.send(Connect("slow", username="gated"))
        logged(broker, "busy with gate/login")
        other.expect_nothing()                  # it answers a PINGREQ: the plugin is still called in its own thread
        (broker.dir / "go").touch()
        assert wire.read_packet().rc == 0
        wire.close()
        assert broker.stop() == 0
        assert broker.log().count("Loading plugin: ") == 1 and broker.log().count("cleaned up") == 1


@pytest.mark.parametrize(("more", "event", "named"), [
    ("plugin_opt_block /nowhere\n", "init", "initialization"),
    ("plugin_opt_events restore\npersistence true\npersistence_location {dir}/\n", "restore", "persist-restore")])
def test_sigterm_ends_a_start_that_waits_for_a_plugin(compiled, tmp_path, more, event, named):
    path, log = tmp_path / "mosq.conf", tmp_path / "log"
    path.write_text(f"user root\nlistener 0 {tmp_path}/socket\nplugin {compiled('events')}\n{more.replace('{dir}', str(tmp_path))}")
    with log.open("wb") as out:
        process = subprocess.Popen([*command(), "-c", str(path)], stdout=out, stderr=out)
    give_up = time.monotonic() + WAIT_S
    while f"blocks in {event}" not in log.read_text():
        assert time.monotonic() < give_up and process.poll() is None, log.read_text()
        time.sleep(0.005)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_S) == 0 and time.monotonic() - began < 2
    assert f"Warning: Plugin events.so has not ended its {named}; the broker does not wait for it." in log.read_text()


@pytest.mark.parametrize("stop", (True, False))
def test_a_reload_serves_clients_while_a_plugin_is_initialized(compiled, stop):
    from mosq.auth.hashes import PBKDF2, new_hash

    passwords = f"defer:{new_hash(PBKDF2, b'secret', 2)}\n"
    with Broker(config(compiled("events"), "basic", "own", "password_file {dir}/passwd\n"), {"passwd": passwords}) as broker:
        text = broker.config.read_text()
        broker.config.write_text(text + f"plugin {compiled('events', OTHER=1)}\nplugin_opt_block {broker.dir}/go\nplugin_opt_info new\n")
        broker.send_signal(signal.SIGHUP)
        logged(broker, "The initialization of plugin events-1.so lasts. Clients are served under the old configuration until it ends.")
        began = time.monotonic()
        connected(broker, "one", "ann").close()                         # decided by the other plugin
        connected(broker, "two", "defer", b"secret").close()            # by the password file
        assert refused(broker, "deny") == 0x87
        assert time.monotonic() - began < 2
        if stop:
            assert broker.stop() == 0
            assert "Plugin events-1.so has not ended its initialization; the broker does not wait for it." in broker.log()
            assert broker.log().count("cleaned up") == 1, broker.log()
        else:
            (broker.dir / "go").touch()
            logged(broker, "Plugin new version 1.2 loaded.")            # the shim's line: the reload goes on behind it
            reload(broker, broker.config.read_text())
            assert broker.stop() == 0
            assert broker.log().count("cleaned up") == 2, broker.log()  # the new one was in force


def test_a_stop_cleans_up_a_plugin_that_has_just_been_initialized(compiled, tmp_path):
    path, lines, reading = tmp_path / "mosq.conf", [], Reading()
    path.write_text(f"listener 1883\nplugin {compiled('events')}\n")

    def stopped(done, name):
        assert done.wait(WAIT_S)
        reading.wanted = True           # SIGTERM comes before the main thread sees that the plugin is initialized
        raise Stopped

    with pytest.raises(Stopped):
        Access(load_config(str(path)), lambda kind, text: lines.append(text), lambda answers: None, wait=stopped, reading=reading)
    assert [line for line in lines if "cleaned up" in line or "Warning" in line] == ["cleaned up 1"]


def test_the_first_plugin_of_a_broker_comes_with_a_reload(compiled):
    with Broker("") as broker:
        broker.config.write_text(broker.config.read_text() + f"plugin {compiled('events')}\nplugin_opt_block {broker.dir}/go\n"
                                 "plugin_opt_events in\nplugin_opt_birth 3\n")
        broker.send_signal(signal.SIGHUP)
        logged(broker, "The initialization of plugin events.so lasts.")
        connected(broker, "one").close()
        (broker.dir / "go").touch()
        logged(broker, "'message-in' events")
        assert births(broker, 3)
        wire = connected(broker, "two")
        wire.send(Subscribe(1, (("in/#", 0),)), Publish("in/change", b"x", 1, 1))
        wire.expect_packet(Suback(1, (0,)))
        assert {wire.read_packet() for _ in range(2)} >= {Puback(1, 0)}


@pytest.mark.parametrize("thread", ("own", "loop"))
def test_a_refused_login_names_the_plugin_and_its_lines_come_at_once(compiled, thread):
    with Broker(config(compiled("events"), "basic,acl", thread, "plugin_opt_gate {dir}/go\n")) as broker:
        assert refused(broker, "deny") == 0x87
        logged(broker, "refused: the plugin events.so refuses the login.")
        wire = connected(broker, "c", "ann")
        wire.send(Publish("gate/a", b"x", 1, 1))
        logged(broker, "busy with gate/a")                              # before the end of its call
        (broker.dir / "go").touch()
        assert wire.read_packet().mid == 1


class Recorder:
    """A native plugin without a library. Its calls wait for `go`."""

    raw, methods, offers, concurrent, topics_in, topics_out = True, frozenset(("connected", "disconnected")), frozenset(), False, (), ()

    def __init__(self):
        self.begun, self.go, self.seen, self.known = threading.Event(), threading.Event(), [], set()

    def connected(self, notice):
        self.begun.set()
        self.go.wait(WAIT_S)
        self.known.add(connection_of(notice))

    def disconnected(self, notice):
        self.seen.append(connection_of(notice))
        self.forget(connection_of(notice))

    def knows(self, connection):
        return connection in self.known

    def forget(self, connection):
        self.known.discard(connection)


def notice(event, connection):
    return ClientNotice(0, event, "c", None, "", connection.to_bytes(8, "little") + bytes(16))


def test_the_end_of_a_client_that_a_native_plugin_knows_always_finds_room(monkeypatch):
    monkeypatch.setattr("mosq.auth.runner.WAITING_MAX", 20)
    plugin, failures = Recorder(), []
    runner = Runner("p", "p.so", plugin, {}, False, lambda: None, failures.append)
    plugin.known = set(range(1000, 1100))
    runner.event("connected", notice("connected", 1))
    assert plugin.begun.wait(WAIT_S)                        # the first call no longer waits, and 20 others find room
    for connection in range(2, 100):
        runner.event("connected", notice("connected", connection))
    for connection in (*range(1, 100), *range(1000, 1200)):
        runner.event("disconnected", notice("disconnected", connection))
    assert len(failures) == 2                               # one line for each kind of event
    plugin.go.set()
    while runner._pool.waiting():
        time.sleep(0.001)
    runner.close(WAIT_S)
    assert plugin.seen == [*range(1, 22), *range(1000, 1100)] and not plugin.known


def test_a_native_plugin_that_ends_leaves_no_client_behind():
    plugin = Recorder()
    runner = Runner("p", "p.so", plugin, {}, False, lambda: None, lambda text: None)
    plugin.known = {7, 8}
    runner.event("connected", notice("connected", 1))       # its thread waits
    runner.event("disconnected", notice("disconnected", 7))
    runner.close(0)
    runner.event("disconnected", notice("disconnected", 8))
    assert not plugin.known and not plugin.seen
    plugin.go.set()
