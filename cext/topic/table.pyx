# A hash table of embedded links by linear hashing: it grows and shrinks by one or two buckets per operation.
# This module does not know keys: callers walk over table_chain() and compare.
# Invariant: there are 1 to 2 buckets per link, but at least TABLE_FIRST, and an empty table owns no memory,
# unless buckets_min requires more.
# Cost: O(1) expected for each operation, without a pause for rehashing; 8 to 16 bytes per link. The hash must be keyed.
from libc.stdint cimport uint32_t
from libc.string cimport memset
from cext.topic.memory cimport MemoryAccount, memory_give, take_zeroed

cdef enum:
    STEPS_MAX = 2               # limit of splits or merges per operation: with two, growth catches up after a lack of memory


cdef void table_init(Table* t) noexcept nogil:
    memset(t, 0, sizeof(Table))
    t.mask = TABLE_FIRST - 1


cdef void table_fini(Table* t, MemoryAccount* a) noexcept nogil:
    cdef int s
    for s in range(TABLE_SEGMENTS):
        if t.segments[s] != NULL:
            memory_give(a, t.segments[s], <size_t>sizeof(Link*) << s)
    table_init(t)


cdef bint split_one(Table* t, MemoryAccount* a) noexcept nogil:
    # Split the bucket at `split`: links with the next bit of the hash set move to its new partner.
    cdef uint32_t size = t.mask + 1
    cdef uint32_t s = 31 - __builtin_clz(size)
    cdef Link** low
    cdef Link** high
    cdef Link* link
    if s >= TABLE_SEGMENTS:
        return False
    if t.segments[s] == NULL:
        t.segments[s] = <Link**>take_zeroed(a, <size_t>sizeof(Link*) * size)
        if t.segments[s] == NULL:
            return False
    low = table_slot(t, t.split)
    high = table_slot(t, t.split + size)
    while low[0] != NULL:
        link = low[0]
        if link.hash & size:
            low[0] = link.next
            link.next = high[0]
            high[0] = link
        else:
            low = &link.next
    t.split += 1
    if t.split == size:
        t.mask = 2 * t.mask + 1
        t.split = 0
    return True


cdef void bucket_merge(Table* t, MemoryAccount* a) noexcept nogil:
    # Reverse the last split.
    cdef Link** high
    cdef Link** low
    cdef Link* rest
    cdef uint32_t s
    if t.split == 0:
        t.mask >>= 1
        t.split = t.mask + 1
    t.split -= 1
    high = table_slot(t, t.split + t.mask + 1)
    low = table_slot(t, t.split)
    rest = low[0]
    low[0] = high[0]
    while low[0] != NULL:
        low = &low[0].next
    low[0] = rest
    high[0] = NULL
    if t.split == 0:
        s = 31 - __builtin_clz(t.mask + 1)
        memory_give(a, t.segments[s], <size_t>sizeof(Link*) << s)
        t.segments[s] = NULL


cdef void table_add(Table* t, MemoryAccount* a, Link* link) noexcept nogil:
    cdef Link** slot = table_at(t, link.hash)
    cdef int _step
    link.next = slot[0]
    slot[0] = link
    t.n += 1
    for _step in range(STEPS_MAX):
        if (t.n <= table_buckets(t) and t.buckets_min <= table_buckets(t)) or not split_one(t, a):
            break


cdef void table_drop(Table* t, MemoryAccount* a, Link* link) noexcept nogil:
    cdef Link** slot = table_at(t, link.hash)
    cdef int _step
    while slot[0] != link:
        slot = &slot[0].next
    slot[0] = link.next
    t.n -= 1
    for _step in range(STEPS_MAX):
        if 2 * t.n >= table_buckets(t) or table_buckets(t) == TABLE_FIRST or table_buckets(t) <= t.buckets_min:
            break
        bucket_merge(t, a)
