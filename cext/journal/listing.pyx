"""Names and heads in a stream's folder. This module knows no blocks. It ignores other names. Cost: one listing of the folder, and
one read for each requested head."""

from libc.errno cimport ENOENT, ENOMEM
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf, sscanf
from libc.stdlib cimport free, qsort, realloc
from libc.string cimport memcmp, memset, strcmp, strlen

from cext.journal.format cimport (
    JOURNAL_FORMAT, JOURNAL_SHARDS_MAX, MARK_BYTES_MAX, SEGMENT_HEAD_BYTES, mark_read, segment_head_read,
)
from cext.store.file cimport FILE_PATH_MAX, file_read

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY
    int O_NOFOLLOW

cdef enum:
    NAME_MAX = 49               # SSS-BBBBBBBBBBBBBBBBBBBB-NNNNNNNNNNNNNNNNNNNN.seg

ctypedef struct SegmentListingScan:
    SegmentListing* l
    uint32_t shard


cdef void journal_segment_path(char* out, const char* dir, uint32_t shard, uint64_t base_seq, uint64_t number, const char* kind) noexcept nogil:
    snprintf(out, FILE_PATH_MAX, "%s/%03u-%020llu-%020llu.%s", dir, shard, <unsigned long long>base_seq, <unsigned long long>number, kind)


cdef void mark_path(char* out, const char* dir, int slot) noexcept nogil:
    snprintf(out, FILE_PATH_MAX, "%s/mark.%c", dir, c'b' if slot else c'a')


cdef void mark_new_path(char* out, const char* dir) noexcept nogil:
    snprintf(out, FILE_PATH_MAX, "%s/.mark", dir)


cdef int segment_listing_add_name(void* arg, const char* name) noexcept nogil:
    cdef SegmentListingScan* a = <SegmentListingScan*>arg
    cdef SegmentListing* l = a.l
    cdef unsigned int shard = 0
    cdef unsigned long long base = 0, number = 0
    cdef char again[64]
    cdef SegmentFile* more
    if strlen(name) != NAME_MAX or sscanf(name, "%3u-%20llu-%20llu.seg", &shard, &base, &number) != 3:
        return 0
    snprintf(again, sizeof(again), "%03u-%020llu-%020llu.seg", shard, base, number)
    if strcmp(again, name) != 0 or shard >= JOURNAL_SHARDS_MAX or base >> 62 or number >> 62 or (a.shard != <uint32_t>LISTING_ALL and shard != a.shard):
        return 0
    if l.n == l.cap:
        more = <SegmentFile*>realloc(l.files, (l.cap * 2 if l.cap else 32) * sizeof(SegmentFile))
        if more == NULL:
            return -ENOMEM
        l.files = more
        l.cap = l.cap * 2 if l.cap else 32
    l.files[l.n].shard = shard
    l.files[l.n].base_seq = base
    l.files[l.n].number = number
    l.files[l.n].damaged = 0
    l.n += 1
    return 0


cdef int segment_file_compare(const void* a, const void* b) noexcept nogil:
    cdef const SegmentFile* x = <const SegmentFile*>a
    cdef const SegmentFile* y = <const SegmentFile*>b
    if x.shard != y.shard:
        return -1 if x.shard < y.shard else 1
    return -1 if x.number < y.number else x.number > y.number


cdef void segment_listing_mark_superseded(SegmentListing* l) noexcept nogil:
    cdef uint64_t least = UINT64_MAX        # beginning of a later segment of the shard
    cdef uint32_t i = l.n
    while i:
        i -= 1
        if i + 1 < l.n and l.files[i].shard != l.files[i + 1].shard:
            least = UINT64_MAX
        l.files[i].superseded = l.files[i].base_seq >= least
        if not l.files[i].damaged:
            least = min(least, l.files[i].base_seq)


cdef void segment_listing_drop_superseded(SegmentListing* l) noexcept nogil:
    cdef uint32_t i, n = 0
    for i in range(l.n):
        if not l.files[i].superseded:
            l.files[n] = l.files[i]
            n += 1
    l.n = n


cdef int segment_listing_read(SegmentListing* l, const FileOps* f, const char* dir, uint32_t shard) noexcept nogil:
    cdef SegmentListingScan a
    cdef int got
    a.l = l
    a.shard = shard
    l.n = 0
    got = f.names(f.ctx, dir, segment_listing_add_name, &a)
    if got < 0:
        return got
    if l.n:
        qsort(l.files, l.n, sizeof(SegmentFile), segment_file_compare)
    segment_listing_mark_superseded(l)
    if shard != <uint32_t>LISTING_ALL:
        segment_listing_drop_superseded(l)
    return 0


cdef void segment_listing_free(SegmentListing* l) noexcept nogil:
    free(l.files)
    memset(l, 0, sizeof(SegmentListing))


cdef int segment_look(          # parameters: a place (three), a file, an expected stream, three results
        const FileOps* f, bint hardware, const char* dir, const SegmentFile* found, const uint8_t* stream_id, SegmentHead* h,
        int* state, uint64_t* size) noexcept nogil:
    cdef char path[4096]
    cdef uint8_t page[4096]
    cdef int64_t n, got
    cdef int fd
    journal_segment_path(path, dir, found.shard, found.base_seq, found.number, b"seg")
    fd = f.open(f.ctx, path, O_RDONLY | O_NOFOLLOW)
    if fd < 0:
        return fd
    memset(page, 0, SEGMENT_HEAD_BYTES)
    n = f.size(f.ctx, fd)
    got = file_read(f, fd, page, SEGMENT_HEAD_BYTES, 0) if n >= 0 else n
    if got < 0:
        f.close(f.ctx, fd)
        return <int>got
    size[0] = <uint64_t>n
    if segment_head_read(hardware, page, h) != 0:
        state[0] = HEAD_DAMAGED
    elif stream_id != NULL and memcmp(h.stream_id, stream_id, 16) != 0:
        state[0] = HEAD_FOREIGN
    elif h.format > JOURNAL_FORMAT:
        state[0] = HEAD_LATER
    elif h.shard != found.shard or h.base_seq != found.base_seq or h.number != found.number:
        state[0] = HEAD_DAMAGED
    else:
        state[0] = HEAD_RIGHT
    return fd


cdef int marks_read(const FileOps* f, bint hardware, const char* dir, Marks* m, int* slot) noexcept nogil:
    cdef char path[4096]
    cdef uint8_t page[3124]
    cdef Marks one
    cdef int64_t n
    cdef int i, fd, got = -ENOENT
    for i in range(2):
        mark_path(path, dir, i)
        fd = f.open(f.ctx, path, O_RDONLY | O_NOFOLLOW)
        if is_passing(fd):
            return fd            # the unreadable mark may be the newer one
        if fd < 0:
            if fd != -ENOENT and got == -ENOENT:
                got = fd
            continue
        n = file_read(f, fd, page, MARK_BYTES_MAX, 0)
        f.close(f.ctx, fd)
        if is_passing(<int>n):
            return <int>n
        if n < 0:
            if got == -ENOENT:
                got = <int>n
        elif mark_read(hardware, page, <uint64_t>n, &one) == 0 and (got != 0 or one.generation > m.generation):
            m[0] = one
            slot[0] = i
            got = 0
    return got
