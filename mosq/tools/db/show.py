"""Format records and messages as text for people, and as JSON for programs.

Text of clients is escaped for terminals.
"""

import base64
import json
import time
from typing import Any

from mosq.tools.db import kinds
from mosq.tools.db.properties import readable

NEVER = 0xFFFFFFFF
ENTRY_RETAIN, ENTRY_SHARED = 0x80, 0x40
PAYLOAD_SHOWN = 60
ENTRIES_SHOWN = 8


def text(data: bytes) -> str:
    """Return a name in quotes, with unprintable characters as escapes."""
    out = json.dumps(data.decode(errors="backslashreplace"), ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in out)


def plain(data: bytes) -> str:
    """Return a name for JSON."""
    return data.decode(errors="backslashreplace")


def meta(f: dict[bytes, bytes]) -> str:
    return ", ".join(f"{text(key)[1:-1]}={text(value)[1:-1]}" for key, value in f.items())


def when(wall_ms: int) -> str:
    seconds = wall_ms // 1000
    if not 0 <= seconds < 1 << 36:
        return f"{wall_ms} ms"
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def size(n: int) -> str:
    value, unit = float(n), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{n:,} B" if unit == "B" else f"{value:,.1f} {unit}"


def payload_json(payload: bytes) -> dict[str, str]:
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


def message_json(f: dict[str, Any], with_payload: bool = True) -> dict[str, Any]:
    out: dict[str, Any] = {"topic": plain(f["topic"]), "qos": f["qos"], "retain": f["retain"]}
    if f["expires_wall_ms"]:
        out["expires"] = when(f["expires_wall_ms"])
    if f["props"]:
        out["properties"] = readable(f["props"])
    out["payload_bytes"] = len(f["payload"])
    return {**out, **(payload_json(f["payload"]) if with_payload else {})}


def entry_json(entry: tuple[int, int, int, int, int]) -> dict[str, Any]:
    sno, position, pid, qos, sub_id = entry
    out: dict[str, Any] = {"sno": sno, "position": position, "pid": pid, "qos": qos & 3}
    if qos & ENTRY_RETAIN:
        out["retain"] = True
    if qos & ENTRY_SHARED:
        out["shared"] = True
    if sub_id:
        out["sub_id"] = sub_id
    return out


def record_json(kind: int, f: dict[Any, Any], with_payload: bool) -> dict[str, Any]:
    """Return the fields of any record."""
    if kind == kinds.META:
        return {plain(key): plain(value) for key, value in f.items()}
    if kind in (kinds.ACKS, kinds.RELEASED, kinds.GATED_DONE):
        return {"acks": [dict(zip(("sno", "position", "pid"), ack, strict=False)) for ack in f["acks"]]}
    if kind == kinds.STREAMS:
        return {"streams": [{"name": plain(s["name"]), "seqs": s["seqs"]} for s in f["streams"]]}
    out: dict[str, Any] = {}
    for name, value in f.items():
        if isinstance(value, bytes):
            if name in ("id", "user", "filter", "mount"):
                out[name] = plain(value)
        elif name not in ("entries", "qos", "retain", "expires_wall_ms", "source_hash"):
            out[name] = value
    if "payload" in f:
        out.update(message_json(f, with_payload))
    elif "topic" in f:
        out["topic"] = plain(f["topic"])
    if "entries" in f:
        out["entries"] = [entry_json(entry) for entry in f["entries"]]
    return out


# -- a line each


def _expiry(f: dict[str, Any]) -> str:
    if f["expiry_s"] == NEVER:
        return "never expires"
    return f"expires after {f['expiry_s']} s" + (f", at {when(f['ends_wall_ms'])}" if f["ends_wall_ms"] else "")


def _options(options: int) -> str:
    words = [f"qos {options & 3}"]
    if options & 4:
        words.append("no-local")
    if options & 8:
        words.append("retain-as-published")
    if options & 0x30:
        words.append(f"retain-handling {options >> 4 & 3}")
    return ", ".join(words)


def _entry(entry: tuple[int, int, int, int, int]) -> str:
    sno, position, pid, qos, sub_id = entry
    marks = ("r" if qos & ENTRY_RETAIN else "") + ("s" if qos & ENTRY_SHARED else "")
    more = (f" pid {pid}" if qos & 3 else "") + (f" id {sub_id}" if sub_id else "")
    return f"{sno}:{position} qos {qos & 3}{marks}{more}"


