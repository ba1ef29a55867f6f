# The subscription index: which lists of subscribers does a topic reach?
# It does not know who a subscriber is, nor what is delivered: it hands out lists of opaque entries.
#
#   Index -- roots[0], roots[1] for `$...` -- exact: hash table of whole filters ----------- Leaf -- plain: List
#                                          \- top: tree by level, `+` and `#` edges apart -- Leaf \- groups: SharedGroup - List
#
# Invariants: a Leaf exists while it has a subscriber, a group or a pin; a tree node while it has a leaf or a child; so
# without subscriptions the index owns no memory but itself. A failed allocation leaves everything as it was.
# Cost: a match is one hash, one look-up and one comparison while no wildcard filter exists; else it also visits those
# nodes of the tree that agree with the topic (two per level at most for each `+` branch), never looking at other filters,
# and allocates nothing once the Match has grown. Add and remove are O(levels).
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memchr, memcmp, memcpy, memset
from cext.base.hash cimport HashKey, hash_bytes
from cext.base.view cimport View
from cext.topic.level cimport (
    LevelNode, level_add, level_drop, level_find, level_new, level_text, level_tree_init,
)
from cext.topic.memory cimport give, take
from cext.topic.name cimport LEVELS_MAX, Filter
from cext.topic.subscribers cimport list_add, list_close_gaps, list_drop, list_find, list_fini, list_init
from cext.topic.table cimport (
    Link, Table, spread, table_add, table_buckets, table_chain, table_drop, table_fini, table_init, table_slot,
)


cdef Index* index_new(const HashKey* key) noexcept nogil:
    cdef Index* ix = <Index*>calloc(1, sizeof(Index))
    cdef int i
    if ix == NULL:
        return NULL
    ix.key = key[0]
    for i in range(2):
        table_init(&ix.roots[i].exact)
        level_tree_init(&ix.roots[i].tree, key)
    table_init(&ix.pairs)
    table_init(&ix.groups)
    return ix


cdef inline Root* root_of(Index* ix, const uint8_t* p) noexcept nogil:
    return &ix.roots[p[0] == c'$']


cdef inline uint8_t* leaf_text(Leaf* leaf) noexcept nogil:
    return <uint8_t*>(leaf + 1)


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


cdef int match_leaf(Match* m, Leaf* leaf) noexcept nogil:
    cdef Group* group = leaf.groups
    if leaf.plain.live:
        if m.n_lists == m.cap_lists and match_grow(<void**>&m.lists, &m.cap_lists) != 0:
            return -1
        m.lists[m.n_lists] = &leaf.plain
        m.n_lists += 1
        m.total += leaf.plain.live
    while group != NULL:
        if group.members.live:
            if m.n_groups == m.cap_groups and match_grow(<void**>&m.groups, &m.cap_groups) != 0:
                return -1
            m.groups[m.n_groups] = group
            m.n_groups += 1
        group = group.next
    return 0


cdef inline Leaf* exact_find(Root* root, const uint8_t* text, uint32_t n, uint32_t hash) noexcept nogil:
    cdef Link* link = table_chain(&root.exact, hash)
    while link != NULL:
        if link.hash == hash and link.n == n and memcmp(leaf_text(<Leaf*>link), text, n) == 0:
            return <Leaf*>link
        link = link.next
    return NULL


cdef uint32_t split_levels(const uint8_t* topic, uint32_t n, uint32_t* starts) noexcept nogil:
    # starts[i] .. starts[i + 1] - 1 is level i. 0: more than LEVELS_MAX, which no valid name has.
    cdef const uint8_t* slash
    cdef uint32_t levels = 0
    cdef uint32_t at = 0
    while levels < LEVELS_MAX:
        starts[levels] = at
        levels += 1
        slash = <const uint8_t*>memchr(topic + at, c'/', n - at)
        if slash == NULL:
            starts[levels] = n + 1
            return levels
        at = <uint32_t>(slash - topic) + 1
    return 0


