"""Test nearly all options of a bridge at once, with a real Mosquitto at the other end, because single tests do not show that they work together."""

from __future__ import annotations

import signal

import pytest

from tests.bridge.conftest import Client, World, block, wait_for
from tests.harness.broker import free_port
from tests.harness.certificates import authority, server_files

HEAD = "user root\nlog_type all\nlistener {port} 127.0.0.1\nallow_anonymous true\n"
LINES = (
    "remote_clientid rid", "local_clientid lid", "remote_username ann", "remote_password x", "cleansession false", "local_cleansession false",
    "keepalive_interval 5", "try_private true", "notifications true", "notification_topic note/state", "bridge_attempt_unsubscribe true",
    "bridge_outgoing_retain true", "bridge_bind_address 127.0.0.1", "bridge_tcp_keepalive 10 5 3", "bridge_tcp_user_timeout 5000",
    "restart_timeout 1 3 5", "round_robin true", "start_type automatic", "bridge_reload_type immediate",
    'topic up/# out 2 "" remote/', "topic down/# in 2 loc/ rem/", 'topic "" both 1 whole/here whole/there', "topic both/# both 1 b/ c/",
    "topic lvl/+/x out 1 l1/",
)  # fmt: skip
FIVE = ("bridge_receive_maximum 3", "bridge_max_topic_alias 4", "bridge_session_expiry_interval 60", "bridge_max_packet_size 100000")


def taken(client: Client, n: int) -> list[tuple[str, bytes, int]]:
    """Return that many messages, sorted."""
    return sorted((one.topic, one.payload, one.qos) for one in (client.take() for _ in range(n)))


@pytest.mark.parametrize(("version", "tls"), [("mqttv31", True), ("mqttv311", False), ("mqttv50", True)])
def test_many_options_together(world: World, version: str, tls: bool) -> None:
    secure = free_port()
    listener = f"listener {secure} 127.0.0.1\nallow_anonymous true\ncafile {{dir}}/ca.crt\ncertfile {{dir}}/server.crt\nkeyfile {{dir}}/server.key\n"
    far = world.mosquitto(listener if tls else "", server_files() if tls else None)
    lines = [f"bridge_protocol_version {version}", *LINES, *(FIVE if version == "mqttv50" else ()), *(["bridge_cafile {dir}/ca.crt"] if tls else ())]
    address = f"127.0.0.1:{secure if tls else far.port}"
    near = world.mosq(block(address, *lines, topics=("joined out 0",)), files={"ca.crt": authority().pem} if tls else None)
    wait_for(near, far, world)
    here, there = world.client(near, "here"), world.client(far, "there")
    here.subscribe("loc/#", "whole/#", "b/#", qos=2)
    there.subscribe("remote/#", "whole/#", "c/#", "lvl/#", "new/#", qos=2)
    for broker in (near, far):
        state = world.client(broker, "state")
        state.subscribe("note/state", qos=1)
        assert state.got() == ("note/state", b"1")

    for i in range(8):
        here.publish("up/a", b"%d" % i, 2)
        there.publish("rem/down/a", b"%d" % i, 2)
    for one, topics in ((here, ("whole/here", "b/both/1", "l1/lvl/q/x")), (there, ("whole/there", "c/both/1"))):
        for topic in topics:
            one.publish(topic, b"of " + (b"here" if one is here else b"there"), 1)
    both = (b"of here", b"of there")             # each side receives its own once, and the other's once
    assert taken(here, 12) == sorted([*(("loc/down/a", b"%d" % i, 2) for i in range(8)),
                                      *((topic, of, 1) for topic in ("whole/here", "b/both/1") for of in both)])  # fmt: skip
    assert taken(there, 13) == sorted([*(("remote/up/a", b"%d" % i, 2) for i in range(8)), ("lvl/q/x", b"of here", 1),
                                       *((topic, of, 1) for topic in ("whole/there", "c/both/1") for of in both)])  # fmt: skip

    renamed = [line.replace("remote/", "new/").replace("rem/", "mer/") for line in lines]
    near.rewrite(HEAD + block(address, *renamed, topics=("joined out 0",)))
    near.send_signal(signal.SIGHUP)
    near.logged("Connecting bridge b", 2)
    here.publish("up/a", b"after", 2)
    assert taken(there, 1) == [("new/up/a", b"after", 2)]       # subscribed topics were announced before
    there.publish("rem/down/a", b"of before", 2)
    there.publish("mer/down/a", b"of now", 2)
    assert taken(here, 1) == [("loc/down/a", b"of now", 2)]
    for one in (here, there):
        one.expect_nothing()
