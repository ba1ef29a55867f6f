"""Convert a record's body to a dictionary and back, for `mosq db` and tests. The structs of record.pxd
define the fields and their names."""

import struct

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from cext.base.pybytes cimport view_of
from cext.base.view cimport View
from cext.session.record cimport (
    RECORD_ACKS, RECORD_AGAIN, RECORD_CLIENT_WILL, RECORD_CLIENT_WILL_GONE, RECORD_CONNECTED, RECORD_END, RECORD_FLAGS,
    RECORD_GATED, RECORD_GATED_DONE, RECORD_INBOX, RECORD_INBOX_DONE, RECORD_INBOX_DONE_BYTES, RECORD_HAS_ORIGIN, RECORD_KIND, RECORD_LINK, RECORD_LINK_CHOICE, RECORD_LINK_WILL, RECORD_LINK_IDENTITY,
    RECORD_LINK_IDENTITY_GONE, RECORD_LINK_MARK, RECORD_LINK_RUN, RECORD_LONG,
    RECORD_META, RECORD_MSG, RECORD_PUBLISHER, RECORD_QOS, RECORD_RELEASED, RECORD_RETAIN, RECORD_RETAINED_FROM, RECORD_RETAINED_GONE,
    RECORD_RETAINED_SET, RECORD_SESSION, RECORD_SHORT, RECORD_STREAMS, RECORD_SUB, RECORD_UNDELIVERED, RECORD_UNSUB, RECORD_VALUE, RECORD_WILL,
    RECORD_WAITING_WILL, RECORD_WAITING_WILL_GONE, RECORD_WAITING_WILL_GONE_BYTES, RECORD_WILL_GONE, RecordAck, RecordClientWill, RecordEntry, RecordFrom, RecordInbox, RecordMessage, RecordMsg, RecordPublisher,
    RecordSession, RecordSub, RecordUndelivered, RecordWaitingWill, RecordWill, record_ack_next, record_ack_put, record_check, record_client_will_put,
    record_client_will_read, record_client_will_size, record_end_put, record_end_read, record_entry_next, record_entry_put,
    record_entry_size, record_from_put, record_from_read, record_from_size, record_inbox_done_put, record_inbox_done_read,
    record_inbox_put, record_inbox_read, record_inbox_size, record_meta_find, record_msg_end_put, record_msg_put,
    record_msg_read, record_msg_size, record_publisher_put, record_publisher_read, record_publisher_size, record_released_next, record_released_put, record_session_put, record_session_read,
    record_session_size, record_stream_next, record_stream_put, record_sub_put, record_sub_read, record_sub_size,
    record_undelivered_next, record_undelivered_put, record_undelivered_read, record_undelivered_size, record_unsub_put, record_unsub_read, record_unsub_size,
    record_waiting_will_gone_put, record_waiting_will_gone_read, record_waiting_will_put, record_waiting_will_read, record_waiting_will_size,
    record_will_put, record_will_read, record_will_size,
)

KINDS = {RECORD_SESSION: "session", RECORD_SUB: "sub", RECORD_UNSUB: "unsub", RECORD_END: "end", RECORD_MSG: "msg",
         RECORD_ACKS: "acks", RECORD_RELEASED: "released", RECORD_INBOX: "inbox", RECORD_INBOX_DONE: "inbox_done",
         RECORD_RETAINED_GONE: "retained_gone", RECORD_WILL: "will", RECORD_WILL_GONE: "will_gone", RECORD_META: "meta",
         RECORD_RETAINED_FROM: "retained_from", RECORD_STREAMS: "streams", RECORD_CLIENT_WILL: "client_will",
         RECORD_CLIENT_WILL_GONE: "client_will_gone", RECORD_PUBLISHER: "publisher", RECORD_GATED: "gated",
         RECORD_GATED_DONE: "gated_done", RECORD_WAITING_WILL: "waiting_will", RECORD_WAITING_WILL_GONE: "waiting_will_gone",
         RECORD_LINK_RUN: "link_run", RECORD_LINK_MARK: "link_mark",
         RECORD_LINK_IDENTITY: "link_identity", RECORD_LINK_IDENTITY_GONE: "link_identity_gone", RECORD_LINK_CHOICE: "link_choice", RECORD_LINK_WILL: "link_will",
         RECORD_UNDELIVERED: "undelivered"}
