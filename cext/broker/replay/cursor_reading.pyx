"""Read and match the records that cursors request. The storage thread runs this between its batches. This module knows files and
filters, not the subscribers.

Invariants: it reads only records whose batch is committed, so no client gets a record that a start would drop, or a record that
was given up and will be written again. Other readers of files wait for the mark; cursors do not. A turn reads for SERVES_MAX
requests at most, and READ_MAX_BYTES of records for each, matching or not, so that batches do not wait. A request without matching
records stays and costs a comparison per shard and turn.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, realloc

from cext.base.clock cimport clock_monotonic_us
from cext.broker.persist.streams cimport Stream
from cext.broker.replay.cursor_state cimport Cursors, PLACE_TIME, READ_REQUEST_BYTES, ReadRecord, ReadRequest
from cext.journal.journal cimport journal_loss_add
from cext.journal.reader cimport Reader, reader_close, reader_next, reader_open, reader_seek, reader_seek_time
from cext.journal.record cimport JOURNAL_MESSAGE, JournalRecord, journal_record_bytes, journal_record_put
from cext.topic.name cimport filter_matches

cdef enum:
    SERVES_MAX = 8
    READ_MAX_BYTES = 1 << 20    # plus one record; commits wait for that long
    READ_RETRY_US = 250000           # pause after a read error


cdef inline uint64_t committed_end(const Stream* s, uint32_t shard) noexcept nogil:
    return min(s.committed[shard], s.journal.writer.shards[shard].written)


cdef inline bint shard_has_records(const ReadRequest* request, uint32_t shard) noexcept nogil:
    return not request.where.found >> shard & 1 or request.where.seqs[shard] < committed_end(request.stream, shard)


cdef bint has_records(const ReadRequest* request) noexcept nogil:
    cdef uint32_t shard
    for shard in range(request.stream.journal.n_shards):
        if shard_has_records(request, shard):
            return 1
    return 0


cdef int entry_add(ReadRequest* request, uint32_t shard, const JournalRecord* r) noexcept nogil:
    cdef uint64_t n = journal_record_bytes(r)
    cdef uint64_t need = request.n + sizeof(ReadRecord) + n
    cdef ReadRecord* e
    cdef uint8_t* p
    if need > request.cap:
        p = <uint8_t*>realloc(request.p, max(need, min(request.cap * 2, <uint64_t>READ_REQUEST_BYTES + 4096)))
        if p == NULL:
            return -ENOMEM
        request.p = p
        request.cap = max(need, min(request.cap * 2, <uint64_t>READ_REQUEST_BYTES + 4096))
    e = <ReadRecord*>(request.p + request.n)
    e.seq = r.seq
    e.shard = shard
    e.n = <uint32_t>n
    journal_record_put(<uint8_t*>(e + 1), n, 0, r)
    request.n = need
    return 0


cdef int shard_open(ReadRequest* request, Reader* r, uint32_t shard) noexcept nogil:
    """Open the shard at request.where.seqs[shard]; finds that position first if it is not known. Returns 0 or -errno."""
    cdef uint64_t end = committed_end(request.stream, shard)
    cdef int got = reader_open(r, request.stream.journal.dir, shard, &request.stream.journal.files)
    if got < 0:
        return got
    r.end = end
    if not request.where.found >> shard & 1:
        if request.where.place == PLACE_TIME:
            got = reader_seek_time(r, request.where.time_us)
            if got == 0 and r.seq >= r.end:
                request.where.ahead |= <uint64_t>1 << shard
            r.end = end
        if got < 0:
            return got
        request.where.seqs[shard] = r.seq if request.where.place == PLACE_TIME else r.marks.shards[shard].first_seq
        request.where.found |= <uint64_t>1 << shard
    return reader_seek(r, request.where.seqs[shard])


cdef bint time_reached(ReadRequest* request, uint32_t shard, uint64_t time_us) noexcept nogil:
    """Return whether a cursor that waits for a future time has reached it: it begins with the first record that is not older."""
    if request.where.ahead >> shard & 1 and time_us >= request.where.time_us:
        request.where.ahead &= ~(<uint64_t>1 << shard)
    return not request.where.ahead >> shard & 1


cdef int shard_read(ReadRequest* request, Reader* r, uint32_t shard, uint64_t* left) noexcept nogil:
    cdef JournalRecord record
    cdef uint32_t i
    cdef int got = shard_open(request, r, shard)
    while got >= 0 and left[0] and request.n < READ_REQUEST_BYTES:
        got = reader_next(r, r.end, &record)
        if got != 1:
            break
        left[0] -= min(left[0], journal_record_bytes(&record))
        if (time_reached(request, shard, record.time_us) and record.kind == JOURNAL_MESSAGE
                and filter_matches(request.filter, record.topic)):
            got = entry_add(request, shard, &record)
            if got < 0:
                break            # it is read again
        request.where.seqs[shard] = record.seq + 1
    if got == 0:
        request.where.seqs[shard] = max(request.where.seqs[shard], r.seq)
    for i in range(min(r.loss.n, <uint32_t>16)):
        if r.loss.ranges[i].hi <= request.where.seqs[shard]:
            journal_loss_add(&request.loss, shard, r.loss.ranges[i].why, r.loss.ranges[i].lo, r.loss.ranges[i].hi)
    reader_close(r)
    return min(got, 0)


cdef int read_request_read(ReadRequest* request, Reader* r) noexcept nogil:
    """Read all shards in turn until the request has enough records. Returns 0 or -errno."""
    cdef uint32_t i, shard, n = request.stream.journal.n_shards
    cdef uint64_t left = READ_MAX_BYTES
    cdef int got = 0
    for i in range(n):
        shard = (request.where.shard + i) % n
        if shard_has_records(request, shard):
            got = shard_read(request, r, shard, &left)
        if got < 0:
            return got
    request.where.shard = (request.where.shard + 1) % n
    return 0


cdef void note_committed(Cursors* k) noexcept nogil:
    cdef Stream* s
    cdef uint32_t i, shard
    for i in range(k.streams.n):
        s = k.streams.at[i]
        for shard in range(s.journal.n_shards):
            s.committed[shard] = s.journal.writer.shards[shard].written


cdef void requests_append(ReadRequest** at, ReadRequest* more) noexcept nogil:
    while at[0] != NULL:
        at = &at[0].next
    at[0] = more


cdef bint any_has_records(const ReadRequest* request) noexcept nogil:
    while request != NULL:
        if has_records(request):
            return 1
        request = request.next
    return 0


cdef uint64_t cursors_serve(Cursors* k, bint committed, bint* served) noexcept nogil:
    cdef ReadRequest** at = &k.waiting
    cdef ReadRequest* request
    cdef ReadRequest* unmatched = NULL       # requests that were read and had no match: others go first
    cdef uint32_t reads = 0
    cdef int failed
    if committed:
        note_committed(k)
    if k.waiting == NULL:
        return 0
    if k.retry_us and clock_monotonic_us() < k.retry_us:
        return k.retry_us
    k.retry_us = 0
    if k.reader == NULL:
        k.reader = <Reader*>calloc(1, sizeof(Reader))
    while at[0] != NULL and reads < SERVES_MAX and k.retry_us == 0:
        request = at[0]
        if not has_records(request):
            at = &request.next
            continue
        reads += 1
        failed = request.error
        request.error = read_request_read(request, k.reader) if k.reader != NULL else -ENOMEM
        if request.error:
            k.retry_us = clock_monotonic_us() + READ_RETRY_US
        at[0] = request.next
        if request.n == 0 and request.loss.n == 0 and (failed or not request.error):       # an error is reported once
            request.next = unmatched
            unmatched = request
            continue
        request.next = k.served
        k.served = request
        served[0] = 1
    requests_append(&k.waiting, unmatched)
    return k.retry_us if k.retry_us else 1 if any_has_records(k.waiting) else 0
