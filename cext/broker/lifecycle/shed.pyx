"""End the client that holds most memory when memory_limit is exceeded.

Above the limit the broker refuses new messages of all clients. Then a few clients that send parts of large packets, or that do not
read, could stop all others. So the client that holds most ends first: its unfinished input, its unsent output, and the queue of a
session that ends with it. Output and queue up to HIGH_WATER_BYTES do not count: a client on a slow network has that much on its way.
A session that outlives its connection keeps its queue: its messages are acknowledged.

Cost: nothing below the limit; above it one walk over all clients per turn, or every LOOK_EVERY_MS if no client holds much.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdio cimport snprintf

from cext.base.slab cimport slab_at, slab_end
from cext.base.view cimport View
from cext.broker.core.bounds cimport HIGH_WATER_BYTES
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport client_doom, client_id_of, log_line
from cext.broker.core.client_state cimport CF_BRIDGE, CF_DOOMED, CF_TRUSTED, C_CONNECTED, Client
from cext.broker.core.log cimport LOG_LINE_MAX, LOG_NOTICE, log_wanted
from cext.broker.core.resident cimport memory_counted
from cext.broker.persist.publication cimport memory_reserve, memory_short
from cext.codec.reason cimport RC_QUOTA_EXCEEDED
from cext.session.queue cimport Queue

cdef enum:
    HELD_MIN_BYTES = 48 * 1024
    LOOK_EVERY_MS = 100
    MESSAGE_ROOM = 128           # bytes of a queued message beside its payload, topic and properties
    LOOKS_PER_WORK = 8           # clients looked at for one unit of work


cdef inline uint64_t held_bytes(const Client* c) noexcept nogil:
    cdef uint64_t unread = c.conn.out_bytes
    cdef const Queue* q
    if c.session != NULL and c.session.expiry_s == 0 and c.session.store_session_id == 0:
        q = &c.session.queue
        unread += q.waiting_bytes + q.inflight_bytes + q.room_bytes + <uint64_t>q.pending * MESSAGE_ROOM
    return c.conn.in_cap + (unread - HIGH_WATER_BYTES if unread > HIGH_WATER_BYTES else 0)


cdef void shed_largest(Broker* b) noexcept nogil:
    cdef Client* largest = NULL
    cdef Client* c
    cdef View id
    cdef uint64_t most = HELD_MIN_BYTES - 1
    cdef uint32_t i
    if b.settings.memory_limit == 0 or b.reactor.now_ms < b.shed_next_ms or not memory_short(b, memory_reserve(b) // 2):
        return
    if memory_counted(b) < b.settings.memory_limit // 2:
        return                   # clients hold little: gaps between blocks, or memory that is not the clients'
    for i in range(slab_end(&b.clients)):
        c = <Client*>slab_at(&b.clients, i)
        if c == NULL or c.state != C_CONNECTED or c.flags & (CF_BRIDGE | CF_DOOMED | CF_TRUSTED):
            continue
        if held_bytes(c) > most:
            most = held_bytes(c)
            largest = c
    b.work += slab_end(&b.clients) // LOOKS_PER_WORK
    if largest == NULL:
        b.shed_next_ms = b.reactor.now_ms + LOOK_EVERY_MS
        return
    if log_wanted(&b.log, LOG_NOTICE):
        id = client_id_of(largest)
        log_line(b, LOG_NOTICE, snprintf(
            b.log.line, LOG_LINE_MAX, "memory_limit is reached: client %.*s ends, which holds %llu bytes of unfinished input and unsent output, "
            "more than any other.", <int>id.n, <const char*>id.p, <unsigned long long>most))
    client_doom(b, largest, RC_QUOTA_EXCEEDED)
