# A session's outgoing deliveries: one queue with one send position. See queue.pyx.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from cext.base.buffer cimport Buffers
from cext.base.view cimport View
from cext.session.message cimport Message, Messages

cdef enum:
    # states of a delivery
    D_WAITING = 0               # not sent yet
    D_SENT = 1                  # PUBLISH sent: waits for PUBACK (QoS 1) or PUBREC (QoS 2)
    D_RELEASED = 2              # PUBREL sent: waits for PUBCOMP
    D_DONE = 3                  # complete: a hole until the floor passes it

ctypedef struct Delivery:       # a queued message for one session, 16 bytes
    Message* message            # NULL once D_RELEASED or D_DONE; lowest bit set = paged message, see delivery_page
    uint32_t sub_id             # 0 = none; with DELIVERY_SHARED, an index into the session's table of shares
    uint16_t pid                # packet id; a QoS 0 delivery repeats the id before it
    uint8_t qos                 # with the flags DELIVERY_RETAIN and DELIVERY_SHARED
    uint8_t state

cdef enum:
    DELIVERY_RETAIN = 0x80      # flag in Delivery.qos
    DELIVERY_SHARED = 0x40      # flag in Delivery.qos for QoS 1 and 2: it came through a shared group

ctypedef struct Queue:
    Delivery* ring              # capacity is mask + 1; NULL = not allocated
    uint32_t mask
    uint32_t floor              # position of the first delivery that is not done
    uint32_t next               # position of the next delivery to send in this connection
    uint32_t tail               # position after the last delivery
    uint32_t inflight           # deliveries sent in this connection and not done
    uint32_t pending            # all deliveries that are not done
    uint16_t last_pid
    uint16_t reserved
    uint64_t waiting_bytes      # payload bytes of the deliveries in [next, tail)
    uint64_t inflight_bytes     # payload bytes of the deliveries in [floor, next)
    uint64_t room_bytes         # bytes of topics and properties of the messages in memory

cdef inline Delivery* queue_at(Queue* q, uint32_t position) noexcept nogil:
    return &q.ring[position & q.mask]

cdef inline bint is_paged(const Delivery* d) noexcept nogil:
    return <uintptr_t>d.message & 1

# Return, for a paged message, the position of its record, and the payload's bytes with an error of at most 1/32.
cdef inline uint64_t paged_lsn(const Delivery* d) noexcept nogil:
    return <uintptr_t>d.message >> 12 << 2

cdef inline uint32_t paged_bytes(const Delivery* d) noexcept nogil:
    cdef uint32_t code = <uint32_t>(<uintptr_t>d.message >> 2) & 0x3FF
    return code if code < 32 else (32 | code & 31) << ((code >> 5) - 1)

cdef inline Message* delivery_message(const Delivery* d) noexcept nogil:      # NULL = no message, or paged
    return NULL if is_paged(d) else d.message

cdef inline View delivery_topic(const Delivery* d) noexcept nogil:      # empty if the message is not in memory
    cdef const Message* m = delivery_message(d)
    cdef View none
    none.p = NULL
    none.n = 0
    return m.topic if m != NULL else none

# Return the number of bytes that waiting_bytes or inflight_bytes contains for this delivery.
cdef inline uint32_t delivery_bytes(const Delivery* d) noexcept nogil:
    if d.message == NULL:
        return 0
    return paged_bytes(d) if is_paged(d) else d.message.payload.n

# Count the topic and the properties of a message that comes, or leave out those of a delivery's message that goes.
cdef inline void room_take(Queue* q, const Message* m) noexcept nogil:
    q.room_bytes += m.topic.n + m.props.n

cdef inline void room_leave(Queue* q, const Delivery* d) noexcept nogil:
    cdef const Message* m = delivery_message(d)
    if m != NULL:
        q.room_bytes -= m.topic.n + m.props.n

cdef inline uint32_t queue_waiting(Queue* q) noexcept nogil:
    return q.tail - q.next

# Return the position of a delivery in [floor, tail).
cdef inline uint32_t queue_position(const Queue* q, const Delivery* d) noexcept nogil:
    return q.floor + ((<uint32_t>(d - q.ring) - q.floor) & q.mask)

