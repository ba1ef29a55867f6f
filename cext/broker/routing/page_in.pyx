"""Take paged messages back into memory when the storage thread has read them, and continue their sessions. This module knows the
requests that paged.pyx made. It does not know which messages leave memory.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdio cimport snprintf

from cext.base.clock cimport clock_wall_ms
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport log_line
from cext.broker.core.durable cimport Durable
from cext.broker.core.jobs cimport jobs_unblock
from cext.broker.core.log cimport LOG_ERROR, LOG_LINE_MAX
from cext.broker.core.stats cimport DROP_UNREADABLE
from cext.broker.routing.overflow cimport unsent_done
from cext.broker.routing.paged cimport READ_AHEAD, message_of_record
from cext.broker.routing.pump cimport pump
from cext.broker.routing.session_release cimport session_record_done
from cext.session.message cimport Message
from cext.session.queue cimport Delivery, Queue, delivery_unpage, is_paged, paged_lsn, queue_at
from cext.session.record cimport RECORD_MSG, RecordMsg, record_msg_read
from cext.session.session cimport SESSION_ENDED, SESSION_READS, Session
from cext.store.state cimport StoreRecord
from cext.store.store cimport store_read_next, store_reads_left


cdef Delivery* paged_delivery_at(Session* s, uint64_t lsn) noexcept nogil:
    """Return the paged delivery that was requested at this lsn; NULL = it is done by now, or cleaning has moved its record."""
    cdef Queue* q = &s.queue
    cdef uint32_t i = s.read_at
    cdef Delivery* d
    while i != s.read_end:
        if <int>(i - q.next) >= 0 and <int>(i - q.tail) < 0:
            d = queue_at(q, i)
            if is_paged(d) and paged_lsn(d) == lsn:
                s.read_at = i + 1
                return d
        i += 1
    return NULL


cdef void page_unreadable(Broker* b, Session* s, Delivery* d) noexcept nogil:
    log_line(b, LOG_ERROR, snprintf(
        b.log.line, LOG_LINE_MAX,
        "Error: store: a message queued for client %.*s cannot be read (sequence number %llu). The message is lost.",
        <int>s.id_len, <const char*>s.client_id, <unsigned long long>paged_lsn(d)))
    unsent_done(b, s, d, DROP_UNREADABLE)


cdef void page_received(Broker* b, Session* s, const StoreRecord* r, uint64_t now_wall_ms) noexcept nogil:
    cdef RecordMsg record
    cdef Delivery* d = paged_delivery_at(s, r.lsn) if not s.flags & SESSION_ENDED else NULL
    cdef Message* m
    if d == NULL:
        return
    if r.kind != RECORD_MSG or record_msg_read(r.body, &record) != 0:
        page_unreadable(b, s, d)
        return
    m = message_of_record(b, &record.message, r.lsn, now_wall_ms)
    if m != NULL:                # on failure pump requests it again
        delivery_unpage(&b.messages, &s.queue, d, m)


cdef void reader_served(Broker* b, Session* s) noexcept nogil:
    if s.client != NULL and not s.flags & SESSION_ENDED:
        pump(b, s, NULL)
        jobs_unblock(b, s)       # the queue may have become empty without an acknowledgement
    session_record_done(b, s)


cdef void pages_receive(Broker* b, Durable* t) noexcept nogil:
    cdef uint64_t now_wall_ms = clock_wall_ms()
    cdef StoreRecord r
    cdef void* cookie = NULL
    cdef Session* s
    while store_read_next(&t.store, &cookie, &r):
        s = <Session*>cookie
        page_received(b, s, &r, now_wall_ms)
        s.reads -= 1
        if s.reads == 0:
            reader_served(b, s)
    while t.readers_head != t.n_readers and store_reads_left(&t.store) >= READ_AHEAD:
        s = t.readers[t.readers_head]
        t.readers_head += 1
        s.flags &= ~<uint32_t>SESSION_READS
        reader_served(b, s)
