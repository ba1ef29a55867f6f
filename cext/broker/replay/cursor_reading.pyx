"""Read and match the records that cursors request. The storage thread runs this between its batches. This module knows files and
filters, not the subscribers.

Invariants: it reads only records whose batch is committed, so no client gets a record that a start would drop, or a record that
was given up and will be written again. Other readers of files wait for the mark; cursors do not. A turn reads for SERVES_MAX
requests at most, and READ_MAX_BYTES of records for each, matching or not, so that batches do not wait. A request without matching
records stays and costs a comparison per shard and turn.

Files of another worker may change at any time, also when its process is killed and the next one writes the last records again. So a gap behind
the mark is no loss there: the part is read again a little later.
"""

from libc.errno cimport EINVAL, ENOENT, ENOMEM
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, realloc

from cext.base.clock cimport clock_monotonic_us
from cext.broker.persist.streams cimport Stream, StreamPart
from cext.broker.replay.cursor_state cimport (
    Cursors, PART_SHARDS, PLACE_TIME, READ_REQUEST_BYTES, ReadPlace, ReadRecord, ReadRequest,
)
from cext.broker.replay.parts cimport part_dir, part_end, part_shards, parts_published, parts_want
from cext.journal.journal cimport JOURNAL_RANGES_REPORTED, LOSS_RETIRED, journal_loss_add
from cext.journal.reader cimport Reader, reader_close, reader_next, reader_open, reader_seek, reader_seek_time
from cext.journal.record cimport JOURNAL_MESSAGE, JournalRecord, journal_record_bytes, journal_record_put
from cext.topic.name cimport filter_matches

cdef enum:
    SERVES_MAX = 8
    READ_MAX_BYTES = 1 << 20    # plus one record; commits wait for that long
    READ_RETRY_US = 250000           # pause after a read error
    HOLD_US = 100000            # pause of a part of another worker that cannot be read up to its end now


cdef inline bint shard_has_records(const ReadRequest* request, uint32_t part, uint32_t shard) noexcept nogil:
    cdef const ReadPlace* where = &request.parts[part].where
    return not where.found >> shard & 1 or where.seqs[shard] < part_end(&request.stream.parts[part], shard)


cdef bint part_has_records(const ReadRequest* request, uint32_t part) noexcept nogil:
    cdef uint32_t shard
    if request.parts[part].held_us and request.parts[part].held_us > clock_monotonic_us():
        return 0
    for shard in range(part_shards(request.stream, part)):
        if shard_has_records(request, part, shard):
            return 1
    return 0


cdef bint has_records(const ReadRequest* request) noexcept nogil:
    cdef uint32_t part
    for part in range(request.stream.n_parts):
        if part_has_records(request, part):
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


cdef int shard_open(ReadRequest* request, Reader* r, uint32_t part, uint32_t shard) noexcept nogil:
    """Open the shard at its position; finds that position first if it is not known. Returns 0 or -errno."""
    cdef const StreamPart* p = &request.stream.parts[part]
    cdef ReadPlace* where = &request.parts[part].where
    cdef uint64_t end = part_end(p, shard)
    cdef int got = reader_open(r, part_dir(p), shard, &request.stream.journal.files)
    if got < 0:
        return got
    if p.local == NULL:
        end = max(end, r.end)    # a reader may pass the mark
    r.end = end
    if not where.found >> shard & 1:
        if where.place == PLACE_TIME:
            got = reader_seek_time(r, where.time_us)
            if got == 0 and r.seq >= r.end:
                where.ahead |= <uint64_t>1 << shard
            r.end = end
        if got < 0:
            return got
        where.seqs[shard] = r.seq if where.place == PLACE_TIME else r.marks.shards[shard].first_seq
        where.found |= <uint64_t>1 << shard
    return reader_seek(r, where.seqs[shard])


cdef bint time_reached(ReadPlace* where, uint32_t shard, uint64_t time_us) noexcept nogil:
    """Return whether a cursor that waits for a future time has reached it: it begins with the first record that is not older."""
    if where.ahead >> shard & 1 and time_us >= where.time_us:
        where.ahead &= ~(<uint64_t>1 << shard)
    return not where.ahead >> shard & 1


