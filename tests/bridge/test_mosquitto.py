"""Test a real Mosquitto at the other end: mosq bridges to it, and it bridges to mosq; all versions, all QoS levels, TLS."""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.bridge.conftest import Client, Mosquitto, Site, World, block, wait_for
from tests.harness.broker import Broker
from tests.harness.certificates import Authority, authority, server_files
from tests.harness.effort import TIMEOUT_S

KEY = "00ff17c0de"


def until(holds: Callable[[], bool], what: object = "") -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, what
        select.select([], [], [], 0.02)


@pytest.fixture(params=["mosq to mosquitto", "mosquitto to mosq"])
def pair(request: pytest.FixtureRequest, world: World) -> Callable[..., tuple[Broker, Broker]]:
    """Provide pair(lines..., topics=...), which returns (the broker with the bridge, the other one), connected."""

    def make(*lines: str, topics: tuple[str, ...]) -> tuple[Broker, Broker]:
        topics = (*topics, "joined out 0")
        if request.param == "mosq to mosquitto":
            far: Broker = world.mosquitto()
            near: Broker = world.mosq(block(far.port, *lines, topics=topics))
        else:
            far = world.mosq()
            near = world.mosquitto(block(far.port, *lines, topics=topics))
        wait_for(near, far, world)
        return near, far

    return make


@pytest.mark.parametrize("kind", ["mosq", "mosquitto"])
def test_local_username_gives_no_rules_to_a_bridge(world: World, kind: str) -> None:
    """Test as in Mosquitto: an acl_file for clients does not apply to bridges, whatever their local user name is.

    In Mosquitto 2.0 and 2.1 dynamic security does not either. Rules that only mosq applied would silence bridges that work there.
    """
    far = world.mosquitto()
    bridge = block(far.port, "local_username bridge", "local_password x", topics=("# both 1",))
    rules = "acl_file {dir}/acl\n"
    files = {"acl": "topic readwrite joined\ntopic readwrite ok/#\nuser bridge\ntopic read nothing\nuser ann\ntopic readwrite #\n"}
    near = (world.mosq if kind == "mosq" else world.mosquitto)(rules + bridge, files=files)
    here, there = world.client(near, "here", username="ann"), world.client(far, "there")
    for one in (here, there):
        one.subscribe("#", qos=1)
    wait_for(near, far, world)
    here.publish("secret/out", b"1", 1)
    while (got := there.got()) != ("secret/out", b"1"):
        assert got[0] == "joined"
    there.publish("secret/in", b"2", 1)
    while (got := here.got()) != ("secret/in", b"2"):
        assert got[0] in ("joined", "secret/out")
    world.client(near, "nobody").publish("secret/x", b"3", 1)       # clients are checked
    here.publish("end", b"", 1)
    while (got := here.got()) != ("end", b""):
        assert got[0] != "secret/x"


@pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv50"])
def test_both_directions(world: World, pair: Any, version: str) -> None:
    near, far = pair(f"bridge_protocol_version {version}", topics=("up/# out 2", "down/# in 2", "m/# both 1 near/ far/"))
    here, there = world.client(near, "here"), world.client(far, "there")
    here.subscribe("down/#", "near/#", qos=2)
    there.subscribe("up/#", "far/#", qos=2)
    for qos in (0, 1, 2):
        for _ in range(3):
            here.publish(f"up/{qos}", b"up", qos)
        got = [there.take() for _ in range(3)]
        assert [(one.topic, one.payload, one.qos) for one in got] == [(f"up/{qos}", b"up", qos)] * 3
        there.publish(f"down/{qos}", b"down", qos)
        one = here.take()
        assert (one.topic, one.payload, one.qos) == (f"down/{qos}", b"down", qos)
    here.publish("near/m/x", b"out", 1)
    assert there.got() == ("far/m/x", b"out")
    there.publish("far/m/x", b"back", 1)
    assert {here.got(), here.got()} == {("near/m/x", b"out"), ("near/m/x", b"back")}


def test_quotes_are_part_of_a_prefix(world: World, pair: Any) -> None:
    """Test as in Mosquitto 2.0 and 2.1: the prefix also ends at a blank."""
    near, far = pair(topics=('up/# out 1 "" "remote/"', 'two/# out 1 "" "re mote/"'))
    there = world.client(far, "there")
    there.subscribe('"remote/"up/#', '"retwo/#', qos=1)
    here = world.client(near, "here")
    here.publish("up/a", b"1", 1)
    here.publish("two/a", b"2", 1)
    assert {there.got() for _ in range(2)} == {('"remote/"up/a', b"1"), ('"retwo/a', b"2")}


