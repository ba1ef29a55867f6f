"""Count the most frequent names of a stream in fixed memory: a space-saving sketch. This module knows names and numbers, not what they mean.

A name that is in the sketch is counted. A new name takes the place of the one with the smallest count and inherits that count as its possible
error. With a total weight of W:

    true count <= count, count - error <= true count, error <= W / SKETCH_NAMES, and each name above W / SKETCH_NAMES is in the sketch

The hash must be keyed, so that no client can make names whose chains are long or that count as one.
Cost: a look-up by hash, and a move in a heap of SKETCH_NAMES places; a new name also copies at most SKETCH_TEXT bytes.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset


cdef void sketch_clear(Sketch* s) noexcept nogil:
    s.n = 0
    memset(s.chains, 0, sizeof(s.chains))


cdef inline int sketch_find(const Sketch* s, uint64_t hash, uint32_t n) noexcept nogil:
    """Return the place of a name in `names`, or -1."""
    cdef uint32_t at = s.chains[hash & (SKETCH_CHAINS - 1)]
    while at:
        if s.names[at - 1].hash == hash and s.names[at - 1].length == n:
            return <int>at - 1
        at = s.names[at - 1].next
    return -1


cdef inline void heap_put(Sketch* s, uint32_t place, uint16_t name) noexcept nogil:
    s.heap[place] = name
    s.names[name].place = <uint16_t>place


cdef void sketch_rose(Sketch* s, uint16_t name) noexcept nogil:
    """Move a name whose count has grown away from the beginning of the heap."""
    cdef uint32_t place = s.names[name].place
    cdef uint64_t count = s.names[name].count
    cdef uint32_t child
    while 2 * place + 1 < s.n:
        child = 2 * place + 1
        if child + 1 < s.n and s.names[s.heap[child + 1]].count < s.names[s.heap[child]].count:
            child += 1
        if s.names[s.heap[child]].count >= count:
            break
        heap_put(s, place, s.heap[child])
        place = child
    heap_put(s, place, name)


cdef void sketch_came(Sketch* s, uint16_t name) noexcept nogil:
    """Put a new name at the end of the heap, and move it to its place."""
    cdef uint32_t place = s.n
    cdef uint64_t count = s.names[name].count
    s.n += 1
    while place and s.names[s.heap[(place - 1) // 2]].count > count:
        heap_put(s, place, s.heap[(place - 1) // 2])
        place = (place - 1) // 2
    heap_put(s, place, name)


cdef void chain_leave(Sketch* s, uint16_t name) noexcept nogil:
    cdef uint16_t* at = &s.chains[s.names[name].hash & (SKETCH_CHAINS - 1)]
    while at[0] != name + 1:
        at = &s.names[at[0] - 1].next
    at[0] = s.names[name].next


cdef SketchName* sketch_take(Sketch* s, uint64_t hash, const uint8_t* text, uint32_t n) noexcept nogil:
    """Return the place for a new name: a free one, or that of the smallest count, whose count stays."""
    cdef uint16_t at = <uint16_t>s.n
    cdef SketchName* name
    if s.n == SKETCH_NAMES:
        at = s.heap[0]
        chain_leave(s, at)
    name = &s.names[at]
    if s.n < SKETCH_NAMES:
        name.count = 0
    name.error = name.count
    name.bytes = 0
    name.hash = hash
    name.length = n
    name.next = s.chains[hash & (SKETCH_CHAINS - 1)]
    s.chains[hash & (SKETCH_CHAINS - 1)] = at + 1
    if n:
        memcpy(s.texts[at], text, sketch_kept(name))
    return name


cdef inline void sketch_placed(Sketch* s, uint16_t name, bint is_more) noexcept nogil:
    if is_more:
        sketch_came(s, name)
    else:
        sketch_rose(s, name)


cdef void sketch_add(Sketch* s, uint64_t hash, const uint8_t* text, uint32_t n, uint64_t weight, uint64_t bytes) noexcept nogil:
    cdef int at = sketch_find(s, hash, n)
    cdef bint is_more = at < 0 and s.n < SKETCH_NAMES
    cdef SketchName* name = &s.names[at] if at >= 0 else sketch_take(s, hash, text, n)
    name.count += weight
    name.bytes += bytes
    sketch_placed(s, <uint16_t>(name - s.names), is_more)


cdef void sketch_most(Sketch* s, uint64_t hash, const uint8_t* text, uint32_t n, uint64_t value) noexcept nogil:
    cdef int at = sketch_find(s, hash, n)
    cdef bint is_more = at < 0 and s.n < SKETCH_NAMES
    cdef SketchName* name
    if at < 0 and not is_more and value <= s.names[s.heap[0]].count:
        return
    name = &s.names[at] if at >= 0 else sketch_take(s, hash, text, n)
    name.error = 0
    name.bytes += 1
    if value > name.count or at < 0:
        name.count = value
        sketch_placed(s, <uint16_t>(name - s.names), is_more)
