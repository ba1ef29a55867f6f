# The beginning and the end of a stream's use by its writer.
from libc.stdint cimport uint64_t
from cext.journal.journal cimport Journal, JournalFound, JournalOptions
from cext.store.file cimport FileOps

# 0; -1: `why` says what and what to do. `found` may be NULL
cdef int journal_open(Journal* j, const char* dir, const JournalOptions* options, const FileOps* files, uint64_t now_us,
                      JournalFound* found, char* why) noexcept nogil
cdef void journal_close(Journal* j) noexcept nogil         # what was not written is gone: the owner has made the steps before
