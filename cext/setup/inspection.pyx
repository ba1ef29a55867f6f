"""Convert the records of cext/broker/admin/inspect.pyx and observations.pyx to dictionaries. It knows their layout, not their use."""

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


# as OBSERVED_... in cext/broker/core/observed.pxd and the head of cext/broker/admin/observations.pyx
HISTOGRAMS = ("flush_qos0", "flush_qos1", "flush_qos2", "commit", "turn", "handshake", "match")
HISTOGRAM = struct.Struct("=110Q")
PROBE_COUNTS = struct.Struct("=QQ")
GAUGE_NAMES = ("records", "lost", "waiting_bytes", "disk_bytes", "retired_records", "retired_unread", "errors")
GAUGES = struct.Struct("=7Q")


def observed_read(data):
    lost, passed_over = PROBE_COUNTS.unpack_from(data, 0)
    found = {"lost": lost, "passed_over": passed_over}
    for i, name in enumerate(HISTOGRAMS):
        count, sum_ns, *buckets = HISTOGRAM.unpack_from(data, PROBE_COUNTS.size + i * HISTOGRAM.size)
        found[name] = count, sum_ns, buckets
    return found


# as HOT_... in cext/broker/core/observed.pxd, and the head and structs of cext/broker/admin/hot.pyx
HOT = ("topics", "publishers", "receivers", "delays")
HOT_HEAD = struct.Struct("=4Q")
HOT_ROW = struct.Struct("=3QI2H")
SLOW_ROW = struct.Struct("=3Q6I")
UNKNOWN = 2**64 - 1


def name_of(data, n):
    """Return the text of a name's beginning. Its end may be within a character, which is left out."""
    return data.decode("utf-8", "replace") if len(data) == n else data.decode("utf-8", "ignore")


def slow_at(data, at, records, name):
    """Return the SlowClient at this place; `name`: the client id, None if it follows."""
    queue_bytes, age_ms, unsent, queued, inflight, known, connected, n, kept = SLOW_ROW.unpack_from(data, at)
    text, length = name if name is not None else (name_of(data[at + SLOW_ROW.size:at + SLOW_ROW.size + kept], n), n)
    return records.SlowClient(text, length, bool(known), bool(connected), queued, queue_bytes, None if age_ms == UNKNOWN else age_ms, unsent, inflight), kept


def slow_read(data, records):
    found, at = [], 0
    while at < len(data):
        one, kept = slow_at(data, at, records, None)
        found.append(one)
        at += SLOW_ROW.size + kept
    return found


def hot_read(data, what, records):
    period, window_us, least, least_before = HOT_HEAD.unpack_from(data, 0)
    windows = ([], [])
    at = HOT_HEAD.size
    while at < len(data):
        count, error, n_bytes, n, kept, window = HOT_ROW.unpack_from(data, at)
        at += HOT_ROW.size
        text = name_of(data[at:at + kept], n)
        key = data[at:at + kept], n
        at += kept
        client = None
        if what == "delays":
            client, _ = slow_at(data, at, records, (text, n))
            at += SLOW_ROW.size
        windows[window].append(records.HotName(key, text, n, count, error, n_bytes, client))
    return records.HotNames(period, window_us, (least, least_before), windows)


def streams_read(data):
    found, at = {}, 0
    while at < len(data):
        n = int.from_bytes(data[at:at + 2], "little")
        name = data[at + 3:at + 2 + n].decode()         # without the slash in front
        found[name] = dict(zip(GAUGE_NAMES, GAUGES.unpack_from(data, at + 2 + n), strict=True))
        at += 2 + n + GAUGES.size
    return found


DROP = struct.Struct("=4Iq")
OTHER = "other"         # drops without a connected client of a listener


def kept_text_at(data, at):
    """Return a text with a length of 16 bits in front, and the place after it. Its end may be inside of a character."""
    n = int.from_bytes(data[at:at + 2], "little")
    return data[at + 2:at + 2 + n].decode("utf-8", "ignore"), at + 2 + n


def drops_read(data):
    from mosq.stat_names import DROPS

    found, at = {}, 0
    while at < len(data):
        reason, of_client, topic_n, id_n, time_s = DROP.unpack_from(data, at)
        topic_from = at + DROP.size
        topic, at = kept_text_at(data, topic_from)
        is_cut = at - topic_from - 2 < topic_n
        id_from = at
        client_id, at = kept_text_at(data, id_from)
        found[DROPS[reason]] = {"time": time_s, "client_id": client_id if of_client else None, "topic": topic,
                                "topic_cut": is_cut, "id_cut": at - id_from - 2 < id_n}
    return found


