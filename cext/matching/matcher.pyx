"""Match many topics against many filters in columns, with the broker's subscription index. mosq/pipeline/matching.py uses it to
compute in advance which subscriber would receive which message. This module knows columns of text in Arrow's layout, and reports
which row of one column belongs to which row of the other. It does not know what the subscribers are, nor the use of the pairs.

Invariants: the filters are passed once and never change. A row that is not a valid filter has an id like every other
row, and is never found. A call returns at most `most` pairs plus those of one topic. Cost: index_match, and 4 bytes
for each pair; no object per row.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

from cext.base.hash cimport HashKey, hash_key_init
from cext.base.view cimport View
from cext.codec.utf8 cimport utf8_check
from cext.topic.index cimport Index, List, Owner, index_add, index_free, index_new, list_entry
from cext.topic.match cimport Match, index_match, match_fini, match_init, match_total
from cext.topic.name cimport Filter, filter_parse, name_check
from cext.topic.options cimport INDEX_FULL, IndexOptions

cdef enum:
    GOOD = 0
    NOT_UTF8 = 1
    NOT_VALID = 2               # invalid as a topic, or as a filter
    CACHE_TOPICS = 131_072      # same as the broker's default
    IDS_FIRST = 4096

PROBLEMS = {NOT_UTF8: "not UTF-8 without control characters", NOT_VALID: "not valid"}


cdef class Column:
    """Refer to texts in Arrow's layout without a copy: row i is data[offsets[first + i] : offsets[first + i + 1]]."""
    cdef Py_buffer offsets_of
    cdef Py_buffer data_of
    cdef const int32_t* offsets
    cdef const uint8_t* data
    cdef readonly int64_t rows

    def __cinit__(self, offsets: object, data: object, first: int, rows: int):
        PyObject_GetBuffer(offsets, &self.offsets_of, PyBUF_SIMPLE)
        PyObject_GetBuffer(data, &self.data_of, PyBUF_SIMPLE)
        if first < 0 or rows < 0 or (first + rows + 1) * sizeof(int32_t) > <uint64_t>self.offsets_of.len:
            raise ValueError("the offsets do not hold so many rows")
        self.offsets = <const int32_t*>self.offsets_of.buf + <int64_t>first
        self.data = <const uint8_t*>self.data_of.buf
        self.rows = rows
        self.check()

    cdef int check(self) except -1:
        cdef int64_t i
        cdef int32_t at = self.offsets[0]
        cdef bint right = at >= 0
        for i in range(1, self.rows + 1):
            right &= self.offsets[i] >= at
            at = self.offsets[i]
        if not right or at > self.data_of.len:
            raise ValueError("the offsets do not rise, or go beyond the text")
        return 0

    def __dealloc__(self):
        PyBuffer_Release(&self.offsets_of)
        PyBuffer_Release(&self.data_of)


cdef inline View text_at(Column c, int64_t i) noexcept nogil:
    cdef View v
    v.p = c.data + c.offsets[i]
    v.n = <uint32_t>(c.offsets[i + 1] - c.offsets[i])
    return v


cdef inline uint8_t topic_problem(View v) noexcept nogil:
    if utf8_check(v.p, v.n) != 0:
        return NOT_UTF8
    return NOT_VALID if name_check(v.p, v.n) != 0 else GOOD


cdef inline uint8_t filter_problem(View v, Filter* f) noexcept nogil:
    if utf8_check(v.p, v.n) != 0:
        return NOT_UTF8
    return NOT_VALID if filter_parse(v.p, v.n, f) != 0 else GOOD


def problems(column: Column, filters: bool) -> bytes:
    """Return one byte for each row: 0 if it is a valid filter (or topic), otherwise a key of PROBLEMS."""
    cdef bytes found = PyBytes_FromStringAndSize(NULL, column.rows)
    cdef uint8_t* p = found
    cdef int64_t i
    cdef Filter f
    cdef bint as_filter = filters
    with nogil:
        for i in range(column.rows):
            p[i] = filter_problem(text_at(column, i), &f) if as_filter else topic_problem(text_at(column, i))
    return found


cdef struct Ids:
    int32_t* p
    uint64_t n
    uint64_t cap


cdef int ids_room(Ids* ids, uint64_t more) noexcept nogil:
    cdef uint64_t cap = max(ids.cap * 2, ids.n + more, <uint64_t>IDS_FIRST)
    cdef int32_t* p
    if ids.n + more <= ids.cap:
        return 0
    p = <int32_t*>realloc(ids.p, cap * sizeof(int32_t))
    if p == NULL:
        return -1
    ids.p = p
    ids.cap = cap
    return 0


cdef inline void ids_of(Ids* ids, const List* l) noexcept nogil:
    cdef uint32_t i
    for i in range(l.n):
        ids.p[ids.n + i] = <int32_t>(<size_t>list_entry(l, i).subscriber - 1)
    ids.n += l.n


cdef inline void tally_of(int64_t* tally, const List* l) noexcept nogil:
    cdef uint32_t i
    for i in range(l.n):
        tally[<size_t>list_entry(l, i).subscriber - 1] += 1


