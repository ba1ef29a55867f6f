"""log_format json: each log line as one JSON object. Loaded only if the option asks for it.

  {"time": "2026-11-21T11:27:13.042Z", "ms": 1795260433042, "level": "notice", "code": "client_connected",
   "client": "s1", "address": "127.0.0.1", "port": 46060, "listener": 1883, "text": "New client connected ..."}

The client comes from the data plane, next to the text. The code is derived here from the wording: from the beginning of
the line, before any text that a client can choose, and first from endings that no client can write.
"""

import json
import re
import time

from mosq.log_types import LOG_TYPES, SUBSCRIBE, UNSUBSCRIBE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.records import LogLine

LEVELS = {bit: name for name, bit in LOG_TYPES.items()}

_ENDED = re.compile(r"Client .* \[[^\[\] ]*:\d+\] disconnected"
                    r"(?:: (?P<reason>[^\[\]]*?))?\.?", re.DOTALL)
_ENDS = tuple((code, re.compile(pattern, re.DOTALL)) for code, pattern in (
    ("tls_negotiated", r"Client .* negotiated \S+ cipher \S+"),
    ("will_too_large", r"Client .* connected with too large Will payload"),
    ("session_expired", r"Expiring client .* due to timeout\."),
    ("receive_maximum_exceeded", r"Client .* has exceeded its receive-maximum quota\..*"),
))
_BEGINNINGS = (
    ("connection_new", "New connection from "),
    ("client_connected", "New client connected from "),
    ("bridge_connected", "New bridge connected from "),
    ("connection_denied", "Client connection from "),
    ("tls_on_plain_listener", "Client from "),
    ("bad_client", "Bad client "),
    ("protocol_error", "Protocol error from "),
    ("publish_denied", "Denied PUBLISH from "),
    ("publish_dropped", "Dropped too large PUBLISH from "),
    ("subscribe_denied", "Denied SUBSCRIBE from "),
    ("messages_dropped", "Outgoing messages are being dropped for client "),
    ("publish_too_large", "Dropping too large outgoing PUBLISH for "),
    ("packet_id_reused", "Reused message ID "),
    ("packet_id_unknown", "Warning: Received "),
    ("invalid_subscription", "Invalid subscription string from "),
    ("invalid_publish", "Invalid PUBLISH "),
    ("acl_dangerous_name", "ACL denying access "),
    ("acl_pattern", "Warning: ACL pattern "),
    ("will_none", "No will message specified."),
    ("will", "Will message specified "),
    ("listener_open", "Opening "),
    ("config_loaded", "Config loaded from "),
    ("config_default", "Using default config."),
    ("config_reload", "Reloading config."),
    ("local_only", "Starting in local only mode."),
    ("no_descriptors", "Unable to accept new connection, "),
    ("user", "Info: running "),
    ("file_permissions", "Warning: File "),
    ("error", "Error"),
    ("warning", "Warning"),
)
_PACKET = re.compile(r"(Received|Sending) ([A-Z]+) ")         # publish_received, puback_sent
_VERSION = re.compile(r"mosq version \S+ (starting|running|terminating)")
_FEATURE = re.compile(r"(?:Bridge|Persistence|TLS|TLS-PSK|Websockets) support (?:NOT )?available\.")


def code_of(type_bit: int, text: str) -> str:
    """Return the stable name of a line's kind."""
    if type_bit in (SUBSCRIBE, UNSUBSCRIBE):
        return LEVELS[type_bit]
    if _ENDED.fullmatch(text):
        return "client_disconnected"
    for code, end in _ENDS:
        if end.fullmatch(text):
            return code
    for code, beginning in _BEGINNINGS:
        if text.startswith(beginning):
            return code
    packet = _PACKET.match(text)
    if packet:
        return f"{packet[2].lower()}_{'received' if packet[1] == 'Received' else 'sent'}"
    if text.startswith("\t"):
        return "detail"             # belongs to the line before it
    version = _VERSION.fullmatch(text)
    if version:
        return version[1]
    return "feature" if _FEATURE.fullmatch(text) else "other"


def json_line(record: "LogLine", worker: int = 0, node: str | None = None) -> str:
    """Return the record as JSON without a line break. `worker`: the number of the worker that logs it; 0: the broker is
    alone, or it is the parent of the workers. `node`: the name of this node of a cluster."""
    seconds, milliseconds, type_bit, text = record.seconds, record.milliseconds, record.type, record.text
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    line: dict[str, str | int] = {"time": f"{stamp}.{milliseconds:03d}Z", "ms": seconds * 1000 + milliseconds,
                                  "level": LEVELS.get(type_bit, "other"), "code": code_of(type_bit, text)}
    about: dict[str, str | int] = {"client": record.client_id, "address": record.address, "port": record.port,
                                   "listener": record.listener}
    if line["code"] == "client_disconnected":
        ended = _ENDED.fullmatch(text)
        about["reason"] = (ended and ended["reason"]) or ""
    elif line["code"] == "session_expired":
        about["client"] = text.removeprefix("Expiring client ").removesuffix(" due to timeout.")
    line |= {name: value for name, value in about.items() if value}
    if worker:
        line["worker"] = worker
    if node:
        line["node"] = node
    line["text"] = text
    return escaped(json.dumps(line, ensure_ascii=False))


def escaped(text: str) -> str:
    """Return the same JSON with an escape for each unprintable character, so that no name can control the terminal on
    which it is shown, or end a line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(c: str) -> str:
    return f"\\u{ord(c):04x}" if ord(c) < 1 << 16 else json.dumps(c)[1:-1]
