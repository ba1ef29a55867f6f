"""Read a log back: files, then segments in order, then batches, then records. This module knows the format. It changes nothing,
so that tools may use it on a live store.

A batch counts if its COMMIT is there, or if a later segment begins behind it, since a new segment begins only behind committed
batches. Damaged places are skipped up to the next valid record. Bytes behind the last COMMIT are never damaged, only torn. Cost:
each byte is checked once, and during the search for a valid record a bounded number of times more. Memory: one segment.
"""

from libc.errno cimport EFBIG, ENOENT, ENOMEM
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf, sscanf
from libc.stdlib cimport free, malloc, qsort, realloc
from libc.string cimport memcmp, memcpy, memset, strlen, strncmp

from cext.base.words cimport load32, load64
from cext.store.file cimport FILE_PATH_MAX, FileOps, file_read, file_read_error_passes
from cext.store.format cimport (
    COMMIT_BODY, FORMAT, HEADER_BYTES, Header, KIND_COMMIT, KIND_SEGEND, RECORD_DAMAGED, SEGEND_BODY, STORE_KIND_MAX,
    STORE_RECORD_ALIGN, STORE_RECORD_HEAD, header_read, log_record_at, record_bytes,
)
from cext.store.state cimport STORE_RANGES_REPORTED, STORE_SEGMENT_BYTES_MAX, StoreLoss, StoreRange, StoreRecord, store_record_fn

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY
    int O_NOFOLLOW

cdef enum:
    LOAD_BYTES = 1 << 20        # size of one read, which is also the most that is lost with an unreadable place
    LIVE_BYTES = 64 << 10       # size of one read of a live store
    LIVE_TRIES = 100            # lists of the files of a live store, until one is settled or has no further segment
    SEARCH_FACTOR = 4           # bytes checked in search of a record, per byte of the segment


cdef void store_segment_path(char* out, const char* dir, uint32_t slot) noexcept nogil:
    snprintf(out, FILE_PATH_MAX, "%s/segment.%06u", dir, slot)


# ---- the list of files

cdef struct StoreListingScan:
    StoreListing* l
    const FileOps* f
    const char* dir
    bint hardware


cdef StoreFile* store_listing_add(StoreListing* l) noexcept nogil:
    cdef StoreFile* more
    cdef uint32_t cap
    if l.n == l.cap:
        cap = l.cap * 2 if l.cap else 16
        more = <StoreFile*>realloc(l.files, cap * sizeof(StoreFile))
        if more == NULL:
            return NULL
        l.files = more
        l.cap = cap
    l.n += 1
    memset(&l.files[l.n - 1], 0, sizeof(StoreFile))
    return &l.files[l.n - 1]


cdef bint bytes_are_zero(const uint8_t* p, uint64_t n) noexcept nogil:
    cdef uint64_t i
    for i in range(n):
        if p[i] != 0:
            return 0
    return 1


cdef int file_identify(StoreListingScan* a, StoreFile* found) noexcept nogil:
    """Find out by its header which kind of file has the number found.slot. Return 0, or -errno if that is unknown for now."""
    cdef char path[4096]
    cdef uint8_t head[4096]
    cdef int64_t got, size
    cdef int fd
    found.state = SLOT_ALONE
    store_segment_path(path, a.dir, found.slot)
    fd = a.f.open(a.f.ctx, path, O_RDONLY | O_NOFOLLOW)
    if fd < 0:
        return fd if file_read_error_passes(a.f, fd) else 0
    size = a.f.size(a.f.ctx, fd)
    memset(head, 0, HEADER_BYTES)
    got = file_read(a.f, fd, head, HEADER_BYTES, 0)
    a.f.close(a.f.ctx, fd)
    if got < 0 or size < 0:
        return <int>got if file_read_error_passes(a.f, got) else 0
    found.size = <uint64_t>size
    if header_read(a.hardware, head, &found.h) == 0:
        if found.h.format > FORMAT:
            a.l.format = found.h.format
        elif found.h.capacity <= STORE_SEGMENT_BYTES_MAX and found.h.base_lsn < UINT64_MAX // 2 and found.h.number < UINT64_MAX // 2:
            found.state = SLOT_SEGMENT
    elif bytes_are_zero(head, HEADER_BYTES):
        found.state = SLOT_UNUSED
    return 0


