"""Test the effects of a configuration of Mosquitto: which clients get in, the limits of queues, why the broker does not start."""

import re
import subprocess
import sys
import time

import pytest

from mosq.auth.hashes import SHA512, new_hash
from tests.harness.broker import ROOT, Broker, free_port
from tests.harness.certificates import client_context, server_files
from tests.harness.effort import TIMEOUT_S
from tests.harness.packets import Connack, Connect, Disconnect, Pingreq, Pingresp, Puback, Publish, Subscribe
from tests.harness.wire import Wire

LISTENER = "listener {port} 127.0.0.1\n"
PAIR = "certfile {dir}/server.crt\nkeyfile {dir}/server.key\n"


def connack(broker, level=4, **fields):
    wire = Wire(broker.port, level)
    try:
        wire.send(Connect(**fields))
        return wire.read_packet()
    finally:
        wire.close()


def logged(broker, text, n=1):
    """Wait until n lines of the log have this text; return them."""
    deadline = time.monotonic() + TIMEOUT_S
    while len(lines := [line for line in broker.log().splitlines() if text in line]) < n:
        assert time.monotonic() < deadline, broker.log()
        time.sleep(0.005)
    return lines


def ended(config):
    """Run the broker with a file until it ends by itself."""
    return subprocess.run([sys.executable, "-m", "mosq", "-c", str(config)], cwd=ROOT, capture_output=True, text=True,
                          timeout=TIMEOUT_S, check=False)


# ---------------------------------------------------------------- logins

def test_a_password_of_zero_length_is_no_password():
    files = {"passwd": f"ann:{new_hash(SHA512, b'')}\nben:{new_hash(SHA512, b'x')}\n"}
    with Broker(LISTENER + "password_file {dir}/passwd\nallow_anonymous false\n", files) as broker:
        for user in ("ann", "ben", "joe"):
            for password in (b"", None):
                assert connack(broker, username=user, password=password).rc == 5
                assert connack(broker, 5, username=user, password=password).rc == 0x87
        assert connack(broker, username="ben", password=b"x").rc == 0


def test_clientid_prefixes_apply_to_ids_that_the_broker_makes():
    with Broker("clientid_prefixes dev-\n") as broker:
        assert connack(broker, client_id="").rc == 5
        assert connack(broker, 5, client_id="").rc == 0x87
        assert connack(broker, client_id="dev-1").rc == 0
    with Broker(LISTENER + "allow_anonymous true\nlistener_auto_id_prefix dev-\nclientid_prefixes dev-\n") as broker:
        found = connack(broker, 5, client_id="")
        assert isinstance(found, Connack) and found.rc == 0


def test_the_rules_for_ids_look_at_the_id_that_was_sent():
    """Test that use_username_as_clientid replaces the id only after the checks, with and without a look-up of passwords."""
    by_name = LISTENER + "allow_anonymous true\nuse_username_as_clientid true\nclientid_prefixes dev-\n"
    files = {"passwd": f"ann:{new_hash(SHA512, b'x')}\n"}
    for more in ("", "password_file {dir}/passwd\n"):
        with Broker(by_name + more, files) as broker:
            assert connack(broker, client_id="dev-1", username="ann", password=b"x").rc == 0
            assert connack(broker, client_id="other", username="ann", password=b"x").rc == 5
            assert connack(broker, client_id="", username="ann", password=b"x").rc == 5     # an id of auto_id_prefix
            assert connack(broker, client_id="", clean=False, username="ann", password=b"x").rc == 2
            assert connack(broker, client_id="dev-1").rc == 5
            logged(broker, " as ann (p4")
        prefixed = by_name.replace("clientid_prefixes", "listener_auto_id_prefix dev-\nclientid_prefixes")
        with Broker(prefixed + more, files) as broker:
            assert connack(broker, client_id="", username="ann", password=b"x").rc == 0
            logged(broker, " as ann (p4")


