"""Test that sessions and messages expire although a worker waits for others [v5 3.1.2-23, 3.3.2-5]."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from tests.harness.packets import Connack, Connect, Disconnect, Puback, Publish, Suback, Subscribe
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.workers.case import Workers, accepted

STORE = "persistence true\npersistence_location {dir}/\n"
KEPT = ((P.SESSION_EXPIRY, 600),)
CLIENTS = 12


def until_listening(port: int) -> Wire:
    while True:
        try:
            return Wire(port, 5)
        except ConnectionRefusedError:
            time.sleep(0.001)


def test_a_client_that_waits_for_the_start_gets_no_expired_session() -> None:
    """Its CONNECT and the timer of its session both wait for the links."""
    found: list[Connack] = []

    def come_back(i: int) -> None:
        client = until_listening(broker.port)
        client.send(Connect(f"brief{i}", clean=False, props=KEPT))
        found.append(accepted(client))
        client.close()

    with Workers(2, STORE) as broker:
        for i in range(CLIENTS):
            client = broker.connect(f"brief{i}", clean=True, props=((P.SESSION_EXPIRY, 1),))
            client.send(Subscribe(1, (("old", 1),)))
            assert isinstance(client.read_packet(), Suback)
            client.send(Disconnect())
            client.close()
        broker.stop()
        time.sleep(1.5)                 # the sessions expire in this time
        threads = [threading.Thread(target=come_back, args=(i,)) for i in range(CLIENTS)]
        for thread in threads:
            thread.start()
        broker.start()
        for thread in threads:
            thread.join()
    assert [one.session for one in found] == [False] * CLIENTS


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGCONT], ids=["sent-again", "in-the-socket"])
def test_a_message_that_expires_while_it_waits_for_a_worker_is_not_delivered(by: signal.Signals) -> None:
    with Workers(2, STORE) as broker:
        name = broker.id_on(2)
        sender, receiver = broker.connect(broker.id_on(1)), broker.connect(name, clean=True, props=KEPT)
        receiver.send(Subscribe(1, (("t", 1),)))
        assert isinstance(receiver.read_packet(), Suback)
        broker.kill(2, signal.SIGSTOP)
        sender.send(Publish("t", b"brief", 1, 1, props=((P.EXPIRY, 1),)), Publish("t", b"long", 1, 2, props=((P.EXPIRY, 600),)))
        time.sleep(1.5)                 # the first one expires in this time
        broker.kill(2, by)
        assert [type(sender.read_packet()) for _ in range(2)] == [Puback, Puback]
        got = (receiver if by == signal.SIGCONT else broker.connect(name, clean=False, props=KEPT)).read_packet()
        assert isinstance(got, Publish) and got.payload == b"long"