cdef int store_listing_add_name(void* arg, const char* name) noexcept nogil:
    cdef StoreListingScan* a = <StoreListingScan*>arg
    cdef unsigned int slot = 0
    cdef char again[32]
    cdef StoreFile* found
    if strncmp(name, "segment.", 8) != 0 or strlen(name) > 20 or sscanf(name + 8, "%u", &slot) != 1 or slot == 0 or slot > SLOTS_MAX:
        return 0
    snprintf(again, sizeof(again), "segment.%06u", slot)
    if strncmp(again, name, sizeof(again)) != 0:
        return 0
    found = store_listing_add(a.l)
    if found == NULL:
        return -ENOMEM
    found.slot = slot
    return file_identify(a, found)


cdef int found_compare(const void* a, const void* b) noexcept nogil:
    cdef const StoreFile* x = <const StoreFile*>a
    cdef const StoreFile* y = <const StoreFile*>b
    if x.h.base_lsn != y.h.base_lsn:
        return -1 if x.h.base_lsn < y.h.base_lsn else 1
    if x.h.number != y.h.number:
        return -1 if x.h.number < y.h.number else 1
    return -1 if x.slot < y.slot else 1


cdef int store_listing_read(StoreListing* l, const FileOps* f, bint hardware, const char* dir) noexcept nogil:
    cdef StoreListingScan a
    cdef uint32_t i
    cdef uint64_t newest = 0
    a.l = l
    a.f = f
    a.dir = dir
    a.hardware = hardware
    memset(l, 0, sizeof(StoreListing))
    l.error = f.names(f.ctx, dir, store_listing_add_name, &a)
    if l.error < 0:
        return l.error
    for i in range(l.n):        # the newest segment determines the store id
        if l.files[i].state == SLOT_SEGMENT and l.files[i].h.number >= newest:
            newest = l.files[i].h.number
            memcpy(l.store_id, l.files[i].h.store_id, 16)
            l.known = 1
    for i in range(l.n):
        if l.files[i].state == SLOT_SEGMENT and memcmp(l.files[i].h.store_id, l.store_id, 16) != 0:
            l.files[i].state = SLOT_ALONE
    if l.n:
        qsort(l.files, l.n, sizeof(StoreFile), found_compare)
    return 0


cdef void store_listing_free(StoreListing* l) noexcept nogil:
    free(l.files)
    memset(l, 0, sizeof(StoreListing))


cdef bint listings_are_equal(const StoreListing* a, const StoreListing* b) noexcept nogil:
    cdef uint32_t i
    for i in range(min(a.n, b.n)):
        if a.files[i].slot != b.files[i].slot or a.files[i].state != b.files[i].state or a.files[i].h.number != b.files[i].h.number:
            return 0
    return a.n == b.n


cdef int store_listing_settled(StoreListing* l, const FileOps* f, bint hardware, const char* dir) noexcept nogil:
    cdef StoreListing before
    cdef int tries = LIVE_TRIES, got = store_listing_read(l, f, hardware, dir)
    cdef bint settled = 0
    while got == 0 and not settled and tries > 0:
        before = l[0]
        got = store_listing_read(l, f, hardware, dir)
        settled = got == 0 and listings_are_equal(&before, l)
        store_listing_free(&before)
        tries -= 1
    return got


cdef int64_t read_settled(const FileOps* f, int fd, uint8_t* p, uint8_t* other, uint64_t n, uint64_t at) noexcept nogil:
    """Read until two reads return the same. A write proceeds from the front to the back. So if the first read found a byte of a
    write, all bytes before it were written when the second read began, and equal reads have no gap."""
    cdef int64_t again, got = file_read(f, fd, p, n, at)
    while got >= 0:
        again = file_read(f, fd, other, n, at)
        if again == got and memcmp(p, other, <size_t>got) == 0:
            break
        if again > 0:
            memcpy(p, other, <size_t>again)
        got = again
    return got


