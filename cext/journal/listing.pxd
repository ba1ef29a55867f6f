# The content of a stream's folder: names of segments, their heads, the newer of the two marks. Used by the writer and by readers.
from libc.errno cimport EACCES, EAGAIN, EINTR, EMFILE, ENFILE, ENOMEM, ENOSPC, ENOTCONN, EPERM, ESTALE
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.journal.format cimport Marks, SegmentHead
from cext.store.file cimport FileOps

ctypedef struct SegmentFile:          # file of a segment, described by its name
    uint64_t base_seq
    uint64_t number
    uint32_t shard
    uint8_t damaged             # set by the caller that has read its head: the file then ends no other segment
    uint8_t superseded          # a later segment begins at the same place or before, so no block of this file counts

ctypedef struct SegmentListing:
    SegmentFile* files          # sorted by shard, then by number; without files that are superseded also by base
    uint32_t n
    uint32_t cap

cdef enum:
    LISTING_ALL = 0xFFFFFFFF

cdef enum:
    HEAD_RIGHT = 0
    HEAD_DAMAGED = 1            # no valid copy, or the head belongs to another name
    HEAD_FOREIGN = 2            # of another stream
    HEAD_LATER = 3              # of a later format

# List the segments of a shard, without those that are superseded; or those of all shards, with them. Return 0 or -errno. The
# memory is reused by later calls; zero `l` before the first call.
cdef int segment_listing_read(SegmentListing* l, const FileOps* f, const char* dir, uint32_t shard) noexcept nogil
# Compute `superseded` again for all shards, after some files were found damaged.
cdef void segment_listing_mark_superseded(SegmentListing* l) noexcept nogil
cdef void segment_listing_free(SegmentListing* l) noexcept nogil
# Write the path of a segment file to `out` (FILE_PATH_MAX bytes).
cdef void journal_segment_path(char* out, const char* dir, uint32_t shard, uint64_t base_seq, uint64_t number, const char* kind) noexcept nogil
cdef void mark_path(char* out, const char* dir, int slot) noexcept nogil
cdef void mark_new_path(char* out, const char* dir) noexcept nogil      # of a mark that is being written, to be renamed
# Open a segment for reading. Return its descriptor or -errno. *state = HEAD_*; *size = size of the file. `stream_id` NULL = any
# stream.
cdef int segment_look(const FileOps* f, bint hardware, const char* dir, const SegmentFile* found, const uint8_t* stream_id, SegmentHead* h,
                      int* state, uint64_t* size) noexcept nogil
# Return whether an error gives no information about the content of the file: it may pass or an operator must fix it, and nothing
# is lost. The last three are those of files in Redis.
cdef inline bint is_passing(int got) noexcept nogil:
    return got == -ENOMEM or got == -EMFILE or got == -ENFILE or got == -EAGAIN or got == -EINTR or got == -EACCES or got == -EPERM \
        or got == -ENOTCONN or got == -ENOSPC or got == -ESTALE

# Read the newer mark. Return 0; -ENOENT if no mark is valid; or -errno. *slot = the slot of that mark. The caller checks for a
# later format.
cdef int marks_read(const FileOps* f, bint hardware, const char* dir, Marks* m, int* slot) noexcept nogil
