"""Test session tickets: which sessions may be resumed, how long a ticket lives, and the age of the keys that seal tickets.

In TLS 1.3 a client gets its ticket with the answer to its first packet; in TLS 1.2 during the handshake."""

from __future__ import annotations

import contextlib
import datetime
import signal
import socket
import ssl
import time
from pathlib import Path

import pytest

from cext.testing.tls_records_api import Keys
from tests.harness.broker import Broker
from tests.harness.certificates import TLS_LINES, Authority, authority, client_context, server_files
from tests.harness.effort import TIMEOUT_S
from tests.harness.packets import Connect

LISTENER = "log_type all\nlistener {port} 127.0.0.1\nallow_anonymous true\n"
CERTIFIED = LISTENER + TLS_LINES + "require_certificate true\nuse_identity_as_username true\n"
VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
LIFE_S = 7200
SECOND = datetime.timedelta(seconds=1)


def client(folder: Path, pem: tuple[str, ...], version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    context = client_context(folder, (pem[0], pem[1]))
    context.minimum_version = context.maximum_version = version
    return context


def visit(broker: Broker, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> tuple[bool, ssl.SSLSession]:
    """Connect; return whether the session was resumed, and the session for the next time. Raise if the broker refuses."""
    with (
        socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S) as tcp,
        context.wrap_socket(tcp, server_hostname="localhost", session=session) as sock,
    ):
        sock.sendall(Connect(client_id="visitor").encode(4))
        answer = sock.recv(4)
        if answer != b"\x20\x02\0\0":
            raise ConnectionError(f"the broker answered {answer!r}")
        assert sock.session is not None and sock.session_reused is not None
        return sock.session_reused, sock.session


def refused(broker: Broker, context: ssl.SSLContext, session: ssl.SSLSession) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError)):
        visit(broker, context, session)


def reloaded(broker: Broker) -> None:
    """Ask for a reload, and wait until it begins."""
    before = broker.log().count("Reloading config")
    broker.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + TIMEOUT_S
    while broker.log().count("Reloading config") == before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


# ---------------------------------------------------------------- certificates


@VERSIONS
def test_an_expired_certificate_cannot_resume(tmp_path: Path, version: ssl.TLSVersion) -> None:
    """Test a client that resumes after its certificate has expired, and one that still may. Each resumption gives a new ticket."""
    _, *lasting = authority().issue("lasting")
    with Broker(CERTIFIED, server_files()) as broker:
        ends = datetime.datetime.now(datetime.UTC).replace(microsecond=0) + 3 * SECOND
        _, *brief = authority().issue("brief", ends=ends)
        (tmp_path / "brief").mkdir()
        (tmp_path / "lasting").mkdir()
        contexts = client(tmp_path / "brief", tuple(brief), version), client(tmp_path / "lasting", tuple(lasting), version)
        sessions = [visit(broker, context)[1] for context in contexts]
        assert sessions[0].ticket_lifetime_hint <= 3
        first, sessions[0] = visit(broker, contexts[0], sessions[0])
        assert first, "a valid certificate resumes"
        time.sleep(max(0.0, (ends + 1.1 * SECOND - datetime.datetime.now(datetime.UTC)).total_seconds()))
        refused(broker, contexts[0], sessions[0])
        assert visit(broker, contexts[1], sessions[1])[0]


@VERSIONS
@pytest.mark.parametrize("ends_s", [600, LIFE_S * 2])
def test_a_ticket_ends_with_the_certificate(tmp_path: Path, version: ssl.TLSVersion, ends_s: int) -> None:
    ends = datetime.datetime.now(datetime.UTC) + ends_s * SECOND
    _, *pem = authority().issue("brief", ends=ends)
    with Broker(CERTIFIED, server_files()) as broker:
        context, session = client(tmp_path, tuple(pem), version), None
        for turn in range(3):
            reused, session = visit(broker, context, session)
            assert reused == (turn > 0)
            if version == ssl.TLSVersion.TLSv1_3 or not reused:  # TLS 1.2 sends no second lifetime
                left = min(LIFE_S, (ends - datetime.datetime.now(datetime.UTC)).total_seconds() + 1)
                assert left - 60 < session.ticket_lifetime_hint <= left


