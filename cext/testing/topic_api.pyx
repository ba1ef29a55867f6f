# Test API of the topic room: thin functions over its nogil functions. Every byte string is passed in memory of exactly its size,
# so that the sanitizer detects a read past its end. Owners, subscribers and retained values are numbers here.
cimport cython
from libc.stdint cimport UINT32_MAX, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy
from cext.base.hash cimport HashKey, hash_bytes, hash_key_init
from cext.base.view cimport View
from cext.testing.topic_check cimport check_index, check_retained, index_longest_chain
from cext.topic.explain cimport EXPLAIN_BYTES_MAX, index_explain, index_load_hundredths
from cext.topic.index cimport (
    Entry, Group, INDEX_ADDED, INDEX_NOT_FOUND, INDEX_REMOVED, INDEX_REPLACED, Index, IndexStats, List, Owner, Subscription,
    index_add, index_free, index_new, index_remove, index_remove_some, index_stats, list_entry, list_pin, list_tidy, list_unpin,
    subscription_matches, subscription_next, subscription_read,
)
from cext.topic.match cimport (
    MATCH_PART, Match, index_match, index_match_on, index_match_some, match_fini, match_init, match_leave, match_total,
)
from cext.topic.name cimport Filter, filter_covers, filter_matches, filter_parse, name_check
from cext.topic.options cimport (
    INDEX_FULL, INDEX_HASH, INDEX_LETTER, INDEX_SCAN, INDEX_TREE, IndexOptions, LETTERS_OFF, LETTERS_OF_MODE, LETTERS_ON,
    NEVER_HASHED,
)
from cext.topic.retained cimport (
    Retained, RetainedCursor, retained_bytes, retained_close, retained_count, retained_cursor_bytes, retained_free,
    retained_get, retained_new, retained_next, retained_open, retained_remove, retained_set,
)

ADDED, REPLACED, NOT_FOUND, REMOVED = INDEX_ADDED, INDEX_REPLACED, INDEX_NOT_FOUND, INDEX_REMOVED


cdef View block_of(bytes text):
    cdef View v
    cdef uint8_t* p = <uint8_t*>malloc(len(text) or 1)
    if p == NULL:
        raise MemoryError
    memcpy(p, <const uint8_t*>text, len(text))
    v.p = p
    v.n = <uint32_t>len(text)
    return v


def siphash(k0: int, k1: int, text: bytes) -> int:
    cdef HashKey key
    cdef View v = block_of(text)
    key.k0 = k0
    key.k1 = k1
    try:
        return hash_bytes(&key, v.p, v.n)
    finally:
        free(<void*>v.p)


def random_key() -> tuple[int, int]:
    cdef HashKey key
    if hash_key_init(&key) != 0:
        raise OSError("no randomness")
    return key.k0, key.k1


def check_name(text: bytes) -> int:
    cdef View v = block_of(text)
    try:
        return name_check(v.p, v.n)
    finally:
        free(<void*>v.p)


def parse_filter(text: bytes) -> tuple[int, bytes, bytes, int]:
    """Return the code, then the parts of the filter: filter, group, wildcard (all empty on refusal)."""
    cdef View v = block_of(text)
    cdef Filter f
    cdef int rc = filter_parse(v.p, v.n, &f)
    try:
        if rc:
            return rc, b"", b"", 0
        return rc, f.filter.p[:f.filter.n], f.group.p[:f.group.n] if f.group.n else b"", f.wildcard
    finally:
        free(<void*>v.p)


def matches(filter: bytes, topic: bytes) -> bool:
    cdef View f = block_of(filter)
    cdef View t = block_of(topic)
    try:
        return filter_matches(f, t)
    finally:
        free(<void*>f.p)
        free(<void*>t.p)


def covers(outer: bytes, inner: bytes) -> bool:
    cdef View o = block_of(outer)
    cdef View i = block_of(inner)
    try:
        return filter_covers(o, i)
    finally:
        free(<void*>o.p)
        free(<void*>i.p)


cdef list entries_of(const List* l):
    cdef Entry* e
    out = []
    for i in range(l.n):
        e = list_entry(l, i)
        out.append((<size_t>e.subscriber, e.sub_id, e.options) if e.subscriber != NULL else None)
    return out


cdef const char* some_strategy(void* _ctx, const Group* _g) noexcept nogil:
    return "in turn"


MODES = {"full": INDEX_FULL, "letter": INDEX_LETTER, "hash": INDEX_HASH, "tree": INDEX_TREE, "scan": INDEX_SCAN}


cdef IndexOptions options_of(mode, letters, hash_buckets, child_hash_threshold, match_cache=0):
    """letters: None = as the mode defines; child_hash_threshold: 0 = the default, -1 = never."""
    cdef IndexOptions o
    o.mode = MODES[mode]
    o.letters = LETTERS_OF_MODE if letters is None else LETTERS_ON if letters else LETTERS_OFF
    o.hash_buckets = hash_buckets
    o.match_cache = match_cache
    o.child_hash_threshold = NEVER_HASHED if child_hash_threshold == -1 else child_hash_threshold
    return o


