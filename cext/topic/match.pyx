# Match a topic: find the lists and groups of all filters that match it.
#
#   match cache -> found: done
#               -> table of whole filters: the topic itself -> tree of wildcard filters, depth first -> fill the cache
#
# Cost: while no wildcard filter exists, a match is one hash, one look-up and one comparison. Otherwise it also visits the tree
# nodes that agree with the topic (at most two per level for each `+` branch), never looks at other filters, and allocates nothing
# once the Match has grown.
# A client can subscribe to every combination of `a` and `+` over 18 levels, so the number of nodes that agree with one topic has no
# useful bound. Therefore a match takes steps from a number that the caller grants, and stops when none is left. Its place is a path
# of choices, text or `+`, and not a pointer: the tree may change before the match continues. The order of the walk is fixed (text
# before `+`), so a path still determines what follows it after its node is gone.
# Filters may also share one leaf: a client may create any number of groups on one filter. The place is then the next group, which
# is pinned.
from libc.stdint cimport uint8_t, uint32_t, uint64_t, UINT64_MAX
from libc.stdlib cimport free, realloc
from libc.string cimport memset
from cext.base.hash cimport hash_bytes
from cext.base.view cimport View
from cext.topic.cache cimport CACHED_LISTS_MAX, CacheEntry, cache_awake, cache_fill, cache_look
from cext.topic.index cimport (
    Group, IN_TABLE_WILD, Index, LEAF_MULTI, Leaf, List, Root, TreeNode, exact_table, list_pin, list_unpin,
)
from cext.topic.leaf cimport exact_find, index_root, leaf_text
from cext.topic.level cimport level_find
from cext.topic.name cimport LEVELS_MAX, filter_matches
from cext.topic.options cimport LETTERS
from cext.topic.table cimport Link, Table, table_buckets, table_slot


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
    m.steps -= m.steps != 0
    return 0


cdef inline int match_group(Match* m, Group* group) noexcept nogil:
    if m.n_groups == m.cap_groups and match_grow(<void**>&m.groups, &m.cap_groups) != 0:
        return -1
    m.groups[m.n_groups] = group
    m.n_groups += 1
    return 0


cdef int match_groups(Match* m, Group* group) noexcept nogil:
    """Match this group and those after it on the same filter."""
    while group != NULL:
        if m.steps == 0:
            m.place.group = group
            list_pin(&group.members)
            return MATCH_PART
        m.steps -= 1
        if group.members.live and match_group(m, group) != 0:
            return -1
        group = group.next
    return MATCH_WHOLE


cdef inline int match_leaf(Match* m, Leaf* leaf) noexcept nogil:
    if leaf.plain.live and match_list(m, &leaf.plain) != 0:
        return -1
    return match_groups(m, leaf.groups) if leaf.groups != NULL else MATCH_WHOLE


cdef inline int match_exact(Index* ix, Root* root, const uint8_t* topic, uint32_t n, uint64_t hash, Match* m) noexcept nogil:
    """Match the filter that is the topic itself. hash: the topic's, or 0 = not known."""
    cdef Table* table = exact_table(ix, root, topic, n)
    cdef Leaf* leaf
    if table.n == 0:
        return MATCH_WHOLE
    leaf = exact_find(table, topic, n, <uint32_t>(hash if hash else hash_bytes(&ix.key, topic, n)))
    return match_leaf(m, leaf) if leaf != NULL else MATCH_WHOLE


# ---- the tree of wildcard filters ----

cdef struct TreeWalk:
    uint32_t starts[LEVELS_MAX + 1]     # starts of the levels [0, known]; past the topic's end once all are known
    uint64_t hashes[LEVELS_MAX]
    TreeNode* waiting[LEVELS_MAX]       # open `+` edges, at most one per level
    uint32_t depths[LEVELS_MAX]         # depths of their nodes
    uint32_t n_waiting
    uint32_t known
    uint32_t depth


cdef inline uint32_t topic_level_end(const uint8_t* topic, uint32_t at, uint32_t n) noexcept nogil:
    while at < n and topic[at] != c'/':
        at += 1
    return at


cdef void place_set(MatchPlace* place, TreeNode* node, bint inside) noexcept nogil:
    """Set the place to a node: its path is read from the tree."""
    cdef TreeNode* at = node
    cdef TreeNode* parent
    cdef uint32_t i
    place.group = NULL
    place.inside = inside
    place.depth = 0
    memset(place.plus, 0, sizeof(place.plus))
    while at.level.parent != NULL:
        place.depth += 1
        at = <TreeNode*>at.level.parent
    i = place.depth
    at = node
    while i:
        i -= 1
        parent = <TreeNode*>at.level.parent
        if parent.plus == at:
            place.plus[i >> 3] |= <uint8_t>(1 << (i & 7))
        at = parent


