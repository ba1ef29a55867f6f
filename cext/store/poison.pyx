"""Rewrite a segment after a failed fdatasync. The system reports the loss once and may call the same pages clean the next time,
so the store never syncs that descriptor again. It writes the unsynced part to a new segment: from memory if the batches are still
there (a batch stays in memory until it is synced), otherwise from those records that can be read and have valid checksums.

Invariant: the header of the new segment is written last, so the new segment is complete or does not exist. Until then the
records of the poisoned segment stay, and its header says that its sync failed.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from cext.base.words cimport load32
from cext.store.file cimport file_write
from cext.store.format cimport HEADER_BYTES, RECORD_DAMAGED, STORE_RECORD_ALIGN, log_record_at, record_bytes, record_seal
from cext.store.replay cimport segment_load
from cext.store.segment cimport batch_check, header_put, header_seed_of, segments_measure, segment_close, segment_insert, segment_remove
from cext.store.spare cimport file_discard, file_take
from cext.store.state cimport Store, StoreBatch, StoreSegment, StoreWriter


cdef void records_copy(Store* s, const StoreSegment* g, const uint8_t* p, uint64_t n, const StoreSegment* fresh, uint8_t* out,
                       uint64_t out_n) noexcept nogil:
    """Copy those records of g, whose n bytes are at p, that belong to the first out_n bytes of fresh. Unreadable places stay
    zero, and the next recovery reports them."""
    cdef uint64_t at = 0, offset = HEADER_BYTES + (fresh.base_lsn - g.base_lsn), budget = 4 * n
    cdef long got
    while at < out_n and offset + at < n and budget:
        got = log_record_at(s.hardware, p + offset + at, min(n - offset - at, out_n - at), g.seed, fresh.base_lsn + at)
        if got >= 0:
            memcpy(out + at, p + offset + at, record_bytes(<uint32_t>got))
            record_seal(s.hardware, out + at, fresh.seed, fresh.base_lsn + at)
            at += record_bytes(<uint32_t>got)
            continue
        if got == RECORD_DAMAGED:
            budget -= min(budget, <uint64_t>load32(p + offset + at + 4))
        at += STORE_RECORD_ALIGN


cdef int segment_copy_from_file(Store* s, const StoreSegment* g, const StoreSegment* fresh, uint64_t end_lsn) noexcept nogil:
    cdef uint64_t n, out_n = end_lsn - fresh.base_lsn
    cdef int got = 0
    cdef uint8_t* out
    cdef uint8_t* p = segment_load(&s.files, s.dir, g.slot, &n, &got)
    if p == NULL:
        return got
    out = <uint8_t*>calloc(1, out_n)
    if out == NULL:
        got = -ENOMEM
    else:
        records_copy(s, g, p, n, fresh, out, out_n)
        got = file_write(&s.files, fresh.fd, out, out_n, HEADER_BYTES)
    free(out)
    free(p)
    return got


cdef int segment_copy(Store* s, const StoreSegment* g, StoreSegment* fresh) noexcept nogil:
    cdef StoreBatch* b = s.writer.unsynced.head
    cdef uint64_t memory_lsn = fresh.end_lsn if b == NULL else min(b.lsn, fresh.end_lsn)
    cdef int got = 0
    if fresh.base_lsn < memory_lsn:
        got = segment_copy_from_file(s, g, fresh, memory_lsn)
    while b != NULL and b.lsn < fresh.end_lsn and got == 0:
        batch_check(s, fresh, b)
        got = file_write(&s.files, fresh.fd, b.p, b.n, HEADER_BYTES + (b.lsn - fresh.base_lsn))
        b = b.next
    if got == 0:
        got = s.files.datasync(s.files.ctx, fresh.fd)
    return header_put(s, fresh) if got == 0 else got


cdef int segment_rewrite(Store* s, uint32_t i, const char** action) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef StoreSegment* g = &w.segments[i]
    cdef StoreSegment fresh
    cdef StoreSegment* place
    cdef uint64_t lo = max(g.base_lsn, w.synced), hi = g.end_lsn
    cdef int got
    action[0] = "rewrite the unsynced records in"
    if lo >= hi:
        g.dirty = 0
        return 0
    got = file_take(s, hi - lo, &fresh)
    if got < 0:
        return got
    w.number_last += 1
    fresh.number = w.number_last
    fresh.base_lsn = lo
    fresh.end_lsn = hi
    header_seed_of(s, &fresh)
    got = segment_copy(s, g, &fresh)
    place = segment_insert(s, i + 1) if got == 0 else NULL
    if place == NULL:
        file_discard(s, &fresh)
        return got if got else -ENOMEM
    place[0] = fresh
    g = &w.segments[i]
    g.end_lsn = lo
    g.dirty = 0
    segment_close(s, g)
    if g.base_lsn == lo:                # the new segment holds all of it
        file_discard(s, g)
        segment_remove(s, i)
    segments_measure(s)
    w.stats.poisoned += 1
    return 0
