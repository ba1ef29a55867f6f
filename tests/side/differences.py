"""Define tables of the allowed differences between mosq and Mosquitto; both must agree in all other respects.

A deliberate difference names the row of docs/differences.md that documents it (its first cell).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# lines of either broker that the test does not compare: (pattern, why)
LEFT_OUT = (
    (r"(Bridge|Persistence|TLS|TLS-PSK|Websockets) support (NOT )?available\.", "each says what it has"),
    (r"Info: running (mosq|mosquitto) as user.*", "ours gives up root's rights after binding, so it says so later"),
    (r"Warning: Mosquitto should not be run as root/administrator\.", "beside the one above"),
    (r"Plugin builtin-security has registered .*", "how 2.1 is built inside"),
    (r"Note: It is recommended to replace .*|The '.*' option is now deprecated .*", "advice about options"),
    (r"Warning: File \S+ (has|owner|group) .*|To fix this, use .*|", "advice about the mode of files"),
    (r"Warning: No client can connect to the listener.*", "row:a listener that no client may use"),
    (r"Client from 127\.0\.0\.1:N refused: .*", "row:why a client is refused"),
    (r"ACL denying access to client with dangerous .*", "ours says so once, when it connects; Mosquitto at each use"),
)

# Log text of 2.1 that differs from 2.0 and mosq, anywhere in its log: (pattern, replacement, why)
OTHER_WORDS = (
    (r"^OpenSSL Error\S* ?.*unexpected eof while reading\n(Client 127\.0\.0\.1 .* disconnected: )Protocol error\.$", r"\1connection closed by client.",
     "row:a TLS connection that just ends"),
    (r"^OpenSSL Error.*unexpected eof while reading\n", "", "row:a TLS connection that just ends"),
    (r"^OpenSSL Error while trying to get the error\[", "OpenSSL Error[", "row:TLS: errors of OpenSSL in the log"),
)

# Log text of 2.0 and its equivalent in 2.1 and mosq: (pattern, replacement)
OLD_WORDS = (
    (r"^Client connection from 127\.0\.0\.1 failed: .*unexpected eof while reading\.$",
     "New connection from 127.0.0.1:N on port PORT.\nClient 127.0.0.1 [127.0.0.1:N] disconnected: connection closed by client."),
    (r"^Client connection from 127\.0\.0\.1 failed: (error:.*)\.$",
     r"New connection from 127.0.0.1:N on port PORT.\nOpenSSL Error[0]: \1\nClient 127.0.0.1 [127.0.0.1:N] disconnected: Protocol error."),
    (r"^Client <unknown> disconnected: (.*)$", r"Client 127.0.0.1 [127.0.0.1:N] disconnected: \1"),
    (r"\(p1, c", "(p3, c"),
    (r"(from 127\.0\.0\.1:N as .*) \(p2, c", r"\1 (p4, c"),
    (r"^Client <unknown> closed its connection\.$", "Client 127.0.0.1 [127.0.0.1:N] disconnected: connection closed by client."),
    (r"^Client (.*) closed its connection\.$", r"Client \1 [127.0.0.1:N] disconnected: connection closed by client."),
    (r"^Client <unknown> disconnected, not authorised\.$", "Client 127.0.0.1 [127.0.0.1:N] disconnected: not authorised."),
    (r"^Client <unknown> disconnected due to (.*)\.$", r"Client 127.0.0.1 [127.0.0.1:N] disconnected: \1."),
    (r"^Client (.*) disconnected due to (.*)\.$", r"Client \1 [127.0.0.1:N] disconnected: \2."),
    (r"^Client (.*) disconnected, not authorised\.$", r"Client \1 [127.0.0.1:N] disconnected: not authorised."),
    (r"^Client (\S+) disconnected\.$", r"Client \1 [127.0.0.1:N] disconnected."),
    (r"^Client (.*) already connected, closing old connection\.$", r"Client \1 [127.0.0.1:N] disconnected: session taken over."),
    (r"^Bad socket read/write on client (.*): Unknown error\.$", r"Client \1 [127.0.0.1:N] disconnected: bad socket read/write: Retain not supported"),
    (r"^Bad socket read/write on client (.*): (.*)\.$", r"Client \1 [127.0.0.1:N] disconnected: bad socket read/write: \2"),
    (r"^Bad client (.*) sending multiple CONNECT messages\.$", "Bad client 127.0.0.1:N sending multiple CONNECT messages."),
    (r"^Invalid protocol version (\d+) in CONNECT from 127\.0\.0\.1\.$", r"Protocol error from 127.0.0.1:N: CONNECT with invalid protocol version (\1)."),
    (r'^Invalid protocol "(.*)" in CONNECT from 127\.0\.0\.1\.$', r'Protocol error from 127.0.0.1:N: CONNECT with invalid protocol "\1".'),
    (r"^Invalid Will QoS in CONNECT from 127\.0\.0\.1\.$", "Protocol error from 127.0.0.1:N: CONNECT with invalid Will QoS (3)."),
    (r"QoS too high or retain not supported\.$", "used disallowed feature (QoS too high, retain not supported, or bad AUTH method)."),
)
# lines that 2.0 does not log
NEW_LINES = (
    r"Protocol error from .*: v3\.1 CONNECT with zero length clientid\.", r"Protocol error from .* when forbidden\.",
    r"Protocol error from .*: CONNECT with non-zero connect reserved flag .*", r"Protocol error from .* without username, .*",
    r"Protocol error from .*: First packet not CONNECT .*", r"Protocol error from .*: RESERVED packet\.",
    r"Client from .* appears to be using TLS to connect to a non-TLS listener\.",
    r"Client \S+ negotiated TLS\S+ cipher \S+",
    r"Invalid QoS in PUBLISH from .*", r"Too high QoS in PUBLISH from .*",
)


@dataclass(frozen=True)
class Difference:
    """A difference in one scene."""

    scene: str
    peers: str              # "2.0", "2.1" or both, separated by a blank
    parts: str              # the parts that differ: bytes, lines, status
    why: str                # "row:..." a row of docs/differences.md; else it is a change between 2.0 and 2.1


SCENES: tuple[Difference, ...] = (
    Difference("unknown level", "2.0", "bytes lines", "2.1 answers in 5.0, with 0x84"),
    Difference("authentication method that nobody knows", "2.0 2.1", "lines", "row:the client that a line about a refused client names"),
    Difference("anonymous where nobody may be, 3.1.1", "2.0", "lines", "2.0 names the address, 2.1 the client"),
    Difference("anonymous where nobody may be, 5.0", "2.0", "lines", "2.0 names the address, 2.1 the client"),
    Difference("keepalive over the maximum, 3.1.1", "2.0", "bytes lines", "2.0 lets it in"),
    Difference("keepalive over the maximum, 3.1.1", "2.1", "lines", "row:the client that a line about a refused client names"),
    Difference("keepalive over the maximum, 5.0", "2.0", "bytes", "the order of properties"),
    Difference("a publish with a wildcard", "2.0", "bytes lines", "2.1 calls it malformed"),
    Difference("taken over", "2.0", "bytes", "2.1 sends DISCONNECT 0x8E"),
    Difference("a session that is resumed", "2.1", "lines", "row:a session that is resumed"),
    Difference("more than may be in flight", "2.1", "lines", "row:`max_queued_messages`"),
    Difference("max_connections", "2.0", "bytes lines", "2.0 lets one more in"),
    Difference("acl", "2.0 2.1", "lines", "row:PUBACK of a denied PUBLISH of a 3.x client, in the log"),
    Difference("a name that is dangerous in a pattern", "2.0 2.1", "lines", "row:PUBACK of a denied PUBLISH of a 3.x client, in the log"),
    Difference("pre-shared keys", "2.1", "lines", "row:TLS-PSK"),
    Difference("WebSocket", "2.1", "lines", "row:`Opening websockets listen socket`"),
)


SCENES += tuple(Difference(f"passwords, {name}", "2.0", "lines", "2.0 names the address, 2.1 the client")
                for name in ("3.1.1", "5.0", "and anonymous clients too"))


def of_scene(scene: str, peer: str) -> set[str]:
    return {part for row in SCENES if row.scene == scene and peer in row.peers.split() for part in row.parts.split()}


def comparable(lines: list[str], peer: str, ours: bool) -> list[str]:
    left_out = [pattern for pattern, _ in LEFT_OUT]
    if not ours:
        text = "\n".join(lines)
        for pattern, replacement, _ in OTHER_WORDS:
            text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
        lines = text.split("\n")
    if peer == "2.0":
        left_out += NEW_LINES
        if not ours:
            lines = [line for old in lines for line in _in_new_words(old).split("\n")]
    return [line for line in lines if not any(re.fullmatch(pattern, line) for pattern in left_out)]


def _in_new_words(line: str) -> str:
    for pattern, replacement in OLD_WORDS:
        line = re.sub(pattern, replacement, line)
    return line
