"""What is asked for of streams is read and matched, by the storage thread, between its batches. Knows files and filters; not who wants it.

Invariants: nothing is read whose batch is not written, so that nobody is sent what a start would drop, nor what was given up and is to be written anew: but
for that, readers of files wait for the mark, these do not. A turn reads for SERVES_MAX asks at most, and reads READ_MAX_BYTES of records for each, wanted or not, so that
batches do not wait. Who has nothing to get stays, and costs a comparison per shard and turn.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, realloc

from cext.base.clock cimport clock_monotonic_us
from cext.broker.persist.streams cimport Stream
from cext.broker.replay.cursor cimport Cursors, PLACE_TIME, READ_REQUEST_BYTES, ReadRecord, ReadRequest
from cext.journal.journal cimport loss_add
from cext.journal.reader cimport Reader, reader_close, reader_next, reader_open, reader_seek, reader_seek_time
from cext.journal.record cimport JOURNAL_MESSAGE, JournalRecord, record_bytes, record_put
from cext.topic.name cimport filter_matches

cdef enum:
    SERVES_MAX = 8
    READ_MAX_BYTES = 1 << 20    # and one record more: commits wait meanwhile
    AGAIN_US = 250000           # after something could not be read


cdef inline uint64_t end_of(const Stream* s, uint32_t shard) noexcept nogil:
    return min(s.committed[shard], s.journal.writer.shards[shard].written)


cdef inline bint shard_has_news(const ReadRequest* a, uint32_t shard) noexcept nogil:
    return not a.found >> shard & 1 or a.seqs[shard] < end_of(a.stream, shard)


cdef bint has_news(const ReadRequest* a) noexcept nogil:
    cdef uint32_t shard
    for shard in range(a.stream.journal.n_shards):
        if shard_has_news(a, shard):
            return 1
    return 0


cdef int entry_add(ReadRequest* a, uint32_t shard, const JournalRecord* r) noexcept nogil:
    cdef uint64_t n = record_bytes(r)
    cdef uint64_t need = a.n + sizeof(ReadRecord) + n
    cdef ReadRecord* e
    cdef uint8_t* p
    if need > a.cap:
        p = <uint8_t*>realloc(a.p, max(need, min(a.cap * 2, <uint64_t>READ_REQUEST_BYTES + 4096)))
        if p == NULL:
            return -ENOMEM
        a.p = p
        a.cap = max(need, min(a.cap * 2, <uint64_t>READ_REQUEST_BYTES + 4096))
    e = <ReadRecord*>(a.p + a.n)
    e.seq = r.seq
    e.shard = shard
    e.n = <uint32_t>n
    record_put(<uint8_t*>(e + 1), n, 0, r)
    a.n = need
    return 0


cdef int begin(ReadRequest* a, Reader* r, uint32_t shard) noexcept nogil:
    """At a.seqs[shard], which may have to be found first. 0 or -errno"""
    cdef uint64_t end = end_of(a.stream, shard)
    cdef int got = reader_open(r, a.stream.journal.dir, shard, &a.stream.journal.files)
    if got < 0:
        return got
    r.end = end
    if not a.found >> shard & 1:
        if a.place == PLACE_TIME:
            got = reader_seek_time(r, a.time_us)
            if got == 0 and r.seq >= r.end:
                a.ahead |= <uint64_t>1 << shard
            r.end = end
        if got < 0:
            return got
        a.seqs[shard] = r.seq if a.place == PLACE_TIME else r.marks.shards[shard].first_seq
        a.found |= <uint64_t>1 << shard
    return reader_seek(r, a.seqs[shard])


cdef bint is_reached(ReadRequest* a, uint32_t shard, uint64_t time_us) noexcept nogil:
    """A time to come begins with the first record that is not older."""
    if a.ahead >> shard & 1 and time_us >= a.time_us:
        a.ahead &= ~(<uint64_t>1 << shard)
    return not a.ahead >> shard & 1


cdef int shard_read(ReadRequest* a, Reader* r, uint32_t shard, uint64_t* left) noexcept nogil:
    cdef JournalRecord record
    cdef uint32_t i
    cdef int got = begin(a, r, shard)
    while got >= 0 and left[0] and a.n < READ_REQUEST_BYTES:
        got = reader_next(r, r.end, &record)
        if got != 1:
            break
        left[0] -= min(left[0], record_bytes(&record))
        if is_reached(a, shard, record.time_us) and record.kind == JOURNAL_MESSAGE and filter_matches(a.filter, record.topic):
            got = entry_add(a, shard, &record)
            if got < 0:
                break            # it is read again
        a.seqs[shard] = record.seq + 1
    if got == 0:
        a.seqs[shard] = max(a.seqs[shard], r.seq)
    for i in range(min(r.loss.n, <uint32_t>16)):
        if r.loss.ranges[i].hi <= a.seqs[shard]:
            loss_add(&a.loss, shard, r.loss.ranges[i].why, r.loss.ranges[i].lo, r.loss.ranges[i].hi)
    reader_close(r)
    return min(got, 0)


cdef int read_request_read(ReadRequest* a, Reader* r) noexcept nogil:
    """All shards in turn, until it has enough. 0 or -errno"""
    cdef uint32_t i, shard, n = a.stream.journal.n_shards
    cdef uint64_t left = READ_MAX_BYTES
    cdef int got = 0
    for i in range(n):
        shard = (a.shard + i) % n
        if shard_has_news(a, shard):
            got = shard_read(a, r, shard, &left)
        if got < 0:
            return got
    a.shard = (a.shard + 1) % n
    return 0


cdef void committed_note(Cursors* k) noexcept nogil:
    cdef Stream* s
    cdef uint32_t i, shard
    for i in range(k.streams.n):
        s = k.streams.at[i]
        for shard in range(s.journal.n_shards):
            s.committed[shard] = s.journal.writer.shards[shard].written


cdef void append(ReadRequest** at, ReadRequest* more) noexcept nogil:
    while at[0] != NULL:
        at = &at[0].next
    at[0] = more


cdef bint any_news(const ReadRequest* a) noexcept nogil:
    while a != NULL:
        if has_news(a):
            return 1
        a = a.next
    return 0


cdef uint64_t cursors_serve(Cursors* k, bint committed, bint* news) noexcept nogil:
    cdef ReadRequest** at = &k.waiting
    cdef ReadRequest* a
    cdef ReadRequest* later = NULL       # looked at, and nothing matched: others first
    cdef uint32_t serves = 0
    cdef int failed
    if committed:
        committed_note(k)
    if k.waiting == NULL:
        return 0
    if k.retry_us and clock_monotonic_us() < k.retry_us:
        return k.retry_us
    k.retry_us = 0
    if k.reader == NULL:
        k.reader = <Reader*>calloc(1, sizeof(Reader))
    while at[0] != NULL and serves < SERVES_MAX and k.retry_us == 0:
        a = at[0]
        if not has_news(a):
            at = &a.next
            continue
        serves += 1
        failed = a.error
        a.error = read_request_read(a, k.reader) if k.reader != NULL else -ENOMEM
        if a.error:
            k.retry_us = clock_monotonic_us() + AGAIN_US
        at[0] = a.next
        if a.n == 0 and a.loss.n == 0 and (failed or not a.error):       # that it fails is told once
            a.next = later
            later = a
            continue
        a.next = k.served
        k.served = a
        news[0] = 1
    append(&k.waiting, later)
    return k.retry_us if k.retry_us else 1 if any_news(k.waiting) else 0
