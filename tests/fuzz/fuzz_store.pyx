# Fuzz targets of recovery. `raw_segments` takes the input as the bytes of up to three files. In `segments` the input describes
# headers and records: they get correct checksums, damage, and positions that do not fit. For any input recovery must not crash,
# LSNs must rise, and recovery must not read beyond the files.
from libc.errno cimport ENOENT
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport abort, calloc, free
from libc.string cimport memcpy, memset, strlen
from cext.base.words cimport load32
from cext.store.file cimport FileOps, file_name_fn
from cext.store.format cimport HEADER_BYTES, Header, STORE_RECORD_HEAD, header_seed, header_write, record_begin, record_bytes, record_seal
from cext.store.replay cimport StoreListing, store_listing_free, store_listing_read, log_replay
from cext.store.state cimport StoreLoss, StoreRecord

cdef enum:
    FILES = 3

cdef struct Files:
    uint8_t* p[3]
    size_t n[3]

cdef struct Seen:
    uint64_t next_lsn
    uint64_t total


cdef int mem_open(void* ctx, const char* path, int flags) noexcept nogil:
    cdef int which = path[strlen(path) - 1] - c'1'
    return which if 0 <= which < FILES else -ENOENT


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
    each(arg, b"segment.000001")
    each(arg, b"segment.000002")
    each(arg, b"lock")
    return each(arg, b"segment.000003")


cdef int see(void* ctx, const StoreRecord* r) noexcept nogil:
    cdef Seen* seen = <Seen*>ctx
    cdef uint32_t i
    if r.lsn < seen.next_lsn:
        abort()
    seen.next_lsn = r.lsn + record_bytes(r.body.n)
    for i in range(r.body.n):
        seen.total = seen.total * 31 + r.body.p[i]
    return 0


cdef uint64_t recover(Files* f) noexcept nogil:
    cdef FileOps ops
    cdef StoreListing l
    cdef StoreLoss loss
    cdef Seen seen
    memset(&ops, 0, sizeof(ops))
    memset(&seen, 0, sizeof(seen))
    ops.ctx = f
    ops.open = mem_open
    ops.close = mem_close
    ops.pread = mem_pread
    ops.size = mem_size
    ops.names = mem_names
    if store_listing_read(&l, &ops, 0, b"/d") != 0:
        abort()
    if log_replay(&ops, 0, b"/d", &l, 0, 0, see, &seen, &loss) != 0:
        abort()
    store_listing_free(&l)
    if seen.next_lsn > loss.end_lsn:
        abort()
    return seen.total + loss.bytes + loss.n


cdef uint64_t raw_segments(const uint8_t* p, size_t n) noexcept nogil:
    cdef Files f
    cdef uint32_t i
    cdef uint64_t total
    cdef size_t share = n // FILES
    for i in range(FILES):
        f.n[i] = share
        f.p[i] = <uint8_t*>calloc(1, share + 1)
        memcpy(f.p[i], p + i * share, share)
    total = recover(&f)
    for i in range(FILES):
        free(f.p[i])
    return total


cdef void records_write(uint8_t* out, size_t out_n, const Header* h, const uint8_t* p, size_t n) noexcept nogil:
    # Make each record from {kind, flags, length, damage} and its body.
    cdef size_t at = HEADER_BYTES, body_n
    cdef uint8_t damage
    while n >= 4:
        body_n = min(<size_t>p[2], n - 4)
        damage = p[3]
        if at + record_bytes(<uint32_t>body_n) > out_n:
            return
        record_begin(out + at, p[0], p[1], <uint32_t>body_n)
        memcpy(out + at + STORE_RECORD_HEAD, p + 4, body_n)
        record_seal(0, out + at, h.seed, h.base_lsn + at - HEADER_BYTES)
        if damage & 1:
            out[at + (damage >> 1) % record_bytes(<uint32_t>body_n)] ^= damage | 1
        at += record_bytes(<uint32_t>body_n) + (damage & 6) * 2
        p += 4 + body_n
        n -= 4 + body_n


cdef uint64_t segments(const uint8_t* p, size_t n) noexcept nogil:
    cdef Files f
    cdef Header h
    cdef uint32_t i
    cdef uint64_t total
    cdef size_t share = n // FILES
    cdef const uint8_t* part
    memset(&f, 0, sizeof(f))
    for i in range(FILES):
        part = p + i * share
        if share < 12:
            break
        memset(&h, 0, sizeof(h))
        h.store_id[0] = part[0] & 1
        h.number = part[1]
        h.base_lsn = <uint64_t>(load32(part + 2) & 0x3FFF) << (part[6] & 7) * 8
        h.tail_lsn = part[7]
        h.capacity = HEADER_BYTES + (load32(part + 8) & 0xFFFF)
        header_seed(0, &h)
        f.n[i] = HEADER_BYTES + share * 4
        f.p[i] = <uint8_t*>calloc(1, f.n[i])
        header_write(0, f.p[i], &h)
        records_write(f.p[i], f.n[i], &h, part + 12, share - 12)
    total = recover(&f)
    for i in range(FILES):
        free(f.p[i])
    return total
