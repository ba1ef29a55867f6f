# The times of publishing. This module knows sources, rates and windows. It does not know what receivers do with messages
# (arrivals.pyx). At full speed each publisher that may send gets a burst in turn while fewer than `window` deliveries are on
# their way end to end. So the broker works at its limit and has no reason to drop. At a fixed rate, message i is due at begin + i
# * interval regardless of the messages before it, belongs to publisher i % publishers, and carries that time. If the broker does
# not accept a message, its waiting time here is part of the latency (no coordinated omission).
# Cost: one send for each burst, a memcpy and a memset for each message, one division for each due message.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy, memset

from cext.base.clock cimport clock_monotonic_ns
from cext.bench.client cimport client_fail, client_write, slot_take
from cext.bench.histogram cimport histogram_add
from cext.bench.load cimport (
    BURST_BYTES, CLIENT_UP, Client, FAIL_MEMORY, FAIL_NUMBERS, Load, SLOT_PUBACK, SLOT_PUBREC, STAMP_SIZE, Source,
)

cdef enum:
    WRITES_MAX = 256            # writes in one turn
    FILLER = 120                # 'x', the rest of a payload


cdef void flow_begin(Load* g, uint64_t now_ns) noexcept nogil:
    cdef uint32_t i
    g.flow_ns = now_ns
    g.scheduled = 0
    g.flow_published = g.counts.published
    g.flow_acknowledged = g.counts.acknowledged
    g.last_received_ns = g.last_published_ns = 0
    g.sending = 1
    g.ring_at = g.ring_n = 0
    for i in range(g.n_publishers):
        g.clients[i].queued = 0
        g.clients[i].sent = 0
        g.clients[i].n_due = 0
        g.clients[i].quota = g.number_max
        if g.messages_max and g.interval_ns == 0:
            g.clients[i].quota = <uint32_t>(g.messages_max // g.n_publishers + (i < g.messages_max % g.n_publishers))
        flow_ready(g, g.clients + i)


# ---------------------------------------------------------------- time

cdef uint64_t messages_due(const Load* g, uint64_t now_ns) noexcept nogil:
    """Return how many messages are due at this time."""
    cdef uint64_t n
    if g.end_ns and now_ns >= g.end_ns:
        n = <uint64_t>(<double>(g.end_ns - g.flow_ns) / g.interval_ns)
    else:
        n = <uint64_t>(<double>(now_ns - g.flow_ns) / g.interval_ns) + 1
    return g.messages_max if g.messages_max and n > g.messages_max else n


cdef void messages_schedule(Load* g, uint64_t now_ns) noexcept nogil:
    cdef uint64_t due = messages_due(g, now_ns)
    cdef Client* c
    while g.scheduled < due:
        c = g.clients + g.scheduled % g.n_publishers
        c.n_due += 1
        g.scheduled += 1
        flow_ready(g, c)


cdef uint64_t flow_due_ns(const Load* g) noexcept nogil:
    cdef uint64_t due_ns = g.flow_ns + <uint64_t>(<double>g.scheduled * g.interval_ns)
    if g.interval_ns == 0 or (g.messages_max and g.scheduled >= g.messages_max) or (g.end_ns and due_ns >= g.end_ns):
        return 0
    return due_ns


cdef bint flow_all_sent(const Load* g, uint64_t now_ns) noexcept nogil:
    cdef uint64_t n = g.counts.published - g.flow_published
    if g.interval_ns:
        return flow_due_ns(g) == 0 and n >= g.scheduled and g.scheduled >= messages_due(g, now_ns)
    return (g.messages_max and n >= g.messages_max) or (g.end_ns and now_ns >= g.end_ns)


# ---------------------------------------------------------------- limits

cdef bint flow_can(const Load* g) noexcept nogil:
    return g.ring_n != 0 and (g.window == 0 or flow_outstanding(g) < <int64_t>g.window)


cdef uint64_t burst_limit(const Load* g, const Client* c) noexcept nogil:
    cdef const Source* s = g.sources + c.source
    cdef uint64_t n = c.n_due if g.interval_ns else g.burst
    cdef uint64_t left
    cdef int64_t outstanding
    left = c.quota - c.sent
    n = left if left < n else n
    if g.window:
        outstanding = flow_outstanding(g)
        if outstanding >= <int64_t>g.window:
            return 0
        left = g.window - <uint64_t>outstanding if outstanding > 0 else g.window
        if s.fan > 1:
            left = (left + s.fan - 1) // s.fan
        n = left if left < n else n
    left = 1 + BURST_BYTES // <uint64_t>(s.head_n + g.payload_n)
    n = left if left < n else n
    if g.qos:
        left = c.window - c.inflight
        n = left if left < n else n
    return n


# ---------------------------------------------------------------- bytes

cdef inline uint64_t due_stamp(Load* g, Client* c, uint64_t now_ns) noexcept nogil:
    """Return the time at which this message is due, as nanoseconds of the load. Add the delay to `lateness`."""
    cdef uint64_t due_ns
    if g.interval_ns == 0:
        return now_ns - g.epoch_ns
    due_ns = g.flow_ns + <uint64_t>((<double>c.sent * g.n_publishers + <double>(c - g.clients)) * g.interval_ns)
    histogram_add(&g.lateness, now_ns - due_ns if now_ns > due_ns else 0)
    c.n_due -= 1
    return due_ns - g.epoch_ns


cdef inline void source_next(Load* g, Client* c) noexcept nogil:
    cdef uint32_t first = <uint32_t>(c - g.clients)
    if g.drawn:
        g.dice ^= g.dice << 13          # xorshift64 (Marsaglia, 2003)
        g.dice ^= g.dice >> 7
        g.dice ^= g.dice << 17
        c.source = first + g.stride * <uint32_t>((g.dice >> 32) * ((g.n_sources - first - 1) // g.stride + 1) >> 32)
        return
    c.source += g.stride
    if c.source >= g.n_sources:
        c.source = first


cdef uint8_t* message_put(Load* g, Client* c, uint8_t* p, uint64_t now_ns) noexcept nogil:
    cdef Source* s = g.sources + c.source
    cdef uint64_t stamp
    cdef uint64_t place = <uint64_t>c.source | <uint64_t>s.sent << 32
    cdef uint16_t pid
    memcpy(p, g.heads + s.head_at, s.head_n)
    if g.qos:
        pid = slot_take(c, SLOT_PUBACK if g.qos == 1 else SLOT_PUBREC, now_ns)
        c.slots[pid - 1].fan = s.fan
        p[s.pid_at] = <uint8_t>(pid >> 8)
        p[s.pid_at + 1] = <uint8_t>pid
    p += s.head_n
    stamp = (due_stamp(g, c, now_ns) & 0xFFFFFFFFFFFFULL) | <uint64_t>g.mark << 48
    if g.payload_n:
        memcpy(p, &stamp, 8)
        memcpy(p + 8, &place, 8)
        if g.payload_n < BURST_BYTES:
            memset(p + STAMP_SIZE, FILLER, g.payload_n - STAMP_SIZE)
        p += g.payload_n
    s.sent += 1
    c.sent += 1
    g.counts.published += 1
    g.counts.expected += s.fan
    if g.stride:
        source_next(g, c)
    return p


cdef void send_burst(Load* g, Client* c, uint64_t n) noexcept nogil:
    cdef uint64_t now_ns = clock_monotonic_ns()
    cdef size_t size = <size_t>n * (g.head_max + g.payload_n)
    cdef uint8_t* begin
    cdef uint8_t* grown
    cdef uint8_t* p
    if size > g.scratch_cap:
        grown = <uint8_t*>realloc(g.scratch, size)
        if grown == NULL:
            client_fail(g, c, FAIL_MEMORY, 0)
            return
        g.scratch = grown
        g.scratch_cap = size
        memset(g.scratch, FILLER, size)
    # A payload of at least BURST_BYTES is sent alone and always at the same place, which already contains its filler.
    begin = p = g.scratch + (g.head_max - g.sources[c.source].head_n if g.payload_n >= BURST_BYTES else 0)
    while n:
        p = message_put(g, c, p, now_ns)
        n -= 1
    g.last_published_ns = now_ns
    client_write(g, c, begin, <size_t>(p - begin))
    if c.sent >= g.number_max and not g.messages_max and c.state == CLIENT_UP:
        client_fail(g, c, FAIL_NUMBERS, 0)


cdef void flow_pump(Load* g, uint64_t now_ns) noexcept nogil:
    cdef uint32_t writes = 0
    cdef uint64_t n
    cdef Client* c
    if g.interval_ns:
        messages_schedule(g, now_ns)
    elif g.end_ns and now_ns >= g.end_ns:
        return
    while g.ring_n and writes < WRITES_MAX:
        c = g.clients + g.ring[g.ring_at]
        n = burst_limit(g, c)
        if n == 0 and c.state == CLIENT_UP:
            return
        g.ring_at = g.ring_at + 1 if g.ring_at + 1 < g.n_publishers else 0
        g.ring_n -= 1
        c.queued = 0
        if c.state == CLIENT_UP and c.out_n == 0:
            send_burst(g, c, n)
            flow_ready(g, c)
            writes += 1