def test_retained_messages_cross_in_both_directions(world: World, pair: Any) -> None:
    near, far = pair(topics=("r/# both 1",))
    here, there = world.client(near, "here"), world.client(far, "there")
    here.publish("r/here", b"h", 1, retain=True)
    there.publish("r/there", b"t", 1, retain=True)

    def kept(broker: Broker) -> set[tuple[str, bytes]]:
        late = world.client(broker, f"late{time.monotonic_ns()}")
        late.subscribe("r/#", qos=1)
        found = set()
        try:
            while True:
                one = late.take(0.1)
                if one.retain:              # otherwise it has just arrived
                    found.add((one.topic, one.payload))
        except TimeoutError:
            return found

    want = {("r/here", b"h"), ("r/there", b"t")}
    until(lambda: kept(near) == want)
    until(lambda: kept(far) == want)


def test_properties_cross_a_bridge_of_5_0(world: World, pair: Any) -> None:
    from tests.harness.properties import P

    near, far = pair("bridge_protocol_version mqttv50", topics=("# out 1",))
    there = world.client(far, "there", 5)
    there.subscribe("p", qos=1)
    props = ((P.CONTENT_TYPE, "text/plain"), (P.RESPONSE_TOPIC, "re"), (P.CORRELATION, b"\0c"), (P.USER, ("k", "v")))
    world.client(near, "here", 5).publish("p", b"x", 1, props=props)
    got = there.take()
    # our bridge adds the broker that the message passed
    assert {(key, value) for key, value in got.props if key != P.USER or value[0] != "mosq-via"} == set(props)


def test_notifications_in_both_brokers(world: World, pair: Any) -> None:
    near, far = pair("notifications true", "remote_clientid rc", topics=("x out 0",))
    for broker in (near, far):
        late = world.client(broker, "late")
        late.subscribe("$SYS/broker/connection/rc/state", qos=1)
        assert late.got() == ("$SYS/broker/connection/rc/state", b"1")


def test_mosquitto_recognizes_a_bridge(world: World) -> None:
    far = world.mosquitto()
    world.mosq(block(far.port, "remote_clientid rc"))
    far.logged("New bridge connected from .* as rc")


def test_credentials_of_a_bridge(world: World, tmp_path: Any) -> None:
    import subprocess

    passwords = tmp_path / "pw"
    subprocess.run(["mosquitto_passwd", "-c", "-b", str(passwords), "bridge", "secret"], check=True, capture_output=True)
    far = world.mosquitto(listener="user root\nlog_type all\nlistener {port} 127.0.0.1\npassword_file {dir}/pw\n", files={"pw": passwords.read_text()})
    near = world.mosq(block(far.port, "remote_username bridge", "remote_password wrong", "remote_clientid rc"))
    near.logged("not authorised")
    assert "wrong" not in near.log()
    near.rewrite("user root\nlog_type all\nlistener {port} 127.0.0.1\nallow_anonymous true\n"
                 + block(far.port, "remote_username bridge", "remote_password secret", "remote_clientid rc"))
    near.send_signal(1)
    far.logged("New bridge connected from .* as rc .*u'bridge'")
    assert "secret" not in near.log()


def test_messages_queued_while_the_bridge_was_offline(world: World) -> None:
    far = world.mosquitto("persistence false\n")
    near = world.mosq(block(far.port, topics=("q/# both 2", "joined out 0")))
    wait_for(near, far, world)
    far.stop()
    here = world.client(near, "here")
    for i in range(50):
        here.publish(f"q/{1 + i % 2}", b"%d" % i, 1 + i % 2)
    far.start()
    there = world.client(far, "there")
    there.subscribe("q/#", qos=2)
    got: dict[str, list[int]] = {"q/1": [], "q/2": []}
    while [numbers[-1:] for numbers in got.values()] != [[48], [49]]:
        topic, payload = there.got()
        got[topic].append(int(payload))
    for first, numbers in enumerate(got.values()):      # at the beginning the bridge may have been faster than the test
        assert numbers == list(range(numbers[0], 50, 2))
        assert numbers[0] % 2 == first


# ---------------------------------------------------------------- TLS

SECURE = "user root\nlog_type all\nlistener {port} 127.0.0.1\nallow_anonymous true\ncafile {dir}/ca.crt\ncertfile {dir}/server.crt\nkeyfile {dir}/server.key\n"


def tls_pair(world: World, *lines: str, far_lines: str = "", to: str = "localhost", listener: str = SECURE,
             files: dict[str, str] | None = None) -> tuple[Site, Mosquitto]:
    far = world.mosquitto(far_lines, {**server_files(), **(files or {})}, listener)
    near = world.mosq(block(f"{to}:{far.port}", "remote_clientid rc", *lines, topics=("# both 2",)), files={"ca.crt": authority().pem, **(files or {})})
    return near, far


def carries(world: World, near: Site, far: Mosquitto) -> None:
    """Check with messages that Mosquitto returns, because it has no plain listener for the test."""
    far.logged("New (bridge|client) connected from .* as rc")
    world.client(near).publish("t", b"x", 1)
    far.logged("Received PUBLISH from rc .*'t'")
    near.logged("Received PUBACK from .*")


