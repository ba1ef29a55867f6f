"""Reading a log back: files -> segments in order -> batches -> records. Knows the format; changes nothing, so that tools may use it on a live store.

What counts: a batch with its COMMIT; and, where a later segment begins, all that lies before its beginning, since a new segment begins only
behind what was committed. What is damaged is stepped over to the next valid record; behind the last COMMIT nothing is damaged, only torn.
Cost: each byte is checked once, and those in search of a valid record a bounded number of times more; memory: one segment.
"""

from libc.errno cimport EFBIG, ENOMEM
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf, sscanf
from libc.stdlib cimport free, malloc, qsort, realloc
from libc.string cimport memcmp, memcpy, memset, strlen, strncmp

from cext.base.words cimport load32, load64
from cext.store.file cimport FILE_PATH_MAX, FileOps, file_read
from cext.store.format cimport (
    COMMIT_BODY, FORMAT, HEADER_BYTES, Header, KIND_COMMIT, KIND_SEGEND, RECORD_ALIGN, RECORD_DAMAGED, RECORD_HEAD, SEGEND_BODY,
    STORE_KIND_MAX, header_read, record_at, record_bytes,
)
from cext.store.store cimport STORE_RANGES_REPORTED, STORE_SEGMENT_BYTES_MAX, StoreLoss, StoreRange, StoreRecord, store_record_fn

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY
    int O_NOFOLLOW

cdef enum:
    LOAD_BYTES = 1 << 20        # one read; what cannot be read costs so much at most
    SEARCH_FACTOR = 4           # bytes checked in search of a record, per byte of the segment


cdef void path_of(char* out, const char* dir, uint32_t slot) noexcept nogil:
    snprintf(out, FILE_PATH_MAX, "%s/segment.%06u", dir, slot)


# ---- which files there are

cdef struct Naming:
    Listing* l
    const FileOps* f
    const char* dir
    bint hardware


cdef Found* listing_add(Listing* l) noexcept nogil:
    cdef Found* more
    cdef uint32_t cap
    if l.n == l.cap:
        cap = l.cap * 2 if l.cap else 16
        more = <Found*>realloc(l.files, cap * sizeof(Found))
        if more == NULL:
            return NULL
        l.files = more
        l.cap = cap
    l.n += 1
    memset(&l.files[l.n - 1], 0, sizeof(Found))
    return &l.files[l.n - 1]


cdef bint all_zero(const uint8_t* p, uint64_t n) noexcept nogil:
    cdef uint64_t i
    for i in range(n):
        if p[i] != 0:
            return 0
    return 1


cdef void file_look(Naming* a, Found* found) noexcept nogil:
    # What the file of found.slot is, by its header.
    cdef char path[4096]
    cdef uint8_t head[4096]
    cdef int64_t got, size
    cdef int fd
    found.state = SLOT_ALONE
    path_of(path, a.dir, found.slot)
    fd = a.f.open(a.f.ctx, path, O_RDONLY | O_NOFOLLOW)
    if fd < 0:
        return
    size = a.f.size(a.f.ctx, fd)
    memset(head, 0, HEADER_BYTES)
    got = file_read(a.f, fd, head, HEADER_BYTES, 0)
    a.f.close(a.f.ctx, fd)
    if got < 0 or size < 0:
        return
    found.size = <uint64_t>size
    if header_read(a.hardware, head, &found.h) == 0:
        if found.h.format > FORMAT:
            a.l.format = found.h.format
        elif found.h.capacity <= STORE_SEGMENT_BYTES_MAX and found.h.base_lsn < UINT64_MAX // 2 and found.h.number < UINT64_MAX // 2:
            found.state = SLOT_SEGMENT
    elif all_zero(head, HEADER_BYTES):
        found.state = SLOT_UNUSED