# Append a delivery and take over the message's reference. If qos is not 0, it may include DELIVERY_SHARED. Return NULL if there
# is no memory; then the caller keeps the reference.
cdef Delivery* queue_push(Queue* q, Message* m, uint8_t qos, uint8_t retain, uint32_t sub_id) noexcept nogil
# Return the delivery in [floor, next) with this packet id and the state D_SENT or D_RELEASED; NULL if there is none.
cdef Delivery* queue_find(Queue* q, uint16_t pid) noexcept nogil
# Return the next packet id of the session for a packet that is not in the queue (SUBSCRIBE of a bridge), different from the ids
# of the deliveries near the floor, which may be in flight.
cdef uint16_t queue_take_pid(Queue* q) noexcept nogil
# Is the packet id of the delivery at `next` (QoS 1 or 2) behind the ids of [floor, next)? If not, the ids have come full circle.
cdef bint queue_pid_rises(Queue* q) noexcept nogil
# Remove the delivery that was pushed last and has not changed since.
cdef void queue_pop(Queue* q) noexcept nogil
# Mark a delivery of [floor, next) as done and let the floor advance. The caller has released its message.
cdef void queue_done(Queue* q, Delivery* d) noexcept nogil
# Rewind, because the connection is lost or new: all deliveries that are not done are sent again from the floor, in order.
cdef void queue_rewind(Queue* q) noexcept nogil
# Page the message of a delivery in [next, tail): release its reference, if it has one, and store the position (lsn) of its record
# and the size of its payload instead. `room` is the size of its topic and properties if no other delivery of that record counts
# it in recorded_bytes, else -1. Return 0 if this lsn cannot be stored (above 2^54, or not a multiple of 4); then nothing changed.
cdef bint delivery_page(Messages* store, Buffers* buffers, Queue* q, Delivery* d, uint64_t lsn, uint32_t n_bytes, int64_t room) noexcept nogil
cdef void delivery_moved(Delivery* d, uint64_t lsn) noexcept nogil       # of a paged message whose record was copied
# Undo delivery_page with the message that was read back, and take over its reference.
cdef void delivery_unpage(Messages* store, Queue* q, Delivery* d, Message* m) noexcept nogil
# Release the message, whether in memory or paged. The caller updates bytes and state.
cdef void delivery_release(Messages* store, Buffers* buffers, Delivery* d) noexcept nogil

# For recovery: return the delivery at any position; positions in between become D_DONE. After all calls, call queue_restored
# once. Return NULL if there is no memory, or if the distance exceeds what a queue can hold.
cdef Delivery* queue_place(Queue* q, uint32_t position) noexcept nogil
cdef void queue_restored(Queue* q) noexcept nogil
# For recovery: the session has used this packet id. The last call counts if `last`; otherwise the id counts if it is behind the
# last one on the circle, and not before it.
cdef void queue_pid_used(Queue* q, uint16_t pid, bint last) noexcept nogil
cdef void queue_fini(Queue* q) noexcept nogil       # frees the ring; messages must have been released

# Inbound QoS 2 messages, which wait for PUBREL [v5 4.3.3]: packet id to message. Open addressing, at most half full.
ctypedef struct InboundQos2:
    Message* message            # NULL = nothing will be routed (refused, but a 3.x client cannot be notified)
    uint16_t pid                # 0 = free slot
    uint16_t turn               # Inbox.turn when it was added
    uint16_t copies_turn        # Inbox.turn when the last copy came
    uint8_t copies              # how often that connection has sent the message
    uint64_t identity           # the same in all workers and after a restart; 0 = the broker is alone

ctypedef struct Inbox:
    InboundQos2* slots          # NULL = not allocated
    uint32_t mask
    uint32_t n
    uint64_t bytes              # sum of message_bytes
    uint32_t inherited          # entries that an earlier connection left behind
    uint16_t turn               # number of the connection, modulo 2^16

# Add a message and take over its reference. Return -1 if there is no memory. The packet id must not be in the inbox.
cdef int inbox_add(Inbox* b, uint16_t pid, Message* m) noexcept nogil
cdef InboundQos2* inbox_find(Inbox* b, uint16_t pid) noexcept nogil
# Count another copy of the message. Return how often this connection has sent it.
cdef int inbox_count_copy(Inbox* b, InboundQos2* h) noexcept nogil
# Remove an entry. The caller takes over its message, which must still exist. Pointers into the inbox become invalid.
cdef void inbox_remove(Inbox* b, InboundQos2* h) noexcept nogil
# A new connection has taken the session: the entries so far are inherited.
cdef void inbox_inherit(Inbox* b) noexcept nogil
# Return an entry that was left behind before the connection before this one, from slot *at on; NULL = there is none. After
# inbox_remove, continue at the same slot.
cdef InboundQos2* inbox_forgotten(Inbox* b, uint32_t* at) noexcept nogil
cdef void inbox_fini(Inbox* b) noexcept nogil           # messages must have been released
