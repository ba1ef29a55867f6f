# Fuzz targets of a stream's reader. `journal_raw` takes the input as the bytes of a mark, two segments and an index. In `journal_blocks` the input
# describes blocks: they get correct checksums, damage, sequence numbers, and records that do not fit. For any input the reader must not crash, the
# numbers must rise, and the reader must return each number or report it as lost.
from libc.errno cimport ENOENT
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport abort, calloc, free
from libc.string cimport memcpy, memset, strcmp, strlen
from cext.base.words cimport load32
from cext.journal.columns cimport Columns, columns_free, columns_read
from cext.journal.format cimport BLOCK_ALIGN, BLOCK_HEAD, SEGMENT_HEAD_BYTES, BlockHead, Marks, SegmentHead, block_seal, mark_bytes, mark_write, \
    segment_head_seed, segment_head_write
from cext.journal.reader cimport Reader, reader_close, reader_load, reader_next, reader_open, reader_seek, reader_seek_time
from cext.journal.record cimport JournalRecord
from cext.store.file cimport FileOps, file_name_fn

cdef enum:
    MARK = 0
    FIRST = 1
    SECOND = 2
    INDEX = 3
    FILES = 4
    SECOND_BASE = 20

cdef const char* FIRST_NAME = b"000-00000000000000000000-00000000000000000001.seg"
cdef const char* OVER_NAME = b"000-00000000000000000000-00000000000000000003.seg"     # the first segment, begun again after the second
cdef const char* SECOND_NAME = b"000-00000000000000000020-00000000000000000002.seg"
cdef const char* INDEX_NAME = b"000-00000000000000000000-00000000000000000001.idx"

cdef struct Files:
    bint over
    uint8_t* p[4]
    size_t n[4]


cdef int mem_open(void* ctx, const char* path, int flags) noexcept nogil:
    cdef const char* name = path + strlen(b"/d/")
    if strcmp(name, b"mark.a") == 0:
        return MARK
    if strcmp(name, FIRST_NAME) == 0 or strcmp(name, OVER_NAME) == 0:
        return FIRST
    if strcmp(name, SECOND_NAME) == 0:
        return SECOND
    if strcmp(name, INDEX_NAME) == 0:
        return INDEX
    return -ENOENT


cdef int mem_close(void* ctx, int fd) noexcept nogil:
    return 0


cdef int64_t mem_pread(void* ctx, int fd, void* p, uint64_t n, uint64_t at) noexcept nogil:
    cdef Files* f = <Files*>ctx
    if at >= f.n[fd]:
        return 0
    n = min(n, f.n[fd] - at)
    memcpy(p, f.p[fd] + at, n)
    return <int64_t>n


cdef int64_t mem_size(void* ctx, int fd) noexcept nogil:
    return <int64_t>(<Files*>ctx).n[fd]


cdef int mem_names(void* ctx, const char* path, file_name_fn each, void* arg) noexcept nogil:
    each(arg, SECOND_NAME)
    each(arg, b"lock")
    each(arg, INDEX_NAME)
    return each(arg, OVER_NAME if (<Files*>ctx).over else FIRST_NAME)


cdef uint64_t read(Files* f, uint64_t time_us) noexcept nogil:
    cdef FileOps ops
    cdef Reader* r = <Reader*>calloc(1, sizeof(Reader))
    cdef JournalRecord record
    cdef Columns c
    cdef uint64_t total = 0, seen = 0, next_seq = 0, i
    memset(&ops, 0, sizeof(ops))
    memset(&c, 0, sizeof(c))
    ops.ctx = f
    ops.open = mem_open
    ops.close = mem_close
    ops.pread = mem_pread
    ops.size = mem_size
    ops.names = mem_names
    if reader_open(r, b"/d", 0, &ops) == 0:
        while reader_next(r, UINT64_MAX, &record) == 1:
            if record.seq < next_seq or record.seq >= r.end:
                abort()
            next_seq = record.seq + 1
            seen += 1
            for i in range(record.payload.n):
                total = total * 31 + record.payload.p[i]
            total += record.topic.n + record.client_id.n + record.username.n + record.properties.n
            if record.topic.n:
                total += record.topic.p[record.topic.n - 1]
        if r.seq != r.end or seen + r.loss.records != r.end:
            abort()
        reader_seek(r, 0)
        if columns_read(&c, r, UINT64_MAX, 1 << 20, 1 << 20) != <int64_t>seen and r.seq == r.end:
            abort()
        if reader_seek_time(r, time_us) != 0 or r.seq > r.end or reader_load(r, UINT64_MAX) < 0:
            abort()
        columns_free(&c)
    reader_close(r)
    free(r)
    return total


