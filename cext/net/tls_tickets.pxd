# The keys that seal session tickets. See tls_tickets.pyx.
from libc.stdint cimport int64_t, uint8_t

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    int pthread_mutex_lock(pthread_mutex_t* m)
    int pthread_mutex_unlock(pthread_mutex_t* m)

cdef enum:
    SESSION_LIFE_S = 7200       # longest lifetime of a ticket; also the age at which a new key seals new tickets
    TICKET_NAME_BYTES = 16

cdef enum:
    # results of ticket_key_for_opening
    TICKET_KEY_UNKNOWN = 0
    TICKET_KEY_CURRENT = 1
    TICKET_KEY_OLD = 2          # the client should get a new ticket

ctypedef struct TicketKey:
    uint8_t name[16]            # size is TICKET_NAME_BYTES
    uint8_t cipher[32]
    uint8_t mac[32]
    int64_t born_s              # 0 = no key

ctypedef struct TicketKeys:     # shared by the contexts of one listener before and after reloads
    pthread_mutex_t lock        # handshakes run in several threads
    long refs
    TicketKey current
    TicketKey old               # opens tickets, but seals none

cdef TicketKeys* ticket_keys_new() noexcept nogil                # NULL = no memory
cdef TicketKeys* ticket_keys_ref(TicketKeys* k) noexcept nogil
cdef void ticket_keys_unref(TicketKeys* k) noexcept nogil
# Copy the key that seals tickets now; make a new key first if that one is too old. Return -1 without random numbers.
cdef int ticket_key_for_sealing(TicketKeys* k, int64_t now_s, TicketKey* out) noexcept nogil
# Copy the key of this name, if it may still open tickets.
cdef int ticket_key_for_opening(TicketKeys* k, int64_t now_s, const uint8_t* name, TicketKey* out) noexcept nogil
