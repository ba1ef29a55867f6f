"""Files for segments. This module knows sizes and names. It does not know the content of a segment.

Invariants: a name (slot) belongs to one file. The spare begins with a wiped header, which is on the disk if the store was ever
asked to sync. At most one spare is kept, and one more file that becomes the next spare; other free files are removed. Unreserved
files (FileOps) have no spare, and no free file is kept. Cost: a spare is written in steps, and the storage thread writes waiting batches between the steps.
"""

from libc.errno cimport EDQUOT, ENOMEM, ENOSPC
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memset

from cext.store.file cimport file_write
from cext.store.format cimport HEADER_BYTES, SEGEND_BYTES
from cext.store.replay cimport store_segment_path
from cext.store.state cimport STORE_SYNC_NEVER, Store, StoreSegment, StoreWriter

cdef extern from "<fcntl.h>" nogil:
    int O_RDWR
    int O_CREAT
    int O_EXCL
    int O_NOFOLLOW

cdef enum:
    ZEROS_BYTES = 64 << 10
    SPARE_STEP_BYTES = 1 << 20
    SLOTS_KEPT = 1              # dropped segments whose files become the next spare instead of a new file

cdef uint8_t ZEROS[65536]       # constant


cdef int slot_free(Store* s, uint32_t slot) noexcept nogil:
    cdef uint32_t* more = <uint32_t*>realloc(s.writer.slots, (s.writer.n_slots + 1) * sizeof(uint32_t))
    if more == NULL:
        return -ENOMEM
    s.writer.slots = more
    more[s.writer.n_slots] = slot
    s.writer.n_slots += 1
    return 0


cdef void segment_reset(StoreSegment* g) noexcept nogil:
    memset(g, 0, sizeof(StoreSegment))
    g.fd = -1


cdef void file_discard(Store* s, StoreSegment* g) noexcept nogil:
    cdef char path[4096]
    if g.fd >= 0:
        s.files.close(s.files.ctx, g.fd)
    store_segment_path(path, s.dir, g.slot)
    s.files.unlink(s.files.ctx, path)       # if this fails, the next start finds the file free
    segment_reset(g)


cdef int segment_file_new(Store* s, StoreSegment* g) noexcept nogil:
    """Open a file with its own name: a free one, or a new one. Return 0 or -errno."""
    cdef StoreWriter* w = &s.writer
    cdef char path[4096]
    cdef int fd, flags = O_RDWR | O_CREAT | O_NOFOLLOW
    cdef uint32_t slot = w.slots[w.n_slots - 1] if w.n_slots else w.slot_last + 1
    store_segment_path(path, s.dir, slot)
    fd = s.files.open(s.files.ctx, path, flags if w.n_slots else flags | O_EXCL)
    if fd < 0:
        return fd
    if w.n_slots:
        w.n_slots -= 1
    else:
        w.slot_last = slot
    segment_reset(g)
    g.slot = slot
    g.fd = fd
    w.dir_dirty = 1
    return 0


cdef int file_take(Store* s, uint64_t need, StoreSegment* g) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef int got
    if w.spare.slot and HEADER_BYTES + need + SEGEND_BYTES <= w.spare.capacity:
        g[0] = w.spare
        g.allocated = w.spare_done
        segment_reset(&w.spare)
        w.spare_done = 0
        return 0
    got = segment_file_new(s, g)
    if got == 0:
        g.allocated = <uint64_t>max(<int64_t>0, s.files.size(s.files.ctx, g.fd))
        g.capacity = max(s.options.segment_bytes, (HEADER_BYTES + need + SEGEND_BYTES + 4095) & ~<uint64_t>4095)
    return got


cdef int file_wipe(Store* s, StoreSegment* g, uint64_t at) noexcept nogil:
    cdef int got = 0
    while at < g.allocated and got == 0:
        got = file_write(&s.files, g.fd, ZEROS, min(<uint64_t>ZEROS_BYTES, g.allocated - at), at)
        at += ZEROS_BYTES
    if got == 0 and s.options.sync != STORE_SYNC_NEVER:
        got = s.files.datasync(s.files.ctx, g.fd)
        g.poisoned = got < 0
    return got


cdef int spare_sync(Store* s) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef int got = s.files.datasync(s.files.ctx, w.spare.fd) if w.sync_wanted else 0
    w.spare.poisoned = got < 0
    return got


cdef int spare_wipe(Store* s) noexcept nogil:
    cdef int got = file_write(&s.files, s.writer.spare.fd, ZEROS, HEADER_BYTES, 0)
    return spare_sync(s) if got == 0 else got


cdef int spare_begin(Store* s) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef int64_t size
    cdef int got = segment_file_new(s, &w.spare)
    if got < 0:
        return got
    w.spare.capacity = s.options.segment_bytes
    w.spare_done = 0
    size = s.files.size(s.files.ctx, w.spare.fd)
    if size > <int64_t>w.spare.capacity:
        got = s.files.truncate(s.files.ctx, w.spare.fd, w.spare.capacity)
    elif size == <int64_t>w.spare.capacity:         # it was a segment or a spare before
        got = spare_wipe(s)
        w.spare_done = w.spare.capacity if got == 0 else 0
    return got


cdef int spare_write(Store* s) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef uint64_t n, end = min(w.spare.capacity, w.spare_done + SPARE_STEP_BYTES)
    cdef int got
    while w.spare_done < end:
        n = min(<uint64_t>ZEROS_BYTES, end - w.spare_done)
        got = file_write(&s.files, w.spare.fd, ZEROS, n, w.spare_done)
        if got < 0:
            return got
        w.spare_done += n
    return spare_sync(s)


cdef bint slot_discard(Store* s) noexcept nogil:
    """Remove the last free file. Return whether there are more."""
    cdef StoreSegment old
    s.writer.n_slots -= 1
    segment_reset(&old)
    old.slot = s.writer.slots[s.writer.n_slots]
    file_discard(s, &old)
    return s.writer.n_slots > 0


cdef int spare_prepare(Store* s) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef bint no_room
    cdef int got = 0
    if s.files.unreserved:
        return slot_discard(s) if w.n_slots else 0
    if w.spare.slot == 0:
        got = spare_begin(s)
        if got < 0 and w.spare.slot == 0:
            return got
    if got == 0 and w.spare_done < w.spare.capacity:
        got = spare_write(s)
    if got < 0:
        no_room = (got == -ENOSPC or got == -EDQUOT) and not w.spare.poisoned
        if not no_room or w.n_slots:    # its content is unreliable, or another free file has the room that is missing here
            file_discard(s, &w.spare)
            w.spare_done = 0
        return 1 if no_room and w.n_slots else got
    if w.spare_done < w.spare.capacity:
        return 1
    if w.n_slots > SLOTS_KEPT:
        slot_discard(s)
    return w.n_slots > SLOTS_KEPT


cdef bint file_keep(Store* s, StoreSegment* g) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef int64_t size
    if s.files.unreserved or g.poisoned or g.fd < 0 or w.n_slots >= SLOTS_KEPT or g.capacity != s.options.segment_bytes:
        return 0
    size = s.files.size(s.files.ctx, g.fd)
    if size < HEADER_BYTES or size > <int64_t>g.capacity or file_write(&s.files, g.fd, ZEROS, HEADER_BYTES, 0) < 0:
        return 0
    if (w.sync_wanted and s.files.datasync(s.files.ctx, g.fd) < 0) or slot_free(s, g.slot) < 0:
        return 0
    s.files.close(s.files.ctx, g.fd)
    segment_reset(g)
    return 1
