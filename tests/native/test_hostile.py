"""Plugins that do what none should: the broker lives, serves its clients, and a line names the plugin if it does not."""

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from mosq.auth.native.calls import shim_path
from tests.chaos.run import DURABLE, Plan, chaos
from tests.harness.broker import Broker
from tests.harness.effort import tries
from tests.harness.packets import Connect, Puback, Publish, Suback, Subscribe, Unsubscribe
from tests.native.test_events import THREADS, closed_connections, config, connected, logged, opened, thread     # noqa: F401

SESSIONS = 40


def hostile(path, what, events, thread="own", more=""):     # noqa: F811
    return config(path, events, thread, f"plugin_opt_what {what}\nauth_backoff false\n{more}")


@pytest.mark.parametrize(("what", "events"), [("flood", "bacit"), ("churn", "baicst"), ("keep", "baisoc")])
def test_clients_are_served_beside(compiled, thread, what, events):     # noqa: F811
    with Broker(hostile(compiled("hostile"), what, events, thread)) as broker:
        for i in range(SESSIONS):
            wire = connected(broker, f"c{i % 10}", f"u{i}" if i % 3 else None)
            wire.send(Subscribe(1, ((f"t/{i}", 1),)), Publish(f"t/{i}", b"hello", 1, 2))
            got = []
            while len({type(one) for one in got}) < 3:          # the plugin publishes in between
                got.append(wire.read_packet())
            assert {type(one) for one in got} == {Suback, Puback, Publish}, got
            wire.send(Unsubscribe(3, (f"t/{i}",)))
            wire.close()
        assert broker.alive() and "Traceback" not in broker.log()
        broker.process.kill() if what == "flood" else broker.stop()


def test_results_and_changes_without_a_meaning(compiled, thread):       # noqa: F811
    with Broker(hostile(compiled("hostile"), "nonsense", "baioscx", thread, "auth_timeout 1\n")) as broker:
        other = connected(broker, "other")
        for i in range(4 * SESSIONS):
            wire = opened(broker, 5)
            method = ((21, "m"), (22, b"x")) if i % 7 == 0 else ()
            wire.send(Connect(f"c{i}", props=method))
            try:
                answer = wire.read_packet(0.2)
                wire.send(Subscribe(1, ((f"t/{i}", 1), ("t/#", 0))), *[Publish(f"t/{i}", b"hello", 1, mid) for mid in range(1, 10)])
                for _ in range(8):
                    answer = wire.read_packet(0.02)
                    if isinstance(answer, Publish) and answer.qos:
                        wire.send(Puback(answer.mid))
            except (AssertionError, OSError):        # refused, dropped or cut off
                pass
            wire.close()
        assert broker.alive() and "Traceback" not in broker.log()
        other.send(b"\xc0\x00")
        assert other.read_frame() == b"\xd0\x00"


@pytest.mark.parametrize("event", ("i", "o"))
def test_a_message_that_causes_itself_again_does_not_stop_the_others(compiled, thread, event):      # noqa: F811
    with Broker(hostile(compiled("hostile"), "again", event, thread, "max_queued_messages 1000\nlog_type error\n")) as broker:
        wire = connected(broker, "c")
        wire.send(Subscribe(1, (("again/#", 0),)))
        wire.read_packet()
        wire.send(Publish("again/x", b"hello"))
        for _ in range(3):              # the message and two that the callback has published
            assert wire.read_packet().topic == "again/x"
        for i in range(10):
            other = connected(broker, f"d{i}")
            other.send(Publish("other", b"x", 1, 1))
            while not isinstance(other.read_packet(), Puback):
                pass
            other.close()
        broker.process.kill()


def test_a_flood_of_clients_of_a_plugin_that_blocks_for_a_minute(compiled):
    with Broker(hostile(compiled("hostile"), "block", "b", "own", "auth_timeout 1\n")) as broker:
        wires = [opened(broker, 5) for _ in range(200)]
        began = time.monotonic()
        for i, wire in enumerate(wires):
            wire.send(Connect(f"c{i}", username="slow"))
        for wire in wires:
            assert wire.read_packet().rc >= 0x80
        assert time.monotonic() - began < 15
        logged(broker, "Warning: Plugin hostile.so failed in a call: no answer for")
        broker.process.kill()


def test_a_callback_that_ends_its_thread(compiled, thread):     # noqa: F811
    with Broker(hostile(compiled("hostile"), "x", "i", thread)) as broker:
        connected(broker).send(Publish("thread/exit", b"x"))
        assert broker.process.wait(30) == 1
        assert "Error: Plugin hostile.so called pthread_exit() in message-in; the broker ends." in broker.log().splitlines()[-1]


@pytest.mark.timing             # a sanitizer writes a report
@pytest.mark.parametrize("what", ("topic", "payload"))
def test_memory_of_the_broker_that_a_plugin_frees(compiled, thread, what):      # noqa: F811
    with Broker(hostile(compiled("hostile"), "x", "i", thread)) as broker:
        connected(broker).send(Publish(f"free/{what}", b"x" * 2000))
        assert broker.process.wait(30) == -signal.SIGABRT
        assert "Error: Plugin hostile.so crashed with signal 6 in message-in; the broker ends." in broker.log().splitlines()[-1]


def test_a_library_that_is_replaced_stays_until_the_next_start(compiled, tmp_path, thread):     # noqa: F811
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:3]:
        parent.chmod(0o755)
    library = tmp_path / "plugin.so"
    shutil.copy(compiled("events"), library)
    with Broker(config(library, "basic,reload", thread)) as broker:
        connected(broker, "before").close()
        shutil.copy(compiled("older", VERSION=4), tmp_path / "new.so")
        os.rename(tmp_path / "new.so", library)
        broker.config.write_text(broker.config.read_text() + "plugin_opt_more 1\n")
        broker.send_signal(signal.SIGHUP)
        logged(broker, "reload with more=1")
        connected(broker, "after").close()
        logged(broker, "login after as -")


CALL_WITH_NULL = """
import ctypes, sys
shim = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
for name in sys.argv[2:]:
    print(name, flush=True)
    getattr(shim, name)(*[ctypes.c_void_p(0)] * 7)
print("done")
"""


def test_functions_accept_null():
    names = subprocess.run(["nm", "-D", "--defined-only", shim_path()], capture_output=True, text=True, check=True, timeout=30).stdout
    names = re.findall(r" T (mosquitto_\w+)", names)
    assert len(names) > 120
    done = subprocess.run([sys.executable, "-c", CALL_WITH_NULL, shim_path(), *names], capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout.endswith("done\n"), done.stdout[-100:] + done.stderr


@pytest.mark.again("kills")
def test_no_acknowledged_message_is_lost_if_the_broker_is_killed(compiled, thread):     # noqa: F811
    lines = f"plugin {compiled('events')}\nplugin_opt_events basic,acl,in,out,subscribe,clients\nplugin_thread {thread}\nauth_timeout 300\n"     # on a slow machine a queue may take longer than 10 s
    ok, report = asyncio.run(chaos(Plan(sessions=20, kills=tries(15, 4), rate=300, up_ms=(50, 300), seed=int(time.time()), quiet=True, config=DURABLE + lines)))
    assert ok and "0 lost, 0 doubled, 0 no dup, 0 order" in report, report
