# Benchmark API of the topic room and of the slab (perf/): loops without the GIL and without Python objects, between two readings
# of the clock. Corpora are bytes with one filter or topic per line. This module does not interpret the figures. It guarantees
# that only the operation runs between the readings: everything else is parsed and allocated before. Not for tests: it checks only
# what a wrong corpus would break.
#
# Each operation has two forms: the seconds of a whole run, and (`*_latencies`) the time of every single operation, counted in
# buckets of at most 1/32 of their value. The reading of the clock itself (about 25 ns) is part of each.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcpy, memset
from cext.base.clock cimport clock_monotonic_ns
from cext.base.hash cimport HashKey, hash_key_init
from cext.base.slab cimport Slab, SlabItem, slab_fini, slab_give, slab_init, slab_take
from cext.base.view cimport View
from cext.topic.index cimport (
    INDEX_ADDED, INDEX_REMOVED, Index, IndexStats, Owner, index_add, index_free, index_new, index_remove, index_stats,
)
from cext.topic.match cimport Match, index_match, match_fini, match_init
from cext.topic.name cimport Filter, filter_parse
from cext.topic.options cimport (
    INDEX_FULL, INDEX_HASH, INDEX_LETTER, INDEX_SCAN, INDEX_TREE, IndexOptions, LETTERS_OFF, LETTERS_OF_MODE, LETTERS_ON,
)
from cext.topic.retained cimport (
    Retained, RetainedCursor, retained_bytes, retained_close, retained_free, retained_new, retained_next, retained_open,
    retained_remove, retained_set,
)


# ---- latencies ----

cdef enum:
    SUB = 32                    # buckets per power of two
    BUCKETS = 60 * SUB

cdef struct Latencies:
    uint64_t counts[BUCKETS]
    uint64_t max_ns


cdef inline void latency_count(Latencies* l, uint64_t ns) noexcept nogil:
    cdef uint32_t shift = 0
    while (ns >> shift) >= 2 * SUB:
        shift += 1
    l.counts[shift * SUB + (ns >> shift)] += 1
    if ns > l.max_ns:
        l.max_ns = ns


