"""Retention: drop whole segments, oldest first, when they are too old or the stream is too large.

Invariants: the last segment of a shard is never dropped. No record that a consumer has not read is dropped, except for
`retain_bytes`, and that is counted. The mark excludes a segment before the segment is removed, so that a missing file is never
taken for a dropped one, or the reverse. A consumer with an unreadable mark holds back as much as a consumer that has read
nothing. Cost: it reads `consumers/`, so it is not called in every turn.
"""

from libc.errno cimport ENOENT, ENOMEM
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset, strlen

from cext.journal.format cimport CONSUMER_BYTES_MAX, CONSUMER_NAME_MAX, consumer_read
from cext.journal.journal cimport JournalSegment, Shard
from cext.journal.segment cimport segment_forget, segment_unlink
from cext.journal.writer cimport journal_mark, journal_step_failed
from cext.store.file cimport FILE_PATH_MAX, file_read

cdef extern from "<fcntl.h>" nogil:
    int O_RDONLY
    int O_NOFOLLOW


# ---- consumers

cdef bint is_consumer_name(const char* name) noexcept nogil:
    cdef size_t i, n = strlen(name)
    if n == 0 or n > CONSUMER_NAME_MAX or name[0] == c'.':      # names of files being written begin with a dot
        return 0
    for i in range(n):
        if not (c'a' <= name[i] <= c'z' or c'A' <= name[i] <= c'Z' or c'0' <= name[i] <= c'9' or name[i] == c'.' or name[i] == c'_' or name[i] == c'-'):
            return 0
    return 1


cdef int consumers_add_name(void* arg, const char* name) noexcept nogil:
    cdef Consumers* c = <Consumers*>arg
    if not is_consumer_name(name):
        return 0
    if c.n == CONSUMERS_MAX:
        c.unreadable += 1
        return 0
    memcpy(c.names[c.n], name, strlen(name) + 1)
    c.n += 1
    return 0


cdef int consumers_read(const FileOps* f, bint hardware, const char* dir, Consumers* c) noexcept nogil:
    cdef char path[4096]
    cdef uint8_t page[540]
    cdef int64_t got
    cdef uint32_t i
    cdef int fd
    memset(c, 0, sizeof(Consumers))
    snprintf(path, FILE_PATH_MAX, "%s/consumers", dir)
    got = f.names(f.ctx, path, consumers_add_name, c)
    if got < 0:
        return 0 if got == -ENOENT else <int>got
    for i in range(c.n):
        snprintf(path, FILE_PATH_MAX, "%s/consumers/%s", dir, <const char*>c.names[i])
        fd = f.open(f.ctx, path, O_RDONLY | O_NOFOLLOW)
        got = fd
        if fd >= 0:
            got = file_read(f, fd, page, CONSUMER_BYTES_MAX, 0)
            f.close(f.ctx, fd)
        if got < 0 or consumer_read(hardware, page, <uint64_t>got, &c.marks[i]) != 0:
            c.unreadable += 1           # its mark is all zeros: it counts as having read nothing
    return 0


cdef int retain_floors(Journal* j, uint64_t* floors) noexcept nogil:
    """Compute for each shard the number up to which all consumers have processed its records."""
    cdef Consumers* c = <Consumers*>calloc(1, sizeof(Consumers))
    cdef uint32_t i, shard
    cdef int got
    if c == NULL:
        return journal_step_failed(j, -ENOMEM, b"get memory for the consumers of")
    got = consumers_read(&j.files, j.hardware, j.dir, c)
    for shard in range(j.n_shards):
        floors[shard] = UINT64_MAX if c.unreadable == 0 else 0
        for i in range(c.n):
            floors[shard] = min(floors[shard], c.marks[i].seqs[shard])      # 0 if the consumer does not know the shard
    j.writer.stats.consumers = c.n
    j.writer.stats.consumers_unreadable = c.unreadable
    free(c)
    return 0 if got == 0 else journal_step_failed(j, got, b"read the consumers of")


