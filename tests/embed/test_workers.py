"""Test mosq.Broker with several workers."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mosq
from mosq.embed.explain import query
from tests.embed.client import Outside


def test_messages_reach_subscribers_of_all_workers():
    with mosq.Broker(workers=2) as broker:
        assert broker.url == f"mqtt://127.0.0.1:{broker.port}"
        subscriptions = [broker.subscribe(f"t/{i}", "all", qos=2) for i in range(6)]       # random client ids
        outside = Outside(broker.port, "outside")
        for i, subscription in enumerate(subscriptions):
            broker.publish(f"t/{i}", b"%d" % i, qos=1)
            assert subscription.get(5).payload == b"%d" % i
        outside.publish("all", b"x")
        assert {subscription.get(5).payload for subscription in subscriptions} == {b"x"}
        broker.publish("kept", b"r", qos=1, retain=True)
        with broker.subscribe("kept") as kept:
            assert kept.get(5).payload == b"r"
        assert [client["id"] for client in broker.clients()] == ["outside"]
        assert broker.stats()["clients_connected"] >= 8
        assert broker.explain("all")
        assert broker.kick("outside") and not broker.kick("nobody")
        for subscription in subscriptions:
            subscription.close()
        outside.socket.close()


def test_two_brokers_with_workers_are_independent():
    with mosq.Broker(workers=2) as one, mosq.Broker("allow_anonymous true\ncluster_local 3\n") as other:
        assert one.port != other.port
        with one.subscribe("#") as of_one, other.subscribe("#") as of_other:
            one.publish("t", b"one", qos=1)
            other.publish("t", b"other", qos=1)
            assert (of_one.get(5).payload, of_other.get(5).payload) == (b"one", b"other")


def test_a_client_in_the_list_has_the_worker_that_answers_its_client_id():
    found: dict[str, int] = {}
    with mosq.Broker(workers=2) as broker:
        while set(found.values()) != {1, 2}:
            name = f"c{len(found)}"
            outside = Outside(broker.port, name)
            found[name] = next(client["worker"] for client in broker.clients() if client["id"] == name)
            outside.socket.close()
        assert {name: query("127.0.0.1", broker.port, "t", client_id=name)["worker"] for name in found} == found


def test_asyncio():
    async def run() -> bytes:
        async with mosq.Broker(workers=2) as broker, broker.subscribe("a") as messages:
            await broker.publish("a", b"1", qos=2)
            return (await messages.get(5)).payload

    assert asyncio.run(run()) == b"1"


def children() -> set[int]:
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return {int(pid) for pid in text.split()}


def test_a_stop_leaves_no_process_and_no_descriptor():
    def once() -> None:
        with mosq.Broker(workers=2) as broker, broker.subscribe("a") as messages:
            broker.publish("a", b"1")
            messages.get(5)

    once()
    before, fds = children(), len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        once()
    assert children() == before
    assert len(os.listdir("/proc/self/fd")) == fds
    broker = mosq.Broker(workers=2).start()
    broker.stop()
    broker.stop()
    with pytest.raises(mosq.BrokerStopped):
        broker.publish("a", b"1")
    with pytest.raises(mosq.BrokerStopped):
        broker.stats()


def test_errors_of_the_start(tmp_path: Path):
    for number, what in ((0, r"Invalid 'workers' value \(0\)"), (1.5, "'workers' value .* from 1 to 64.* not '1.5'"),
                         ({2}, "'workers' is set. Expected a number"), ("+2", "'workers' value .* decimal digits")):
        with pytest.raises(mosq.ConfigError, match=what) as wrong:
            mosq.Broker(workers=number)     # type: ignore[arg-type]
        assert "cluster_local" not in str(wrong.value)
    for options in ({"config": "cluster_local 0\n"}, {"cluster_local": 0}):
        with pytest.raises(mosq.ConfigError, match=r"Invalid 'cluster_local' value \(0\)"):
            mosq.Broker(**options)
    with pytest.raises(mosq.ConfigError, match="persist-sqlite"):
        mosq.Broker(workers=2, plugin="persist-sqlite", plugin_opt_db_file=f"{tmp_path}/state.db")
    with mosq.Broker(workers=2) as broker, pytest.raises(OSError, match="in use"):
        mosq.Broker(workers=2, port=broker.port).start()
    with mosq.Broker() as alone, pytest.raises(OSError, match="in use"):
        mosq.Broker(workers=2, port=alone.port).start()


def test_sessions_stay_when_the_number_changes(tmp_path: Path):
    options = {"persistence": True, "persistence_location": f"{tmp_path}/", "mosquitto_db": False}
    for n in (1, 3, 2, 1):
        with mosq.Broker(workers=n, **options) as broker:
            with broker.subscribe("count/#") as kept:
                if n != 1 or (tmp_path / "begun").exists():
                    assert kept.get(5).retain
            broker.publish("count/1", b"%d" % n, qos=1, retain=True)
        (tmp_path / "begun").touch()


def test_log_lines_come_to_the_logger(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.INFO, logger="mosq"), mosq.Broker(workers=2):
        pass
    assert "2 workers serve the clients." in caplog.messages


def test_lines_of_a_worker_about_itself_name_it(caplog: pytest.LogCaptureFixture, tmp_path: Path):
    acl = tmp_path / "acl"
    acl.write_text("pattern read a\n")
    with caplog.at_level(logging.INFO, logger="mosq"), mosq.Broker(workers=2, acl_file=str(acl)) as broker:
        Outside(broker.port, "outside").socket.close()
        until = time.monotonic() + 20
        while not any(" as outside " in line for line in caplog.messages):
            assert time.monotonic() < until
            time.sleep(0.01)
    about = [line.partition("Warning: ACL pattern")[0] for line in caplog.messages if "Warning: ACL pattern" in line]
    assert sorted(about) == ["Worker 1: ", "Worker 2: "]
    assert not any(line.startswith("Worker") and " as outside " in line for line in caplog.messages)


def workers(broker: mosq.Broker) -> list[int]:
    """Return the processes of the workers. Other children of this process may belong to the fixtures of other tests."""
    parent = broker._running._process.pid       # type: ignore[union-attr]
    return [int(worker) for worker in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]


def is_disconnected(subscription: mosq.Subscription) -> bool:
    try:
        subscription.get(0.05)
    except mosq.Disconnected:
        with pytest.raises(mosq.Disconnected, match="worker of this connection has ended"):
            next(subscription)
        return True
    except TimeoutError:
        return False
    raise AssertionError("a message that nothing published")


def test_a_subscription_at_a_worker_that_is_killed_is_disconnected():
    with mosq.Broker(workers=2) as broker:
        subscriptions = [broker.subscribe("a") for _ in range(24)]     # random client ids; one worker has all: 1 in 8 million
        os.kill(workers(broker)[0], 9)
        until = time.monotonic() + 20
        ended: list[mosq.Subscription] = []
        more = subscriptions
        while more or not ended:                # the kernel closes the connections one after the other
            assert time.monotonic() < until
            more = [one for one in subscriptions if one not in ended and is_disconnected(one)]
            ended += more
        assert len(ended) < len(subscriptions)
    for subscription in subscriptions:
        if subscription not in ended:
            assert not list(subscription)           # the stop of the broker is an end without an error


def test_a_worker_that_is_killed_comes_back():
    with mosq.Broker(workers=2) as broker:
        os.kill(workers(broker)[0], 9)
        until = time.monotonic() + 20
        while True:
            try:
                broker.publish("a", b"1", qos=1, timeout=2)
                assert broker.stats()
                break
            except (mosq.BrokerError, TimeoutError, OSError):
                assert time.monotonic() < until
                time.sleep(0.05)


def test_the_workers_end_with_a_program_that_is_killed():
    code = "import mosq, sys, time; b = mosq.Broker(workers=2).start(); print(b._running._process.pid, flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}) as program:
        assert program.stdout is not None
        parent = int(program.stdout.readline())
        program.kill()
        until = time.monotonic() + 20
        while Path(f"/proc/{parent}/comm").exists() and Path(f"/proc/{parent}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
            assert time.monotonic() < until
            time.sleep(0.01)


def test_the_first_client_of_the_program_waits_until_its_worker_is_linked():
    """A CONNECT from the program may arrive before the workers know each other; it is answered then."""
    for _ in range(5):
        with mosq.Broker(workers=4) as broker:
            for i in range(8):
                broker.subscribe(f"t/{i}").close()
