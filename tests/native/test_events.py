"""Each event of a native plugin of interface version 5, in both kinds of threads, over a broker's port."""

import pwd
import re
import signal
import subprocess
import time

import pytest

from tests.harness.broker import Broker
from tests.harness.effort import TIMEOUT_S as WAIT_S
from tests.harness.packets import (
    Auth, Connack, Connect, Disconnect, Puback, Publish, Suback, Subscribe, Unsuback, Unsubscribe,
)
from tests.harness.wire import Wire

METHOD, DATA, USER = 21, 22, 38
THREADS = ("own", "loop")


def config(path, events, thread="own", more=""):
    return (f"listener {{port}} 127.0.0.1\nallow_anonymous true\nenable_control_api true\nplugin {path}\nplugin_opt_events {events}\n"
            f"plugin_thread {thread}\n{more}")


OPEN = []       # connections of the running test


@pytest.fixture(autouse=True)
def closed_connections():
    yield
    while OPEN:
        OPEN.pop().close()


def opened(broker, level):
    OPEN.append(Wire(broker.port, level))
    return OPEN[-1]


def logged(broker, text):
    """Wait for a line of the log."""
    give_up = time.monotonic() + WAIT_S
    while text not in broker.log():
        assert time.monotonic() < give_up and broker.alive(), broker.log()
        time.sleep(0.005)


def connected(broker, client_id="c", user=None, password=None, level=5, clean=True, **more):
    wire = opened(broker, level)
    wire.send(Connect(client_id, clean, username=user, password=password, **more))
    answer = wire.read_packet()
    assert answer.rc == 0, answer
    return wire


def refused(broker, user, level=5, client_id="c", password=None):
    wire = opened(broker, level)
    wire.send(Connect(client_id, username=user, password=password))
    code = wire.read_packet().rc
    wire.close()
    return code


@pytest.fixture(params=THREADS)
def thread(request):
    return request.param


def test_logins(compiled, thread):
    with Broker(config(compiled("events"), "basic,tick", thread)) as broker:
        connected(broker, "id-1", "ann", keepalive=42).close()
        logged(broker, "login id-1 as ann from 127.0.0.1 keepalive 42 version 5 clean 1 port 1 protocol 0")
        connected(broker, "id-2", level=4, clean=False).close()
        logged(broker, "login id-2 as - from 127.0.0.1 keepalive 60 version 4 clean 0 port 1 protocol 0")
        assert refused(broker, "deny") == 0x87
        assert refused(broker, "deny", 4) == 5
        assert refused(broker, "banned") == 138
        assert refused(broker, "defer") == 0x87
        connected(broker, "pw", "pw", b"a\0b").close()
        assert refused(broker, "pw", password=b"a\0c") == 0x87
        assert refused(broker, "late-no") == 0x87
        late = connected(broker, "late", "late")
        late.expect_nothing()
        connected(broker, "early", "early").expect_nothing()


def test_a_second_login_with_the_id_of_one_that_waits_is_refused(compiled, thread):
    with Broker(config(compiled("events"), "basic", thread)) as broker:
        first, second = opened(broker, 5), opened(broker, 5)
        first.send(Connect("same", username="hold"))
        logged(broker, "login same as hold")
        second.send(Connect("same", username="hold"))
        second.expect_closed()
        logged(broker, "Client same is refused: a plugin has not yet decided about another login with this client id.")
        connected(broker, "other", "ann")
        first.sock.setblocking(False)
        with pytest.raises(BlockingIOError):        # it still waits for its answer
            first.sock.recv(1)


@pytest.mark.parametrize("user", ("pw", "late-no"))
def test_refused_logins_cause_pauses(compiled, thread, user):
    with Broker(config(compiled("events"), "basic,tick", thread, "password_file {dir}/passwd\n"), {"passwd": ""}) as broker:
        connected(broker, "first", "ann").close()
        codes = [refused(broker, user, password=b"wrong")]
        while codes[-1] != 0x9F and len(codes) < 1000:      # the pause doubles with each failure, and is noticed a moment later
            codes.append(refused(broker, user, password=b"wrong"))
        assert set(codes) == {0x87, 0x9F} and len(codes) > 3
        connected(broker, "other", "ann").close()
        connected(broker, "third").close()
        assert refused(broker, "defer") == 0x87


