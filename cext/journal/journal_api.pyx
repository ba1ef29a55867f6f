"""Python API of the journal: `PyReader`, `marks` and `consumers` for tools (no lock, no changes), `PyJournal` for tests and
benchmarks."""

cimport cython
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset, strcmp, strerror

from cpython.buffer cimport PyBuffer_FillInfo

from cext.base.view cimport View
from cext.journal.columns cimport Columns, Text, columns_free, columns_read
from cext.journal.format cimport Consumer, JOURNAL_NODE_MAX, JOURNAL_SHARDS_MAX, Marks, consumer_bytes, consumer_write, shard_of_topic
from cext.journal.journal cimport (
    JOURNAL_NO_MEMORY, JOURNAL_RANGES_REPORTED, JOURNAL_TOO_LARGE, JOURNAL_WAITS, Journal, JournalFound, JournalLoss,
    JournalOptions, JournalStats, journal_append, journal_hand, journal_room, journal_seal,
)
from cext.journal.listing cimport is_passing, marks_read
from cext.journal.opening cimport journal_close, journal_open
from cext.journal.reader cimport (
    Reader, reader_close, reader_load, reader_open, reader_refresh, reader_seek, reader_seek_time, reader_take,
)
from cext.journal.record cimport JOURNAL_USERNAME, JournalRecord
from cext.journal.retain cimport Consumers, consumers_read, journal_retain
from cext.journal.writer cimport journal_mark, journal_sync, journal_take, journal_write
from cext.store.crc cimport crc_hardware
from cext.store.file cimport FileOps, file_ops_of

WHY = {1: "damaged", 2: "missing", 3: "retired"}


cdef list ranges(const JournalLoss* loss):
    out = [(loss.ranges[i].shard, WHY[loss.ranges[i].why], loss.ranges[i].lo, loss.ranges[i].hi)
           for i in range(min(loss.n, <uint32_t>JOURNAL_RANGES_REPORTED))]
    if loss.n > JOURNAL_RANGES_REPORTED:
        out.append((0, "more", 0, loss.n - JOURNAL_RANGES_REPORTED))
    return out


cdef object failure(int error, path):
    return OSError(-error, strerror(-error).decode(), path)


cdef dict marks_dict(const Marks* m):
    return {"generation": m.generation, "made_us": m.made_us, "stream_id": (<const char*>m.stream_id)[:16].hex(),
            "shards": [{"first_seq": m.shards[i].first_seq, "seq": m.shards[i].seq, "segment": m.shards[i].segment,
                        "offset": m.shards[i].offset, "behind": m.shards[i].behind, "time_us": m.shards[i].time_us} for i in range(m.n)]}


cdef inline bytes view_bytes(const View* v):
    return (<const char*>v.p)[:v.n]


cdef inline View bytes_view(bytes data):
    cdef View v
    v.p = data
    v.n = <uint32_t>len(data)
    return v


cdef tuple record_tuple(const JournalRecord* r, uint64_t commit_us):
    return (r.seq, r.time_us, commit_us, r.kind, r.flags, r.reason, view_bytes(&r.topic), view_bytes(&r.client_id),
            view_bytes(&r.username) if r.flags & JOURNAL_USERNAME else None, view_bytes(&r.properties), view_bytes(&r.payload))


def passing(int code):
    """Return whether this errno gives no information about the content of a file."""
    return bool(is_passing(-code))


def marks(directory, disk=None):
    """Return the stream's mark. Raises FileNotFoundError if there is none, or another OSError."""
    import os
    cdef bytes path = os.fsencode(directory)
    cdef const char* dir_ = path
    cdef Marks m
    cdef FileOps files = file_ops_of(disk)
    cdef int slot, got
    with nogil:
        got = marks_read(&files, crc_hardware(), dir_, &m, &slot)
    if got < 0:
        raise failure(got, directory)
    return marks_dict(&m)


