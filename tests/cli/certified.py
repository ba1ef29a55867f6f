"""Certificates and keys of the site of test_effects.py, and of its clients. Each kind is made once."""

import ssl
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.harness.certificates import Authority, authority, client_context, server_files

PSK_KEY = "0123456789abcdef"


@cache
def client_pem(kind: str) -> tuple[str, str]:
    """ann; gone: revoked; late: expired; other: of an authority that nobody knows."""
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
    """Of a client with that certificate. Do not change it."""
    with tempfile.TemporaryDirectory() as folder:
        return client_context(Path(folder), client_pem(kind) if kind else None)


@cache
def _hash() -> str:
    """The name by which OpenSSL looks for the authority in a folder."""
    done = subprocess.run(["openssl", "x509", "-noout", "-subject_hash"], input=authority().pem, capture_output=True, text=True, check=True)
    return done.stdout.strip() + ".0"


def site_files(lines: str) -> dict[str, str]:
    """What these lines of a configuration need; nothing for a plain one, since keys take time."""
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