def test_a_login_waits_for_the_end_of_its_pause(compiled, thread):
    with Broker(config(compiled("events"), "basic", thread)) as broker:
        for _ in range(3):
            refused(broker, "pw", password=b"wrong")
        give_up = time.monotonic() + WAIT_S
        while refused(broker, "pw", password=b"a\0b"):
            assert time.monotonic() < give_up
        connected(broker, "pw", "pw", b"a\0b").close()


def test_a_deferred_login_continues_with_the_password_file(compiled, thread, tmp_path):
    from mosq.auth.hashes import PBKDF2, new_hash

    passwords = f"defer:{new_hash(PBKDF2, b'secret', 2)}\n"
    with Broker(config(compiled("events"), "basic", thread, "password_file {dir}/passwd\n"), {"passwd": passwords}) as broker:
        connected(broker, user="defer", password=b"secret")
        assert refused(broker, "defer", password=b"wrong") == 0x87


def test_a_login_changes_the_user_name_and_the_client_id(compiled, thread):
    with Broker(config(compiled("events"), "basic,clients", thread)) as broker:
        watcher = connected(broker, "watcher")
        watcher.send(Subscribe(1, (("events", 0),)))
        while not isinstance(watcher.read_packet(), Suback):
            pass
        connected(broker, "renamed", "alias")
        connected(broker, "old-id", "ben")
        wanted = {b"connect renamed as ann reason 0 known 1", b"connect new-id as ben reason 0 known 1"}
        while wanted:
            packet = watcher.read_packet()
            if isinstance(packet, Publish):
                wanted.discard(packet.payload)


def test_access_to_topics_is_asked_for_each_message(compiled, thread):
    with Broker(config(compiled("events"), "acl", thread)) as broker:
        wire = connected(broker)
        wire.send(Subscribe(1, (("forbidden/a", 0), ("t/#", 1))))
        assert wire.read_packet().codes == (0x87, 1)
        for mid, (payload, code) in enumerate(((b"one", 0), (b"secret", 0x87), (b"two", 0), (b"hide", 0)), 1):
            wire.send(Publish("t/1", payload, 1, mid))
            packets = [wire.read_packet() for _ in range(2 if payload in (b"one", b"two") else 1)]
            assert [one.rc for one in packets if isinstance(one, Puback)] == [code]
            assert [one.payload for one in packets if isinstance(one, Publish)] == ([payload] if len(packets) == 2 else [])
            for one in packets:
                if isinstance(one, Publish):
                    wire.send(Puback(one.mid))
        wire.send(Publish("t/1", b"x", 1, 9, props=((USER, ("deny", "it")),)))
        assert wire.read_packet().rc == 0x87
        wire.send(Publish("forbidden/b", b"x", 1, 10))
        assert wire.read_packet().rc == 0x87
        wire.expect_nothing()


def test_extended_authentication(compiled, thread):
    with Broker(config(compiled("events"), "extended", thread)) as broker:
        wire = opened(broker, 5)
        wire.send(Connect("c", props=((METHOD, "mirror"), (DATA, b"abc"))))
        step = wire.read_packet()
        assert isinstance(step, Auth) and step.rc == 0x18 and (DATA, b"cba") in step.props
        wire.send(Auth(0x18, ((METHOD, "mirror"), (DATA, b"yes"))))
        assert wire.read_packet().rc == 0
        wire.send(Auth(0x19, ((METHOD, "mirror"), (DATA, b"12"))))
        assert (DATA, b"21") in wire.read_packet().props
        wire.send(Auth(0x18, ((METHOD, "mirror"), (DATA, b"yes"))))
        assert wire.read_packet().rc == 0
        for method, data, code in (("mirror", b"at once", 0), ("other", b"x", 0x8C)):
            wire = opened(broker, 5)
            wire.send(Connect("d", props=((METHOD, method), (DATA, data))))
            assert wire.read_packet().rc == code


