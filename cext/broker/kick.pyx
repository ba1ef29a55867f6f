"""Ends the connections of users whose rights have changed, as Mosquitto's dynamic security does: DISCONNECT 0x98 [v5 3.14.2.1], and no will.

Knows user names and clients; not why. Adopted connections of an embedding program and bridges are nobody's user and stay.
Cost: one look at each client, whatever the number of names; a keyed hash for those that have one. It is the operator's act, and rare.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from cext.base.hash cimport hash_bytes
from cext.base.slab cimport slab_at, slab_end
from cext.base.view cimport View
from cext.broker.broker cimport Broker, C_CONNECTED, CF_DOOMED, CF_LINK, CF_TRUSTED, Client
from cext.broker.client cimport client_doom, username_of
from cext.broker.life cimport will_free
from cext.codec.reason cimport RC_ADMINISTRATIVE_ACTION


cdef View* names_table(Broker* b, View names, uint32_t* mask) noexcept nogil:
    """Open addressing, at most half full. NULL: no memory."""
    cdef uint32_t at = 0, n, count = 0, cap = 4, slot
    cdef View* table
    cdef View name
    while at + 4 <= names.n:
        memcpy(&n, names.p + at, 4)
        at += 4 + n
        count += 1
    while cap < 2 * count + 2:
        cap *= 2
    table = <View*>calloc(cap, sizeof(View))
    if table == NULL:
        return NULL
    mask[0] = cap - 1
    at = 0
    while at + 4 <= names.n:
        memcpy(&n, names.p + at, 4)
        name.p = names.p + at + 4
        name.n = n
        at += 4 + n
        slot = <uint32_t>hash_bytes(&b.key, name.p, name.n) & mask[0]
        while table[slot].p != NULL:
            slot = (slot + 1) & mask[0]
        table[slot] = name
    return table


cdef bint is_there(Broker* b, const View* table, uint32_t mask, View name) noexcept nogil:
    cdef uint32_t slot = <uint32_t>hash_bytes(&b.key, name.p, name.n) & mask
    while table[slot].p != NULL:
        if table[slot].n == name.n and memcmp(table[slot].p, name.p, name.n) == 0:
            return 1
        slot = (slot + 1) & mask
    return 0


cdef int kick_users(Broker* b, View names, bint anonymous) noexcept nogil:
    cdef uint32_t i, mask = 0
    cdef Client* c
    cdef View user
    cdef View* table = names_table(b, names, &mask)
    if table == NULL:
        return -1
    for i in range(slab_end(&b.clients)):
        c = <Client*>slab_at(&b.clients, i)
        if c == NULL or c.state != C_CONNECTED or c.flags & (CF_TRUSTED | CF_LINK | CF_DOOMED):
            continue
        user = username_of(c)
        if is_there(b, table, mask, user) if user.p != NULL else anonymous:
            will_free(b, c.will)
            c.will = NULL
            client_doom(b, c, RC_ADMINISTRATIVE_ACTION)
    free(table)
    return 0