cdef bint is_header_of(bint hardware, const uint8_t* page, uint64_t number) noexcept nogil:
    cdef Header h
    return header_read(hardware, page, &h) == 0 and h.number == number


cdef uint8_t* segment_load_live(const FileOps* f, bint hardware, const char* dir, uint32_t slot, uint64_t number, uint64_t* n, int* error) noexcept nogil:
    cdef char path[4096]
    cdef uint8_t head[4096]
    cdef uint8_t* p = NULL
    cdef int64_t got, size
    cdef uint64_t want, at
    cdef int fd
    n[0] = error[0] = 0
    store_segment_path(path, dir, slot)
    fd = f.open(f.ctx, path, O_RDONLY | O_NOFOLLOW)
    if fd < 0:
        error[0] = fd if fd != -ENOENT else 0
        return NULL
    size = f.size(f.ctx, fd)
    if HEADER_BYTES <= size <= STORE_SEGMENT_BYTES_MAX:
        p = <uint8_t*>malloc(<size_t>size + LIVE_BYTES)
    if p == NULL:
        error[0] = <int>size if size < 0 else 0 if size < HEADER_BYTES else -EFBIG if size > STORE_SEGMENT_BYTES_MAX else -ENOMEM
        f.close(f.ctx, fd)
        return NULL
    memset(p, 0, HEADER_BYTES)
    file_read(f, fd, p, HEADER_BYTES, 0)
    at = <uint64_t>size
    while at > HEADER_BYTES:
        want = min(at - HEADER_BYTES, <uint64_t>LIVE_BYTES)
        at -= want
        got = read_settled(f, fd, p + at, p + size, want, at)
        if got < 0:
            error[0] = <int>got
        if got < <int64_t>want:
            memset(p + at + max(got, <int64_t>0), 0, want - <uint64_t>max(got, <int64_t>0))
    memset(head, 0, HEADER_BYTES)
    got = file_read(f, fd, head, HEADER_BYTES, 0)
    f.close(f.ctx, fd)
    if not is_header_of(hardware, p, number) or not is_header_of(hardware, head, number):
        free(p)
        error[0] = 0
        return NULL
    n[0] = <uint64_t>size
    return p


cdef uint8_t* segment_load(const FileOps* f, const char* dir, uint32_t slot, uint64_t* n, int* error) noexcept nogil:
    cdef char path[4096]
    cdef uint8_t* p
    cdef uint64_t done = 0, want
    cdef int64_t got, size
    cdef int fd
    n[0] = 0
    store_segment_path(path, dir, slot)
    fd = f.open(f.ctx, path, O_RDONLY | O_NOFOLLOW)
    if fd < 0:
        error[0] = fd
        return NULL
    size = f.size(f.ctx, fd)
    p = <uint8_t*>malloc(<size_t>size + 16) if 0 <= size <= STORE_SEGMENT_BYTES_MAX else NULL
    if p == NULL:
        error[0] = <int>size if size < 0 else -EFBIG if size > STORE_SEGMENT_BYTES_MAX else -ENOMEM
        f.close(f.ctx, fd)
        return NULL
    while done < <uint64_t>size:
        want = min(<uint64_t>size - done, <uint64_t>LOAD_BYTES)
        got = file_read(f, fd, p + done, want, done)
        if file_read_error_passes(f, got):
            free(p)
            f.close(f.ctx, fd)
            error[0] = <int>got
            return NULL
        if got < <int64_t>want:         # unreadable, or the file became shorter: a hole
            memset(p + done + (got if got > 0 else 0), 0, want - <uint64_t>(got if got > 0 else 0))
        done += want
    f.close(f.ctx, fd)
    n[0] = <uint64_t>size
    return p


# ---- the walk through one segment

cdef void segment_walk_begin(SegmentWalk* w, const uint8_t* p, uint64_t n, const Header* h) noexcept nogil:
    cdef uint32_t* found = w.found
    cdef uint32_t cap = w.cap
    memset(w, 0, sizeof(SegmentWalk))
    w.found = found             # this memory is reused for all segments
    w.cap = cap
    w.p = p
    w.n = min(n, h.capacity)
    w.seed = h.seed
    w.base_lsn = h.base_lsn
    w.at = w.good = HEADER_BYTES
    w.limit = max(w.n, <uint64_t>HEADER_BYTES)      # a file that is shorter than its header has no records
    w.budget = w.n * SEARCH_FACTOR


