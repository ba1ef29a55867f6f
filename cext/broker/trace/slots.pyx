"""Begin and end traces, and decide which of them an event belongs to. This module knows client ids, filters, addresses and limits. It does not know
packets.

While there is a trace, LOG_TRACE is in the mask of the log, and the reactor passes input to the function that looks at each packet. Without one, both
are as before: nothing looks for traces then. A client that has asked for a trace is in no trace itself, because each event would cause the next one.
Cost of an event: one comparison for each trace.
"""

from libc.errno cimport EAGAIN, ENOMEM
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from cext.base.view cimport View
from cext.base.wheel cimport Timer, wheel_add, wheel_remove
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client, TIMER_TRACE
from cext.broker.core.log cimport LOG_TRACE, pthread_mutex_destroy, pthread_mutex_init
from cext.broker.core.trace_state cimport (
    TE_END, TRACE_ADDRESS, TRACE_CLIENT, TRACE_END_ASKED, TRACE_END_COUNT, TRACE_END_OWNER, TRACE_END_TIME, TRACE_FREE,
    TRACE_TOPIC, TRACES_MAX, TraceSlot, TraceSpec, Tracing, trace_count_put,
)
from cext.broker.trace.ring cimport TraceEvent, trace_put, ring_close, ring_open
from cext.net.address cimport address_in
from cext.topic.name cimport filter_matches

cdef enum:
    SECOND_MS = 1000


cdef inline uint64_t handle_of(const Client* c) noexcept nogil:
    return <uint64_t>c.slab.index << 32 | c.slab.generation


cdef int tracing_open(Broker* b) noexcept nogil:
    cdef Tracing* t = tracing_of(b)
    if t == NULL:
        t = <Tracing*>calloc(1, sizeof(Tracing))
        if t == NULL:
            return -1
        pthread_mutex_init(&t.lock, NULL)
        b.tracing = t
    return ring_open(t)


cdef int trace_begin(Broker* b, TraceSpec* spec) noexcept nogil:
    cdef Tracing* t
    cdef TraceSlot* s = NULL
    cdef uint8_t* copy
    cdef uint32_t i
    if tracing_open(b) != 0:
        return ENOMEM
    t = tracing_of(b)
    for i in range(TRACES_MAX):
        if t.slots[i].kind == TRACE_FREE:
            s = &t.slots[i]
            spec.slot = i
    if s == NULL:
        return EAGAIN
    copy = <uint8_t*>malloc(spec.what.n + 1)
    if copy == NULL:
        return ENOMEM
    if spec.what.n:
        memcpy(copy, spec.what.p, spec.what.n)
    memset(s, 0, sizeof(TraceSlot) - sizeof(s.limited) - sizeof(s.lost))
    trace_count_put(&s.limited, 0)
    trace_count_put(&s.lost, 0)
    t.begun += 1
    s.id = spec.id = t.begun
    s.owner = spec.owner
    s.most = spec.most
    s.rate = spec.rate
    s.payload_max = spec.payload_max
    s.network = spec.network
    s.port = spec.port
    s.what.p = copy
    s.what.n = spec.what.n
    s.kind = spec.kind
    s.timer.kind = TIMER_TRACE
    wheel_add(&b.wheel, &s.timer, b.reactor.now_ms + <uint64_t>spec.seconds * 1000)
    if t.n == 0:
        t.untraced = b.reactor.on_input
        b.reactor.on_input = b.trace.input
        b.log.mask |= LOG_TRACE
    t.n += 1
    return 0


cdef void trace_end(Broker* b, uint32_t slot, uint8_t why) noexcept nogil:
    cdef Tracing* t = tracing_of(b)
    cdef TraceSlot* s = &t.slots[slot]
    cdef TraceEvent e
    memset(&e, 0, sizeof(e))
    e.kind = TE_END
    e.slots = <uint8_t>(1 << slot)
    e.code = why
    trace_put(b, &e)
    wheel_remove(&b.wheel, &s.timer)
    free(<void*>s.what.p)
    s.what.p = NULL
    s.kind = TRACE_FREE          # the counters stay until the next trace in this slot
    t.n -= 1
    if t.n == 0:
        b.reactor.on_input = t.untraced
        b.log.mask &= ~<uint32_t>LOG_TRACE


