"""Disconnect the clients of users whose rights have changed, as Mosquitto's dynamic security does: DISCONNECT 0x98 [v5 3.14.2.1],
and no will.

This module knows user names and clients, not the reason. Adopted connections of an embedding program and this broker's own
connections to other brokers belong to no user and stay. A kick is a job. It looks at all clients, KICK_LOOKS_PER_TURN in a turn,
and ends KICKS_PER_TURN of them. A client that connects while the job runs already has its new rights and stays: each client
remembers the number of kicks before it connected, modulo 2^16. Every kick raises that number for clients older than KICK_AGE_MAX,
so no old client is ever taken for a new one. At most KICKS_OPEN_MAX kicks run as jobs; a further one runs at once.
Cost: about 0.1 us for a look, 10 us for an end.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from cext.base.hash cimport hash_bytes
from cext.base.slab cimport slab_at, slab_end
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport client_doom, username_of
from cext.broker.core.client_state cimport CF_BRIDGE, CF_DOOMED, CF_TRUSTED, C_CONNECTED, Client
from cext.broker.core.job_state cimport JOB_KICK, Job
from cext.broker.core.jobs cimport job_add, job_new
from cext.broker.lifecycle.session_lifecycle cimport will_free
from cext.codec.reason cimport RC_ADMINISTRATIVE_ACTION

cdef enum:
    KICK_LOOKS_PER_TURN = 4096
    KICKS_PER_TURN = 128
    KICKS_OPEN_MAX = 64
    KICK_AGE_MAX = 0x8000        # age in kicks above which a client counts as old; far more than the open kicks

cdef inline uint32_t next_name(View names, uint32_t at, View* name) noexcept nogil:
    """Read the name at `at`. Returns the position of the next name."""
    memcpy(&name.n, names.p + at, 4)
    name.p = names.p + at + 4
    return at + 4 + name.n


cdef View* names_table(Broker* b, View names, uint32_t* mask) noexcept nogil:
    """Return a hash table of the names (open addressing, at most half full), followed by a copy of the names to which it points;
    NULL = no memory."""
    cdef uint32_t at = 0, count = 0, cap = 4, slot
    cdef View* table
    cdef View name
    while at + 4 <= names.n:
        at = next_name(names, at, &name)
        count += 1
    while cap < 2 * count + 2:
        cap *= 2
    table = <View*>calloc(1, cap * sizeof(View) + names.n)
    if table == NULL:
        return NULL
    mask[0] = cap - 1
    if names.n:
        memcpy(&table[cap], names.p, names.n)
    names.p = <const uint8_t*>&table[cap]
    at = 0
    while at + 4 <= names.n:
        at = next_name(names, at, &name)
        slot = <uint32_t>hash_bytes(&b.key, name.p, name.n) & mask[0]
        while table[slot].p != NULL:
            slot = (slot + 1) & mask[0]
        table[slot] = name
    return table


cdef bint is_named(Broker* b, const View* table, uint32_t mask, View name) noexcept nogil:
    cdef uint32_t slot = <uint32_t>hash_bytes(&b.key, name.p, name.n) & mask
    while table[slot].p != NULL:
        if table[slot].n == name.n and memcmp(table[slot].p, name.p, name.n) == 0:
            return 1
        slot = (slot + 1) & mask
    return 0


cdef int kick_users(Broker* b, View names, bint anonymous) noexcept nogil:
    cdef Job* j = job_new(b, JOB_KICK, NULL)
    if j == NULL:
        return -1
    j.kicked = names_table(b, names, &j.kicked_mask)
    if j.kicked == NULL:
        free(j)
        return -1
    b.kicks += 1
    b.kicks_open += 1
    j.kick = b.kicks
    j.options = anonymous
    if b.kicks_open > KICKS_OPEN_MAX:
        while not kick_slice(b, j):
            pass
        kick_end(b, j)
        free(j)
        return 0
    job_add(b, j)
    return 0


cdef void kick_end(Broker* b, Job* j) noexcept nogil:
    free(j.kicked)
    b.kicks_open -= 1


cdef inline bint is_older(Broker* b, const Job* j, Client* c) noexcept nogil:
    """Return whether the client was connected when the kick began."""
    cdef uint16_t age = <uint16_t>(b.kicks - c.kicks)
    if age > KICK_AGE_MAX:
        c.kicks = <uint16_t>(b.kicks - KICK_AGE_MAX)
        return 1
    return age > b.kicks - j.kick


cdef bint kick_slice(Broker* b, Job* j) noexcept nogil:
    cdef uint32_t end = slab_end(&b.clients), looked = 0, kicked = 0
    cdef Client* c
    cdef View user
    cdef bint is_target
    while j.position < end and looked < KICK_LOOKS_PER_TURN and kicked < KICKS_PER_TURN:
        c = <Client*>slab_at(&b.clients, j.position)
        j.position += 1
        looked += 1
        if c == NULL or c.state != C_CONNECTED or c.flags & (CF_TRUSTED | CF_BRIDGE | CF_DOOMED) or not is_older(b, j, c):
            continue
        user = username_of(c)
        is_target = is_named(b, j.kicked, j.kicked_mask, user) if user.p != NULL else j.options != 0
        if is_target:
            will_free(b, c.will)
            c.will = NULL
            client_doom(b, c, RC_ADMINISTRATIVE_ACTION)
            kicked += 1
    return j.position >= end