def listener_drops_read(data):
    from mosq.stat_names import DROPS

    numbers = struct.Struct(f"={len(DROPS)}Q")
    left = numbers.unpack_from(data, 0)
    found, at = {}, numbers.size
    while at < len(data):
        port, n = struct.unpack_from("=HH", data, at)
        name = data[at + 4:at + 4 + n].decode("utf-8", "replace")
        label = f"{name}:{port}" if name and port else name or str(port)
        counts = numbers.unpack_from(data, at + 4 + n)
        at += 4 + n + numbers.size
        left = [total - count for total, count in zip(left, counts, strict=True)]
        before = found.get(label, (0,) * len(DROPS))        # the same port with another interface or domain
        found[label] = [one + more for one, more in zip(before, counts, strict=True)]
    before = found.get(OTHER, (0,) * len(DROPS))
    found[OTHER] = [one + more for one, more in zip(before, left, strict=True)]
    return {label: dict(zip(DROPS, counts, strict=True)) for label, counts in found.items()}


# as FIGURE_... in cext/broker/core/workers.pxd, and the end of answer_whole in cext/broker/admin/whole.pyx
WHOLE_LISTENERS_MAX = 64
WHOLE_LINKS = struct.Struct("=128Q")
WHOLE_STREAMS_BYTES = 66 * 7 * 8        # WORKER_PARTS_MAX, STREAM_GAUGES
WHOLE_LOGINS = struct.Struct("=2Q")
WHOLE_END = struct.Struct("=3Q")
WORKER_LOAD = struct.Struct("=5Q")      # of each worker: the time at which it wrote its figures, and a WorkerLoad


def whole_read(data, own_drops, records):
    """Return the WholeFigures. `own_drops`: what this worker answers about drops by listener, for the names of the listeners."""
    from mosq.stat_names import ALIASES, DROPS, STATS

    numbers = struct.Struct(f"={len(DROPS)}Q")
    (cpu_us,) = struct.unpack_from("=Q", data, 8 * len(STATS))
    at = 8 * (len(STATS) + 1)
    first = STATS.index(f"drops_{DROPS[0]}")
    drops = [data[8 * first:8 * first + numbers.size]]
    i, place = numbers.size, 0
    while i < len(own_drops) and place < WHOLE_LISTENERS_MAX:
        head = 4 + struct.unpack_from("=HH", own_drops, i)[1]
        drops += [own_drops[i:i + head], data[at + place * numbers.size:at + (place + 1) * numbers.size]]
        i, place = i + head + numbers.size, place + 1
    at += WHOLE_LISTENERS_MAX * numbers.size
    links_at = at + PROBE_COUNTS.size + len(HISTOGRAMS) * HISTOGRAM.size
    logins_at = links_at + WHOLE_LINKS.size + WHOLE_STREAMS_BYTES
    end = logins_at + WHOLE_LOGINS.size
    is_observed, began_ms, now_ms = WHOLE_END.unpack_from(data, end)
    each = list(WORKER_LOAD.iter_unpack(data[end + WHOLE_END.size:]))
    values = struct.unpack_from(f"={len(STATS)}Q", data, 0)
    stats = {name: value for name, value in zip(STATS, values, strict=True) if name is not None}
    stats |= {alias: stats[name] for alias, name in ALIASES.items()}
    return records.WholeFigures(stats, listener_drops_read(b"".join(drops)), observed_read(data[at:links_at]) if is_observed else None, cpu_us,
                                now_ms - began_ms, [max(0, now_ms - wrote_ms) if wrote_ms else None for wrote_ms, *_ in each],
                                list(zip(*[iter(WHOLE_LINKS.unpack_from(data, links_at)[:2 * len(each)])] * 2, strict=True)),
                                WHOLE_LOGINS.unpack_from(data, logins_at), [records.WorkerLoad(*load) for _, *load in each])


# as LinkFigures in cext/broker/admin/links.pxd
LINK_NAMES = ("place", "connected", "routes", "routes_digest", "own_routes", "own_digest", "sent", "unacknowledged", "unacknowledged_bytes", "queued",
              "queued_bytes", "dropped", "latency_us", "latency_max_us", "latency_n", "latency_sum_us")
LINK = struct.Struct(f"={len(LINK_NAMES)}Q")


def links_read(data):
    return [dict(zip(LINK_NAMES, one, strict=True)) for one in LINK.iter_unpack(data)]