cdef int name_seen(void* arg, const char* name) noexcept nogil:
    cdef Naming* a = <Naming*>arg
    cdef unsigned int slot = 0
    cdef char again[32]
    cdef Found* found
    if strncmp(name, "segment.", 8) != 0 or strlen(name) > 20 or sscanf(name + 8, "%u", &slot) != 1 or slot == 0 or slot > SLOTS_MAX:
        return 0
    snprintf(again, sizeof(again), "segment.%06u", slot)
    if strncmp(again, name, sizeof(again)) != 0:
        return 0
    found = listing_add(a.l)
    if found == NULL:
        return -ENOMEM
    found.slot = slot
    file_look(a, found)
    return 0


cdef int by_base(const void* a, const void* b) noexcept nogil:
    cdef const Found* x = <const Found*>a
    cdef const Found* y = <const Found*>b
    if x.h.base_lsn != y.h.base_lsn:
        return -1 if x.h.base_lsn < y.h.base_lsn else 1
    if x.h.number != y.h.number:
        return -1 if x.h.number < y.h.number else 1
    return -1 if x.slot < y.slot else 1


cdef int listing_read(Listing* l, const FileOps* f, bint hardware, const char* dir) noexcept nogil:
    cdef Naming a
    cdef uint32_t i
    cdef uint64_t newest = 0
    a.l = l
    a.f = f
    a.dir = dir
    a.hardware = hardware
    memset(l, 0, sizeof(Listing))
    l.error = f.names(f.ctx, dir, name_seen, &a)
    if l.error < 0:
        return l.error
    for i in range(l.n):        # the newest segment says which store this is
        if l.files[i].state == SLOT_SEGMENT and l.files[i].h.number >= newest:
            newest = l.files[i].h.number
            memcpy(l.store_id, l.files[i].h.store_id, 16)
            l.known = 1
    for i in range(l.n):
        if l.files[i].state == SLOT_SEGMENT and memcmp(l.files[i].h.store_id, l.store_id, 16) != 0:
            l.files[i].state = SLOT_ALONE
    if l.n:
        qsort(l.files, l.n, sizeof(Found), by_base)
    return 0


cdef void listing_free(Listing* l) noexcept nogil:
    free(l.files)
    memset(l, 0, sizeof(Listing))


cdef uint8_t* segment_load(const FileOps* f, const char* dir, uint32_t slot, uint64_t* n, int* error) noexcept nogil:
    cdef char path[4096]
    cdef uint8_t* p
    cdef uint64_t done = 0, want
    cdef int64_t got, size
    cdef int fd
    n[0] = 0
    path_of(path, dir, slot)
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
        if got < <int64_t>want:         # unreadable, or the file became shorter: a hole
            memset(p + done + (got if got > 0 else 0), 0, want - <uint64_t>(got if got > 0 else 0))
        done += want
    f.close(f.ctx, fd)
    n[0] = <uint64_t>size
    return p


# ---- through one segment

cdef void walk_begin(Walk* w, const uint8_t* p, uint64_t n, const Header* h) noexcept nogil:
    cdef uint32_t* found = w.found
    cdef uint32_t cap = w.cap
    memset(w, 0, sizeof(Walk))
    w.found = found             # kept from segment to segment
    w.cap = cap
    w.p = p
    w.n = min(n, h.capacity)
    w.seed = h.seed
    w.base_lsn = h.base_lsn
    w.at = w.good = HEADER_BYTES
    w.limit = max(w.n, <uint64_t>HEADER_BYTES)      # a file that is shorter than its header holds nothing
    w.budget = w.n * SEARCH_FACTOR


cdef void walk_end(Walk* w) noexcept nogil:
    free(w.found)
    w.found = NULL
    w.cap = 0


cdef inline uint64_t lsn_at(const Walk* w, uint64_t at) noexcept nogil:
    return w.base_lsn + (at - HEADER_BYTES)


cdef bint note_found(Walk* w, uint64_t at) noexcept nogil:
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


cdef void note_hole(Walk* w, uint64_t lo, uint64_t hi) noexcept nogil:
    if w.n_holes < HOLES_MAX:
        w.hole_lo[w.n_holes] = lo
        w.n_holes += 1
    w.hole_hi[w.n_holes - 1] = hi


