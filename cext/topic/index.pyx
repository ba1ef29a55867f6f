# The subscription index: it finds the subscriber lists for a topic. It does not know what a subscriber is, nor what is delivered:
# it returns lists of opaque entries.
#
#   Index -- roots[0], roots[1] for `$...` -- exact: hash tables of whole filters, 27 by first letter ------- Leaf -- plain: List
#                                          \- top: tree by level, the first 27 ways, `+` and `#` apart ----- Leaf \- groups: List
#
# The drawing shows INDEX_FULL; the other modes leave out one or both of these parts, for comparison (options.pxd).
# Invariants: a Leaf exists while it has a subscriber, a group or a pin, and a tree node while it has a leaf or a child. So an
# index without subscriptions owns no memory except its own struct. A failed allocation leaves everything unchanged.
# Cost: while no wildcard filter exists, a match is one hash, one look-up and one comparison. Otherwise it also visits the tree
# nodes that agree with the topic (at most two per level for each `+` branch), never looks at other filters, and allocates nothing
# once the Match has grown. Add and remove are O(levels).
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset
from cext.base.cells cimport cells_fini
from cext.base.hash cimport HashKey, hash_bytes
from cext.base.view cimport View
from cext.topic.cache cimport (
    CACHED_LISTS_MAX, CacheEntry, cache_awake, cache_bytes, cache_fill, cache_fini, cache_init, cache_look,
)
from cext.topic.leaf cimport (
    exact_find, group_find, group_make, leaf_changed, leaf_find, leaf_free, leaf_make, leaf_read, leaf_settle, leaf_text,
    list_emptied, list_settle, index_root, tree_free,
)
from cext.topic.level cimport level_find, level_tree_init
from cext.topic.name cimport Filter, LEVELS_MAX, filter_matches
from cext.topic.options cimport INDEX_FULL, INDEX_HASH, INDEX_SCAN, IndexOptions, LETTERS, by_letter
from cext.topic.subscribers cimport list_add, list_drop, list_find, tidy
from cext.topic.table cimport Link, Table, table_buckets, table_fini, table_init, table_slot

cdef enum:
    LIST_TIDY_STEPS = 256       # steps of one call of list_tidy


cdef Index* index_new(const HashKey* key, const IndexOptions* options) noexcept nogil:
    cdef Index* ix = <Index*>calloc(1, sizeof(Index))
    cdef IndexOptions defaults
    cdef int i, letter
    if ix == NULL:
        return NULL
    if options == NULL:
        memset(&defaults, 0, sizeof(defaults))
        options = &defaults
    ix.key = key[0]
    ix.by_letter = by_letter(options)
    if options.mode == INDEX_SCAN:
        ix.in_table = IN_TABLE_EXACT | IN_TABLE_WILD
    elif options.mode == INDEX_FULL or options.mode == INDEX_HASH:
        ix.in_table = IN_TABLE_EXACT
    for i in range(2):
        for letter in range(LETTERS):
            table_init(&ix.roots[i].exact[letter])
            ix.roots[i].exact[letter].buckets_min = options.hash_buckets
        level_tree_init(&ix.roots[i].tree, &ix.roots[i].top.level, key, options)
    table_init(&ix.pairs)
    table_init(&ix.groups)
    cache_init(&ix.cache, options.match_cache if options.mode == INDEX_FULL else 0)
    return ix


# ---- a match ----

cdef void match_init(Match* m) noexcept nogil:
    memset(m, 0, sizeof(Match))


cdef void match_fini(Match* m) noexcept nogil:
    free(m.lists)
    free(m.groups)
    match_init(m)


cdef int match_grow(void** array, uint32_t* cap) noexcept nogil:
    cdef uint32_t more = 16 if cap[0] == 0 else 2 * cap[0]
    cdef void* p = realloc(array[0], more * sizeof(void*))
    if p == NULL:
        return -1
    array[0] = p
    cap[0] = more
    return 0


cdef inline int match_list(Match* m, List* l) noexcept nogil:
    if m.n_lists == m.cap_lists and match_grow(<void**>&m.lists, &m.cap_lists) != 0:
        return -1
    m.lists[m.n_lists] = l
    m.n_lists += 1
    return 0