cdef int match_tree(Root* root, const uint8_t* topic, uint32_t n, Match* m) noexcept nogil:
    # Depth first along the text edges; where a `+` edge is open too it waits on a stack, at most one per level.
    cdef uint32_t starts[LEVELS_MAX + 1]
    cdef uint64_t hashes[LEVELS_MAX]
    cdef TreeNode* waiting[LEVELS_MAX]
    cdef uint32_t depths[LEVELS_MAX]
    cdef uint32_t n_waiting = 0
    cdef uint32_t depth = 0
    cdef uint32_t levels = split_levels(topic, n, starts)
    cdef TreeNode* node = &root.top
    cdef TreeNode* onward
    if levels == 0:
        return 0
    memset(hashes, 0, levels * sizeof(uint64_t))
    while True:
        if node.multi != NULL and match_leaf(m, node.multi) != 0:   # the parent level included [v5 4.7.1.2]
            return -1
        onward = NULL
        if depth == levels:
            if node.here != NULL and match_leaf(m, node.here) != 0:
                return -1
        else:
            if node.level.first != NULL:
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


cdef int index_match(Index* ix, const uint8_t* topic, uint32_t n, Match* m) noexcept nogil:
    cdef Root* root
    cdef Leaf* leaf
    m.n_lists = 0
    m.n_groups = 0
    m.total = 0
    if n == 0:
        return 0
    root = root_of(ix, topic)
    if root.exact.n:
        leaf = exact_find(root, topic, n, <uint32_t>hash_bytes(&ix.key, topic, n))
        if leaf != NULL and match_leaf(m, leaf) != 0:
            return -1
    if root.wildcards:
        return match_tree(root, topic, n, m)
    return 0


# ---- the tree of wildcard filters ----

cdef void tree_prune(Index* ix, Root* root, TreeNode* node) noexcept nogil:
    # Frees node and the parents above it that nothing needs any more: LEVELS_MAX of them at most.
    cdef TreeNode* parent
    while (node != &root.top and node.here == NULL and node.multi == NULL and node.plus == NULL
           and node.level.first == NULL):
        parent = <TreeNode*>node.level.parent
        if parent.plus == node:
            parent.plus = NULL
        else:
            level_drop(&root.tree, &ix.account, &node.level)
        give(&ix.account, node)
        ix.stats.nodes -= 1
        node = parent


cdef TreeNode* tree_step(Index* ix, Root* root, TreeNode* node, View level, bint make) noexcept nogil:
    cdef uint64_t hash = 0
    cdef TreeNode* onward
    cdef bint plus = level.n == 1 and level.p[0] == c'+'
    if plus:
        onward = node.plus
    else:
        onward = <TreeNode*>level_find(&root.tree, &node.level, level.p, level.n, &hash)
    if onward != NULL or not make:
        return onward
    if plus:
        onward = <TreeNode*>level_new(&ix.account, &node.level, level.p, level.n, sizeof(TreeNode))
        node.plus = onward
    else:
        onward = <TreeNode*>level_add(&root.tree, &ix.account, &node.level, level.p, level.n, sizeof(TreeNode))
    if onward != NULL:
        ix.stats.nodes += 1
    return onward


cdef TreeNode* tree_descend(Index* ix, Root* root, View filter, bint make, bint* multi) noexcept nogil:
    # The node of the filter's last level before a `#`. NULL: not there, or (make) no memory, and nothing was left behind.
    cdef TreeNode* node = &root.top
    cdef TreeNode* onward
    cdef const uint8_t* end = filter.p + filter.n
    cdef const uint8_t* slash
    cdef View level
    level.p = filter.p
    multi[0] = False
    while level.p <= end:
        slash = <const uint8_t*>memchr(level.p, c'/', end - level.p)
        if slash == NULL:
            slash = end
        level.n = <uint32_t>(slash - level.p)
        if level.n == 1 and level.p[0] == c'#':
            multi[0] = True
            break
        onward = tree_step(ix, root, node, level, make)
        if onward == NULL:
            if make:
                tree_prune(ix, root, node)
            return NULL
        node = onward
        level.p = slash + 1
    return node


