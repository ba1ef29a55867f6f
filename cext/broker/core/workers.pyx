"""Count connections and sessions over all workers of a machine, and find the halves of relays. This module knows the shared memory and the lists. It
does not know what a limit does.

Each worker writes its own numbers at the end of a turn, and reads those of the others without a lock. So a limit is exact for the connections of one
worker, and may be exceeded by the few that several workers accept at the same moment. Cost: nothing without a limit; with one, a read of one
number for each worker and new connection.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdio cimport snprintf

from cext.base.slab cimport slab_at
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport END_SILENT, client_doom, log_line, log_text
from cext.broker.core.client_state cimport Client
from cext.broker.core.listener cimport Listener
from cext.broker.core.log cimport LOG_LINE_MAX, log_wanted

cdef extern from *:
    """
    #include <stdint.h>
    static inline uint64_t mosq_count_get(const uint64_t* p) { return __atomic_load_n(p, __ATOMIC_RELAXED); }
    static inline void mosq_count_put(uint64_t* p, uint64_t n) { __atomic_store_n(p, n, __ATOMIC_RELAXED); }
    """
    uint64_t mosq_count_get(const uint64_t* p) nogil
    void mosq_count_put(uint64_t* p, uint64_t n) nogil

cdef enum:
    WIRE_LINE_MS = 30000


cdef Client* relay_other(Broker* b, const Client* c) noexcept nogil:
    return <Client*>slab_at(&b.clients, c.newcomer_next - 1) if c.newcomer_next else NULL


cdef void relay_part(Broker* b, Client* c) noexcept nogil:
    cdef Client* other = relay_other(b, c)
    workers_of(b).halves -= 1
    if c.newcomer_prev:
        workers_of(b).wires[c.wire - 1].dials -= 1
    c.newcomer_next = c.newcomer_prev = 0
    if other != NULL:
        other.newcomer_next = 0
        client_doom(b, other, END_SILENT)


cdef uint64_t own_connections(Broker* b) noexcept nogil:
    return b.clients.used - (workers_of(b).halves if b.workers != NULL else 0)


cdef uint64_t others_connections(Broker* b) noexcept nogil:
    cdef Workers* w = workers_of(b)
    cdef uint64_t n = 0
    cdef uint32_t i
    if w != NULL:
        for i in range(w.n):
            n += mosq_count_get(&w.counts[i].connections) if i != w.place else 0
    return n


cdef uint64_t others_sessions(Broker* b) noexcept nogil:
    cdef Workers* w = workers_of(b)
    cdef uint64_t n = 0
    cdef uint32_t i
    if w != NULL:
        for i in range(w.n):
            n += mosq_count_get(&w.counts[i].sessions) if i != w.place else 0
    return n


cdef uint64_t others_of_listener(Broker* b, const Listener* d) noexcept nogil:
    cdef Workers* w = workers_of(b)
    cdef uint64_t n = 0
    cdef uint32_t i, at = 0
    if w == NULL:
        return 0
    while at < b.n_listeners and b.listeners[at] != d:
        at += 1
    if at >= b.n_listeners or at >= WORKER_LISTENERS_MAX:
        return 0
    for i in range(w.n):
        n += mosq_count_get(&w.counts[i].of_listener[at]) if i != w.place else 0
    return n


cdef void workers_publish(Broker* b) noexcept nogil:
    cdef Workers* w = workers_of(b)
    cdef WorkerCounts* own = &w.counts[w.place]
    cdef uint32_t i
    mosq_count_put(&own.connections, own_connections(b))
    mosq_count_put(&own.sessions, b.sessions.count)
    for i in range(b.n_listeners if b.n_listeners < WORKER_LISTENERS_MAX else WORKER_LISTENERS_MAX):
        mosq_count_put(&own.of_listener[i], b.listeners[i].n_connections)


cdef bint wire_line_due(Broker* b, uint32_t place, int reason) noexcept nogil:
    cdef uint64_t* last_ms = &workers_of(b).wires[place].lines_ms[reason]
    if last_ms[0] and b.reactor.now_ms - last_ms[0] < WIRE_LINE_MS:
        return 0
    last_ms[0] = b.reactor.now_ms
    return 1


cdef void log_own(Broker* b, uint32_t type, const char* text) noexcept nogil:
    if b.workers == NULL:
        log_text(b, type, text)
    elif log_wanted(&b.log, type):
        log_line(b, type, snprintf(b.log.line, LOG_LINE_MAX, "Worker %d: %s", <int>workers_of(b).place + 1, text))
