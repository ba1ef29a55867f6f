"""Write trace events into a ring that the control plane reads. This module knows the layout of a record, not what an event means.

There are two halves of one megabyte; the reader swaps them under a lock that is held no longer than a copy takes. Events that find no room are
counted per trace; the loop never waits. The last event of a trace finds room that the others leave.
Invariant: a record contains no byte of a password, of authentication data, or of a payload beyond the largest bound of its traces.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset, strlen

from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport ADDRESS_TEXT_MAX, client_address
from cext.broker.core.log cimport pthread_mutex_lock, pthread_mutex_unlock
from cext.broker.core.trace_state cimport (
    TE_END, TRACE_HEAD_MAX, TRACE_RING_BYTES, TRACE_TEXT_MAX, TRACES_MAX, TraceRecord, Tracing, trace_count_put,
)
from cext.net.system cimport AF_INET, AF_INET6, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage

cdef extern from "<arpa/inet.h>" nogil:
    const char* inet_ntop(int family, const void* a, char* out, unsigned int n)
    int getsockname(int fd, sockaddr* a, unsigned int* n)

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int CLOCK_REALTIME
    int clock_gettime(int clock, timespec* t)

cdef enum:
    RESERVE_BYTES = 4096         # room for the last events of traces


cdef int ring_open(Tracing* t) noexcept nogil:
    if t.filling == NULL:
        t.filling = <uint8_t*>malloc(TRACE_RING_BYTES)
    if t.draining == NULL:
        t.draining = <uint8_t*>malloc(TRACE_RING_BYTES)
    return 0 if t.filling != NULL and t.draining != NULL else -1


cdef void ring_close(Tracing* t) noexcept nogil:
    free(t.filling)
    free(t.draining)
    t.filling = t.draining = NULL
    t.used = 0


cdef inline uint16_t text_cut(View v) noexcept nogil:
    return <uint16_t>(v.n if v.n < TRACE_TEXT_MAX else TRACE_TEXT_MAX)


cdef inline uint8_t* copied(uint8_t* out, const uint8_t* p, uint32_t n) noexcept nogil:
    if n:
        memcpy(out, p, n)
    return out + n


cdef void hide(uint8_t* copy, uint32_t n, const TraceEvent* e) noexcept nogil:
    """Replace the secrets in the copy of a packet's head."""
    cdef uint64_t at, end
    cdef int i
    for i in range(3):
        if e.secrets[i].n:
            at = <uint64_t>(e.secrets[i].p - e.head.p)
            end = at + e.secrets[i].n
            if end > n:
                end = n
            if at < end:
                memset(copy + at, c'*', <size_t>(end - at))


cdef int own_address(const TraceEvent* e, char* out, uint32_t n) noexcept nogil:
    """Write the broker's address of a packet's connection. Only packets have it."""
    cdef sockaddr_storage own
    cdef unsigned int size = sizeof(own)
    cdef const void* ip
    if e.head.n == 0 or e.client == NULL or e.client.conn.fd < 0:
        return 0
    if getsockname(e.client.conn.fd, <sockaddr*>&own, &size) != 0:
        return 0
    if own.ss_family == AF_INET:
        ip = &(<sockaddr_in*>&own).sin_addr
    elif own.ss_family == AF_INET6:
        ip = &(<sockaddr_in6*>&own).sin6_addr
    else:
        return 0
    return <int>strlen(out) if inet_ntop(own.ss_family, ip, out, n) != NULL else 0


cdef void record_fill(TraceRecord* r, const TraceEvent* e, const char* where, const char* own) noexcept nogil:
    cdef timespec now
    cdef uint8_t* out
    clock_gettime(CLOCK_REALTIME, &now)
    r.us = <uint64_t>now.tv_sec * 1000000 + <uint64_t>(now.tv_nsec // 1000)
    r.client = 0
    r.port = r.listener = 0
    if e.client != NULL:
        r.client = <uint64_t>e.client.slab.index << 32 | e.client.slab.generation
        r.port = e.client.conn.address.port
        r.listener = e.client.listener.port if e.client.listener != NULL else 0
    r.total = e.total
    r.queue = e.queue
    r.kind = e.kind
    r.slots = e.slots
    r.version = e.version
    r.code = e.code
    r.qos = e.qos
    memset(r.spare, 0, sizeof(r.spare))
    out = copied(<uint8_t*>r + sizeof(TraceRecord), e.id.p, r.id_n)
    out = copied(out, <const uint8_t*>where, r.address_n)
    out = copied(out, <const uint8_t*>own, r.local_n)
    out = copied(out, e.topic.p, r.topic_n)
    out = copied(out, e.text.p, r.text_n)
    copied(out, e.head.p, r.head_n)
    hide(out, r.head_n, e)
    copied(out + r.head_n, e.payload.p, r.payload_n)


cdef void trace_put(Broker* b, TraceEvent* e) noexcept nogil:
    cdef Tracing* t = <Tracing*>b.tracing
    cdef char where[ADDRESS_TEXT_MAX]
    cdef char own[ADDRESS_TEXT_MAX]
    cdef TraceRecord sizes
    cdef uint32_t i, payload = 0
    cdef uint32_t room = TRACE_RING_BYTES if e.kind == TE_END else TRACE_RING_BYTES - RESERVE_BYTES
    cdef bint fits
    for i in range(TRACES_MAX):
        if e.slots >> i & 1 and t.slots[i].payload_max > payload:
            payload = t.slots[i].payload_max
    sizes.id_n = text_cut(e.id)
    sizes.address_n = <uint16_t>client_address(e.client, where, sizeof(where)) if e.client != NULL else 0
    sizes.local_n = <uint16_t>own_address(e, own, sizeof(own))
    sizes.topic_n = text_cut(e.topic)
    sizes.text_n = text_cut(e.text)
    sizes.head_n = e.head.n if e.head.n < TRACE_HEAD_MAX else TRACE_HEAD_MAX
    sizes.payload_n = 0 if sizes.head_n < e.head.n else e.payload.n if e.payload.n < payload else payload
    sizes.size = (<uint32_t>sizeof(TraceRecord) + sizes.id_n + sizes.address_n + sizes.local_n + sizes.topic_n + sizes.text_n
                  + sizes.head_n + sizes.payload_n + 7) & ~<uint32_t>7
    pthread_mutex_lock(&t.lock)
    fits = t.filling != NULL and t.used + sizes.size <= room
    if fits:
        memcpy(t.filling + t.used, &sizes, sizeof(sizes))
        record_fill(<TraceRecord*>(t.filling + t.used), e, where, own)
        t.used += sizes.size
        b.log.unread = 1         # the loop wakes the control plane at the end of the turn
    else:
        for i in range(TRACES_MAX):
            if e.slots >> i & 1:
                trace_count_put(&t.slots[i].lost, t.slots[i].lost + 1)
    pthread_mutex_unlock(&t.lock)


cdef const uint8_t* ring_swap(Tracing* t, uint32_t* n) noexcept nogil:
    cdef uint8_t* half
    pthread_mutex_lock(&t.lock)
    half = t.filling
    t.filling = t.draining
    t.draining = half
    n[0] = t.used
    t.used = 0
    pthread_mutex_unlock(&t.lock)
    return half
