"""Implement a session's queue of deliveries and its inbox. This module knows deliveries and packet ids, but
not packets, sockets or limits.

        floor            next               tail
          |  sent, not all |  waiting to be   |
          |  acknowledged  |  sent            |
    ------+----------------+------------------+----> position (32 bits, wraps)

    A push appends at tail. The pump sends at next. An acknowledgement makes a hole, and the floor moves over holes only. A lost
    connection moves next back to the floor: deliveries that are not done are sent again, in order, with the same packet ids. A
    session being "online" only means that its pump runs, so there is no second place where a message could be lost or duplicated
    at a reconnect.

    D_WAITING --PUBLISH--> D_SENT --PUBACK--> D_DONE                 (QoS 1)
    D_WAITING --PUBLISH--> D_SENT --PUBREC--> D_RELEASED --PUBCOMP--> D_DONE     (QoS 2)
    D_WAITING --PUBLISH--> D_DONE                                    (QoS 0)

    The message of a delivery far from its turn may be paged: the delivery then has the position of the message's record in the
    store, and takes only its 16 bytes.

Invariant: packet ids rise (cyclically, 1..65535) along the ring, so an acknowledgement finds its delivery by arithmetic; QoS
0 deliveries repeat the id before them and are never looked up. Gaps are possible: a bridge takes ids for SUBSCRIBE and
UNSUBSCRIBE, and after a restart the ids of finished deliveries are missing. Cost: O(1); with QoS 0 deliveries or gaps in between O(log n).
Memory: 16 bytes per delivery.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from cext.base.buffer cimport Buffers
from cext.session.message cimport Message, Messages, RECORD_ROOM, message_bytes, message_unref

cdef enum:
    QUEUE_RING_MIN = 4
    QUEUE_RING_KEEP = 64        # capacity above which an empty ring or inbox is freed
    INBOX_MIN = 8
    QUEUE_PLACES_MAX = 1 << 26  # limit of the distance between the first and the last restored delivery
    PIDS_AHEAD = 32767          # deliveries behind the floor whose packet ids no other packet gets
    PAGED = 1                   # flag in Delivery.message, which then holds: lsn / 4 (52 bits), size (10 bits), PAGED_ONLY, PAGED
    PAGED_ONLY = 2              # flag in Delivery.message: this delivery counts the whole record in recorded_bytes


cdef int queue_grow(Queue* q) noexcept nogil:
    cdef uint32_t capacity = (q.mask + 1) * 2 if q.ring != NULL else QUEUE_RING_MIN
    cdef uint32_t i
    if capacity > <uint32_t>1 << 30:
        return -1
    cdef Delivery* ring = <Delivery*>malloc(<size_t>capacity * sizeof(Delivery))
    if ring == NULL:
        return -1
    i = q.floor
    while i != q.tail:
        ring[i & (capacity - 1)] = q.ring[i & q.mask]
        i += 1
    free(q.ring)
    q.ring = ring
    q.mask = capacity - 1
    return 0


cdef inline uint16_t pid_after(uint16_t pid) noexcept nogil:
    return pid + 1 if pid != 65535 else 1


cdef Delivery* queue_push(Queue* q, Message* m, uint8_t qos, uint8_t retain, uint32_t sub_id) noexcept nogil:
    if q.ring == NULL or q.tail - q.floor > q.mask:
        if queue_grow(q) != 0:
            return NULL
    if qos:
        q.last_pid = pid_after(q.last_pid)
    cdef Delivery* d = queue_at(q, q.tail)
    d.message = m
    d.sub_id = sub_id
    d.pid = q.last_pid
    d.qos = qos | (DELIVERY_RETAIN if retain else 0)
    d.state = D_WAITING
    q.tail += 1
    q.pending += 1
    q.waiting_bytes += m.payload.n
    room_take(q, m)
    return d


cdef void queue_pop(Queue* q) noexcept nogil:
    cdef Delivery* d
    q.tail -= 1
    d = queue_at(q, q.tail)
    q.pending -= 1
    q.waiting_bytes -= delivery_bytes(d)
    room_leave(q, d)
    if d.qos & 3:
        q.last_pid = q.last_pid - 1 if q.last_pid > 1 else 65535


cdef inline uint32_t pid_distance(uint16_t start, uint16_t pid) noexcept nogil:
    return <uint32_t>(pid - start) if pid >= start else <uint32_t>(pid + 65535 - start)


cdef Delivery* queue_find(Queue* q, uint16_t pid) noexcept nogil:
    cdef uint32_t n = q.next - q.floor
    cdef uint32_t low, high, middle, distance
    cdef Delivery* d
    if n == 0 or pid == 0:
        return NULL
    cdef uint16_t start = queue_at(q, q.floor).pid
    distance = pid_distance(start, pid)
    low = distance              # the result if no QoS 0 delivery and no gap is in between
    d = queue_at(q, q.floor + low) if low < n else NULL
    if d == NULL or d.pid != pid or not d.qos & 3:
        low = 0                 # search the first position in [0, n) whose id is not before pid
        high = n
        while low < high:
            middle = (low + high) // 2
            if pid_distance(start, queue_at(q, q.floor + middle).pid) < distance:
                low = middle + 1
            else:
                high = middle
        if low == n:
            return NULL
        d = queue_at(q, q.floor + low)
        if d.pid != pid:
            return NULL
        if not d.qos & 3:
            return NULL         # a QoS 0 delivery repeats an id that is done, or that another packet took
    return d if d.state == D_SENT or d.state == D_RELEASED else NULL


cdef uint16_t queue_take_pid(Queue* q) noexcept nogil:
    cdef uint32_t n = q.tail - q.floor
    cdef uint16_t start, last
    q.last_pid = pid_after(q.last_pid)
    if n:
        start = queue_at(q, q.floor).pid
        last = queue_at(q, q.floor + (n if n < PIDS_AHEAD else PIDS_AHEAD) - 1).pid
        if pid_distance(start, q.last_pid) <= pid_distance(start, last):
            q.last_pid = pid_after(last)
    return q.last_pid


cdef bint queue_pid_rises(Queue* q) noexcept nogil:
    cdef uint16_t start
    if q.next == q.floor:
        return 1
    start = queue_at(q, q.floor).pid
    return pid_distance(start, queue_at(q, q.next).pid) > pid_distance(start, queue_at(q, q.next - 1).pid)


cdef void queue_done(Queue* q, Delivery* d) noexcept nogil:
    d.state = D_DONE
    d.message = NULL
    q.pending -= 1
    while q.floor != q.next and queue_at(q, q.floor).state == D_DONE:
        q.floor += 1
    if q.floor == q.tail and q.mask >= QUEUE_RING_KEEP:
        free(q.ring)
        q.ring = NULL
        q.mask = 0


cdef void queue_rewind(Queue* q) noexcept nogil:
    q.next = q.floor
    q.inflight = 0
    q.waiting_bytes += q.inflight_bytes
    q.inflight_bytes = 0


# ---------------------------------------------------------------- paged messages

cdef inline uint32_t size_code(uint32_t n_bytes) noexcept nogil:
    """Return six leading bits and the number of bits that follow, 10 bits in all. Decoded, it is at most n_bytes."""
    cdef uint32_t shift = 0
    while n_bytes >> shift >= 64:
        shift += 1
    return n_bytes if n_bytes < 32 else (shift + 1) << 5 | (n_bytes >> shift & 31)


cdef inline void recorded_add(Messages* store, const Delivery* d, int64_t room) noexcept nogil:
    """Count the record of a paged message. A delivery has no place for the size of its topic and properties, so they leave the sum
    with their mean: the sum is right when the last one leaves."""
    store.paged += 1
    store.paged_rooms += RECORD_ROOM + room
    store.recorded_bytes += paged_bytes(d) + RECORD_ROOM + room


cdef inline void recorded_leave(Messages* store, const Delivery* d) noexcept nogil:
    cdef uint64_t mean
    if not <uintptr_t>d.message & PAGED_ONLY:
        return
    mean = store.paged_rooms // store.paged
    store.paged -= 1
    store.paged_rooms -= mean
    store.recorded_bytes -= paged_bytes(d) + mean


cdef bint delivery_page(Messages* store, Buffers* buffers, Queue* q, Delivery* d, uint64_t lsn, uint32_t n_bytes, int64_t room) noexcept nogil:
    cdef uintptr_t word = lsn >> 2 << 12 | <uintptr_t>size_code(n_bytes) << 2 | (PAGED_ONLY if room >= 0 else 0) | PAGED
    if lsn >> 54 or lsn & 3:
        return 0
    q.waiting_bytes -= delivery_bytes(d)
    room_leave(q, d)
    delivery_release(store, buffers, d)
    d.message = <Message*>word
    q.waiting_bytes += paged_bytes(d)
    if room >= 0:
        recorded_add(store, d, room)
    return 1


cdef void delivery_moved(Delivery* d, uint64_t lsn) noexcept nogil:
    d.message = <Message*>(lsn >> 2 << 12 | (<uintptr_t>d.message & 0xFFF))


cdef void delivery_unpage(Messages* store, Queue* q, Delivery* d, Message* m) noexcept nogil:
    q.waiting_bytes -= paged_bytes(d)
    recorded_leave(store, d)
    d.message = m
    q.waiting_bytes += m.payload.n
    room_take(q, m)


cdef void delivery_release(Messages* store, Buffers* buffers, Delivery* d) noexcept nogil:
    cdef uintptr_t word = <uintptr_t>d.message
    if word & PAGED:
        recorded_leave(store, d)
    elif word:
        message_unref(store, buffers, d.message)
    d.message = NULL


# ---------------------------------------------------------------- recovery

cdef inline void hole(Queue* q, uint32_t position) noexcept nogil:
    cdef Delivery* d = queue_at(q, position)
    memset(d, 0, sizeof(Delivery))
    d.state = D_DONE


cdef Delivery* queue_place(Queue* q, uint32_t position) noexcept nogil:
    cdef uint32_t first = q.floor, end = q.tail
    cdef uint32_t i
    if q.floor == q.tail:
        q.floor = q.next = q.tail = first = end = position
    if <int>(position - first) < 0:
        first = position
    if <int>(position - end) >= 0:
        end = position + 1
    if end - first > QUEUE_PLACES_MAX:
        return NULL
    while q.ring == NULL or end - first > q.mask + 1:
        if queue_grow(q) != 0:
            return NULL
    i = first
    while i != q.floor:
        hole(q, i)
        i += 1
    while q.tail != end:
        hole(q, q.tail)
        q.tail += 1
    q.floor = first
    return queue_at(q, position)


cdef void queue_pid_used(Queue* q, uint16_t pid, bint last) noexcept nogil:
    if last or q.last_pid == 0 or (pid != 0 and 0 < pid_distance(q.last_pid, pid) < 32768):
        q.last_pid = pid


cdef void queue_restored(Queue* q) noexcept nogil:
    """Count the restored deliveries. A hole repeats the packet id before it, as a QoS 0 delivery does. The ids continue behind the last one that
    was used."""
    cdef uint32_t i
    cdef Delivery* d
    cdef uint16_t used = q.last_pid
    while q.floor != q.tail and queue_at(q, q.floor).state == D_DONE:
        q.floor += 1
    q.next = q.floor
    q.inflight = q.pending = 0
    q.waiting_bytes = q.inflight_bytes = q.room_bytes = 0
    i = q.floor
    while i != q.tail:
        d = queue_at(q, i)
        i += 1
        if d.state != D_DONE and d.qos & 3:
            q.last_pid = d.pid - 1 if d.pid > 1 else 65535       # of QoS 0 deliveries before it
            break
    i = q.floor
    while i != q.tail:
        d = queue_at(q, i)
        if d.state == D_DONE or not d.qos & 3:
            d.pid = q.last_pid
        q.last_pid = d.pid
        if d.state != D_DONE:
            q.pending += 1
        q.waiting_bytes += delivery_bytes(d)
        if delivery_message(d) != NULL:
            room_take(q, d.message)
        i += 1
    queue_pid_used(q, used, 0)


cdef void queue_fini(Queue* q) noexcept nogil:
    free(q.ring)
    memset(q, 0, sizeof(Queue))


# ---------------------------------------------------------------- inbound QoS 2

cdef int inbox_grow(Inbox* b) noexcept nogil:
    cdef uint32_t capacity = (b.mask + 1) * 2 if b.slots != NULL else INBOX_MIN
    cdef InboundQos2* old = b.slots
    cdef InboundQos2* slots = <InboundQos2*>calloc(capacity, sizeof(InboundQos2))
    cdef uint32_t i, at
    cdef uint32_t old_capacity = b.mask + 1 if old != NULL else 0
    if slots == NULL:
        return -1
    for i in range(old_capacity):
        if old[i].pid:
            at = old[i].pid & (capacity - 1)
            while slots[at].pid:
                at = (at + 1) & (capacity - 1)
            slots[at] = old[i]
    free(old)
    b.slots = slots
    b.mask = capacity - 1
    return 0


cdef InboundQos2* inbox_find(Inbox* b, uint16_t pid) noexcept nogil:
    cdef uint32_t at
    if b.n == 0:
        return NULL
    at = pid & b.mask
    while b.slots[at].pid:
        if b.slots[at].pid == pid:
            return &b.slots[at]
        at = (at + 1) & b.mask
    return NULL


cdef int inbox_add(Inbox* b, uint16_t pid, Message* m) noexcept nogil:
    cdef uint32_t at
    if b.slots == NULL or b.n * 2 > b.mask:
        if inbox_grow(b) != 0:
            return -1
    at = pid & b.mask
    while b.slots[at].pid:
        at = (at + 1) & b.mask
    b.slots[at].pid = pid
    b.slots[at].message = m
    b.slots[at].turn = b.turn
    b.slots[at].copies_turn = b.turn
    b.slots[at].copies = 1
    b.slots[at].identity = 0
    b.n += 1
    if m != NULL:
        b.bytes += message_bytes(m)
    return 0


cdef int inbox_count_copy(Inbox* b, InboundQos2* h) noexcept nogil:
    if h.copies_turn != b.turn:
        h.copies_turn = b.turn
        h.copies = 0
    if h.copies < 255:
        h.copies += 1
    return h.copies


cdef void inbox_remove(Inbox* b, InboundQos2* h) noexcept nogil:
    """Remove an entry and close the gap, so that no marks of removed entries are needed."""
    cdef uint32_t gap = <uint32_t>(h - b.slots)
    cdef uint32_t at = gap
    cdef uint32_t home
    b.inherited -= h.turn != b.turn
    if h.message != NULL:
        b.bytes -= message_bytes(h.message)
    while True:
        at = (at + 1) & b.mask
        if b.slots[at].pid == 0:
            break
        home = b.slots[at].pid & b.mask
        if ((at - home) & b.mask) >= ((at - gap) & b.mask):
            b.slots[gap] = b.slots[at]
            gap = at
    b.slots[gap].pid = 0
    b.slots[gap].message = NULL
    b.n -= 1
    if b.n == 0 and b.mask >= QUEUE_RING_KEEP:
        inbox_fini(b)


cdef void inbox_inherit(Inbox* b) noexcept nogil:
    b.turn += 1
    b.inherited = b.n


cdef InboundQos2* inbox_forgotten(Inbox* b, uint32_t* at) noexcept nogil:
    while b.slots != NULL and at[0] <= b.mask:
        if b.slots[at[0]].pid and <uint16_t>(b.turn - b.slots[at[0]].turn) > 1:
            return &b.slots[at[0]]
        at[0] += 1
    return NULL


cdef void inbox_fini(Inbox* b) noexcept nogil:
    cdef uint16_t turn = b.turn
    free(b.slots)
    memset(b, 0, sizeof(Inbox))
    b.turn = turn                # while the session goes on
