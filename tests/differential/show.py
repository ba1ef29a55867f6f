"""Show a session for people: what each client sent, and what both brokers sent, as bytes and as packets."""

from __future__ import annotations

from typing import Any

from tests.differential.asked import frames, packets_of, read_asked
from tests.differential.heard import Item
from tests.differential.rules import Difference
from tests.differential.side import Heard
from tests.fuzz.sessions.maker import Step
from tests.harness.packets import Connack, Disconnect, Publish, Suback
from tests.harness.properties import P

NAMES = ["", "CONNECT", "", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBSCRIBE", "", "UNSUBSCRIBE", "", "PINGREQ", "", "DISCONNECT", "AUTH"]
LONG = 300              # characters of a packet that are shown


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
    ours, theirs = next(iter(difference.differing().values()))
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    a, b = (brief(keys[at]) if at < len(keys) else "nothing" for keys in (ours, theirs))
    if a == b:
        fields = {name for name in vars(ours[at]) if getattr(ours[at], name) != getattr(theirs[at], name)}
        a = f"{a}, other {' '.join(sorted(fields))}"
        b = "the same"
    packet = sent(last).split(" ")
    return f"after {packet[0] if last[0] != 'open' else sent(last)}: mosq {a}; Mosquitto {b}"


def shown(record: list[tuple[Step, Heard, Heard]], before: list[Step] | None = None) -> str:
    """Return the steps of a record in words; `before`: the steps in front of it, in which clients have connected."""
    lines = []
    level: dict[int, int] = {step[1]: step[2] for step in before or [] if step[0] == "open"}
    for i, (step, ours, theirs) in enumerate(record, 1):
        if step[0] == "open":
            level[step[1]] = step[2]
        lines.append(f"{i}. {step[0]} {step[1]} {step[2] if step[0] in ('answer', 'close') else f'level {step[2]}' if step[0] == 'open' else ''}".rstrip())
        lines += [f"     -> {NAMES[one[0] >> 4]:10} {_asked(level.get(step[1], 4), one)}" for one in packets_of(step)]
        for n in sorted({*ours, *theirs}):
            a, b = ours.get(n, []), theirs.get(n, [])
            same = 0            # what both have sent at first
            while same < min(len(a), len(b)) and a[same].key == b[same].key:
                same += 1
            lines += [f"   {n} <- {_shown(one)}" for one in a[:same]]
            a, b = a[same:], b[same:]
            if a or b:
                lines += [f"   {n} <- mosq       {_shown(one, True)}" for one in a] or [f"   {n} <- mosq       nothing"]
                lines += [f"   {n} <- Mosquitto  {_shown(one, True)}" for one in b] or [f"   {n} <- Mosquitto  nothing"]
    return "\n".join(lines)


def _asked(level: int, data: bytes) -> str:
    """Return a client's packet in words; the bytes of a malformed one."""
    packet = read_asked(level, data)
    return words(packet) if packet is not None else f"malformed {_cut(data.hex())}"


def words(packet: Any) -> str:
    """Return the fields of a packet that say something. Packets of clients and of brokers have different fields."""
    if isinstance(packet, str):
        return packet
    out = []
    for name, value in vars(packet).items():
        if value is True:
            out.append(name)
        elif name in ("topic", "client_id", "qos", "mid") or value not in (None, (), False, 0):
            out.append(f"{name}={_value(name, value)}")
    return " ".join(out)


def _value(name: str, value: Any) -> str:
    if name == "props":
        return "{" + ", ".join(f"{P(ident).name}: {one!r}" for ident, one in value) + "}"
    if name == "will":
        return f"[{words(value)}]"
    if name == "filters":
        return ", ".join(repr(one) if isinstance(one, str) else f"{one[0]!r} {one[1]:#04x}" for one in value)
    if isinstance(value, bytes) and len(value) > 20:
        return f"{value[:20]!r}...{len(value)}"
    return repr(value)


def _shown(item: Item, raw: bool = False) -> str:
    name = "" if isinstance(item.key, str) else f"{type(item.key).__name__:10} "
    return f"{name}{_cut(words(item.key))}" + (f"  {_cut(item.raw.hex())}" if raw and item.raw else "")


def _cut(text: str) -> str:
    return text if len(text) <= LONG else f"{text[:LONG]}... ({len(text)})"
