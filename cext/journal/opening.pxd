# Open and close a stream for its writer.
from libc.stdint cimport uint64_t
from cext.journal.journal cimport Journal, JournalFound, JournalOptions
from cext.store.file cimport FileOps

# Return 0, or -1 with problem and advice in `why`. `found` may be NULL.
cdef int journal_open(Journal* j, const char* dir, const JournalOptions* options, const FileOps* files, uint64_t now_us,
                      JournalFound* found, char* why) noexcept nogil
# Records that were not written are lost: the owner must do the writer's steps before.
cdef void journal_close(Journal* j) noexcept nogil
