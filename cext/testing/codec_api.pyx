# Test API of the codec: thin functions over its structs and nogil functions. No message of a broker passes through here. Each
# function copies its input into memory of exactly its size, so that ASan detects a read beyond it, and returns plain Python
# values.
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from cext.base.view cimport View
from cext.codec.decode cimport (
    Ack, Auth, Connect, Disconnect, Publish, Subscribe, SubscribeItem, decode_ack, decode_auth, decode_connect,
    decode_disconnect, decode_empty, decode_publish, decode_subscribe, decode_unsubscribe, subscribe_next,
    unsubscribe_next,
)
from cext.codec.encode cimport (
    ACK_SIZE_MAX, Connack, DISCONNECT_SIZE_MAX, PINGRESP_SIZE, PublishHead, connack_size, encode_ack, encode_connack,
    encode_disconnect, encode_pingresp, encode_suback, publish_head_put, publish_head_size, suback_size,
)
from cext.codec.frame cimport (
    Frame, T_AUTH, T_CONNECT, T_DISCONNECT, T_PINGREQ, T_PUBACK, T_PUBCOMP, T_PUBLISH, T_PUBREC, T_PUBREL,
    T_SUBSCRIBE, T_UNSUBSCRIBE, frame_next,
)
from cext.codec.properties cimport (
    P_ASSIGNED_CLIENT_ID, P_AUTH_DATA, P_AUTH_METHOD, P_CONTENT_TYPE, P_CORRELATION_DATA, P_MAXIMUM_PACKET_SIZE,
    P_MAXIMUM_QOS, P_MESSAGE_EXPIRY, P_PAYLOAD_FORMAT, P_REASON_STRING, P_RECEIVE_MAXIMUM, P_REQUEST_PROBLEM,
    P_REQUEST_RESPONSE, P_RESPONSE_TOPIC, P_RETAIN_AVAILABLE, P_SERVER_KEEP_ALIVE, P_SESSION_EXPIRY,
    P_SUBSCRIPTION_ID, P_TOPIC_ALIAS, P_TOPIC_ALIAS_MAXIMUM, P_WILL_DELAY, Props, props_decode, props_forward_put,
    props_forward_size, props_has, props_verbatim,
)
from cext.codec.utf8 cimport utf8_check


cdef class Memory:
    """n bytes on the heap: a copy, or room filled with 0xA5."""
    cdef uint8_t* p
    cdef uint32_t n

    def __cinit__(self, bytes content, size_t room=0):
        self.n = <uint32_t>(len(content) + room)
        self.p = <uint8_t*>malloc(self.n or 1)
        if self.p == NULL:
            raise MemoryError
        memcpy(self.p, <const uint8_t*>content, len(content))
        memset(self.p + len(content), 0xA5, room)

    def __dealloc__(self):
        free(self.p)


cdef bytes text(View v):
    return (<const char*>v.p)[:v.n] if v.n else b""


cdef View view(Memory m):
    cdef View v
    v.p = m.p
    v.n = m.n
    return v


cdef bytes written(Memory m, uint8_t* end):
    """Return the output of an encoder, and check that it stayed inside the memory."""
    assert m.p <= end <= m.p + m.n, "an encoder wrote beyond its own size"
    return (<const char*>m.p)[:end - m.p]


cdef dict props_dict(const Props* p):
    numbers = {P_PAYLOAD_FORMAT: p.payload_format, P_MESSAGE_EXPIRY: p.message_expiry,
               P_SUBSCRIPTION_ID: p.sub_id, P_SESSION_EXPIRY: p.session_expiry,
               P_SERVER_KEEP_ALIVE: p.server_keep_alive, P_REQUEST_PROBLEM: p.request_problem,
               P_WILL_DELAY: p.will_delay, P_REQUEST_RESPONSE: p.request_response,
               P_RECEIVE_MAXIMUM: p.receive_max,
               P_TOPIC_ALIAS_MAXIMUM: p.alias_max, P_TOPIC_ALIAS: p.alias, P_MAXIMUM_QOS: p.max_qos,
               P_RETAIN_AVAILABLE: p.retain_available, P_MAXIMUM_PACKET_SIZE: p.packet_max}
    out = {"present": [i for i in range(64) if p.present >> i & 1], "raw": text(p.raw)}
    out |= {i: numbers[i] for i in out["present"] if i in numbers}
    if props_has(p, P_CONTENT_TYPE):
        out[P_CONTENT_TYPE] = text(p.content_type)
    if props_has(p, P_RESPONSE_TOPIC):
        out[P_RESPONSE_TOPIC] = text(p.response_topic)
    if props_has(p, P_CORRELATION_DATA):
        out[P_CORRELATION_DATA] = text(p.correlation_data)
    if props_has(p, P_ASSIGNED_CLIENT_ID):
        out[P_ASSIGNED_CLIENT_ID] = text(p.assigned_client_id)
    if props_has(p, P_AUTH_METHOD):
        out[P_AUTH_METHOD] = text(p.auth_method)
    if props_has(p, P_AUTH_DATA):
        out[P_AUTH_DATA] = text(p.auth_data)
    if props_has(p, P_REASON_STRING):
        out[P_REASON_STRING] = text(p.reason_string)
    return out