cdef uint64_t doubtful_gap(const Reader* r) noexcept nogil:
    """Return where a gap behind the mark begins; 0 = there is none."""
    cdef uint32_t i
    for i in range(min(r.loss.n, <uint32_t>JOURNAL_RANGES_REPORTED)):
        if r.loss.ranges[i].hi > r.marks.shards[r.shard].seq and r.loss.ranges[i].why != LOSS_RETIRED:
            return max(r.loss.ranges[i].lo, <uint64_t>1)
    return 0


cdef int shard_read(ReadRequest* request, Reader* r, uint32_t part, uint32_t shard, uint64_t* left) noexcept nogil:
    cdef const StreamPart* p = &request.stream.parts[part]
    cdef ReadPlace* where = &request.parts[part].where
    cdef JournalRecord record
    cdef uint32_t i
    cdef uint64_t gap = 0
    cdef int got = shard_open(request, r, part, shard)
    while got >= 0 and left[0] and request.n < READ_REQUEST_BYTES:
        got = reader_next(r, r.end, &record)
        gap = doubtful_gap(r) if p.local == NULL and r.loss.n and got >= 0 else 0
        if got != 1 or gap:
            break
        left[0] -= min(left[0], journal_record_bytes(&record))
        if (time_reached(where, shard, record.time_us) and record.kind == JOURNAL_MESSAGE
                and filter_matches(request.filter, record.topic)):
            got = entry_add(request, part * PART_SHARDS + shard, &record)
            if got < 0:
                break            # it is read again
        where.seqs[shard] = record.seq + 1
    if gap:
        where.seqs[shard] = max(where.seqs[shard], gap)
    elif got == 0:
        where.seqs[shard] = max(where.seqs[shard], r.seq)
    for i in range(min(r.loss.n, <uint32_t>JOURNAL_RANGES_REPORTED)):
        if r.loss.ranges[i].hi <= where.seqs[shard]:
            journal_loss_add(&request.loss, p.number * PART_SHARDS + shard, r.loss.ranges[i].why, r.loss.ranges[i].lo, r.loss.ranges[i].hi)
    reader_close(r)
    if gap or (p.local == NULL and (got == -ENOENT or got == -EINVAL)):        # the other worker is about to write its files
        request.parts[part].held_us = clock_monotonic_us() + HOLD_US
        return 0
    return min(got, 0)


cdef int part_read(ReadRequest* request, Reader* r, uint32_t part, uint64_t* left) noexcept nogil:
    """Read all shards of a part in turn until the request has enough records. Returns 0 or -errno."""
    cdef ReadPlace* where = &request.parts[part].where
    cdef uint32_t i, shard, n = part_shards(request.stream, part)
    cdef int got = 0
    for i in range(n):
        shard = (where.shard + i) % n
        if shard_has_records(request, part, shard):
            got = shard_read(request, r, part, shard, left)
        if got < 0:
            return got
    where.shard = (where.shard + 1) % n
    return 0


cdef int read_request_read(ReadRequest* request, Reader* r) noexcept nogil:
    cdef uint32_t i, part, n = request.stream.n_parts
    cdef uint64_t left = READ_MAX_BYTES
    cdef int got = 0
    for i in range(n):
        part = (request.part + i) % n
        if part_has_records(request, part):
            got = part_read(request, r, part, &left)
        if got < 0:
            return got
    request.part = (request.part + 1) % n
    return 0


cdef void note_committed(Cursors* k) noexcept nogil:
    cdef Stream* s
    cdef uint32_t i, shard
    for i in range(k.streams.n):
        s = k.streams.at[i]
        for shard in range(s.journal.n_shards):
            s.committed[shard] = s.journal.writer.shards[shard].written


cdef uint64_t held_until(ReadRequest* request) noexcept nogil:
    """Return when a part can be read again; 0 = none is held, 1 = at once."""
    cdef uint64_t first = 0, now = 0, held
    cdef uint32_t i
    while request != NULL:
        for i in range(request.stream.n_parts):
            held = request.parts[i].held_us
            if held == 0:
                continue
            now = now or clock_monotonic_us()
            if held <= now:
                request.parts[i].held_us = 0
                return 1
            first = held if first == 0 else min(first, held)
        request = request.next
    return first


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
    if k.streams.workers != NULL:
        parts_published(k.streams)
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
    if k.streams.workers != NULL and k.waiting != NULL:
        parts_want(k.streams)           # before the look, so that later records cause a notice
    return k.retry_us if k.retry_us else 1 if any_has_records(k.waiting) else held_until(k.waiting)