# ---- leaves and groups ----

cdef Leaf* leaf_find(Index* ix, const Filter* f) noexcept nogil:
    cdef Root* root = root_of(ix, f.filter.p)
    cdef TreeNode* node
    cdef bint multi
    if not f.wildcard:
        return exact_find(root, f.filter.p, f.filter.n, <uint32_t>hash_bytes(&ix.key, f.filter.p, f.filter.n))
    node = tree_descend(ix, root, f.filter, False, &multi)
    if node == NULL:
        return NULL
    return node.multi if multi else node.here


cdef Leaf* leaf_new(Index* ix, size_t text_bytes) noexcept nogil:
    cdef Leaf* leaf = <Leaf*>take(&ix.account, sizeof(Leaf) + text_bytes)
    if leaf == NULL:
        return NULL
    leaf.node = NULL
    leaf.groups = NULL
    leaf.link.n = <uint32_t>text_bytes
    list_init(&leaf.plain, leaf, 0)
    ix.stats.filters += 1
    return leaf


cdef Leaf* leaf_make(Index* ix, const Filter* f) noexcept nogil:
    # Only after leaf_find said NULL.
    cdef Root* root = root_of(ix, f.filter.p)
    cdef TreeNode* node
    cdef Leaf* leaf
    cdef bint multi
    if not f.wildcard:
        leaf = leaf_new(ix, f.filter.n)
        if leaf != NULL:
            memcpy(leaf_text(leaf), f.filter.p, f.filter.n)
            leaf.link.hash = <uint32_t>hash_bytes(&ix.key, f.filter.p, f.filter.n)
            table_add(&root.exact, &ix.account, &leaf.link)
        return leaf
    node = tree_descend(ix, root, f.filter, True, &multi)
    if node == NULL:
        return NULL
    leaf = leaf_new(ix, 0)
    if leaf == NULL:
        tree_prune(ix, root, node)
        return NULL
    leaf.node = node
    if multi:
        node.multi = leaf
    else:
        node.here = leaf
    root.wildcards += 1
    return leaf


cdef Root* leaf_root(Index* ix, Leaf* leaf) noexcept nogil:
    cdef LevelNode* at
    if leaf.node == NULL:
        return root_of(ix, leaf_text(leaf))
    at = &leaf.node.level
    while at.parent != NULL:
        at = at.parent
    return &ix.roots[at == &ix.roots[1].top.level]


cdef void leaf_settle(Index* ix, Leaf* leaf) noexcept nogil:
    # Frees a leaf that nothing needs any more, and what of the tree led only to it.
    cdef Root* root
    if leaf.plain.live or leaf.plain.pins or leaf.groups != NULL:
        return
    root = leaf_root(ix, leaf)
    if leaf.node == NULL:
        table_drop(&root.exact, &ix.account, &leaf.link)
    else:
        if leaf.node.multi == leaf:
            leaf.node.multi = NULL
        else:
            leaf.node.here = NULL
        root.wildcards -= 1
        tree_prune(ix, root, leaf.node)
    ix.stats.filters -= 1
    list_fini(ix, &leaf.plain)
    give(&ix.account, leaf)


cdef uint32_t group_hash(Index* ix, Leaf* leaf, View name) noexcept nogil:
    return spread(hash_bytes(&ix.key, name.p, name.n) ^ <uint64_t>leaf)


cdef Group* group_find(Index* ix, Leaf* leaf, View name) noexcept nogil:
    # By hash, however few: a client may make any number of groups on one filter.
    cdef uint32_t hash = group_hash(ix, leaf, name)
    cdef Link* link = table_chain(&ix.groups, hash)
    cdef SharedGroup* shared
    while link != NULL:
        if link.hash == hash and link.n == name.n:
            shared = <SharedGroup*>(<uint8_t*>link - sizeof(Group))
            if shared.group.home == leaf and memcmp(shared.group.name.p, name.p, name.n) == 0:
                return &shared.group
        link = link.next
    return NULL