cdef inline int match_group(Match* m, Group* group) noexcept nogil:
    if m.n_groups == m.cap_groups and match_grow(<void**>&m.groups, &m.cap_groups) != 0:
        return -1
    m.groups[m.n_groups] = group
    m.n_groups += 1
    return 0


cdef int match_leaf(Match* m, Leaf* leaf) noexcept nogil:
    cdef Group* group = leaf.groups
    if leaf.plain.live and match_list(m, &leaf.plain) != 0:
        return -1
    while group != NULL:
        if group.members.live and match_group(m, group) != 0:
            return -1
        group = group.next
    return 0


cdef inline uint32_t topic_level_end(const uint8_t* topic, uint32_t at, uint32_t n) noexcept nogil:
    while at < n and topic[at] != c'/':
        at += 1
    return at


cdef int match_tree(Root* root, const uint8_t* topic, uint32_t n, Match* m) noexcept nogil:
    # Walk depth first along the text edges. If a `+` edge is open too, it waits on a stack, with at most one per level. The topic
    # is split into levels only as far as the walk comes, because most walks end early.
    cdef uint32_t starts[LEVELS_MAX + 1]        # starts of the levels [0, known]; past the topic's end once all are known
    cdef uint64_t hashes[LEVELS_MAX]
    cdef TreeNode* waiting[LEVELS_MAX]
    cdef uint32_t depths[LEVELS_MAX]
    cdef uint32_t n_waiting = 0
    cdef uint32_t depth = 0
    cdef uint32_t known = 0
    cdef TreeNode* node = &root.top
    cdef TreeNode* onward
    cdef Leaf* leaf
    starts[0] = 0
    while True:
        leaf = node.leaves
        while leaf != NULL:                     # `#` also matches the parent level [v5 4.7.1.2]
            if (leaf.link.hash == LEAF_MULTI or starts[depth] > n) and match_leaf(m, leaf) != 0:
                return -1
            leaf = <Leaf*>leaf.link.next
        onward = NULL
        if starts[depth] > n:
            pass                                # all levels are done
        elif node.level.n_children or node.plus != NULL:
            if depth == known:
                if known == LEVELS_MAX:
                    return 0                    # not a valid name: name_check has rejected it
                hashes[known] = 0
                known += 1
                starts[known] = topic_level_end(topic, starts[depth], n) + 1
            if node.level.n_children:
                onward = <TreeNode*>level_find(&root.tree, &node.level, topic + starts[depth],
                                               starts[depth + 1] - starts[depth] - 1, &hashes[depth])
            depth += 1
            if onward == NULL:
                onward = node.plus
            elif node.plus != NULL:
                waiting[n_waiting] = node.plus
                depths[n_waiting] = depth
                n_waiting += 1
        if onward == NULL:
            if n_waiting == 0:
                return 0
            n_waiting -= 1
            onward = waiting[n_waiting]
            depth = depths[n_waiting]
        node = onward


cdef int match_scan(Root* root, View topic, Match* m) noexcept nogil:
    # The brute force of textbooks: without a structure, compare every filter.
    cdef Link* link
    cdef View filter
    cdef uint64_t b
    cdef int letter
    for letter in range(LETTERS):
        if root.exact[letter].n == 0:
            continue
        for b in range(table_buckets(&root.exact[letter])):
            link = table_slot(&root.exact[letter], <uint32_t>b)[0]
            while link != NULL:
                filter.p = leaf_text(<Leaf*>link)
                filter.n = link.n
                if filter_matches(filter, topic) and match_leaf(m, <Leaf*>link) != 0:
                    return -1
                link = link.next
    return 0