def test_messages_are_changed_and_dropped(compiled, thread):
    with Broker(config(compiled("events"), "in,out", thread)) as broker:
        wire = connected(broker, "client")
        wire.send(Subscribe(1, (("#", 0),)))
        wire.expect_packet(Suback(1, (0,)))
        wire.send(Publish("in/change", b"old", props=((3, "text"),)))
        wire.expect_packet(Publish("in/changed", b"new", props=((USER, ("user", "")), (USER, ("key", "value")))))
        wire.send(Publish("in/drop", b"x"), Publish("out/drop", b"x"), Publish("out/change", b"xyz", props=((3, "text"),)))
        wire.expect_packet(Publish("out/change", b"cyz", props=((3, "text"),)))
        wire.send(Publish("in/same", b"same", props=((3, "text"),)))
        wire.expect_packet(Publish("in/same", b"same", props=((3, "text"),)))
        wire.send(Publish("in/strip", b"x", props=((3, "text"), (USER, ("a", "b")))))
        wire.expect_packet(Publish("in/strip", b"x"))
        wire.send(Publish("out/remove", b"x", props=((3, "text"), (USER, ("a", "b")))))
        wire.expect_packet(Publish("out/remove", b"x", props=((USER, ("a", "b")),)))
        wire.send(Publish("out/remove", b"x", props=((3, "text"),)))
        wire.expect_packet(Publish("out/remove", b"x"))
        wire.send(Publish("in/longer", b"four"))
        wire.expect_packet(Publish("in/longer", b"four"))
        wire.expect_nothing()


@pytest.mark.parametrize("events", ("subscribe", "subscribe,acl"))
def test_subscriptions_are_changed_and_denied(compiled, thread, events):
    with Broker(config(compiled("events"), events, thread)) as broker:
        wire = connected(broker)
        wire.send(Subscribe(1, (("sub/no", 0), ("sub/old", 1), ("sub/other", 1))))
        wire.expect_packet(Suback(1, (0x87, 1, 1)))
        wire.send(Publish("sub/new", b"x", 1, 1))
        got = {type(wire.read_packet()) for _ in range(2)}
        assert got == {Publish, Puback}
        wire.send(Publish("sub/old", b"x"))
        wire.expect_nothing()
        wire.send(Unsubscribe(2, ("sub/old", "sub/other", "sub/new")))
        wire.expect_packet(Unsuback(2, (0x11, 0, 0)))
        wire.send(Subscribe(3, (("sub/old", 1), ("sub/no", 0))))
        wire.expect_packet(Suback(3, (1, 0x87)))
        wire.send(Publish("sub/old", b"x"), Publish("sub/new", b"again"))
        wire.expect_packet(Publish("sub/new", b"again"))


def test_a_filter_that_becomes_no_utf_8_is_refused(compiled, thread):
    with Broker(config(compiled("events"), "subscribe", thread)) as broker:
        wire = connected(broker)
        wire.send(Subscribe(1, (("sub/bytes", 0), ("sub/other", 0))))
        wire.expect_packet(Suback(1, (0x87, 0)))
        wire.send(Publish("sub/\ufffd", b"x"), Publish("sub/other", b"x"))
        wire.expect_packet(Publish("sub/other", b"x"))


def test_a_changed_filter_keeps_its_group(compiled, thread):
    with Broker(config(compiled("events"), "subscribe", thread)) as broker:
        wires = [connected(broker, f"c{i}") for i in range(2)]
        for wire in wires:
            wire.send(Subscribe(1, (("$share/g/sub/old", 0),)))
            wire.expect_packet(Suback(1, (0,)))
        wires[0].send(*(Publish("sub/new", b"x", 1, mid) for mid in range(1, 11)))
        wires[1].send(Publish("end", b"x", 1, 1))
        packets = [wires[1].read_packet() for _ in range(6)] + [wires[0].read_packet() for _ in range(15)]
        assert sum(isinstance(one, Publish) for one in packets) == 10


def test_filters_are_asked_about_if_the_rules_decide_about_access(compiled, thread):
    files = {"acl": "topic readwrite defer/#\n"}
    with Broker(config(compiled("events"), "subscribe,acl", thread, "acl_file {dir}/acl\n"), files) as broker:
        wire = connected(broker)
        wire.send(Subscribe(1, (("defer/no", 0), ("defer/yes", 0))))
        wire.expect_packet(Suback(1, (0x87, 0)))


def test_a_plugin_that_ignores_counts_as_none(compiled, thread):
    with Broker(config(compiled("events"), "basic,acl", thread)) as broker:
        wire = connected(broker, user="ignore")
        assert refused(broker, "defer", client_id="d") == 0x87
        wire.send(Subscribe(1, (("ignore/#", 0), ("defer/#", 0))))
        assert wire.read_packet().codes == (0, 0x87)
        wire.send(Publish("defer/a", b"x", 1, 1))
        wire.expect_packet(Puback(1, 0x87))
        wire.send(Publish("ignore/a", b"x"))
        wire.expect_packet(Publish("ignore/a", b"x"))


