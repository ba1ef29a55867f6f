# The match cache: from topics to the lists that they reach. See cache.pyx.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.topic.options cimport LETTERS

cdef enum:
    CACHED_TOPIC_MAX = 128      # limit in bytes of a topic in the cache
    CACHED_LISTS_MAX = 6        # limit of lists and groups together

cdef struct CacheEntry:         # 192 bytes; a hit on a usual topic reads two of their cache lines, and one of tags
    uint64_t version            # version, at the time of the fill, of the filters that may match the topic
    uint16_t n                  # bytes of the topic
    uint8_t n_lists
    uint8_t n_groups
    uint32_t reserved
    void* found[CACHED_LISTS_MAX]       # first the lists, then the groups
    uint8_t text[CACHED_TOPIC_MAX]

cdef struct MatchCache:
    uint64_t* tags              # hash of the topic at each place; 0 = an empty place; NULL = there are no places yet
    CacheEntry* entries
    uint32_t places             # number of places, a power of two
    uint32_t places_max         # limit of places; 0 = the cache is off
    uint32_t window             # look-ups until the next measurement
    uint32_t taken_max          # number of replaced valid entries that ends a window early
    uint32_t looked             # look-ups in this window
    uint32_t hit
    uint32_t taken
    uint32_t resting            # matches until the cache is used again
    uint64_t hits               # hits without those of this window
    uint64_t misses
    uint64_t everywhere         # number of changes among filters that begin with a wildcard
    uint64_t changes[LETTERS]   # number of changes among other wildcard filters, by first letter

cdef void cache_init(MatchCache* c, uint32_t topics_max) noexcept nogil     # topics_max 0: off
cdef void cache_fini(MatchCache* c) noexcept nogil
cdef uint64_t cache_bytes(const MatchCache* c) noexcept nogil
# Return whether this match uses the cache. It does not while the cache rests because topics did not repeat.
cdef bint cache_awake(MatchCache* c, uint32_t n) noexcept nogil
# Return the place of a topic. `hit` gets whether its entry contains the current result; if not, the caller may fill it.
cdef uint32_t cache_look(MatchCache* c, const uint8_t* topic, uint32_t n, uint64_t hash, bint* hit) noexcept nogil
# Fill an entry except for the found lists and groups.
cdef CacheEntry* cache_fill(MatchCache* c, uint32_t place, const uint8_t* topic, uint32_t n, uint64_t hash) noexcept nogil
# A filter without wildcards was added or removed, which concerns only its own topic. hash: the filter's; the low half is enough.
cdef void cache_forget(MatchCache* c, uint32_t hash) noexcept nogil
# A filter with wildcards was added or removed.
cdef void cache_stale(MatchCache* c, const uint8_t* filter, uint32_t n) noexcept nogil
