from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset
from cext.topic.name cimport filter_matches, filter_parse

cdef void match_init(Match* m) noexcept nogil:
    memset(m, 0, sizeof(Match))
cdef void match_fini(Match* m) noexcept nogil:
    free(m.lists); free(m.groups)
cdef Index* index_new(const HashKey* key) noexcept nogil:
    return <Index*>calloc(1, sizeof(Index))
cdef void index_free(Index* ix) noexcept nogil:
    free(ix)
cdef int index_add(Index* ix, Owner* owner, void* who, const Filter* f, uint8_t options, uint32_t sub_id) noexcept nogil:
    cdef Subscription* s = owner.head
    cdef Subscription* t
    cdef uint8_t* p
    cdef Group* g
    while s != NULL:
        if s.f.whole.n == f.whole.n and memcmp(s.f.whole.p, f.whole.p, f.whole.n) == 0:
            s.entry.options = options; s.entry.sub_id = sub_id
            if s.shared:
                for i in range(s.group.members.n):
                    if s.group.members.entries[i].who == who: s.group.members.entries[i] = s.entry
            return INDEX_REPLACED
        s = s.onext
    s = <Subscription*>calloc(1, sizeof(Subscription))
    p = <uint8_t*>malloc(f.whole.n)
    memcpy(p, f.whole.p, f.whole.n)
    filter_parse(p, f.whole.n, &s.f)
    s.entry.who = who; s.entry.options = options; s.entry.sub_id = sub_id
    s.list.entries = &s.entry; s.list.n = 1; s.list.live = 1
    s.owner = owner
    if f.group.n:
        s.shared = 1
        t = ix.all
        while t != NULL:
            if t.shared and t.f.whole.n == s.f.whole.n and memcmp(t.f.whole.p, p, s.f.whole.n) == 0:
                s.group = t.group
            t = t.next
        if s.group == NULL:
            s.group = <Group*>calloc(1, sizeof(Group))
        g = s.group
        g.members.entries = <Entry*>realloc(g.members.entries, (g.members.n + 1) * sizeof(Entry))
        g.members.entries[g.members.n] = s.entry
        g.members.n += 1
    s.next = ix.all; ix.all = s; ix.n += 1
    s.onext = owner.head; owner.head = s; owner.n += 1
    return INDEX_ADDED
cdef void zap(Index* ix, Subscription* s) noexcept nogil:
    cdef Subscription** at = &ix.all
    cdef uint32_t i
    while at[0] != s: at = &at[0].next
    at[0] = s.next
    at = &s.owner.head
    while at[0] != s: at = &at[0].onext
    at[0] = s.onext
    s.owner.n -= 1
    ix.n -= 1
    if s.shared:
        for i in range(s.group.members.n):
            if s.group.members.entries[i].who == s.entry.who:
                s.group.members.n -= 1
                s.group.members.entries[i] = s.group.members.entries[s.group.members.n]
                break
        if s.group.members.n == 0:
            free(s.group.members.entries); free(s.group)
    s.entry.who = NULL
    if s.list.pins:
        s.list.live = 0
        return
    free(<void*>s.f.whole.p)
    free(s)
cdef int index_remove(Index* ix, Owner* owner, const Filter* f) noexcept nogil:
    cdef Subscription* s = owner.head
    while s != NULL:
        if s.f.whole.n == f.whole.n and memcmp(s.f.whole.p, f.whole.p, f.whole.n) == 0:
            zap(ix, s)
            return INDEX_REMOVED
        s = s.onext
    return INDEX_NOT_FOUND
cdef uint32_t index_remove_some(Index* ix, Owner* owner, uint32_t max) noexcept nogil:
    cdef uint32_t n = 0
    while owner.head != NULL and n < max:
        zap(ix, owner.head); n += 1
    return n
cdef int index_match(Index* ix, const uint8_t* topic, uint32_t n, Match* m) noexcept nogil:
    cdef Subscription* s = ix.all
    cdef View t
    cdef uint32_t i
    t.p = topic; t.n = n
    m.n_lists = m.n_groups = 0
    m.total = 0
    if m.cap_lists < ix.n + 1:
        m.cap_lists = m.cap_groups = <uint32_t>ix.n + 64
        m.lists = <List**>realloc(m.lists, m.cap_lists * 8)
        m.groups = <Group**>realloc(m.groups, m.cap_lists * 8)
    while s != NULL:
        if filter_matches(s.f.filter, t):
            if s.shared:
                for i in range(m.n_groups):
                    if m.groups[i] == s.group: break
                else:
                    m.groups[m.n_groups] = s.group; m.n_groups += 1
            else:
                m.lists[m.n_lists] = &s.list; m.n_lists += 1; m.total += 1
        s = s.next
    return 0
cdef Entry* list_find(List* l, Owner* owner) noexcept nogil:
    cdef Subscription* s = owner.head
    while s != NULL:
        if &s.list == l: return &s.entry
        s = s.onext
    return NULL
cdef void list_pin(List* l) noexcept nogil:
    l.pins += 1
cdef void list_unpin(Index* ix, List* l) noexcept nogil:
    l.pins -= 1
cdef Subscription* subscription_read(Subscription* s, uint8_t* buf, uint32_t* n, uint8_t* options, uint32_t* sub_id) noexcept nogil:
    return NULL
cdef void index_stats(Index* ix, IndexStats* out) noexcept nogil:
    memset(out, 0, sizeof(IndexStats))
    out.subscriptions = ix.n
