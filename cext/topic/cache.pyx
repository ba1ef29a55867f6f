# The match cache: topics repeat, and the filters that they match change rarely. The cache has one entry per topic. Each topic has
# four possible places; if all are in use, it replaces another topic.
# This module does not know filters or lists: it stores results as pointers, and the index reports when they may have changed. The
# cache begins small and grows, while topics replace each other, up to the bound of the settings. If fewer than one in eight
# look-ups of a window hit, it frees its memory and rests.
# Invariant: an entry is used only while no filter that could match its topic was added or removed, or got its first or lost its
# last subscriber, since the entry was filled. An exact filter invalidates its own topic's entry; other filters increment the
# count of changes of their first letter.
# Cost: a keyed hash of the topic, one cache line of tags, two of the entry. Growing forgets all entries and copies nothing.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset
from cext.topic.options cimport letter_of

cdef extern from "<stdlib.h>" nogil:
    void* aligned_alloc(size_t alignment, size_t size)

cdef enum:
    CACHE_WAYS = 4
    PLACES_FIRST = 512
    CACHE_PLACES_MAX = 1 << 20
    GROWTH = 4
    WINDOW_MIN = 4096           # smallest window in look-ups; a larger table needs twice its number of places
    HITS_WANTED = 8             # one hit in this many look-ups is enough
    REST = 16                   # length of a rest in windows
    LINE_BYTES = 64


cdef void cache_init(MatchCache* c, uint32_t topics_max) noexcept nogil:
    memset(c, 0, sizeof(MatchCache))
    if topics_max:
        c.places_max = CACHE_WAYS
        while c.places_max < topics_max and c.places_max < CACHE_PLACES_MAX:
            c.places_max *= 2


cdef void cache_fini(MatchCache* c) noexcept nogil:
    free(c.tags)
    free(c.entries)
    c.tags = NULL
    c.entries = NULL
    c.places = 0


cdef uint64_t cache_bytes(const MatchCache* c) noexcept nogil:
    return <uint64_t>c.places * (sizeof(CacheEntry) + sizeof(uint64_t))


cdef bint resize(MatchCache* c, uint32_t places) noexcept nogil:
    cdef uint64_t* tags = <uint64_t*>calloc(places, sizeof(uint64_t))
    # Memory that is never written costs nothing: the system provides the pages of large blocks at the first access.
    cdef CacheEntry* entries = <CacheEntry*>aligned_alloc(LINE_BYTES, places * sizeof(CacheEntry))
    if tags == NULL or entries == NULL:
        free(tags)
        free(entries)
        c.places_max = c.places  # no memory: the present size becomes the limit
        return False
    cache_fini(c)
    c.tags = tags
    c.entries = entries
    c.places = places
    c.window = 2 * places if 2 * places > WINDOW_MIN else WINDOW_MIN
    c.taken_max = places // CACHE_WAYS if places < c.places_max else c.window
    window_end(c)
    return True


cdef inline void window_end(MatchCache* c) noexcept nogil:
    c.hits += c.hit
    c.misses += c.looked - c.hit
    c.looked = c.hit = c.taken = 0


cdef void measure(MatchCache* c) noexcept nogil:
    # A window has ended, or topics replace each other often.
    if c.taken >= c.taken_max and c.places < c.places_max:
        resize(c, c.places * GROWTH if c.places * GROWTH < c.places_max else c.places_max)
    elif c.hit < c.looked // HITS_WANTED:
        c.resting = REST * c.looked
        window_end(c)
        cache_fini(c)
    else:
        window_end(c)


cdef bint cache_awake(MatchCache* c, uint32_t n) noexcept nogil:
    if n > CACHED_TOPIC_MAX:
        return False
    if c.resting:
        c.resting -= 1
        return False
    if c.tags == NULL:
        return c.places_max != 0 and resize(c, PLACES_FIRST if c.places_max > PLACES_FIRST else c.places_max)
    if c.looked >= c.window or c.taken >= c.taken_max:
        measure(c)
    return c.tags != NULL


cdef inline uint64_t version_of(const MatchCache* c, const uint8_t* topic, uint32_t n) noexcept nogil:
    # Neither count ever falls, so the sum shows whether one of them rose.
    return c.everywhere + c.changes[letter_of(topic, n)]


cdef inline uint64_t tag_of(uint64_t hash) noexcept nogil:
    return hash | <uint64_t>1 << 63      # never 0; the low half selects the place


cdef inline uint32_t first_place(const MatchCache* c, uint64_t hash) noexcept nogil:
    return <uint32_t>hash * CACHE_WAYS & (c.places - 1)


cdef uint32_t cache_look(MatchCache* c, const uint8_t* topic, uint32_t n, uint64_t hash, bint* hit) noexcept nogil:
    cdef uint32_t first = first_place(c, hash)
    cdef uint32_t free_place = CACHE_WAYS
    cdef uint32_t i
    cdef uint64_t tag = tag_of(hash)
    cdef CacheEntry* e
    c.looked += 1
    for i in range(CACHE_WAYS):
        if c.tags[first + i] == tag:
            e = &c.entries[first + i]
            if e.n == n and memcmp(e.text, topic, n) == 0:
                hit[0] = e.version == version_of(c, topic, n)
                c.hit += hit[0]
                return first + i
        elif c.tags[first + i] == 0:
            free_place = i
    hit[0] = False
    return first + (free_place if free_place < CACHE_WAYS else c.looked % CACHE_WAYS)


cdef CacheEntry* cache_fill(MatchCache* c, uint32_t place, const uint8_t* topic, uint32_t n, uint64_t hash) noexcept nogil:
    cdef CacheEntry* e = &c.entries[place]
    if c.tags[place] and c.tags[place] != tag_of(hash) and e.version == version_of(c, e.text, e.n):
        c.taken += 1
    c.tags[place] = tag_of(hash)
    e.version = version_of(c, topic, n)
    e.n = <uint16_t>n
    memcpy(e.text, topic, n)
    return e


cdef void cache_forget(MatchCache* c, uint32_t hash) noexcept nogil:
    cdef uint32_t i, first
    if c.tags == NULL:
        return
    first = first_place(c, hash)
    for i in range(CACHE_WAYS):
        if <uint32_t>c.tags[first + i] == hash:
            c.tags[first + i] = 0


cdef void cache_stale(MatchCache* c, const uint8_t* filter, uint32_t n) noexcept nogil:
    if n and (filter[0] == c'+' or filter[0] == c'#'):
        c.everywhere += 1
    else:
        c.changes[letter_of(filter, n)] += 1
