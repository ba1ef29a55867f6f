"""Test a whole broker with password files and plugins, over its port."""

import os
import signal
import subprocess
import sys
import time

import pytest

from mosq.auth.hashes import PBKDF2, new_hash
from tests.harness.broker import ROOT, Broker
from tests.harness.effort import TIMEOUT_S as WAIT_S
from tests.harness.packets import Connect, Publish, Subscribe
from tests.harness.wire import Wire

LET_IN, REFUSED, REFUSED_5 = 0, 5, 0x87


def users(**passwords):
    return "".join(f"{user}:{new_hash(PBKDF2, password.encode(), 2)}\n" for user, password in passwords.items())


def connack(port, user, password, level=4, client_id="c"):
    """Return the connection and the code of its CONNACK."""
    wire = Wire(port, level)
    wire.send(Connect(client_id, username=user, password=None if password is None else password.encode()))
    return wire, wire.read_packet().rc


def login(port, user, password, level=4):
    wire, code = connack(port, user, password, level)
    wire.close()
    return code


def logged(broker, text):
    """Wait for a line of the log."""
    give_up = time.monotonic() + WAIT_S
    while text not in broker.log():
        assert time.monotonic() < give_up, broker.log()
        time.sleep(0.005)


def test_a_password_file():
    config = "listener {port} 127.0.0.1\npassword_file {dir}/passwd\nauth_backoff false\n"
    with Broker(config, {"passwd": users(ann="secret")}) as broker:
        for level, refused in ((3, REFUSED), (4, REFUSED), (5, REFUSED_5)):
            assert login(broker.port, "ann", "secret", level) == LET_IN
            assert login(broker.port, "ann", "wrong", level) == refused
            assert login(broker.port, "ben", "secret", level) == refused
            assert login(broker.port, None, None, level) == refused
        assert "secret" not in broker.log()


def test_allow_anonymous_applies_to_clients_without_a_name():
    with Broker("password_file {dir}/passwd\n", {"passwd": users(ann="secret")}) as broker:
        assert login(broker.port, None, None) == LET_IN
        assert login(broker.port, "ben", "x") == REFUSED
        assert login(broker.port, "ann", "secret") == LET_IN


def test_a_reload_adds_users_and_ends_clients_with_changed_passwords():
    config = "listener {port} 127.0.0.1\npassword_file {dir}/passwd\nauth_backoff false\n"
    with Broker(config, {"passwd": (kept := users(ben="2")) + users(ann="1")}) as broker:
        ann, code = connack(broker.port, "ann", "1", client_id="a")
        assert code == LET_IN
        ben, code = connack(broker.port, "ben", "2", client_id="b")
        assert code == LET_IN
        (broker.dir / "passwd").write_text(kept + users(ann="changed", cid="3"))
        broker.send_signal(signal.SIGHUP)
        ann.expect_closed()
        ann.close()
        ben.expect_nothing()
        assert login(broker.port, "ann", "1") == REFUSED
        assert login(broker.port, "ann", "changed") == LET_IN
        assert login(broker.port, "cid", "3") == LET_IN
        (broker.dir / "passwd").write_text("ann:plain\n")
        broker.send_signal(signal.SIGHUP)
        logged(broker, "is not hashed")
        assert login(broker.port, "cid", "3") == LET_IN
        ben.expect_nothing()
        ben.close()


def test_a_bad_password_file_ends_the_start_with_status_3(tmp_path):
    (tmp_path / "passwd").write_text("ann:plain\n")
    (tmp_path / "mosq.conf").write_text(f"listener 0 {tmp_path}/sock\npassword_file {tmp_path}/passwd\n")
    done = subprocess.run([sys.executable, "-m", "mosq", "-c", str(tmp_path / "mosq.conf")], cwd=ROOT, capture_output=True,
                          text=True, timeout=WAIT_S)
    assert done.returncode == 3
    assert f"{tmp_path}/passwd:1" in done.stderr
    assert "mosq passwd -U" in done.stderr


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    (tmp_path / "fleet.py").write_text('''
from mosq.auth.plugin import ALLOW, DEFER, DENY, DROP, Plugin, allow_as


class Fleet(Plugin):
    topics_in = ("in/#",)

    def __init__(self, options):
        self.key = options["key"].encode()

    def authenticate(self, request):
        if request.username is None:
            return ALLOW if request.client_id == "known" else DEFER
        return allow_as("robot") if request.password == self.key else DENY

    def authorize(self, request):
        return ALLOW if request.username == "robot" and not request.topic.startswith("no/") else DENY

    def message_in(self, message):
        return DROP if message.payload == b"drop" else message._replace(payload=message.payload.upper())
''')
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", ""))))


