"""Persistence plugins: the events that report what the store has, restoring, and plugins that do it badly."""

import re
import shutil
import subprocess
import sys
import time

import pytest

from mosq.tools.db.copy_mark import WORTHLESS
from tests.durable.test_restart import Kept, subscribe
from tests.harness.effort import TIMEOUT_S as WAIT_S
from tests.harness.packets import Connect, Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Unsubscribe, Will

USER, EXPIRY, MESSAGE_EXPIRY, SUBSCRIPTION_ID, WILL_DELAY = 38, 17, 2, 11, 24
NEVER = 0xFFFFFFFF
# names of the fields of the plugin's lines
CLIENT = ("id", "user", "expiry", "ends", "delay", "due", "port", "max_qos", "retain_available")
BASE = ("store", "expires", "topic", "payload", "source", "source_pid", "qos", "retain", "key", "value")
MESSAGE = ("client", "number", "store", "sub_id", "pid", "qos", "retain", "dup", "direction", "state")
FIELDS = {"client": CLIENT, "sub": ("client", "filter", "options", "sub_id"), "base": BASE, "msg": MESSAGE, "retain": ("topic", "store"),
          "will": ("client", "topic", "payload", "qos", "retain")}
WAIT_PUBACK, WAIT_PUBREC, WAIT_PUBREL, WAIT_PUBCOMP, QUEUED = "3", "5", "7", "9", "11"