def test_scanners_of_logs_find_logins_that_a_pause_refuses():
    files = {"passwd": f"ann:{new_hash(SHA512, b'x')}\n"}
    with Broker(LISTENER + "password_file {dir}/passwd\nauth_backoff true\n", files) as broker:
        answers = [connack(broker, client_id="c", username="ann", password=b"wrong").rc for _ in range(40)]
        assert answers[0] == 5 and 3 in answers             # 3: refused without a look at the password
        for line in logged(broker, "Client c [", len(answers)):
            assert line.endswith("disconnected: not authorised.")
        assert "too many logins of its user name or address have failed, see auth_backoff" in broker.log()


def test_the_log_says_why_a_login_is_refused_that_no_password_would_change():
    """The line that scanners of logs look for stays as it is; the reason is a line of its own, and none for a wrong password."""
    files = {"passwd": f"ann:{new_hash(SHA512, b'x')}\n"}
    with Broker(LISTENER + "password_file {dir}/passwd\n", files) as broker:
        assert connack(broker, client_id="wrong", username="ann", password=b"y").rc == 5
        assert connack(broker, client_id="c").rc == 5
        assert connack(broker, 5, client_id="c").rc == 0x87
        for line in logged(broker, "Client c [", 2):
            assert line.endswith("disconnected: not authorised.")
        assert len(logged(broker, "refused: it sent no user name, and allow_anonymous is false.", 2)) == 2
        assert broker.log().count(" refused: ") == 2
    with Broker(LISTENER + "allow_anonymous false\n") as broker:
        assert connack(broker, client_id="c", username="ann", password=b"x").rc == 5
        logged(broker, "refused: allow_anonymous is false, and no password_file or plugin knows any user.")


@pytest.mark.parametrize("prefix", ["", "auto_id_prefix " + "x" * 50 + "\n"], ids=["default", "longest"])
def test_the_log_has_the_assigned_id_of_a_client_that_is_refused(prefix):
    """The line is written after the handler of CONNECT, which made the id, has returned."""
    files = {"passwd": f"ann:{new_hash(SHA512, b'x')}\n"}
    with Broker(LISTENER + prefix + "password_file {dir}/passwd\n", files) as broker:
        for words in ({}, {"username": "ann", "password": b"wrong"}):
            assert connack(broker, client_id="", **words).rc == 5
        start = "x" * 50 if prefix else "auto-"
        for line in logged(broker, "disconnected: not authorised.", 2):
            assert re.search(rf" Client ({start}[0-9A-F]{{8}}(-[0-9A-F]{{4}}){{3}}-[0-9A-F]{{12}}|127\S*) \[127", line), line


def test_a_listener_whose_certificates_no_authority_signs_starts_and_accepts_no_client():
    other = free_port()
    config = LISTENER + PAIR + f"require_certificate true\nlistener {other} 127.0.0.1\nallow_anonymous true\n"
    with Broker(config, server_files()) as broker:
        wire = Wire(broker.port, tls=client_context())
        with pytest.raises((OSError, AssertionError)):      # in TLS 1.3 the client notices it when it writes or reads
            wire.send(Connect()), wire.read_packet()
        wire.close()
        broker.port = other
        assert connack(broker).rc == 0
        assert "'require_certificate' without cafile or capath" in broker.log()


# ---------------------------------------------------------------- queues

def queued(broker, online, expected, n=60, size=100):
    """Return how many of n messages a subscriber gets that acknowledges nothing before all are sent."""
    reader = Wire(broker.port)
    reader.send(Connect("reader", clean=False), Subscribe(1, (("t", 1),)))
    reader.read_packet(), reader.read_packet()
    if not online:
        reader.send(Disconnect())
        reader.expect_closed()
        reader.close()
    writer = Wire(broker.port)
    writer.send(Connect("writer"), *(Publish("t", b"x" * size, 1, i + 1) for i in range(n)))
    for _ in range(n + 1):
        writer.read_packet()
    if not online:
        reader = Wire(broker.port)
        reader.send(Connect("reader", clean=False))
        reader.read_packet()
    got, new, deadline = 0, -1, time.monotonic() + TIMEOUT_S
    while new or (got < expected and time.monotonic() < deadline):      # a message on disk may take some rounds
        new = 0
        reader.send(Pingreq())
        while not isinstance(packet := reader.read_packet(), Pingresp):
            reader.send(Puback(packet.mid))
            new += 1
        got += new
    reader.close(), writer.close()
    return got


