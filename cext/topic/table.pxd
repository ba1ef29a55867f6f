# A hash table (linear hashing) of links that are embedded in its items. See table.pyx.
from libc.stdint cimport uint32_t, uint64_t
from cext.topic.memory cimport MemoryAccount

cdef extern from *:
    int __builtin_clz(unsigned int x) noexcept nogil

cdef enum:
    TABLE_FIRST = 8             # buckets inside the struct, so that a small table allocates nothing
    TABLE_SEGMENTS = 31         # limit; segment s holds the buckets 2**s .. 2**(s+1) - 1; segments below TABLE_FIRST stay unused

cdef struct Link:
    Link* next
    uint32_t hash
    uint32_t n                  # for the item's own use

cdef struct Table:
    uint64_t n                  # number of links
    uint32_t mask               # size - 1, where size is a power of two; buckets = size + split
    uint32_t split              # number of buckets that are already split in two: at i, and at i + size
    uint32_t buckets_min        # smallest number of buckets of a table with links
    Link** segments[TABLE_SEGMENTS]
    Link* first[TABLE_FIRST]


cdef inline Link** table_slot(Table* t, uint32_t i) noexcept nogil:
    cdef uint32_t s
    if i < TABLE_FIRST:
        return &t.first[i]
    s = 31 - __builtin_clz(i)
    return &t.segments[s][i - (<uint32_t>1 << s)]


# Return the start of the chain that contains the links with that hash.
cdef inline Link** table_at(Table* t, uint32_t hash) noexcept nogil:
    cdef uint32_t i = hash & t.mask
    if i < t.split:
        i = hash & (2 * t.mask + 1)
    return table_slot(t, i)


cdef inline Link* table_chain(Table* t, uint32_t hash) noexcept nogil:
    return table_at(t, hash)[0]


cdef inline uint64_t table_buckets(const Table* t) noexcept nogil:
    return <uint64_t>t.mask + 1 + t.split


# Spread every bit of x over the result. Use it for keys that are pointers, or a keyed hash and a pointer.
cdef inline uint32_t spread(uint64_t x) noexcept nogil:
    x = (x ^ (x >> 33)) * <uint64_t>0xFF51AFD7ED558CCD
    x = (x ^ (x >> 33)) * <uint64_t>0xC4CEB9FE1A85EC53
    return <uint32_t>(x ^ (x >> 33))


# Sets buckets_min to 0; the caller may change it afterwards.
cdef void table_init(Table* t) noexcept nogil
cdef void table_fini(Table* t, MemoryAccount* a) noexcept nogil               # forgets the links, frees the buckets
cdef void table_add(Table* t, MemoryAccount* a, Link* link) noexcept nogil    # cannot fail: without memory the chains get longer
cdef void table_drop(Table* t, MemoryAccount* a, Link* link) noexcept nogil   # link must be in the table