@cython.no_gc                   # it holds numbers: it is in no reference cycle, and the collector must not clear `owners` first
cdef class PyIndex:
    """Owners are numbers above 0; a subscriber is the number of its owner."""
    cdef Index* ix
    cdef Match match_
    cdef dict owners

    def __cinit__(self, k0: int = 1, k1: int = 2, mode: str = "full", letters: bool | None = None, hash_buckets: int = 0,
                  child_hash_threshold: int = 0, match_cache: int = 0):
        cdef HashKey key
        cdef IndexOptions options = options_of(mode, letters, hash_buckets, child_hash_threshold, match_cache)
        key.k0 = k0
        key.k1 = k1
        match_init(&self.match_)
        self.owners = {}
        self.ix = index_new(&key, &options)
        if self.ix == NULL:
            raise MemoryError

    def __dealloc__(self):
        match_fini(&self.match_)
        index_free(self.ix)
        for owner in self.owners.values():
            free(<void*><size_t>owner)

    cdef Owner* owner(self, number: int) except NULL:
        cdef Owner* owner
        if number not in self.owners:
            owner = <Owner*>calloc(1, sizeof(Owner))
            if owner == NULL:
                raise MemoryError
            self.owners[number] = <size_t>owner
        return <Owner*><size_t>self.owners[number]

    def add(self, owner: int, filter: bytes, options: int = 0, sub_id: int = 0) -> int:
        cdef View v = block_of(filter)
        cdef Filter f
        try:
            if filter_parse(v.p, v.n, &f):
                raise ValueError(filter)
            return index_add(self.ix, self.owner(owner), <void*><size_t>owner, &f, options, sub_id)
        finally:
            free(<void*>v.p)

    def remove(self, owner: int, filter: bytes) -> int:
        cdef View v = block_of(filter)
        cdef Filter f
        try:
            if filter_parse(v.p, v.n, &f):
                raise ValueError(filter)
            return index_remove(self.ix, self.owner(owner), &f)
        finally:
            free(<void*>v.p)

    def remove_some(self, owner: int, n: int = UINT32_MAX) -> int:
        return index_remove_some(self.ix, self.owner(owner), n)

    cdef int run(self, topic: bytes) except -1:
        cdef View v = block_of(topic)
        cdef int rc = index_match(self.ix, v.p, v.n, &self.match_)
        free(<void*>v.p)
        if rc:
            raise MemoryError
        return 0

    cdef tuple found(self):
        m = &self.match_
        plain = [entries_of(m.lists[i]) for i in range(m.n_lists)]
        groups = [(m.groups[i].name.p[:m.groups[i].name.n], entries_of(&m.groups[i].members)) for i in range(m.n_groups)]
        return plain, groups, match_total(m)

    def match(self, topic: bytes) -> tuple[list, list, int]:
        """Return the entries of each plain list; (group name, entries) of each group; the number of live plain entries."""
        self.run(topic)
        return self.found()

    def match_some(self, topic: bytes, steps: int, on: bool = False) -> tuple[list, list, int, bool, int]:
        """Match in at most that many steps, or continue a match that was not complete (on). Return what match returns, whether the
        match is not complete, and the steps that it took."""
        cdef View v = block_of(topic)
        cdef int rc = (index_match_on if on else index_match_some)(self.ix, v.p, v.n, &self.match_, steps)
        free(<void*>v.p)
        if rc < 0:
            raise MemoryError
        return *self.found(), rc == MATCH_PART, steps - self.match_.steps

    def match_leave(self) -> None:
        match_leave(self.ix, &self.match_.place)

    def matching(self, owner: int, topic: bytes) -> list[bool]:
        """Return for each subscription of the owner, newest first, whether it matches the topic."""
        cdef View v = block_of(topic)
        cdef Subscription* s = self.owner(owner).head
        out = []
        while s != NULL:
            out.append(bool(subscription_matches(s, v)))
            s = subscription_next(s)
        free(<void*>v.p)
        return out

    def explain(self, topic: bytes, cap: int = EXPLAIN_BYTES_MAX) -> bytes:
        cdef View v = block_of(topic)
        cdef uint8_t* out = <uint8_t*>malloc(cap or 1)      # exact size, for the sanitizer
        cdef uint64_t work
        n = index_explain(self.ix, v.p, v.n, out, cap, some_strategy, NULL, NULL, &work)
        try:
            assert n <= cap
            return out[:n]
        finally:
            free(out)
            free(<void*>v.p)

    def load_hundredths(self) -> int:
        return index_load_hundredths(self.ix)

    def pin(self, topic: bytes) -> list[int]:
        """Pin every list that the topic reaches, also those of groups. Return their handles."""
        self.run(topic)
        m = &self.match_
        lists = [<size_t>m.lists[i] for i in range(m.n_lists)] + [<size_t>&m.groups[i].members for i in range(m.n_groups)]
        for handle in lists:
            list_pin(<List*><size_t>handle)
        return lists

    def pinned(self, handle: int) -> list:
        return entries_of(<List*><size_t>handle)

    def tidy(self, handle: int) -> bool:
        return list_tidy(self.ix, <List*><size_t>handle)

    def unpin(self, handle: int) -> None:
        list_unpin(self.ix, <List*><size_t>handle)

    def read(self, owner: int) -> list[tuple[bytes, int, int]]:
        cdef uint8_t* buf = <uint8_t*>malloc(65535 + 1024)
        cdef uint32_t n
        cdef uint32_t sub_id
        cdef uint8_t options
        cdef Subscription* s = self.owner(owner).head
        out = []
        while s != NULL:
            s = subscription_read(s, buf, &n, &options, &sub_id)
            out.append((buf[:n], options, sub_id))
        free(buf)
        return out

    def count(self, owner: int) -> int:
        return self.owner(owner).n

    def stats(self) -> dict[str, int]:
        cdef IndexStats stats
        index_stats(self.ix, &stats)
        return stats

    def fuse(self, n: int) -> None:
        """0 = allocations succeed; n = the n-th allocation from now on and all after it fail."""
        self.ix.account.fuse = n

    def longest_chain(self) -> int:
        return index_longest_chain(self.ix)

    def check(self) -> None:
        wrong = check_index(self.ix)
        if wrong != NULL:
            raise AssertionError(wrong.decode())


