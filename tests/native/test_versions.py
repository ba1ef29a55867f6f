"""Native plugins of the interface versions 2, 3 and 4, and what a broken one does to the start."""

import subprocess
import time

import pytest

from tests.harness.broker import Broker, command
from tests.harness.effort import TIMEOUT_S
from tests.harness.packets import Connect, Disconnect, Puback, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from tests.native.test_events import closed_connections, config, connected, logged, opened, refused   # noqa: F401

NAMES = ("init", "cleanup", "security_init", "security_cleanup", "acl_check", "unpwd_check", "psk_key_get")


def old(path, thread="own", more=""):
    return f"listener {{port}} 127.0.0.1\nauth_plugin {path}\nauth_opt_name old\nplugin_thread {thread}\n{more}"


@pytest.mark.parametrize("thread", ("own", "loop"))
@pytest.mark.parametrize("version", (2, 3, 4))
def test_older_versions(compiled, version, thread):
    with Broker(old(compiled("older", VERSION=version), thread)) as broker:
        assert "security of old begins, 1 options, reload 0" in broker.log()
        assert refused(broker, "ann", password=b"wrong") == 0x87
        assert refused(broker, "defer", password=b"secret") == 0x87
        wire = connected(broker, "c", "ann", b"secret")
        wire.send(Subscribe(1, (("closed", 0), ("readable", 0), ("open", 0))))
        wire.expect_packet(Suback(1, (0 if version == 2 else 0x87, 0, 0)))
        wire.send(Publish("readable", b"x", 1, 1))
        assert wire.read_packet().rc == 0x87
        wire.send(Publish("open", b"x"))
        wire.expect_packet(Publish("open", b"x"))
        wire.send(Unsubscribe(2, ("open",)))
        wire.expect_packet(Unsuback(2, (0,)))
        wire.expect_nothing()
        strange = connected(broker, "c+", "ann", b"secret")
        strange.send(Publish("open", b"x", 1, 1))
        assert strange.read_packet() == Puback(1, 0x87)
        logged(broker, 'ACL denying access to client with dangerous client id "c+"')
        if version == 4:
            wire = opened(broker, 5)
            wire.send(Connect("e", props=((21, "simple"),)))
            assert wire.read_packet().rc == 0
        assert broker.stop() == 0
        assert 0 < broker.log().find("security of old ends, reload 0") < broker.log().find("old is cleaned up")