def test_a_deferred_check_is_asked_once(compiled, thread):
    files = {"acl": "user ann\ntopic readwrite defer/#\n"}
    with Broker(config(compiled("events"), "acl", thread, "acl_file {dir}/acl\n"), files) as broker:
        wire = connected(broker, user="ann")
        wire.send(Publish("defer/a", b"x", 1, 1), Publish("defer/b", b"y" * 10000, 1, 2))
        wire.expect_packet(Puback(1, 0x10))
        wire.expect_packet(Puback(2, 0x10))
        logged(broker, "access 2 to defer/b as ann, 0 subscriptions: deferred")
        wire.send(Subscribe(3, (("defer/#", 0),)))
        assert wire.read_packet().codes == (0,)
        wire.send(Publish("defer/c", b"z", 0))
        wire.expect_packet(Publish("defer/c", b"z"))
        for line in ("2 to defer/a as ann, 0", "2 to defer/b as ann, 0", "4 to defer/# as ann, 0", "2 to defer/c as ann, 1", "1 to defer/c as ann, 1"):
            logged(broker, f"access {line} subscriptions: deferred")
        assert broker.log().count(": deferred") == 5


def test_a_payload_ends_with_a_zero(compiled, thread):
    with Broker(config(compiled("events"), "acl", thread)) as broker:
        wire = connected(broker)
        wire.send(Subscribe(1, (("text/#", 0),)))
        wire.read_packet()
        for n in (1, 100, 4090, 4096, 70000):
            wire.send(Publish("text/a", b"x" * n, props=((3, "text"),)))
            wire.expect_packet(Publish("text/a", b"x" * n, props=((3, "text"),)))


def test_a_message_with_an_invalid_topic_is_dropped(compiled, thread):
    with Broker(config(compiled("events"), "in", thread)) as broker:
        wire = connected(broker)
        wire.send(Publish("in/bad", b"x", 1, 1), Publish("in/same", b"x", 1, 2))
        assert [wire.read_packet().mid for _ in range(2)] == [1, 2]
        logged(broker, "events.so has dropped a message on in/bad in message-in: result 3, it gave the message an invalid topic or QoS.")


def test_properties_that_no_client_accepts_are_left_out(compiled, thread):
    with Broker(config(compiled("events"), "in", thread)) as broker:
        wire = connected(broker)
        wire.send(Subscribe(1, (("#", 0),)))
        wire.expect_packet(Suback(1, (0,)))
        wire.send(Publish("in/twice", b"x", props=((3, "first"),)))
        wire.expect_packet(Publish("in/twice", b"x", props=((3, "first"), (8, "answer"))))
        logged(broker, "Warning: Plugin events.so gave a message on in/twice properties that MQTT forbids in message-in; they are left out.")


def test_a_message_that_a_plugin_drops_is_logged_at_most_once_a_minute(compiled, thread):
    with Broker(config(compiled("events"), "in,out,tick", thread)) as broker:
        wire = connected(broker)
        wire.send(Subscribe(1, (("#", 0),)))
        wire.expect_packet(Suback(1, (0,)))
        wire.send(*[Publish("in/drop", b"x")] * 3, *[Publish("out/drop", b"x")] * 3, Publish("last", b"x"))
        wire.expect_packet(Publish("last", b"x"))
        for way in ("in", "out"):
            line = f"Plugin events.so has dropped a message on {way}/drop in message-{way}: result 12, Access denied by ACL."
            logged(broker, line)
            assert broker.log().count(line) == 1


def test_a_plugin_that_sets_names_without_an_end_is_refused(compiled, thread):
    with Broker(config(compiled("events"), "basic", thread)) as broker:
        assert refused(broker, "many") == 138
        logged(broker, "Warning: A plugin has changed the names of a client 100 times within 30 s, which is refused.")


def test_a_call_that_never_returns_delays_only_its_client(compiled):
    with Broker(config(compiled("events"), "basic", "own", "auth_timeout 1\n")) as broker:
        other = connected(broker, "other")
        stuck = opened(broker, 5)
        stuck.send(Connect("stuck", username="block"))
        other.send(Subscribe(1, (("a", 0),)))
        other.expect_packet(Suback(1, (0,)))
        assert stuck.read_packet().rc >= 0x80
        other.send(Publish("a", b"x"))
        other.expect_packet(Publish("a", b"x"))
        broker.process.kill()           # it waits for the call at its end


