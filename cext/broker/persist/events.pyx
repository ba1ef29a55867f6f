"""Write the records of events. This module knows clients, sessions and payloads. It does not know the destination of records, or when something
happens.

Payloads are JSON of numbers and of addresses that the broker has formatted. They contain nothing that a client has sent. Cost: below 1 us each, no
allocation.
"""

from libc.errno cimport ECONNRESET, EPIPE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport strlen

from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport ADDRESS_TEXT_MAX, END_ERRNO, END_LOST, END_NORMAL, END_WITH_WILL, client_address
from cext.broker.core.client_state cimport CF_BRIDGE, CF_REMOTE_BRIDGE, Client
from cext.broker.core.workers cimport workers_of
from cext.broker.persist.streams cimport stream_event
from cext.codec.reason cimport RC_DISCONNECT_WITH_WILL, RC_SESSION_TAKEN_OVER, RC_SUCCESS, RC_UNSPECIFIED
from cext.journal.record cimport (
    JOURNAL_CONNECT, JOURNAL_DISCONNECT, JOURNAL_DROP, JOURNAL_EXPIRY, JOURNAL_START, JOURNAL_SUBSCRIBE, JOURNAL_TAKE_OVER,
    JOURNAL_UNSUBSCRIBE,
)
from cext.session.session cimport Session

cdef enum:
    EVENT_PAYLOAD_MAX = 384
    NODE_TEXT_MAX = 128


cdef inline View no_view() noexcept nogil:
    cdef View v
    v.p = NULL
    v.n = 0
    return v


cdef void event_put(Broker* b, uint8_t kind, const Session* s, View topic, uint8_t reason, const char* text, int n) noexcept nogil:
    cdef View id = no_view()
    cdef View user = no_view()
    cdef View payload
    if s != NULL:
        id.p = <const uint8_t*>s.client_id
        id.n = s.id_len
        if s.username != NULL:
            user.p = <const uint8_t*>s.username
            user.n = <uint32_t>strlen(s.username)
    payload.p = <const uint8_t*>text
    payload.n = <uint32_t>n
    stream_event(b, kind, topic, id, user, reason, payload)


cdef void event_node_text(Broker* b, char* out) noexcept nogil:
    """Write the members that name the process in a cluster, with a comma in front; nothing elsewhere. `out` has NODE_TEXT_MAX bytes."""
    cdef const View* node = &b.settings.node
    out[0] = 0
    if node.n:
        snprintf(out, NODE_TEXT_MAX, ",\"node\":\"%.*s\",\"worker\":%d", <int>node.n, <const char*>node.p,
                 <int>(workers_of(b).place + 1 if workers_of(b) != NULL else 1))


# ---------------------------------------------------------------- connections

cdef const char* role_of(const Client* c) noexcept nogil:
    if c.flags & CF_BRIDGE:
        return "link"
    return "bridge" if c.flags & CF_REMOTE_BRIDGE else "client"


cdef void event_connected_write(Broker* b, Client* c, bint clean, bint present) noexcept nogil:
    cdef char where[ADDRESS_TEXT_MAX]
    cdef char text[EVENT_PAYLOAD_MAX]
    cdef char node[NODE_TEXT_MAX]
    client_address(c, where, sizeof(where))
    event_node_text(b, node)
    event_put(b, JOURNAL_CONNECT, c.session, no_view(), RC_SUCCESS, text, snprintf(
        text, sizeof(text), "{\"version\":%d,\"clean\":%s,\"keepalive_s\":%d,\"expiry_s\":%u,\"present\":%s,\"role\":\"%s\",\"address\":\"%s\",\"listener\":%d%s}",
        <int>c.version, <const char*>b"true" if clean else <const char*>b"false", <int>c.keepalive_s, <unsigned int>c.session.expiry_s,
        <const char*>b"true" if present else <const char*>b"false", role_of(c), <const char*>where, <int>c.listener.port,
        <const char*>node))


