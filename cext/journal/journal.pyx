"""The loop's side of a stream: copy records into open blocks and hand the blocks over. This module knows no files.

Invariants: the sequence numbers of a shard rise by one in the order of appending. Only one side accesses a block at a time.
Memory is limited to `waiting_max_bytes` plus one record that is larger than a block, however slow the disk is. Cost: one copy. A
block grows from 4 KiB to `block_bytes` and keeps its size when it is reused, so that a warm stream allocates nothing.
"""

from libc.stdint cimport UINT32_MAX, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc

from cext.journal.format cimport BLOCK_BODY_MAX, BLOCK_HEAD
from cext.journal.record cimport JournalRecord, journal_record_bytes, journal_record_fits, journal_record_put


# ---- blocks

cdef void idle_put(JournalLoop* l, Block* b) noexcept nogil:
    l.waiting_bytes -= b.cap
    if l.idle_bytes + b.cap > JOURNAL_IDLE_MAX_BYTES:
        free(b.p)
        free(b)
        return
    b.next = l.idle
    l.idle = b
    l.idle_bytes += b.cap


cdef void blocks_take_back(JournalLoop* l) noexcept nogil:
    cdef Block* b = l.back
    cdef Block* following
    l.back = NULL
    while b != NULL:
        following = b.next
        idle_put(l, b)
        b = following


cdef int block_grow(Journal* j, Block* b, uint64_t need) noexcept nogil:
    cdef uint64_t cap = max(b.cap * 2, <uint64_t>JOURNAL_BLOCK_BYTES_MIN)
    cdef uint64_t most = j.options.waiting_max_bytes
    cdef uint8_t* p
    cap = max(min(cap, <uint64_t>j.options.block_bytes), need)
    if j.loop.waiting_bytes + cap - b.cap > most and j.loop.waiting_bytes > b.cap and (need <= j.options.block_bytes or j.loop.waiting_bytes >= most):
        return JOURNAL_WAITS        # one record that is larger than a block may exceed the limit
    p = <uint8_t*>realloc(b.p, cap)
    if p == NULL:
        return JOURNAL_NO_MEMORY
    b.p = p
    j.loop.waiting_bytes += cap - b.cap
    b.cap = cap
    return 0


cdef Block* block_take(Journal* j, uint32_t shard) noexcept nogil:
    cdef JournalLoop* l = &j.loop
    cdef Block* b = l.idle
    if b != NULL:
        l.idle = b.next
        l.idle_bytes -= b.cap
        l.waiting_bytes += b.cap
    else:
        b = <Block*>calloc(1, sizeof(Block))
        if b == NULL:
            return NULL
    b.next = NULL
    b.n = BLOCK_HEAD
    b.count = b.span_us = 0
    b.shard = shard
    b.node = j.options.node
    return b


cdef void block_seal_open(JournalLoop* l, uint32_t shard) noexcept nogil:
    blocks_add(&l.sealed, l.open[shard])
    l.open[shard] = NULL


# ---- records

cdef int block_for(Journal* j, uint32_t shard, uint64_t need, uint64_t time_us) noexcept nogil:
    """Ensure that the shard's open block has room. Return 0, JOURNAL_SEAL_SOON if another block is full, or the reason of a
    failure."""
    cdef JournalLoop* l = &j.loop
    cdef Block* b = l.open[shard]
    cdef int got, soon = JOURNAL_TAKEN
    if b != NULL and b.count and (b.n + need > max(<uint64_t>j.options.block_bytes, b.cap) or time_us > b.time_us + UINT32_MAX
                                  or b.n + need > BLOCK_HEAD + <uint64_t>BLOCK_BODY_MAX):
        block_seal_open(l, shard)
        soon = JOURNAL_SEAL_SOON
        b = NULL
    if b == NULL:
        blocks_take_back(l)
        if l.waiting_bytes >= j.options.waiting_max_bytes:
            return JOURNAL_WAITS
        b = block_take(j, shard)
        if b == NULL:
            return JOURNAL_NO_MEMORY
        l.open[shard] = b
    if b.n + need > b.cap:
        got = block_grow(j, b, b.n + need)
        if got != 0:
            return got
    return soon


cdef int journal_reserve(Journal* j, uint32_t shard, uint64_t n, uint64_t time_us) noexcept nogil:
    cdef Block* b = j.loop.open[shard]
    if b == NULL or b.n + n > b.cap or time_us > b.time_us + UINT32_MAX:
        return block_for(j, shard, n, time_us)
    return JOURNAL_TAKEN


cdef void journal_release(Journal* j, uint32_t shard) noexcept nogil:
    cdef Block* b = j.loop.open[shard]
    if b != NULL and b.count == 0:
        j.loop.open[shard] = NULL
        idle_put(&j.loop, b)


cdef int journal_append(Journal* j, uint32_t shard, JournalRecord* r) noexcept nogil:
    cdef Block* b = j.loop.open[shard]
    cdef uint64_t n = journal_record_bytes(r)
    cdef uint32_t delta = 0
    cdef int got = JOURNAL_TAKEN
    if not journal_record_fits(r):
        return JOURNAL_TOO_LARGE
    if b == NULL or b.n + n > b.cap or r.time_us > b.time_us + UINT32_MAX:
        got = block_for(j, shard, n, r.time_us)
        if got < 0:
            return got
        b = j.loop.open[shard]
    if b.count == 0:
        b.first_seq = j.loop.next_seq[shard]
        b.time_us = r.time_us
    elif r.time_us > b.time_us:             # if the clock goes back, the time stands still until the next block
        delta = <uint32_t>(r.time_us - b.time_us)
    journal_record_put(b.p + b.n, n, delta, r)
    b.n += n
    b.count += 1
    b.span_us = max(b.span_us, delta)
    r.seq = j.loop.next_seq[shard]
    j.loop.next_seq[shard] += 1
    return got


cdef bint journal_seal(Journal* j) noexcept nogil:
    cdef uint32_t shard
    blocks_take_back(&j.loop)
    for shard in range(j.n_shards):
        if j.loop.open[shard] != NULL and j.loop.open[shard].count:
            block_seal_open(&j.loop, shard)
    return j.loop.sealed.head != NULL


cdef void journal_hand(Journal* j) noexcept nogil:
    blocks_join(&j.shared.sealed, &j.loop.sealed)
    journal_back(j)


cdef void journal_back(Journal* j) noexcept nogil:
    if j.loop.back == NULL:
        j.loop.back = j.shared.done
        j.shared.done = NULL


cdef bint journal_room(Journal* j) noexcept nogil:
    blocks_take_back(&j.loop)
    return j.loop.waiting_bytes < j.options.waiting_max_bytes
