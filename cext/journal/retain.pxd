# Retention of a stream: by age and by size, and by the progress of its consumers. Used by the storage thread.
from libc.stdint cimport uint32_t, uint64_t
from cext.journal.format cimport Consumer
from cext.journal.journal cimport Journal
from cext.store.file cimport FileOps

cdef enum:
    CONSUMERS_MAX = 64          # further consumers are not read: then only retain_bytes drops segments

ctypedef struct Consumers:
    uint32_t n
    uint32_t unreadable
    char names[64][65]          # sizes: CONSUMERS_MAX, CONSUMER_NAME_MAX + 1
    Consumer marks[64]

# Read the consumers' marks. Return 0 or -errno; a missing folder = no consumers.
cdef int consumers_read(const FileOps* f, bint hardware, const char* dir, Consumers* c) noexcept nogil
# Drop the segments that are due. Return 0, or -1 after a failure, which is reported and tried again by the next call.
cdef int journal_retain(Journal* j, uint64_t now_us) noexcept nogil
