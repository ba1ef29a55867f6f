"""Prepare the TLS context and the WebSocket handshake of a Generator.

The TLS contexts are those of bridges, because bridges are TLS clients as well.
"""

from __future__ import annotations

import base64
import hashlib
import os
from typing import TYPE_CHECKING, TypedDict

from mosq.tools.bench.spec import BenchError

if TYPE_CHECKING:
    from mosq.tools.bench.spec import Spec

    class Transport(TypedDict, total=False):
        tls_context: int
        host: bytes
        request: bytes
        accept: bytes

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"      # [RFC 6455 1.3]
# words for the options of bridges, which the errors contain, and the matching options of `mosq bench`
OURS = {"bridge_cafile": "--cafile", "bridge_certfile": "--cert", "bridge_keyfile": "--key",
        "bridge_identity": "--psk-identity", "bridge_psk": "--psk", "bridge's": "client's"}


def transport(spec: Spec) -> Transport:
    """Return the arguments of a Generator for TLS and WebSocket. Raises BenchError for wrong names and files."""
    found: Transport = {}
    if spec.tls:
        host = _name(spec.servername or spec.host.partition("%")[0])
        found = {"tls_context": _context(spec), "host": host}
    if spec.ws:
        found["request"], found["accept"] = handshake(spec)
    return found


def _name(host: str) -> bytes:
    try:
        return host.encode("idna")
    except UnicodeError:
        raise BenchError(f"{host} is not a valid host name") from None


def _context(spec: Spec) -> int:
    """Return a TLS context. The caller owns the reference."""
    from mosq._tls import outward_new

    try:
        return int(outward_new({
            "cafile": spec.cafile, "certfile": spec.cert, "keyfile": spec.key, "insecure": spec.insecure,
            "use_os_certs": spec.cafile is None, "identity": spec.psk_identity, "psk": spec.psk}))
    except (OSError, ValueError) as error:
        text = str(error)
        for theirs, ours in OURS.items():
            text = text.replace(theirs, ours)
        raise BenchError(text.rstrip(".")) from None


def handshake(spec: Spec) -> tuple[bytes, bytes]:
    """Return the request, and the Sec-WebSocket-Accept that must answer it [RFC 6455 4.1].

    All clients of a run use the same.
    """
    key = base64.b64encode(os.urandom(16))
    host = f"[{spec.host}]" if ":" in spec.host else spec.host
    request = (f"GET {spec.ws_path} HTTP/1.1\r\nHost: {host}:{spec.port}\r\nUpgrade: websocket\r\n"
               f"Connection: Upgrade\r\nSec-WebSocket-Key: {key.decode()}\r\nSec-WebSocket-Version: 13\r\n"
               "Sec-WebSocket-Protocol: mqtt\r\n\r\n")
    return request.encode(), base64.b64encode(hashlib.sha1(key + GUID).digest())