# the numbers of the kinds of links, by name; a link_mark has any number of further ones
LINK_FIELDS = {RECORD_LINK_RUN: ("log", "run"), RECORD_LINK_MARK: ("worker", "log", "run", "number"),
               RECORD_LINK_IDENTITY: ("worker", "log", "identity", "part"), RECORD_LINK_IDENTITY_GONE: ("log", "identity"),
               RECORD_LINK_CHOICE: ("identity", "part", "worker")}
RECORD_PROBLEMS = {RECORD_SHORT: "ends before its last field", RECORD_LONG: "has bytes after its last field",
                   RECORD_FLAGS: "has flags that this version does not know, or that contradict a field",
                   RECORD_VALUE: "has a field with an impossible value",
                   RECORD_KIND: "is of a kind that this version does not know"}


cdef bytes bytes_of(View v):
    return (<const char*>v.p)[:v.n]


cdef bytes short_name(object value, str what):
    if len(value) > 65535:
        raise ValueError(f"{what} of {len(value)} bytes; expected at most 65535")
    return value


# -- messages

cdef void message_fill(RecordMessage* m, dict f) except *:
    # The views point into the dictionary's bytes.
    memset(m, 0, sizeof(RecordMessage))
    m.flags = <uint32_t>(f["qos"] | (RECORD_RETAIN if f["retain"] else 0) | (RECORD_RETAINED_SET if f.get("retained_set") else 0)
                         | (RECORD_AGAIN if f.get("again") else 0))
    m.expires_wall_ms = f["expires_wall_ms"]
    m.source_hash = f["source_hash"]
    m.topic = view_of(short_name(f["topic"], "a topic"))
    m.props = view_of(f["props"])
    m.payload = view_of(f["payload"])


cdef dict message_fields(const RecordMessage* m):
    fields = {"qos": m.flags & RECORD_QOS, "retain": bool(m.flags & RECORD_RETAIN), "retained_set": bool(m.flags & RECORD_RETAINED_SET),
              "expires_wall_ms": m.expires_wall_ms, "source_hash": m.source_hash, "topic": bytes_of(m.topic),
              "props": bytes_of(m.props), "payload": bytes_of(m.payload)}
    if m.flags & RECORD_AGAIN:
        fields["again"] = True
    return fields


# -- encode: one function per kind; `Body` allocates the bytes

cdef class Body:
    # Memory of exactly the requested size, so that a memory checker detects each byte beyond it.
    cdef uint8_t* p
    cdef uint64_t n

    def __cinit__(self, uint64_t n):
        if n > 0xFFFFFFFF:
            raise ValueError("more than a record holds")
        self.n = n
        self.p = <uint8_t*>malloc(n if n else 1)
        if self.p == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.p)

    cdef bytes whole(self, const uint8_t* end):
        assert end == self.p + self.n, (end - self.p, self.n)
        return (<const char*>self.p)[:self.n]


cdef bytes encode_session(dict f):
    cdef RecordSession s
    cdef Body body
    memset(&s, 0, sizeof(s))
    s.store_session_id, s.expiry_s, s.next, s.ends_wall_ms = f["sno"], f["expiry_s"], f["next"], f["ends_wall_ms"]
    s.flags = (RECORD_CONNECTED if f["connected"] else 0) | (RECORD_LINK if f.get("link") else 0)
    s.id = view_of(short_name(f["id"], "a client id"))
    if f["user"] is not None:
        s.user = view_of(short_name(f["user"], "a user name"))
    if "mount" in f:
        s.flags |= RECORD_HAS_ORIGIN
        s.mount = view_of(short_name(f["mount"], "a mount point"))
    s.security = f.get("security", 0)
    s.last_pid = f.get("last_pid", 0)
    body = Body(record_session_size(&s))
    return body.whole(record_session_put(body.p, &s))


