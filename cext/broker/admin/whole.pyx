"""Add up the statistics of all workers (`cluster_local N`). This module knows the memory that all workers map. It does not know how the others collect
theirs.

Each worker writes its figures into its own place every FIGURES_MS, and when it is asked. A reader adds up the places, without a lock and without a message; a
worker that is stopped or starts again delays no reader. When a process has ended, the parent (cext/workers_control.pyx) keeps its counters: no reader has seen others
than those that it wrote, so no sum falls.
The gauges of streams: a name with a length of 16 bits in front, then STREAM_GAUGES numbers of 64 bits, for each stream.
Cost: one pass over the statistics and 2,600 numbers, twice a second.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport UINT64_MAX, uint32_t, uint64_t
from libc.string cimport memcpy, memset, strlen

from cext.base.wheel cimport wheel_add
from cext.broker.admin.control_request cimport ControlRequest
from cext.broker.admin.inspect cimport out_put, out_text
from cext.broker.admin.observations cimport stream_gauges
from cext.broker.admin.statistics cimport stats_collect
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport TIMER_FIGURES
from cext.broker.core.link_state cimport links_of
from cext.broker.core.observed cimport Observed, observed_of
from cext.broker.core.stats cimport (
    DROP_REASONS, GAUGE_DISK_BYTES, GAUGE_WAITING_BYTES, STATS_N, STREAM_GAUGES, STAT_ANSWERS_STALE, STAT_AUTH_REQUESTS, STAT_AUTH_REQUESTS_TIMED_OUT, STAT_BYTES_IN, STAT_BYTES_OUT,
    STAT_CLIENTS_CONNECTED, STAT_CLIENTS_EXPIRED, STAT_CLIENTS_MAX, STAT_CONNECTIONS, STAT_CONNECTIONS_ROOM, STAT_DISK_COMMITS, STAT_DISK_COMMIT_US,
    STAT_DISK_ERRORS, STAT_DISK_MESSAGES_ELIDED, STAT_DISK_MESSAGES_WRITTEN, STAT_DISK_SEGMENTS_CLEANED, STAT_DISK_SYNCS, STAT_DISK_TROUBLE, STAT_DROPS,
    STAT_EVENTS_LOST, STAT_HEAP_BYTES, STAT_HEAP_BYTES_MAX, STAT_INDEX_CACHE_HITS, STAT_INDEX_CACHE_MISSES, STAT_INDEX_DEPTH, STAT_INDEX_LOAD,
    STAT_LINKS_BYTES_IN, STAT_LINKS_BYTES_OUT, STAT_MESSAGES_IN, STAT_MESSAGES_OUT, STAT_PROTOCOL_DISCONNECTS, STAT_PUBLISH_BYTES_IN, STAT_PUBLISH_BYTES_OUT, STAT_PUBLISH_DROPPED, STAT_PUBLISH_IN,
    STAT_PUBLISH_OUT, STAT_RETAINED, STAT_RETAINED_SYSTEM, STAT_SOCKETS, STAT_TLS_HANDSHAKES, STAT_TLS_HANDSHAKES_FAILED, STAT_TURN_US_MAX,
    STAT_TURNS, STAT_TURN_WORK_MAX, STAT_UPGRADES, STAT_UPGRADES_CLOSED, STAT_UPGRADES_MOVED, STAT_UPGRADE_PAUSE_US, STAT_WORK,
)
from cext.broker.core.workers cimport (
    FIGURES_N, FIGURE_CPU_US, FIGURE_DROPS, FIGURE_LINKS, FIGURE_LOGINS, FIGURE_OBSERVED, FIGURE_STREAMS, Figures, WORKER_LISTENERS_MAX, WorkerCounts, Workers, workers_of,
)
from cext.broker.persist.streams cimport Stream, Streams, streams_of

cdef extern from *:
    """
    #include <stdint.h>
    #include <time.h>
    static inline uint64_t mosq_figure_get(const uint64_t* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline void mosq_figure_put(uint64_t* p, uint64_t n) { __atomic_store_n(p, n, __ATOMIC_RELEASE); }
    static inline uint64_t mosq_processor_us(void) {
        struct timespec t;
        return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) ? 0 : (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
    }
    """
    uint64_t mosq_figure_get(const uint64_t* p) nogil
    void mosq_figure_put(uint64_t* p, uint64_t n) nogil
    uint64_t mosq_processor_us() nogil

cdef enum:
    FIGURES_MS = 500


cdef bint figure_counts(int i) noexcept nogil:
    if FIGURE_STREAMS <= i < FIGURE_LOGINS:
        return (i - FIGURE_STREAMS) % STREAM_GAUGES not in (GAUGE_WAITING_BYTES, GAUGE_DISK_BYTES)
    if i >= STAT_DROPS:
        return 1
    return i in (
        STAT_CLIENTS_EXPIRED, STAT_CONNECTIONS, STAT_SOCKETS, STAT_TLS_HANDSHAKES, STAT_TLS_HANDSHAKES_FAILED, STAT_MESSAGES_IN, STAT_MESSAGES_OUT,
        STAT_PUBLISH_IN, STAT_PUBLISH_OUT, STAT_PUBLISH_BYTES_IN, STAT_PUBLISH_BYTES_OUT, STAT_PUBLISH_DROPPED, STAT_BYTES_IN, STAT_BYTES_OUT,
        STAT_LINKS_BYTES_IN, STAT_LINKS_BYTES_OUT, STAT_INDEX_CACHE_HITS, STAT_INDEX_CACHE_MISSES, STAT_PROTOCOL_DISCONNECTS, STAT_WORK, STAT_TURNS, STAT_AUTH_REQUESTS, STAT_AUTH_REQUESTS_TIMED_OUT,
        STAT_ANSWERS_STALE, STAT_EVENTS_LOST, STAT_UPGRADES, STAT_UPGRADES_MOVED, STAT_UPGRADES_CLOSED, STAT_DISK_COMMITS, STAT_DISK_MESSAGES_WRITTEN,
        STAT_DISK_MESSAGES_ELIDED, STAT_DISK_SYNCS, STAT_DISK_SEGMENTS_CLEANED, STAT_DISK_ERRORS)


cdef inline bint is_maximum(int i) noexcept nogil:
    """Return whether the value of the broker is the largest one of a worker. Every worker has all retained messages."""
    return i in (STAT_INDEX_DEPTH, STAT_INDEX_LOAD, STAT_TURN_WORK_MAX, STAT_TURN_US_MAX, STAT_UPGRADE_PAUSE_US, STAT_DISK_COMMIT_US, STAT_RETAINED,
                 STAT_RETAINED_SYSTEM)


cdef void figures_write(Broker* b) noexcept nogil:
    cdef Workers* w = workers_of(b)
    cdef WorkerCounts* own = &w.counts[w.place]
    cdef Observed* o = observed_of(b)
    cdef uint64_t v[FIGURES_N]
    cdef uint32_t i
    memset(v, 0, sizeof(v))
    stats_collect(b, v)
    v[FIGURE_CPU_US] = mosq_processor_us()
    for i in range(b.n_listeners if b.n_listeners < WORKER_LISTENERS_MAX else WORKER_LISTENERS_MAX):
        memcpy(&v[FIGURE_DROPS + i * DROP_REASONS], b.listeners[i].drops, sizeof(b.listeners[i].drops))
    if o != NULL and o.period:
        v[FIGURE_OBSERVED] = o.lost
        v[FIGURE_OBSERVED + 1] = o.passed_over
        memcpy(&v[FIGURE_OBSERVED + 2], o.at, sizeof(o.at))
    for i in range(w.n):
        if i != w.place:
            v[FIGURE_LINKS + 2 * i] = links_of(b).links.peers[i].out.first + links_of(b).links.peers[i].out.n - 1
            v[FIGURE_LINKS + 2 * i + 1] = links_of(b).links.peers[i].out.dropped0
    if b.streams != NULL:
        streams_write(streams_of(b), v)
    for i in range(2):
        v[FIGURE_LOGINS + i] = mosq_figure_get(&w.logins[i])
    for i in range(FIGURES_N):
        mosq_figure_put(&own.banks[w.bank].now[i], v[i])
    mosq_figure_put(&own.told_ms, b.reactor.now_ms)


cdef void streams_write(const Streams* t, uint64_t* v) noexcept nogil:
    cdef uint32_t i
    for i in range(t.n):
        if t.at[i].shared:
            stream_gauges(t.at[i], &v[FIGURE_STREAMS + (t.at[i].shared - 1) * STREAM_GAUGES])


cdef void whole_gauges(Broker* b, const Stream* s, uint64_t* v) noexcept nogil:
    cdef const Workers* w = workers_of(b)
    cdef const Figures* f
    cdef uint32_t place, i, at
    if w == NULL or s.shared == 0:
        stream_gauges(s, v)
        return
    memset(v, 0, STREAM_GAUGES * sizeof(uint64_t))
    at = FIGURE_STREAMS + (s.shared - 1) * STREAM_GAUGES
    for place in range(w.n):
        f = &w.counts[place].banks[mosq_figure_get(&w.counts[place].bank) & 1]
        for i in range(STREAM_GAUGES):
            v[i] += mosq_figure_get(&f.now[at + i]) + mosq_figure_get(&f.before[at + i])


cdef void answer_streams(Broker* b, ControlRequest* a) noexcept nogil:
    cdef Streams* t = streams_of(b)
    cdef uint64_t v[STREAM_GAUGES]
    cdef uint32_t i
    if t == NULL:
        return
    if b.workers != NULL:
        figures_write(b)
    for i in range(t.n):
        whole_gauges(b, t.at[i], v)
        if out_text(a, t.at[i].name, <uint32_t>strlen(t.at[i].name)) != 0 or out_put(a, v, sizeof(v)) != 0:
            a.result = ENOMEM
            return


cdef void figures_add(Broker* b, uint64_t* v, int n) noexcept nogil:
    """Fill the first n figures of all workers."""
    cdef Workers* w = workers_of(b)
    cdef const Figures* f
    cdef uint64_t one, room = UINT64_MAX
    cdef uint32_t place
    cdef int i
    memset(v, 0, n * sizeof(uint64_t))
    for place in range(w.n):
        f = &w.counts[place].banks[mosq_figure_get(&w.counts[place].bank) & 1]
        for i in range(n):
            one = mosq_figure_get(&f.now[i]) + mosq_figure_get(&f.before[i])
            if i == STAT_DISK_TROUBLE:
                v[i] |= one
            elif is_maximum(i):
                v[i] = one if one > v[i] else v[i]
            else:
                v[i] += one
        if mosq_figure_get(&w.counts[place].told_ms):
            one = mosq_figure_get(&f.now[STAT_CONNECTIONS_ROOM])
            room = one if one < room else room
    v[STAT_CONNECTIONS_ROOM] = room if room != UINT64_MAX else 0         # the worker with the least room may accept the next connection
    v[STAT_CLIENTS_MAX] = peak(w, &w.counts[w.place].clients_max, v[STAT_CLIENTS_CONNECTED])
    v[STAT_HEAP_BYTES_MAX] = peak(w, &w.counts[w.place].heap_max, v[STAT_HEAP_BYTES])


cdef uint64_t peak(Workers* w, uint64_t* own, uint64_t now) noexcept nogil:
    """Keep the largest sum in this worker's place; return the largest one that any worker has seen."""
    cdef size_t at = <size_t>own - <size_t>&w.counts[w.place]
    cdef uint64_t seen, most = 0
    cdef uint32_t place
    if now > mosq_figure_get(own):
        mosq_figure_put(own, now)
    for place in range(w.n):
        seen = mosq_figure_get(<uint64_t*>(<size_t>&w.counts[place] + at))
        most = seen if seen > most else most
    return most


cdef void whole_collect(Broker* b, uint64_t* v) noexcept nogil:
    if b.workers == NULL:
        stats_collect(b, v)
        return
    figures_write(b)
    figures_add(b, v, STATS_N)


cdef uint64_t whole_began_ms(Broker* b) noexcept nogil:
    return workers_of(b).counts[0].began_ms if b.workers != NULL else b.started_ms


cdef void figures_begin(Broker* b) noexcept nogil:
    cdef Workers* w = workers_of(b)
    w.bank = mosq_figure_get(&w.counts[w.place].bank) & 1
    if w.counts[0].began_ms == 0:       # the worker 1 may be at another node of a cluster
        w.counts[0].began_ms = b.started_ms
    w.figures.kind = TIMER_FIGURES
    figures_timer(b)


cdef void figures_timer(Broker* b) noexcept nogil:
    cdef uint64_t v[STATS_N]
    whole_collect(b, v)             # also notes the largest sums
    wheel_add(&b.wheel, &workers_of(b).figures, b.reactor.now_ms + FIGURES_MS)


cdef void answer_whole(Broker* b, ControlRequest* a) noexcept nogil:
    cdef Workers* w = workers_of(b)
    cdef uint64_t v[FIGURES_N + 3]
    cdef uint64_t load[5]
    cdef uint32_t place
    figures_write(b)
    figures_add(b, v, FIGURES_N)
    v[FIGURES_N] = observed_of(b) != NULL and observed_of(b).period != 0
    v[FIGURES_N + 1] = whole_began_ms(b)
    v[FIGURES_N + 2] = b.reactor.now_ms
    if out_put(a, v, sizeof(v)) != 0:
        a.result = ENOMEM
        return
    for place in range(w.n):
        worker_load(w, place, load)
        if out_put(a, load, sizeof(load)) != 0:
            a.result = ENOMEM
            return


cdef void worker_load(Workers* w, uint32_t place, uint64_t* out) noexcept nogil:
    """Fill the figures of one worker: WORKER_LOAD in cext/setup/inspection.pyx."""
    cdef const Figures* f = &w.counts[place].banks[mosq_figure_get(&w.counts[place].bank) & 1]
    cdef int* at = [FIGURE_CPU_US, STAT_CLIENTS_CONNECTED, STAT_PUBLISH_IN, STAT_PUBLISH_OUT]
    cdef uint32_t i
    out[0] = mosq_figure_get(&w.counts[place].told_ms)
    for i in range(4):
        out[1 + i] = mosq_figure_get(&f.now[at[i]]) + mosq_figure_get(&f.before[at[i]])
