"""Write records of single sessions for the control plane: client id, connection, queue, subscriptions. This module knows the
structs and the layout of a record. It does not know the requesting thread (mailbox.pyx) or how records are shown
(mosq/server/admin).

A record: 14 numbers of 32 bits, 1 of 64, then client id, user name and address, each with a length of 16 bits in front
(session_put). Invariant: a request does at most one slice of work, however many sessions exist: a fixed number of sessions and buckets, or of
subscriptions of one session, and of bytes. Sessions of the embedding program belong to that program and are not listed.
"""

from libc.errno cimport E2BIG, ENOMEM
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy, memset, strlen

from cext.base.view cimport View
from cext.broker.admin.control_request cimport ControlRequest
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport ADDRESS_TEXT_MAX, client_address
from cext.broker.core.client_state cimport Client
from cext.broker.core.session_refs cimport session_client
from cext.session.queue cimport queue_waiting
from cext.session.session cimport SESSION_TRUSTED, Session, sessions_find, sessions_scan
from cext.topic.index cimport SUBSCRIPTION_TEXT_BYTES, Subscription, subscription_read


cdef int out_put(ControlRequest* a, const void* p, uint32_t n) noexcept nogil:
    cdef uint8_t* bytes
    if a.out_cap - a.out_n < n:
        bytes = <uint8_t*>realloc(a.out, <size_t>a.out_cap * 2 + n + 4096)
        if bytes == NULL:
            return -1
        a.out = bytes
        a.out_cap = a.out_cap * 2 + n + 4096
    memcpy(a.out + a.out_n, p, n)
    a.out_n += n
    return 0


cdef int out_text(ControlRequest* a, const void* p, uint32_t n) noexcept nogil:
    cdef uint16_t size = <uint16_t>n
    if out_put(a, &size, 2) != 0:
        return -1
    return out_put(a, p, n) if n else 0


cdef void client_numbers(const Client* c, uint32_t* v) noexcept nogil:
    v[0] |= INSPECT_CONNECTED
    if c.listener != NULL and c.listener.websockets:
        v[0] |= INSPECT_WEBSOCKETS
    if c.conn.transport != NULL:
        v[0] |= INSPECT_TLS
    if c.will != NULL:
        v[0] |= INSPECT_WILL
    v[1] = c.version
    v[2] = c.keepalive_s
    v[3] = c.conn.address.port
    v[4] = c.listener.port if c.listener != NULL else 0
    v[5] = c.conn.out_bytes
    v[6] = c.window


cdef int session_put(Broker* b, ControlRequest* a, Session* s) noexcept nogil:
    """Append a session's record: flags, version, keepalive, port, listener, unsent bytes, window; subscriptions, pending,
    waiting, inflight, inbox, expiry, seconds until its end; bytes; texts. Returns -1 if there is no memory."""
    cdef uint32_t v[14]
    cdef uint64_t n_bytes = s.queue.waiting_bytes + s.queue.inflight_bytes
    cdef char address[ADDRESS_TEXT_MAX]
    cdef int address_n = 0
    memset(v, 0, sizeof(v))
    if s.client != NULL:
        client_numbers(session_client(s), v)
        address_n = client_address(session_client(s), address, sizeof(address))
    elif s.will != NULL:
        v[0] |= INSPECT_WILL
    v[7] = s.owner.n
    v[8] = s.queue.pending
    v[9] = queue_waiting(&s.queue)
    v[10] = s.queue.inflight
    v[11] = s.inbox.n
    v[12] = s.expiry_s
    if s.client == NULL and s.ends_ms:
        v[13] = <uint32_t>((s.ends_ms - b.reactor.now_ms) // 1000) if s.ends_ms > b.reactor.now_ms else 0
    if out_put(a, v, sizeof(v)) != 0 or out_put(a, &n_bytes, 8) != 0 or out_text(a, s.client_id, s.id_len) != 0:
        return -1
    if out_text(a, s.username, <uint32_t>strlen(s.username) if s.username != NULL else 0) != 0:
        return -1
    return out_text(a, address, <uint32_t>address_n)


ctypedef struct SessionListing:
    Broker* b
    ControlRequest* request
    uint32_t n


cdef void list_one(void* listing, Session* s) noexcept nogil:
    cdef SessionListing* l = <SessionListing*>listing
    if s.flags & SESSION_TRUSTED or l.request.result:
        return
    l.n += 1
    if session_put(l.b, l.request, s) != 0:
        l.request.result = ENOMEM


cdef void answer_sessions(Broker* b, ControlRequest* a) noexcept nogil:
    cdef SessionListing l
    cdef uint32_t buckets = 0
    l.b = b
    l.request = a
    l.n = 0
    while True:
        a.cursor = sessions_scan(&b.sessions, a.cursor, list_one, &l)
        buckets += 1
        if a.result or a.cursor == 0 or l.n >= a.from_index or buckets >= SESSIONS_BUCKETS or a.out_n >= INSPECT_BYTES_MAX:
            return


cdef void answer_session(Broker* b, ControlRequest* a) noexcept nogil:
    cdef View id
    cdef Session* s
    id.p = a.text
    id.n = a.text_n
    s = sessions_find(&b.sessions, id)
    if s == NULL or s.flags & SESSION_TRUSTED:
        a.result = 1
    elif a.from_index > SESSION_WALK_MAX:
        a.result = E2BIG
    elif session_put(b, a, s) != 0 or subscriptions_put(a, s) != 0:
        a.result = ENOMEM


cdef int subscriptions_put(ControlRequest* a, Session* s) noexcept nogil:
    """Append subscriptions of the session: options, identifier, length of the filter, filter. Returns -1 if there is no
    memory."""
    cdef uint8_t filter[SUBSCRIPTION_TEXT_BYTES]
    cdef Subscription* sub = s.owner.head
    cdef uint32_t n, sub_id
    cdef uint32_t at = 0
    cdef uint32_t listed = 0
    cdef uint8_t options
    while sub != NULL and at < a.from_index:
        sub = sub.next
        at += 1
    while sub != NULL and listed < SESSION_SUBSCRIPTIONS and a.out_n < INSPECT_BYTES_MAX:
        sub = subscription_read(sub, filter, &n, &options, &sub_id)
        if out_put(a, &options, 1) != 0 or out_put(a, &sub_id, 4) != 0 or out_put(a, &n, 4) != 0 or out_put(a, filter, n) != 0:
            return -1
        listed += 1
    a.left_out = s.owner.n - at - listed
    return 0
