"""Convert blocks to columns: the head of each record is read once, each text is copied once. Cost: about the cost of the copies.

Invariants: all columns have `rows` rows. Offsets rise and fit 32 bits, since a batch ends at COLUMNS_BYTES_MAX and a record is
smaller than that.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset, strcmp

from cext.base.view cimport View
from cext.journal.reader cimport reader_back, reader_load, reader_take
from cext.journal.record cimport JOURNAL_DUP, JOURNAL_MESSAGE, JOURNAL_QOS, JOURNAL_RETAIN, JOURNAL_USERNAME, JournalRecord

cdef enum:
    ROWS_FIRST = 512
    TEXT_BYTES_FIRST = 4 << 10


cdef int column_grow(void** p, uint64_t had, uint64_t want) noexcept nogil:
    """Enlarge the memory at *p from `had` to `want` bytes. The new part is zero."""
    cdef uint8_t* more = <uint8_t*>realloc(p[0], want)
    if more == NULL:
        return -ENOMEM
    memset(more + had, 0, want - had)
    p[0] = more
    return 0


cdef int columns_room(Columns* c, uint64_t rows) noexcept nogil:
    """Ensure room for so many more rows. The capacity is a multiple of 8, so that bits fill whole bytes."""
    cdef uint64_t had = c.cap, cap = max(c.cap * 2, <uint64_t>ROWS_FIRST)
    cdef int i, got = 0
    if c.rows + rows <= c.cap:
        return 0
    cap = (max(cap, c.rows + rows) + 7) & ~<uint64_t>7
    got |= column_grow(<void**>&c.shard, had * 4, cap * 4)
    got |= column_grow(<void**>&c.seq, had * 8, cap * 8)
    got |= column_grow(<void**>&c.time_us, had * 8, cap * 8)
    got |= column_grow(<void**>&c.commit_us, had * 8, cap * 8)
    got |= column_grow(<void**>&c.kind, had, cap)
    got |= column_grow(<void**>&c.qos, had, cap)
    got |= column_grow(<void**>&c.reason, had * 2, cap * 2)
    got |= column_grow(<void**>&c.retain, had // 8, cap // 8)
    got |= column_grow(<void**>&c.dup, had // 8, cap // 8)
    for i in range(TEXTS):
        got |= column_grow(<void**>&c.texts[i].offsets, (had + 1) * 4 if had else 0, (cap + 1) * 4)
        got |= column_grow(<void**>&c.texts[i].bits, had // 8, cap // 8)
    if got != 0:
        return -ENOMEM
    c.cap = cap
    return 0


cdef int text_room(Text* t, uint64_t n) noexcept nogil:
    cdef uint64_t cap = max(t.cap * 2, <uint64_t>TEXT_BYTES_FIRST, t.n + n)
    cdef uint8_t* more = <uint8_t*>realloc(t.p, cap)
    if more == NULL:
        return -ENOMEM
    t.p = more
    t.cap = cap
    return 0


cdef inline void bit_set(uint8_t* bits, uint64_t i) noexcept nogil:
    bits[i >> 3] |= <uint8_t>(1 << (i & 7))


cdef inline bint text_has_room(Text* t, uint32_t n) noexcept nogil:
    return n == 0 or t.n + n <= t.cap or text_room(t, n) == 0


cdef inline void text_add(Text* t, uint64_t row, const View* v, bint valid) noexcept nogil:
    if v.n:
        memcpy(t.p + t.n, v.p, v.n)
        t.n += v.n
    t.offsets[row + 1] = <int32_t>t.n
    if valid:
        bit_set(t.bits, row)
    else:
        t.nulls += 1


cdef inline int row_add(Columns* c, uint32_t shard, int64_t commit_us, const JournalRecord* record) noexcept nogil:
    """Append the record completely, or not at all."""
    cdef uint64_t i = c.rows
    if not (text_has_room(&c.texts[TEXT_TOPIC], record.topic.n) and text_has_room(&c.texts[TEXT_CLIENT_ID], record.client_id.n)
            and text_has_room(&c.texts[TEXT_USERNAME], record.username.n) and text_has_room(&c.texts[TEXT_PAYLOAD], record.payload.n)
            and text_has_room(&c.texts[TEXT_PROPERTIES], record.properties.n)):
        return -ENOMEM
    c.shard[i] = <int32_t>shard
    c.seq[i] = <int64_t>record.seq
    c.time_us[i] = <int64_t>record.time_us
    c.commit_us[i] = commit_us
    c.kind[i] = <int8_t>record.kind
    c.qos[i] = <int8_t>(record.flags & JOURNAL_QOS)
    c.reason[i] = record.reason
    if record.flags & JOURNAL_RETAIN:
        bit_set(c.retain, i)
    if record.flags & JOURNAL_DUP:
        bit_set(c.dup, i)
    text_add(&c.texts[TEXT_TOPIC], i, &record.topic, record.topic.n != 0)
    text_add(&c.texts[TEXT_CLIENT_ID], i, &record.client_id, record.client_id.n != 0)
    text_add(&c.texts[TEXT_USERNAME], i, &record.username, record.flags & JOURNAL_USERNAME)
    text_add(&c.texts[TEXT_PAYLOAD], i, &record.payload, record.payload.n != 0 or record.kind == JOURNAL_MESSAGE)
    text_add(&c.texts[TEXT_PROPERTIES], i, &record.properties, record.properties.n != 0)
    c.rows = i + 1
    return 0


cdef inline uint64_t texts_bytes(const Columns* c) noexcept nogil:
    return c.texts[0].n + c.texts[1].n + c.texts[2].n + c.texts[3].n + c.texts[4].n


cdef int64_t columns_read(Columns* c, Reader* r, uint64_t until, uint64_t rows, uint64_t bytes_) noexcept nogil:
    cdef JournalRecord record
    cdef int got = columns_room(c, 1)
    rows = min(rows, <uint64_t>COLUMNS_ROWS_MAX)
    bytes_ = min(bytes_, <uint64_t>COLUMNS_BYTES_MAX)
    while got == 0 and c.rows < rows and (c.rows == 0 or texts_bytes(c) < bytes_):
        got = reader_load(r, until)
        if got != 1:
            break
        if c.rows == 0:
            memcpy(c.node, r.node, sizeof(r.node))
        elif strcmp(c.node, r.node) != 0:
            break
        got = columns_room(c, min(r.block_end - r.block_seq, rows - c.rows))
        while got == 0 and c.rows < rows and r.seq < until and (c.rows == 0 or texts_bytes(c) < bytes_) and reader_take(r, &record):
            got = row_add(c, r.shard, <int64_t>r.commit_us, &record)
            if got < 0:
                reader_back(r, record.seq)
    return got if got < 0 and c.rows == 0 else <int64_t>c.rows      # if there are rows, the error is returned by the next call


cdef void columns_free(Columns* c) noexcept nogil:
    cdef int i
    free(c.shard)
    free(c.seq)
    free(c.time_us)
    free(c.commit_us)
    free(c.kind)
    free(c.qos)
    free(c.reason)
    free(c.retain)
    free(c.dup)
    for i in range(TEXTS):
        free(c.texts[i].offsets)
        free(c.texts[i].bits)
        free(c.texts[i].p)
    memset(c, 0, sizeof(Columns))