def utf8(bytes s):
    """Return 0 or the reason code."""
    cdef Memory m = Memory(s)
    return utf8_check(m.p, m.n)


def frame(bytes read, uint32_t packet_max=0):
    """Return (result of frame_next, total_len, first, body); the last two are None unless the frame is complete."""
    cdef Memory m = Memory(read)
    cdef Frame f
    f.total_len = 0
    rc = frame_next(m.p, m.n, packet_max, &f)
    if rc != 1:
        return rc, f.total_len, None, None
    return rc, f.total_len, f.first, (<const char*>f.body)[:f.body_len]


def props(bytes block, int place):
    """Decode a block with its length before it. Return (reason code, bytes consumed, properties)."""
    cdef Memory m = Memory(block)
    cdef const uint8_t* p = m.p
    cdef Props out
    memset(&out, 0xA5, sizeof(out))
    rc = props_decode(&p, m.p + m.n, place, &out)
    return (rc, p - m.p, props_dict(&out)) if rc == 0 else (rc, 0, None)


def forward(bytes block, int place):
    """Return the properties that a subscriber gets from a valid block with its length before it."""
    cdef Memory m = Memory(block)
    cdef const uint8_t* p = m.p
    cdef Props out
    memset(&out, 0xA5, sizeof(out))
    if props_decode(&p, m.p + m.n, place, &out) != 0:
        raise ValueError(block)
    cdef Memory room = Memory(b"", props_forward_size(&out))
    encoded = written(room, props_forward_put(room.p, &out))
    assert len(encoded) == room.n, "props_forward_size and props_forward_put differ"
    return encoded, bool(props_verbatim(&out))


cdef dict connect_dict(Connect* c):
    return {"version": c.version, "bridge": c.bridge, "clean_start": c.clean_start, "will": c.will,
            "will_qos": c.will_qos, "will_retain": c.will_retain, "has_username": c.has_username,
            "has_password": c.has_password, "keepalive": c.keepalive,
            "client_id": text(c.client_id), "will_topic": text(c.will_topic), "will_payload": text(c.will_payload),
            "username": text(c.username), "password": text(c.password), "props": props_dict(&c.props),
            "will_props": props_dict(&c.will_props)}


cdef dict publish_dict(Publish* p):
    return {"qos": p.qos, "retain": p.retain, "dup": p.dup, "pid": p.pid, "topic": text(p.topic),
            "payload": text(p.payload), "props": props_dict(&p.props)}


cdef dict items_dict(Subscribe* s, bint with_options):
    cdef SubscribeItem item
    cdef View topic_filter
    items = []
    out = {"pid": s.pid, "props": props_dict(&s.props), "items": items}
    if with_options:
        while subscribe_next(s, &item):
            items.append((text(item.filter), item.options))
    else:
        while unsubscribe_next(s, &topic_filter):
            items.append(text(topic_filter))
    return out


cdef object decoded(const Frame* f, int version):
    cdef Connect c
    cdef Publish p
    cdef Ack a
    cdef Subscribe s
    cdef Disconnect di
    cdef Auth au
    cdef int t = f.first >> 4
    cdef int rc
    if t == T_CONNECT:
        memset(&c, 0xA5, sizeof(c))
        rc = decode_connect(f, &c)
        return (rc, c.version) if rc == 0x84 else (rc, connect_dict(&c) if rc == 0 else None)
    if t == T_PUBLISH:
        memset(&p, 0xA5, sizeof(p))
        rc = decode_publish(f, version, &p)
        return rc, publish_dict(&p) if rc == 0 else None
    if t in (T_PUBACK, T_PUBREC, T_PUBREL, T_PUBCOMP):
        memset(&a, 0xA5, sizeof(a))
        rc = decode_ack(f, version, &a)
        return rc, {"pid": a.pid, "rc": a.rc, "props": props_dict(&a.props)} if rc == 0 else None
    if t in (T_SUBSCRIBE, T_UNSUBSCRIBE):
        memset(&s, 0xA5, sizeof(s))
        rc = (decode_subscribe if t == T_SUBSCRIBE else decode_unsubscribe)(f, version, &s)
        return rc, items_dict(&s, t == T_SUBSCRIBE) if rc == 0 else None
    if t == T_PINGREQ:
        return decode_empty(f), None
    if t == T_DISCONNECT:
        memset(&di, 0xA5, sizeof(di))
        rc = decode_disconnect(f, version, &di)
        return rc, {"rc": di.rc, "props": props_dict(&di.props)} if rc == 0 else None
    if t == T_AUTH:
        memset(&au, 0xA5, sizeof(au))
        rc = decode_auth(f, version, &au)
        return rc, {"rc": au.rc, "props": props_dict(&au.props)} if rc == 0 else None
    raise ValueError(f"a client does not send packets of type {t}")