cdef uint64_t bucket_ns(uint32_t i) noexcept nogil:
    """Return the smallest value of a bucket. Below 2 * SUB each value has its own bucket."""
    return i if i < 2 * SUB else <uint64_t>(i % SUB + SUB) << (i // SUB - 1)


cdef tuple latencies_of(const Latencies* l):
    return [(bucket_ns(i), l.counts[i]) for i in range(BUCKETS) if l.counts[i]], l.max_ns


cdef class Histogram:
    cdef Latencies l

    def __cinit__(self):
        memset(&self.l, 0, sizeof(Latencies))


# ---- corpora ----

cdef class Lines:
    """Filters or topics, one per line, copied into one piece of memory."""
    cdef uint8_t* text
    cdef View* views
    cdef Filter* filters
    cdef readonly uint32_t n

    def __cinit__(self, text: bytes, filters: bool = False):
        cdef const uint8_t* p = text
        cdef const uint8_t* line
        cdef const uint8_t* end
        cdef size_t size = len(text)
        cdef uint32_t i
        self.n = text.count(b"\n")
        if not text.endswith(b"\n"):
            raise ValueError("every line ends with a newline")
        self.text = <uint8_t*>malloc(size)
        self.views = <View*>calloc(self.n, sizeof(View))
        if self.text == NULL or self.views == NULL:
            raise MemoryError
        memcpy(self.text, p, size)
        line = self.text
        for i in range(self.n):
            end = <const uint8_t*>memchr(line, 10, <size_t>(self.text + size - line))
            self.views[i].p = line
            self.views[i].n = <uint32_t>(end - line)
            line = end + 1
        if filters:
            self.parse()

    cdef int parse(self) except -1:
        cdef uint32_t i
        self.filters = <Filter*>calloc(self.n, sizeof(Filter))
        if self.filters == NULL:
            raise MemoryError
        for i in range(self.n):
            if filter_parse(self.views[i].p, self.views[i].n, &self.filters[i]):
                raise ValueError(self.views[i].p[:self.views[i].n])
        return 0

    cdef uint32_t part(self, uint32_t first, object count) except? 0xffffffff:
        """Return the end of a run of `count` lines from `first` on."""
        cdef uint32_t n = self.n - first if count is None else count
        if first > self.n or n > self.n - first:
            raise IndexError(first)
        return first + n

    def __dealloc__(self):
        free(self.text)
        free(self.views)
        free(self.filters)


cdef int filters_needed(Lines lines) except -1:
    if lines.filters == NULL:
        raise ValueError("these lines are not filters")
    return 0


# ---- the subscription index ----

cdef IndexOptions options_of(str mode, object letters, object hash_buckets, object child_hash_threshold, object match_cache) except *:
    cdef IndexOptions options
    modes = {"full": INDEX_FULL, "letter": INDEX_LETTER, "hash": INDEX_HASH, "tree": INDEX_TREE, "scan": INDEX_SCAN}
    options.mode = modes[mode]
    options.letters = LETTERS_OF_MODE if letters is None else LETTERS_ON if letters else LETTERS_OFF
    options.hash_buckets = hash_buckets
    options.child_hash_threshold = child_hash_threshold
    options.match_cache = match_cache
    return options


cdef class IndexBench:
    """An index in which line i of any filters belongs to owner i % owners."""
    cdef Index* ix
    cdef Match m
    cdef Owner* owner
    cdef uint32_t owners

    def __cinit__(self, mode: str = "full", letters: bool | None = None, hash_buckets: int = 0,
                  child_hash_threshold: int = 0, match_cache: int = 131_072, owners: int = 100):
        cdef HashKey key
        cdef IndexOptions options = options_of(mode, letters, hash_buckets, child_hash_threshold, match_cache)
        match_init(&self.m)
        self.owners = owners
        self.owner = <Owner*>calloc(owners, sizeof(Owner))
        if self.owner == NULL or hash_key_init(&key):
            raise MemoryError
        self.ix = index_new(&key, &options)
        if self.ix == NULL:
            raise MemoryError

    def __dealloc__(self):
        match_fini(&self.m)
        index_free(self.ix)
        free(self.owner)

    def add(self, lines: Lines, first: int = 0, count: int | None = None) -> float:
        """Add filters that are all new. Return the seconds."""
        cdef uint32_t i, start = first, end = lines.part(first, count), done = 0
        cdef uint64_t t
        filters_needed(lines)
        with nogil:
            t = clock_monotonic_ns()
            for i in range(start, end):
                done += self.add_one(lines, i)
            t = clock_monotonic_ns() - t
        if done != end - start:
            raise ValueError("not all were new")
        return t / 1e9

    cdef inline uint32_t add_one(self, Lines lines, uint32_t i) noexcept nogil:
        cdef Owner* owner = &self.owner[i % self.owners]
        return index_add(self.ix, owner, owner, &lines.filters[i], 0, 0) == INDEX_ADDED

    def remove(self, lines: Lines, first: int = 0, count: int | None = None) -> float:
        """Remove filters that all exist. Return the seconds."""
        cdef uint32_t i, start = first, end = lines.part(first, count), done = 0
        cdef uint64_t t
        filters_needed(lines)
        with nogil:
            t = clock_monotonic_ns()
            for i in range(start, end):
                done += index_remove(self.ix, &self.owner[i % self.owners], &lines.filters[i]) == INDEX_REMOVED
            t = clock_monotonic_ns() - t
        if done != end - start:
            raise ValueError("not all were there")
        return t / 1e9

    def match(self, lines: Lines, first: int = 0, count: int | None = None) -> tuple[float, int]:
        """Match topics. Return the seconds and the number of deliveries."""
        cdef uint32_t i, start = first, end = lines.part(first, count)
        cdef uint64_t t, deliveries = 0
        cdef int failed = 0
        with nogil:
            t = clock_monotonic_ns()
            for i in range(start, end):
                failed |= index_match(self.ix, lines.views[i].p, lines.views[i].n, &self.m)
                deliveries += self.m.n_lists
            t = clock_monotonic_ns() - t
        if failed:
            raise MemoryError
        return t / 1e9, deliveries

    def add_latencies(self, lines: Lines, first: int = 0, count: int | None = None) -> tuple[list, int]:
        cdef uint32_t i, start = first, end = lines.part(first, count), done = 0
        cdef uint64_t t
        cdef Histogram h = Histogram()
        filters_needed(lines)
        with nogil:
            for i in range(start, end):
                t = clock_monotonic_ns()
                done += self.add_one(lines, i)
                latency_count(&h.l, clock_monotonic_ns() - t)
        if done != end - start:
            raise ValueError("not all were new")
        return latencies_of(&h.l)

    def remove_latencies(self, lines: Lines, first: int = 0, count: int | None = None) -> tuple[list, int]:
        cdef uint32_t i, start = first, end = lines.part(first, count), done = 0
        cdef uint64_t t
        cdef Histogram h = Histogram()
        filters_needed(lines)
        with nogil:
            for i in range(start, end):
                t = clock_monotonic_ns()
                done += index_remove(self.ix, &self.owner[i % self.owners], &lines.filters[i]) == INDEX_REMOVED
                latency_count(&h.l, clock_monotonic_ns() - t)
        if done != end - start:
            raise ValueError("not all were there")
        return latencies_of(&h.l)

    def match_latencies(self, lines: Lines, first: int = 0, count: int | None = None) -> tuple[list, int]:
        cdef uint32_t i, start = first, end = lines.part(first, count)
        cdef uint64_t t
        cdef int failed = 0
        cdef Histogram h = Histogram()
        with nogil:
            for i in range(start, end):
                t = clock_monotonic_ns()
                failed |= index_match(self.ix, lines.views[i].p, lines.views[i].n, &self.m)
                latency_count(&h.l, clock_monotonic_ns() - t)
        if failed:
            raise MemoryError
        return latencies_of(&h.l)

    def stats(self) -> dict[str, int]:
        cdef IndexStats stats
        index_stats(self.ix, &stats)
        return stats


# ---- the retained tree ----

cdef void free_nothing(void* ctx, void* value) noexcept nogil:
    pass


cdef class RetainedBench:
    """A tree whose values are the lines themselves. The caller keeps the lines alive."""
    cdef Retained* r

    def __cinit__(self, mode: str = "full", letters: bool | None = None, hash_buckets: int = 0,
                  child_hash_threshold: int = 0):
        cdef HashKey key
        cdef IndexOptions options = options_of(mode, letters, hash_buckets, child_hash_threshold, 0)
        if hash_key_init(&key):
            raise MemoryError
        self.r = retained_new(&key, &options)
        if self.r == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.r != NULL:
            retained_free(self.r, free_nothing, NULL)

    def set(self, lines: Lines, first: int = 0, count: int | None = None) -> float:
        cdef uint32_t i, start = first, end = lines.part(first, count)
        cdef uint64_t t
        cdef void* old
        cdef int failed = 0
        with nogil:
            t = clock_monotonic_ns()
            for i in range(start, end):
                failed |= retained_set(self.r, lines.views[i].p, lines.views[i].n, &lines.views[i], &old)
            t = clock_monotonic_ns() - t
        if failed:
            raise MemoryError
        return t / 1e9

    def remove(self, lines: Lines, first: int = 0, count: int | None = None) -> tuple[float, int]:
        """Remove topics. Return the seconds, and the number of topics that had a value."""
        cdef uint32_t i, start = first, end = lines.part(first, count), done = 0
        cdef uint64_t t
        with nogil:
            t = clock_monotonic_ns()
            for i in range(start, end):
                done += retained_remove(self.r, lines.views[i].p, lines.views[i].n) != NULL
            t = clock_monotonic_ns() - t
        return t / 1e9, done

    def fetch(self, lines: Lines, first: int = 0, count: int | None = None, slice: int = 1000) -> tuple[float, int]:
        """Walk a cursor for each filter to its end, `slice` nodes at a time. Return the seconds and the number of values."""
        cdef uint32_t i, start = first, end = lines.part(first, count), budget, most = slice
        cdef uint64_t t, values = 0
        cdef int failed = 0
        cdef RetainedCursor c
        with nogil:
            t = clock_monotonic_ns()
            for i in range(start, end):
                if retained_open(self.r, &c, lines.views[i]):
                    failed = 1
                    break
                budget = most
                while True:
                    if retained_next(self.r, &c, &budget) != NULL:
                        values += 1
                    elif budget:
                        break
                    else:
                        budget = most
                retained_close(self.r, &c)
            t = clock_monotonic_ns() - t
        if failed:
            raise MemoryError
        return t / 1e9, values

    def bytes(self) -> int:
        return retained_bytes(self.r)


# ---- the pool of client contexts ----

cdef class PoolBench:
    """Clients of one size, from the slab (grown by `grow` at a time), or with grow 0 allocated one by one, as `--pool off`
    does."""
    cdef Slab slab
    cdef uint32_t n
    cdef void** held
    cdef uint32_t* order

    def __cinit__(self, n: int, item_bytes: int = 512, grow: int = 1000):
        self.n = n
        slab_init(&self.slab, item_bytes, grow or 1, 10_000 if grow else 0)
        self.held = <void**>calloc(n, sizeof(void*))
        self.order = <uint32_t*>calloc(n, sizeof(uint32_t))
        if self.held == NULL or self.order == NULL:
            raise MemoryError
        self.shuffle()

    cdef void shuffle(self) noexcept nogil:
        cdef uint64_t x = 88172645463325252
        cdef uint32_t i, j
        for i in range(self.n):
            x ^= x << 13
            x ^= x >> 7
            x ^= x << 17
            j = <uint32_t>(x % (i + 1))
            self.order[i] = self.order[j]
            self.order[j] = i

    def __dealloc__(self):
        slab_fini(&self.slab)
        free(self.held)
        free(self.order)

    cdef inline void* take(self) noexcept nogil:
        cdef void* p = slab_take(&self.slab)
        if p != NULL:
            (<uint8_t*>p)[sizeof(SlabItem)] = 1     # a client is written to, so its pages exist
        return p

    cdef inline void give(self, void* p) noexcept nogil:
        slab_give(&self.slab, p)

    def connect(self) -> float:
        """Connect all clients. Return the seconds."""
        cdef uint32_t i
        cdef uint64_t t
        cdef bint failed = False
        with nogil:
            t = clock_monotonic_ns()
            for i in range(self.n):
                self.held[i] = self.take()
                failed |= self.held[i] == NULL
            t = clock_monotonic_ns() - t
        if failed:
            raise MemoryError
        return t / 1e9

    def disconnect(self) -> float:
        """Disconnect all clients in random order. Return the seconds."""
        cdef uint32_t i
        cdef uint64_t t
        with nogil:
            t = clock_monotonic_ns()
            for i in range(self.n):
                self.give(self.held[self.order[i]])
                self.held[self.order[i]] = NULL
            t = clock_monotonic_ns() - t
        return t / 1e9

    def churn(self) -> float:
        """While all are connected, replace each by a new one in random order. Return the seconds."""
        cdef uint32_t i
        cdef uint64_t t
        cdef bint failed = False
        with nogil:
            t = clock_monotonic_ns()
            for i in range(self.n):
                self.give(self.held[self.order[i]])
                self.held[self.order[i]] = self.take()
                failed |= self.held[self.order[i]] == NULL
            t = clock_monotonic_ns() - t
        if failed:
            raise MemoryError
        return t / 1e9

    def connect_latencies(self) -> tuple[list, int]:
        cdef uint32_t i
        cdef uint64_t t
        cdef bint failed = False
        cdef Histogram h = Histogram()
        with nogil:
            for i in range(self.n):
                t = clock_monotonic_ns()
                self.held[i] = self.take()
                latency_count(&h.l, clock_monotonic_ns() - t)
                failed |= self.held[i] == NULL
        if failed:
            raise MemoryError
        return latencies_of(&h.l)

    def disconnect_latencies(self) -> tuple[list, int]:
        cdef uint32_t i
        cdef uint64_t t
        cdef Histogram h = Histogram()
        with nogil:
            for i in range(self.n):
                t = clock_monotonic_ns()
                self.give(self.held[self.order[i]])
                latency_count(&h.l, clock_monotonic_ns() - t)
                self.held[self.order[i]] = NULL
        return latencies_of(&h.l)