def test_a_ticket_ends_with_the_chain_of_the_certificate(tmp_path: Path) -> None:
    middle = Authority("middle", by=authority(), ends=datetime.datetime.now(datetime.UTC) + 600 * SECOND)
    _, certificate, key = middle.issue("below")
    with Broker(CERTIFIED, server_files()) as broker:
        _, session = visit(broker, client(tmp_path, (certificate + middle.pem, key)))
        assert 500 < session.ticket_lifetime_hint <= 600


@VERSIONS
def test_disabled_date_checks_apply_to_resumption(tmp_path: Path, version: ssl.TLSVersion) -> None:
    _, *late = authority().issue("late", expired=True)
    with Broker(CERTIFIED + "disable_client_cert_date_checks true\n", server_files()) as broker:
        context = client(tmp_path, tuple(late), version)
        _, session = visit(broker, context)
        assert session.ticket_lifetime_hint == LIFE_S
        assert visit(broker, context, session)[0]


@VERSIONS
def test_the_user_name_after_resumption_is_that_of_the_certificate(tmp_path: Path, version: ssl.TLSVersion) -> None:
    middle = Authority("middle", by=authority())
    _, certificate, key = middle.issue("Zoë")
    with Broker(CERTIFIED, server_files()) as broker:
        context, session = client(tmp_path, (certificate + middle.pem, key), version), None
        for turn in range(3):
            reused, session = visit(broker, context, session)
            assert reused == (turn > 0), "the chain below the authority is in the ticket"
        deadline = time.monotonic() + TIMEOUT_S
        while broker.log().count("u'Zoë'") < 3:
            assert time.monotonic() < deadline, broker.log()
            time.sleep(0.01)


def test_each_resumption_in_tls_1_3_gives_a_new_ticket() -> None:
    """Test that a client that uses each ticket once [RFC 8446 C.4] can go on; the session's id is a digest of its ticket."""
    with Broker(LISTENER + TLS_LINES, server_files()) as broker:
        context, seen = client_context(), set()
        _, session = visit(broker, context)
        for _ in range(3):
            seen.add(session.id)
            reused, session = visit(broker, context, session)
            assert reused and session.id not in seen


# ---------------------------------------------------------------- reload


@VERSIONS
def test_a_revocation_ends_resumption(tmp_path: Path, version: ssl.TLSVersion) -> None:
    """Test that a reload keeps the sessions of clients with certificates, but not those of revoked ones."""
    _, *staying = authority().issue("stays")
    goes, *going = authority().issue("goes")
    (tmp_path / "stays").mkdir()
    (tmp_path / "goes").mkdir()
    with Broker(CERTIFIED + "crlfile {dir}/crl\n", {**server_files(), "crl": authority().revoke()}) as broker:
        contexts = client(tmp_path / "stays", tuple(staying), version), client(tmp_path / "goes", tuple(going), version)
        sessions = [visit(broker, context)[1] for context in contexts]
        (broker.dir / "crl").write_text(authority().revoke(goes))
        reloaded(broker)
        deadline = time.monotonic() + TIMEOUT_S
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            while True:
                _, sessions[1] = visit(broker, contexts[1], sessions[1])
                assert time.monotonic() < deadline, "the revoked client still gets in"
        assert visit(broker, contexts[0], sessions[0])[0]


