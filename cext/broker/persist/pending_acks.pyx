"""Hold acknowledgements back: a ring per client, in the order of the acknowledged packets [v5 4.6.0-2], and the ring of the waiters that a
committed batch releases. This module knows batches by their serial. It does not know their content.

    acknowledgement -> nothing recorded, nothing waits before it: sent at once
                    -> else at the end of the ring; its client becomes a waiter for that batch
    batch committed -> its waiters -> the head of each ring, as far as it is due
    a message turns out to need no record (elided) -> the same, for its publisher

Invariant: acknowledgements leave the ring at its head only. A ring beyond PENDING_ACKS_MAX, or a store that is behind, pauses its client. A store
that accepts nothing (Durable.trouble) pauses publishers that cannot be refused.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from cext.base.slab cimport slab_at, slab_end
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport client_ack, client_doom
from cext.broker.core.client_state cimport C_CONNECTED, Client, PendingAck, PendingAcks
from cext.broker.core.durable cimport Durable, NO_PENDING, PENDING, PENDING_ACKS_MAX, Waiter, batch_changed, durable_is_stuck, durable_of
from cext.broker.core.jobs cimport fanout_of_client
from cext.broker.core.settings cimport DURABILITY_GROUP, DURABILITY_STRICT
from cext.codec.frame cimport T_PUBACK, T_PUBREC
from cext.codec.reason cimport RC_QUOTA_EXCEEDED
from cext.net.conn cimport conn_resume
from cext.net.conn_output cimport conn_flush
from cext.net.conn_state cimport CONN_CLOSED, CONN_CLOSING, CONN_HELD, CONN_PAUSED
from cext.session.message cimport Message
from cext.store.store cimport store_room

cdef enum:
    ACKS_RING_MIN = 16
    ACKS_RING_KEEP = 64               # largest empty ring that is not freed
    WAITERS_MIN = 256
    WAITS_FOR_LINKS = 0xFFFFFFFEu       # in place of a serial: other workers must acknowledge
    WAITS_FOR_JOB = 0xFFFFFFFFu


cdef inline bint is_committed(const Durable* t, uint32_t serial) noexcept nogil:
    return <int>(serial - t.committed) <= 0


cdef inline bint acks_have_room(const Durable* t) noexcept nogil:
    """Is there room for more acknowledgements? Counts batches on their way and, while the disk is full, those that cannot begin it."""
    return t == NULL or store_room(&t.store) and t.bytes <= t.store.options.waiting_max_bytes and not t.tight


cdef inline bint is_acceptance(int packet_type, uint8_t rc) noexcept nogil:
    """Does this acknowledgement accept a message? A 3.x client cannot receive a refusal, so it is paused while the store has no room."""
    return rc < 0x80 and (packet_type == T_PUBACK or packet_type == T_PUBREC)


# ---------------------------------------------------------------- waiters

cdef int waiter_add(Durable* t, uint32_t serial) noexcept nogil:
    cdef uint32_t n = t.waiters_tail - t.waiters_head
    cdef uint32_t cap = t.waiters_mask + 1 if t.waiters != NULL else 0
    cdef uint32_t more, i
    cdef Waiter* waiters
    if n == cap:
        more = cap * 2 if cap else WAITERS_MIN
        waiters = <Waiter*>calloc(more, sizeof(Waiter))
        if waiters == NULL:
            return -1
        for i in range(n):
            waiters[i] = t.waiters[(t.waiters_head + i) & t.waiters_mask]
        free(t.waiters)
        t.waiters = waiters
        t.waiters_mask = more - 1
        t.waiters_head = 0
        t.waiters_tail = n
    memset(&t.waiters[t.waiters_tail & t.waiters_mask], 0, sizeof(Waiter))
    t.waiters[t.waiters_tail & t.waiters_mask].serial = serial
    t.waiters_tail += 1
    return 0


cdef int client_waits(Broker* b, Client* c, uint32_t serial) noexcept nogil:
    cdef Durable* t = durable_of(b)
    cdef Waiter* w
    if c.pending_acks.waits == serial:
        return 0
    if waiter_add(t, serial) != 0:
        return -1
    w = &t.waiters[(t.waiters_tail - 1) & t.waiters_mask]
    w.index = c.slab.index
    w.generation = c.slab.generation
    c.pending_acks.waits = serial
    return 0


# ---------------------------------------------------------------- the ring

cdef PendingAck* pending_ack_push(Broker* b, Client* c, int packet_type, uint16_t pid, uint8_t rc) noexcept nogil:
    """Append an acknowledgement. Without memory return NULL, and end the client rather than lose an acknowledgement or send it out of order."""
    cdef Durable* t = durable_of(b)
    cdef PendingAcks* r = c.pending_acks
    cdef PendingAck* ring
    cdef PendingAck* p
    cdef uint32_t n, cap, i
    if r == NULL:
        r = c.pending_acks = <PendingAcks*>calloc(1, sizeof(PendingAcks))
        if r == NULL:
            client_doom(b, c, RC_QUOTA_EXCEEDED)
            return NULL
    n = r.tail - r.head
    if r.ring == NULL or n == r.mask + 1:
        cap = (r.mask + 1) * 2 if r.ring != NULL else ACKS_RING_MIN
        ring = <PendingAck*>calloc(cap, sizeof(PendingAck))
        if ring == NULL:
            client_doom(b, c, RC_QUOTA_EXCEEDED)
            return NULL
        for i in range(n):
            ring[(r.head + i) & (cap - 1)] = r.ring[(r.head + i) & r.mask]     # positions are known elsewhere
        free(r.ring)
        r.ring = ring
        r.mask = cap - 1
    p = &r.ring[r.tail & r.mask]
    r.tail += 1
    p.packet_type = <uint8_t>packet_type
    p.pid = pid
    p.rc = rc
    p.pending = NO_PENDING
    p.serial = t.committed if t != NULL else 0       # due as soon as it is the first
    if not r.paused and (n >= PENDING_ACKS_MAX or not acks_have_room(t) or (t != NULL and t.trouble and is_acceptance(packet_type, rc))):
        r.paused = 1
        c.jobs += 1
        c.conn.flags |= CONN_PAUSED
    return p


cdef inline bint is_empty(const Client* c) noexcept nogil:
    return c.pending_acks == NULL or c.pending_acks.head == c.pending_acks.tail


cdef void ack_now(Broker* b, Client* c, int packet_type, uint16_t pid, uint8_t rc) noexcept nogil:
    if is_empty(c):
        client_ack(b, c, packet_type, pid, rc)
    else:
        pending_ack_push(b, c, packet_type, pid, rc)


cdef void pending_ack_for(Broker* b, Client* c, int packet_type, uint16_t pid, uint8_t rc, uint32_t serial, uint32_t pending) noexcept nogil:
    cdef PendingAck* p = pending_ack_push(b, c, packet_type, pid, rc)
    if p == NULL:
        return
    p.serial = serial
    p.pending = pending
    if client_waits(b, c, serial) != 0:
        client_doom(b, c, RC_QUOTA_EXCEEDED)


cdef void ack_when_committed(Broker* b, Client* c,          # parameters: an acknowledgement (three), what was recorded for it (three)
                             int packet_type, uint16_t pid, uint8_t rc, uint64_t changes, const Message* m, uint8_t durability) noexcept nogil:
    cdef Durable* t = durable_of(b)
    cdef uint32_t pending = NO_PENDING
    cdef PendingAck* p
    if t == NULL and is_empty(c):        # without a further call: most messages of a broker without a store take this way
        client_ack(b, c, packet_type, pid, rc)
        return
    if t == NULL:
        ack_now(b, c, packet_type, pid, rc)      # behind those that wait for other workers
        return
    if t.lacks > changes:
        client_doom(b, c, RC_QUOTA_EXCEEDED)         # not recorded: the client gets no acknowledgement and publishes again
        return
    if (durability or t.level) >= DURABILITY_GROUP and fanout_of_client(b, c, m) != NULL:
        p = pending_ack_push(b, c, packet_type, pid, rc)         # it finds the receivers in slices
        if p != NULL:
            p.serial = WAITS_FOR_JOB
            c.pending_acks.blocked = c.pending_acks.tail
            c.pending_acks.strict = durability == DURABILITY_STRICT
        return
    if t.changes == changes or (durability or t.level) < DURABILITY_GROUP:
        ack_now(b, c, packet_type, pid, rc)
        return
    if durability == DURABILITY_STRICT:
        t.strict = 1
    # one new pending message and nothing else: if its record becomes unnecessary, there is nothing to wait for
    if m != NULL and m.lsn & PENDING and (t.changes >> 32) - (changes >> 32) == 1:
        pending = <uint32_t>(m.lsn & 0xFFFFFFFFu)
        t.pendings[pending].owner_index = c.slab.index
        t.pendings[pending].owner_generation = c.slab.generation
    pending_ack_for(b, c, packet_type, pid, rc, t.serial, pending)


cdef void ack_after_all(Broker* b, Client* c, int packet_type, uint16_t pid) noexcept nogil:
    cdef Durable* t = durable_of(b)
    cdef uint32_t serial
    if t != NULL and t.level >= DURABILITY_GROUP:
        serial = t.serial if t.dirty else t.serial - 1
        if not is_committed(t, serial):
            pending_ack_for(b, c, packet_type, pid, 0, serial, NO_PENDING)
            return
    ack_now(b, c, packet_type, pid, 0)


cdef void hold_output(Broker* b, Client* c, uint64_t changes, bint soft) noexcept nogil:
    cdef Durable* t = durable_of(b)
    cdef uint32_t serial
    if t == NULL or t.level < DURABILITY_GROUP or t.changes == changes or (soft and durable_is_stuck(b)):
        return
    serial = t.serial if t.dirty else t.serial - 1       # other workers may have answered later than the disk: no batch would follow
    if is_committed(t, serial):
        return
    if c.pending_acks == NULL:
        c.pending_acks = <PendingAcks*>calloc(1, sizeof(PendingAcks))
    if c.pending_acks == NULL or client_waits(b, c, serial) != 0:
        client_doom(b, c, RC_QUOTA_EXCEEDED)
        return
    c.pending_acks.soft = soft and (not c.conn.flags & CONN_HELD or c.pending_acks.soft)
    c.pending_acks.held = serial
    c.conn.flags |= CONN_HELD


cdef void pending_acks_job_done(Broker* b, Client* c) noexcept nogil:
    cdef Durable* t = durable_of(b)
    cdef PendingAcks* r = c.pending_acks
    cdef PendingAck* p
    if r == NULL or r.blocked == 0 or t == NULL:
        return
    p = &r.ring[(r.blocked - 1) & r.mask]
    r.blocked = 0
    if r.strict:
        batch_changed(t, 0)      # a batch that is synced also syncs those before it
        t.strict = 1
    p.serial = t.serial if t.dirty else t.serial - 1
    if is_committed(t, p.serial):
        pending_acks_release(b, c)
    elif client_waits(b, c, p.serial) != 0:
        client_doom(b, c, RC_QUOTA_EXCEEDED)


cdef inline bint ack_is_due(const Durable* t, const PendingAck* p) noexcept nogil:
    if p.serial >= WAITS_FOR_LINKS:
        return 0
    if t == NULL or is_committed(t, p.serial):
        return 1
    return p.pending != NO_PENDING and p.serial == t.serial and t.pendings[p.pending].live == 0


cdef bint pending_ack_linked(Broker* b, Client* c, int packet_type, uint16_t pid, uint8_t rc, uint32_t* position) noexcept nogil:
    cdef PendingAck* p = pending_ack_push(b, c, packet_type, pid, rc)
    if p == NULL:
        return 0
    p.serial = WAITS_FOR_LINKS
    position[0] = c.pending_acks.tail - 1
    return 1


cdef void pending_ack_due(Broker* b, Client* c, uint32_t position) noexcept nogil:
    cdef PendingAcks* r = c.pending_acks
    if r == NULL or r.ring == NULL or <int>(position - r.head) < 0 or <int>(position - r.tail) >= 0:
        return
    r.ring[position & r.mask].serial = durable_of(b).committed if b.durable != NULL else 0
    pending_acks_release(b, c)


cdef void pending_acks_release(Broker* b, Client* c) noexcept nogil:
    cdef Durable* t = durable_of(b)
    cdef PendingAcks* r = c.pending_acks
    cdef PendingAck* p
    if r == NULL or c.conn.flags & CONN_CLOSED:
        return
    if t != NULL and c.conn.flags & CONN_HELD and (is_committed(t, r.held) or (r.soft and durable_is_stuck(b))):
        c.conn.flags &= ~<uint32_t>CONN_HELD
        conn_flush(&b.reactor, &c.conn)
    if c.state != C_CONNECTED or c.conn.flags & CONN_CLOSING:
        return
    while r.head != r.tail:
        p = &r.ring[r.head & r.mask]
        if not ack_is_due(t, p):
            break
        r.head += 1
        client_ack(b, c, p.packet_type, p.pid, p.rc)
    if r.paused and r.tail - r.head <= PENDING_ACKS_MAX // 2 and acks_have_room(t) and (t == NULL or not t.trouble):
        r.paused = 0
        c.jobs -= 1
        if c.jobs == 0 and c.conn.flags & CONN_PAUSED:
            conn_resume(&b.reactor, &c.conn)
    if r.head == r.tail and r.mask >= ACKS_RING_KEEP:
        free(r.ring)
        r.ring = NULL
        r.mask = r.head = r.tail = 0


cdef void pending_acks_resume(Broker* b) noexcept nogil:
    cdef uint32_t i
    cdef Client* c
    for i in range(slab_end(&b.clients)):
        c = <Client*>slab_at(&b.clients, i)
        if c != NULL:
            pending_acks_release(b, c)


cdef void pending_acks_free(Client* c) noexcept nogil:
    if c.pending_acks != NULL:
        free(c.pending_acks.ring)
        free(c.pending_acks)
        c.pending_acks = NULL
