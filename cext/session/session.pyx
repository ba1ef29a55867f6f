"""Create, free and find sessions. This module knows client ids and the contents of a session, but not packets, sockets,
or which publisher routes to it.

The table is a chained hash with a keyed hash. It doubles incrementally: every add or find moves a few buckets of the old table,
so that no operation moves the whole table. A session is one cell, with the client id at its end.
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from cext.base.cells cimport cells_fini, cells_give, cells_take_zeroed
from cext.base.hash cimport HashKey, hash_bytes
from cext.base.view cimport View
from cext.session.queue cimport inbox_fini, queue_fini

cdef enum:
    BUCKETS_MIN = 1024
    MOVE_PER_STEP = 4
    SHARES_MIN = 4
    SHARES_KEEP = 64            # capacity above which the table of shares is freed when the queue is empty


cdef int sessions_init(Sessions* t, const HashKey* key) noexcept nogil:
    memset(t, 0, sizeof(Sessions))
    t.key = key
    t.buckets = <Session**>calloc(BUCKETS_MIN, sizeof(Session*))
    t.mask = BUCKETS_MIN - 1
    return 0 if t.buckets != NULL else -1


cdef void sessions_fini(Sessions* t) noexcept nogil:
    free(t.buckets)
    free(t.old)
    t.buckets = t.old = NULL
    cells_fini(&t.cells)


cdef void move_some(Sessions* t) noexcept nogil:
    cdef int _
    cdef Session* s
    cdef Session* following
    for _ in range(MOVE_PER_STEP):
        s = t.old[t.moved]
        t.old[t.moved] = NULL
        while s != NULL:
            following = s.hash_next
            s.hash_next = t.buckets[s.hash & t.mask]
            t.buckets[s.hash & t.mask] = s
            s = following
        t.moved += 1
        if t.moved > t.old_mask:
            free(t.old)
            t.old = NULL
            return


cdef void maybe_grow(Sessions* t) noexcept nogil:
    cdef Session** buckets
    if t.old != NULL or t.count <= t.mask or t.mask >= 0x7FFFFFFF:
        return
    buckets = <Session**>calloc(<size_t>(t.mask + 1) * 2, sizeof(Session*))
    if buckets == NULL:
        return                  # the only effect is longer chains
    t.old = t.buckets
    t.old_mask = t.mask
    t.moved = 0
    t.buckets = buckets
    t.mask = t.mask * 2 + 1


cdef inline Session** bucket_of(Sessions* t, uint64_t hash) noexcept nogil:
    if t.old != NULL and (hash & t.old_mask) >= t.moved:
        return &t.old[hash & t.old_mask]
    return &t.buckets[hash & t.mask]


cdef Session* sessions_find(Sessions* t, View id) noexcept nogil:
    cdef uint64_t hash = hash_bytes(t.key, id.p, id.n)
    if t.old != NULL:
        move_some(t)
    cdef Session* s = bucket_of(t, hash)[0]
    while s != NULL:
        if s.hash == hash and s.id_len == id.n and memcmp(s.client_id, id.p, id.n) == 0:
            return s
        s = s.hash_next
    return NULL


cdef char* session_text(View v) noexcept nogil:
    cdef char* text = <char*>malloc(<size_t>v.n + 1)
    if text != NULL:
        if v.n:
            memcpy(text, v.p, v.n)
        text[v.n] = 0
    return text


cdef Session* session_new(Sessions* t, View id) noexcept nogil:
    cdef Session* s = <Session*>cells_take_zeroed(&t.cells, sizeof(Session) + id.n)
    if s == NULL:
        return NULL
    s.hash = hash_bytes(t.key, id.p, id.n)
    s.id_len = <uint16_t>id.n
    memcpy(s.client_id, id.p, id.n)
    return s


cdef void session_free(Sessions* t, Session* s) noexcept nogil:
    queue_fini(&s.queue)
    inbox_fini(&s.inbox)
    free(s.shares)
    free(s.username)
    free(s.mount_point)
    cells_give(&t.cells, s, sizeof(Session) + s.id_len)


# ---------------------------------------------------------------- shares

cdef int shares_grow(Session* s) noexcept nogil:
    cdef uint32_t cap = 2 * <uint32_t>s.shares_cap if s.shares_cap else SHARES_MIN
    cdef Share* shares
    if cap > SHARES_MAX:
        cap = SHARES_MAX
    shares = <Share*>realloc(s.shares, cap * sizeof(Share))
    if shares == NULL:
        return -1
    s.shares = shares
    s.shares_cap = <uint16_t>cap
    return 0


cdef uint16_t session_share(Session* s, uint64_t group, uint32_t sub_id, uint16_t known) noexcept nogil:
    cdef Share* share
    if 0 < known <= s.n_shares and s.shares[known - 1].group == group and s.shares[known - 1].sub_id == sub_id:
        return known
    if s.queue.pending == 0:     # no delivery refers to any of them
        s.n_shares = 0
        if s.shares_cap > SHARES_KEEP:
            free(s.shares)
            s.shares = NULL
            s.shares_cap = 0
    if s.n_shares == SHARES_MAX or (s.n_shares == s.shares_cap and shares_grow(s) != 0):
        return 0
    share = &s.shares[s.n_shares]
    share.group = group
    share.sub_id = sub_id
    s.n_shares += 1
    return s.n_shares


cdef int sessions_add(Sessions* t, Session* s) noexcept nogil:
    if t.old != NULL:
        move_some(t)
    maybe_grow(t)
    cdef Session** bucket = bucket_of(t, s.hash)
    s.hash_next = bucket[0]
    bucket[0] = s
    t.count += 1
    return 0


cdef void sessions_remove(Sessions* t, Session* s) noexcept nogil:
    cdef Session** at = bucket_of(t, s.hash)
    while at[0] != NULL and at[0] != s:
        at = &at[0].hash_next
    if at[0] == s:
        at[0] = s.hash_next
        s.hash_next = NULL
        t.count -= 1


cdef Session* sessions_walk(Sessions* t, uint64_t* at) noexcept nogil:
    cdef uint64_t i = at[0]
    cdef uint64_t n_old = <uint64_t>t.old_mask + 1 if t.old != NULL else 0
    cdef Session* s = NULL
    while i < n_old + t.mask + 1:
        s = t.old[i] if i < n_old else t.buckets[i - n_old]
        if s != NULL:
            break
        i += 1
    at[0] = i
    return s


cdef Session* sessions_first(Sessions* t, uint64_t* at) noexcept nogil:
    at[0] = 0
    return sessions_walk(t, at)


cdef Session* sessions_next(Sessions* t, Session* s, uint64_t* at) noexcept nogil:
    if s.hash_next != NULL:
        return s.hash_next
    at[0] += 1
    return sessions_walk(t, at)


cdef uint32_t reversed_bits(uint32_t v) noexcept nogil:
    v = ((v >> 1) & <uint32_t>0x55555555) | ((v & <uint32_t>0x55555555) << 1)
    v = ((v >> 2) & <uint32_t>0x33333333) | ((v & <uint32_t>0x33333333) << 2)
    v = ((v >> 4) & <uint32_t>0x0F0F0F0F) | ((v & <uint32_t>0x0F0F0F0F) << 4)
    v = ((v >> 8) & <uint32_t>0x00FF00FF) | ((v & <uint32_t>0x00FF00FF) << 8)
    return (v >> 16) | (v << 16)


cdef inline void bucket_visit(Session* s, session_fn visit, void* ctx) noexcept nogil:
    cdef Session* following
    while s != NULL:
        following = s.hash_next
        visit(ctx, s)            # it may remove and free this session
        s = following


cdef uint32_t sessions_scan(Sessions* t, uint32_t cursor, session_fn visit, void* ctx) noexcept nogil:
    # Count from the high bits down, so that a bucket that growth splits in two is behind the cursor
    # with both halves or with none.
    cdef uint32_t small = t.old_mask if t.old != NULL else t.mask
    cdef uint64_t i = cursor & small
    if t.old != NULL:
        bucket_visit(t.old[i], visit, ctx)
    while i <= t.mask:
        bucket_visit(t.buckets[i], visit, ctx)
        i += <uint64_t>small + 1
    return reversed_bits(reversed_bits(cursor | ~small) + 1)
