# Reading many records at once, for files whose reads are round trips. The storage thread's part.
from libc.stdint cimport uint8_t, uint64_t
from cext.store.state cimport Store

# Read the next records of all requests, if the files can be read in many places at once. It reports no error: a record that is
# not here afterwards is read by itself.
cdef void fetch_next(Store* s) noexcept nogil
# Return the fetched bytes from lsn on, and their number in *most. NULL = there are none.
cdef const uint8_t* fetched_at(const Store* s, uint64_t lsn, uint64_t* most) noexcept nogil
cdef void fetch_fini(Store* s) noexcept nogil