cdef void segment_walk_end(SegmentWalk* w) noexcept nogil:
    free(w.found)
    w.found = NULL
    w.cap = 0


cdef inline uint64_t lsn_at(const SegmentWalk* w, uint64_t at) noexcept nogil:
    return w.base_lsn + (at - HEADER_BYTES)


cdef bint segment_walk_add_found(SegmentWalk* w, uint64_t at) noexcept nogil:
    cdef uint32_t* more
    cdef uint32_t cap
    if w.n_found == w.cap:
        cap = w.cap * 2 if w.cap else 1024
        more = <uint32_t*>realloc(w.found, <size_t>cap * sizeof(uint32_t))
        if more == NULL:
            return 0
        w.found = more
        w.cap = cap
    w.found[w.n_found] = <uint32_t>at
    w.n_found += 1
    return 1


cdef void segment_walk_add_hole(SegmentWalk* w, uint64_t lo, uint64_t hi) noexcept nogil:
    if w.n_holes < HOLES_MAX:
        w.hole_lo[w.n_holes] = lo
        w.n_holes += 1
    w.hole_hi[w.n_holes - 1] = hi


cdef uint64_t record_search(SegmentWalk* w, bint hardware, uint64_t at) noexcept nogil:
    """Return the offset of the next valid record, or limit."""
    cdef long n
    while at + STORE_RECORD_HEAD <= w.limit and w.budget:
        n = log_record_at(hardware, w.p + at, w.limit - at, w.seed, lsn_at(w, at))
        if n >= 0:
            return at
        if n == RECORD_DAMAGED:         # its body was read, which counts against the budget
            w.budget -= min(w.budget, <uint64_t>load32(w.p + at + 4))
        at += STORE_RECORD_ALIGN
    return w.limit


cdef int segment_walk_batch(SegmentWalk* w, bint hardware) noexcept nogil:
    cdef uint64_t at, next
    cdef long n
    w.n_found = w.n_holes = 0
    while w.at + STORE_RECORD_HEAD <= w.limit and not w.ended:
        at = w.at
        n = log_record_at(hardware, w.p + at, w.limit - at, w.seed, lsn_at(w, at))
        if n < 0:
            next = record_search(w, hardware, at + STORE_RECORD_ALIGN)
            if next >= w.limit and not w.bounded:
                break
            segment_walk_add_hole(w, at, next)
            w.at = next
            continue
        w.at = at + record_bytes(<uint32_t>n)
        if w.p[at + 8] == KIND_COMMIT and n == COMMIT_BODY:
            w.synced_lsn = load64(w.p + at + STORE_RECORD_HEAD + 8)
            w.good = w.at
            return 1
        if w.p[at + 8] == KIND_SEGEND and n == SEGEND_BODY and load64(w.p + at + STORE_RECORD_HEAD) == lsn_at(w, at):
            w.ended = 1
            w.at = at
        elif w.p[at + 8] <= STORE_KIND_MAX and not segment_walk_add_found(w, at):
            return -1
    if w.bounded or w.ended:            # the COMMIT is damaged, but something was written behind it
        if w.bounded and w.at < w.limit and not w.ended:
            segment_walk_add_hole(w, w.at, w.limit)
            w.at = w.limit
        if w.at > w.good:
            w.good = w.at
            return 1
    w.n_found = w.n_holes = 0
    return 0


cdef void segment_walk_record(const SegmentWalk* w, uint32_t at, StoreRecord* r) noexcept nogil:
    cdef const uint8_t* p = w.p + at
    r.lsn = lsn_at(w, at)
    r.kind = p[8]
    r.flags = p[9]
    r.body.p = p + STORE_RECORD_HEAD
    r.body.n = load32(p + 4)


# ---- the replay of all segments

