# The match cache: topics to the lists they reach. See cache.pyx.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.topic.options cimport LETTERS

cdef enum:
    CACHED_TOPIC_MAX = 120      # bytes; longer topics are not remembered
    CACHED_LISTS_MAX = 6        # lists and groups together

cdef struct CacheEntry:         # 192 bytes; a hit on a usual topic reads two or three cache lines
    uint64_t hash               # of the topic
    uint64_t version            # of what may match it, then
    uint16_t n                  # bytes of the topic; 0: nothing is here
    uint8_t n_lists
    uint8_t n_groups
    uint32_t reserved
    void* found[CACHED_LISTS_MAX]       # the lists, then the groups
    uint8_t text[CACHED_TOPIC_MAX]

cdef struct MatchCache:
    CacheEntry* entries         # NULL: off
    uint32_t mask
    uint32_t looked             # in this window
    uint32_t hit
    uint32_t resting            # matches until it is asked again
    uint64_t hits               # ever
    uint64_t misses
    uint64_t everywhere         # changes among filters that begin with a wildcard
    uint64_t changes[LETTERS]   # among the others with a wildcard, by first letter

cdef int cache_init(MatchCache* c, uint32_t entries) noexcept nogil     # 0 entries: off. -1: no memory
cdef void cache_fini(MatchCache* c) noexcept nogil
cdef uint64_t cache_bytes(const MatchCache* c) noexcept nogil
# Is it to be asked for this match? False also while it rests, since topics did not repeat.
cdef bint cache_awake(MatchCache* c, uint32_t n) noexcept nogil
# The entry of a topic: `hit` says whether it holds what matches now; else it may be filled.
cdef CacheEntry* cache_look(MatchCache* c, const uint8_t* topic, uint32_t n, uint64_t hash, bint* hit) noexcept nogil
cdef void cache_fill(MatchCache* c, CacheEntry* e, const uint8_t* topic, uint32_t n, uint64_t hash) noexcept nogil  # all but what was found
# A filter without wildcards came or went: only its topic is concerned. hash: the filter's, the low half is enough.
cdef void cache_forget(MatchCache* c, uint32_t hash) noexcept nogil
# A filter with wildcards came or went.
cdef void cache_stale(MatchCache* c, const uint8_t* filter, uint32_t n) noexcept nogil
