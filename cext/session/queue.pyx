"""One queue and one progress per session. Knows deliveries and packet ids; not packets, sockets or limits.

        floor            next               tail
          |  sent, not all |  waiting to be   |
          |  acknowledged  |  sent            |
    ------+----------------+------------------+----> position (32 bits, wraps)

    push appends at tail; the pump sends at next; an acknowledgement makes a hole, and the floor moves over holes only. A lost
    connection moves next back to the floor: what is not done is sent again, in order, with the same packet id. Being "online" only
    means that the pump runs, so there is no second place where a message could be lost or doubled at reconnect.

    D_WAITING --PUBLISH--> D_SENT --PUBACK--> D_DONE                 (QoS 1)
    D_WAITING --PUBLISH--> D_SENT --PUBREC--> D_RELEASED --PUBCOMP--> D_DONE     (QoS 2)
    D_WAITING --PUBLISH--> D_DONE                                    (QoS 0)

Invariant: packet ids rise (cyclically, 1..65535) along the ring, so an acknowledgement finds its delivery by arithmetic; QoS 0 deliveries repeat
the id before them and are never looked up. Cost: O(1); with QoS 0 in between O(log n). Memory: 16 bytes per delivery.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from cext.session.message cimport Message

cdef enum:
    RING_MIN = 4
    RING_KEEP = 64               # an empty ring larger than this is given back


cdef int grow(Queue* q) noexcept nogil:
    cdef uint32_t capacity = (q.mask + 1) * 2 if q.ring != NULL else RING_MIN
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


cdef Delivery* queue_push(Queue* q, Message* m, uint8_t qos, uint8_t retain, uint32_t sub_id) noexcept nogil:
    if q.ring == NULL or q.tail - q.floor > q.mask:
        if grow(q) != 0:
            return NULL
    if qos:
        q.last_pid = q.last_pid + 1 if q.last_pid != 65535 else 1
    cdef Delivery* d = queue_at(q, q.tail)
    d.message = m
    d.sub_id = sub_id
    d.pid = q.last_pid
    d.qos = qos | (DELIVERY_RETAIN if retain else 0)
    d.state = D_WAITING
    q.tail += 1
    q.pending += 1
    q.waiting_bytes += m.bytes
    return d


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
    low = distance               # without QoS 0 in between, this is it
    if low >= n:
        return NULL
    d = queue_at(q, q.floor + low)
    if d.pid != pid or not d.qos & 3:
        high = n                 # the first position in [low, n) whose id is at or after pid
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
            return NULL          # a QoS 0 delivery at the floor repeats an id that is done
    return d if d.state == D_SENT or d.state == D_RELEASED else NULL


cdef void queue_done(Queue* q, Delivery* d) noexcept nogil:
    d.state = D_DONE
    d.message = NULL
    q.pending -= 1
    while q.floor != q.next and queue_at(q, q.floor).state == D_DONE:
        q.floor += 1
    if q.floor == q.tail and q.mask >= RING_KEEP:
        free(q.ring)
        q.ring = NULL
        q.mask = 0


cdef void queue_rewind(Queue* q) noexcept nogil:
    q.next = q.floor
    q.inflight = 0
    q.waiting_bytes += q.inflight_bytes
    q.inflight_bytes = 0


cdef void queue_fini(Queue* q) noexcept nogil:
    free(q.ring)
    memset(q, 0, sizeof(Queue))


# ---------------------------------------------------------------- inbound QoS 2

cdef inline int few_at(PidSet* s, uint16_t pid) noexcept nogil:
    cdef int i
    for i in range(<int>s.n):
        if s.few[i] == pid:
            return i
    return -1


cdef bint pids_has(PidSet* s, uint16_t pid) noexcept nogil:
    if s.many != NULL:
        return (s.many[pid >> 3] >> (pid & 7)) & 1
    return few_at(s, pid) >= 0


cdef int pids_add(PidSet* s, uint16_t pid) noexcept nogil:
    cdef uint32_t i
    if pids_has(s, pid):
        return 0
    if s.many == NULL and s.few == NULL:
        s.few = <uint16_t*>malloc(PIDS_FEW * sizeof(uint16_t))
        if s.few == NULL:
            return -1
    if s.many == NULL and s.n == PIDS_FEW:
        s.many = <uint8_t*>calloc(8192, 1)
        if s.many == NULL:
            return -1
        for i in range(s.n):
            s.many[s.few[i] >> 3] |= <uint8_t>(1 << (s.few[i] & 7))
        free(s.few)
        s.few = NULL
    if s.many != NULL:
        s.many[pid >> 3] |= <uint8_t>(1 << (pid & 7))
    else:
        s.few[s.n] = pid
    s.n += 1
    return 1


cdef bint pids_remove(PidSet* s, uint16_t pid) noexcept nogil:
    cdef int i
    if s.many != NULL:
        if not (s.many[pid >> 3] >> (pid & 7)) & 1:
            return 0
        s.many[pid >> 3] &= <uint8_t>~(1 << (pid & 7))
        s.n -= 1
        if s.n == 0:
            free(s.many)
            s.many = NULL
        return 1
    i = few_at(s, pid)
    if i < 0:
        return 0
    s.n -= 1
    s.few[i] = s.few[s.n]
    return 1


cdef void pids_fini(PidSet* s) noexcept nogil:
    free(s.few)
    free(s.many)
    memset(s, 0, sizeof(PidSet))
