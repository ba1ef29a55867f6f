# The match cache: topics repeat, and what they match changes seldom. One entry per topic, in a table that forgets: each topic has
# two places, and takes that of another when both are in use.
# It does not know filters or lists: what was found is kept as pointers, and the index says when they may have changed.
# Invariant: an entry is used only while no filter that could match its topic has come, gone, or got its first or lost its last
# subscriber since it was filled: exact filters put out their own topic's entry, others count up the changes of their first letter.
# Cost: a keyed hash of the topic and two or three cache lines; where fewer than one in eight look-ups of a window hit, it rests.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset
from cext.topic.options cimport letter_of

cdef enum:
    WINDOW = 4096               # look-ups
    HITS_WANTED = WINDOW // 8
    REST = 16 * WINDOW


cdef int cache_init(MatchCache* c, uint32_t entries) noexcept nogil:
    cdef uint32_t size = 2
    memset(c, 0, sizeof(MatchCache))
    if entries == 0:
        return 0
    while size < entries and size < <uint32_t>1 << 20:
        size *= 2
    c.entries = <CacheEntry*>calloc(size, sizeof(CacheEntry))
    c.mask = size - 1
    return 0 if c.entries != NULL else -1


cdef void cache_fini(MatchCache* c) noexcept nogil:
    free(c.entries)
    c.entries = NULL


cdef uint64_t cache_bytes(const MatchCache* c) noexcept nogil:
    return (<uint64_t>c.mask + 1) * sizeof(CacheEntry) if c.entries != NULL else 0


cdef bint cache_awake(MatchCache* c, uint32_t n) noexcept nogil:
    if c.entries == NULL or n > CACHED_TOPIC_MAX:
        return False
    if c.resting:
        c.resting -= 1
        return False
    return True


cdef inline uint64_t version_of(const MatchCache* c, const uint8_t* topic, uint32_t n) noexcept nogil:
    # Neither ever falls, so the sum tells whether one of them rose.
    return c.everywhere + c.changes[letter_of(topic, n)]


cdef inline CacheEntry* first_place(MatchCache* c, uint64_t hash) noexcept nogil:
    return &c.entries[hash & c.mask & ~<uint64_t>1]


cdef inline bint holds(const CacheEntry* e, const uint8_t* topic, uint32_t n, uint64_t hash, uint64_t version) noexcept nogil:
    return e.hash == hash and e.n == n and memcmp(e.text, topic, n) == 0 and e.version == version


cdef CacheEntry* cache_look(MatchCache* c, const uint8_t* topic, uint32_t n, uint64_t hash, bint* hit) noexcept nogil:
    cdef CacheEntry* one = first_place(c, hash)
    cdef CacheEntry* other = one + 1
    cdef uint64_t version = version_of(c, topic, n)
    hit[0] = True
    if not holds(one, topic, n, hash, version):
        hit[0] = holds(other, topic, n, hash, version)
        # its own stale entry or an empty place, else either in turn
        if hit[0] or (one.hash != hash and one.n != 0 and (other.hash == hash or other.n == 0 or c.looked & 1)):
            one = other
    c.looked += 1
    c.hit += hit[0]
    if c.looked == WINDOW:
        c.hits += c.hit
        c.misses += WINDOW - c.hit
        if c.hit < HITS_WANTED:
            c.resting = REST
        c.looked = c.hit = 0
    return one


cdef void cache_fill(MatchCache* c, CacheEntry* e, const uint8_t* topic, uint32_t n, uint64_t hash) noexcept nogil:
    e.hash = hash
    e.version = version_of(c, topic, n)
    e.n = <uint16_t>n
    memcpy(e.text, topic, n)


cdef void cache_forget(MatchCache* c, uint32_t hash) noexcept nogil:
    cdef CacheEntry* e
    if c.entries == NULL:
        return
    e = first_place(c, hash)
    if <uint32_t>e[0].hash == hash:
        e[0].n = 0
    if <uint32_t>e[1].hash == hash:
        e[1].n = 0


cdef void cache_stale(MatchCache* c, const uint8_t* filter, uint32_t n) noexcept nogil:
    if n and (filter[0] == c'+' or filter[0] == c'#'):
        c.everywhere += 1
    else:
        c.changes[letter_of(filter, n)] += 1
