# How the topic room finds things: switches whose worth is measured (perf/FINDINGS.md), the same for subscriptions and retained
# messages. The defaults are the fastest; the others are for the comparison, and for whom memory matters more.
from libc.stdint cimport uint8_t, uint32_t

cdef enum IndexMode:
    INDEX_FULL = 0              # filters without wildcards by hash of the whole, the others in a tree; both 27 ways by first letter
    INDEX_LETTER = 1            # all filters in the tree, whose first level is 27 ways
    INDEX_HASH = 2              # as INDEX_FULL without the letters
    INDEX_TREE = 3              # all filters in the tree, without letters: what Mosquitto does
    INDEX_SCAN = 4              # the brute force of the textbooks: every filter is compared

cdef enum:
    LETTERS = 27                # a..z in either case, then everything else
    LETTERS_OF_MODE = 0
    LETTERS_ON = 1
    LETTERS_OFF = 2
    CHILD_HASH_THRESHOLD = 9    # children of a tree's node: from so many on they are found by hash
    NEVER_HASHED = 0xFFFFFFFFu

ctypedef struct IndexOptions:
    uint8_t mode                # IndexMode
    uint8_t letters             # LETTERS_OF_MODE, or what overrides it
    uint32_t hash_buckets       # the least number of buckets of each partition in use; 0: as many as there are filters
    uint32_t child_hash_threshold   # 0: CHILD_HASH_THRESHOLD
    uint32_t match_cache        # topics remembered, in INDEX_FULL; 0: none


cdef inline bint by_letter(const IndexOptions* o) noexcept nogil:
    if o.letters != LETTERS_OF_MODE:
        return o.letters == LETTERS_ON
    return o.mode == INDEX_FULL or o.mode == INDEX_LETTER


# The partition of a topic, filter or first level by its first letter.
cdef inline uint32_t letter_of(const uint8_t* text, uint32_t n) noexcept nogil:
    cdef uint32_t letter
    if n == 0:
        return LETTERS - 1
    letter = (text[0] | 0x20) - <uint32_t>c'a'
    return letter if letter < LETTERS - 1 else LETTERS - 1