def test_events_of_clients(compiled, thread):
    with Broker(config(compiled("events"), "clients,acl", thread)) as broker:
        watcher = connected(broker, "watcher")
        watcher.send(Subscribe(1, (("events", 0),)))
        while not isinstance(watcher.read_packet(), Suback):
            pass

        def event():
            while True:
                packet = watcher.read_packet()
                if isinstance(packet, Publish) and not packet.payload.startswith(b"connect watcher"):
                    return packet.payload.decode()

        one = connected(broker, "one", "ann")
        assert event() == "connect one as ann reason 0 known 1"
        one.send(Disconnect())
        assert event().startswith("disconnect one as ann reason 0")
        two = connected(broker, "two", clean=False, props=((17, 100),))
        assert event() == "connect two as - reason 0 known 1"
        two.reset()
        assert event().startswith("offline two as - reason ")
        three = connected(broker, "three")
        assert event().startswith("connect three")
        again = connected(broker, "three")
        assert sorted((event().split()[0], event().split()[0])) == ["connect", "disconnect"]
        three.close()
        again.close()


def test_control_topics_messages_for_one_client_and_kicks(compiled, thread):
    with Broker(config(compiled("events"), "control", thread, "plugin_opt_info tester\n")) as broker:
        assert "Plugin tester has registered to receive 'control' events on topic $CONTROL/test/v1." in broker.log()
        assert "Plugin tester version 1.2 loaded." in broker.log()
        boss, other = connected(broker, "boss"), connected(broker, "other", "ann")
        boss.send(Subscribe(1, (("control/#", 0), ("to/one", 0), ("$CONTROL/broker/#", 0))))
        assert boss.read_packet().codes == (0, 0, 0)
        boss.send(Publish("$CONTROL/test/v1", b"hello"))
        boss.expect_packet(Publish("control/answer", b"hello"))
        boss.send(Publish("$CONTROL/test/v1", b"only other"))
        got = other.read_packet()
        assert (got.topic, got.payload, got.qos, got.props) == ("to/one", b"hi", 1, ((USER, ("k", "v")),))
        boss.expect_nothing()
        boss.send(Publish("$CONTROL/broker/v1", b'{"commands":[{"command":"listPlugins"}]}'))
        assert b'{"name":"tester"' in boss.read_packet().payload.replace(b" ", b"")
        boss.send(Publish("$CONTROL/test/v1", b"kick other"))
        assert other.read_packet().rc == 0x98
        third = connected(broker, "third", "ann")
        boss.send(Publish("$CONTROL/test/v1", b"user ann"))
        assert third.read_packet().rc == 0x98


def test_pre_shared_keys(compiled, thread):
    def handshake(port, identity, key):
        done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-tls1_2", "-psk_identity", identity, "-psk", key],
                              input="", capture_output=True, text=True, timeout=30, check=False)
        return done.returncode == 0 and "PSK identity: " + identity in done.stdout

    with Broker(config(compiled("events"), "psk", thread, "psk_hint hint\n")) as broker:
        assert handshake(broker.port, "device", "0102ab")
        assert not handshake(broker.port, "device", "0102ac")
        assert not handshake(broker.port, "unknown", "0102ab")


def test_a_reload_passes_the_new_options(compiled, thread):
    with Broker(config(compiled("events"), "reload,basic", thread)) as broker:
        text = broker.config.read_text()
        broker.config.write_text(text + "plugin_opt_answer 42\n")
        broker.send_signal(signal.SIGHUP)
        logged(broker, "reload with answer=42")
        assert "first option reload,basic" in broker.log()
        assert broker.log().count("Loading plugin: ") == 1
        connected(broker)


def test_a_plugin_cleans_up_at_the_end(compiled, thread):
    with Broker(config(compiled("events"), "basic", thread)) as broker:
        assert broker.stop() == 0
        assert "cleaned up 1" in broker.log()


def test_a_plugin_is_initialized_with_the_rights_of_the_broker(compiled):
    with Broker(config(compiled("events"), "basic")) as broker:
        user = pwd.getpwuid(int(re.search(r"initialized by user (\d+)", broker.log())[1])).pw_name
        assert f"running mosq as user: {user}." in broker.log()


def test_only_the_client_of_a_slow_call_waits(compiled):
    with Broker(config(compiled("events"), "basic", "own", "plugin_opt_gate {dir}/go\n")) as broker:
        other = connected(broker, "other")
        slow = opened(broker, 5)
        slow.send(Connect("slow", username="gated"))
        logged(broker, "busy with gate/login")
        other.expect_nothing()                      # it answers a PINGREQ
        (broker.dir / "go").touch()
        assert isinstance(slow.read_packet(), Connack)