cdef int match_cached(Index* ix, const uint8_t* topic, uint32_t n, Match* m) noexcept nogil:
    cdef Root* root = &ix.roots[0]
    cdef uint64_t hash = hash_bytes(&ix.key, topic, n)
    cdef bint hit
    cdef uint32_t place = cache_look(&ix.cache, topic, n, hash, &hit)
    cdef CacheEntry* e = &ix.cache.entries[place]
    cdef Table* table
    cdef Leaf* leaf
    cdef uint32_t i
    if hit:
        for i in range(e.n_lists):
            if match_list(m, <List*>e.found[i]) != 0:
                return -1
        for i in range(e.n_groups):
            if match_group(m, <Group*>e.found[e.n_lists + i]) != 0:
                return -1
        return 0
    table = exact_table(ix, root, topic, n)
    if table.n:
        leaf = exact_find(table, topic, n, <uint32_t>hash)
        if leaf != NULL and match_leaf(m, leaf) != 0:
            return -1
    if match_tree(root, topic, n, m) != 0:
        return -1
    if m.n_lists + m.n_groups > CACHED_LISTS_MAX:
        return 0
    e = cache_fill(&ix.cache, place, topic, n, hash)
    e.n_lists = <uint8_t>m.n_lists
    e.n_groups = <uint8_t>m.n_groups
    for i in range(m.n_lists):
        e.found[i] = m.lists[i]
    for i in range(m.n_groups):
        e.found[m.n_lists + i] = m.groups[i]
    return 0


cdef int index_match(Index* ix, const uint8_t* topic, uint32_t n, Match* m) noexcept nogil:
    cdef Root* root
    cdef Table* table
    cdef Leaf* leaf
    cdef View whole
    m.n_lists = 0
    m.n_groups = 0
    if n == 0:
        return 0
    root = index_root(ix, topic)
    if ix.in_table & IN_TABLE_WILD:
        whole.p = topic
        whole.n = n
        return match_scan(root, whole, m)
    if root.in_tree and root == &ix.roots[0] and cache_awake(&ix.cache, n):
        return match_cached(ix, topic, n, m)
    table = exact_table(ix, root, topic, n)
    if table.n:
        leaf = exact_find(table, topic, n, <uint32_t>hash_bytes(&ix.key, topic, n))
        if leaf != NULL and match_leaf(m, leaf) != 0:
            return -1
    if root.in_tree:
        return match_tree(root, topic, n, m)
    return 0


# ---- add and remove ----

cdef int index_add(Index* ix, Owner* owner, void* subscriber, const Filter* f, uint8_t options, uint32_t sub_id) noexcept nogil:
    cdef Leaf* leaf = leaf_make(ix, f)
    cdef Group* group
    cdef List* l
    cdef Subscription* sub
    cdef Entry* entry
    if leaf == NULL:
        return -1
    l = &leaf.plain
    if f.group.n:
        group = group_find(ix, leaf, f.group)
        if group == NULL:
            group = group_make(ix, leaf, f.group)
            if group == NULL:
                leaf_settle(ix, leaf)
                return -1
        l = &group.members
    sub = list_find(ix, l, owner)
    if sub != NULL:
        entry = list_entry(l, sub.link.n)
        entry.subscriber = subscriber
        entry.options = options
        entry.sub_id = sub_id
        return INDEX_REPLACED
    if list_add(ix, l, owner, subscriber, options, sub_id) == NULL:
        list_settle(ix, l)
        return -1
    if l.live == 1:
        leaf_changed(ix, leaf, f.filter)
    if f.group.n:
        ix.stats.shared += 1
    else:
        ix.stats.subscriptions += 1
    return INDEX_ADDED


cdef void subscription_drop(Index* ix, Subscription* sub) noexcept nogil:
    cdef List* l = sub.list
    if l.flags & LIST_OF_GROUP:
        ix.stats.shared -= 1
    else:
        ix.stats.subscriptions -= 1
    list_drop(ix, sub)
    if l.live == 0:
        list_emptied(ix, l)
    list_settle(ix, l)


cdef int index_remove(Index* ix, Owner* owner, const Filter* f) noexcept nogil:
    cdef Leaf* leaf = leaf_find(ix, f)
    cdef Group* group
    cdef Subscription* sub
    if leaf == NULL:
        return INDEX_NOT_FOUND
    if f.group.n:
        group = group_find(ix, leaf, f.group)
        if group == NULL:
            return INDEX_NOT_FOUND
        sub = list_find(ix, &group.members, owner)
    else:
        sub = list_find(ix, &leaf.plain, owner)
    if sub == NULL:
        return INDEX_NOT_FOUND
    subscription_drop(ix, sub)
    return INDEX_REMOVED


cdef uint32_t index_remove_some(Index* ix, Owner* owner, uint32_t max) noexcept nogil:
    cdef uint32_t n = 0
    while n < max and owner.head != NULL:
        subscription_drop(ix, owner.head)
        n += 1
    return n