def start(tmp_path, lines):
    """Start a broker that must not run; return its exit status and output."""
    path = tmp_path / "mosq.conf"
    path.write_text(f"user root\nlistener 0 {tmp_path}/socket\n{lines}")
    done = subprocess.run([*command(), "-c", str(path)], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(("version", "leave_out"), [
    *((2, i) for i in range(7)), *((3, i) for i in range(7)), *((4, i) for i in range(5)), (4, 8)])
def test_a_plugin_without_a_function_ends_the_start_with_13(compiled, tmp_path, version, leave_out):
    status, output = start(tmp_path, f"auth_plugin {compiled('older', VERSION=version, LEAVE_OUT=leave_out)}\n")
    assert status == 13, output
    if leave_out < len(NAMES):
        name = f"plugin_{NAMES[leave_out]}" if leave_out < 2 else NAMES[leave_out]
        assert f"Error: Unable to load auth plugin function mosquitto_auth_{name}()." in output


@pytest.mark.parametrize(("what", "says"), [
    (3, "Unable to load auth plugin function mosquitto_auth_plugin_version() or mosquitto_plugin_version()."),
    (4, "undefined symbol: mosquitto_does_not_exist"),
    (5, "Error: Unsupported auth plugin version (got 6, expected 5)."),
    (6, "Error: Unable to load plugin function mosquitto_plugin_init()."),
])
def test_libraries_that_are_no_plugins(compiled, tmp_path, what, says):
    status, output = start(tmp_path, f"plugin {compiled('odd', WHAT=what)}\n")
    assert (status, says in output) == (13, True), output


def test_the_status_of_a_failed_initialization_is_that_of_the_broker(compiled, tmp_path):
    status, output = start(tmp_path, f"plugin {compiled('events')}\nplugin_opt_fail 7\n")
    assert status == 7 and "Error: Plugin returned 7 when initialising." in output


@pytest.mark.timing             # a sanitizer writes a report about the crash
def test_a_crash_names_the_plugin_in_the_last_line(compiled, tmp_path):
    path = compiled("odd", WHAT=1)
    status, output = start(tmp_path, f"plugin {path}\nlog_dest file {tmp_path}/log\n")
    assert status < 0
    *earlier, last = (tmp_path / "log").read_text().splitlines()
    assert f"Error: Plugin {path.name} crashed with signal 11 in init; the broker ends." in last and last in output
    assert any(f"Loading plugin: {path}" in line for line in earlier)


@pytest.mark.timing             # the same
@pytest.mark.parametrize("thread", ("own", "loop"))
def test_a_crash_in_a_callback(compiled, thread):
    with Broker(config(compiled("events"), "basic", thread)) as broker:
        opened(broker, 5).send(Connect("c", username="crash"))
        broker.process.wait(30)
        assert "crashed with signal 11 in basic-auth; the broker ends." in broker.log().splitlines()[-1]


@pytest.mark.timing             # waits for auth_timeout
@pytest.mark.parametrize(("thread", "how"), [("own", "a call: no answer for "), ("loop", "a call on the loop: no answer for ")])
def test_a_callback_that_never_returns_is_reported(compiled, thread, how):
    with Broker(config(compiled("odd", WHAT=11), "none", thread, more="auth_timeout 1\n")) as broker:
        opened(broker, 5).send(Connect("c"))
        logged(broker, f"Warning: Plugin odd-11.so failed in {how}")
        broker.process.kill()           # a loop that stands still takes no SIGTERM


@pytest.mark.timing             # waits for the warning
def test_an_initialization_that_never_returns_is_reported(compiled, tmp_path):
    path = tmp_path / "mosq.conf"
    path.write_text(f"user root\nlistener 0 {tmp_path}/socket\nplugin {compiled('odd', WHAT=12)}\n")
    with subprocess.Popen([*command(), "-c", str(path)], stderr=subprocess.PIPE, text=True) as broker:
        lines = iter(broker.stderr.readline, "")
        assert any(": Loading plugin: " in line for line in lines)
        assert any("Warning: Plugin odd-12.so has not returned from its initialization; the broker waits." in line for line in lines)
        broker.kill()


@pytest.mark.parametrize("thread", ("own", "loop"))
def test_a_callback_that_calls_exit(compiled, thread):
    with Broker(config(compiled("events"), "basic", thread)) as broker:
        opened(broker, 5).send(Connect("c", username="exit"))
        assert broker.process.wait(30) == 1
        assert "Error: Plugin events.so called exit() in basic-auth; the broker ends." in broker.log().splitlines()[-1]


@pytest.mark.timing             # a sanitizer writes a report
@pytest.mark.parametrize("thread", ("own", "loop"))
def test_memory_that_is_freed_twice(compiled, thread):
    with Broker(config(compiled("odd", WHAT=8), "none", thread)) as broker:
        opened(broker, 5).send(Connect("c"))
        broker.process.wait(30)
        assert "crashed with signal 6 in connect; the broker ends." in broker.log().splitlines()[-1]


@pytest.mark.parametrize("thread", ("own", "loop"))
def test_a_callback_waits_for_a_thread_that_registers_another(compiled, thread):
    with Broker(config(compiled("odd", WHAT=7), "none", thread)) as broker:
        wire = connected(broker)
        wire.send(Subscribe(1, (("from/thread", 0),)))
        wire.expect_packet(Suback(1, (0,)))
        connected(broker, "other").send(Disconnect())
        wire.expect_packet(Publish("from/thread", b"gone"))


def test_calls_from_a_thread_of_the_plugin(compiled):
    with Broker(config(compiled("odd", WHAT=2), "none")) as broker:
        wire = connected(broker)
        wire.send(Subscribe(1, (("from/thread", 0),)))
        give_up = time.monotonic() + TIMEOUT_S
        while not isinstance(packet := wire.read_packet(), Publish):
            assert time.monotonic() < give_up
        assert packet.payload == b"hello"


def test_a_plugin_that_asks_without_an_end_does_not_hold_up_the_start(compiled):
    with Broker(config(compiled("odd", WHAT=9), "none", more="log_type warning\n")) as broker:
        connected(broker)
        logged(broker, "requests of native plugins are lost: too many wait.")


def test_a_plugin_that_wants_no_more_ticks(compiled):
    with Broker(config(compiled("odd", WHAT=10), "none")) as broker:
        logged(broker, ": tick")
        time.sleep(1.5)
        assert broker.log().count(": tick") == 1 and "Traceback" not in broker.log()
