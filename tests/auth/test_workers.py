"""Plugins in Python, and the rest of logins, with two workers."""

import signal

import pytest

from tests.harness.packets import Connect, Publish, Suback, Subscribe, Will
from tests.harness.wire import Wire
from tests.workers.case import Workers, until

MODULE = "tests.auth.plugins_of_tests"


def workers(*names, more=""):
    lines = "".join(f"plugin python:{MODULE}:{name}\n" for name in names)
    return Workers(2, f"allow_anonymous true\nauth_backoff false\n{lines}{more}")


def code(broker, client_id, user):
    wire = Wire(broker.port, 5)
    wire.send(Connect(client_id, username=user))
    found = wire.read_packet().rc
    wire.close()
    return found


def subscribed(client, topic):
    client.send(Subscribe(1, ((topic, 0),)))
    client.expect_packet(Suback(1, (0,)))


def test_logins_at_both_workers():
    with workers("ByName") as broker:
        for name in (broker.id_on(1), broker.id_on(2)):
            assert [code(broker, name, user) for user in ("allow", "deny", "as-ann")] == [0, 0x87, 0]


@pytest.mark.parametrize("number", [1, 2])
def test_a_message_is_changed_once_on_its_way_to_another_worker(number):
    with workers("Twice") as broker:
        there = broker.connect(broker.id_on(3 - number, "there"))
        subscribed(there, "#")
        here = broker.connect(broker.id_on(number))
        here.send(Publish("in/both", b"x"))
        assert there.read_packet().payload == b"xx"
        there.expect_nothing()


@pytest.mark.parametrize("number", [1, 2])
def test_a_will_waits_for_the_plugins_of_both_workers(number):
    with workers("Passes") as broker:
        there = broker.connect(broker.id_on(3 - number, "there"))
        subscribed(there, "#")
        for qos in (0, 1):
            here = broker.connect(broker.id_on(number), will=Will("w", b"gone", qos))
            here.close()
            will = there.read_packet()
            assert (will.topic, will.payload) == ("w", b"gone")
        there.expect_nothing()


def test_a_reload_that_one_plugin_refuses_changes_no_worker():
    with workers("ByName") as broker:
        names = [broker.id_on(number) for number in (1, 2)]
        text = broker.config.read_text()
        broker.config.write_text(text.replace(":ByName", ":Refuses"))
        broker.send_signal(signal.SIGHUP)
        broker.wait_log("The configuration was not reloaded, the old one stays in force: Worker ")
        assert [code(broker, name, "deny") for name in names] == [0x87, 0x87]
        broker.config.write_text(text.replace(":ByName", ":AllowsAll"))
        broker.send_signal(signal.SIGHUP)
        until(lambda: [code(broker, name, "deny") for name in names] == [0, 0], broker.log)