cdef class Matcher:
    """Index the filters of a column. A filter's id is its row; the same filter in two rows is two subscribers."""
    cdef Index* ix
    cdef Match m
    cdef Owner* owners
    cdef readonly int64_t n
    cdef bint busy

    def __cinit__(self, filters: Column):
        cdef HashKey key
        cdef IndexOptions options
        memset(&options, 0, sizeof(options))
        options.mode = INDEX_FULL
        options.match_cache = CACHE_TOPICS
        match_init(&self.m)
        if filters.rows > INT32_MAX:
            raise ValueError("more filters than ids")
        self.n = filters.rows
        self.owners = <Owner*>calloc(self.n + 1, sizeof(Owner))
        if self.owners == NULL or hash_key_init(&key) != 0:
            raise MemoryError
        self.ix = index_new(&key, &options)
        if self.ix == NULL or self.fill(filters) != 0:
            raise MemoryError

    cdef int fill(self, Column filters) noexcept:
        cdef int64_t i
        cdef Filter f
        with nogil:
            for i in range(self.n):
                if filter_problem(text_at(filters, i), &f) != GOOD:
                    continue
                if index_add(self.ix, &self.owners[i], <void*><size_t>(i + 1), &f, 0, 0) < 0:
                    return -1
        return 0

    def __dealloc__(self):
        match_fini(&self.m)
        if self.ix != NULL:
            index_free(self.ix)
        free(self.owners)

    cdef int begin(self) except -1:
        if self.busy:
            raise RuntimeError("one thread at a time")
        self.busy = True
        return 0

    def match(self, topics: Column, first: int = 0, most: int = 1 << 20) -> tuple[bytes, bytes, int]:
        """Return (offsets, ids, bad) for the topics from row `first` on. The offsets (int32) give where each topic's ids begin
        and end; the ids are int32; `bad` is the number of invalid topics, which have no ids. After `most` pairs no further topic
        is begun, so the number of offsets gives the number of topics done."""
        cdef Ids ids
        cdef int64_t i, start = first, done = 0, bad = 0
        cdef uint64_t enough = min(max(most, 1), INT32_MAX // 2)
        cdef int32_t* ends
        cdef int failed = 0
        if first < 0 or first > topics.rows:
            raise IndexError(first)
        memset(&ids, 0, sizeof(ids))
        ends = <int32_t*>malloc((topics.rows - start + 1) * sizeof(int32_t))
        if ends == NULL:
            raise MemoryError
        try:
            self.begin()
            ends[0] = 0
            with nogil:
                for i in range(start, topics.rows):
                    if ids.n >= enough:
                        break
                    failed = self.match_one(text_at(topics, i), &ids, &bad)
                    if failed:
                        break
                    done += 1
                    ends[done] = <int32_t>ids.n
            self.busy = False
            if failed:
                raise MemoryError
            return (PyBytes_FromStringAndSize(<const char*>ends, (done + 1) * sizeof(int32_t)),
                    PyBytes_FromStringAndSize(<const char*>ids.p, ids.n * sizeof(int32_t)), bad)
        finally:
            free(ends)
            free(ids.p)

    cdef int match_one(self, View topic, Ids* ids, int64_t* bad) noexcept nogil:
        cdef uint32_t i
        cdef uint64_t more = 0
        if topic_problem(topic) != GOOD:
            bad[0] += 1
            return 0
        if index_match(self.ix, topic.p, topic.n, &self.m) != 0:
            return -1
        for i in range(self.m.n_groups):
            more += self.m.groups[i].members.n
        more += match_total(&self.m)
        if ids_room(ids, more) != 0:
            return -1
        for i in range(self.m.n_lists):
            ids_of(ids, self.m.lists[i])
        for i in range(self.m.n_groups):
            ids_of(ids, &self.m.groups[i].members)
        return 0

    def count(self, topics: Column, tally: object = None) -> tuple[bytes, int]:
        """Return (counts, bad): how many deliveries a message to each topic would cause (int64), one for each filter and one
        for each shared group, and the number of invalid topics. `tally` is a buffer of int64; the call adds to it how many of
        these topics each filter matches."""
        cdef Py_buffer tally_buffer
        cdef int64_t* sums = NULL
        cdef bytes found = PyBytes_FromStringAndSize(NULL, topics.rows * sizeof(int64_t))
        cdef int64_t* counts = <int64_t*><char*>found
        cdef int64_t i, bad = 0
        cdef int failed = 0
        memset(&tally_buffer, 0, sizeof(tally_buffer))
        try:
            if tally is not None:
                PyObject_GetBuffer(tally, &tally_buffer, PyBUF_WRITABLE)
                sums = <int64_t*>tally_buffer.buf
                if <uint64_t>tally_buffer.len < self.n * sizeof(int64_t):
                    raise ValueError("the tally has fewer places than there are filters")
            self.begin()
            with nogil:
                for i in range(topics.rows):
                    failed |= self.count_one(text_at(topics, i), &counts[i], sums, &bad)
            self.busy = False
        finally:
            PyBuffer_Release(&tally_buffer)
        if failed:
            raise MemoryError
        return found, bad

    cdef int count_one(self, View topic, int64_t* count, int64_t* tally, int64_t* bad) noexcept nogil:
        cdef uint32_t i
        count[0] = 0
        if topic_problem(topic) != GOOD:
            bad[0] += 1
            return 0
        if index_match(self.ix, topic.p, topic.n, &self.m) != 0:
            return -1
        count[0] = match_total(&self.m) + self.m.n_groups
        if tally != NULL:
            for i in range(self.m.n_lists):
                tally_of(tally, self.m.lists[i])
            for i in range(self.m.n_groups):
                tally_of(tally, &self.m.groups[i].members)
        return 0
