"""Convert the records of cext/broker/admin/inspect.pyx to dictionaries. It knows their layout, not their use."""

import struct

HEAD = struct.Struct("=14IQ")
SUBSCRIPTION = struct.Struct("=BII")
CONNECTED, WEBSOCKETS, TLS, WILL = 1, 2, 4, 8
NEVER = 0xFFFFFFFF


NUMBERS = ("version", "keepalive", "port", "listener", "unsent_bytes", "window")


def record_at(data, at):
    fields = HEAD.unpack_from(data, at)
    flags = fields[0]
    numbers = fields[1:len(NUMBERS) + 1]
    rest = fields[len(NUMBERS) + 1:]            # a name of its own: Cython 3.3 cannot unpack this slice
    subscriptions, pending, waiting, inflight, inbox, expiry, ends, n_bytes = rest
    at += HEAD.size
    texts = []
    for _ in range(3):
        n = int.from_bytes(data[at:at + 2], "little")
        texts.append(data[at + 2:at + 2 + n].decode("utf-8", "replace"))
        at += 2 + n
    found = {"id": texts[0], "username": texts[1] or None, "connected": bool(flags & CONNECTED),
             "subscriptions": subscriptions, "pending": pending, "waiting": waiting, "inflight": inflight,
             "inbox": inbox, "queue_bytes": n_bytes, "expiry_s": None if expiry == NEVER else expiry,
             "will": bool(flags & WILL)}
    if flags & CONNECTED:
        found |= dict(zip(NUMBERS, numbers, strict=False))
        found |= {"address": texts[2] or None, "port": found["port"] or None, "websockets": bool(flags & WEBSOCKETS),
                  "tls": bool(flags & TLS)}
    elif expiry != NEVER:
        found["ends_s"] = ends
    return found, at


def sessions_read(data):
    found, at = [], 0
    while at < len(data):
        one, at = record_at(data, at)
        found.append(one)
    return found


def session_read(data):
    """Return (session, its subscriptions)."""
    one, at = record_at(data, 0)
    subscriptions = []
    while at < len(data):
        options, sub_id, n = SUBSCRIPTION.unpack_from(data, at)
        at += SUBSCRIPTION.size
        subscriptions.append((data[at:at + n].decode("utf-8", "replace"), options, sub_id))
        at += n
    return one, subscriptions