cdef void event_refused_write(Broker* b, Client* c, uint8_t rc) noexcept nogil:
    cdef char where[ADDRESS_TEXT_MAX]
    cdef char text[EVENT_PAYLOAD_MAX]
    cdef View payload
    cdef char node[NODE_TEXT_MAX]
    cdef View id = b.log.connecting if b.log.connecting.p != NULL else no_view()
    client_address(c, where, sizeof(where))
    event_node_text(b, node)
    payload.p = <const uint8_t*>text
    payload.n = <uint32_t>snprintf(text, sizeof(text), "{\"version\":%d,\"address\":\"%s\",\"listener\":%d%s}", <int>c.version, <const char*>where,
                                   <int>c.listener.port, <const char*>node)
    stream_event(b, JOURNAL_CONNECT, no_view(), id, no_view(), rc or RC_UNSPECIFIED, payload)


cdef uint8_t reason_of(int reason) noexcept nogil:
    if 0x80 <= reason <= 0xFF:
        return <uint8_t>reason
    if reason == END_NORMAL:
        return RC_SUCCESS
    if reason == END_WITH_WILL:
        return RC_DISCONNECT_WITH_WILL
    if reason == END_LOST or reason == END_ERRNO + ECONNRESET or reason == END_ERRNO + EPIPE:
        return EVENT_CLOSED
    return EVENT_BROKEN if reason >= END_ERRNO else RC_UNSPECIFIED


cdef void event_disconnected_write(Broker* b, Client* c, int reason) noexcept nogil:
    if reason == RC_SESSION_TAKEN_OVER and not c.flags & CF_BRIDGE:
        event_put(b, JOURNAL_TAKE_OVER, c.session, no_view(), RC_SESSION_TAKEN_OVER, NULL, 0)
    event_put(b, JOURNAL_DISCONNECT, c.session, no_view(), reason_of(reason), NULL, 0)


# ---------------------------------------------------------------- subscriptions, drops, refusals

cdef void event_subscribed_write(Broker* b, const Session* s, View filter, uint8_t options, uint32_t sub_id, bint restored) noexcept nogil:
    cdef char text[EVENT_PAYLOAD_MAX]
    cdef int n = snprintf(text, sizeof(text), "{\"qos\":%d,\"options\":%d", <int>(options & 3), <int>options)
    if sub_id:
        n += snprintf(text + n, sizeof(text) - n, ",\"id\":%u", <unsigned int>sub_id)
    n += snprintf(text + n, sizeof(text) - n, "%s}", <const char*>b",\"restored\":true" if restored else <const char*>b"")
    event_put(b, JOURNAL_SUBSCRIBE, s, filter, RC_SUCCESS, text, n)


cdef void event_unsubscribed_write(Broker* b, const Session* s, View filter) noexcept nogil:
    event_put(b, JOURNAL_UNSUBSCRIBE, s, filter, RC_SUCCESS, NULL, 0)


cdef void event_dropped_write(Broker* b, const Session* s, int reason, View topic) noexcept nogil:
    event_put(b, JOURNAL_DROP, s, topic, <uint8_t>reason, NULL, 0)


cdef void event_expired_write(Broker* b, const Session* s) noexcept nogil:
    event_put(b, JOURNAL_EXPIRY, s, no_view(), RC_SUCCESS, NULL, 0)


cdef void event_started_write(Broker* b, uint64_t n_sessions, uint64_t n_subscriptions) noexcept nogil:
    cdef char text[EVENT_PAYLOAD_MAX]
    cdef char node[NODE_TEXT_MAX]
    event_node_text(b, node)
    event_put(b, JOURNAL_START, NULL, no_view(), RC_SUCCESS, text, snprintf(
        text, sizeof(text), "{\"sessions\":%llu,\"subscriptions\":%llu%s}", <unsigned long long>n_sessions, <unsigned long long>n_subscriptions,
        <const char*>node))
