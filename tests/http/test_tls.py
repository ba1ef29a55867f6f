"""Test TLS of HTTP listeners: the options of the listener, and clients that do not finish the handshake."""

from __future__ import annotations

import contextlib
import resource
import ssl

import pytest

from mosq.config.model import Listener
from mosq.server.http import connections
from mosq.server.http.listeners import open_listeners
from tests.harness.certificates import authority, client_context, server_paths

HEALTH = b"GET /api/v1/health HTTP/1.1\r\nHost: x\r\n\r\n"


def answer(server, context, session=None):
    """Return the first bytes of the answer, the session, and whether it was resumed. Raises OSError if the server refuses the client."""
    with server.connect() as plain, context.wrap_socket(plain, server_hostname="localhost", session=session) as sock:
        sock.sendall(HEALTH)
        out = sock.recv(12)             # a TLS 1.3 client learns here that its certificate was refused
        if not out:
            raise ConnectionResetError
        return out, sock.session, sock.session_reused


@pytest.mark.parametrize(("options", "version", "ciphers", "allowed"), [
    ({}, ssl.TLSVersion.TLSv1_2, None, True), ({}, ssl.TLSVersion.TLSv1_3, None, True),
    ({"tls_version": "tlsv1.3"}, ssl.TLSVersion.TLSv1_2, None, False), ({"tls_version": "tlsv1.3"}, ssl.TLSVersion.TLSv1_3, None, True),
    ({"ciphers": "ECDHE-ECDSA-AES256-GCM-SHA384"}, ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES256-GCM-SHA384", True),
    ({"ciphers": "ECDHE-ECDSA-AES256-GCM-SHA384"}, ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-GCM-SHA256", False),
])
def test_version_and_ciphers_of_the_listener_are_in_force(serve, tmp_path, options, version, ciphers, allowed):
    server = serve(**server_paths(tmp_path), **options)
    context = client_context()
    context.minimum_version = context.maximum_version = version
    if ciphers:
        context.set_ciphers(ciphers)
    if allowed:
        assert answer(server, context)[0] == b"HTTP/1.1 200"
    else:
        with pytest.raises(ssl.SSLError):
            answer(server, context)


def test_certificates_of_clients_are_checked(serve, tmp_path):
    _, pem, key = authority().issue("ann")
    revoked, revoked_pem, revoked_key = authority().issue("eve")
    _, old_pem, old_key = authority().issue("old", expired=True)
    (tmp_path / "crl").write_text(authority().revoke(revoked))
    server = serve(**server_paths(tmp_path), require_certificate=True, crlfile=str(tmp_path / "crl"))
    assert answer(server, client_context(tmp_path, (pem, key)))[0] == b"HTTP/1.1 200"
    for context in (client_context(), client_context(tmp_path, (revoked_pem, revoked_key)), client_context(tmp_path, (old_pem, old_key))):
        with pytest.raises(OSError):
            answer(server, context)


def test_expired_certificates_are_accepted_on_demand(serve, tmp_path):
    _, pem, key = authority().issue("old", expired=True)
    server = serve(**server_paths(tmp_path), require_certificate=True, disable_client_cert_date_checks=True)
    assert answer(server, client_context(tmp_path, (pem, key)))[0] == b"HTTP/1.1 200"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_server_gives_no_session_tickets(serve, tmp_path, version):
    server = serve(**server_paths(tmp_path))
    context = client_context()
    context.maximum_version = version
    _, session, _ = answer(server, context)
    assert session is None or not session.has_ticket


def test_a_resumed_session_whose_certificate_has_expired_is_refused(serve, tmp_path, monkeypatch):
    _, pem, key = authority().issue("ann")
    server = serve(**server_paths(tmp_path), require_certificate=True)
    context = client_context(tmp_path, (pem, key))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    session = answer(server, context)[1]
    assert answer(server, context, session)[::2] == (b"HTTP/1.1 200", True)
    monkeypatch.setattr(connections, "time", lambda: ssl.cert_time_to_seconds("Jan  1 00:00:00 2100 GMT"))
    with pytest.raises(OSError):
        answer(server, context, session)
    assert answer(server, context)[0] == b"HTTP/1.1 200"        # a whole handshake asks OpenSSL, whose clock is right


@pytest.mark.parametrize("n", [connections.CONNECTIONS_MAX, 500])
def test_health_answers_beside_half_handshakes(serve, tmp_path, n):
    server = serve(**server_paths(tmp_path))
    hello = client_hello()
    with contextlib.ExitStack() as stack:
        for i in range(n):
            with contextlib.suppress(ConnectionError):
                stack.enter_context(server.connect(hello if i % 2 else hello[:100]))
        for _ in range(3):
            assert answer(server, client_context())[0] == b"HTTP/1.1 200"
        assert server.listeners[0].n <= connections.CONNECTIONS_MAX


def client_hello():
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        client_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(("options", "error"), [
    ({"ciphers": "NONSENSE"}, r'Unable to set TLS ciphers\. Check cipher list "NONSENSE"'),
    ({"require_certificate": True, "cafile": None}, "require_certificate needs cafile or capath"),
    ({"require_certificate": True, "cafile": "/none"}, 'Check cafile "/none" .*: No such file'),
    ({"require_certificate": True, "crlfile": "/none"}, 'Unable to load certificate revocation file "/none".* No such file'),
    ({"keyfile": "/none"}, "Unable to load server certificate .* No such file"),
])
def test_errors_name_the_option_and_the_file(tmp_path, options, error):
    listener = Listener(0, "127.0.0.1")
    for name, value in {**server_paths(tmp_path), **options}.items():
        setattr(listener, name, value)
    with pytest.raises(OSError, match=error):
        open_listeners([listener], [])


def test_an_option_without_effect_is_a_warning(tmp_path):
    plain, secret = Listener(0, "127.0.0.1"), Listener(0, "127.0.0.1")
    plain.psk_hint = "hint"
    for name, value in {**server_paths(tmp_path), "ciphers_tls1.3": "TLS_AES_128_GCM_SHA256"}.items():
        setattr(secret, name, value)
    opened = open_listeners([plain, secret], [])
    assert "psk_hint has no effect" in opened[0].warnings[0]
    assert "ciphers_tls1.3 has no effect" in opened[1].warnings[0]
    for one in opened:
        one.close()


@pytest.mark.timing
def test_slow_readers_by_tls_cost_little_memory(serve, tmp_path):
    server = serve(**server_paths(tmp_path))
    assert answer(server, client_context())[0] == b"HTTP/1.1 200"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with contextlib.ExitStack() as stack:
        for _ in range(connections.CONNECTIONS_MAX):
            plain = stack.enter_context(server.connect(receive_bytes=4096))
            sock = stack.enter_context(client_context().wrap_socket(plain, server_hostname="localhost"))
            sock.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
            assert sock.recv(1)
        assert answer(server, client_context())[0] == b"HTTP/1.1 200"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < connections.CONNECTIONS_MAX * 1024      # both sides
