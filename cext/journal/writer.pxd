# The storage thread's steps for a stream, in the order of a turn. Each returns 0, or -1 after a failure, which is reported
# (stats, `why`) and tried again by the next call.
from libc.stdint cimport uint64_t
from cext.journal.journal cimport Journal

# Take over the blocks that were handed over, and report the progress. The caller holds the owner's lock.
cdef void journal_take(Journal* j) noexcept nogil
cdef int journal_write(Journal* j, uint64_t now_us) noexcept nogil      # -1 = not everything was written
cdef int journal_sync(Journal* j) noexcept nogil                        # syncs everything that is written
cdef int journal_mark(Journal* j, uint64_t now_us) noexcept nogil       # publishes to readers what is on the disk
cdef int incoming_write(Journal* j, uint64_t now_us) noexcept nogil        # writes the blocks taken before
# Write and sync the records found at the start, and write the mark, before anything newer. Return -1 if it is not yet complete.
cdef int journal_restored(Journal* j, uint64_t now_us) noexcept nogil
cdef int journal_step_failed(Journal* j, int error, const char* action) noexcept nogil     # reports a failure; always returns -1
cdef void journal_step_succeeded(Journal* j) noexcept nogil
