# The list of segments of one shard, of which the last is written to. Used by the storage thread.
from libc.stdint cimport uint32_t, uint64_t
from cext.journal.journal cimport Block, Journal, JournalSegment

cdef JournalSegment* segment_add(Journal* j, uint32_t shard) noexcept nogil       # adds one after the others; NULL = no memory
# Remove a segment from the list. The caller removes its file.
cdef void segment_forget(Journal* j, uint32_t shard, uint32_t at) noexcept nogil
# Remove the file of a segment and its index. Return 0 or -errno; a missing file is no error.
cdef int segment_unlink(Journal* j, uint32_t shard, uint64_t base_seq, uint64_t number) noexcept nogil
# Write a block after the last one of its shard, in a new segment if one is due. Return 0, or -errno and the action that failed in
# *action; b then still belongs to the caller.
cdef int block_write(Journal* j, uint32_t shard, Block* b, uint64_t now_us, const char** action) noexcept nogil
# Sync the shard's file, without its directory entry. Return 0, or -errno (then the file is abandoned).
cdef int segment_flush(Journal* j, uint32_t shard) noexcept nogil
# After segment_flush and a sync of the directory: note that all written records are on the disk.
cdef void segment_settle(Journal* j, uint32_t shard) noexcept nogil
# Abandon the segment after a failed write or sync: its unsynced blocks are written again to another file. Readers read this file
# as far as it was synced; only a start reads more (see `reached`).
cdef void segment_poison(Journal* j, uint32_t shard) noexcept nogil
cdef void journal_segment_close(Journal* j, uint32_t shard) noexcept nogil
