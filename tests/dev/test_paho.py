"""Test that the network threads of paho leave no sockets open in our tests (tests/harness/paho.py)."""

from __future__ import annotations

import paho.mqtt.client as paho

from paho.mqtt.enums import CallbackAPIVersion

from tests.harness.broker import Broker


def test_a_network_thread_closes_its_pair_of_sockets() -> None:
    with Broker("") as broker:
        client = paho.Client(CallbackAPIVersion.VERSION2)
        client.connect("127.0.0.1", broker.port)
        client.loop_start()
        pair = client._sockpairR, client._sockpairW
        client.disconnect()
        client.loop_stop()
    assert [end.fileno() for end in pair if end is not None] == [-1, -1]