cdef uint64_t search(Walk* w, bint hardware, uint64_t at) noexcept nogil:
    # The next place with a valid record, or limit.
    cdef long n
    while at + RECORD_HEAD <= w.limit and w.budget:
        n = record_at(hardware, w.p + at, w.limit - at, w.seed, lsn_at(w, at))
        if n >= 0:
            return at
        if n == RECORD_DAMAGED:         # its body was read: that is paid for
            w.budget -= min(w.budget, <uint64_t>load32(w.p + at + 4))
        at += RECORD_ALIGN
    return w.limit


cdef int walk_batch(Walk* w, bint hardware) noexcept nogil:
    cdef uint64_t at, next
    cdef long n
    w.n_found = w.n_holes = 0
    while w.at + RECORD_HEAD <= w.limit and not w.ended:
        at = w.at
        n = record_at(hardware, w.p + at, w.limit - at, w.seed, lsn_at(w, at))
        if n < 0:
            next = search(w, hardware, at + RECORD_ALIGN)
            if next >= w.limit and not w.bounded:
                break
            note_hole(w, at, next)
            w.at = next
            continue
        w.at = at + record_bytes(<uint32_t>n)
        if w.p[at + 8] == KIND_COMMIT and n == COMMIT_BODY:
            w.synced_lsn = load64(w.p + at + RECORD_HEAD + 8)
            w.good = w.at
            return 1
        if w.p[at + 8] == KIND_SEGEND and n == SEGEND_BODY and load64(w.p + at + RECORD_HEAD) == lsn_at(w, at):
            w.ended = 1
            w.at = at
        elif w.p[at + 8] <= STORE_KIND_MAX and not note_found(w, at):
            return -1
    if w.bounded or w.ended:            # its COMMIT is damaged, but something was written behind it
        if w.bounded and w.at < w.limit and not w.ended:
            note_hole(w, w.at, w.limit)
            w.at = w.limit
        if w.at > w.good:
            w.good = w.at
            return 1
    w.n_found = w.n_holes = 0
    return 0


cdef void walk_record(const Walk* w, uint32_t at, StoreRecord* r) noexcept nogil:
    cdef const uint8_t* p = w.p + at
    r.lsn = lsn_at(w, at)
    r.kind = p[8]
    r.flags = p[9]
    r.body.p = p + RECORD_HEAD
    r.body.n = load32(p + 4)


# ---- through all

cdef struct Replay:
    const FileOps* f
    const char* dir
    bint hardware
    bint live
    store_record_fn fn
    void* ctx
    StoreLoss* loss
    Walk walk
    uint64_t at_lsn             # all below was read, or is lost
    uint64_t synced_lsn         # the highest that was said to be on the disk


cdef void lose(Replay* r, uint64_t lo, uint64_t hi) noexcept nogil:
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


cdef int batch_give(Replay* r) noexcept nogil:
    cdef Walk* w = &r.walk
    cdef StoreRecord record
    cdef uint32_t i
    for i in range(w.n_holes):
        lose(r, lsn_at(w, w.hole_lo[i]), lsn_at(w, w.hole_hi[i]))
    r.loss.batches += 1
    for i in range(w.n_found):
        walk_record(w, w.found[i], &record)
        r.loss.records += 1
        if r.fn != NULL and r.fn(r.ctx, &record) != 0:
            return 1
    return 0


cdef bint still_there(Replay* r, const Found* found) noexcept nogil:
    # Of a live store: was the file given to another segment while it was read?
    cdef Naming a
    cdef Found again
    cdef Listing l
    memset(&l, 0, sizeof(Listing))
    a.l = &l
    a.f = r.f
    a.dir = r.dir
    a.hardware = r.hardware
    again.slot = found.slot
    file_look(&a, &again)
    return again.state == SLOT_SEGMENT and again.h.number == found.h.number


