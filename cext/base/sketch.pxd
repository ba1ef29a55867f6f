# A sketch of the most frequent names of a stream, in fixed memory (space-saving: Metwally, Agrawal, El Abbadi 2005). See sketch.pyx.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    SKETCH_NAMES = 512          # names that are counted at the same time
    SKETCH_TEXT = 256           # bytes of a name that are kept
    SKETCH_CHAINS = 1024        # a power of two

ctypedef struct SketchName:
    uint64_t hash
    uint64_t count              # at least the true count of the name
    uint64_t error              # at most this much of `count` belongs to names that were here before
    uint64_t bytes              # added since the name is here
    uint32_t length             # bytes of the whole name
    uint16_t place              # in the heap
    uint16_t next               # name of the same chain, plus 1; 0 = none

ctypedef struct Sketch:
    uint32_t n
    uint16_t chains[1024]       # SKETCH_CHAINS: first name with this hash, plus 1; 0 = none
    uint16_t heap[512]          # SKETCH_NAMES: names, the one with the smallest count first
    SketchName names[512]       # SKETCH_NAMES
    uint8_t texts[512][256]     # SKETCH_NAMES, SKETCH_TEXT: the beginning of each name

cdef void sketch_clear(Sketch* s) noexcept nogil
# Count `weight` more of a name. `hash` is a keyed hash of the whole name: two names with one hash and one length count as one.
cdef void sketch_add(Sketch* s, uint64_t hash, const uint8_t* text, uint32_t n, uint64_t weight, uint64_t bytes) noexcept nogil
# Remember the largest value of a name in `count`, and the number of its values in `bytes`; `error` is 0. A sketch is used for counts or for values.
cdef void sketch_most(Sketch* s, uint64_t hash, const uint8_t* text, uint32_t n, uint64_t value) noexcept nogil


cdef inline uint32_t sketch_kept(const SketchName* name) noexcept nogil:
    return name.length if name.length < SKETCH_TEXT else SKETCH_TEXT


# Return the largest possible count of a name that is not in the sketch.
cdef inline uint64_t sketch_least(const Sketch* s) noexcept nogil:
    return s.names[s.heap[0]].count if s.n == SKETCH_NAMES else 0
