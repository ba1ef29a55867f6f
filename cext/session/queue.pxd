# A session's outgoing deliveries: one queue, one progress. See queue.pyx.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from cext.base.buffer cimport Buffers
from cext.base.view cimport View
from cext.session.message cimport Message, Messages, message_bytes

cdef enum:
    # the state of a delivery
    D_WAITING = 0               # never sent
    D_SENT = 1                  # PUBLISH sent: awaits PUBACK (QoS 1) or PUBREC (QoS 2)
    D_RELEASED = 2              # PUBREL sent: awaits PUBCOMP
    D_DONE = 3                  # nothing is owed: a hole until the floor passes it

ctypedef struct Delivery:       # 16 bytes
    Message* message            # NULL once D_RELEASED or D_DONE; its lowest bit set: the message is on the disk only, see delivery_page
    uint32_t sub_id             # 0: none; with DELIVERY_SHARED: an index into the session's table of shares
    uint16_t pid                # of a QoS 0 delivery: that of the one before it
    uint8_t qos                 # with DELIVERY_RETAIN, DELIVERY_SHARED
    uint8_t state

cdef enum:
    DELIVERY_RETAIN = 0x80      # in Delivery.qos
    DELIVERY_SHARED = 0x40      # QoS 1 and 2: it came through a shared group

ctypedef struct Queue:
    Delivery* ring              # capacity mask + 1; NULL while nothing was ever owed
    uint32_t mask
    uint32_t floor              # position of the lowest delivery not done
    uint32_t next               # position of the next one to send in this connection
    uint32_t tail               # position after the last
    uint32_t inflight           # sent in this connection and not done
    uint32_t pending            # all that are not done
    uint16_t last_pid
    uint16_t reserved
    uint64_t waiting_bytes      # messages held by deliveries in [next, tail)
    uint64_t inflight_bytes     # messages held by deliveries in [floor, next)

cdef inline Delivery* queue_at(Queue* q, uint32_t position) noexcept nogil:
    return &q.ring[position & q.mask]

cdef inline bint is_paged(const Delivery* d) noexcept nogil:
    return <uintptr_t>d.message & 1

# Of a paged one: where its record lies, and the message's bytes, to a thirty-second.
cdef inline uint64_t paged_lsn(const Delivery* d) noexcept nogil:
    return <uintptr_t>d.message >> 12 << 2

cdef inline uint32_t paged_bytes(const Delivery* d) noexcept nogil:
    cdef uint32_t code = <uint32_t>(<uintptr_t>d.message >> 2) & 0x3FF
    return code if code < 32 else (32 | code & 31) << ((code >> 5) - 1)

cdef inline Message* delivery_message(const Delivery* d) noexcept nogil:      # NULL: it has none, or not in memory
    return NULL if is_paged(d) else d.message

cdef inline View delivery_topic(const Delivery* d) noexcept nogil:      # empty: the message is not in memory
    cdef const Message* m = delivery_message(d)
    cdef View none
    none.p = NULL
    none.n = 0
    return m.topic if m != NULL else none

# What is accounted for it in waiting_bytes or inflight_bytes.
cdef inline uint32_t delivery_bytes(const Delivery* d) noexcept nogil:
    if d.message == NULL:
        return 0
    return paged_bytes(d) if is_paged(d) else message_bytes(d.message)

cdef inline uint32_t queue_waiting(Queue* q) noexcept nogil:
    return q.tail - q.next

# The position of a delivery in [floor, tail).
cdef inline uint32_t queue_position(const Queue* q, const Delivery* d) noexcept nogil:
    return q.floor + ((<uint32_t>(d - q.ring) - q.floor) & q.mask)

# Appends; the message's reference is taken over. qos may carry DELIVERY_SHARED when it is not 0. NULL: no memory (the reference stays the caller's).
cdef Delivery* queue_push(Queue* q, Message* m, uint8_t qos, uint8_t retain, uint32_t sub_id) noexcept nogil
# The delivery in [floor, next) with this packet id in one of the states D_SENT, D_RELEASED; NULL: none.
cdef Delivery* queue_find(Queue* q, uint16_t pid) noexcept nogil
# Takes back what was pushed last and is still as it was.
cdef void queue_pop(Queue* q) noexcept nogil
# Marks one of [floor, next) as done (its message must have been released by the caller) and lets the floor advance.
cdef void queue_done(Queue* q, Delivery* d) noexcept nogil
# The connection is gone or new: all that is not done is to be sent again from the floor, in order.
cdef void queue_rewind(Queue* q) noexcept nogil
# One of [next, tail) gives up its message (its reference, when it has one) for the record of `bytes` at lsn; `only`: no other delivery of that record
# stands for it in recorded_bytes. 0: lsn is not one that can be noted (above 2^54, or odd); nothing has changed.
cdef bint delivery_page(Messages* store, Buffers* buffers, Queue* q, Delivery* d, uint64_t lsn, uint32_t n_bytes, bint only) noexcept nogil
cdef void delivery_moved(Delivery* d, uint64_t lsn) noexcept nogil       # of a paged one: its record was copied
# The way back; takes the reference over.
cdef void delivery_unpage(Messages* store, Queue* q, Delivery* d, Message* m) noexcept nogil
# Lets go of the message, wherever it is; bytes and state are the caller's business.
cdef void delivery_release(Messages* store, Buffers* buffers, Delivery* d) noexcept nogil

# Recovery: the delivery at a position, wherever that lies; those in between are D_DONE. Then queue_restored, once.
# NULL: no memory, or further away than a queue can be.
cdef Delivery* queue_place(Queue* q, uint32_t position) noexcept nogil
cdef void queue_restored(Queue* q) noexcept nogil
cdef void queue_fini(Queue* q) noexcept nogil       # frees the ring; messages must have been released

# Messages received at QoS 2 and not yet released by PUBREL [v5 4.3.3]: packet id to message. Open addressing, at most half full.
ctypedef struct InboundQos2:
    Message* message            # NULL: nothing will be routed (refused, but a 3.x client cannot be told)
    uint16_t pid                # 0: free

ctypedef struct Inbox:
    InboundQos2* slots                 # NULL while nothing was ever held
    uint32_t mask
    uint32_t n

# The message's reference is taken over. -1: no memory. The id must not be there.
cdef int inbox_add(Inbox* b, uint16_t pid, Message* m) noexcept nogil
cdef InboundQos2* inbox_find(Inbox* b, uint16_t pid) noexcept nogil
# Takes it out; the caller has taken the message over. Ends pointers into the inbox.
cdef void inbox_remove(Inbox* b, InboundQos2* h) noexcept nogil
cdef void inbox_fini(Inbox* b) noexcept nogil           # messages must have been released
