# A match described as JSON: which filters a topic matches, in which way, and what the walk looked at. See explain.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.topic.index cimport Entry, Group, Index, List

cdef enum:
    EXPLAIN_BYTES_MIN = 1024    # room for an answer without filters
    EXPLAIN_BYTES_MAX = 64 * 1024       # limit of used room; it limits the described filters to less than 1000

# Return the name of a group's strategy (ASCII, nothing to escape). The broker knows it, this room does not.
ctypedef const char* (*strategy_fn)(void* ctx, const Group* g) noexcept nogil

# Return route number i of a list: a subscriber that is another worker, whose number goes to *worker; NULL = there are no more.
ctypedef Entry* (*route_fn)(void* ctx, List* l, uint32_t i, uint32_t* worker) noexcept nogil

# Write at most `cap` bytes of JSON about a topic (a valid name) to `out`. Return their number, or 0 if cap is below
# EXPLAIN_BYTES_MIN. route NULL: no subscriber is a worker. *work gets the cost in steps, each about as long as an append to a client's output.
cdef uint32_t index_explain(Index* ix, const uint8_t* topic, uint32_t n, uint8_t* out, uint32_t cap, strategy_fn strategy, route_fn route,
                            void* ctx, uint64_t* work) noexcept nogil
# Return the links per bucket of all hash tables of the index, times 100.
cdef uint64_t index_load_hundredths(Index* ix) noexcept nogil