# ---- selection of segments

cdef inline bint may_retire(const Shard* s, uint32_t planned) noexcept nogil:
    """Return whether the oldest remaining segment may be dropped. A start needs abandoned segments until they are written
    again."""
    return planned + 1 < s.n and s.segments[planned + 1].base_seq <= s.synced.seq and s.reached <= s.synced.seq


cdef bint is_old(Journal* j, const Shard* s, uint32_t planned, uint64_t now_us) noexcept nogil:
    """Return whether the segment is too old. Its records are at least as old as the next segment."""
    cdef uint64_t made_us = s.segments[planned + 1].made_us
    return j.options.retain_age_us != 0 and now_us > made_us and now_us - made_us >= j.options.retain_age_us


cdef void retain_count(Journal* j, const JournalSegment* g, uint64_t end_seq, uint64_t floor) noexcept nogil:
    j.writer.stats.retired_segments += 1
    j.writer.stats.retired_records += end_seq - g.base_seq
    if end_seq > floor:
        j.writer.stats.forced_records += end_seq - max(floor, g.base_seq)


cdef void plan_bytes(Journal* j, uint32_t* planned, uint64_t left) noexcept nogil:
    """Select the oldest next segment of all shards, until the rest fits."""
    cdef Shard* s
    cdef uint32_t shard, oldest
    while j.options.retain_bytes and left > j.options.retain_bytes:
        oldest = j.n_shards
        for shard in range(j.n_shards):
            s = &j.writer.shards[shard]
            if may_retire(s, planned[shard]) and (oldest == j.n_shards or s.segments[planned[shard] + 1].made_us
                                                  < j.writer.shards[oldest].segments[planned[oldest] + 1].made_us):
                oldest = shard
        if oldest == j.n_shards:
            return
        left -= j.writer.shards[oldest].segments[planned[oldest]].bytes_
        planned[oldest] += 1


cdef int retain_drop(Journal* j, uint32_t shard, uint32_t n, uint64_t floor) noexcept nogil:
    cdef Shard* s = &j.writer.shards[shard]
    cdef JournalSegment* g
    cdef int got
    while n:
        g = &s.segments[0]
        got = segment_unlink(j, shard, g.base_seq, g.number)
        if got < 0:
            return journal_step_failed(j, got, b"remove a segment from")
        retain_count(j, g, s.segments[1].base_seq, floor)
        segment_forget(j, shard, 0)
        n -= 1
    return 0


cdef int journal_retain(Journal* j, uint64_t now_us) noexcept nogil:
    cdef uint64_t floors[64]
    cdef uint32_t planned[64]
    cdef uint64_t left = j.writer.stats.total_bytes
    cdef Shard* s
    cdef uint32_t shard
    cdef bint any = 0
    cdef int outcome = 0
    if retain_floors(j, floors) < 0:
        return -1
    for shard in range(j.n_shards):
        s = &j.writer.shards[shard]
        planned[shard] = 0
        # the mark has excluded these before
        while may_retire(s, planned[shard]) and (s.segments[planned[shard] + 1].base_seq <= s.synced.first_seq
                                                 or (is_old(j, s, planned[shard], now_us)
                                                     and s.segments[planned[shard] + 1].base_seq <= floors[shard])):
            left -= s.segments[planned[shard]].bytes_
            planned[shard] += 1
    plan_bytes(j, planned, left)
    for shard in range(j.n_shards):
        if planned[shard]:
            any = 1
            s = &j.writer.shards[shard]
            s.synced.first_seq = max(s.synced.first_seq, s.segments[planned[shard]].base_seq)
    if not any:
        return 0
    if journal_mark(j, now_us) < 0:
        return -1
    for shard in range(j.n_shards):
        if retain_drop(j, shard, planned[shard], floors[shard]) < 0:
            outcome = -1
    return outcome
