# How the topic room finds things: switches whose benefit is measured (perf/FINDINGS.md), the same for subscriptions and retained
# messages. The defaults are the fastest; the other values are for comparison, and for users that have little memory.
from libc.stdint cimport uint8_t, uint32_t

cdef enum IndexMode:
    # Filters without wildcards by the hash of the whole filter, others in a tree; both 27 ways by first letter.
    INDEX_FULL = 0
    INDEX_LETTER = 1            # all filters in the tree, whose first level is 27 ways
    INDEX_HASH = 2              # like INDEX_FULL without the letters
    INDEX_TREE = 3              # all filters in the tree, without letters, as in Mosquitto
    INDEX_SCAN = 4              # the brute force of textbooks: every filter is compared

cdef enum:
    LETTERS = 27                # one for each of a..z in either case, and one for everything else
    LETTERS_OF_MODE = 0
    LETTERS_ON = 1
    LETTERS_OFF = 2
    CHILD_HASH_THRESHOLD = 9    # number of children of a tree's node from which a hash finds them
    NEVER_HASHED = 0xFFFFFFFFu

ctypedef struct IndexOptions:
    uint8_t mode                # a value of IndexMode
    uint8_t letters             # LETTERS_OF_MODE, or the value that overrides the mode
    uint32_t hash_buckets       # smallest number of buckets of each partition in use; 0 = as many as there are filters
    uint32_t child_hash_threshold   # 0 = CHILD_HASH_THRESHOLD
    uint32_t match_cache        # limit of topics in the match cache, in INDEX_FULL; 0 = no cache


cdef inline bint by_letter(const IndexOptions* o) noexcept nogil:
    if o.letters != LETTERS_OF_MODE:
        return o.letters == LETTERS_ON
    return o.mode == INDEX_FULL or o.mode == INDEX_LETTER


# Return the partition of a topic, filter or first level by its first letter.
cdef inline uint32_t letter_of(const uint8_t* text, uint32_t n) noexcept nogil:
    cdef uint32_t letter
    if n == 0:
        return LETTERS - 1
    letter = (text[0] | 0x20) - <uint32_t>c'a'
    return letter if letter < LETTERS - 1 else LETTERS - 1