cdef TreeNode* tree_return(Root* root, const uint8_t* topic, uint32_t n, const MatchPlace* place, TreeWalk* w) noexcept nogil:
    """Go down the path of the place, so that the walk's state is as it was there. NULL = the node has gone: the walk continues with the last waiting edge."""
    cdef TreeNode* node = &root.top
    cdef TreeNode* plus
    while w.depth < place.depth:
        if w.starts[w.depth] > n:
            return NULL                         # not this topic's place
        w.hashes[w.depth] = 0
        w.known += 1
        w.starts[w.known] = topic_level_end(topic, w.starts[w.depth], n) + 1
        plus = node.plus
        if place.plus[w.depth >> 3] >> (w.depth & 7) & 1:
            node = plus
            w.depth += 1
        else:
            node = <TreeNode*>level_find(&root.tree, &node.level, topic + w.starts[w.depth],
                                         w.starts[w.depth + 1] - w.starts[w.depth] - 1, &w.hashes[w.depth])
            w.depth += 1
            if plus != NULL:
                w.waiting[w.n_waiting] = plus
                w.depths[w.n_waiting] = w.depth
                w.n_waiting += 1
        if node == NULL:
            return NULL
    return node


cdef TreeNode* walk_begin(TreeWalk* w, Root* root, const uint8_t* topic, uint32_t n, const MatchPlace* place, bint* inside) noexcept nogil:
    """Return the node at which the walk begins or continues; NULL = it is done. inside: the node's own filters are matched already."""
    cdef TreeNode* node
    w.starts[0] = 0
    w.known = w.depth = w.n_waiting = 0
    inside[0] = 0
    if place == NULL:
        return &root.top
    node = tree_return(root, topic, n, place, w)
    if node != NULL:
        inside[0] = place.inside
    elif w.n_waiting:
        w.n_waiting -= 1
        w.depth = w.depths[w.n_waiting]
        node = w.waiting[w.n_waiting]
    return node


cdef inline int match_leaves(Match* m, Leaf* leaf, bint ends) noexcept nogil:
    """Match the filters that end at a node. `#` also matches the parent level [v5 4.7.1.2]. ends: the topic ends at this node."""
    cdef int rc
    while leaf != NULL:
        if ends or leaf.link.hash == LEAF_MULTI:
            rc = match_leaf(m, leaf)
            if rc:
                return rc
        leaf = <Leaf*>leaf.link.next
    return MATCH_WHOLE


cdef int match_tree(Root* root, const uint8_t* topic, uint32_t n, Match* m, const MatchPlace* place) noexcept nogil:
    # Walk depth first along the text edges. If a `+` edge is open too, it waits on a stack. The topic is split into levels only as
    # far as the walk comes, because most walks end early. place: where to continue; NULL = at the root.
    cdef TreeWalk w
    cdef uint32_t depth, known, n_waiting       # of w: a local variable stays in a register
    cdef uint64_t steps = m.steps
    cdef bint inside
    cdef TreeNode* node = walk_begin(&w, root, topic, n, place, &inside)
    cdef TreeNode* onward
    cdef int rc
    if node == NULL:
        return MATCH_WHOLE
    depth = w.depth
    known = w.known
    n_waiting = w.n_waiting
    while True:
        if inside:
            inside = 0
        elif steps == 0:
            m.steps = 0
            place_set(&m.place, node, 0)
            return MATCH_PART
        else:
            steps -= 1
            if node.leaves != NULL:
                m.steps = steps
                rc = match_leaves(m, node.leaves, w.starts[depth] > n)
                if rc:
                    return rc
                steps = m.steps
        onward = NULL
        if w.starts[depth] > n:
            pass                                # all levels are done
        elif node.level.n_children or node.plus != NULL:
            if depth == known:
                if known == LEVELS_MAX:
                    return 0                    # not a valid name: name_check has rejected it
                w.hashes[known] = 0
                known += 1
                w.starts[known] = topic_level_end(topic, w.starts[depth], n) + 1
            if node.level.n_children:
                onward = <TreeNode*>level_find(&root.tree, &node.level, topic + w.starts[depth],
                                               w.starts[depth + 1] - w.starts[depth] - 1, &w.hashes[depth])
            depth += 1
            if onward == NULL:
                onward = node.plus
            elif node.plus != NULL:
                w.waiting[n_waiting] = node.plus
                w.depths[n_waiting] = depth
                n_waiting += 1
        if onward == NULL:
            if n_waiting == 0:
                m.steps = steps
                return MATCH_WHOLE
            n_waiting -= 1
            onward = w.waiting[n_waiting]
            depth = w.depths[n_waiting]
        node = onward


