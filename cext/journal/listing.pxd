# What lies in a stream's folder: names of segments, their heads, the newer of the two marks. For who writes and for who reads.
from libc.errno cimport EACCES, EAGAIN, EINTR, EMFILE, ENFILE, ENOMEM, EPERM
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.journal.format cimport Marks, SegmentHead
from cext.store.file cimport FileOps

ctypedef struct Found:          # a segment's file, by its name
    uint64_t base_seq
    uint64_t number
    uint32_t shard
    uint8_t damaged             # said by who has looked at its head: it puts no end to others then
    uint8_t over                # a later one begins where it does, or before: nothing in it counts any more

ctypedef struct Listing:
    Found* files                # by shard, then by number; without those that are over also by base
    uint32_t n
    uint32_t cap

cdef enum:
    LISTING_ALL = 0xFFFFFFFF

cdef enum:
    HEAD_RIGHT = 0
    HEAD_DAMAGED = 1            # neither copy is one, or it belongs to another name
    HEAD_FOREIGN = 2            # of another stream
    HEAD_LATER = 3              # of a later format

# The segments of a shard, without those that are over; or of all shards, with them. 0 or -errno. Memory is kept from call to call; l: memset 0 at first
cdef int listing_read(Listing* l, const FileOps* f, const char* dir, uint32_t shard) noexcept nogil
cdef void listing_over(Listing* l) noexcept nogil      # of all shards: says again which are over, when some are damaged
cdef void listing_free(Listing* l) noexcept nogil
cdef void segment_path(char* out, const char* dir, uint32_t shard, uint64_t base_seq, uint64_t number, const char* kind) noexcept nogil     # FILE_PATH_MAX
cdef void mark_path(char* out, const char* dir, int slot) noexcept nogil
# Opens a segment to be read: its descriptor, or -errno. *state: HEAD_*; *size: of the file. `stream_id` NULL: any
cdef int segment_look(const FileOps* f, bint hardware, const char* dir, const Found* found, const uint8_t* stream_id, SegmentHead* h,
                      int* state, uint64_t* size) noexcept nogil
# An error of a call that says nothing of what is in the file: it may go by itself, or somebody has to see to it, and nothing is lost
cdef inline bint is_passing(int got) noexcept nogil:
    return got == -ENOMEM or got == -EMFILE or got == -ENFILE or got == -EAGAIN or got == -EINTR or got == -EACCES or got == -EPERM

# The newer mark. 0; -ENOENT: there is none that is right; -errno. *slot: which one it was. A later format is left to the caller.
cdef int marks_read(const FileOps* f, bint hardware, const char* dir, Marks* m, int* slot) noexcept nogil