cdef struct LogReplay:
    const FileOps* f
    const char* dir
    bint hardware
    bint live
    bint following              # segments that began since the first list was read
    store_record_fn fn
    void* ctx
    StoreLoss* loss
    SegmentWalk walk
    uint64_t from_lsn           # the end of a batch: the reader knows everything before it; 0: it knows nothing
    uint64_t at_lsn             # all below was read or is lost
    uint64_t synced_lsn         # highest lsn that a COMMIT names as synced


cdef void log_loss_add(LogReplay* r, uint64_t lo, uint64_t hi) noexcept nogil:
    cdef StoreLoss* loss = r.loss
    if lo >= hi:
        return
    if loss.n and loss.n <= STORE_RANGES_REPORTED and loss.ranges[loss.n - 1].hi == lo:
        loss.ranges[loss.n - 1].hi = hi
    else:
        if loss.n < STORE_RANGES_REPORTED:
            loss.ranges[loss.n].lo = lo
            loss.ranges[loss.n].hi = hi
        loss.n += 1
    if hi != UINT64_MAX:
        loss.bytes += hi - lo


cdef int batch_replay(LogReplay* r) noexcept nogil:
    cdef SegmentWalk* w = &r.walk
    cdef StoreRecord record
    cdef uint32_t i
    for i in range(w.n_holes):
        log_loss_add(r, lsn_at(w, w.hole_lo[i]), lsn_at(w, w.hole_hi[i]))
    r.loss.batches += 1
    for i in range(w.n_found):
        segment_walk_record(w, w.found[i], &record)
        r.loss.records += 1
        if r.fn != NULL and r.fn(r.ctx, &record) != 0:
            return 1
    return 0


cdef int segment_replay(LogReplay* r, const StoreFile* found, const StoreFile* next) noexcept nogil:
    """Replay one segment. Return 0, 1 if fn stopped it, or -errno."""
    cdef SegmentWalk* w = &r.walk
    cdef uint64_t n
    cdef int error = 0, got
    cdef uint8_t* p
    if r.live:
        p = segment_load_live(r.f, r.hardware, r.dir, found.slot, found.h.number, &n, &error)
        r.loss.moved += p == NULL and error == 0
    else:
        p = segment_load(r.f, r.dir, found.slot, &n, &error)
    w.ended = 0
    if error == -ENOMEM or file_read_error_passes(r.f, error):
        free(p)
        return error
    if p == NULL:
        return 0                        # its content is reported as a gap
    segment_walk_begin(w, p, n, &found.h)
    if next != NULL and next.h.base_lsn - found.h.base_lsn <= w.limit - HEADER_BYTES:
        w.limit = HEADER_BYTES + (next.h.base_lsn - found.h.base_lsn)
        w.bounded = 1
    if r.at_lsn > found.h.base_lsn:
        w.at = w.good = min(w.limit, HEADER_BYTES + (r.at_lsn - found.h.base_lsn))
    got = segment_walk_batch(w, r.hardware)
    while got == 1:
        r.synced_lsn = max(r.synced_lsn, w.synced_lsn)
        got = batch_replay(r)
        if got:
            free(p)
            return got
        got = segment_walk_batch(w, r.hardware)
    free(p)
    w.p = NULL
    if got < 0:
        return -ENOMEM
    r.at_lsn = max(r.at_lsn, lsn_at(w, w.good))
    if next == NULL and not w.ended:
        r.loss.torn_bytes = w.at - w.good       # bytes of the unfinished batch that can be recognised
    return 0


cdef uint64_t tail_find(const StoreListing* l) noexcept nogil:
    """Return the lsn at which the log begins. The header of the active segment names it before a segment is dropped."""
    cdef uint64_t tail = 0
    cdef uint32_t i
    for i in range(l.n):
        if l.files[i].state == SLOT_SEGMENT:
            tail = max(tail, l.files[i].h.tail_lsn)
    return tail


cdef StoreFile* next_segment(StoreListing* l, uint32_t i) noexcept nogil:
    i += 1
    while i < l.n:
        if l.files[i].state == SLOT_SEGMENT:
            return &l.files[i]
        i += 1
    return NULL