def _several(parts: list[str]) -> str:
    more = len(parts) - ENTRIES_SHOWN
    return ", ".join(parts[:ENTRIES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _message(f: dict[str, Any], with_payload: bool) -> str:
    out = f"{text(f['topic'])} qos {f['qos']}"
    if f["retain"]:
        out += " retain"
    if f["retained_set"]:
        out += ", is retained"
    if f.get("again"):
        out += ", may have been sent"
    if f["expires_wall_ms"]:
        out += f", expires {when(f['expires_wall_ms'])}"
    if f["props"]:
        out += f", {len(f['props'])} B of properties"
    out += f", {len(f['payload'])} B"
    if with_payload:
        out += f" {text(f['payload'][:PAYLOAD_SHOWN])}" + ("..." if len(f["payload"]) > PAYLOAD_SHOWN else "")
    return out


def line(lsn: int, kind: int, f: dict[Any, Any], with_payload: bool) -> str:
    """Return a record in one line."""
    return f"{lsn:>12} {kinds.NAMES[kind]:<13} {_fields(kind, f, with_payload)}"


def _fields(kind: int, f: dict[Any, Any], with_payload: bool) -> str:
    if kind == kinds.META:
        return meta(f)
    if kind in (kinds.ACKS, kinds.GATED_DONE):
        return _several([f"{sno}:{position}" for sno, position in f["acks"]])
    if kind == kinds.RELEASED:
        return _several([f"{sno}:{position} pid {pid}" for sno, position, pid in f["acks"]])
    if kind == kinds.RETAINED_GONE:
        return text(f["topic"])
    if kind == kinds.RETAINED_FROM:
        return f"{text(f['topic'])} of {text(f['id'])}" + (f" user {text(f['user'])}" if f["user"] else "")
    if kind == kinds.PUBLISHER:
        return f"{text(f['id'])} pid {f['pid']}" + (f" user {text(f['user'])}" if f["user"] else "")
    if kind in (kinds.CLIENT_WILL, kinds.WAITING_WILL, kinds.LINK_WILL):
        number = "" if kind == kinds.CLIENT_WILL else f"{f['number']}: "
        user = f" user {text(f['user'])}" if f["user"] is not None else ""
        mount = f" mount point {text(f['mount'])}" if f["mount"] else ""
        return f"{number}{text(f['id'])}{user}{mount}: {_message(f, with_payload)}"
    if kind == kinds.UNDELIVERED:
        to = _several([str(sno) for sno in f["sessions"]]) or text(f["group"]) or "no session"
        streams = ", not in its streams" if f["unjournalled"] else ""
        return f"{f['number']}: of {text(f['id'])}: {_message(f, with_payload)}{streams} -> {to}"
    if kind == kinds.CLIENT_WILL_GONE:
        return text(f["id"])
    if kind == kinds.WAITING_WILL_GONE:
        return str(f["number"])
    if kind == kinds.STREAMS:
        return ", ".join(f"{text(s['name'])} up to {' '.join(map(str, s['seqs']))}" for s in f["streams"])
    if kind in (kinds.LINK_RUN, kinds.LINK_MARK, kinds.LINK_IDENTITY, kinds.LINK_IDENTITY_GONE, kinds.LINK_CHOICE):
        return ", ".join(f"{name} {value}" for name, value in f.items() if value != [])
    if kind in (kinds.MSG, kinds.GATED):
        to = _several([_entry(entry) for entry in f["entries"]]) or "none"
        return f"{_message(f, with_payload)} -> {to}"
    return f"{f['sno']} {_of_session(kind, f, with_payload)}".rstrip()


def _of_session(kind: int, f: dict[Any, Any], with_payload: bool) -> str:
    if kind == kinds.SESSION:
        user = f" user {text(f['user'])}" if f["user"] is not None else ""
        mount = f" mount point {text(f['mount'])}" if f.get("mount") else ""
        pid = f", last packet id {f['last_pid']}" if f.get("last_pid") else ""
        return (
            f"{text(f['id'])}{user}{mount} {'of a bridge, ' if f.get('link') else ''}"
            f"{'connected' if f['connected'] else 'offline'}, {_expiry(f)}, "
            f"sent up to {f['next']}{pid}"
        )
    if kind == kinds.SUB:
        return f"{text(f['filter'])} {_options(f['options'])}" + (f", id {f['sub_id']}" if f["sub_id"] else "")
    if kind == kinds.UNSUB:
        return text(f["filter"])
    if kind == kinds.INBOX:
        return f"pid {f['pid']} " + (
            "refused" if f["refused"] else _message(f, with_payload) + (", in its streams" if f["journalled"] else "")
        )
    if kind == kinds.INBOX_DONE:
        return f"pid {f['pid']}"
    if kind == kinds.WILL:
        due = f"due {when(f['due_wall_ms'])}" if f["due_wall_ms"] else "its client is connected"
        return f"after {f['delay_s']} s, {due}: {_message(f, with_payload)}"
    return ""