@VERSIONS
def test_a_removed_authority_ends_resumption(tmp_path: Path, version: ssl.TLSVersion) -> None:
    other = Authority("other")
    _, *pem = other.issue("guest")
    files = {**server_files(), "ca.crt": authority().pem + other.pem}
    with Broker(CERTIFIED, files) as broker:
        context = client(tmp_path, tuple(pem), version)
        _, session = visit(broker, context)
        (broker.dir / "ca.crt").write_text(authority().pem)
        reloaded(broker)
        deadline = time.monotonic() + TIMEOUT_S
        with contextlib.suppress(ssl.SSLError, ConnectionError):
            while True:
                _, session = visit(broker, context, session)
                assert time.monotonic() < deadline, "the client of the removed authority still gets in"


def test_a_reload_keeps_resumed_clients_below_a_chain(tmp_path: Path) -> None:
    """Test that the check of all clients after a reload knows the chain of a resumed one."""
    middle = Authority("middle", by=authority())
    _, certificate, key = middle.issue("below")
    with Broker(CERTIFIED, server_files()) as broker:
        context = client(tmp_path, (certificate + middle.pem, key))
        _, session = visit(broker, context)
        tcp = socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S)
        with context.wrap_socket(tcp, server_hostname="localhost", session=session) as sock:
            sock.sendall(Connect(client_id="stays").encode(4))
            assert sock.recv(4) == b"\x20\x02\0\0" and sock.session_reused
            for _ in range(3):
                reloaded(broker)
                visit(broker, context)
            sock.sendall(b"\xc0\0")
            assert sock.recv(2) == b"\xd0\0"


def test_a_certificate_requirement_that_a_reload_adds_ends_resumption(tmp_path: Path) -> None:
    with Broker(LISTENER + TLS_LINES, server_files()) as broker:
        _, *pem = authority().issue("has one")
        context = client(tmp_path, tuple(pem))
        _, session = visit(broker, context)
        broker.config.write_text(broker.config.read_text() + "require_certificate true\n")
        reloaded(broker)
        deadline = time.monotonic() + TIMEOUT_S
        reused = True
        while reused:
            assert time.monotonic() < deadline, "a session without certificate is resumed"
            with contextlib.suppress(ssl.SSLError, ConnectionError):     # the reload may end this connection
                reused, _ = visit(broker, context, session)


# ---------------------------------------------------------------- keys


def test_a_key_seals_and_opens_for_its_time() -> None:
    keys, begin = Keys(), 1_000_000
    name, secret = keys.seal(begin)
    assert keys.open(begin, name) == (1, secret)
    assert keys.seal(begin + LIFE_S - 1) == (name, secret)
    newer, other = keys.seal(begin + LIFE_S)
    assert newer != name and other != secret
    assert keys.open(begin + LIFE_S, name) == (2, secret), "the last ticket of the old key still has its lifetime"
    assert keys.open(begin + 2 * LIFE_S - 1, name) == (2, secret)
    assert keys.open(begin + 2 * LIFE_S, name) == (0, b"")
    assert not keys.holds(secret), "the old key is erased"


def test_a_key_that_seals_no_tickets_ages_too() -> None:
    keys, begin = Keys(), 1_000_000
    name, secret = keys.seal(begin)
    assert keys.open(begin + 5 * LIFE_S, name) == (0, b"")
    assert not keys.holds(secret)


def test_a_clock_that_goes_back_ends_a_key() -> None:
    keys, begin = Keys(), 1_000_000
    name, secret = keys.seal(begin)
    assert keys.seal(begin - 1)[0] != name
    assert keys.open(begin - 1, name) == (0, b"") and not keys.holds(secret)


def test_an_unknown_key_opens_nothing() -> None:
    keys = Keys()
    keys.seal(1_000_000)
    assert keys.open(1_000_000, bytes(16)) == (0, b"")


@VERSIONS
def test_tickets_of_another_listener_are_refused(version: ssl.TLSVersion) -> None:
    context = client_context()
    context.minimum_version = context.maximum_version = version
    with Broker(LISTENER + TLS_LINES, server_files()) as one, Broker(LISTENER + TLS_LINES, server_files()) as other:
        _, session = visit(one, context)
        reused, session = visit(other, context, session)
        assert not reused
        assert visit(other, context, session)[0]
