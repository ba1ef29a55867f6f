# Queues that are longer than memory: what is far from its turn lies in the store only. See paged.pyx.
from libc.stdint cimport uint64_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.durable cimport Durable
from cext.session.message cimport Message
from cext.session.record cimport RecordMessage
from cext.session.session cimport Session

# After something was queued for a session with a number, while memory_is_full: takes some of what it is owed out of it.
cdef void page_out_some(Broker* b, Session* s) noexcept nogil
# Its client has gone, while memory_is_full.
cdef void page_out_left(Broker* b, Session* s) noexcept nogil
# The delivery at `next` is paged: asks for it and for what follows, once; pump goes on when they are there.
cdef void pages_ask(Broker* b, Session* s) noexcept nogil
cdef void pages_come(Broker* b, Durable* t) noexcept nogil          # STORE_READ
# A message as it was recorded; lsn: of the record that is to count as its own (0: none does). NULL: no memory
cdef Message* message_of_record(Broker* b, const RecordMessage* r, uint64_t lsn, uint64_t now_wall_ms) noexcept nogil
cdef uint64_t monotonic_of(Broker* b, uint64_t wall_ms, uint64_t now_wall_ms) noexcept nogil     # at least 1: 0 is never


cdef inline bint memory_is_full(const Broker* b) noexcept nogil:
    return b.settings.queue_memory and b.messages.bytes + b.messages.count * sizeof(Message) > b.settings.queue_memory
