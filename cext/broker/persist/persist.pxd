# Record changes that must outlive the broker. Other rooms call these functions; each is a no-op for sessions that are not durable. See persist.pyx.
# **Without memory** for a record no acknowledgement is sent: the client that caused the record ends with 0x97 (lacks_since). A change that the
# client could not repeat (a removed subscription, a released packet id) happens only when there is room for its record (persist_reserve).
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Will
from cext.broker.core.durable cimport Durable
from cext.session.message cimport Message
from cext.session.queue cimport Delivery
from cext.session.record cimport RecordMessage
from cext.session.session cimport Session

# Is it a message below $SYS? It is not kept over a start: each process publishes those again.
cdef inline bint is_sys_message(const Message* m) noexcept nogil:
    return m.topic.n >= 5 and memcmp(m.topic.p, <const uint8_t*>"$SYS/", 5) == 0

# With keep_publishers: the messages that are recorded next come from this session; NULL: from none that is known.
cdef void publisher_set(Broker* b, const Session* s, uint16_t pid) noexcept nogil

# Make room for a few records with `bytes` of bodies in all; s NULL: of no particular session. 0: no memory, and the change must not happen.
cdef bint persist_reserve(Broker* b, const Session* s, uint64_t bytes) noexcept nogil
# Make room for a body in the open batch. NULL: no memory; the client that caused the record gets no acknowledgement.
cdef uint8_t* record(Broker* b, int kind, uint64_t n) noexcept nogil
cdef bint store_session_id_reserve(Broker* b) noexcept nogil         # for one more session
cdef void persist_session(Broker* b, Session* s) noexcept nogil        # its own state has changed; gives it a store session id if it needs one
cdef void persist_session_end(Broker* b, Session* s) noexcept nogil   # it has ended
cdef void persist_subscription(Broker* b, Session* s, View filter, uint8_t options, uint32_t sub_id) noexcept nogil
cdef void persist_subscription_end(Broker* b, Session* s, View filter) noexcept nogil
# Record the delivery d, which was just queued for a session with a store session id. -1: no memory.
cdef int pending_delivery_record(Broker* b, Session* s, Message* m, const Delivery* d, uint32_t position) noexcept nogil
# Same for a delivery without a record: with QoS 2 it is sent after the next batch.
cdef int pending_delivery_wait(Broker* b, Session* s, const Delivery* d) noexcept nogil
cdef void pending_delivery_done(Broker* b, Session* s, Message* m, uint32_t position) noexcept nogil     # m NULL: it was released before
cdef void pending_delivery_release(Broker* b, Session* s, const Delivery* d, uint32_t position) noexcept nogil      # PUBREC has come
# The delivery has entered the session's plugin gate at this position. -1: no memory.
cdef int persist_gated(Broker* b, Session* s, Message* m, uint32_t position, uint8_t qos, uint8_t retain, uint32_t sub_id) noexcept nogil
cdef void persist_gated_done(Broker* b, Session* s, uint32_t position) noexcept nogil      # recorded deliveries before it have left the gate
cdef void persist_retained(Broker* b, Message* m) noexcept nogil
cdef void persist_retained_end(Broker* b, Message* m, bint replaced) noexcept nogil
cdef int persist_inbound(Broker* b, Session* s, uint16_t pid, const Message* m, uint64_t identity) noexcept nogil     # m NULL: refused
cdef int persist_inbound_end(Broker* b, Session* s, uint16_t pid) noexcept nogil     # -1: no memory
cdef void persist_will(Broker* b, Session* s, const Message* m, uint32_t delay_s, uint64_t due_ms) noexcept nogil
# The will of a connected client. If the session is not stored, the will has a record of its own, unless the store accepts nothing.
cdef void persist_client_will(Broker* b, Session* s, const Will* w) noexcept nogil
cdef void persist_will_end(Broker* b, Session* s) noexcept nogil
# A will waits for a plugin: the record that its session or client had may end in the same batch. `number`: that of the will, if it has waited before; 0 =
# it waits now. `handle`: its auth request; 0 = none. Returns its number; 0 = it has no record, because it had none before.
cdef uint64_t persist_waiting_will(Broker* b, const Session* s, const Message* m, uint64_t number, uint64_t handle) noexcept nogil
# Same for a will that other workers get; identity: that of a QoS 2 message, or 0. persist_waiting_will_end ends it, too.
cdef uint64_t persist_sent_will(Broker* b, const Session* s, const Message* m, uint64_t identity) noexcept nogil
cdef void persist_waiting_will_end(Broker* b, uint64_t number) noexcept nogil        # a plugin has decided; 0: it has no record
# for clean.pyx and recover.pyx
cdef void session_recorded(Broker* b, Session* s) noexcept nogil
cdef void client_will_recorded(Broker* b, Session* s, const Will* w) noexcept nogil
cdef void message_recorded(Broker* b, const Message* m, RecordMessage* out) noexcept nogil
cdef uint8_t* record_room(Broker* b, int kind, uint64_t n, uint64_t* lsn) noexcept nogil
cdef int pending_ends_record(Durable* t) noexcept nogil
cdef void* array_grown(void* array, uint32_t* cap, uint32_t item_bytes) noexcept nogil


cdef enum:
    END_NOT_RECORDED = 0x80000000u      # in Durable.free_store_ids: there was no memory for RECORD_END of this id


cdef inline bint is_sendable(const Session* s, uint32_t position) noexcept nogil:
    # An outbound QoS 2 message is sent after its record is committed, so that no client receives it twice
    return s.store_session_id == 0 or <int>(position - s.safe) < 0
