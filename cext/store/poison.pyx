"""A failed fdatasync poisons its segment. The system has reported the loss once and may call the same pages clean the next time, so that
descriptor is never asked again: what was not synced is written to a new segment, from memory where it is still there (batches are kept until they are
synced), else from what can be read and has its checks.

Invariant: the new segment gets its header last, so it is there whole or not at all; until then the poisoned one stays as it is.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from cext.base.words cimport load32
from cext.store.file cimport file_write
from cext.store.format cimport HEADER_BYTES, RECORD_ALIGN, RECORD_DAMAGED, record_at, record_bytes, record_seal
from cext.store.replay cimport segment_load
from cext.store.segment cimport batch_check, header_put, header_seed_of, row_count, segment_close, segment_insert, segment_remove
from cext.store.spare cimport file_discard, file_take
from cext.store.store cimport Batch, Segment, Store, StoreWriter


cdef void records_copy(Store* s, const Segment* g, const uint8_t* p, uint64_t n, const Segment* fresh, uint8_t* out, uint64_t out_n) noexcept nogil:
    # Of g, read to p, what belongs to fresh's first out_n bytes of records. What cannot be read stays zero: the next start says so.
    cdef uint64_t at = 0, offset = HEADER_BYTES + (fresh.base_lsn - g.base_lsn), budget = 4 * n
    cdef long got
    while at < out_n and offset + at < n and budget:
        got = record_at(s.hardware, p + offset + at, min(n - offset - at, out_n - at), g.seed, fresh.base_lsn + at)
        if got >= 0:
            memcpy(out + at, p + offset + at, record_bytes(<uint32_t>got))
            record_seal(s.hardware, out + at, fresh.seed, fresh.base_lsn + at)
            at += record_bytes(<uint32_t>got)
            continue
        if got == RECORD_DAMAGED:
            budget -= min(budget, <uint64_t>load32(p + offset + at + 4))
        at += RECORD_ALIGN


cdef int copy_from_file(Store* s, const Segment* g, const Segment* fresh, uint64_t end_lsn) noexcept nogil:
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


cdef int copy_all(Store* s, const Segment* g, Segment* fresh) noexcept nogil:
    cdef Batch* b = s.writer.kept.head
    cdef uint64_t memory_lsn = fresh.end_lsn if b == NULL else min(b.lsn, fresh.end_lsn)
    cdef int got = 0
    if fresh.base_lsn < memory_lsn:
        got = copy_from_file(s, g, fresh, memory_lsn)
    while b != NULL and b.lsn < fresh.end_lsn and got == 0:
        batch_check(s, fresh, b)
        got = file_write(&s.files, fresh.fd, b.p, b.n, HEADER_BYTES + (b.lsn - fresh.base_lsn))
        b = b.next
    if got == 0:
        got = s.files.datasync(s.files.ctx, fresh.fd)
    return header_put(s, fresh) if got == 0 else got


cdef int segment_rewrite(Store* s, uint32_t i, const char** what) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef Segment* g = &w.segments[i]
    cdef Segment fresh
    cdef Segment* place
    cdef uint64_t lo = max(g.base_lsn, w.synced), hi = g.end_lsn
    cdef int got
    what[0] = "write anew what could not be synced in"
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
    got = copy_all(s, g, &fresh)
    place = segment_insert(s, i + 1) if got == 0 else NULL
    if place == NULL:
        file_discard(s, &fresh)
        return got if got else -ENOMEM
    place[0] = fresh
    g = &w.segments[i]
    g.end_lsn = lo
    g.dirty = 0
    segment_close(s, g)
    if g.base_lsn == lo:                # nothing of it counts any more
        file_discard(s, g)
        segment_remove(s, i)
    row_count(s)
    w.stats.poisoned += 1
    return 0
