# Publishing: who may send, when, and how much of it at once.
from libc.stdint cimport int64_t, uint32_t, uint64_t
from cext.bench.load cimport CLIENT_UP, Client, Load

cdef void flow_begin(Load* g, uint64_t now_ns) noexcept nogil
# Sends what time, window, in-flight limit and budget allow now.
cdef void flow_pump(Load* g, uint64_t now_ns) noexcept nogil
# Could flow_pump send more at once?
cdef bint flow_can(const Load* g) noexcept nogil
# Everything that was to be sent was.
cdef bint flow_all_sent(const Load* g, uint64_t now_ns) noexcept nogil
# At a fixed rate: when the next message is due; 0: no more are
cdef uint64_t flow_due_ns(const Load* g) noexcept nogil

# Deliveries that are on their way
cdef inline int64_t flow_outstanding(const Load* g) noexcept nogil:
    return <int64_t>(g.counts.expected - (g.counts.received - g.counts.twice) - g.counts.written_off)

# A publisher that may send joins the ring.
cdef inline void flow_ready(Load* g, Client* c) noexcept nogil:
    cdef uint32_t at
    if not g.sending or c.queued or c.state != CLIENT_UP or c.out_n or c - g.clients >= <int64_t>g.n_publishers:
        return
    if (g.qos and c.inflight >= c.window) or (g.interval_ns and c.owed == 0) or c.sent >= c.quota:
        return
    at = g.ring_at + g.ring_n
    g.ring[at if at < g.n_publishers else at - g.n_publishers] = <uint32_t>(c - g.clients)
    g.ring_n += 1
    c.queued = 1
