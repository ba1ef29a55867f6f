# Restore the records behind the mark at a start: write them again and sync them. journal_open calls these functions.
from libc.stdint cimport uint32_t, uint64_t
from cext.journal.journal cimport Journal, JournalFound
from cext.journal.listing cimport SegmentListing
from cext.store.file cimport FileOps

# Write a refusal with advice to `why`. Always return -1.
cdef int journal_refuse(const FileOps* f, char* why, const char* problem, const char* path, int error) noexcept nogil
# Restore a shard whose segments are known from all files of `l`: its records behind the mark are to be written, and new numbers
# follow them. Return 0, or -1 and `why`.
cdef int shard_restore(Journal* j, uint32_t shard, const SegmentListing* l, uint64_t now_us, JournalFound* found, char* why) noexcept nogil
# Write and sync all of it, write the mark, and remove the files that are superseded. If the disk is full, the records wait in
# memory. Return 0, or -1 and `why`.
cdef int restore_end(Journal* j, const SegmentListing* l, uint64_t now_us, char* why) noexcept nogil
