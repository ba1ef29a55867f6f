# What a stream keeps: by age and by bytes, and by what its consumers have not read. The writer's.
from libc.stdint cimport uint32_t, uint64_t
from cext.journal.format cimport Consumer
from cext.journal.journal cimport Journal
from cext.store.file cimport FileOps

cdef enum:
    CONSUMERS_MAX = 64          # more are not looked at: then nothing goes but by retain_bytes

ctypedef struct Consumers:
    uint32_t n
    uint32_t unreadable
    char names[64][65]          # CONSUMERS_MAX, CONSUMER_NAME_MAX + 1
    Consumer marks[64]

# 0 or -errno; a missing folder is none
cdef int consumers_read(const FileOps* f, bint hardware, const char* dir, Consumers* c) noexcept nogil
# Drops what is due. 0; -1: something failed, is told, and is tried again with the next call
cdef int journal_retain(Journal* j, uint64_t now_us) noexcept nogil
