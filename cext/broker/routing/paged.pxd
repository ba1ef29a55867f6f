# Queues that are longer than memory: messages far from their turn are in the store only. See paged.pyx.
from libc.stdint cimport uint64_t
from cext.broker.core.broker cimport Broker
from cext.session.message cimport Message
from cext.session.record cimport RecordMessage
from cext.session.session cimport Session

# Page out some of the session's messages. Called while memory_is_full, after a delivery was queued for a session with a store
# session id.
cdef void page_out_some(Broker* b, Session* s) noexcept nogil
# Page out the messages of a session whose client has disconnected. Called while memory_is_full.
cdef void page_out_left(Broker* b, Session* s) noexcept nogil
# Request the paged delivery at `next` and those behind it from the store, once. When they have been read, the session is pumped.
cdef void pages_request(Broker* b, Session* s) noexcept nogil
# Make a message from its record. `lsn` is the position of the record that counts as the message's own; 0 = none. Returns NULL if
# there is no memory.
cdef Message* message_of_record(Broker* b, const RecordMessage* r, uint64_t lsn, uint64_t now_wall_ms) noexcept nogil
cdef uint64_t monotonic_of(Broker* b, uint64_t wall_ms, uint64_t now_wall_ms) noexcept nogil   # at least 1, because 0 means never


cdef enum:
    READ_AHEAD = 64             # messages of one read request to the store


cdef inline bint memory_is_full(const Broker* b) noexcept nogil:
    return b.settings.queue_memory and b.messages.bytes + b.messages.count * sizeof(Message) > b.settings.queue_memory
