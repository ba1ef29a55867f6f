"""Count log lines by kind and source network, so that a flood of connections does not fill the disk and hide other lines. This module knows
counters. It logs nothing.

A network is an IPv4 /24 or an IPv6 /56, the least that a host can usually vary. The table has a fixed size and a keyed hash. A network that
finds no place shares one counter per kind with others like it, and all networks together have a limit per kind. All counters end with the
window.

The first line of each address (IPv4, or IPv6 /64) and kind is logged beyond these limits, so that a flood does not hide its neighbours. The
table of addresses has a fixed size: an address that finds no place has no such right.

Cost: two hashes per line.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from cext.base.hash cimport hash_bytes, hash_key_init
from cext.net.address cimport address_ipv4
from cext.net.conn_state cimport Address
from cext.net.system cimport AF_INET, AF_INET6


cdef LogRates* log_rates_new() noexcept nogil:
    cdef LogRates* t = <LogRates*>calloc(1, sizeof(LogRates))
    if t != NULL and hash_key_init(&t.key) != 0:
        free(t)
        return NULL
    return t


cdef void log_rates_clear(LogRates* t) noexcept nogil:
    memset(t.slots, 0, sizeof(t.slots))
    memset(t.logged, 0, sizeof(t.logged))
    memset(t.others, 0, sizeof(t.others))
    memset(t.left_out, 0, sizeof(t.left_out))
    memset(t.met, 0, sizeof(t.met))


cdef inline void address_begin(const Address* a, int bytes_4, int bytes_6, Address* out) noexcept nogil:
    """Copy the first bytes of an address."""
    cdef const uint8_t* v4 = address_ipv4(a)
    memset(out, 0, sizeof(Address))
    out.family = AF_INET if v4 != NULL else a.family
    if v4 != NULL:
        memcpy(out.ip, v4, bytes_4)
    elif a.family == AF_INET6:
        memcpy(out.ip, a.ip, bytes_6)


cdef void source_network(const Address* a, Address* out) noexcept nogil:
    address_begin(a, 3, 7, out)


cdef bint first_of_address(LogRates* t, const Address* a, int kind) noexcept nogil:
    """Note that the address causes a line; return whether it is the first one of its kind in this window."""
    cdef Address source
    cdef uint64_t hash
    cdef uint64_t* at
    cdef int i
    address_begin(a, 4, 8, &source)
    source.by_proxy = <uint8_t>kind          # the hash covers it
    hash = hash_bytes(&t.key, <const uint8_t*>&source, sizeof(Address)) | 1
    at = &t.met[(hash >> 8) % LOG_FIRST_SETS * LOG_RATE_WAYS]
    for i in range(LOG_RATE_WAYS):
        if at[i] == hash:
            return 0
        if at[i] == 0:
            at[i] = hash
            return 1
    return 0


cdef const char* log_rate_mask(int family) noexcept nogil:
    if family == AF_INET:
        return "/24"
    return "/56" if family == AF_INET6 else ""


cdef bint log_rate_count(LogRates* t, const Address* a, int kind, uint32_t most) noexcept nogil:
    cdef Address network
    cdef LogRate* slot = NULL
    cdef LogRate* at
    cdef uint64_t hash
    cdef int i
    cdef bint first = first_of_address(t, a, kind)
    source_network(a, &network)
    network.by_proxy = <uint8_t>kind         # the hash covers it
    hash = hash_bytes(&t.key, <const uint8_t*>&network, sizeof(Address)) | 1
    network.by_proxy = 0
    at = &t.slots[(hash >> 8) % LOG_RATE_SETS * LOG_RATE_WAYS]
    for i in range(LOG_RATE_WAYS):
        if at[i].hash == hash or at[i].hash == 0:
            slot = &at[i]
            break
    if slot == NULL:
        if not first and (t.others[kind] >= most or t.logged[kind] >= <uint64_t>most * LOG_RATE_NETWORKS):
            t.left_out[kind] += 1
            return 0
        t.others[kind] += 1
        t.logged[kind] += 1
        return 1
    slot.hash = hash
    slot.kind = <uint8_t>kind
    slot.network = network
    slot.seen += 1
    if not first and (slot.seen > most or t.logged[kind] >= <uint64_t>most * LOG_RATE_NETWORKS):
        slot.left_out += 1
        return 0
    t.logged[kind] += 1
    return 1
