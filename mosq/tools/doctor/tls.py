"""Examine certificates, keys and TLS versions for `mosq doctor`.

This module opens the files, and shows nothing of a key.
"""

from mosq.config.files import FILE, Pointer
from mosq.config.model import Config, Listener

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Found = tuple[str, object, str]     # text, origin, advice

SOON_S = 30 * 86400
DAY_S = 86400
WEAK_VERSIONS = ("tlsv1", "tlsv1.0", "tlsv1.1", "sslv3")
KNOWN_VERSIONS = ("tlsv1.2", "tlsv1.3")
WEAK_CIPHERS = ("RC4", "DES", "3DES", "NULL", "eNULL", "aNULL", "EXPORT", "EXP", "MD5", "LOW")


def tls_findings(config: Config) -> "list[Found]":
    found: list[Found] = []
    for listener in config.listeners:
        found += _versions(listener)
        found += _ciphers(listener)
        if listener.certfile is not None and listener.keyfile is not None:
            found += _certificate(listener)
        if listener.require_certificate and listener.cafile is None and listener.capath is None:
            found.append((f"listener {listener.where} requires certificates but trusts no authority: no client gets in",
                          listener.origins.get("require_certificate"), "Add a cafile."))
    for bridge in config.bridges:
        if bridge.bridge_insecure:
            found.append((f"bridge {bridge.name} does not check the other broker's name (bridge_insecure)",
                          bridge.origins.get("bridge_insecure"),
                          "Remove the line, and use the name in the certificate."))
        if (bridge.remote_password or bridge.bridge_psk) and not bridge.tls and not bridge.bridge_psk:
            found.append((f"bridge {bridge.name} sends its password without TLS", bridge.origin, "Add bridge_cafile."))
    return found


def _versions(listener: Listener) -> "Iterator[Found]":
    version = listener.tls_version
    if version is None or version in KNOWN_VERSIONS:
        return
    origin = listener.origins.get("tls_version")
    if version in WEAK_VERSIONS:
        yield f"tls_version {version} is broken, and OpenSSL refuses it", origin, "Write tlsv1.2 or remove the line."
    else:
        effect = "the broker will not start" if listener.tls else "the listener has no TLS, so it has no effect"
        yield f"tls_version {version} is unknown: {effect}", origin, "Write tlsv1.2 or tlsv1.3."


def _ciphers(listener: Listener) -> "Iterator[Found]":
    words = (listener.ciphers or "").replace(",", ":").replace(" ", ":").split(":")
    weak = [word for word in words if word and word[0] not in "!-"
            and set(word.lstrip("+").replace("_", "-").split("-")) & set(WEAK_CIPHERS)]
    if weak:
        yield (f"ciphers of listener {listener.where} name broken ones: {', '.join(weak[:5])}",
               listener.origins.get("ciphers"), "Remove the line: OpenSSL's own choice is good.")


def _certificate(listener: Listener) -> "Iterator[Found]":
    import ssl

    certfile, keyfile = listener.certfile or "", listener.keyfile or ""
    origin = listener.origins.get("certfile")
    if not all(Pointer("certfile", path, FILE, None).readable for path in (certfile, keyfile)):
        return                          # another finding reports it
    try:
        # without this function OpenSSL would ask for a password on the terminal
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certfile, keyfile, password=lambda: b"")
    except ssl.SSLError as error:
        yield _unusable(certfile, keyfile, error), origin, "The broker will not start with them."
    except (OSError, ValueError) as error:
        yield f"certfile {certfile} or keyfile {keyfile} cannot be used: {error}", origin, ""
    yield from _dates(ssl, certfile, origin)


def _unusable(certfile: str, keyfile: str, error: Exception) -> str:
    reason = getattr(error, "reason", None) or ""
    if reason == "KEY_VALUES_MISMATCH":
        return f"certfile {certfile} and keyfile {keyfile} do not belong together"
    if "DECRYPT" in reason or "PASSWORD" in reason:
        return f"keyfile {keyfile} is protected by a password, which the broker cannot enter"
    return f"certfile {certfile} or keyfile {keyfile} cannot be used ({reason.replace('_', ' ').lower() or 'not PEM'})"


def _dates(ssl: object, certfile: str, origin: object) -> "Iterator[Found]":
    import time

    decode = getattr(getattr(ssl, "_ssl", None), "_test_decode_cert", None)     # ssl has no public one
    to_seconds = getattr(ssl, "cert_time_to_seconds", None)
    if decode is None or to_seconds is None:
        return
    try:
        dates = decode(certfile)
        begins_s, ends_s = to_seconds(dates["notBefore"]), to_seconds(dates["notAfter"])
    except Exception:                   # an earlier finding reports the problem
        return
    left_s = ends_s - time.time()
    if left_s < 0:
        yield f"certfile {certfile} has expired on {dates['notAfter']}", origin, "Get a new one."
    elif begins_s > time.time():
        yield f"certfile {certfile} is not valid before {dates['notBefore']}", origin, ""
    elif left_s < SOON_S:
        yield f"certfile {certfile} expires in {int(left_s // DAY_S)} days", origin, "Get a new one; SIGHUP loads it."