cdef bytes encode_sub(uint8_t kind, dict f):
    cdef RecordSub s
    cdef Body body
    memset(&s, 0, sizeof(s))
    s.store_session_id = f["sno"]
    s.filter = view_of(short_name(f["filter"], "a filter"))
    if kind == RECORD_UNSUB:
        body = Body(record_unsub_size(&s))
        return body.whole(record_unsub_put(body.p, &s))
    s.options, s.sub_id = f["options"], f["sub_id"]
    body = Body(record_sub_size(&s))
    return body.whole(record_sub_put(body.p, &s))


cdef void entry_fill(RecordEntry* e, object fields) except *:
    e.store_session_id, e.position, e.pid, e.qos, e.sub_id = fields


cdef bytes encode_msg(dict f):
    cdef RecordMessage m
    cdef RecordEntry e
    cdef uint64_t entries_bytes = 0
    cdef Body body
    cdef uint8_t* p
    message_fill(&m, f)
    for fields in f["entries"]:
        entry_fill(&e, fields)
        entries_bytes += record_entry_size(&e)
    body = Body(record_msg_size(&m, entries_bytes))
    p = record_msg_put(body.p, &m, <uint32_t>len(f["entries"]))
    for fields in f["entries"]:
        entry_fill(&e, fields)
        p = record_entry_put(p, &e)
    return body.whole(record_msg_end_put(p, &m))


cdef bytes encode_acks(uint8_t kind, list acks):
    cdef RecordAck a
    cdef Body body = Body(len(acks) * (10 if kind == RECORD_RELEASED else 8))
    cdef uint8_t* p = body.p
    for fields in acks:
        a.store_session_id, a.position = fields[0], fields[1]
        if kind != RECORD_RELEASED:
            p = record_ack_put(p, a.store_session_id, a.position)
        else:
            a.pid = fields[2]
            p = record_released_put(p, &a)
    return body.whole(p)


cdef bytes encode_inbox(dict f):
    cdef RecordInbox i
    cdef Body body
    memset(&i, 0, sizeof(i))
    i.store_session_id, i.pid, i.refused, i.journalled = f["sno"], f["pid"], f["refused"], f.get("journalled", False)
    i.local_done, i.identity = f.get("local_done", False), f.get("identity", 0)
    if not i.refused:
        message_fill(&i.message, f)
    body = Body(record_inbox_size(&i))
    return body.whole(record_inbox_put(body.p, &i))


cdef bytes encode_will(dict f):
    cdef RecordWill w
    cdef Body body
    w.store_session_id, w.due_wall_ms, w.delay_s = f["sno"], f["due_wall_ms"], f["delay_s"]
    message_fill(&w.message, f)
    body = Body(record_will_size(&w))
    return body.whole(record_will_put(body.p, &w))


cdef void client_will_of(RecordClientWill* w, dict f) except *:
    """Set all fields. They are views into the values of `f`."""
    memset(w, 0, sizeof(RecordClientWill))
    w.security, w.has_expiry = f["security"], f["expiry_s"] is not None
    if w.has_expiry:
        w.expiry_s = f["expiry_s"]
    w.id, w.mount = view_of(short_name(f["id"], "a client id")), view_of(short_name(f["mount"], "a mount point"))
    if f["user"] is not None:
        w.user = view_of(short_name(f["user"], "a user name"))
    message_fill(&w.message, f)


cdef bytes encode_client_will(dict f):
    cdef RecordClientWill w
    cdef Body body
    client_will_of(&w, f)
    body = Body(record_client_will_size(&w))
    return body.whole(record_client_will_put(body.p, &w))


cdef bytes encode_waiting_will(dict f):
    cdef RecordWaitingWill w
    cdef Body body
    w.number, w.handle = f["number"], f["handle"]
    client_will_of(&w.will, f)
    body = Body(record_waiting_will_size(&w))
    return body.whole(record_waiting_will_put(body.p, &w))