cdef uint64_t journal_raw(const uint8_t* p, size_t n) noexcept nogil:
    cdef Files f
    cdef uint32_t i
    cdef uint64_t total
    cdef size_t share = n // FILES
    f.over = 0
    for i in range(FILES):
        f.n[i] = share
        f.p[i] = <uint8_t*>calloc(1, share + 1)
        memcpy(f.p[i], p + i * share, share)
    total = read(&f, 1000)
    for i in range(FILES):
        free(f.p[i])
    return total


cdef size_t blocks_write(uint8_t* out, size_t out_n, uint32_t seed, const uint8_t* p, size_t n) noexcept nogil:
    # Make each block from {first, count, length / 8, damage} and its body; return the bytes used.
    cdef size_t at = SEGMENT_HEAD_BYTES, body_n
    cdef BlockHead h
    cdef uint8_t damage
    while n >= 4:
        body_n = min(<size_t>(p[2] & 31) * BLOCK_ALIGN, (n - 4) // BLOCK_ALIGN * BLOCK_ALIGN)
        damage = p[3]
        if at + BLOCK_HEAD + body_n > out_n:
            break
        memset(&h, 0, sizeof(h))
        h.first_seq = p[0] & 63
        h.count = p[1]
        h.body_n = <uint32_t>body_n
        h.time_us = p[0] * 100
        h.span_us = p[1]
        memcpy(out + at + BLOCK_HEAD, p + 4, body_n)
        block_seal(0, out + at, seed, at, &h)
        if damage & 1:
            out[at + (damage >> 1) % (BLOCK_HEAD + body_n)] ^= damage | 1
        at += BLOCK_HEAD + body_n + (damage & 6) * BLOCK_ALIGN
        p += 4 + body_n
        n -= 4 + body_n
    return min(at, out_n)


cdef void segment_write(Files* f, int which, uint64_t base_seq, uint64_t number, const uint8_t* p, size_t n) noexcept nogil:
    cdef SegmentHead h
    cdef size_t room = SEGMENT_HEAD_BYTES + n * 16
    memset(&h, 0, sizeof(h))
    h.base_seq = base_seq
    h.number = number
    h.shards = 1
    h.time_us = base_seq * 100
    segment_head_seed(0, &h)
    f.p[which] = <uint8_t*>calloc(1, room)
    segment_head_write(0, f.p[which], &h)
    f.n[which] = blocks_write(f.p[which], room, h.seed, p, n)


cdef uint64_t journal_blocks(const uint8_t* p, size_t n) noexcept nogil:
    cdef Files f
    cdef Marks m
    cdef uint32_t i
    cdef uint64_t total
    cdef size_t share
    if n < 8:
        return 0
    memset(&f, 0, sizeof(f))
    memset(&m, 0, sizeof(m))
    m.n = 1
    m.shards[0].seq = p[0]
    m.shards[0].first_seq = min(p[1], p[0])
    f.n[MARK] = mark_bytes(1)
    f.p[MARK] = <uint8_t*>calloc(1, f.n[MARK])
    mark_write(0, f.p[MARK], &m)
    share = (n - 8) // 2
    f.over = p[2] & 1
    segment_write(&f, FIRST, 0, 3 if f.over else 1, p + 8, share)
    segment_write(&f, SECOND, SECOND_BASE, 2, p + 8 + share, share)
    total = read(&f, load32(p + 4) & 0xFFFF)
    for i in range(FILES):
        free(f.p[i])
    return total
