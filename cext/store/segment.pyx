"""The files of a log that is written: a row of segments, the last of which is written to, and a spare that has been written to once already.

Knows headers and sizes; not what is in a batch. Invariants: a number is given once; a new segment's header is there before the SEGEND of the one before,
and before anything is said to be written in it; after a start the log goes on in a new segment, so that leftovers of an unfinished batch never look like
records; a file is used again only after its header was wiped. All by the storage thread (before store_start: by the owner's).
"""

from libc.errno cimport ENOMEM, ENOSPC
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from cext.store.file cimport FILE_PATH_MAX, FileOps, file_write
from cext.store.format cimport HEADER_BYTES, Header, KIND_SEGEND, RECORD_HEAD, SEGEND_BODY, SEGEND_BYTES, header_seed, header_write, \
    record_begin, record_seal, store64
from cext.store.replay cimport SLOT_SEGMENT, SLOT_UNUSED, Found, Listing, path_of
from cext.store.store cimport STORE_SYNC_NEVER, Segment, Store, StoreLoss, StoreWriter

cdef extern from "<fcntl.h>" nogil:
    int O_RDWR
    int O_CREAT
    int O_EXCL
    int O_NOFOLLOW

cdef extern from "<string.h>" nogil:
    char* strerror_r(int error, char* out, size_t n)

cdef enum:
    ZEROS_BYTES = 64 << 10
    SPARE_STEP_BYTES = 1 << 20  # written between two looks at what waits

cdef uint8_t ZEROS[65536]       # never written to


cdef void error_text(char* out, size_t n, int error) noexcept nogil:
    snprintf(out, n, "%s", strerror_r(-error, out, n))


cdef Segment* segment_insert(Store* s, uint32_t at) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef Segment* more
    cdef uint32_t i
    if w.n == w.cap:
        more = <Segment*>realloc(w.segments, (w.cap * 2 if w.cap else 16) * sizeof(Segment))
        if more == NULL:
            return NULL
        w.segments = more
        w.cap = w.cap * 2 if w.cap else 16
    for i in range(w.n - at):
        w.segments[w.n - i] = w.segments[w.n - i - 1]
    w.n += 1
    memset(&w.segments[at], 0, sizeof(Segment))
    w.segments[at].fd = -1
    return &w.segments[at]


cdef int slot_free(Store* s, uint32_t slot) noexcept nogil:
    cdef uint32_t* more = <uint32_t*>realloc(s.writer.slots, (s.writer.n_slots + 1) * sizeof(uint32_t))
    if more == NULL:
        return -ENOMEM
    s.writer.slots = more
    more[s.writer.n_slots] = slot
    s.writer.n_slots += 1
    return 0


cdef int segments_begin(Store* s, Listing* l, StoreLoss* loss) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef Found* found
    cdef Segment* g
    cdef uint32_t i
    w.tail_lsn = loss.tail_lsn
    for i in range(l.n):
        found = &l.files[i]
        w.slot_last = max(w.slot_last, found.slot)
        if found.state == SLOT_UNUSED or (found.state == SLOT_SEGMENT and found.h.base_lsn >= loss.end_lsn):
            # also a segment that was begun, and nothing in it committed; its number stays used
            if slot_free(s, found.slot) != 0:
                return -ENOMEM
        elif found.state == SLOT_SEGMENT:
            g = segment_insert(s, w.n)
            if g == NULL:
                return -ENOMEM
            g.number = found.h.number
            g.base_lsn = found.h.base_lsn
            g.capacity = max(found.size, found.h.capacity)
            g.seed = found.h.seed
            g.slot = found.slot
            if w.n > 1:
                w.segments[w.n - 2].end_lsn = g.base_lsn
        if found.state == SLOT_SEGMENT or found.h.number:
            w.number_last = max(w.number_last, found.h.number)
    if w.n:
        w.segments[w.n - 1].end_lsn = loss.end_lsn
        if w.tail_lsn < w.segments[0].base_lsn:
            w.tail_lsn = w.segments[0].base_lsn
    else:
        w.tail_lsn = loss.end_lsn
    for i in range(w.n):
        w.segments[i].dirty = w.segments[i].end_lsn > loss.synced_lsn
    return 0


cdef void segments_fini(Store* s) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef uint32_t i
    for i in range(w.n):
        segment_close(s, &w.segments[i])
    if w.spare.slot:
        segment_close(s, &w.spare)
    free(w.segments)
    free(w.slots)
    w.segments = NULL
    w.slots = NULL
    w.n = w.cap = w.n_slots = 0


cdef int segment_open(Store* s, Segment* g) noexcept nogil:
    cdef char path[4096]
    cdef int fd
    if g.fd >= 0:
        return 0
    path_of(path, s.dir, g.slot)
    fd = s.files.open(s.files.ctx, path, O_RDWR | O_NOFOLLOW)
    if fd < 0:
        return fd
    g.fd = fd
    return 0


cdef void segment_close(Store* s, Segment* g) noexcept nogil:
    if g.fd >= 0:
        s.files.close(s.files.ctx, g.fd)
    g.fd = -1


cdef uint64_t segments_bytes(const Store* s) noexcept nogil:
    cdef uint64_t total = s.writer.spare_done
    cdef uint32_t i
    for i in range(s.writer.n):
        total += s.writer.segments[i].capacity
    return total


# ---- the spare