cdef bint has_from_lsn(const LogReplay* r, StoreListing* l, uint32_t i) noexcept nogil:
    """Return whether the reader knows only a part of this segment."""
    cdef const StoreFile* next = next_segment(l, i)
    return not r.following and l.files[i].h.base_lsn < r.from_lsn and (next == NULL or next.h.base_lsn > r.from_lsn)


cdef int listed_replay(LogReplay* r, StoreListing* l) noexcept nogil:
    """Replay the listed segments that begin at r.at_lsn or later."""
    cdef StoreFile* found
    cdef uint64_t begin_lsn = r.at_lsn
    cdef uint32_t i
    cdef int got = 0
    for i in range(l.n):
        found = &l.files[i]
        if got:
            return got
        if found.state != SLOT_SEGMENT:
            continue
        if found.h.base_lsn < begin_lsn and not has_from_lsn(r, l, i):  # read before; or dropped before, but its header is not wiped yet
            found.state = SLOT_UNUSED
            continue
        r.loss.segments += 1
        r.loss.moved += r.following and found.h.base_lsn > r.at_lsn        # the broker dropped a segment that was not read yet
        log_loss_add(r, r.at_lsn, found.h.base_lsn)
        r.at_lsn = max(r.at_lsn, found.h.base_lsn)
        got = segment_replay(r, found, next_segment(l, i))
    return got


cdef int followers_replay(LogReplay* r, StoreListing* l) noexcept nogil:
    """Replay the segments that a broker began since the list was read."""
    cdef StoreLoss* loss = r.loss
    cdef uint32_t segments = 0
    cdef int got = 0, tries = LIVE_TRIES
    r.following = 1
    while tries > 0:
        tries -= 1
        if got or not r.walk.ended or loss.segments == segments:
            return got
        segments = loss.segments
        store_listing_free(l)
        got = store_listing_settled(l, r.f, r.hardware, r.dir)
        if got == 0:
            got = listed_replay(r, l)
    loss.moved += 1                         # it writes faster than this reads
    r.walk.ended = 0
    return got


cdef int log_replay_segments(LogReplay* r, StoreListing* l) noexcept nogil:
    cdef StoreLoss* loss = r.loss
    cdef uint32_t i
    cdef int got
    loss.tail_lsn = tail_find(l)
    r.at_lsn = max(loss.tail_lsn, r.from_lsn)
    for i in range(l.n):
        if l.files[i].state == SLOT_ALONE:
            if l.files[i].h.format and memcmp(l.files[i].h.store_id, l.store_id, 16) != 0:
                loss.foreign += 1
            else:
                loss.unreadable += 1
    got = listed_replay(r, l)
    if got == 0 and r.live:
        got = followers_replay(r, l)
    if got == 0 and loss.segments and r.walk.ended:
        log_loss_add(r, r.at_lsn, UINT64_MAX)                   # the last segment announces another one that does not exist
    loss.end_lsn = r.at_lsn
    loss.synced_lsn = min(r.synced_lsn, r.at_lsn)
    return got


cdef void count_unsynced(LogReplay* r) noexcept nogil:
    cdef StoreLoss* loss = r.loss
    cdef StoreRange* range_
    cdef uint32_t i
    for i in range(min(loss.n, <uint32_t>STORE_RANGES_REPORTED)):
        range_ = &loss.ranges[i]
        if range_.hi != UINT64_MAX and range_.hi > r.synced_lsn:
            loss.unsynced_bytes += range_.hi - max(range_.lo, r.synced_lsn)


cdef int log_replay(            # parameters: a directory (three) and its listing, a mode (two), a callback (two), a result
        const FileOps* f, bint hardware, const char* dir, StoreListing* l, bint live, uint64_t from_lsn, store_record_fn fn, void* ctx,
        StoreLoss* loss) noexcept nogil:
    cdef LogReplay r
    cdef int got
    memset(&r, 0, sizeof(LogReplay))
    memset(loss, 0, sizeof(StoreLoss))
    r.f = f
    r.hardware = hardware
    r.dir = dir
    r.live = live
    r.from_lsn = from_lsn
    r.fn = fn
    r.ctx = ctx
    r.loss = loss
    got = log_replay_segments(&r, l)
    count_unsynced(&r)
    segment_walk_end(&r.walk)
    return got