cdef Group* index_group(Index* ix, const Filter* f) noexcept nogil:
    cdef Leaf* leaf = leaf_find(ix, f)
    return group_find(ix, leaf, f.group) if leaf != NULL else NULL


cdef Entry* index_entry(Index* ix, Owner* owner, const Filter* f) noexcept nogil:
    cdef Leaf* leaf
    cdef Group* group
    if f.group.n == 0:
        leaf = leaf_find(ix, f)
        return subscriber_entry(ix, &leaf.plain, owner) if leaf != NULL else NULL
    group = index_group(ix, f)
    return subscriber_entry(ix, &group.members, owner) if group != NULL else NULL


cdef Entry* subscriber_entry(Index* ix, List* l, Owner* owner) noexcept nogil:
    cdef Subscription* sub = list_find(ix, l, owner)
    return list_entry(l, sub.link.n) if sub != NULL else NULL


cdef void list_pin(List* l) noexcept nogil:
    l.pins += 1


cdef void list_unpin(Index* ix, List* l) noexcept nogil:
    l.pins -= 1
    if l.pins == 0:
        tidy(ix, l, l.low, LIST_TIDY_STEPS)
        list_settle(ix, l)


cdef bint list_tidy(Index* ix, List* l) noexcept nogil:
    if l.pins != 1:
        return False
    l.pins = 0                  # no other user of positions now
    tidy(ix, l, l.low, LIST_TIDY_STEPS)
    l.pins = 1
    return l.live < l.n


# ---- reading, gauges, the end ----

cdef Subscription* subscription_read(Subscription* s, uint8_t* buf, uint32_t* n, uint8_t* options,
                                     uint32_t* sub_id) noexcept nogil:
    cdef List* l = s.list
    cdef Entry* entry = list_entry(l, s.link.n)
    cdef View* name
    cdef Leaf* leaf
    n[0] = 0
    options[0] = entry.options
    sub_id[0] = entry.sub_id
    if l.flags & LIST_OF_GROUP:
        name = &group_of(l).group.name
        leaf = <Leaf*>group_of(l).group.home
        memcpy(buf, b"$share/", 7)
        memcpy(buf + 7, name.p, name.n)
        buf[7 + name.n] = c'/'
        n[0] = 8 + name.n
    else:
        leaf = leaf_of(l)
    n[0] += leaf_read(leaf, buf + n[0])
    return s.next


cdef uint64_t index_bytes(Index* ix) noexcept nogil:
    return ix.account.cells.used_bytes + cache_bytes(&ix.cache)


cdef void index_stats(Index* ix, IndexStats* out) noexcept nogil:
    cdef int i, letter
    out[0] = ix.stats
    out.bytes = index_bytes(ix)
    out.cache_hits = ix.cache.hits + ix.cache.hit
    out.cache_misses = ix.cache.misses + ix.cache.looked - ix.cache.hit
    out.buckets = table_buckets(&ix.pairs) + table_buckets(&ix.groups)
    for i in range(2):
        out.buckets += table_buckets(&ix.roots[i].tree.crowd)
        for letter in range(LETTERS):
            out.exact += ix.roots[i].exact[letter].n
            out.buckets += table_buckets(&ix.roots[i].exact[letter])


cdef void table_free(Index* ix, Table* exact) noexcept nogil:
    cdef Link* link
    cdef Link* following
    cdef uint64_t b
    for b in range(table_buckets(exact)):
        link = table_slot(exact, <uint32_t>b)[0]
        while link != NULL:
            following = link.next
            leaf_free(ix, <Leaf*>link)
            link = following
    table_fini(exact, &ix.account)


cdef void index_free(Index* ix) noexcept nogil:
    # The owners are not touched, because they may be freed already. Their lists of subscriptions are dangling afterwards.
    cdef int i, letter
    if ix == NULL:
        return
    for i in range(2):
        for letter in range(LETTERS):
            table_free(ix, &ix.roots[i].exact[letter])
        tree_free(ix, &ix.roots[i])
        table_fini(&ix.roots[i].tree.crowd, &ix.account)
    table_fini(&ix.pairs, &ix.account)
    table_fini(&ix.groups, &ix.account)
    cache_fini(&ix.cache)
    cells_fini(&ix.account.cells)
    free(ix)
