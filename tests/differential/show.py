"""Show a session for people: what each client sent, and what both brokers sent, as bytes and as packets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.differential.heard import Item
from tests.differential.rules import Difference
from tests.differential.side import Heard, frames
from tests.fuzz.sessions.steps import Step
from tests.harness.packets import Connack, Disconnect, Publish, Suback

NAMES = ["", "CONNECT", "", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBSCRIBE", "", "UNSUBSCRIBE", "", "PINGREQ", "", "DISCONNECT", "AUTH"]
LONG = 240              # characters of a packet that are shown


def sent(step: Step) -> str:
    """Return the types of the packets that a step sends."""
    if step[0] == "open":
        return f"CONNECT {step[2]}"
    if step[0] == "send":
        return " ".join(NAMES[one[0] >> 4] for one in frames(bytes.fromhex(step[2])))
    return f"close {step[2]}" if step[0] == "close" else str(step[0])


def brief(key: Any) -> str:
    """Return the type of a packet with its reason code."""
    name = key.split(" ")[0] if isinstance(key, str) else type(key).__name__
    if isinstance(key, Connack):
        return f"{name} {key.rc:#04x}{' present' if key.session else ''}"
    if isinstance(key, Suback):
        return f"{name} {','.join(f'{code:#04x}' for code in key.codes)}"
    if isinstance(key, Publish):
        return f"{name} q{key.qos}{' retain' * key.retain}{' dup' * key.dup}"
    return f"{name} {key.rc:#04x}" if isinstance(key, Disconnect) or hasattr(key, "rc") else name


def cause_of(difference: Difference) -> str:
    """Return in one line what a difference has in common with others of the same cause."""
    last = difference.steps[-1]
    ours, theirs = difference.differing()[0]
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    a, b = (brief(keys[at]) if at < len(keys) else "nothing" for keys in (ours, theirs))
    if a == b:
        fields = {name for name in vars(ours[at]) if getattr(ours[at], name) != getattr(theirs[at], name)}
        a = f"{a}, other {' '.join(sorted(fields))}"
        b = "the same"
    packet = sent(last).split(" ")
    return f"after {packet[0] if last[0] != 'open' else sent(last)}: mosq {a}; Mosquitto {b}"


def shown(record: list[tuple[Step, Heard, Heard]]) -> str:
    lines = []
    for i, (step, ours, theirs) in enumerate(record, 1):
        lines.append(f"{i}. {step[0]} {step[1]} {step[2] if step[0] in ('answer', 'close') else ''}".rstrip())
        lines += [f"     -> {NAMES[one[0] >> 4]:10} {_cut(one.hex())}  {_text(one)}" for one in _packets(step)]
        for n in sorted({*ours, *theirs}):
            a, b = ours.get(n, []), theirs.get(n, [])
            same = 0            # what both have sent at first
            while same < min(len(a), len(b)) and a[same].key == b[same].key:
                same += 1
            lines += [f"   {n} <- {_shown(one)}" for one in a[:same]]
            a, b = a[same:], b[same:]
            if a or b:
                lines += [f"   {n} <- mosq       {_shown(one)}" for one in a] or [f"   {n} <- mosq       nothing"]
                lines += [f"   {n} <- Mosquitto  {_shown(one)}" for one in b] or [f"   {n} <- Mosquitto  nothing"]
    return "\n".join(lines)


def _packets(step: Step) -> list[bytes]:
    return frames(bytes.fromhex(step[4] if step[0] == "open" else step[2])) if step[0] in ("open", "send") else []


def _text(data: bytes) -> str:
    return ascii(data[:120].decode("latin-1"))[1:-1]


def _shown(item: Item) -> str:
    raw = f"  {_cut(item.raw.hex())}" if item.raw else ""
    key = item.key
    if isinstance(key, Publish) and len(key.payload) > 20:
        key = replace(key, payload=key.payload[:20] + b"...%d" % len(key.payload))
    return f"{_cut(str(key))}{raw}"


def _cut(text: str) -> str:
    return text if len(text) <= LONG else f"{text[:LONG]}... ({len(text)})"
