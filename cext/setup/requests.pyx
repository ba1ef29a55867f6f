"""Convert requests of the data plane from bytes to records, and answers of the control plane from records to structs. mosq/records.py
declares the records. This module knows both forms. It does not know which code answers, or what an answer causes.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from cext.base.view cimport View
from cext.broker.auth.auth_requests cimport (
    ASK_ACL, ASK_AGAIN, ASK_AUTH, ASK_BRIDGE, ASK_CONNECT, ASK_CONTROL, ASK_EVENT, ASK_KICK_USERS, ASK_MESSAGE_IN, ASK_MESSAGE_OUT,
    ASK_PAUSE, ASK_PUBLISH, ASK_WAIT, AUTH_FIELD_NONE, AuthAnswer, AuthRequestHead, OFFLINE_BIT, answers_post, auth_requests_swap,
)
from cext.broker.core.broker cimport Broker
from cext.topic.name cimport name_check

cdef extern from "<string.h>" nogil:
    void explicit_bzero(void* p, size_t n)

BRIDGE_EVENTS = ("up", "down", "refused", "wanted", "idle", "ready")
EVENTS = ("connected", "disconnected", "subscribed", "unsubscribed")
REQUEST_KINDS = {"publish": ASK_PUBLISH, "connect": ASK_CONNECT, "acl": ASK_ACL, "message_in": ASK_MESSAGE_IN, "message_out": ASK_MESSAGE_OUT,
                 "wait": ASK_WAIT, "again": ASK_AGAIN, "control": ASK_CONTROL, "kick": ASK_KICK_USERS}
REQUEST_TEXT_MAX = 65535
WAIT_MAX_S = 3600
LOG_EXPIRY_S = 20        # lifetime of log lines that are published to topics, as in Mosquitto


cdef object named_records = None        # the module mosq.records, imported with the first request


cdef object records_of():
    global named_records
    if named_records is None:
        from mosq import records
        named_records = records
    return named_records


cdef list requests_take(Broker* b):
    """Return all requests since the last call, as records. Their bytes are erased because they may hold passwords."""
    cdef uint32_t n = 0
    cdef uint32_t at = 0
    cdef const uint8_t* p
    cdef const AuthRequestHead* head
    with nogil:
        p = auth_requests_swap(b, &n)
    out = []
    if n == 0:
        return out
    records = records_of()
    while at < n:
        head = <const AuthRequestHead*>(p + at)
        out.append(request_of(records, head, fields_of(head)))
        at += head.total
    explicit_bzero(<void*>p, n)
    return out


cdef list fields_of(const AuthRequestHead* head):
    """Return the fields of a request as bytes; None for an absent field."""
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
    """Return text for bytes; invalid UTF-8 becomes U+FFFD."""
    return None if value is None else value.decode("utf-8", "replace")


cdef facts_of(list f, int at):
    """Return the field at this place, such as the facts about a client for native plugins; None if the request has none."""
    return f[at] if at < len(f) else None


cdef request_of(records, const AuthRequestHead* head, list f):
    """Make the record of one request. `f`: its fields, in the order in which auth_requests.pyx and authorize.pyx write them."""
    if head.kind == ASK_CONNECT or head.kind == ASK_PAUSE:
        names = (("common_name", optional_text(f[6])), ("subject", optional_text(f[7])), ("certificate_pem", optional_text(f[8])))
        identity = {name: value for name, value in names if value is not None} or None
        return records.LoginRequest(
            head.handle, head.security, optional_text(f[0]), optional_text(f[1]), f[2], optional_text(f[3]), head.b << 8 | head.c,
            head.a, optional_text(f[4]), f[5], identity, facts_of(f, 9), head.kind == ASK_PAUSE)
    if head.kind == ASK_AUTH:
        return records.ExchangeRequest(
            head.handle, head.security, optional_text(f[0]), f[1], bool(head.a), optional_text(f[2]), optional_text(f[3]),
            optional_text(f[4]), facts_of(f, 5))
    if head.kind == ASK_ACL:
        return records.AccessRequest(
            head.handle, head.security, optional_text(f[0]), optional_text(f[1]), optional_text(f[2]), head.a, optional_text(f[3]),
            head.b, bool(head.c), f[4], facts_of(f, 6), facts_of(f, 5) or b"")
    if head.kind == ASK_BRIDGE:
        return records.BridgeEvent(optional_text(f[0]), BRIDGE_EVENTS[head.a], optional_text(f[1]) or "")
    if head.kind == ASK_CONTROL:
        return records.CommandRequest(
            head.handle, head.security, optional_text(f[0]), optional_text(f[1]), optional_text(f[2]), optional_text(f[3]), f[4], f[5], facts_of(f, 6))
    if head.kind == ASK_EVENT:
        return records.ClientNotice(head.security, EVENTS[head.a], optional_text(f[0]), optional_text(f[1]), optional_text(f[2]) or "",
                                    facts_of(f, 3), <int>(head.handle & 0xFFFF), bool(head.handle >> OFFLINE_BIT))
    return records.MessageRequest(
        "message_in" if head.kind == ASK_MESSAGE_IN else "message_out", head.handle, head.security, optional_text(f[0]),
        optional_text(f[1]), optional_text(f[3]), f[4], head.b, bool(head.c), f[5], facts_of(f, 6))


# ---------------------------------------------------------------- answers

cdef AuthAnswer* answer_new(str kind, handle, int verdict, bytes first=None, bytes second=None, bytes third=None,
                            bytes fourth=None) except NULL:
    """Make the struct of an answer with copies of its bytes: text, bytes, extra and target of AuthAnswer."""
    cdef size_t n = sum([len(part) for part in (first, second, third, fourth) if part is not None])
    cdef uint64_t number = handle
    cdef uint8_t* p
    cdef AuthAnswer* a = <AuthAnswer*>malloc(sizeof(AuthAnswer) + n + 1)
    if a == NULL:
        raise MemoryError
    memset(a, 0, sizeof(AuthAnswer))
    a.kind = <uint8_t><int>REQUEST_KINDS[kind]
    a.handle = number
    a.verdict = verdict
    p = <uint8_t*>a + sizeof(AuthAnswer)
    answer_view_put(&a.text, p, first)
    answer_view_put(&a.bytes, p + a.text.n, second)
    answer_view_put(&a.extra, p + a.text.n + a.bytes.n, third)
    answer_view_put(&a.target, p + a.text.n + a.bytes.n + a.extra.n, fourth)
    return a


cdef void answer_view_put(View* v, uint8_t* p, bytes value):
    if value is not None:
        v.p = p
        v.n = <uint32_t>len(value)
        if v.n:
            memcpy(p, <const char*>value, v.n)


cdef AuthAnswer* answer_of(given) except NULL:
    """Make the struct of one answer; for a CommandAnswer see answers_append."""
    kind = given.kind
    if kind == "connect":
        return login_answer(given)
    if kind == "wait":
        if not 1 <= given.seconds <= WAIT_MAX_S:
            raise ValueError(f"{given.seconds!r} is no time to wait: expected 1 to {WAIT_MAX_S} seconds")
        return answer_new("wait", given.handle, given.seconds)
    if kind == "again":
        return answer_new("again", given.handle, 0)
    if kind == "acl":
        return filter_answer(answer_new("acl", given.handle, -1 if given.allowed is None else bool(given.allowed),
                                        None if given.filter is None else given.filter.encode()), given)
    if kind == "message_in" or kind == "message_out":
        if given.content is None:
            return answer_new(kind, given.handle, 0)
        return message_answer(answer_new(kind, given.handle, 1, topic_of(given.content), bytes(given.content.payload), given.content.properties),
                              given.content)
    if kind == "publish":
        return publish_of(given)
    if kind == "kick":
        return kick_of(list(given.usernames))
    raise ValueError(f"{kind!r} is no kind of answer")


cdef AuthAnswer* filter_answer(AuthAnswer* a, given) except NULL:
    """Set the options of a filter that a plugin has changed."""
    a.qos = <uint8_t><int>given.options
    return a


cdef AuthAnswer* login_answer(given) except NULL:
    name, data = given.username if given.plugin is None else given.plugin, given.data
    client_id = None if given.client_id is None else given.client_id.encode()
    encoded = None if name is None else name.encode()
    if (encoded is not None and (len(encoded) > REQUEST_TEXT_MAX or b"\0" in encoded)) or (data is not None and len(data) > REQUEST_TEXT_MAX):
        raise ValueError("a user name or authentication data that does not go into a packet")
    if client_id is not None and (not 0 < len(client_id) <= REQUEST_TEXT_MAX or b"\0" in client_id):
        raise ValueError("a client id that does not go into a packet")
    return answer_new("connect", given.handle, given.code, encoded, None if data is None else bytes(data), client_id)


cdef AuthAnswer* kick_of(list users) except NULL:
    names = [name.encode() for name in users if name is not None]
    packed = b"".join([len(name).to_bytes(4, "little") + name for name in names])
    return answer_new("kick", 0, None in users, None, packed)


cdef bytes encoded_topic(str topic):
    """Return the bytes of a topic to publish to. Raise ValueError for another string."""
    encoded = topic.encode()
    if name_check(<const uint8_t*><const char*>encoded, <uint32_t>len(encoded)) != 0 or b"\0" in encoded:
        raise ValueError(f"{topic!r} is no topic to publish to")
    return encoded


cdef bytes topic_of(message):
    """Return the encoded topic of a Content or PublishCommand. Raise ValueError for a topic or QoS that cannot be published."""
    encoded = encoded_topic(message.topic)
    if not 0 <= message.qos <= 2:
        raise ValueError(f"{message.qos} is no quality of service")
    return encoded


cdef AuthAnswer* message_answer(AuthAnswer* a, message) except NULL:
    """Set QoS and retain flag of an answer."""
    a.qos = <uint8_t><int>message.qos
    a.retain = bool(message.retain)
    return a


cdef AuthAnswer* publish_of(given) except NULL:
    expiry_s = given.expiry_s
    if expiry_s is None:
        expiry_s = LOG_EXPIRY_S if given.topic.startswith("$SYS/broker/log/") else 0
    cdef AuthAnswer* a = answer_new("publish", 0, expiry_s, topic_of(given), bytes(given.payload), given.properties,
                                    None if given.client_id is None else given.client_id.encode())
    a.here = bool(given.here)
    return message_answer(a, given)


cdef int answers_append(list given, AuthAnswer** first) except -1:
    """Append the structs of all answers to `first`; on an exception, `first` holds those before it."""
    cdef AuthAnswer** end = first
    for one in given:
        if one.kind == "control":
            for topic, payload in one.messages:
                end[0] = answer_new("control", one.handle, 0, encoded_topic(topic), bytes(payload), one.correlation)
                end = &end[0].next
        else:
            end[0] = answer_of(one)
            end = &end[0].next
    return 0


cdef int answers_give(Broker* b, list answers) except -1:
    cdef AuthAnswer* first = NULL
    cdef AuthAnswer* a
    try:
        answers_append(answers, &first)
    except BaseException:
        while first != NULL:
            a = first
            first = a.next
            free(a)
        raise
    if first != NULL:
        a = first
        while a.next != NULL:
            a = a.next
        with nogil:
            answers_post(b, first, a)
    return 0