def consumers(directory, disk=None):
    """Return name -> (updated_us, [sequence number of each shard]); None = the consumer's mark cannot be read."""
    import os
    cdef bytes path = os.fsencode(directory)
    cdef const char* dir_ = path
    cdef FileOps files = file_ops_of(disk)
    cdef Consumers* c = <Consumers*>calloc(1, sizeof(Consumers))
    cdef int got
    if c == NULL:
        raise MemoryError
    try:
        with nogil:
            got = consumers_read(&files, crc_hardware(), dir_, c)
        if got < 0:
            raise failure(got, directory)
        return {(<const char*>c.names[i]).decode(): (c.marks[i].updated_us, [c.marks[i].seqs[k] for k in range(c.marks[i].n)])
                if c.marks[i].n else None for i in range(c.n)}
    finally:
        free(c)


def consumer_mark(seqs, uint64_t updated_us):
    """Return the content of a file `consumers/NAME`."""
    cdef Consumer c
    cdef uint8_t page[540]      # size = CONSUMER_BYTES_MAX
    if not 0 < len(seqs) <= JOURNAL_SHARDS_MAX:
        raise ValueError(f"1 to {JOURNAL_SHARDS_MAX} shards are possible")
    memset(&c, 0, sizeof(c))
    c.n = <uint32_t>len(seqs)
    c.updated_us = updated_us
    for i, seq in enumerate(seqs):
        c.seqs[i] = seq
    consumer_write(crc_hardware(), page, &c)
    return (<const char*>page)[:consumer_bytes(c.n)]


def shard_of(bytes topic, uint32_t shards):
    return shard_of_topic(crc_hardware(), topic, <uint32_t>len(topic), shards)


# ---- columns

cdef class Memory:
    """Owns a piece of memory and exports it as a buffer."""
    cdef void* p
    cdef Py_ssize_t n

    def __getbuffer__(self, Py_buffer* out, int flags):
        PyBuffer_FillInfo(out, self, self.p, self.n, 1, flags)

    def __dealloc__(self):
        free(self.p)


cdef Memory memory(void** p, uint64_t n):
    cdef Memory m = Memory()
    m.p = p[0]
    m.n = <Py_ssize_t>n
    p[0] = NULL
    if m.p == NULL:             # a buffer needs an address
        m.p = calloc(1, 8)
    return m


