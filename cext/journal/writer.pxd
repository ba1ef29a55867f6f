# The writer's steps of a stream, in the order of a turn. Each returns 0, or -1: something failed, is told (stats, `why`) and is tried again with the next call.
from libc.stdint cimport uint64_t
from cext.journal.journal cimport Journal

cdef void journal_take(Journal* j) noexcept nogil                       # under the owner's lock: what was handed over; what is written is told
cdef int journal_write(Journal* j, uint64_t now_us) noexcept nogil      # -1: not all of it
cdef int journal_sync(Journal* j) noexcept nogil                        # what is written goes to the disk
cdef int journal_mark(Journal* j, uint64_t now_us) noexcept nogil       # what is on the disk is told to readers
cdef int todo_write(Journal* j, uint64_t now_us) noexcept nogil        # what was taken before
# What a start has found is written, synced and marked, before anything newer. -1: not yet
cdef int journal_restored(Journal* j, uint64_t now_us) noexcept nogil
cdef int failed(Journal* j, int error, const char* what) noexcept nogil     # -1
cdef void works(Journal* j) noexcept nogil