cdef Group* group_make(Index* ix, Leaf* leaf, View name) noexcept nogil:
    cdef SharedGroup* shared = <SharedGroup*>take(&ix.account, sizeof(SharedGroup) + name.n)
    if shared == NULL:
        return NULL
    memset(shared, 0, sizeof(SharedGroup))
    list_init(&shared.group.members, shared, LIST_OF_GROUP)
    memcpy(<uint8_t*>(shared + 1), name.p, name.n)
    shared.group.name.p = <uint8_t*>(shared + 1)
    shared.group.name.n = name.n
    shared.group.home = leaf
    shared.group.next = leaf.groups
    if leaf.groups != NULL:
        (<SharedGroup*>leaf.groups).prev = &shared.group
    leaf.groups = &shared.group
    shared.link.n = name.n
    shared.link.hash = group_hash(ix, leaf, name)
    table_add(&ix.groups, &ix.account, &shared.link)
    return &shared.group


cdef void list_settle(Index* ix, List* l) noexcept nogil:
    # Frees the home of a list that has become empty, if nothing else needs it.
    cdef SharedGroup* shared
    cdef Leaf* leaf
    if not l.flags & LIST_OF_GROUP:
        leaf_settle(ix, <Leaf*>l.home)
        return
    if l.live or l.pins:
        return
    shared = <SharedGroup*>l.home
    leaf = <Leaf*>shared.group.home
    if shared.prev != NULL:
        shared.prev.next = shared.group.next
    else:
        leaf.groups = shared.group.next
    if shared.group.next != NULL:
        (<SharedGroup*>shared.group.next).prev = shared.prev
    table_drop(&ix.groups, &ix.account, &shared.link)
    list_fini(ix, l)
    give(&ix.account, shared)
    leaf_settle(ix, leaf)


# ---- add and remove ----

cdef int index_add(Index* ix, Owner* owner, void* who, const Filter* f, uint8_t options, uint32_t sub_id) noexcept nogil:
    cdef Leaf* leaf = leaf_find(ix, f)
    cdef Group* group
    cdef List* l
    cdef Subscription* sub
    if leaf == NULL:
        leaf = leaf_make(ix, f)
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
        l.entries[sub.link.n].who = who
        l.entries[sub.link.n].options = options
        l.entries[sub.link.n].sub_id = sub_id
        return INDEX_REPLACED
    if list_add(ix, l, owner, who, options, sub_id) == NULL:
        list_settle(ix, l)
        return -1
    if f.group.n:
        ix.stats.shared += 1
    else:
        ix.stats.subscriptions += 1
    return INDEX_ADDED


cdef void drop(Index* ix, Subscription* sub) noexcept nogil:
    cdef List* l = sub.list
    if l.flags & LIST_OF_GROUP:
        ix.stats.shared -= 1
    else:
        ix.stats.subscriptions -= 1
    list_drop(ix, sub)
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
    drop(ix, sub)
    return INDEX_REMOVED


cdef uint32_t index_remove_some(Index* ix, Owner* owner, uint32_t max) noexcept nogil:
    cdef uint32_t n = 0
    while n < max and owner.head != NULL:
        drop(ix, owner.head)
        n += 1
    return n


cdef Entry* entry_of(Index* ix, List* l, Owner* owner) noexcept nogil:
    cdef Subscription* sub = list_find(ix, l, owner)
    return &l.entries[sub.link.n] if sub != NULL else NULL


cdef void list_pin(List* l) noexcept nogil:
    l.pins += 1


cdef void list_unpin(Index* ix, List* l) noexcept nogil:
    l.pins -= 1
    if l.pins == 0:
        list_close_gaps(ix, l)
        list_settle(ix, l)


# ---- reading, gauges, the end ----

