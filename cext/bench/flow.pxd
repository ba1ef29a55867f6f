# Publishing: which client may send, when, and how much at once.
from libc.stdint cimport int64_t, uint32_t, uint64_t
from cext.bench.load cimport CLIENT_UP, Client, Load

cdef void flow_begin(Load* g, uint64_t now_ns) noexcept nogil
# Send as much as time, window, inflight limit and budget allow now.
cdef void flow_pump(Load* g, uint64_t now_ns) noexcept nogil
# Return whether flow_pump could send more at once.
cdef bint flow_can(const Load* g) noexcept nogil
# Return whether everything was sent.
cdef bint flow_all_sent(const Load* g, uint64_t now_ns) noexcept nogil
# Return when the next message is due at a fixed rate; 0 = no more messages are due.
cdef uint64_t flow_due_ns(const Load* g) noexcept nogil

# Return the number of deliveries on their way.
cdef inline int64_t flow_outstanding(const Load* g) noexcept nogil:
    return <int64_t>(g.counts.expected - (g.counts.received - g.counts.twice) - g.counts.written_off)

# Add a publisher that may send to the ring.
cdef inline void flow_ready(Load* g, Client* c) noexcept nogil:
    cdef uint32_t at
    if not g.sending or c.queued or c.state != CLIENT_UP or c.out_n or c - g.clients >= <int64_t>g.n_publishers:
        return
    if (g.qos and c.inflight >= c.window) or (g.interval_ns and c.n_due == 0) or c.sent >= c.quota:
        return
    at = g.ring_at + g.ring_n
    g.ring[at if at < g.n_publishers else at - g.n_publishers] = <uint32_t>(c - g.clients)
    g.ring_n += 1
    c.queued = 1
