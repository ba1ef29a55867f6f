"""Make certificates and keys for the site of test_effects.py and for its clients. Each kind is made once."""

import ssl
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.harness.certificates import Authority, authority, client_context, server_files

PSK_KEY = "0123456789abcdef"


@cache
def client_pem(kind: str) -> tuple[str, str]:
    """Return the files of a client: ann; gone: revoked; late: expired; other: of an unknown authority."""
    if kind == "gone":
        _, *pem = _gone()
    elif kind == "other":
        _, *pem = Authority().issue("other")
    else:
        _, *pem = authority().issue(kind, expired=kind == "late")
    return pem[0], pem[1]


@cache
def _gone() -> tuple[object, str, str]:
    return authority().issue("gone")


@cache
def context(kind: str | None = None) -> ssl.SSLContext:
    """Return the context of a client with that certificate. Callers must not change it."""
    with tempfile.TemporaryDirectory() as folder:
        return client_context(Path(folder), client_pem(kind) if kind else None)


@cache
def _hash() -> str:
    """Return the name by which OpenSSL finds the authority in a folder."""
    done = subprocess.run(["openssl", "x509", "-noout", "-subject_hash"], input=authority().pem, capture_output=True, text=True, check=True)
    return done.stdout.strip() + ".0"


def site_files(lines: str) -> dict[str, str]:
    """Return the files that these lines of a configuration need; none for a plain one, because keys take time."""
    files: dict[str, str] = {}
    if "psk" in lines:
        files["psk"] = f"ann:{PSK_KEY}\n"
    if "certfile" in lines:
        files |= server_files()
    if "crlfile" in lines:
        files["crl"] = authority().revoke(_gone()[0])       # type: ignore[arg-type]
    if "capath" in lines:
        files[_hash()] = authority().pem
    return files
