# Filters in the index: where a filter's leaf is, and how leaves are created and freed. Exact filters are in a table
# (Index.in_table determines which filters are). The others are at the end of a path in a tree by level, where `+` and `#` are
# separate from text levels. Shared groups belong to the leaf.
# This module does not know matching (index.pyx), nor the contents of a subscriber list (subscribers.pyx).
# Invariants: a leaf exists while it has a subscriber, a group or a pin; a group while it has a member or a pin; a tree node while
# it has a leaf or a child. If an add fails, the functions `settle` and `prune` free what the add created.
# Cost: O(levels) to find, create and settle; no recursion.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset
from cext.base.hash cimport hash_bytes
from cext.base.view cimport View
from cext.topic.cache cimport cache_forget, cache_stale
from cext.topic.index cimport (
    Group, Index, LEAF_HERE, LEAF_MULTI, LIST_OF_GROUP, Leaf, List, Root, SharedGroup, TreeNode, exact_table, group_of, leaf_of,
)
from cext.topic.level cimport LevelNode, level_add, level_drop, level_find, level_free, level_new, level_pop, level_text
from cext.topic.memory cimport memory_give, memory_take
from cext.topic.name cimport Filter
from cext.topic.subscribers cimport list_fini, list_init
from cext.topic.table cimport Link, spread, table_add, table_chain, table_drop


# ---- the tree of wildcard filters ----

cdef void tree_prune(Index* ix, Root* root, TreeNode* node) noexcept nogil:
    # Free the node, and the parents above it that nothing needs: at most LEVELS_MAX of them.
    cdef TreeNode* parent
    while (node != &root.top and node.leaves == NULL and node.plus == NULL and node.level.n_children == 0):
        parent = <TreeNode*>node.level.parent
        if parent.plus == node:
            parent.plus = NULL
        else:
            level_drop(&root.tree, &ix.account, &node.level)
        level_free(&ix.account, &node.level)
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
    # Return the node of the filter's last level before a `#`. NULL means: not found, or (make) no
    # memory, and nothing is left behind.
    cdef TreeNode* node = &root.top
    cdef TreeNode* onward
    cdef const uint8_t* end = filter.p + filter.n
    cdef const uint8_t* slash
    cdef View level
    cdef uint64_t depth = 0
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
        depth += 1
    if make and depth > ix.stats.depth:
        ix.stats.depth = depth
    return node


# ---- leaves ----

cdef inline bint is_in_table(Index* ix, const Filter* f) noexcept nogil:
    return (ix.in_table >> f.wildcard) & 1


cdef Leaf* leaf_at(TreeNode* node, bint multi) noexcept nogil:
    cdef Leaf* leaf = node.leaves
    while leaf != NULL and leaf.link.hash != <uint32_t>multi:
        leaf = <Leaf*>leaf.link.next
    return leaf


cdef Leaf* leaf_find(Index* ix, const Filter* f) noexcept nogil:
    cdef Root* root = index_root(ix, f.filter.p)
    cdef TreeNode* node
    cdef bint multi
    if is_in_table(ix, f):
        return exact_find(exact_table(ix, root, f.filter.p, f.filter.n), f.filter.p, f.filter.n,
                          <uint32_t>hash_bytes(&ix.key, f.filter.p, f.filter.n))
    node = tree_descend(ix, root, f.filter, False, &multi)
    if node == NULL:
        return NULL
    return leaf_at(node, multi)


cdef Leaf* leaf_new(Index* ix, size_t text_bytes) noexcept nogil:
    cdef Leaf* leaf = <Leaf*>memory_take(&ix.account, sizeof(Leaf) + text_bytes)
    if leaf == NULL:
        return NULL
    leaf.node = NULL
    leaf.groups = NULL
    leaf.link.n = <uint32_t>text_bytes
    list_init(&leaf.plain, 0)
    ix.stats.filters += 1
    return leaf


cdef Leaf* make_in_table(Index* ix, Root* root, View text) noexcept nogil:
    cdef Table* exact = exact_table(ix, root, text.p, text.n)
    cdef uint32_t hash = <uint32_t>hash_bytes(&ix.key, text.p, text.n)
    cdef Leaf* leaf = exact_find(exact, text.p, text.n, hash)
    if leaf != NULL:
        return leaf
    leaf = leaf_new(ix, text.n)
    if leaf == NULL:
        return NULL
    memcpy(leaf_text(leaf), text.p, text.n)
    leaf.link.hash = hash
    table_add(exact, &ix.account, &leaf.link)
    return leaf


cdef Leaf* leaf_make(Index* ix, const Filter* f) noexcept nogil:
    cdef Root* root = index_root(ix, f.filter.p)
    cdef TreeNode* node
    cdef Leaf* leaf
    cdef bint multi
    if is_in_table(ix, f):
        return make_in_table(ix, root, f.filter)
    node = tree_descend(ix, root, f.filter, True, &multi)
    if node == NULL:
        return NULL
    leaf = leaf_at(node, multi)
    if leaf != NULL:
        return leaf
    leaf = leaf_new(ix, 0)
    if leaf == NULL:
        tree_prune(ix, root, node)
        return NULL
    leaf.node = node
    leaf.link.hash = LEAF_MULTI if multi else LEAF_HERE
    leaf.link.next = <Link*>node.leaves
    node.leaves = leaf
    root.in_tree += 1
    return leaf