cdef bytes encode_undelivered(dict f):
    cdef RecordUndelivered u
    cdef Body body
    sessions = struct.pack(f"<{len(f['sessions'])}I", *f["sessions"])
    u.number, u.unjournalled = f["number"], f["unjournalled"]
    u.sessions, u.group = view_of(sessions), view_of(short_name(f["group"], "a group"))
    client_will_of(&u.will, f)
    body = Body(record_undelivered_size(&u))
    return body.whole(record_undelivered_put(body.p, &u))


cdef bytes encode_from(dict f):
    cdef RecordFrom r
    cdef Body body
    topic, id, user = short_name(f["topic"], "a topic"), short_name(f["id"], "a client id"), short_name(f["user"], "a user name")
    r.security = f["security"]
    r.topic, r.id, r.user = view_of(topic), view_of(id), view_of(user)
    body = Body(record_from_size(&r))
    return body.whole(record_from_put(body.p, &r))


cdef bytes encode_publisher(dict f):
    cdef RecordPublisher r
    cdef Body body
    id, user = short_name(f["id"], "a client id"), short_name(f["user"], "a user name")
    r.security, r.pid = f["security"], f["pid"]
    r.id, r.user = view_of(id), view_of(user)
    body = Body(record_publisher_size(&r))
    return body.whole(record_publisher_put(body.p, &r))


cdef bytes encode_streams(list streams):
    cdef uint64_t seqs[64]
    cdef Body body = Body(sum(4 + len(s["name"]) + 8 * len(s["seqs"]) for s in streams))
    cdef uint8_t* p = body.p
    for s in streams:
        name = short_name(s["name"], "a name")
        if len(s["seqs"]) > 64:
            raise ValueError("a stream has at most 64 shards")
        for i, seq in enumerate(s["seqs"]):
            seqs[i] = seq
        p = record_stream_put(p, view_of(name), seqs, len(s["seqs"]))
    return body.whole(p)


def record_encode(uint8_t kind, dict fields):
    """Return the body of a record. Raise ValueError, KeyError or OverflowError if the fields cannot form one."""
    cdef Body body
    if kind == RECORD_SESSION:
        return encode_session(fields)
    if kind == RECORD_SUB or kind == RECORD_UNSUB:
        return encode_sub(kind, fields)
    if kind == RECORD_END or kind == RECORD_WILL_GONE:
        body = Body(4)
        return body.whole(record_end_put(body.p, fields["sno"]))
    if kind == RECORD_MSG or kind == RECORD_GATED:
        return encode_msg(fields)
    if kind == RECORD_ACKS or kind == RECORD_RELEASED or kind == RECORD_GATED_DONE:
        return encode_acks(kind, fields["acks"])
    if kind == RECORD_INBOX:
        return encode_inbox(fields)
    if kind == RECORD_INBOX_DONE:
        body = Body(RECORD_INBOX_DONE_BYTES)
        return body.whole(record_inbox_done_put(body.p, fields["sno"], fields["pid"]))
    if kind == RECORD_RETAINED_GONE:
        return short_name(fields["topic"], "a topic")
    if kind == RECORD_WILL:
        return encode_will(fields)
    if kind == RECORD_RETAINED_FROM:
        return encode_from(fields)
    if kind == RECORD_PUBLISHER:
        return encode_publisher(fields)
    if kind == RECORD_STREAMS:
        return encode_streams(fields["streams"])
    if kind == RECORD_CLIENT_WILL:
        return encode_client_will(fields)
    if kind == RECORD_CLIENT_WILL_GONE:
        return short_name(fields["id"], "a client id")
    if kind == RECORD_WAITING_WILL or kind == RECORD_LINK_WILL:
        return encode_waiting_will(fields)
    if kind == RECORD_WAITING_WILL_GONE:
        body = Body(RECORD_WAITING_WILL_GONE_BYTES)
        return body.whole(record_waiting_will_gone_put(body.p, fields["number"]))
    if kind == RECORD_UNDELIVERED:
        return encode_undelivered(fields)
    if kind in LINK_FIELDS:
        return struct.pack(f"<{len(LINK_FIELDS[kind]) + len(fields.get('holes', ()))}Q", *(fields[name] for name in LINK_FIELDS[kind]),
                           *fields.get("holes", ()))
    if kind == RECORD_META:
        return b"".join(b"%s=%s\n" % pair for pair in fields.items())
    raise ValueError(f"no kind {kind}")