cdef struct Value:
    uint64_t number
    uint64_t* freed             # counts the values released by retained_free


cdef void free_value(void* _ctx, void* p) noexcept nogil:
    (<Value*>p).freed[0] += 1
    free(p)


cdef object number_of(void* p):
    return (<Value*>p).number if p != NULL else None


cdef class PyRetained:
    """Values are numbers; None stands for NULL. Close the cursors before the tree is freed."""
    cdef Retained* r
    cdef uint64_t freed
    cdef public list cursors

    def __cinit__(self, k0: int = 1, k1: int = 2, letters: bool | None = None, child_hash_threshold: int = 0):
        cdef HashKey key
        cdef IndexOptions options = options_of("full", letters, 0, child_hash_threshold)
        key.k0 = k0
        key.k1 = k1
        self.cursors = []
        self.r = retained_new(&key, &options)
        if self.r == NULL:
            raise MemoryError

    def __dealloc__(self):
        retained_free(self.r, free_value, NULL)

    def free(self) -> int:
        """Free the tree. Return the number of released values."""
        retained_free(self.r, free_value, NULL)
        self.r = NULL
        return self.freed

    def set(self, topic: bytes, number: int) -> int | None:
        cdef View v = block_of(topic)
        cdef Value* value = <Value*>malloc(sizeof(Value))
        cdef void* old
        value.number = number
        value.freed = &self.freed
        rc = retained_set(self.r, v.p, v.n, value, &old)
        free(<void*>v.p)
        if rc:
            free(value)
            raise MemoryError
        was = number_of(old)
        free(old)
        return was

    def remove(self, topic: bytes) -> int | None:
        cdef View v = block_of(topic)
        cdef void* old = retained_remove(self.r, v.p, v.n)
        free(<void*>v.p)
        was = number_of(old)
        free(old)
        return was

    def get(self, topic: bytes) -> int | None:
        cdef View v = block_of(topic)
        cdef void* value = retained_get(self.r, v.p, v.n)
        free(<void*>v.p)
        return number_of(value)

    def count(self) -> int:
        return retained_count(self.r)

    def bytes(self) -> int:
        return retained_bytes(self.r)

    def fuse(self, n: int) -> None:
        self.r.account.fuse = n

    def check(self) -> None:
        cdef uint64_t held = 0
        for cursor in self.cursors:
            held += (<PyCursor>cursor).held()
        wrong = check_retained(self.r, held, len(self.cursors))
        if wrong != NULL:
            raise AssertionError(wrong.decode())


cdef class PyCursor:
    cdef PyRetained tree
    cdef RetainedCursor c

    def __init__(self, tree: PyRetained, filter: bytes):
        cdef View v = block_of(filter)
        self.tree = tree
        rc = retained_open(tree.r, &self.c, v)
        free(<void*>v.p)
        if rc:
            raise MemoryError
        tree.cursors.append(self)

    cdef uint64_t held(self):
        return retained_cursor_bytes(&self.c)

    def next(self, budget: int) -> tuple[int | None, int]:
        """Return the value or None, and the rest of the budget."""
        cdef uint32_t left = budget
        cdef void* value = retained_next(self.tree.r, &self.c, &left)
        return number_of(value), left

    def close(self) -> None:
        self.tree.cursors.remove(self)
        retained_close(self.tree.r, &self.c)
