from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset
from cext.topic.name cimport filter_matches
cdef Retained* retained_new(const HashKey* key) noexcept nogil:
    return <Retained*>calloc(1, sizeof(Retained))
cdef void retained_free(Retained* r, void (*free_value)(void*) noexcept nogil) noexcept nogil:
    free(r)
cdef RetainedNode* find(Retained* r, const uint8_t* topic, uint32_t n) noexcept nogil:
    cdef RetainedNode* x = r.first
    while x != NULL:
        if x.topic.n == n and memcmp(x.topic.p, topic, n) == 0: return x
        x = x.next
    return NULL
cdef int retained_set(Retained* r, const uint8_t* topic, uint32_t n, void* value, void** old) noexcept nogil:
    cdef RetainedNode* x = find(r, topic, n)
    cdef uint8_t* p
    if x == NULL:
        x = <RetainedNode*>calloc(1, sizeof(RetainedNode))
        p = <uint8_t*>malloc(n)
        memcpy(p, topic, n)
        x.topic.p = p; x.topic.n = n
        x.next = r.first; r.first = x
    old[0] = x.value
    if x.value == NULL: r.n += 1
    x.value = value
    return 0
cdef void* retained_remove(Retained* r, const uint8_t* topic, uint32_t n) noexcept nogil:
    cdef RetainedNode* x = find(r, topic, n)
    cdef void* v
    if x == NULL: return NULL
    v = x.value
    if v != NULL: r.n -= 1
    x.value = NULL
    return v
cdef void* retained_get(Retained* r, const uint8_t* topic, uint32_t n) noexcept nogil:
    cdef RetainedNode* x = find(r, topic, n)
    return x.value if x != NULL else NULL
cdef int retained_open(Retained* r, RetainedCursor* c, View filter) noexcept nogil:
    cdef uint8_t* p = <uint8_t*>malloc(filter.n)
    memcpy(p, filter.p, filter.n)
    c.filter.p = p; c.filter.n = filter.n
    c.at = r.first
    return 0
cdef void* retained_next(Retained* r, RetainedCursor* c, uint32_t* budget) noexcept nogil:
    cdef RetainedNode* x
    while c.at != NULL and budget[0]:
        budget[0] -= 1
        x = c.at
        c.at = x.next
        if x.value != NULL and filter_matches(c.filter, x.topic):
            return x.value
    return NULL
cdef void retained_close(Retained* r, RetainedCursor* c) noexcept nogil:
    free(<void*>c.filter.p)
cdef uint64_t retained_count(Retained* r) noexcept nogil:
    return r.n
cdef uint64_t retained_bytes(Retained* r) noexcept nogil:
    return 0