cdef Subscription* subscription_read(Subscription* s, uint8_t* buf, uint32_t* n, uint8_t* options, uint32_t* sub_id) noexcept nogil:
    cdef List* l = s.list
    cdef Entry* entry = &l.entries[s.link.n]
    cdef View* name
    cdef Leaf* leaf
    n[0] = 0
    options[0] = entry.options
    sub_id[0] = entry.sub_id
    if l.flags & LIST_OF_GROUP:
        name = &(<SharedGroup*>l.home).group.name
        leaf = <Leaf*>(<SharedGroup*>l.home).group.home
        memcpy(buf, b"$share/", 7)
        memcpy(buf + 7, name.p, name.n)
        buf[7 + name.n] = c'/'
        n[0] = 8 + name.n
    else:
        leaf = <Leaf*>l.home
    n[0] += leaf_read(leaf, buf + n[0])
    return s.next


cdef uint32_t leaf_read(Leaf* leaf, uint8_t* buf) noexcept nogil:
    # The tree does not keep whole filters: the text is put together from the levels, last one first.
    cdef LevelNode* at
    cdef uint32_t n = 0
    cdef uint32_t end
    if leaf.node == NULL:
        memcpy(buf, leaf_text(leaf), leaf.link.n)
        return leaf.link.n
    at = &leaf.node.level
    while at.parent != NULL:
        n += at.link.n + 1
        at = at.parent
    if leaf.node.multi == leaf:
        n += 2
    n -= 1                              # one slash less than levels
    end = n
    if leaf.node.multi == leaf:
        buf[end - 1] = c'#'
        if end == 1:
            return n
        buf[end - 2] = c'/'
        end -= 2
    at = &leaf.node.level
    while at.parent != NULL:
        end -= at.link.n
        memcpy(buf + end, level_text(at), at.link.n)
        at = at.parent
        if at.parent != NULL:
            end -= 1
            buf[end] = c'/'
    return n


cdef void index_stats(Index* ix, IndexStats* out) noexcept nogil:
    out[0] = ix.stats
    out.bytes = ix.account.bytes


cdef void leaf_free(Index* ix, Leaf* leaf) noexcept nogil:
    cdef Group* group
    if leaf == NULL:
        return
    while leaf.groups != NULL:
        group = leaf.groups
        leaf.groups = group.next
        list_fini(ix, &group.members)
        give(&ix.account, group)
    list_fini(ix, &leaf.plain)
    give(&ix.account, leaf)


cdef void tree_free(Index* ix, TreeNode* top) noexcept nogil:
    # Down to a node without children, free it, go on with its parent: no recursion, whatever the depth.
    cdef TreeNode* node = top
    cdef TreeNode* parent
    while True:
        if node.plus != NULL:
            node = node.plus
            continue
        if node.level.first != NULL:
            node = <TreeNode*>node.level.first
            continue
        leaf_free(ix, node.here)
        leaf_free(ix, node.multi)
        if node == top:
            return
        parent = <TreeNode*>node.level.parent
        if parent.plus == node:
            parent.plus = NULL
        else:
            parent.level.first = node.level.next
        give(&ix.account, node)
        node = parent


cdef void index_free(Index* ix) noexcept nogil:
    # The owners are not touched: they may be gone already. What is left of their lists is dangling.
    cdef Link* link
    cdef Link* following
    cdef Table* exact
    cdef uint64_t b
    cdef int i
    if ix == NULL:
        return
    for i in range(2):
        exact = &ix.roots[i].exact
        for b in range(table_buckets(exact)):
            link = table_slot(exact, <uint32_t>b)[0]
            while link != NULL:
                following = link.next
                leaf_free(ix, <Leaf*>link)
                link = following
        table_fini(exact, &ix.account)
        tree_free(ix, &ix.roots[i].top)
        table_fini(&ix.roots[i].tree.crowd, &ix.account)
    table_fini(&ix.pairs, &ix.account)
    table_fini(&ix.groups, &ix.account)
    free(ix)