cdef bint trace_stop(Broker* b, uint64_t id) noexcept nogil:
    cdef Tracing* t = tracing_of(b)
    cdef uint32_t i
    if t == NULL:
        return 0
    for i in range(TRACES_MAX):
        if t.slots[i].kind != TRACE_FREE and t.slots[i].id == id:
            trace_end(b, i, TRACE_END_ASKED)
            return 1
    return 0


cdef void trace_timer_fired(Broker* b, Timer* timer) noexcept nogil:
    cdef Tracing* t = tracing_of(b)
    cdef uint32_t i
    for i in range(TRACES_MAX):
        if &t.slots[i].timer == timer and t.slots[i].kind != TRACE_FREE:
            trace_end(b, i, TRACE_END_TIME)


cdef void trace_owner_gone(Broker* b, Client* c) noexcept nogil:
    cdef Tracing* t = tracing_of(b)
    cdef uint32_t i
    for i in range(TRACES_MAX):
        if t.slots[i].kind != TRACE_FREE and t.slots[i].owner == handle_of(c):
            trace_end(b, i, TRACE_END_OWNER)


cdef void tracing_fini(Broker* b) noexcept nogil:
    cdef Tracing* t = tracing_of(b)
    cdef uint32_t i
    if t == NULL:
        return
    for i in range(TRACES_MAX):
        free(<void*>t.slots[i].what.p)
    ring_close(t)
    free(t.mounted)
    pthread_mutex_destroy(&t.lock)
    free(t)
    b.tracing = NULL


# ---------------------------------------------------------------- what a trace follows

cdef bint is_owner(const Tracing* t, const Client* c) noexcept nogil:
    cdef uint32_t i
    for i in range(TRACES_MAX):
        if t.slots[i].kind != TRACE_FREE and t.slots[i].owner == handle_of(c):
            return 1
    return 0


cdef bint follows(const TraceSlot* s, const Client* c, View id, View topic) noexcept nogil:
    if s.kind == TRACE_CLIENT:
        return id.n == s.what.n and id.n != 0 and memcmp(id.p, s.what.p, id.n) == 0
    if s.kind == TRACE_ADDRESS:
        return c != NULL and (s.port == 0 or s.port == c.conn.address.port) and address_in(&c.conn.address, &s.network, 1)
    return s.kind == TRACE_TOPIC and topic.n != 0 and filter_matches(s.what, topic)


cdef bint within_rate(Broker* b, TraceSlot* s) noexcept nogil:
    if b.reactor.now_ms - s.second_ms >= SECOND_MS:
        s.second_ms = b.reactor.now_ms
        s.in_second = 0
    s.in_second += 1
    if s.in_second <= s.rate:
        return 1
    trace_count_put(&s.limited, s.limited + 1)
    return 0


cdef uint8_t trace_wanted(Broker* b, const Client* c, View id, View topic) noexcept nogil:
    cdef Tracing* t = tracing_of(b)
    cdef TraceSlot* s
    cdef uint8_t found = 0
    cdef uint32_t i
    if c != NULL and is_owner(t, c):
        return 0
    for i in range(TRACES_MAX):
        s = &t.slots[i]
        if not follows(s, c, id, topic) or not within_rate(b, s):
            continue
        if s.passed == s.most:
            trace_end(b, i, TRACE_END_COUNT)
            continue
        s.passed += 1
        found |= <uint8_t>(1 << i)
    return found


cdef uint8_t trace_more(Broker* b, uint8_t slots) noexcept nogil:
    """Return the traces among `slots` that have room for one more event about a packet that they have."""
    cdef Tracing* t = tracing_of(b)
    cdef TraceSlot* s
    cdef uint8_t found = 0
    cdef uint32_t i
    for i in range(TRACES_MAX):
        s = &t.slots[i]
        # the end follows with the next packet: this event may stand before its packet
        if slots >> i & 1 and s.kind != TRACE_FREE and s.passed != s.most and within_rate(b, s):
            s.passed += 1
            found |= <uint8_t>(1 << i)
    return found


cdef bint trace_has_room(Broker* b, uint8_t slots) noexcept nogil:
    """Return whether `trace_more` would return one of these traces."""
    cdef Tracing* t = tracing_of(b)
    cdef TraceSlot* s
    cdef uint32_t i
    for i in range(TRACES_MAX):
        s = &t.slots[i]
        if slots >> i & 1 and s.kind != TRACE_FREE and s.passed != s.most and (
                s.in_second < s.rate or b.reactor.now_ms - s.second_ms >= SECOND_MS):
            return 1
    return 0
