"""Make certificates for tests when they are first needed: an authority, broker, clients, a revocation list."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def key_new() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: Key, password: bytes | None = None) -> str:
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption).decode()


def name_of(common_name: str | None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Acme, Inc")]
    if common_name is not None:
        parts.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
    return x509.Name(parts)


class Authority:
    """An authority; `by` is the authority that signs it, None = itself."""

    def __init__(self, name: str = "authority", by: Authority | None = None, ends: datetime.datetime | None = None) -> None:
        self.key = key_new()
        self.name = name_of(name)
        self.certificate = (
            (by or self)
            ._builder(self.name, self.key, NOW - DAY, ends or NOW + DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign((by or self).key, hashes.SHA256())
        )
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def _builder(
        self, name: x509.Name, key: Key, begins: datetime.datetime, ends: datetime.datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(ends)
        )

    def issue(
        self,
        common_name: str | None,
        expired: bool = False,
        key: Key | None = None,
        ends: datetime.datetime | None = None,
    ) -> tuple[x509.Certificate, str, str]:
        """Return (certificate, its PEM, PEM of its key), valid for 127.0.0.1 and localhost."""
        key = key or key_new()
        begins = NOW - 3 * DAY
        certificate = (
            self._builder(name_of(common_name), key, begins, ends or (NOW - DAY if expired else NOW + DAY))
            .add_extension(
                x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
            )
            .sign(self.key, hashes.SHA256())
        )
        return certificate, certificate.public_bytes(serialization.Encoding.PEM).decode(), key_pem(key)

    def revoke(self, *certificates: x509.Certificate) -> str:
        """Return a revocation list that names these certificates."""
        builder = x509.CertificateRevocationListBuilder().issuer_name(self.name).last_update(NOW - DAY).next_update(NOW + DAY)
        for certificate in certificates:
            revoked = x509.RevokedCertificateBuilder().serial_number(certificate.serial_number).revocation_date(NOW - DAY)
            builder = builder.add_revoked_certificate(revoked.build())
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


@cache
def authority() -> Authority:
    """Return the one authority of a test session."""
    return Authority()


@cache
def server_files() -> dict[str, str]:
    """Return the files that a broker with `TLS_LINES` needs in its folder: name to content."""
    _, certificate, key = authority().issue("localhost")
    return {"ca.crt": authority().pem, "server.crt": certificate, "server.key": key}


def server_paths(folder: Path) -> dict[str, str]:
    """Write the same files to this folder; return the options of a listener that uses them."""
    for name, content in server_files().items():
        (folder / name).write_text(content)
    return {"cafile": f"{folder}/ca.crt", "certfile": f"{folder}/server.crt", "keyfile": f"{folder}/server.key"}


TLS_LINES = "cafile {dir}/ca.crt\ncertfile {dir}/server.crt\nkeyfile {dir}/server.key\n"


def client_context(folder: Path | None = None, pem: tuple[str, str] | None = None, trust: Authority | None = None) -> ssl.SSLContext:
    """Return a context that trusts the authority; `pem` is the client's certificate and key, which are written to `folder`."""
    context = ssl.create_default_context(cadata=(trust or authority()).pem)
    if pem is not None:
        assert folder is not None
        (folder / "client.crt").write_text(pem[0])
        (folder / "client.key").write_text(pem[1])
        context.load_cert_chain(folder / "client.crt", folder / "client.key")
    return context


def client_by_hand(context: ssl.SSLContext, sock: socket.socket) -> tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
    """Shake hands as a client whose records the test carries; return the client, its input and its output.

    The output still holds the last flight of the handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    while True:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            sock.sendall(outgoing.read())
            incoming.write(sock.recv(65536))
        else:
            return tls, incoming, outgoing
