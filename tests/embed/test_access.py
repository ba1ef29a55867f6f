"""Test password files, ACLs and plugins of a broker inside a program."""

import gc
import logging
import socket
import threading
import time

import pytest

import mosq
from mosq.auth.hashes import PBKDF2, new_hash
from mosq.auth.plugin import ALLOW, DENY, Plugin, allow_as
from tests.harness.packets import Connect, Puback, Publish
from tests.harness.wire import Wire


class Door(Plugin):
    """Accept clients that know the word, under another user name."""

    topics_in = ("in/#",)
    closed = 0

    def __init__(self, options):
        self.word = options["word"].encode()

    def authenticate(self, request):
        return allow_as("guest") if request.password == self.word else DENY

    def authorize(self, request):
        return DENY if request.topic == "no" else ALLOW

    def message_in(self, message):
        return message._replace(payload=message.payload.upper())

    def close(self):
        Door.closed += 1


class Refuses(Plugin):
    def __init__(self, options):
        raise ValueError("a word is missing")


PLUGIN = {"plugin": f"python:{__name__}:Door", "plugin_opt_word": "sesame"}


@pytest.fixture
def users(tmp_path):
    path = tmp_path / "passwd"
    path.write_text(f"ann:{new_hash(PBKDF2, b'secret', 10)}\n")
    return path


@pytest.fixture
def connect():
    made = []

    def connect(broker, user=None, password=None):
        """Return (connection, reason code)."""
        made.append(Wire(broker.port, 5))
        made[-1].send(Connect("c", username=user, password=password))
        return made[-1], made[-1].read_packet().rc

    yield connect
    for wire in made:
        wire.close()


def test_a_password_file(users, connect):
    with mosq.Broker(password_file=users, allow_anonymous=False) as broker:
        assert connect(broker, "ann", b"secret")[1] == 0
        for user, password in (("ann", b"wrong"), ("eve", b"secret"), ("ann", None), (None, None)):
            assert connect(broker, user, password)[1] == 0x87
        with broker.subscribe("t") as messages:         # the program itself is trusted
            broker.publish("t", b"x", qos=1)
            assert messages.get(5).payload == b"x"


@pytest.mark.one_process("counts plugins in the program; those of workers are in their processes")
def test_a_plugin_is_closed_and_leaves_no_thread(connect):
    closed, threads = Door.closed, threading.active_count()
    with mosq.Broker(**PLUGIN) as broker, broker.subscribe("#") as messages:
        assert connect(broker, "ann", b"secret")[1] == 0x87
        wire, code = connect(broker, "ann", b"sesame")
        assert code == 0
        assert [client["username"] for client in broker.clients()] == ["guest"]
        wire.send(Publish("no", b"x", 1, 1))
        wire.expect_packet(Puback(1, 0x87))
        wire.send(Publish("in/x", b"word", 1, 2))
        wire.expect_packet(Puback(2, 0))
        assert messages.get(5).payload == b"WORD"
    assert (Door.closed, threading.active_count()) == (closed + 1, threads)


def test_two_brokers_have_their_own(users, connect):
    with mosq.Broker(**PLUGIN) as one, mosq.Broker(password_file=users) as other, mosq.Broker() as open_to_all:
        codes = [[connect(broker, "ann", password)[1] for password in (b"sesame", b"secret")] for broker in (one, other, open_to_all)]
    assert codes == [[0, 0x87], [0x87, 0], [0, 0]]


def test_warnings_about_users_reach_the_logger(users, tmp_path, caplog):
    caplog.set_level(logging.INFO, "mosq")
    users.write_text(users.read_text() + "nonsense\n")
    with mosq.Broker(password_file=users):
        end = time.monotonic() + 5
        while "nonsense" not in caplog.text and "passwd" not in caplog.text:
            assert time.monotonic() < end
            time.sleep(0.01)
    assert "secret" not in caplog.text


@pytest.mark.parametrize(("options", "says"), [
    ({"password_file": "/no/such"}, "/no/such"), ({"plugin": "python:no.such:Class"}, "no.such"),
    ({"plugin": f"python:{__name__}:Refuses"}, "a word is missing"), ({"plugin": "/usr/lib/other.so"}, "its library cannot be loaded"),
])
def test_mistakes(options, says):
    threads = threading.active_count()
    with pytest.raises(mosq.ConfigError, match=says):
        mosq.Broker(**options).start()
    assert threading.active_count() == threads


@pytest.mark.one_process("counts plugins in the program; those of workers are in their processes")
def test_a_port_in_use_leaves_no_plugin_behind():
    closed = Door.closed
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = mosq.Broker(f"listener {taken.getsockname()[1]} 127.0.0.1\n", **PLUGIN)
        with pytest.raises(OSError, match="in use"):
            broker.start()
    assert Door.closed == closed + 1


@pytest.mark.one_process("counts plugins in the program; those of workers are in their processes")
def test_a_broker_that_is_forgotten_ends(connect):
    closed = Door.closed
    broker = mosq.Broker(**PLUGIN).start()
    assert connect(broker, "ann", b"sesame")[1] == 0
    del broker
    gc.collect()
    assert Door.closed == closed + 1