cdef int segment_replay(Replay* r, const Found* found, const Found* next) noexcept nogil:
    # 0, 1: stopped, -errno
    cdef Walk* w = &r.walk
    cdef uint64_t n
    cdef int error = 0, got
    cdef uint8_t* p = segment_load(r.f, r.dir, found.slot, &n, &error)
    w.ended = 0
    if p == NULL:
        return error if error == -ENOMEM else 0         # what it held shows as a gap
    if r.live and not still_there(r, found):
        r.loss.moved += 1
        free(p)
        return 0
    walk_begin(w, p, n, &found.h)
    if next != NULL and next.h.base_lsn - found.h.base_lsn <= w.limit - HEADER_BYTES:
        w.limit = HEADER_BYTES + (next.h.base_lsn - found.h.base_lsn)
        w.bounded = 1
    if r.at_lsn > found.h.base_lsn:
        w.at = w.good = min(w.limit, HEADER_BYTES + (r.at_lsn - found.h.base_lsn))
    got = walk_batch(w, r.hardware)
    while got == 1:
        r.synced_lsn = max(r.synced_lsn, w.synced_lsn)
        got = batch_give(r)
        if got:
            free(p)
            return got
        got = walk_batch(w, r.hardware)
    free(p)
    w.p = NULL
    if got < 0:
        return -ENOMEM
    r.at_lsn = max(r.at_lsn, lsn_at(w, w.good))
    if next == NULL and not w.ended:
        r.loss.torn_bytes = w.at - w.good       # how far an unfinished batch had come, as far as it can be told
    return 0


cdef uint64_t tail_find(const Listing* l) noexcept nogil:
    # Where the log begins: the active segment's header is told before anything is dropped.
    cdef uint64_t tail = 0
    cdef uint32_t i
    for i in range(l.n):
        if l.files[i].state == SLOT_SEGMENT:
            tail = max(tail, l.files[i].h.tail_lsn)
    return tail


cdef Found* next_segment(Listing* l, uint32_t i) noexcept nogil:
    i += 1
    while i < l.n:
        if l.files[i].state == SLOT_SEGMENT:
            return &l.files[i]
        i += 1
    return NULL


cdef int replay_all(Replay* r, Listing* l) noexcept nogil:
    cdef StoreLoss* loss = r.loss
    cdef Found* found
    cdef uint32_t i
    cdef int got = 0
    r.at_lsn = loss.tail_lsn = tail_find(l)
    for i in range(l.n):
        found = &l.files[i]
        if got:
            return got
        if found.state == SLOT_ALONE:
            if found.h.format and memcmp(found.h.store_id, l.store_id, 16) != 0:
                loss.foreign += 1
            else:
                loss.unreadable += 1
        if found.state != SLOT_SEGMENT:
            continue
        if found.h.base_lsn < loss.tail_lsn:            # dropped before, its header not wiped yet
            found.state = SLOT_UNUSED
            continue
        loss.segments += 1
        lose(r, r.at_lsn, found.h.base_lsn)
        r.at_lsn = max(r.at_lsn, found.h.base_lsn)
        got = segment_replay(r, found, next_segment(l, i))
    if got == 0 and loss.segments and r.walk.ended:
        lose(r, r.at_lsn, UINT64_MAX)                   # the last segment says that another one follows
    loss.end_lsn = r.at_lsn
    loss.synced_lsn = min(r.synced_lsn, r.at_lsn)
    return got


cdef void count_unsynced(Replay* r) noexcept nogil:
    cdef StoreLoss* loss = r.loss
    cdef StoreRange* range_
    cdef uint32_t i
    for i in range(min(loss.n, <uint32_t>STORE_RANGES_REPORTED)):
        range_ = &loss.ranges[i]
        if range_.hi != UINT64_MAX and range_.hi > r.synced_lsn:
            loss.unsynced_bytes += range_.hi - max(range_.lo, r.synced_lsn)


cdef int replay(const FileOps* f, bint hardware, const char* dir, Listing* l, bint live, store_record_fn fn, void* ctx,
                StoreLoss* loss) noexcept nogil:
    cdef Replay r
    cdef int got
    memset(&r, 0, sizeof(Replay))
    memset(loss, 0, sizeof(StoreLoss))
    r.f = f
    r.hardware = hardware
    r.dir = dir
    r.live = live
    r.fn = fn
    r.ctx = ctx
    r.loss = loss
    got = replay_all(&r, l)
    count_unsynced(&r)
    walk_end(&r.walk)
    return got