@pytest.mark.parametrize("lines", [
    (), ("bridge_tls_version tlsv1.2",), ("bridge_tls_version tlsv1.3",), ("bridge_protocol_version mqttv50", "bridge_alpn mqtt"),
    ("bridge_ciphers ECDHE-ECDSA-AES128-GCM-SHA256", "bridge_ciphers_tls1.3 TLS_AES_128_GCM_SHA256")])
def test_tls(world: World, lines: tuple[str, ...]) -> None:
    near, far = tls_pair(world, "bridge_cafile {dir}/ca.crt", *lines)
    carries(world, near, far)


def test_tls_capath(world: World, tmp_path: Any) -> None:
    import subprocess

    (tmp_path / "ca.pem").write_text(authority().pem)
    subprocess.run(["openssl", "rehash", tmp_path], check=True, capture_output=True)
    carries(world, *tls_pair(world, f"bridge_capath {tmp_path}"))


def test_a_folder_of_authorities_may_come_later(world: World, tmp_path: Any) -> None:
    """mosq did not start without it. As with Mosquitto, the bridge trusts no broker until then."""
    import subprocess

    folder = tmp_path / "later"
    near, far = tls_pair(world, f"bridge_capath {folder}")
    near.logged(f"Warning: bridge_capath {folder} is no folder: until it is one, the bridge b trusts none of its authorities.")
    near.logged("certificate verify failed")
    assert "as rc" not in far.log()
    folder.mkdir()
    (folder / "ca.pem").write_text(authority().pem)
    subprocess.run(["openssl", "rehash", folder], check=True, capture_output=True)
    carries(world, near, far)


def test_tls_with_certificates_of_the_system(world: World, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ca.pem").write_text(authority().pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    carries(world, *tls_pair(world, "bridge_tls_use_os_certs true"))


def test_tls_certificate_of_the_bridge(world: World) -> None:
    _, certificate, key = authority().issue("the bridge")
    near, far = tls_pair(world, "bridge_cafile {dir}/ca.crt", "bridge_certfile {dir}/b.crt", "bridge_keyfile {dir}/b.key",
                         far_lines="require_certificate true\nuse_identity_as_username true\n", files={"b.crt": certificate, "b.key": key})
    carries(world, near, far)
    assert "u'the bridge'" in far.log()


def test_tls_by_another_authority_or_name(world: World) -> None:
    near, far = tls_pair(world, "bridge_cafile {dir}/other.crt", files={"other.crt": Authority().pem})
    near.logged("certificate verify failed")
    assert "as rc" not in far.log()


def test_tls_another_name_unless_bridge_insecure(world: World) -> None:
    near, far = tls_pair(world, "bridge_cafile {dir}/ca.crt", to="127.0.0.2")
    near.logged("could not connect to 127.0.0.2")
    assert "as rc" not in far.log()


def test_tls_bridge_insecure(world: World) -> None:
    """Test a certificate for localhost and 127.0.0.1."""
    listener = SECURE.replace("127.0.0.1", "0.0.0.0")
    near, far = tls_pair(world, "bridge_cafile {dir}/ca.crt", to="127.0.0.2", listener=listener)
    near.logged("mismatch")
    near, far = tls_pair(world, "bridge_cafile {dir}/ca.crt", "bridge_insecure true", to="127.0.0.2", listener=listener)
    carries(world, near, far)


def test_tls_bridge_require_ocsp(world: World) -> None:
    """Test the refusal only, because Mosquitto cannot staple: tests/net/test_outward.py has a server that can."""
    near, far = tls_pair(world, "bridge_cafile {dir}/ca.crt", "bridge_require_ocsp true")
    near.logged("invalid status response")
    assert "as rc" not in far.log()


def test_tls_pre_shared_key(world: World) -> None:
    listener = "user root\nlog_type all\nlistener {port} 127.0.0.1\nallow_anonymous true\npsk_hint h\npsk_file {dir}/psk\nuse_identity_as_username true\n"
    near, far = tls_pair(world, "bridge_identity one", f"bridge_psk {KEY}", listener=listener, files={"psk": f"one:{KEY}\n"})
    carries(world, near, far)
    assert "u'one'" in far.log()
    assert KEY not in near.log()
    near, far = tls_pair(world, "bridge_identity one", "bridge_psk 0011", listener=listener, files={"psk": f"one:{KEY}\n"})
    near.logged("could not connect")
    assert "as rc" not in far.log()


def test_a_bridge_of_mosquitto_connects_by_tls(world: World) -> None:
    site = Site("user root\nlog_type all\nlistener {port} 127.0.0.1\nallow_anonymous true\ncafile {dir}/ca.crt\ncertfile {dir}/server.crt\nkeyfile {dir}/server.key\n", server_files())
    world.stack.enter_context(site)
    near = world.mosquitto(block(f"localhost:{site.port}", "remote_clientid rc", "bridge_cafile {dir}/ca.crt"), {"ca.crt": authority().pem})
    site.logged("New bridge connected from .* as rc")
    client = Client(near.port, "here")
    client.publish("t", b"x", 1)
    site.logged("Received PUBLISH from rc .*'t'")
    client.close()
