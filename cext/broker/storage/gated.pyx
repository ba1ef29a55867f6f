"""Record the deliveries that wait in plugin gates, and copy their live records. This module knows gates and records, not verdicts.

A delivery that leaves its gate before the batch is sealed in which it entered needs no record here. Otherwise its record counts until
RECORD_GATED_DONE, which is in the same batch as the record of the delivery in the session's queue: after a crash a delivery is in the
gate, where a plugin is asked about it again, or in the queue, never in both. The record has the message as it came.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.durable cimport Durable, PendingGated, session_at
from cext.broker.persist.persist cimport message_recorded, persist_reserve, record_room
from cext.broker.routing.plugin_gate cimport plugin_gate_logged, plugin_gate_needs
from cext.broker.routing.session_release cimport session_record_done
from cext.session.message cimport message_unref
from cext.session.record cimport (
    RECORD_GATED, RecordEntry, RecordMessage, RecordMsg, record_entry_next, record_entry_put, record_entry_size,
    record_msg_end_put, record_msg_put, record_msg_read, record_msg_size,
)
from cext.session.session cimport SESSION_ENDED
from cext.store.state cimport StoreRecord
from cext.store.store cimport store_append


cdef inline bint gated_waits(const PendingGated* o) noexcept nogil:
    return o.session.store_session_id and not o.session.flags & SESSION_ENDED and plugin_gate_needs(o.session, o.position)


cdef inline void gated_entry_fill(const PendingGated* o, RecordEntry* e) noexcept nogil:
    e.store_session_id = o.session.store_session_id
    e.position = o.position
    e.sub_id = o.sub_id
    e.pid = 0
    e.qos = o.qos


cdef int gated_message_record(Broker* b, Durable* t, uint32_t first, uint32_t end) noexcept nogil:
    """Write one record for the pending deliveries [first, end), which have the same message. Returns -1 if there is no memory."""
    cdef RecordMessage r
    cdef RecordEntry e
    cdef uint64_t bytes = 0, lsn
    cdef uint32_t n = 0, i
    cdef uint8_t* out
    for i in range(first, end):
        if gated_waits(&t.gated[i]):
            gated_entry_fill(&t.gated[i], &e)
            bytes += record_entry_size(&e)
            n += 1
    if n == 0:
        return 0
    message_recorded(b, t.gated[first].message, &r)
    bytes = record_msg_size(&r, bytes)
    out = store_append(&t.store, RECORD_GATED, 0, <uint32_t>bytes, &lsn) if bytes <= 0x7FFFFFFF else NULL
    if out == NULL:
        return -1
    out = record_msg_put(out, &r, n)
    for i in range(first, end):
        if gated_waits(&t.gated[i]):
            gated_entry_fill(&t.gated[i], &e)
            out = record_entry_put(out, &e)
            plugin_gate_logged(t.gated[i].session, t.gated[i].position)
    record_msg_end_put(out, &r)
    return 0


cdef int gated_record(Broker* b, Durable* t) noexcept nogil:
    cdef uint32_t first = t.n_gated_recorded, end
    while first != t.n_gated:
        end = first + 1
        while end != t.n_gated and t.gated[end].message == t.gated[first].message:
            end += 1
        if gated_message_record(b, t, first, end) != 0:
            return -1
        first = t.n_gated_recorded = end
    return 0


cdef void gated_forget(Broker* b, Durable* t) noexcept nogil:
    cdef uint32_t i
    for i in range(t.n_gated):
        message_unref(&b.messages, &b.reactor.buffers, t.gated[i].message)
        session_record_done(b, t.gated[i].session)
    t.n_gated = t.n_gated_recorded = 0


cdef inline bint gated_is_live(Durable* t, const RecordEntry* e) noexcept nogil:
    return session_at(t, e.store_session_id) != NULL and plugin_gate_needs(session_at(t, e.store_session_id), e.position)


cdef void gated_copy(Broker* b, Durable* t, const StoreRecord* old) noexcept nogil:
    cdef RecordMsg r
    cdef RecordEntry e
    cdef View entries
    cdef uint64_t bytes = 0, lsn
    cdef uint32_t n = 0
    cdef uint8_t* out
    if record_msg_read(old.body, &r) != 0:
        return
    entries = r.entries
    while record_entry_next(&entries, &e):
        if gated_is_live(t, &e):
            bytes += record_entry_size(&e)
            n += 1
    bytes = record_msg_size(&r.message, bytes)
    if n == 0 or not persist_reserve(b, NULL, bytes):
        return
    out = record_room(b, RECORD_GATED, bytes, &lsn)
    if out == NULL:
        return
    out = record_msg_put(out, &r.message, n)
    while record_entry_next(&r.entries, &e):
        if gated_is_live(t, &e):
            out = record_entry_put(out, &e)
    record_msg_end_put(out, &r.message)