@pytest.mark.parametrize(("limits", "online", "offline"), [     # as Mosquitto 2.1 delivers
    ("max_queued_bytes 400", 24, 4), ("max_queued_bytes 450", 25, 5), ("max_queued_bytes 50", 21, 1),
    ("max_queued_bytes 400\nmax_inflight_messages 5", 9, 4), ("max_queued_bytes 400\nmax_inflight_bytes 300", 10, 4),
    ("max_inflight_bytes 300", 60, 60),
])
@pytest.mark.parametrize("persistence", [False, True])
def test_max_queued_bytes_counts_payloads_that_are_not_in_flight(limits, online, offline, persistence):
    config = limits + "\n" + ("persistence true\npersistence_location {dir}/\n" if persistence else "")
    with Broker(config) as broker:
        assert queued(broker, True, online) == online
    with Broker(config) as broker:
        assert queued(broker, False, offline) == offline


@pytest.mark.parametrize(("limit", "sent"), [(200, 1), (201, 2), (300, 2), (400, 2), (401, 3)])
def test_messages_are_sent_until_max_inflight_bytes_is_reached(limit, sent):
    """As in Mosquitto, the message that reaches the limit may exceed it."""
    with Broker(f"max_inflight_bytes {limit}\n") as broker:
        reader, writer = Wire(broker.port), Wire(broker.port)
        reader.send(Connect("reader"), Subscribe(1, (("t", 1),)))
        reader.read_packet(), reader.read_packet()
        writer.send(Connect("writer"), *(Publish("t", b"x" * 200, 1, i + 1) for i in range(5)))
        for _ in range(6):
            writer.read_packet()
        for i in range(sent):
            assert reader.read_packet().mid == i + 1
        reader.expect_nothing()
        reader.send(Puback(1))
        assert sent == 5 or reader.read_packet().mid == sent + 1
        reader.close(), writer.close()


# ---------------------------------------------------------------- exit statuses

CERTIFIED = "listener 1 127.0.0.1\n" + PAIR


@pytest.mark.parametrize(("lines", "status", "text"), [
    (CERTIFIED + "tls_version tlsv9", 1, "Error: Unsupported tls_version \"tlsv9\"."),
    (CERTIFIED + "ciphers none", 1, "Error: Unable to set TLS ciphers. Check cipher list \"none\"."),
    (CERTIFIED + "ciphers_tls1.3 none", 1, "Error: Unable to set TLS 1.3 ciphersuites. Check cipher_tls13 list \"none\"."),
    (CERTIFIED + "crlfile {dir}/none", 1, "Error: Unable to load certificate revocation file"),
    ("listener 1 127.0.0.1\npsk_hint h\npsk_file {dir}/none", 3, "Error: Unable to open pwfile"),
    ("listener 1 127.0.0.1\npassword_file {dir}/none", 3, "Error: Unable to open pwfile"),
    ("listener 1 127.0.0.1\nacl_file {dir}/none", 3, "Error: Unable to open acl_file"),
])
def test_a_status_of_1_or_3_when_the_broker_cannot_start(lines, status, text, tmp_path):
    for name, content in server_files().items():
        (tmp_path / name).write_text(content)
    config = tmp_path / "m.conf"
    config.write_text(lines.replace("{dir}", str(tmp_path)) + "\nuser root\n")
    done = ended(config)
    assert done.returncode == status, done.stderr
    assert text in done.stderr
