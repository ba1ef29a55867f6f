# What happens and is to outlive the broker, told by the rest of the room. Each is a no-op for who is not durable. See keep.pyx.
#
# **Without memory** for a record nothing is promised: who asked for it gets no acknowledgement (lacks_since), and ends with 0x97. What could not
# be asked for again (a subscription that is gone, an id that was released) is only done once there is room for its record (persist_reserve).
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.durable cimport Durable
from cext.session.message cimport Message
from cext.session.queue cimport Delivery
from cext.session.record cimport RecordMessage
from cext.session.session cimport Session

# Room for records with bodies of `bytes` in all, a few of them; s NULL: of whoever. 0: no memory, and nothing may be done.
cdef bint persist_reserve(Broker* b, const Session* s, uint64_t bytes) noexcept nogil
cdef bint store_session_id_reserve(Broker* b) noexcept nogil         # for one more session
cdef void persist_lacks_memory(Broker* b) noexcept nogil             # something that is owed to a durable session has no memory
cdef void persist_session(Broker* b, Session* s) noexcept nogil        # its own state has changed; gives it a number when it needs one
cdef void persist_session_end(Broker* b, Session* s) noexcept nogil   # it has ended
cdef void persist_subscription(Broker* b, Session* s, View filter, uint8_t options, uint32_t sub_id) noexcept nogil
cdef void persist_subscription_end(Broker* b, Session* s, View filter) noexcept nogil
# d was just pushed, for a session with a number. -1: no memory
cdef int pending_delivery_record(Broker* b, Session* s, Message* m, const Delivery* d, uint32_t position) noexcept nogil
# The same for one that is not recorded: at QoS 2 it goes out with the next batch.
cdef int pending_delivery_wait(Broker* b, Session* s, const Delivery* d) noexcept nogil
cdef void pending_delivery_done(Broker* b, Session* s, Message* m, uint32_t position) noexcept nogil     # m NULL: it was released before
cdef void pending_delivery_release(Broker* b, Session* s, const Delivery* d, uint32_t position) noexcept nogil      # PUBREC came
cdef void persist_retained(Broker* b, Message* m) noexcept nogil
cdef void persist_retained_end(Broker* b, Message* m, bint replaced) noexcept nogil
cdef void persist_inbound(Broker* b, Session* s, uint16_t pid, const Message* m) noexcept nogil     # m NULL: refused
cdef int persist_inbound_end(Broker* b, Session* s, uint16_t pid) noexcept nogil     # -1: no memory
cdef void persist_will(Broker* b, Session* s, const Message* m, uint32_t delay_s, uint64_t due_ms) noexcept nogil
cdef void persist_will_end(Broker* b, Session* s) noexcept nogil
# for clean.pyx and recover.pyx
cdef void session_recorded(Broker* b, Session* s) noexcept nogil
cdef void message_recorded(Broker* b, const Message* m, RecordMessage* out) noexcept nogil
cdef uint8_t* record_room(Broker* b, int kind, uint64_t n, uint64_t* lsn) noexcept nogil
cdef int ends_record(Durable* t) noexcept nogil
cdef void* grown(void* array, uint32_t* cap, uint32_t item_bytes) noexcept nogil


cdef enum:
    END_NOT_RECORDED = 0x80000000u      # in Durable.free_store_ids: the number's RECORD_END found no memory


cdef inline bint sendable(const Session* s, uint32_t position) noexcept nogil:
    # An outbound QoS 2 message goes out when its record is committed, so that nobody gets it twice
    return s.store_session_id == 0 or <int>(position - s.safe) < 0
