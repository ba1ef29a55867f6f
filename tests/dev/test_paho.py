"""Test what our tests correct in paho (tests/harness/paho.py)."""

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


def test_a_pubrel_is_sent_again_however_many_connections_end() -> None:
    client = paho.Client(CallbackAPIVersion.VERSION2, "c", clean_session=False)
    message = paho.MQTTMessage(1, b"t")
    message.qos, message.state = 2, paho.mqtt_ms_wait_for_pubcomp
    client._out_messages[1] = message
    for _ in range(3):
        client._messages_reconnect_reset_out()
        assert message.state == paho.mqtt_ms_resend_pubrel