cdef int match_scan(Root* root, View topic, Match* m) noexcept nogil:
    # The brute force of textbooks: without a structure, compare every filter. It is for comparison only, and takes no steps.
    cdef Link* link
    cdef View filter
    cdef uint64_t b
    cdef int letter
    m.steps = UINT64_MAX
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
    return MATCH_WHOLE


cdef int match_cached(Index* ix, const uint8_t* topic, uint32_t n, Match* m) noexcept nogil:
    cdef Root* root = &ix.roots[0]
    cdef uint64_t hash = hash_bytes(&ix.key, topic, n)
    cdef bint hit
    cdef uint32_t place = cache_look(&ix.cache, topic, n, hash, &hit)
    cdef CacheEntry* e = &ix.cache.entries[place]
    cdef uint32_t i
    cdef int rc
    if hit:
        for i in range(e.n_lists):
            if match_list(m, <List*>e.found[i]) != 0:
                return -1
        for i in range(e.n_groups):
            if match_group(m, <Group*>e.found[e.n_lists + i]) != 0:
                return -1
        return MATCH_WHOLE
    rc = match_exact(ix, root, topic, n, hash, m)
    if rc == MATCH_WHOLE:
        rc = match_tree(root, topic, n, m, NULL)
    if rc != MATCH_WHOLE or m.n_lists + m.n_groups > CACHED_LISTS_MAX:
        return rc
    e = cache_fill(&ix.cache, place, topic, n, hash)
    e.n_lists = <uint8_t>m.n_lists
    e.n_groups = <uint8_t>m.n_groups
    for i in range(m.n_lists):
        e.found[i] = m.lists[i]
    for i in range(m.n_groups):
        e.found[m.n_lists + i] = m.groups[i]
    return MATCH_WHOLE


# ---- the whole match, and its parts ----

cdef int index_match_some(Index* ix, const uint8_t* topic, uint32_t n, Match* m, uint64_t steps) noexcept nogil:
    cdef Root* root
    cdef View whole
    cdef int rc
    m.n_lists = 0
    m.n_groups = 0
    m.steps = steps
    if n == 0:
        return MATCH_WHOLE
    root = index_root(ix, topic)
    if ix.in_table & IN_TABLE_WILD:
        whole.p = topic
        whole.n = n
        return match_scan(root, whole, m)
    if root.in_tree and root == &ix.roots[0] and cache_awake(&ix.cache, n):
        return match_cached(ix, topic, n, m)
    rc = match_exact(ix, root, topic, n, 0, m)
    return match_tree(root, topic, n, m, NULL) if rc == MATCH_WHOLE and root.in_tree else rc


cdef int index_match(Index* ix, const uint8_t* topic, uint32_t n, Match* m) noexcept nogil:
    return index_match_some(ix, topic, n, m, UINT64_MAX)


cdef int groups_on(Index* ix, const uint8_t* topic, uint32_t n, Match* m) noexcept nogil:
    """Continue with the pinned group of the place, and the other filter that ends at its node, if there is one. After MATCH_WHOLE the
    place is the tree's part that follows."""
    cdef Group* group = m.place.group
    cdef Leaf* leaf = <Leaf*>group.home
    cdef uint32_t levels = 1
    cdef uint32_t i
    cdef int rc = match_groups(m, group)
    if rc == MATCH_WHOLE and leaf.node == NULL:
        memset(&m.place, 0, sizeof(m.place))         # the table is done: continue at the root
    elif rc == MATCH_WHOLE:
        place_set(&m.place, leaf.node, 1)
        leaf = <Leaf*>leaf.link.next
        for i in range(n):
            levels += topic[i] == c'/'
        if leaf != NULL and (leaf.link.hash == LEAF_MULTI or m.place.depth == levels):
            rc = match_leaf(m, leaf)
    list_unpin(ix, &group.members)
    return rc


cdef int index_match_on(Index* ix, const uint8_t* topic, uint32_t n, Match* m, uint64_t steps) noexcept nogil:
    cdef Root* root = index_root(ix, topic)
    cdef MatchPlace place
    cdef int rc = MATCH_WHOLE
    m.n_lists = 0
    m.n_groups = 0
    m.steps = steps
    if m.place.group != NULL:
        rc = groups_on(ix, topic, n, m)
    if rc != MATCH_WHOLE or not root.in_tree:
        return rc
    place = m.place
    return match_tree(root, topic, n, m, &place)


cdef void match_leave(Index* ix, MatchPlace* place) noexcept nogil:
    if place.group != NULL:
        list_unpin(ix, &place.group.members)
        place.group = NULL
