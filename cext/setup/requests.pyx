"""Questions of the data plane as tuples, and the control plane's answers to them. Knows both shapes; not who asks or what follows.

Every request begins (kind, handle, security, ...): `handle` is opaque and belongs to this question, or, for connect and auth, to this exchange;
`security` is a place in the list that the Engine was given.

    ("connect", handle, security, client id, user name or None, password: bytes or None, address, port, version, method or None, data: bytes or None,
                identity: dict or None)
    ("auth", handle, security, method, data: bytes or None, of a connected client: bool, client id, user name or None, address)
                of one that is not in yet its "connect" has told them: an id of its own and the user name are None here
        -> ("connect", handle, reason code, {"username": str, "data": bytes} or None)     0: let in, 0x18: the exchange goes on, -1: without a user
                name allow_anonymous decides, else refused
    ("acl", handle, security, client id, user name or None, address, access, topic, qos, retain, None)
        -> ("acl", handle, True | False | None)      access 1 read, 2 write, 4 subscribe, 8 unsubscribe; None: no opinion, the rules decide
    ("message_in" | "message_out", handle, security, client id, user name or None, topic, payload, qos, retain, properties: bytes)
        -> (the same, handle, None: drop | (topic, payload, qos, retain))
    connect and auth, before their answer: ("wait", handle, seconds from now until the data plane gives up)
    and without being asked: ("publish", topic, payload, qos, retain[, seconds until it expires])
                ("kick", [user name, None: clients without one]): their connections end, after what was answered before
    ("control", handle, security, client id, user name or None, address, topic, payload, correlation data: bytes or None)
        -> ("control", handle, [(topic, payload)], correlation data or None)     each is sent to that client alone, QoS 0; none is due. The handle
                is the client's, and good as long as it is connected. What everybody may see is told by "publish"
    ("link", 0, name, "up" | "down" | "refused" | "wanted" | "idle", detail)      up: "session present" or ""; down: why; refused: code of
                CONNACK as it came, a blank, why; wanted: a lazy link has `threshold` deliveries waiting; idle: nothing went through for idle_ms
    ("event", 0, security, "connected" | "disconnected" | "subscribed" | "unsubscribed", client id, user name or None, detail)
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from cext.base.view cimport View
from cext.broker.auth.auth_requests cimport (
    ASK_ACL, ASK_AUTH, ASK_BRIDGE, ASK_CONNECT, ASK_CONTROL, ASK_EVENT, ASK_KICK_USERS, ASK_MESSAGE_IN, ASK_MESSAGE_OUT,
    ASK_PUBLISH, ASK_WAIT, AUTH_FIELD_NONE, AuthAnswer, AuthRequestHead, answers_post, auth_requests_swap,
)
from cext.broker.core.broker cimport Broker
from cext.topic.name cimport name_check

cdef extern from "<string.h>" nogil:
    void explicit_bzero(void* p, size_t n)

BRIDGE_EVENTS = ("up", "down", "refused", "wanted", "idle")
EVENTS = ("connected", "disconnected", "subscribed", "unsubscribed")
REQUEST_KINDS = {"publish": ASK_PUBLISH, "connect": ASK_CONNECT, "acl": ASK_ACL, "message_in": ASK_MESSAGE_IN, "message_out": ASK_MESSAGE_OUT,
         "wait": ASK_WAIT, "control": ASK_CONTROL, "kick": ASK_KICK_USERS}
REQUEST_TEXT_MAX = 65535
WAIT_MAX_S = 3600
LOG_EXPIRY_S = 20        # of what is logged to topics, as in Mosquitto


cdef list requests_take(Broker* b):
    cdef uint32_t n = 0
    cdef uint32_t at = 0
    cdef const uint8_t* p
    cdef const AuthRequestHead* head
    with nogil:
        p = auth_requests_swap(b, &n)
    out = []
    while at < n:
        head = <const AuthRequestHead*>(p + at)
        out.append(request_of(head, fields_of(head)))
        at += head.total
    if n:
        explicit_bzero(<void*>p, n)      # it held passwords
    return out


cdef list fields_of(const AuthRequestHead* head):
    cdef const uint8_t* p = <const uint8_t*>head + sizeof(AuthRequestHead)
    cdef uint32_t _, n
    out = []
    for _ in range(head.n_fields):
        memcpy(&n, p, sizeof(n))
        p += sizeof(n)
        if n == AUTH_FIELD_NONE:
            out.append(None)
            continue
        out.append((<const char*>p)[:n])
        p += n
    return out


cdef str optional_text(value):
    return None if value is None else value.decode("utf-8", "replace")


cdef tuple request_of(const AuthRequestHead* head, list f):
    if head.kind == ASK_CONNECT:
        names = (("common_name", optional_text(f[6])), ("subject", optional_text(f[7])), ("certificate_pem", optional_text(f[8])))
        identity = {name: value for name, value in names if value is not None} or None
        return ("connect", head.handle, head.security, optional_text(f[0]), optional_text(f[1]), f[2], optional_text(f[3]), head.b << 8 | head.c, head.a, optional_text(f[4]), f[5],
                identity)
    if head.kind == ASK_AUTH:
        return ("auth", head.handle, head.security, optional_text(f[0]), f[1], bool(head.a), optional_text(f[2]), optional_text(f[3]), optional_text(f[4]))
    if head.kind == ASK_ACL:
        return ("acl", head.handle, head.security, optional_text(f[0]), optional_text(f[1]), optional_text(f[2]), head.a, optional_text(f[3]), head.b, bool(head.c), None)
    if head.kind == ASK_BRIDGE:
        return ("link", 0, optional_text(f[0]), BRIDGE_EVENTS[head.a], optional_text(f[1]) or "")
    if head.kind == ASK_CONTROL:
        return ("control", head.handle, head.security, optional_text(f[0]), optional_text(f[1]), optional_text(f[2]), optional_text(f[3]), f[4], f[5])
    if head.kind == ASK_EVENT:
        return ("event", 0, head.security, EVENTS[head.a], optional_text(f[0]), optional_text(f[1]), optional_text(f[2]) or "")
    return ("message_in" if head.kind == ASK_MESSAGE_IN else "message_out", head.handle, head.security, optional_text(f[0]), optional_text(f[1]), optional_text(f[3]), f[4],
            head.b, bool(head.c), f[5])


# ---------------------------------------------------------------- answers

cdef AuthAnswer* answer_new(str kind, handle, int verdict, bytes first, bytes second, int qos, bint retain, bytes third=None) except NULL:
    cdef size_t n = sum([len(part) for part in (first, second, third) if part is not None])
    cdef uint64_t number = handle
    cdef uint8_t* p
    cdef AuthAnswer* a = <AuthAnswer*>malloc(sizeof(AuthAnswer) + n + 1)
    if a == NULL:
        raise MemoryError
    memset(a, 0, sizeof(AuthAnswer))
    a.kind = <uint8_t><int>REQUEST_KINDS[kind]
    a.handle = number
    a.verdict = verdict
    a.qos = <uint8_t>qos
    a.retain = retain
    p = <uint8_t*>a + sizeof(AuthAnswer)
    answer_view_put(&a.text, p, first)
    answer_view_put(&a.bytes, p + a.text.n, second)
    answer_view_put(&a.extra, p + a.text.n + a.bytes.n, third)
    return a


cdef void answer_view_put(View* v, uint8_t* p, bytes value):
    if value is not None:
        v.p = p
        v.n = <uint32_t>len(value)
        if v.n:
            memcpy(p, <const char*>value, v.n)


cdef AuthAnswer* answer_of(tuple given) except NULL:
    kind, handle = given[0], given[1]
    if kind == "kick":
        return kick_of(list(handle))
    if kind == "publish":
        _, topic, payload, qos, retain = given[:5]
        return publish_of(topic, payload, qos, retain, given[5] if len(given) > 5 else None)
    if kind == "connect":
        extra = (given[3] if len(given) > 3 else None) or {}
        username, data = extra.get("username"), extra.get("data")
        encoded = None if username is None else username.encode()
        if (encoded is not None and (len(encoded) > REQUEST_TEXT_MAX or b"\0" in encoded)) or (data is not None and len(data) > REQUEST_TEXT_MAX):
            raise ValueError("a user name or authentication data that does not go into a packet")
        return answer_new("connect", handle, given[2], encoded, None if data is None else bytes(data), 0, False)
    if kind == "wait":
        if not 1 <= given[2] <= WAIT_MAX_S:
            raise ValueError(f"{given[2]!r} is no time to wait: expected 1 to {WAIT_MAX_S} seconds")
        return answer_new("wait", handle, given[2], None, None, 0, False)
    if kind == "control":
        return answer_new("control", handle, 0, topic_of(given[2], 0), bytes(given[3]), 0, False, given[4])
    if kind == "acl":
        return answer_new("acl", handle, -1 if given[2] is None else bool(given[2]), None, None, 0, False)
    if kind != "message_in" and kind != "message_out":
        raise ValueError(f"{kind!r} is no kind of answer")
    if given[2] is None:
        return answer_new(kind, handle, 0, None, None, 0, False)
    topic, payload, qos, retain = given[2]
    return answer_new(kind, handle, 1, topic_of(topic, qos), bytes(payload), qos, bool(retain))


cdef AuthAnswer* kick_of(list users) except NULL:
    names = [name.encode() for name in users if name is not None]
    packed = b"".join([len(name).to_bytes(4, "little") + name for name in names])
    return answer_new("kick", 0, None in users, None, packed, 0, False)


cdef bytes topic_of(str topic, qos):
    encoded = topic.encode()
    if name_check(<const uint8_t*><const char*>encoded, <uint32_t>len(encoded)) != 0 or b"\0" in encoded:
        raise ValueError(f"{topic!r} is no topic to publish to")
    if not 0 <= qos <= 2:
        raise ValueError(f"{qos} is no quality of service")
    return encoded


cdef AuthAnswer* publish_of(str topic, payload, qos, retain, expiry_s) except NULL:
    if expiry_s is None:
        expiry_s = LOG_EXPIRY_S if topic.startswith("$SYS/broker/log/") else 0
    return answer_new("publish", 0, expiry_s, topic_of(topic, qos), bytes(payload), qos, bool(retain))


cdef singles(tuple given):
    """An answer to "control" has several messages."""
    if given[0] != "control":
        return (given,)
    return [("control", given[1], topic, payload, given[3] if len(given) > 3 else None) for topic, payload in given[2]]


cdef int answers_give(Broker* b, list answers) except -1:
    cdef AuthAnswer* first = NULL
    cdef AuthAnswer* last = NULL
    cdef AuthAnswer* a
    try:
        for given in answers:
            for single in singles(tuple(given)):
                a = answer_of(single)
                if last != NULL:
                    last.next = a
                else:
                    first = a
                last = a
    except BaseException:
        while first != NULL:
            a = first
            first = a.next
            free(a)
        raise
    if first != NULL:
        with nogil:
            answers_post(b, first, last)
    return 0
