"""Formats the events of a trace: lines for a terminal, and JSON lines. Names and payloads from clients cannot control
the terminal."""

import json
import time
from binascii import a2b_base64

from mosq.log.json_lines import escaped
from mosq.reason_codes import WORDS
from mosq.tools.table import shown
from mosq.tools.trace.decode import decoded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Event = dict[str, Any]

PACKETS = ("received", "sent")
ARROWS = {"received": ">", "sent": "<"}
GRANTED = {0: "granted 0", 1: "granted 1", 2: "granted 2", 128: "refused"}


def with_packet(event: "Event") -> "Event":
    """Return the event with the decoded fields of its packet in place of its bytes."""
    if event["event"] not in PACKETS:
        return event
    frame = a2b_base64(event["frame"])
    packet = decoded(frame, event["version"], event["size"])
    payload = packet.get("payload")
    if isinstance(payload, bytes):
        packet["payload"] = payload.decode("utf-8", "backslashreplace")
        packet["payloadSize"] = event["size"] - event["head"]
    return {**{name: value for name, value in event.items() if name not in ("frame", "head")}, "packet": packet}


def json_line(event: "Event") -> str:
    """Return an event as one line of JSON."""
    return escaped(json.dumps(with_packet(event), ensure_ascii=False, separators=(",", ":")))


def line(event: "Event") -> str:
    """Return an event as one line for a terminal."""
    seconds, us = divmod(event["time"], 1_000_000)
    when = f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{us:06d}"
    name = shown(event["clientid"]) or (f"{shown(event['address'])}:{event['port']}" if event.get("address") else "-")
    kind = event["event"]
    text = _packet(with_packet(event)["packet"]) if kind in PACKETS else _other(event)
    return f"{when} {name} {ARROWS.get(kind, '*')} {text}"


def _other(event: "Event") -> str:
    kind = event["event"]
    topic = f"'{shown(event['topic'])}'" if "topic" in event else ""
    if kind == "access":
        verdict = "plugin decides" if event["verdict"] == "plugin" else event["verdict"]
        return f"access {verdict}: {event['access']} {topic} by {shown(event['rule'])}"
    if kind == "queued":
        return f"queued q{event['qos']} {topic}, {event['queue']} in the queue"
    if kind == "dropped":
        return f"dropped {topic}: {shown(event['reason'])}"
    return f"{kind}: {shown(event.get('reason', ''))}"


def _packet(packet: "Event") -> str:
    kind = packet.get("type", "?")
    words = [kind]
    if kind == "PUBLISH" and "qos" in packet:
        words += [f"q{packet['qos']}", *(["retain"] if packet["retain"] else []), *(["dup"] if packet["dup"] else [])]
    if "id" in packet:
        words.append(f"id {packet['id']}")
    for name in ("version", "clientid", "username", "topic"):
        if name in packet:
            words.append(f"{name} {packet[name]}" if name == "version" else f"{name} '{shown(str(packet[name]))}'")
    if packet.get("password"):
        words.append("password hidden")
    words += _more(packet)
    if "reason" in packet:
        words.append(f"reason {_reason(packet['reason'], kind, 0)}")
    if "properties" in packet:
        words.append(_properties(packet["properties"]))
    if "payloadSize" in packet:
        words.append(f"{packet['payloadSize']} bytes")
        if packet.get("payload"):
            words.append(f"'{shown(packet['payload'])}'" + ("..." if packet.get("cut") else ""))
    elif packet.get("cut"):
        words.append("...")
    return " ".join(words)


def _more(packet: "Event") -> list[str]:
    words = []
    if "keepalive" in packet:
        words += [f"clean {int(packet['cleanStart'])}", f"keepalive {packet['keepalive']}"]
    if "will" in packet:
        words.append(f"will '{shown(packet['will']['topic'])}' q{packet['will']['qos']} {packet['will']['size']} bytes")
    if "sessionPresent" in packet:
        words.append(f"session present {int(packet['sessionPresent'])}")
    for one in packet.get("filters", ()):
        words.append(f"'{shown(one['filter'])}'" + (f" q{one['qos']}" if "qos" in one else ""))
    for reason in packet.get("reasons", ()):
        words.append(GRANTED.get(reason, _reason(reason, packet["type"], 0)))
    return words


def _reason(code: int, kind: str, version: int) -> str:
    return f"0x{code:02x}" + (f" ({WORDS[code]})" if code in WORDS else "")


def _properties(given: "Event") -> str:
    return "{" + ", ".join(f"{name}={shown(str(value))}" for name, value in given.items()) + "}"


def losses(lost: "dict[str, int]") -> str:
    """Return how many events a trace has lost, and why; "" for none."""
    texts = {"rate": "above the rate", "ring": "in the broker, which was busy",
             "reader": "because this reader was slow", "way": "on the way to this reader"}
    return ", ".join(f"{n} events lost {texts.get(why, why)}" for why, n in lost.items() if n)
