# What a match does, told as JSON: which filters a topic matches, by which way, and what the walk looked at. See explain.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.topic.index cimport Group, Index

cdef enum:
    EXPLAIN_BYTES_MIN = 1024            # room for an answer without filters
    EXPLAIN_BYTES_MAX = 64 * 1024       # more room is not used; it bounds the filters told to less than 1000

# How a group chooses among its members, in words (ASCII, nothing to escape): the broker knows, this room does not.
ctypedef const char* (*strategy_fn)(void* ctx, const Group* g) noexcept nogil

# Writes at most `cap` bytes of JSON about a topic (a valid name) to `out`; how many, or 0: cap is below EXPLAIN_BYTES_MIN.
# *work gets what it cost, in steps that are about as long as an append to somebody's output.
cdef uint32_t index_explain(Index* ix, const uint8_t* topic, uint32_t n, uint8_t* out, uint32_t cap, strategy_fn strategy, void* ctx,
                            uint64_t* work) noexcept nogil
# Links per bucket of all hash tables of the index, times 100.
cdef uint64_t index_load_hundredths(Index* ix) noexcept nogil