cdef tuple text_memory(Text* t, uint64_t rows):
    bits = memory(<void**>&t.bits, (rows + 7) // 8)
    return t.nulls, [bits if t.nulls else None, memory(<void**>&t.offsets, (rows + 1) * 4), memory(<void**>&t.p, t.n)]


cdef dict columns_memory(Columns* c):
    """Return name -> (nulls, buffers in Arrow's order: null bits, [offsets,] values)."""
    cdef uint64_t rows = c.rows
    out = {"shard": (0, [None, memory(<void**>&c.shard, rows * 4)]), "seq": (0, [None, memory(<void**>&c.seq, rows * 8)]),
           "time_us": (0, [None, memory(<void**>&c.time_us, rows * 8)]), "commit_us": (0, [None, memory(<void**>&c.commit_us, rows * 8)]),
           "kind": (0, [None, memory(<void**>&c.kind, rows)]), "qos": (0, [None, memory(<void**>&c.qos, rows)]),
           "reason": (0, [None, memory(<void**>&c.reason, rows * 2)]), "retain": (0, [None, memory(<void**>&c.retain, (rows + 7) // 8)]),
           "dup": (0, [None, memory(<void**>&c.dup, (rows + 7) // 8)])}
    for i, name in enumerate(("topic", "client_id", "username", "payload", "properties")):
        out[name] = text_memory(&c.texts[i], rows)
    return out


# ---- reading

@cython.no_gc_clear             # __dealloc__ closes the files of `disk`, which the collector must not clear first
cdef class PyReader:
    """Reads one shard of the stream in `directory`, from its oldest record on. Raises FileNotFoundError if there is no stream,
    and another OSError if it cannot be read."""
    cdef Reader r
    cdef object disk
    cdef object path
    cdef char of[65]            # JOURNAL_NODE_MAX + 1: node of the records returned last

    def __cinit__(self, directory, uint32_t shard=0, disk=None):
        import os
        cdef bytes path = os.fsencode(directory)
        cdef const char* dir_ = path
        cdef FileOps files = file_ops_of(disk)
        cdef int got
        self.disk = disk
        self.path = directory
        with nogil:
            got = reader_open(&self.r, dir_, shard, &files)
        if got < 0:
            raise failure(got, directory)

    def __dealloc__(self):
        reader_close(&self.r)

    def refresh(self):
        """Read the mark and the folder again. Return the end: no record from that number on is read."""
        cdef int got
        with nogil:
            got = reader_refresh(&self.r)
        if got < 0:
            raise failure(got, self.path)
        return self.r.end

    def seek(self, uint64_t seq):
        reader_seek(&self.r, seq)

    def seek_time(self, uint64_t time_us):
        """Seek to the first record that is not older, and return its number; the end if all records are older."""
        cdef int got
        with nogil:
            got = reader_seek_time(&self.r, time_us)
        if got < 0:
            raise failure(got, self.path)
        return self.r.seq

    def read(self, uint64_t until=UINT64_MAX, Py_ssize_t most=4096):
        """Return [(seq, time_us, commit_us, kind, flags, reason, topic, client_id, username or None, properties, payload)], all
        of one `node`; an empty list at the end, or at `until`. Raises OSError if the stream cannot be read now; the same call then
        continues at the same record."""
        cdef JournalRecord record
        cdef int got = 1
        cdef list out = []
        while len(out) < most:
            with nogil:
                got = reader_load(&self.r, until)
            if got != 1:
                break
            if not out:
                memcpy(self.of, self.r.node, sizeof(self.of))
            elif strcmp(self.of, self.r.node) != 0:
                break
            if reader_take(&self.r, &record):
                out.append(record_tuple(&record, self.r.commit_us))
        if got < 0 and not out:         # if there are records, the error is raised by the next call
            raise failure(got, self.path)
        return out

    def columns(self, uint64_t until=UINT64_MAX, uint64_t rows=1 << 20, uint64_t n_bytes=64 << 20):
        """Return (rows, {name: (nulls, buffers)}) in Arrow's layout, all rows of one `node`. No rows = the end, or `until`."""
        cdef Columns c
        cdef int64_t got
        memset(&c, 0, sizeof(c))
        try:
            with nogil:
                got = columns_read(&c, &self.r, until, rows, n_bytes)
            if got < 0:
                raise failure(<int>got, self.path)
            memcpy(self.of, c.node, sizeof(self.of))
            return got, columns_memory(&c)
        finally:
            columns_free(&c)

    def lost(self):
        """Return [(shard, reason, from, to)] since the last seek or take_lost."""
        return ranges(&self.r.loss)

    def take_lost(self):
        """Return the same as `lost` and clear it."""
        out = ranges(&self.r.loss)
        memset(&self.r.loss, 0, sizeof(self.r.loss))
        return out

    def marks(self):
        return marks_dict(&self.r.marks)

    @property
    def node(self):
        """The node of a cluster that appended the records which the last call returned; None = no cluster, or it is unknown."""
        return (<const char*>self.of).decode("utf-8", "replace") or None

    @property
    def seq(self):
        return self.r.seq

    @property
    def end(self):
        return self.r.end


# ---- writing

@cython.no_gc_clear             # __dealloc__ closes the files of `disk`, which the collector must not clear first
cdef class PyJournal:
    """A stream for one thread of Python, which is the loop and the storage thread."""
    cdef Journal* j
    cdef public object disk
    cdef readonly dict found

    def __cinit__(      # parameters: the fields of JournalOptions, by name
            self, directory, uint32_t shards=1, segment_bytes=0, block_bytes=0, waiting_max_bytes=0, roll_age_us=0,
            retain_age_us=0, retain_bytes=0, until=(), bint create=True, disk=None, uint64_t now_us=1, bytes node=b""):
        import os
        cdef bytes path = os.fsencode(directory)
        cdef const char* dir_ = path
        cdef JournalOptions options
        cdef JournalFound found
        cdef char why[512]
        cdef FileOps files = file_ops_of(disk)
        cdef int got
        memset(&options, 0, sizeof(options))
        options.shards = shards
        options.segment_bytes = segment_bytes
        options.block_bytes = block_bytes
        options.waiting_max_bytes = waiting_max_bytes
        options.roll_age_us = roll_age_us
        options.retain_age_us = retain_age_us
        options.retain_bytes = retain_bytes
        options.create = create
        options.n_until = <uint32_t>min(len(until), JOURNAL_SHARDS_MAX)
        for i in range(options.n_until):
            options.until[i] = until[i]
        if len(node) > JOURNAL_NODE_MAX:
            raise ValueError(f"the name of a node has at most {JOURNAL_NODE_MAX} bytes")
        memcpy(options.node, <const char*>node, len(node))
        why[0] = 0
        self.disk = disk
        self.j = <Journal*>calloc(1, sizeof(Journal))
        if self.j == NULL:
            raise MemoryError
        with nogil:
            got = journal_open(self.j, dir_, &options, &files, now_us, &found, why)
        if got != 0:
            raise OSError((<const char*>why).decode("utf-8", "replace"))
        self.found = {"lost": ranges(&found.loss), "beyond": found.beyond, "dropped": found.dropped, "torn_bytes": found.torn_bytes, "unreadable": found.unreadable,
                      "mark_lost": bool(found.mark_lost)}

    def __dealloc__(self):
        self.close()

    def close(self):
        """Close the stream. Records that were not written are lost."""
        if self.j != NULL:
            with nogil:
                journal_close(self.j)
            free(self.j)
            self.j = NULL

    def append(         # parameters: the fields of JournalRecord, by name
            self, uint32_t shard, uint8_t kind=1, bytes topic=b"t", bytes client_id=b"", bytes username=None,
            bytes properties=b"", bytes payload=b"", uint8_t flags=0, uint8_t reason=0, uint64_t time_us=1):
        """Return (sequence number, whether a block is full). Raises BlockingIOError if too much waits, and ValueError if the
        record is too large."""
        cdef JournalRecord r
        r.kind = kind
        r.flags = flags | (JOURNAL_USERNAME if username is not None else 0)
        r.reason = reason
        r.time_us = time_us
        r.topic = bytes_view(topic)
        r.client_id = bytes_view(client_id)
        r.username = bytes_view(username or b"")
        r.properties = bytes_view(properties)
        r.payload = bytes_view(payload)
        got = journal_append(self.j, shard, &r)
        if got == JOURNAL_WAITS:
            raise BlockingIOError
        if got == JOURNAL_NO_MEMORY:
            raise MemoryError
        if got == JOURNAL_TOO_LARGE:
            raise ValueError("it is too large")
        return r.seq, bool(got)

    def seal(self):
        """Hand over all open blocks. Return whether there was one."""
        some = journal_seal(self.j)
        journal_hand(self.j)
        return bool(some)

    def room(self):
        return bool(journal_room(self.j))

    def write(self, uint64_t now_us=1):
        cdef int got
        with nogil:
            journal_take(self.j)
            got = journal_write(self.j, now_us)
            journal_take(self.j)
        return got == 0

    def sync(self):
        cdef int got
        with nogil:
            got = journal_sync(self.j)
            journal_take(self.j)
        return got == 0

    def mark(self, uint64_t now_us=1):
        cdef int got
        with nogil:
            got = journal_mark(self.j, now_us)
            journal_take(self.j)
        return got == 0

    def retain(self, uint64_t now_us=1):
        cdef int got
        with nogil:
            got = journal_retain(self.j, now_us)
            journal_take(self.j)
        return got == 0

    def marks(self):
        return marks_dict(&self.j.shared.marks)

    def stats(self):
        cdef JournalStats stats = self.j.shared.stats
        return stats

    def why(self):
        return (<const char*>self.j.shared.why).decode("utf-8", "replace")

    @property
    def shards(self):
        return self.j.n_shards

    def next_seq(self, uint32_t shard=0):
        return self.j.loop.next_seq[shard]

    def written(self, uint32_t shard=0):
        return self.j.writer.shards[shard].written

    def waiting_bytes(self):
        return self.j.loop.waiting_bytes
