"""Hold queues that are longer than memory. This module knows which messages need not be in memory now, and requests them from the
store in time. It does not know how the store finds them.

    page out: a message that is written, and is further than WINDOW from its turn, or large, or of an offline session, leaves
              memory when more than queue_memory is used; its delivery keeps 16 bytes
    page in:  when its turn comes, the storage thread reads up to READ_AHEAD messages at once, and then the session is pumped;
              while memory is full it reads only as many as the inflight window takes

After a start all queued messages are paged, however much memory there is. For this reason a start takes no longer with a million
messages. These messages stay in memory: a message without a record or with several records (a retained message that was sent to
some sessions later); a message of a shared group, because another member may get it; last values, because a newer value may
replace them.

Invariant: the record at paged_lsn has an entry for that delivery. So when cleaning copies the record, it finds the delivery and
updates its position.
Cost: a push above the limit looks at up to STEPS deliveries; a paged message takes about 2 us of the storage thread.
"""

from libc.errno cimport EAGAIN
from libc.stdint cimport uint32_t, uint64_t

from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport client_doom
from cext.broker.core.client_state cimport Client
from cext.broker.core.durable cimport Durable, PENDING, durable_of
from cext.broker.core.session_refs cimport session_client
from cext.broker.core.settings cimport OVERFLOW_LAST_VALUE
from cext.broker.persist.persist cimport array_grown
from cext.codec.reason cimport RC_QUOTA_EXCEEDED
from cext.session.message cimport MESSAGE_AGAIN, MESSAGE_SPREAD, Message, RECORD_ROOM, message_bytes, message_new
from cext.session.queue cimport (
    DELIVERY_SHARED, D_SENT, D_WAITING, Delivery, Queue, delivery_message, delivery_page, is_paged, paged_bytes, paged_lsn,
    queue_at,
)
from cext.session.record cimport RECORD_AGAIN, RECORD_QOS, RECORD_RETAIN, RecordMessage
from cext.session.session cimport SESSION_READS, Session
from cext.store.store cimport store_read, store_written

cdef enum:
    WINDOW = 64                  # deliveries before their turn that stay in memory
    LARGE_BYTES = 8192           # size from which a message may leave memory even inside WINDOW
    STEPS = 4
    STEPS_LEFT = 1024
    READ_AHEAD_BYTES = 256 << 10


# ---------------------------------------------------------------- page out

cdef inline bint may_page_out(const Session* s, uint32_t position, const Delivery* d) noexcept nogil:
    if d.qos & DELIVERY_SHARED or d.message.lsn == 0 or d.message.flags & MESSAGE_SPREAD:
        return 0
    if s.client == NULL:
        return d.state == D_WAITING or d.state == D_SENT
    return d.state == D_WAITING and (position - s.queue.next >= WINDOW or message_bytes(d.message) > LARGE_BYTES)


cdef void page_out(Broker* b, Session* s, uint32_t steps) noexcept nogil:
    cdef Durable* t = durable_of(b)
    cdef Queue* q = &s.queue
    cdef uint64_t written = store_written(&t.store)
    cdef uint32_t i = s.paged
    cdef Delivery* d
    cdef Message* m
    if b.settings.overflow == OVERFLOW_LAST_VALUE:
        return
    if <int>(i - q.next) < 0 or <int>(i - q.tail) > 0:
        i = q.next
    while steps and <int>(i - s.logged) < 0 and i != q.tail:
        d = queue_at(q, i)
        m = delivery_message(d)
        if m != NULL and (m.lsn & PENDING or m.lsn >= written):
            break                # the scan continues here when the message is written
        if m != NULL and may_page_out(s, i, d):
            delivery_page(&b.messages, &b.reactor.buffers, q, d, m.lsn, m.payload.n, m.topic.n + m.props.n if m.refs == 1 else -1)
        i += 1
        steps -= 1
    s.paged = i


cdef void page_out_some(Broker* b, Session* s) noexcept nogil:
    page_out(b, s, STEPS)


cdef void page_out_left(Broker* b, Session* s) noexcept nogil:
    s.paged = s.queue.floor
    page_out(b, s, STEPS_LEFT)


# ---------------------------------------------------------------- page in

cdef int reader_add(Durable* t, Session* s) noexcept nogil:
    """Queue the session until the storage thread has capacity for its read. Returns -1 if there is no memory."""
    cdef uint32_t i
    cdef Session** readers
    if t.n_readers == t.cap_readers:
        if t.readers_head:
            for i in range(t.n_readers - t.readers_head):
                t.readers[i] = t.readers[t.readers_head + i]
            t.n_readers -= t.readers_head
            t.readers_head = 0
        else:
            readers = <Session**>array_grown(t.readers, &t.cap_readers, sizeof(Session*))
            if readers == NULL:
                return -1
            t.readers = readers
    t.readers[t.n_readers] = s
    t.n_readers += 1
    s.flags |= SESSION_READS
    s.records += 1
    return 0


cdef void pages_request(Broker* b, Session* s) noexcept nogil:
    cdef Durable* t = durable_of(b)
    cdef Queue* q = &s.queue
    cdef uint64_t lsns[READ_AHEAD]
    cdef uint32_t n = 0, n_bytes = 0, most = READ_AHEAD
    cdef uint32_t i = q.next
    cdef Client* c = session_client(s)
    cdef Delivery* d
    cdef int error
    if s.reads or s.flags & SESSION_READS:
        return
    if memory_is_full(b):
        most = min(most, c.window - q.inflight if c.window > q.inflight else 1)
    while i != q.tail and n < most and n_bytes < READ_AHEAD_BYTES:
        d = queue_at(q, i)
        if is_paged(d):
            lsns[n] = paged_lsn(d)
            n_bytes += paged_bytes(d)
            n += 1
        i += 1
    error = store_read(&t.store, lsns, n, s)
    if error == EAGAIN:
        error = reader_add(t, s)
        if error == 0:
            return
    if error != 0:
        client_doom(b, c, RC_QUOTA_EXCEEDED)       # no memory for the read request: the client may reconnect when there is memory
        return
    s.reads = n
    s.read_at = q.next
    s.read_end = i
    s.records += 1


# ---------------------------------------------------------------- messages from records

cdef uint64_t monotonic_of(Broker* b, uint64_t wall_ms, uint64_t now_wall_ms) noexcept nogil:
    cdef uint64_t now = b.reactor.now_ms
    if wall_ms >= now_wall_ms:
        return now + (wall_ms - now_wall_ms)
    return now - (now_wall_ms - wall_ms) if now > now_wall_ms - wall_ms else 1


cdef Message* message_of_record(Broker* b, const RecordMessage* r, uint64_t lsn, uint64_t now_wall_ms) noexcept nogil:
    cdef Message* m = message_new(&b.messages, r.topic, r.props, r.payload)
    if m == NULL:
        return NULL
    m.qos = <unsigned char>(r.flags & RECORD_QOS)
    m.retain = 1 if r.flags & RECORD_RETAIN else 0
    m.source_hash = r.source_hash
    if r.flags & RECORD_AGAIN:
        m.flags |= MESSAGE_AGAIN
    m.expires_ms = monotonic_of(b, r.expires_wall_ms, now_wall_ms) if r.expires_wall_ms else 0
    if lsn:
        m.lsn = lsn
        b.messages.recorded_bytes += message_bytes(m) + RECORD_ROOM
    return m
