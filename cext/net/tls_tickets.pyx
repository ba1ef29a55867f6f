# distutils: libraries = ssl crypto
"""Hold the keys that seal session tickets, and change them. This module knows time and random numbers, but no tickets.

Invariant: a key seals tickets for SESSION_LIFE_S, opens them for another SESSION_LIFE_S, and is then erased. So a recorded TLS 1.2
session is safe from a later theft of keys, because its key is gone by then. TLS 1.3 resumes only with a new key exchange.
Cost: a lock and a copy of 90 bytes for each ticket.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memset

from cext.net.openssl cimport OPENSSL_cleanse, RAND_bytes

cdef extern from "<pthread.h>" nogil:
    int pthread_mutex_init(pthread_mutex_t* m, void* attributes)
    int pthread_mutex_destroy(pthread_mutex_t* m)

cdef extern from * nogil:
    long atomic_add "__sync_add_and_fetch"(long* p, long n)


# ---------------------------------------------------------------- keys

cdef TicketKeys* ticket_keys_new() noexcept nogil:
    cdef TicketKeys* k = <TicketKeys*>calloc(1, sizeof(TicketKeys))
    if k != NULL:
        pthread_mutex_init(&k.lock, NULL)
        k.refs = 1
    return k


cdef TicketKeys* ticket_keys_ref(TicketKeys* k) noexcept nogil:
    atomic_add(&k.refs, 1)
    return k


cdef void ticket_keys_unref(TicketKeys* k) noexcept nogil:
    if k == NULL or atomic_add(&k.refs, -1) != 0:
        return
    pthread_mutex_destroy(&k.lock)
    OPENSSL_cleanse(k, sizeof(TicketKeys))
    free(k)


cdef int ticket_key_make(TicketKey* key, int64_t now_s) noexcept nogil:
    if (RAND_bytes(key.name, sizeof(key.name)) != 1 or RAND_bytes(key.cipher, sizeof(key.cipher)) != 1
            or RAND_bytes(key.mac, sizeof(key.mac)) != 1):
        memset(key, 0, sizeof(TicketKey))
        return -1
    key.born_s = now_s
    return 0


cdef bint key_seals(const TicketKey* key, int64_t now_s) noexcept nogil:
    """Return whether the key is young enough for new tickets. A key from the future is not: the clock went back."""
    return key.born_s != 0 and 0 <= now_s - key.born_s < SESSION_LIFE_S


cdef void keys_age(TicketKeys* k, int64_t now_s) noexcept nogil:
    """Erase keys that are too old to open a ticket."""
    if k.current.born_s and not key_seals(&k.current, now_s):
        k.old = k.current
        OPENSSL_cleanse(&k.current, sizeof(TicketKey))
    if k.old.born_s and not 0 <= now_s - k.old.born_s < 2 * SESSION_LIFE_S:
        OPENSSL_cleanse(&k.old, sizeof(TicketKey))


cdef int ticket_key_for_sealing(TicketKeys* k, int64_t now_s, TicketKey* out) noexcept nogil:
    cdef int err = 0
    pthread_mutex_lock(&k.lock)
    keys_age(k, now_s)
    if not k.current.born_s:
        err = ticket_key_make(&k.current, now_s)
    out[0] = k.current
    pthread_mutex_unlock(&k.lock)
    return err


cdef int ticket_key_for_opening(TicketKeys* k, int64_t now_s, const uint8_t* name, TicketKey* out) noexcept nogil:
    cdef int found = TICKET_KEY_UNKNOWN
    pthread_mutex_lock(&k.lock)
    keys_age(k, now_s)
    if k.current.born_s and memcmp(name, k.current.name, TICKET_NAME_BYTES) == 0:
        out[0] = k.current
        found = TICKET_KEY_CURRENT
    elif k.old.born_s and memcmp(name, k.old.name, TICKET_NAME_BYTES) == 0:
        out[0] = k.old
        found = TICKET_KEY_OLD
    pthread_mutex_unlock(&k.lock)
    return found
