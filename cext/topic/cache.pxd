# The match cache: topics to the lists they reach. See cache.pyx.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.topic.options cimport LETTERS

cdef enum:
    CACHED_TOPIC_MAX = 128      # bytes; longer topics are not remembered
    CACHED_LISTS_MAX = 6        # lists and groups together

cdef struct CacheEntry:         # 192 bytes; a hit on a usual topic reads two of their cache lines, and one of tags
    uint64_t version            # of what may match its topic, then
    uint16_t n                  # bytes of the topic
    uint8_t n_lists
    uint8_t n_groups
    uint32_t reserved
    void* found[CACHED_LISTS_MAX]       # the lists, then the groups
    uint8_t text[CACHED_TOPIC_MAX]

cdef struct MatchCache:
    uint64_t* tags              # of each place the hash of its topic; 0: nothing is there. NULL: no place yet
    CacheEntry* entries
    uint32_t places             # a power of two
    uint32_t places_max         # 0: off
    uint32_t window             # look-ups until it is measured,
    uint32_t taken_max          # or so many places taken from topics that were still good
    uint32_t looked             # in this window
    uint32_t hit
    uint32_t taken
    uint32_t resting            # matches until it is asked again
    uint64_t hits               # ever, but for this window
    uint64_t misses
    uint64_t everywhere         # changes among filters that begin with a wildcard
    uint64_t changes[LETTERS]   # among the others with a wildcard, by first letter

cdef void cache_init(MatchCache* c, uint32_t topics_max) noexcept nogil     # 0: off
cdef void cache_fini(MatchCache* c) noexcept nogil
cdef uint64_t cache_bytes(const MatchCache* c) noexcept nogil
# Is it to be asked for this match? False also while it rests, since topics did not repeat.
cdef bint cache_awake(MatchCache* c, uint32_t n) noexcept nogil
# The place of a topic: `hit` says whether its entry holds what matches now; else it may be filled.
cdef uint32_t cache_look(MatchCache* c, const uint8_t* topic, uint32_t n, uint64_t hash, bint* hit) noexcept nogil
# All but what was found.
cdef CacheEntry* cache_fill(MatchCache* c, uint32_t place, const uint8_t* topic, uint32_t n, uint64_t hash) noexcept nogil
# A filter without wildcards came or went: only its topic is concerned. hash: the filter's, the low half is enough.
cdef void cache_forget(MatchCache* c, uint32_t hash) noexcept nogil
# A filter with wildcards came or went.
cdef void cache_stale(MatchCache* c, const uint8_t* filter, uint32_t n) noexcept nogil