def test_a_plugin(fleet):
    config = "listener {port} 127.0.0.1\nplugin python:fleet:Fleet\nplugin_opt_key sesame\n"
    with Broker(config) as broker:
        assert login(broker.port, "ann", "wrong") == REFUSED
        assert login(broker.port, None, None) == REFUSED
        known, code = connack(broker.port, None, None, client_id="known")
        known.close()
        assert code == LET_IN
        wire, code = connack(broker.port, "ann", "sesame")
        assert code == LET_IN
        logged(broker, "u'robot'")
        wire.send(Subscribe(1, (("in/#", 0), ("no/#", 0), ("other", 0))))
        assert wire.read_packet().codes == (0, 0x80, 0)
        wire.send(Publish("in/a", b"drop"), Publish("in/a", b"word"), Publish("other", b"word"))
        assert [wire.read_packet().payload for _ in range(2)] == [b"WORD", b"word"]
        wire.close()


def test_sparkplug_certificates_are_retained():
    with Broker("plugin /usr/lib/mosquitto_sparkplug_aware.so\n") as broker:
        wire, _ = connack(broker.port, None, None)
        wire.send(Publish("spBv1.0/g/NBIRTH/n", b"birth", 1, 7))
        wire.read_packet()
        late, _ = connack(broker.port, None, None, client_id="late")
        late.send(Subscribe(1, (("$sparkplug/certificates/#", 1),)))
        late.read_packet()
        message = late.read_packet()
        assert (message.topic, message.payload, message.qos, message.retain) == (
            "$sparkplug/certificates/spBv1.0/g/NBIRTH/n", b"birth", 1, True)
        wire.close()
        late.close()


def test_logins_work_in_a_background_broker(tmp_path):
    """Test that the threads that hash start after the fork."""
    broker = Broker("listener {port} 127.0.0.1\npassword_file {dir}/passwd\npid_file {dir}/pid\n", {"passwd": users(ann="1")})
    try:
        subprocess.run([sys.executable, "-m", "mosq", "-d", "-c", str(broker.config)], cwd=ROOT, timeout=WAIT_S, check=True,
                       capture_output=True)
        pid = int((broker.dir / "pid").read_text())
        try:
            assert login(broker.port, "ann", "1") == LET_IN
            assert login(broker.port, "ann", "2") == REFUSED
        finally:
            os.kill(pid, signal.SIGTERM)
    finally:
        broker.close()


def test_the_wait_for_a_plugin_counts_for_the_expiry_of_a_message():
    """[v5 3.3.2-6]: the time that a message waits in the server is subtracted from its interval."""
    with Broker("listener {port} 127.0.0.1\nplugin python:tests.auth.plugins_of_tests:Delays\n") as broker:
        wires = reader, hasty, patient = [Wire(broker.port, 5) for _ in range(3)]
        for wire, name in zip(wires, ("reader", "hasty", "patient"), strict=True):
            wire.send(Connect(name, username="u", password=b"p"))
            assert wire.read_packet().rc == LET_IN
        reader.send(Subscribe(1, (("#", 0),)))
        reader.read_packet()
        hasty.send(Publish("late/1", b"too late", 1, 1, props=((2, 1),)))
        patient.send(Publish("late/2", b"in time", 1, 1, props=((2, 600),)))
        came = reader.read_packet()
        assert came.payload == b"in time" and 590 < dict(came.props)[2] <= 599
        for wire in wires:
            wire.close()
