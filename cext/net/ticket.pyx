"""Write, read and judge the ticket of a relayed connection, sans-IO. This module knows bytes, a key and the numbers that were used. It does not know
sockets, nor where the key comes from (mosq/cluster/wires.py: both processes prove the secret of the cluster, and get a key for each direction).

    0 "tkt" and the version 1   4 u16 worker that sends it, from 0   6 u16 zero   8 u64 number   16 head of relay_head.pyx   behind it: 16 bytes of proof

The proof is SipHash-2-4 with 128 bits over all bytes in front of it. So a ticket is for one description of a client, of one process, for one other
process, once. Numbers are little-endian. Tickets overtake each other, because each has a connection of its own: a number is taken if it was not used
and is at most TICKET_WINDOW below the highest one. A number is noted only after the proof was found right, so a forged ticket moves no window. The
comparison takes the same time for each wrong proof. The first byte differs from that of a handshake.

Cost: 0.1 us on each side; 8 KB for a key that takes tickets.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from cext.base.hash cimport HashKey, hash_proof
from cext.base.words cimport load64, store64
from cext.net.relay_head cimport RELAY_HEAD_BAD, RELAY_HEAD_MORE, RelayHead, relay_head_put, relay_head_read, relay_head_size

cdef enum:
    MARK_BYTES = 4


cdef const char* MARK = "tkt\x01"


cdef int ticket_key_set(TicketKey* key, const HashKey* value, bint notes) noexcept nogil:
    ticket_key_forget(key)
    if notes:
        key.taken = <uint64_t*>calloc(TICKET_WINDOW // 64, 8)
        if key.taken == NULL:
            return -1
    key.key = value[0]
    key.known = 1
    return 0


cdef void ticket_key_forget(TicketKey* key) noexcept nogil:
    free(key.taken)
    memset(key, 0, sizeof(TicketKey))


# ---------------------------------------------------------------- the bytes

cdef uint32_t ticket_size(const RelayHead* h) noexcept nogil:
    cdef uint32_t n = relay_head_size(h)
    return n + TICKET_BYTES if n else 0


cdef void ticket_put(uint8_t* out, TicketKey* key, uint32_t slot, const RelayHead* h) noexcept nogil:
    cdef uint32_t n = TICKET_BEGIN + relay_head_size(h)
    cdef uint16_t number = <uint16_t>slot
    cdef uint64_t proof[2]
    key.number += 1
    memset(out, 0, TICKET_BEGIN)
    memcpy(out, MARK, MARK_BYTES)
    memcpy(out + 4, &number, 2)
    store64(out + 8, key.number)
    relay_head_put(out + TICKET_BEGIN, h)
    hash_proof(&key.key, out, n, proof)
    memcpy(out + n, proof, TICKET_PROOF)


cdef int ticket_read(const uint8_t* p, size_t n, Ticket* out) noexcept nogil:
    cdef uint16_t number
    cdef int found
    memset(out, 0, sizeof(Ticket))
    if memcmp(p, MARK, n if n < MARK_BYTES else MARK_BYTES) != 0:
        return TICKET_OTHER
    if n < TICKET_BEGIN:
        return TICKET_MORE
    found = relay_head_read(p + TICKET_BEGIN, n - TICKET_BEGIN, &out.head)
    memcpy(&number, p + 4, 2)
    out.slot = number
    out.number = load64(p + 8)
    out.size = out.head.size + TICKET_BYTES if out.head.size else 0
    if found == RELAY_HEAD_BAD or p[6] or p[7]:
        return TICKET_BAD
    return TICKET_MORE if found == RELAY_HEAD_MORE or n < out.size else TICKET_DONE


# ---------------------------------------------------------------- the judgement

cdef int ticket_take(TicketKey* key, const uint8_t* p, const Ticket* t) noexcept nogil:
    cdef uint64_t proof[2]
    cdef uint64_t given[2]
    hash_proof(&key.key, p, t.size - TICKET_PROOF, proof)
    memcpy(given, p + t.size - TICKET_PROOF, TICKET_PROOF)
    if not key.known or key.taken == NULL or ((proof[0] ^ given[0]) | (proof[1] ^ given[1])) != 0:
        return TICKET_FORGED
    return ticket_number(key, t.number)


cdef int ticket_number(TicketKey* key, uint64_t number) noexcept nogil:
    cdef uint64_t* word = &key.taken[number % TICKET_WINDOW // 64]
    cdef uint64_t bit = <uint64_t>1 << (number % 64)
    cdef uint64_t i
    if number == 0 or (number <= key.number and key.number - number >= TICKET_WINDOW):
        return TICKET_LATE
    if number <= key.number and word[0] & bit:
        return TICKET_AGAIN
    if number > key.number and number - key.number > TICKET_WINDOW:
        memset(key.taken, 0, TICKET_WINDOW // 8)
    else:
        for i in range(key.number + 1, number):
            key.taken[i % TICKET_WINDOW // 64] &= ~(<uint64_t>1 << (i % 64))
    if number > key.number:
        key.number = number
    word[0] |= bit
    return TICKET_TAKEN