class Keeping(Kept):
    """A broker with the plugin `keeper`."""

    def __init__(self, library, more="", store="persistence true\npersistence_location {dir}/\n"):
        super().__init__(f"listener {{port}} 127.0.0.1\nallow_anonymous true\n{store}plugin {library}\nplugin_opt_file {{dir}}/kept\n{more}")
        self.seen = 0

    def lines(self):
        path = self.dir / "kept"
        return [line.split("|") for line in path.read_text(errors="replace").splitlines()] if path.exists() else []

    def event(self, name, **wanted):
        """Wait for the next event with this name and these fields, and return its fields."""
        give_up = time.monotonic() + WAIT_S
        while True:
            lines = self.lines()
            for line in lines[self.seen:]:
                fields = dict(zip(FIELDS[name.split("-")[0]], line[1:], strict=True)) if line[0] == name else {}
                if fields and all(fields[key] == value for key, value in wanted.items()):
                    return fields
            assert time.monotonic() < give_up and self.alive(), (name, wanted, lines[self.seen:], self.log())
            time.sleep(0.02)

    def logged(self, text):
        give_up = time.monotonic() + WAIT_S
        while text not in self.log():
            assert time.monotonic() < give_up and self.alive(), self.log()
            time.sleep(0.02)

    def events_end(self):
        """Forget the events so far."""
        self.seen = len(self.lines())

    def without_store(self):
        """Remove everything that the broker itself has kept."""
        for path in self.dir.glob("mosquitto.db*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def left(wire):
    """Disconnect, and wait until the broker has closed the connection."""
    wire.send(Disconnect())
    wire.close()


def queued(broker, n=2, qos=2):
    """Leave n messages for the session `sub`."""
    sub = broker.client("sub")
    subscribe(sub, ("q/#", qos))
    left(sub)
    pub = broker.client("pub", clean=True)
    for i in range(n):
        pub.send(Publish(f"q/{i}", b"m%d" % i, qos=1, mid=i + 1, props=((USER, ("k", "v")),)))
        assert pub.read_packet() == Puback(i + 1)
    pub.close()


@pytest.mark.parametrize("thread", ["own", "loop"])
def test_each_event_of_persistence(compiled, thread):
    with Keeping(compiled("keeper"), f"plugin_thread {thread}\n") as broker:
        sub = broker.client("sub", username="ann")
        subscribe(sub, ("q/#", 2), ("r", 1), props=((SUBSCRIPTION_ID, 7),))
        client = broker.event("client-add", id="sub")
        assert client == {"id": "sub", "user": "ann", "expiry": client["expiry"], "ends": "0", "delay": "0", "due": "0", "port": "1", "max_qos": "2",
                          "retain_available": "1"}
        assert broker.event("sub-add", filter="q/#") == {"client": "sub", "filter": "q/#", "options": "2", "sub_id": "7"}
        assert broker.event("sub-add", filter="r")["options"] == "1"
        sub.send(Unsubscribe(2, ("r",)))
        broker.event("sub-delete", client="sub", filter="r")
        sub.read_packet()
        left(sub)
        ends = broker.event("client-update", id="sub")["ends"]
        assert int(ends) > time.time()

        pub = broker.client("pub", clean=False)
        pub.send(Publish("q/1", b"one", qos=1, mid=1, props=((USER, ("k", "v")), (MESSAGE_EXPIRY, 1000))))
        assert pub.read_packet() == Puback(1)
        base = broker.event("base-add", payload="one")
        assert base == {"store": base["store"], "expires": base["expires"], "topic": "q/1", "payload": "one", "source": "pub", "source_pid": "1", "qos": "1",
                        "retain": "0", "key": "k", "value": "v"}
        assert 900 < int(base["expires"]) - time.time() < 1100
        added = broker.event("msg-add", store=base["store"])
        assert added == {"client": "sub", "number": "1", "store": base["store"], "sub_id": "7", "pid": "1", "qos": "1", "retain": "0", "dup": "0",
                         "direction": "1", "state": QUEUED}
        pub.send(Publish("q/2", b"two", qos=2, mid=2))
        pub.read_packet()
        inbound = broker.event("msg-add", direction="0")
        assert (inbound["client"], inbound["pid"], inbound["qos"], inbound["state"]) == ("pub", "2", "2", WAIT_PUBREL)
        source = broker.event("base-add", store=inbound["store"])
        assert (source["payload"], source["source"], source["source_pid"]) == ("two", "pub", "2")
        pub.send(Pubrel(2))
        pub.read_packet()
        broker.event("msg-delete", direction="0", pid="2")
        broker.event("base-delete", store=inbound["store"])
        assert broker.event("msg-add", pid="2", direction="1")["qos"] == "2"

        sub = broker.client("sub", username="ann", session=True)
        one, two = sub.read_packet(), sub.read_packet()
        broker.event("msg-update", pid="1", state=WAIT_PUBACK, dup="1")
        broker.event("msg-update", pid="2", state=WAIT_PUBREC)
        sub.send(Pubrec(two.mid))
        sub.read_packet()
        broker.event("msg-update", pid="2", state=WAIT_PUBCOMP)
        sub.send(Puback(one.mid), Pubcomp(two.mid))
        broker.event("msg-delete", pid="1")
        broker.event("base-delete", store=base["store"])
        broker.event("msg-delete", pid="2", direction="1")

        pub.send(Publish("kept", b"old", qos=1, mid=3, retain=True))
        pub.read_packet()
        old = broker.event("base-add", payload="old")
        assert old["retain"] == "1" and broker.event("retain-set", topic="kept")["store"] == old["store"]
        pub.send(Publish("kept", b"new", qos=1, mid=4, retain=True))
        pub.read_packet()
        broker.event("retain-set", topic="kept", store=broker.event("base-add", payload="new")["store"])
        broker.event("base-delete", store=old["store"])
        pub.send(Publish("kept", b"", qos=1, mid=5, retain=True))
        pub.read_packet()
        broker.event("retain-delete", topic="kept")

        broker.client("alive", will=Will("gone", b"bye", 1, True, ((WILL_DELAY, 30),)))
        assert broker.event("will-add", client="alive") == {"client": "alive", "topic": "gone", "payload": "bye", "qos": "1", "retain": "1"}
        assert broker.event("client-add", id="alive")["delay"] == "30"
        short = broker.wire()
        short.send(Connect("short", will=Will("gone", b"short", 0, False)))
        broker.event("will-add", client="short")
        left(short)
        broker.event("will-delete", client="short")
        broker.events_end()
        broker.client("sub", clean=True, username="ann")
        broker.event("client-delete", id="sub")
        broker.event("client-add", id="sub")


def received(broker, n, **more):
    """Return the n messages of the session `sub`."""
    sub = broker.client("sub", session=True, **more)
    got = [sub.read_packet() for _ in range(n)]
    return [(one.topic, one.payload, one.qos) for one in got], sub


def test_a_broker_without_a_store_begins_with_what_the_plugin_has(compiled):
    with Keeping(compiled("keeper")) as broker:
        queued(broker, 3)
        pub = broker.client("pub", clean=True)
        pub.send(Publish("kept", b"r", qos=1, mid=9, retain=True))
        pub.read_packet()
        broker.stop()
        before = broker.lines()
        broker.without_store()
        broker.start()
        assert "Plugin keeper.so has 2 sessions and 1 retained messages." in broker.log()
        assert "2 sessions, 1 subscriptions, 3 deliveries and 1 retained messages taken over" in broker.log()
        got, sub = received(broker, 3)
        assert got == [(f"q/{i}", b"m%d" % i, 1) for i in range(3)]
        assert broker.lines()[:len(before)] == before
        subscribe(sub, ("kept", 1))
        assert sub.read_packet().payload == b"r"
        broker.event("msg-add", client="sub", number="4")
        broker.stop()           # the plugin has got all events
        added = [line for line in broker.lines()[len(before):] if line[0] in ("base-add", "msg-add", "sub-add", "client-add", "retain-set")]
        # only what is new: the port of the client, the subscription, and the copy of the retained message
        assert [(line[0], line[3] if line[0] == "base-add" else line[1]) for line in added] == [
            ("client-add", "sub"), ("sub-add", "sub"), ("base-add", "kept"), ("msg-add", "sub")]


def test_a_restart_reports_nothing_that_the_plugin_has(compiled):
    with Keeping(compiled("keeper")) as broker:
        queued(broker)
        broker.stop()
        before = broker.lines()
        assert {"client-add", "sub-add", "base-add", "msg-add"} <= {line[0] for line in before}
        broker.start()
        broker.client("other", clean=False)
        broker.event("client-add", id="other")
        broker.stop()           # the plugin has got all events
        # a start may compute the end of a session again, which changes it by a second, and the new client ends with the broker; this plugin
        # does not keep the port
        news = [line[:2] for line in broker.lines()[len(before):] if line[0] != "client-update" and line[:2] not in (["client-add", "sub"], ["client-add", "pub"])]
        assert news == [["client-add", "other"]]


def test_changes_that_a_kill_has_cut_off_come_at_the_next_start(compiled):
    with Keeping(compiled("keeper"), "plugin_opt_mode slow\n") as broker:
        queued(broker, 5)
        broker.kill()
        for i in range(5):
            base = broker.event("base-add", payload=f"m{i}", source="pub", source_pid=str(i + 1))
            broker.event("msg-add", client="sub", store=base["store"])
        assert len([line for line in broker.lines() if line[0] == "msg-add"]) == 5
        assert received(broker, 5)[0] == [(f"q/{i}", b"m%d" % i, 1) for i in range(5)]


def test_a_slow_plugin_delays_no_client(compiled):
    with Keeping(compiled("keeper"), "plugin_opt_mode slow\n") as broker:
        began = time.monotonic()
        queued(broker, 200)
        assert time.monotonic() - began < 200 * 0.3 / 2
        broker.stop()
        assert "has not got all changes; it gets them at the next start" in broker.log()


def test_a_plugin_that_returns_errors(compiled):
    with Keeping(compiled("keeper"), "plugin_opt_mode errors\n") as broker:
        assert "returned 13 for 'persist-restore'" in broker.log()
        queued(broker)
        broker.event("msg-add", client="sub", pid="2")
        broker.logged("Plugin keeper.so failed in event 15 of persistence: it returned 13")
        assert received(broker, 2)[0] == [("q/0", b"m0", 1), ("q/1", b"m1", 1)]


def test_a_plugin_that_restores_nonsense(compiled):
    with Keeping(compiled("keeper"), "plugin_opt_mode nonsense\n") as broker:
        broker.logged("restored 0 lines")
        results = [line.rpartition(": ")[2] for line in broker.log().splitlines() if "nonsense " in line]
        assert results == ["3", "3", "3", "0", "3", "0", "6", "0", "3", "3", "0", "6", "3", "3", "3", "3"]
        assert "1 sessions, 0 subscriptions, 0 deliveries and 0 retained messages taken over" in broker.log()
        assert "a session was not taken (client 'good'): it is there already, or not valid" in broker.log()
        assert "a subscription was not taken (client 'nobody', topic 'a'): its client or stored message is not there" in broker.log()
        broker.client("good", session=True)
        broker.event("base-delete", store=str(2**64 - 1))


def edited(broker, old, new):
    """Change what the plugin has, as another broker does that runs with it."""
    path = broker.dir / "kept"
    path.write_text(path.read_text().replace(old, new))


def with_content(broker, *payloads):
    """Check that the session `sub` gets these messages."""
    assert [payload for _, payload, _ in received(broker, len(payloads))[0]] == list(payloads)


def refused(broker):
    """Start a broker that refuses; return its two commands as arguments of `mosq`."""
    with pytest.raises(RuntimeError, match="cannot be decided which of the two is newer"):
        broker.start()
    commands = re.findall(r"run: mosq (db prefer (?:plugin|store) \S+)", broker.log().splitlines()[-1])
    assert len(commands) == 2
    return {command.split()[2]: command.split() for command in commands}


def run_mosq(*arguments):
    return subprocess.run([sys.executable, "-m", "mosq", *arguments], check=True, capture_output=True, text=True, timeout=60)


ALONE = "persistence_location {dir}/\n"


def test_a_plugin_without_persistence_has_a_store_only_while_the_broker_runs(compiled):
    with Keeping(compiled("keeper"), store=ALONE) as broker:
        queued(broker)
        assert (broker.dir / "mosquitto.db.store").is_dir()
        broker.stop()
        assert not (broker.dir / "mosquitto.db.store").exists()
        edited(broker, "|m1|", "|changed|")
        broker.start()
        with_content(broker, b"m0", b"changed")
        broker.stop()
        (broker.dir / "kept").unlink()
        broker.start()
        broker.client("sub", session=False)


def test_a_killed_broker_with_a_plugin_alone_loses_nothing(compiled):
    with Keeping(compiled("keeper"), "plugin_opt_mode slow\n", store=ALONE) as broker:
        queued(broker, 4)
        for kills in range(3):
            if kills:
                broker.event("msg-add", pid=str(kills))
            broker.kill()
        with_content(broker, *(b"m%d" % i for i in range(4)))
        assert "plugin." not in " ".join(path.name for path in (broker.dir / "mosquitto.db.store").iterdir())


def test_what_another_program_has_written_after_a_clean_end_counts(compiled):
    with Keeping(compiled("keeper")) as broker:
        queued(broker)
        broker.stop()
        broker.start()          # the plugin has restored what it had got
        broker.stop()
        edited(broker, "|m1|", "|newer|")
        broker.start()
        assert "was written by another program after mosq, so its content counts. The old store is now in" in broker.log()
        with_content(broker, b"m0", b"newer")
        assert list((broker.dir / "mosquitto.db.store").glob("replaced.*"))


@pytest.mark.parametrize("wanted", ["store", "plugin"])
def test_what_another_program_has_written_after_a_kill_is_a_question(compiled, wanted):
    with Keeping(compiled("keeper")) as broker:
        queued(broker)
        broker.event("msg-add", pid="2")
        broker.die()
        edited(broker, "|m1|", "|newer|")
        before = broker.lines()
        commands = refused(broker)
        assert broker.lines() == before
        assert f"The {wanted} counts at the next start" in run_mosq(*commands[wanted]).stdout
        broker.start()
        with_content(broker, b"m0", b"newer" if wanted == "plugin" else b"m1")
        assert list((broker.dir / "mosquitto.db.store").glob("replaced.*" if wanted == "plugin" else "plugin.*/segment.*"))
        broker.kill()           # the decision was for one start


def test_a_store_that_the_plugin_was_never_a_copy_of(compiled):
    with Keeping(compiled("keeper")) as broker:
        queued(broker)
        broker.stop()
        next((broker.dir / "mosquitto.db.store").glob("copy.*")).unlink()
        run_mosq(*refused(broker)["store"])
        broker.start()
        with_content(broker, b"m0", b"m1")


def test_a_plugin_that_gives_back_other_content_follows_the_store_once_an_operator_says_so(compiled):
    with Keeping(compiled("keeper"), "plugin_opt_mode lossy\n") as broker:
        queued(broker)
        broker.stop()
        run_mosq(*refused(broker)["store"])
        for _ in range(2):
            broker.start()
            broker.stop()
        broker.start()
        with_content(broker, b"m0", b"m1")


def test_after_failed_events_the_store_counts_and_the_content_is_set_aside(compiled):
    with Keeping(compiled("keeper"), "plugin_opt_mode errors\n") as broker:
        queued(broker)
        broker.event("msg-add", pid="2")
        broker.stop()
        edited(broker, "|m1|", "|other|")
        broker.start()
        with_content(broker, b"m0", b"m1")
        assert "had another content than the store" in broker.log()


def test_a_crash_while_a_store_is_removed(compiled):
    with Keeping(compiled("keeper"), store=ALONE) as broker:
        queued(broker)
        broker.event("msg-add", pid="2")
        broker.die()
        with next((broker.dir / "mosquitto.db.store").glob("copy.*")).open("r+b") as mark:
            mark.seek(12)
            mark.write(bytes((WORTHLESS, 0, 0, 0)))
        edited(broker, "|m1|", "|newer|")
        broker.start()
        with_content(broker, b"m0", b"newer")


def test_the_library_of_persist_sqlite_is_loaded_where_it_exists(compiled):
    library = compiled("keeper").parent / "mosquitto_persist_sqlite.so"
    shutil.copy(compiled("keeper"), library)
    with Keeping(library, "plugin_opt_db_file {dir}/its.sqlite3\n", store="") as broker:
        queued(broker)
        broker.event("msg-add", pid="2")
        assert (broker.dir / "its.sqlite3.store").is_dir()
        broker.stop()
        assert "its.sqlite3 has not got everything" in broker.log() and (broker.dir / "its.sqlite3.store").is_dir()
        broker.start()
        with_content(broker, b"m0", b"m1")


def test_functions_of_persistence_outside_of_a_restore(compiled):
    with Keeping(compiled("keeper"), "plugin_opt_mode late\n") as broker:
        broker.logged("late: 10")
        assert "mosquitto_persist_client_delete outside of 'persist-restore' events" in broker.log()


def test_a_broker_without_a_store_says_that_the_plugin_keeps_nothing(compiled):
    with Keeping(compiled("keeper"), store="durability none\n") as broker:
        assert "Plugin keeper.so keeps nothing, because this broker has no store" in broker.log()
        assert not broker.lines()


def test_a_reload_begins_and_ends_the_events(compiled):
    with Keeping(compiled("keeper"), "user root\n") as broker:      # so that modules can be loaded at the reload, wherever Python is
        with_plugin = broker.config.read_text()
        broker.config.write_text(with_plugin.replace("plugin", "#plugin"))
        broker.restart()
        queued(broker)
        assert not broker.lines()
        broker.config.write_text(with_plugin)
        broker.send_signal(1)
        base = broker.event("base-add", payload="m1")
        broker.event("msg-add", client="sub", store=base["store"])
        broker.config.write_text(with_plugin.replace("plugin", "#plugin"))
        broker.send_signal(1)
        broker.logged("Reloading config.")
        broker.client("later")
        broker.stop()
        assert not [line for line in broker.lines() if line[1] == "later"]
