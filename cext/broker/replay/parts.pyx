"""The ends of the parts of streams: how far each can be read. Each worker of a machine writes a part of each stream (docs/adr/0033); a cursor reads
all of them. This module knows the memory that all workers map, and positions. It reads no file of a stream but the mark of a part that has no
writer.

A worker publishes the position behind the last record whose batch is written, after it has written both. So a reader needs no message and no sync
for the records of another worker: it sees them as early as those of its own one, and as late. A reader that waits sets `parts_wanted` in its
place, and looks once more. A worker that has published takes that back and writes to the reader's eventfd: one notice, however many records follow
before the reader looks again.
Cost with workers: a store for each shard and batch, and one look at each other worker. A broker that is alone has none of it.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset, strlen

from cext.base.hash cimport hash_bytes
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.durable cimport durable_of
from cext.broker.core.workers cimport PartEnds, WORKER_PARTS_MAX, Workers, workers_of
from cext.broker.persist.streams cimport Stream, StreamPart, Streams, stream_name, streams_of
from cext.journal.format cimport JOURNAL_FORMAT, Marks
from cext.journal.listing cimport marks_read
from cext.net.system cimport c_read, c_write
from cext.store.crc cimport crc_hardware
from cext.store.store cimport store_extension_wake

cdef extern from *:
    """
    #include <stdint.h>
    static inline uint64_t mosq_part_get(const uint64_t* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline void mosq_part_put(uint64_t* p, uint64_t n) { __atomic_store_n(p, n, __ATOMIC_RELEASE); }
    static inline void mosq_part_put_first(uint64_t* p, uint64_t n) { __atomic_store_n(p, n, __ATOMIC_SEQ_CST); __atomic_thread_fence(__ATOMIC_SEQ_CST); }
    static inline int mosq_part_claim(uint64_t* p, uint64_t n) {
        uint64_t there = 0;
        return __atomic_compare_exchange_n(p, &there, n, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) || there == n;
    }
    static inline uint64_t mosq_part_take(uint64_t* p) { return __atomic_exchange_n(p, 0, __ATOMIC_SEQ_CST); }
    static inline void mosq_part_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
    """
    uint64_t mosq_part_get(const uint64_t* p) nogil
    void mosq_part_put(uint64_t* p, uint64_t n) nogil
    void mosq_part_put_first(uint64_t* p, uint64_t n) nogil
    bint mosq_part_claim(uint64_t* p, uint64_t n) nogil
    uint64_t mosq_part_take(uint64_t* p) nogil
    void mosq_part_fence() nogil


# ---------------------------------------------------------------- before the loop

cdef int part_add(Broker* b, Stream* s, uint32_t number, Stream* local, const char* dir, uint32_t place, const char* name) noexcept nogil:     # parameters: of a part
    cdef StreamPart* more = <StreamPart*>realloc(s.parts, (s.n_parts + 1) * sizeof(StreamPart))
    cdef StreamPart* p
    cdef View v
    if more == NULL:
        return -1
    s.parts = more
    p = &more[s.n_parts]
    memset(p, 0, sizeof(StreamPart))
    p.number = number
    p.local = local
    if local == NULL:
        p.dir = <char*>calloc(1, strlen(dir) + 1)
        if p.dir == NULL:
            return -1
        memcpy(p.dir, dir, strlen(dir))
    s.n_parts += 1
    if local == NULL and name[0] and b.workers != NULL:
        v.p = <const unsigned char*>name
        v.n = <uint32_t>strlen(name)
        p.ends = ends_named(workers_of(b), place, name_number(workers_of(b), v))
    elif local == NULL:
        p.left = 1
        p.ends = ends_of_mark(b, dir)
    return 0


cdef PartEnds* ends_of_mark(Broker* b, const char* dir) noexcept nogil:
    """Return how far a part without a writer can be read; NULL: it has no mark, or there is no memory."""
    cdef PartEnds* ends = <PartEnds*>calloc(1, sizeof(PartEnds))
    cdef Marks m
    cdef int slot = 0
    cdef uint32_t shard
    if ends == NULL:
        return NULL
    if marks_read(&durable_of(b).store.files, crc_hardware(), dir, &m, &slot) < 0 or m.format > JOURNAL_FORMAT:
        free(ends)
        return NULL
    ends.n_shards = m.n
    for shard in range(m.n):
        ends.ends[shard] = m.shards[shard].seq
    return ends


cdef void parts_free(Stream* s) noexcept nogil:
    cdef uint32_t i
    for i in range(s.n_parts):
        free(s.parts[i].dir)
        if s.parts[i].left:
            free(s.parts[i].ends)
    free(s.parts)


cdef uint32_t name_number(const Workers* w, View name) noexcept nogil:
    """Return the number of a stream's name, plus 1; 0: there are too many. Whichever worker asks first takes a number."""
    cdef uint64_t key = hash_bytes(&w.key, name.p, name.n) | 1
    cdef uint32_t i
    for i in range(WORKER_PARTS_MAX):
        if mosq_part_claim(&w.counts[0].stream_names[i], key):
            return i + 1
    return 0


cdef PartEnds* ends_named(const Workers* w, uint32_t place, uint32_t number) noexcept nogil:
    return &w.counts[place].parts[number - 1] if number else NULL


cdef void parts_announce(Broker* b) noexcept nogil:
    cdef Streams* t = streams_of(b)
    cdef Workers* w = workers_of(b)
    cdef Stream* s
    cdef uint32_t i
    t.workers = w
    for i in range(t.n if w != NULL else 0):
        s = t.at[i]
        s.shared = name_number(w, stream_name(s))
        s.published = ends_named(w, w.place, s.shared)
        if s.published != NULL:
            mosq_part_put(&s.published.n_shards, s.journal.n_shards)


# ---------------------------------------------------------------- positions

cdef uint32_t part_shards(const Stream* s, uint32_t part) noexcept nogil:
    cdef const StreamPart* p = &s.parts[part]
    if p.local != NULL:
        return p.local.journal.n_shards
    return <uint32_t>mosq_part_get(&p.ends.n_shards) if p.ends != NULL else 0


cdef uint64_t part_end(const StreamPart* p, uint32_t shard) noexcept nogil:
    cdef const Stream* s = p.local
    if s == NULL:
        return mosq_part_get(&p.ends.ends[shard])
    return min(s.committed[shard], s.journal.writer.shards[shard].written)


cdef const char* part_dir(const StreamPart* p) noexcept nogil:
    if p.local != NULL:
        return <const char*>p.local.journal.dir
    return p.dir


# ---------------------------------------------------------------- between the workers

cdef void parts_published(Streams* t) noexcept nogil:
    cdef Workers* w = t.workers
    cdef Stream* s
    cdef uint64_t end, one = 1
    cdef uint32_t i, shard
    cdef bint more = 0
    for i in range(t.n):
        s = t.at[i]
        for shard in range(s.journal.n_shards if s.published != NULL else 0):
            end = min(s.committed[shard], s.journal.writer.shards[shard].written)
            if end != s.published.ends[shard]:
                mosq_part_put(&s.published.ends[shard], end)
                more = 1
    if not more:
        return
    mosq_part_fence()
    for i in range(w.n):
        if i != w.place and mosq_part_get(&w.counts[i].parts_wanted) and mosq_part_take(&w.counts[i].parts_wanted):
            c_write(w.news[i], &one, 8)


cdef void parts_want(Streams* t) noexcept nogil:
    mosq_part_put_first(&t.workers.counts[t.workers.place].parts_wanted, 1)


cdef void parts_notice(Broker* b) noexcept nogil:
    cdef uint64_t count
    c_read(workers_of(b).news[workers_of(b).place], &count, 8)
    if b.streams != NULL and not durable_of(b).closed:
        store_extension_wake(&durable_of(b).store)