def decode(bytes packet, int version):
    """Decode one complete frame from a client. Return (reason code, fields); for 0x84: (0x84, level as sent)."""
    cdef Memory m = Memory(packet)
    cdef Frame f
    if frame_next(m.p, m.n, 0, &f) != 1 or f.total_len != m.n:
        raise ValueError("not one complete frame")
    return decoded(&f, version)


def ack(int packet_type, int version, uint16_t pid, uint8_t rc=0):
    cdef Memory room = Memory(b"", ACK_SIZE_MAX)
    return written(room, encode_ack(room.p, packet_type, version, pid, rc))


def disconnect(uint8_t rc):
    cdef Memory room = Memory(b"", DISCONNECT_SIZE_MAX)
    return written(room, encode_disconnect(room.p, rc))


def pingresp():
    cdef Memory room = Memory(b"", PINGRESP_SIZE)
    return written(room, encode_pingresp(room.p))


def suback(int packet_type, int version, uint16_t pid, bytes codes):
    cdef Memory m = Memory(codes)
    cdef Memory room = Memory(b"", suback_size(version, m.n))
    return written(room, encode_suback(room.p, packet_type, version, pid, m.p, m.n))


def connack(int version, int session_present=0, int rc=0, bytes assigned_client_id=b"", **fields):
    """Encode a CONNACK. The fields are those of the struct Connack."""
    cdef Connack c
    cdef Memory name = Memory(assigned_client_id)
    memset(&c, 0, sizeof(c))
    c.version, c.session_present, c.rc = version, session_present, rc
    c.assigned_client_id = view(name)
    c.alias_max = fields.pop("alias_max", 0)
    c.has_server_keep_alive = "server_keep_alive" in fields
    c.server_keep_alive = fields.pop("server_keep_alive", 0)
    c.has_session_expiry = "session_expiry" in fields
    c.session_expiry = fields.pop("session_expiry", 0)
    c.retain_unavailable = fields.pop("retain_unavailable", 0)
    c.packet_max = fields.pop("packet_max", 0)
    c.receive_max = fields.pop("receive_max", 0)
    c.has_max_qos = "max_qos" in fields
    c.max_qos = fields.pop("max_qos", 0)
    if fields:
        raise TypeError(f"unknown fields {sorted(fields)}")
    cdef Memory room = Memory(b"", connack_size(&c))
    return written(room, encode_connack(room.p, &c))


def publish_head(       # parameters: the fields of PublishHead, by name
        int version, bytes topic, payload_len=0, qos=0, retain=0, dup=0, pid=0, alias=0, expiry=None, bytes props=b"", sub_ids=()):
    """Encode the head of a PUBLISH. Return (head, offset of the packet id or None); None = a frame cannot carry it."""
    cdef PublishHead h
    cdef Memory name = Memory(topic)
    cdef Memory block = Memory(props)
    cdef Memory ids = Memory(b"", 4 * len(sub_ids))
    cdef uint32_t remaining = 0, pid_at = 0xFFFFFFFF
    memset(&h, 0, sizeof(h))
    for i, sub_id in enumerate(sub_ids):
        (<uint32_t*>ids.p)[<size_t>i] = sub_id
    h.version, h.qos, h.retain, h.dup, h.pid, h.alias = version, qos, retain, dup, pid, alias
    h.has_expiry, h.expiry = expiry is not None, expiry or 0
    h.topic, h.props, h.payload_len = view(name), view(block), payload_len
    h.sub_ids, h.n_sub_ids = <const uint32_t*>ids.p, len(sub_ids)
    size = publish_head_size(&h, &remaining)
    if size == 0:
        return None
    cdef Memory room = Memory(b"", size)
    encoded = written(room, publish_head_put(room.p, &h, remaining, &pid_at))
    assert len(encoded) == size, "publish_head_size and publish_head_put differ"
    return encoded, (None if pid_at == 0xFFFFFFFF else pid_at)
