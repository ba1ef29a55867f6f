"""Test the effects of the TLS options; see test_effects.py."""

import contextlib
import socket
import ssl
import subprocess

from tests.cli.certified import PSK_KEY, context
from tests.cli.site import Check, Client, Site
from tests.harness.certificates import TLS_LINES, client_context
from tests.harness.packets import Connect

HERE = "listener {port} 127.0.0.1\nallow_anonymous true\n"
SECURE = HERE + TLS_LINES
NO_CA = SECURE.replace("cafile {dir}/ca.crt\n", "")
PSK = HERE.replace("allow_anonymous true", "allow_anonymous false") + "use_identity_as_username true\npsk_hint h\npsk_file {dir}/psk\n"


def lets_in(b: Site, kind: str | None = None) -> bool:
    return Client(b, kind or "nobody", tls=context(kind)).connack.rc == 0


def shuts_out(b: Site, how: ssl.SSLContext) -> bool:
    """Return whether the handshake fails; in TLS 1.3 a client notices this when it reads."""
    with (contextlib.suppress(ssl.SSLError, ConnectionError), socket.create_connection(("127.0.0.1", b.port), timeout=5) as tcp,
          how.wrap_socket(tcp, server_hostname="localhost") as sock):
        sock.sendall(Connect(client_id="never").encode(4))
        return sock.recv(100) == b""
    return True


def certificates(good: tuple[str, ...], *bad: str | None) -> Check:
    return lambda b: all(lets_in(b, kind) for kind in good) and all(shuts_out(b, context(kind)) for kind in bad)


def user_name(said: str) -> Check:
    def check(b: Site) -> bool:
        lets_in(b, "ann")
        b.stop()
        return said in b.output()
    return check


def cipher(name: str, version: ssl.TLSVersion) -> Check:
    def check(b: Site) -> bool:
        how = client_context()
        how.maximum_version = version
        sock = Client(b, tls=how).sock
        assert isinstance(sock, ssl.SSLSocket)
        found = sock.cipher()
        return found is not None and found[0] == name
    return check


def _newer_only(b: Site) -> bool:
    old = client_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    return lets_in(b) and shuts_out(b, old)


def _psk(b: Site) -> bool:
    """Test with Mosquitto's client: this Python's ssl has no pre-shared keys."""
    def publishes(key: str) -> bool:
        done = subprocess.run(["mosquitto_pub", "-h", "localhost", "-p", str(b.port), "-i", "p", "-t", "a", "-m", "x", "-q", "1",
                               "--psk-identity", "ann", "--psk", key], capture_output=True, timeout=10, check=False)
        return done.returncode == 0
    return publishes(PSK_KEY) and not publishes("00") and "u'ann'" in b.output()


OF_TLS: dict[str, tuple[str, Check]] = {
    "certfile": (SECURE, certificates(("ann",))),
    "keyfile": (SECURE, certificates(("ann",))),
    "tls_keyform": (SECURE + "tls_keyform pem", certificates(("ann",))),
    "cafile": (SECURE + "require_certificate true", certificates(("ann",), "other")),
    "capath": (NO_CA + "capath {dir}\nrequire_certificate true", certificates(("ann",), "other")),
    "crlfile": (SECURE + "require_certificate true\ncrlfile {dir}/crl", certificates(("ann",), "gone")),
    "require_certificate": (SECURE + "require_certificate true", certificates(("ann",), None)),
    "disable_client_cert_date_checks": (SECURE + "require_certificate true\ndisable_client_cert_date_checks true",
                                        certificates(("ann", "late"), "other")),
    "use_identity_as_username": (SECURE + "require_certificate true\nuse_identity_as_username true", user_name("u'ann'")),
    "use_subject_as_username": (SECURE + "require_certificate true\nuse_subject_as_username true", user_name(r"u'CN=ann,O=Acme\, Inc'")),
    "ciphers": (SECURE + "ciphers ECDHE-ECDSA-CHACHA20-POLY1305", cipher("ECDHE-ECDSA-CHACHA20-POLY1305", ssl.TLSVersion.TLSv1_2)),
    "ciphers_tls1.3": (SECURE + "ciphers_tls1.3 TLS_CHACHA20_POLY1305_SHA256",
                       cipher("TLS_CHACHA20_POLY1305_SHA256", ssl.TLSVersion.TLSv1_3)),
    "tls_version": (SECURE + "tls_version tlsv1.3", _newer_only),
    "psk_hint": (PSK, _psk),
    "psk_file": (PSK, _psk),
}
