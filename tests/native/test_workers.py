"""Native plugins with two workers: each of them loads an instance of its own."""

import signal
import sys

import pytest

from tests.harness.packets import Connect, Disconnect, Puback, Publish, Suback, Subscribe
from tests.harness.wire import Wire
from tests.native import test_events
from tests.native.test_events import THREADS, closed_connections, config, thread  # noqa: F401 - fixtures
from tests.workers.case import Workers, until

USER = 38
KICKED = 0x98
NOT_VALID = 0x85

OTHERWISE = {                   # tests of one process: the count of lines, or what a client of the same process sees
    "test_a_login_changes_the_user_name_and_the_client_id": "an id of another worker is refused, see below",
    "test_a_changed_filter_keeps_its_group": "the choice between workers is random",
    "test_a_reload_passes_the_new_options": "counts the loads of one process",
}
AGAIN = {name: test for name, test in vars(test_events).items() if name.startswith("test_") and name not in OTHERWISE}
globals().update({f"{name}_with_workers": pytest.mark.part("workers")(test) for name, test in AGAIN.items()})


@pytest.fixture(autouse=True)
def two_workers(request, monkeypatch):
    """Run the tests of test_events.py with two workers."""
    if request.function.__module__ == test_events.__name__:
        monkeypatch.setenv("MOSQ_BROKER", f"{sys.executable} -m mosq --workers 2")


def subscribed(client, topic, qos=0):
    client.send(Subscribe(1, ((topic, qos),)))
    client.expect_packet(Suback(1, (qos,)))


@pytest.fixture(params=THREADS)
def broker(compiled, request):
    with Workers(2, config(compiled("events"), "basic,in,out,control", request.param), user="mosquitto") as found:
        yield found


def test_each_worker_asks_its_instance_about_logins(broker):
    for number in (1, 2):
        name = broker.id_on(number)
        assert broker.holder(broker.connect(name, username="ann")) == number
        client = broker.connect(broker.id_on(3 - number))
        client.close()
        denied = Wire(broker.port, 5)
        denied.send(Connect(name, username="deny"))
        assert denied.read_packet().rc == 0x87
        denied.close()
    for number in (1, 2):
        assert f"Worker {number}: Loading plugin: " in broker.log()
    assert broker.log().count("Each worker loads its own instance of ") == 1


@pytest.mark.parametrize("number", [1, 2])
def test_a_message_is_changed_once_on_its_way_to_another_worker(broker, number):
    here, there = broker.connect(broker.id_on(number)), broker.connect(broker.id_on(3 - number, "there"))
    subscribed(there, "#")
    here.send(Publish("in/change", b"old"))
    there.expect_packet(Publish("in/changed", b"new", props=((USER, ("user", "")), (USER, ("key", "value")))))
    here.send(Publish("in/drop", b"x"), Publish("out/drop", b"x"), Publish("out/change", b"xyz"))
    there.expect_packet(Publish("out/change", b"tyz"))      # the id of the subscriber begins with t
    here.send(Publish("in/twice", b"x"))
    assert there.read_packet().payload == b"x"
    there.expect_nothing()


@pytest.mark.parametrize("number", [1, 2])
def test_a_plugin_acts_over_all_workers(broker, number):
    boss = broker.connect(broker.id_on(number, "boss"))
    far, near = broker.id_on(3 - number, "far"), broker.id_on(number, "near")
    clients = [broker.connect(one, username="ann") for one in (far, near)]
    witness = broker.connect(broker.id_on(3 - number, "witness"))
    subscribed(witness, "control/answer")
    boss.send(Publish("$CONTROL/test/v1", b"hello"))
    assert witness.read_packet().payload == b"hello"
    for name, client in zip((far, near), clients, strict=True):
        boss.send(Publish("$CONTROL/test/v1", b"only " + name.encode()))
        message = client.read_packet()
        assert (message.topic, message.payload, message.props) == ("to/one", b"hi", ((USER, ("k", "v")),))
        client.expect_nothing()
    boss.send(Publish("$CONTROL/test/v1", b"kick " + far.encode()))
    assert clients[0].read_packet() == Disconnect(KICKED)
    clients[0] = broker.connect(far, username="ann")
    boss.send(Publish("$CONTROL/test/v1", b"user ann"))
    assert [client.read_packet() for client in clients] == [Disconnect(KICKED)] * 2
    witness.expect_nothing()


def test_a_client_id_of_another_worker_is_refused(compiled):
    with Workers(2, config(compiled("events"), "basic"), user="mosquitto") as broker:
        wire = Wire(broker.port, 5)
        wire.send(Connect("old-id"))
        code = wire.read_packet().rc
        if code:
            assert code == NOT_VALID
            broker.wait_log("a plugin gave it a client identifier that belongs to another worker")
        else:
            here = broker.holder(wire)
            assert broker.holder(broker.connect("new-id")) == here      # takes the session over
        wire.close()


def test_a_plugin_that_keeps_the_state_is_refused(compiled):
    with Workers(2, f"plugin {compiled('keeper')}\nplugin_opt_file {{dir}}/kept\n") as broker:
        assert broker.process.wait(20) == 3
        assert "keeps the broker's state, and cannot be used with `cluster_local 2`" in broker.log()


def test_a_reload_with_a_plugin_that_keeps_the_state_is_refused(compiled):
    with Workers(2) as broker:
        text = broker.config.read_text()
        broker.config.write_text(f"{text}plugin {compiled('keeper')}\nplugin_opt_file {broker.dir}/kept\n")
        before = broker.pids()
        broker.send_signal(signal.SIGHUP)
        broker.wait_log("The configuration was not reloaded, the old one stays in force: Worker ")
        assert "keeps the broker's state, and cannot be used with `cluster_local 2`" in broker.log()
        broker.connect("c")
        assert broker.pids() == before


def test_a_reload_with_a_plugin_that_fails_changes_no_worker(compiled):
    with Workers(2, config(compiled("events"), "basic,control"), user="mosquitto") as broker:
        text = broker.config.read_text()
        broken = text.replace(str(compiled("events")), str(compiled("events", OTHER=1)))     # a library that is loaded then
        broker.config.write_text(broken.replace(" basic,control\n", " control\nplugin_opt_fail 3\n"))
        broker.send_signal(signal.SIGHUP)
        broker.wait_log("The configuration was not reloaded, the old one stays in force: Worker ")
        names = {number: broker.id_on(number) for number in (1, 2)}

        def refused():
            codes = []
            for name in names.values():
                wire = Wire(broker.port, 5)
                wire.send(Connect(name, username="deny"))
                codes.append(wire.read_packet().rc)
                wire.close()
            return codes

        assert refused() == [0x87, 0x87]
        broker.config.write_text(broken.replace(" basic,control\n", " control\n"))
        broker.send_signal(signal.SIGHUP)
        until(lambda: refused() == [0, 0], broker.log)


def test_a_killed_worker_loads_its_plugin_again(broker):
    name = broker.id_on(2)
    boss = broker.connect(broker.id_on(1, "boss"))
    broker.kill(2)
    client = broker.connect(name, username="ann")
    boss.send(Publish("$CONTROL/test/v1", b"kick " + name.encode()))
    assert client.read_packet() == Disconnect(KICKED)
    boss.send(Publish("a", b"x", 1, 5))
    assert isinstance(boss.read_packet(), Puback)