cdef Root* leaf_root(Index* ix, Leaf* leaf) noexcept nogil:
    cdef LevelNode* at
    if leaf.node == NULL:
        return index_root(ix, leaf_text(leaf))
    at = &leaf.node.level
    while at.parent != NULL:
        at = at.parent
    return &ix.roots[at == &ix.roots[1].top.level]


cdef void leaf_changed(Index* ix, Leaf* leaf, View text) noexcept nogil:
    if leaf.node == NULL:
        cache_forget(&ix.cache, leaf.link.hash)
    else:
        cache_stale(&ix.cache, text.p, text.n)


cdef View first_level(Leaf* leaf) noexcept nogil:
    # Return the part of the filter that determines which topics it may match.
    cdef LevelNode* at
    cdef View text
    text.p = <const uint8_t*>b"#"
    text.n = 1
    if leaf.node == NULL or leaf.node.level.parent == NULL:
        return text                             # the filter `#` itself
    at = &leaf.node.level
    while at.parent.parent != NULL:
        at = at.parent
    text.p = level_text(at)
    text.n = at.link.n
    return text


cdef void leaf_settle(Index* ix, Leaf* leaf) noexcept nogil:
    # Free a leaf that nothing needs, and the tree nodes that led only to it.
    cdef Root* root
    if leaf.plain.live or leaf.plain.pins or leaf.groups != NULL:
        return
    root = leaf_root(ix, leaf)
    if leaf.node == NULL:
        table_drop(exact_table(ix, root, leaf_text(leaf), leaf.link.n), &ix.account, &leaf.link)
    else:
        if leaf.node.leaves == leaf:
            leaf.node.leaves = <Leaf*>leaf.link.next
        else:
            leaf.node.leaves.link.next = NULL       # the leaf was the second of two
        root.in_tree -= 1
        tree_prune(ix, root, leaf.node)
    ix.stats.filters -= 1
    list_fini(ix, &leaf.plain)
    memory_give(&ix.account, leaf, leaf_bytes(leaf))


cdef uint32_t leaf_read(Leaf* leaf, uint8_t* buf) noexcept nogil:
    # The tree does not contain whole filters: compose the text from the levels, last level first.
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
    if leaf.link.hash == LEAF_MULTI:
        n += 2
    n -= 1                              # there is one slash less than levels
    end = n
    if leaf.link.hash == LEAF_MULTI:
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


# ---- shared groups ----

cdef uint32_t group_hash(Index* ix, Leaf* leaf, View name) noexcept nogil:
    return spread(hash_bytes(&ix.key, name.p, name.n) ^ <uint64_t>leaf)


cdef Group* group_find(Index* ix, Leaf* leaf, View name) noexcept nogil:
    # Find by hash also when there are few, because a client may create any number of groups on one filter.
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
    cdef SharedGroup* shared = <SharedGroup*>memory_take(&ix.account, sizeof(SharedGroup) + name.n)
    if shared == NULL:
        return NULL
    memset(shared, 0, sizeof(SharedGroup))
    list_init(&shared.group.members, LIST_OF_GROUP)
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


cdef void list_emptied(Index* ix, List* l) noexcept nogil:
    cdef Leaf* leaf = <Leaf*>group_of(l).group.home if l.flags & LIST_OF_GROUP else leaf_of(l)
    leaf_changed(ix, leaf, first_level(leaf))


cdef void list_settle(Index* ix, List* l) noexcept nogil:
    # Free the leaf or the group of a list that has become empty, if nothing else needs it.
    cdef SharedGroup* shared
    cdef Leaf* leaf
    if not l.flags & LIST_OF_GROUP:
        leaf_settle(ix, leaf_of(l))
        return
    if l.live or l.pins:
        return
    shared = group_of(l)
    leaf = <Leaf*>shared.group.home
    if shared.prev != NULL:
        shared.prev.next = shared.group.next
    else:
        leaf.groups = shared.group.next
    if shared.group.next != NULL:
        (<SharedGroup*>shared.group.next).prev = shared.prev
    table_drop(&ix.groups, &ix.account, &shared.link)
    if shared.group.id:
        table_drop(&ix.identified, &ix.account, &shared.id_link)
    list_fini(ix, l)
    memory_give(&ix.account, shared, group_bytes(shared))
    leaf_settle(ix, leaf)


# ---- the end ----

cdef void leaf_free(Index* ix, Leaf* leaf) noexcept nogil:
    cdef Group* group
    while leaf.groups != NULL:
        group = leaf.groups
        leaf.groups = group.next
        list_fini(ix, &group.members)
        memory_give(&ix.account, group, group_bytes(<SharedGroup*>group))
    list_fini(ix, &leaf.plain)
    memory_give(&ix.account, leaf, leaf_bytes(leaf))


cdef void tree_free(Index* ix, Root* root) noexcept nogil:
    # Go down to a node without children, free it, and continue with its parent: no recursion at any depth.
    cdef TreeNode* node = &root.top
    cdef TreeNode* parent
    cdef TreeNode* child
    cdef Leaf* leaf
    while True:
        child = node.plus
        if child != NULL:
            node.plus = NULL
        else:
            child = <TreeNode*>level_pop(&root.tree, &node.level)
        if child != NULL:
            node = child
            continue
        while node.leaves != NULL:
            leaf = node.leaves
            node.leaves = <Leaf*>leaf.link.next
            leaf_free(ix, leaf)
        if node == &root.top:
            return
        parent = <TreeNode*>node.level.parent
        level_free(&ix.account, &node.level)
        node = parent