cdef int file_new(Store* s, Segment* g) noexcept nogil:
    # A file with a name of its own: one that is free, or a new one. 0 or -errno
    cdef StoreWriter* w = &s.writer
    cdef char path[4096]
    cdef int fd
    if w.n_slots:
        g.slot = w.slots[w.n_slots - 1]
        path_of(path, s.dir, g.slot)
        fd = s.files.open(s.files.ctx, path, O_RDWR | O_CREAT | O_NOFOLLOW)
        if fd < 0:
            return fd
        w.n_slots -= 1
    else:
        g.slot = w.slot_last + 1
        path_of(path, s.dir, g.slot)
        fd = s.files.open(s.files.ctx, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW)
        if fd < 0:
            return fd
        w.slot_last += 1
    g.fd = fd
    if s.options.sync != STORE_SYNC_NEVER:
        s.files.sync_dir(s.files.ctx, s.dir)
    return 0


cdef int spare_prepare(Store* s) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef uint64_t n
    cdef int got, step
    if w.spare.slot == 0:
        memset(&w.spare, 0, sizeof(Segment))
        w.spare.fd = -1
        got = file_new(s, &w.spare)
        if got < 0:
            w.spare.slot = 0
            return got
        w.spare.capacity = s.options.segment_bytes
        w.spare_done = 0
        s.files.truncate(s.files.ctx, w.spare.fd, w.spare.capacity if s.files.size(s.files.ctx, w.spare.fd) > <int64_t>w.spare.capacity else
                         <uint64_t>max(<int64_t>0, s.files.size(s.files.ctx, w.spare.fd)))
    if w.spare_done >= w.spare.capacity:
        return 0
    for step in range(SPARE_STEP_BYTES // ZEROS_BYTES):
        n = min(<uint64_t>ZEROS_BYTES, w.spare.capacity - w.spare_done)
        got = file_write(&s.files, w.spare.fd, ZEROS, n, w.spare_done)
        if got < 0:
            return got
        w.spare_done += n
        if w.spare_done >= w.spare.capacity:
            break
    if w.sync_wanted:
        got = s.files.datasync(s.files.ctx, w.spare.fd)
        if got < 0:                     # not to be believed in again: another file
            segment_close(s, &w.spare)
            memset(&w.spare, 0, sizeof(Segment))
            w.spare_done = 0
            return got
    return 1 if w.spare_done < w.spare.capacity else 0


# ---- the active one

cdef int header_put(Store* s, Segment* g) noexcept nogil:
    cdef uint8_t page[4096]
    cdef Header h
    cdef int got
    memset(&h, 0, sizeof(Header))
    memcpy(h.store_id, s.store_id, 16)
    h.number = g.number
    h.base_lsn = g.base_lsn
    h.tail_lsn = s.writer.tail_lsn
    h.capacity = g.capacity
    header_seed(s.hardware, &h)
    g.seed = h.seed
    header_write(s.hardware, page, &h)
    got = file_write(&s.files, g.fd, page, HEADER_BYTES, 0)
    if got == 0 and s.writer.sync_wanted:
        got = s.files.datasync(s.files.ctx, g.fd)
    return got


cdef void segment_end(Store* s, Segment* g) noexcept nogil:
    # Says in g that the log goes on elsewhere. It helps to tell a lost file; nothing depends on it.
    cdef uint8_t record[20]
    cdef uint64_t at = HEADER_BYTES + (g.end_lsn - g.base_lsn)
    if g.fd < 0 or g.poisoned or at + SEGEND_BYTES > g.capacity:
        return
    record_begin(record, KIND_SEGEND, 0, SEGEND_BODY)
    store64(record + RECORD_HEAD, g.end_lsn)
    record_seal(s.hardware, record, g.seed, g.end_lsn)
    file_write(&s.files, g.fd, record, SEGEND_BYTES, at)
    g.dirty = 1


cdef int segment_begin(Store* s, uint64_t need, const char** what) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef Segment fresh
    cdef Segment* g
    cdef int got
    if w.spare.slot and HEADER_BYTES + need + SEGEND_BYTES <= w.spare.capacity:
        fresh = w.spare
        memset(&w.spare, 0, sizeof(Segment))
        w.spare_done = 0
    else:
        memset(&fresh, 0, sizeof(Segment))
        fresh.fd = -1
        what[0] = "make a segment file in"
        got = file_new(s, &fresh)
        if got < 0:
            return got
        fresh.capacity = max(s.options.segment_bytes, (HEADER_BYTES + need + SEGEND_BYTES + 4095) & ~<uint64_t>4095)
    fresh.number = w.number_last + 1
    fresh.base_lsn = fresh.end_lsn = w.written
    what[0] = "write a segment's header in"
    got = header_put(s, &fresh)
    g = segment_insert(s, w.n) if got == 0 else NULL
    if g == NULL:
        # its number may be on the disk; it is not given again
        w.number_last += 1
        segment_close(s, &fresh)
        slot_free(s, fresh.slot)
        return got if got else -ENOMEM
    w.number_last = fresh.number
    g[0] = fresh
    if w.n > 1:
        g = &w.segments[w.n - 2]
        segment_end(s, g)
        if w.sync_wanted and g.dirty and g.fd >= 0 and s.files.datasync(s.files.ctx, g.fd) == 0:
            g.dirty = 0
        segment_close(s, g)
    w.active = 1
    return 0


cdef int segment_for(Store* s, uint64_t need, const char** what) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef Segment* g
    if w.active:
        g = &w.segments[w.n - 1]
        if not g.poisoned and HEADER_BYTES + (g.end_lsn - g.base_lsn) + need + SEGEND_BYTES <= g.capacity:
            return 0
    return segment_begin(s, need, what)


cdef int segment_drop(Store* s) noexcept nogil:
    return 0
