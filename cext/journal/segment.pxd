# One shard's row of segments, of which the last is written to. The writer's.
from libc.stdint cimport uint32_t, uint64_t
from cext.journal.journal cimport Block, Journal, Segment

cdef Segment* segment_add(Journal* j, uint32_t shard) noexcept nogil       # behind the others; NULL: no memory
cdef void segment_forget(Journal* j, uint32_t shard, uint32_t at) noexcept nogil     # its row; the file is the caller's
cdef int segment_unlink(Journal* j, uint32_t shard, uint64_t base_seq, uint64_t number) noexcept nogil     # and its index. 0 or -errno; a missing file is none
# Behind the last block of its shard, in a new segment where that is due. 0; -errno: *what says what failed, and b is still the caller's
cdef int block_write(Journal* j, uint32_t shard, Block* b, uint64_t now_us, const char** what) noexcept nogil
# The shard's file to the disk: 0 or -errno (then the file is given up). Its name is not looked after.
cdef int segment_flush(Journal* j, uint32_t shard) noexcept nogil
cdef void segment_settle(Journal* j, uint32_t shard) noexcept nogil        # after flush, and its name: what is written is on the disk
# A write or sync failed: what was not synced is to be written anew, into another file. This one is read as far as it was synced, but by a start: see `reached`.
cdef void segment_poison(Journal* j, uint32_t shard) noexcept nogil
cdef void segment_close(Journal* j, uint32_t shard) noexcept nogil