# -- decode

cdef dict decode_session(View body):
    cdef RecordSession s
    if record_session_read(body, &s):
        return None
    fields = {"sno": s.store_session_id, "connected": bool(s.flags & RECORD_CONNECTED), "expiry_s": s.expiry_s, "ends_wall_ms": s.ends_wall_ms,
              "next": s.next, "id": bytes_of(s.id), "user": None if s.user.p == NULL else bytes_of(s.user)}
    if s.flags & RECORD_LINK:
        fields["link"] = True
    if s.flags & RECORD_HAS_ORIGIN:
        fields.update(security=s.security, mount=bytes_of(s.mount))
    elif s.security:
        fields["security"] = s.security
    if s.last_pid:
        fields["last_pid"] = s.last_pid
    return fields


cdef dict decode_sub(uint8_t kind, View body):
    cdef RecordSub s
    if kind == RECORD_UNSUB:
        return None if record_unsub_read(body, &s) else {"sno": s.store_session_id, "filter": bytes_of(s.filter)}
    if record_sub_read(body, &s):
        return None
    return {"sno": s.store_session_id, "options": s.options, "sub_id": s.sub_id, "filter": bytes_of(s.filter)}


cdef dict decode_msg(View body):
    cdef RecordMsg m
    cdef RecordEntry e
    if record_msg_read(body, &m):
        return None
    fields = message_fields(&m.message)
    fields["entries"] = entries = []
    while record_entry_next(&m.entries, &e):
        entries.append((e.store_session_id, e.position, e.pid, e.qos, e.sub_id))
    assert len(entries) == m.n
    return fields


cdef dict decode_acks(uint8_t kind, View body):
    cdef RecordAck a
    acks = []
    if record_check(kind, body):
        return None
    if kind != RECORD_RELEASED:
        while record_ack_next(&body, &a):
            acks.append((a.store_session_id, a.position))
    else:
        while record_released_next(&body, &a):
            acks.append((a.store_session_id, a.position, a.pid))
    return {"acks": acks}


cdef dict decode_inbox(uint8_t kind, View body):
    cdef RecordInbox i
    if kind == RECORD_INBOX_DONE:
        return None if record_inbox_done_read(body, &i) else {"sno": i.store_session_id, "pid": i.pid}
    if record_inbox_read(body, &i):
        return None
    fields = {"sno": i.store_session_id, "pid": i.pid, "refused": bool(i.refused)}
    if not i.refused:
        fields["journalled"] = bool(i.journalled)
        if i.identity:
            fields["identity"], fields["local_done"] = i.identity, bool(i.local_done)
        fields.update(message_fields(&i.message))
    return fields


cdef dict decode_will(View body):
    cdef RecordWill w
    if record_will_read(body, &w):
        return None
    fields = message_fields(&w.message)
    fields.update({"sno": w.store_session_id, "due_wall_ms": w.due_wall_ms, "delay_s": w.delay_s})
    return fields


cdef dict client_will_fields(const RecordClientWill* w):
    fields = message_fields(&w.message)
    fields.update({"id": bytes_of(w.id), "user": None if w.user.p == NULL else bytes_of(w.user), "security": w.security,
                   "mount": bytes_of(w.mount), "expiry_s": w.expiry_s if w.has_expiry else None})
    return fields


cdef dict decode_client_will(View body):
    cdef RecordClientWill w
    return None if record_client_will_read(body, &w) else client_will_fields(&w)


cdef dict decode_waiting_will(View body):
    cdef RecordWaitingWill w
    if record_waiting_will_read(body, &w):
        return None
    fields = client_will_fields(&w.will)
    fields.update(number=w.number, handle=w.handle)
    return fields


cdef dict decode_undelivered(View body):
    cdef RecordUndelivered u
    if record_undelivered_read(body, &u):
        return None
    sessions = []
    while u.sessions.n:
        sessions.append(record_undelivered_next(&u.sessions))
    fields = client_will_fields(&u.will)
    fields.update(number=u.number, unjournalled=bool(u.unjournalled), sessions=sessions, group=bytes_of(u.group))
    return fields


