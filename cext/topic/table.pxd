# A hash table of links that are embedded in what it holds (linear hashing). See table.pyx.
from libc.stdint cimport uint32_t, uint64_t
from cext.topic.memory cimport Account

cdef extern from *:
    int __builtin_clz(unsigned int x) noexcept nogil

cdef enum:
    TABLE_FIRST = 8             # buckets inside the struct: a small table allocates nothing
    TABLE_SEGMENTS = 31         # segment s holds the buckets 2**s .. 2**(s+1) - 1; those below TABLE_FIRST stay unused

cdef struct Link:
    Link* next
    uint32_t hash
    uint32_t n                  # the holder's own

cdef struct Table:
    uint64_t n                  # links
    uint32_t mask               # size - 1, size a power of two; buckets = size + split
    uint32_t split              # buckets below it are already split in two: at i, and at i + size
    uint32_t buckets_min        # grows to so many however few the links, once there is one
    Link** segments[TABLE_SEGMENTS]
    Link* first[TABLE_FIRST]


cdef inline Link** table_slot(Table* t, uint32_t i) noexcept nogil:
    cdef uint32_t s
    if i < TABLE_FIRST:
        return &t.first[i]
    s = 31 - __builtin_clz(i)
    return &t.segments[s][i - (<uint32_t>1 << s)]


# Where the chain begins in which a link with that hash is, if it is there at all.
cdef inline Link** table_at(Table* t, uint32_t hash) noexcept nogil:
    cdef uint32_t i = hash & t.mask
    if i < t.split:
        i = hash & (2 * t.mask + 1)
    return table_slot(t, i)


cdef inline Link* table_chain(Table* t, uint32_t hash) noexcept nogil:
    return table_at(t, hash)[0]


cdef inline uint64_t table_buckets(const Table* t) noexcept nogil:
    return <uint64_t>t.mask + 1 + t.split


# For keys that are pointers, or a keyed hash and a pointer: spreads every bit of x over the result.
cdef inline uint32_t spread(uint64_t x) noexcept nogil:
    x = (x ^ (x >> 33)) * <uint64_t>0xFF51AFD7ED558CCD
    x = (x ^ (x >> 33)) * <uint64_t>0xC4CEB9FE1A85EC53
    return <uint32_t>(x ^ (x >> 33))


cdef void table_init(Table* t) noexcept nogil                           # buckets_min is 0; may be set from then on
cdef void table_fini(Table* t, Account* a) noexcept nogil               # forgets the links, frees the buckets
cdef void table_add(Table* t, Account* a, Link* link) noexcept nogil    # cannot fail: without memory the chains get longer
cdef void table_drop(Table* t, Account* a, Link* link) noexcept nogil   # link must be in it