cdef dict decode_from(View body):
    cdef RecordFrom r
    if record_from_read(body, &r):
        return None
    return {"security": r.security, "topic": bytes_of(r.topic), "id": bytes_of(r.id), "user": bytes_of(r.user)}


cdef dict decode_publisher(View body):
    cdef RecordPublisher r
    if record_publisher_read(body, &r):
        return None
    return {"security": r.security, "pid": r.pid, "id": bytes_of(r.id), "user": bytes_of(r.user)}


cdef dict decode_streams(View body):
    cdef View name, seqs
    streams = []
    while record_stream_next(&body, &name, &seqs):
        raw = bytes_of(seqs)
        streams.append({"name": bytes_of(name), "seqs": [int.from_bytes(raw[i:i + 8], "little") for i in range(0, len(raw), 8)]})
    return {"streams": streams}


cdef dict decode(uint8_t kind, View body):
    cdef uint32_t store_session_id = 0
    cdef uint64_t number = 0
    if kind == RECORD_SESSION:
        return decode_session(body)
    if kind == RECORD_SUB or kind == RECORD_UNSUB:
        return decode_sub(kind, body)
    if kind == RECORD_END or kind == RECORD_WILL_GONE:
        return None if record_end_read(body, &store_session_id) else {"sno": store_session_id}
    if kind == RECORD_MSG or kind == RECORD_GATED:
        return decode_msg(body)
    if kind == RECORD_ACKS or kind == RECORD_RELEASED or kind == RECORD_GATED_DONE:
        return decode_acks(kind, body)
    if kind == RECORD_INBOX or kind == RECORD_INBOX_DONE:
        return decode_inbox(kind, body)
    if kind == RECORD_RETAINED_GONE:
        return None if record_check(kind, body) else {"topic": bytes_of(body)}
    if kind == RECORD_WILL:
        return decode_will(body)
    if kind == RECORD_RETAINED_FROM:
        return decode_from(body)
    if kind == RECORD_PUBLISHER:
        return decode_publisher(body)
    if kind == RECORD_STREAMS:
        return decode_streams(body)
    if kind == RECORD_CLIENT_WILL:
        return decode_client_will(body)
    if kind == RECORD_CLIENT_WILL_GONE:
        return None if record_check(kind, body) else {"id": bytes_of(body)}
    if kind == RECORD_WAITING_WILL or kind == RECORD_LINK_WILL:
        return decode_waiting_will(body)
    if kind == RECORD_WAITING_WILL_GONE:
        return None if record_waiting_will_gone_read(body, &number) else {"number": number}
    if kind == RECORD_UNDELIVERED:
        return decode_undelivered(body)
    if kind in LINK_FIELDS:
        numbers = struct.unpack(f"<{body.n // 8}Q", bytes_of(body))
        fields = dict(zip(LINK_FIELDS[kind], numbers))
        if kind == RECORD_LINK_MARK:
            fields["holes"] = list(numbers[4:])
        return fields
    return {key: value for key, found, value in (line.partition(b"=") for line in bytes_of(body).split(b"\n")) if found}


def record_decode(uint8_t kind, bytes body):
    """Return the fields of a body. Raise ValueError, with the problem, if the body is invalid."""
    cdef View v = view_of(body)
    cdef int rc = record_check(kind, v)
    if rc:
        raise ValueError(f"a record of kind {kind} ({KINDS.get(kind, 'unknown')}) and {len(body)} bytes {RECORD_PROBLEMS[rc]}")
    return decode(kind, v)


def record_verdict(uint8_t kind, bytes body):
    """Return None if the body is valid, otherwise its problem."""
    return RECORD_PROBLEMS.get(record_check(kind, view_of(body)))


def meta_value(bytes body, bytes key):
    """Return the value of a key in a META body as the broker finds it, or None if the key is missing."""
    cdef View value
    return bytes_of(value) if record_meta_find(view_of(body), view_of(key), &value) else None
