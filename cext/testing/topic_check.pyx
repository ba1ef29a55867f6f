# Invariant checks: walk through everything that can be reached, follow each pointer in both directions, and add up every block
# and count. For tests only: it reads the private layouts and changes nothing.
# Cost: O(size of the structure); short sibling lists are compared pairwise.
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memset
from cext.base.cells cimport cells_bytes
from cext.base.hash cimport hash_bytes
from cext.topic.index cimport (
    BLOCK_ENTRIES, Entry, FurtherSubscription, Group, Index, LEAF_MULTI, LIST_IS_LONG, LIST_OF_GROUP, LONG_FROM, LONG_UNTIL, Leaf,
    List, Owner, Root, SharedGroup, Subscription, TreeNode, exact_table, group_of, leaf_of, list_entry,
)
from cext.topic.leaf cimport group_bytes, leaf_bytes, leaf_text
from cext.topic.level cimport LevelNode, LevelTree, level_bytes, level_find, level_first, level_head, level_next, level_text
from cext.topic.options cimport LETTERS, NEVER_HASHED
from cext.topic.retained cimport Retained, RetainedNode, RetainedRoot
from cext.topic.subscribers cimport PLACE_BYTES, list_find, list_sub, sub_list, sub_owner, sub_position
from cext.topic.table cimport Link, TABLE_FIRST, TABLE_SEGMENTS, Table, table_buckets, table_chain, table_slot

cdef struct Tally:              # sums of the walk
    uint64_t bytes
    uint64_t leaves
    uint64_t plain
    uint64_t shared
    uint64_t nodes
    uint64_t groups
    uint64_t identified
    uint64_t long_subs
    uint64_t crowd
    uint64_t values
    uint64_t pins


cdef const char* check_table(Table* t, Tally* tally) noexcept nogil:
    cdef uint64_t buckets = table_buckets(t)
    cdef uint64_t links = 0
    cdef uint64_t b
    cdef uint32_t s
    cdef Link* link
    if (t.mask & (t.mask + 1)) != 0 or t.mask + 1 < TABLE_FIRST or t.split > t.mask:
        return "table: mask or split"
    for s in range(TABLE_SEGMENTS):
        if (t.segments[s] != NULL) != (<uint64_t>1 << s >= TABLE_FIRST and <uint64_t>1 << s < buckets):
            return "table: a segment too many or too few"
        if t.segments[s] != NULL:
            tally.bytes += cells_bytes(t.segments[s], <size_t>sizeof(Link*) << s)
    for b in range(buckets):
        link = table_slot(t, <uint32_t>b)[0]
        while link != NULL:
            if table_chain(t, link.hash) != table_slot(t, <uint32_t>b)[0]:
                return "table: a link in the wrong bucket"
            links += 1
            link = link.next
    if links != t.n:
        return "table: count of links"
    if buckets > TABLE_FIRST and buckets > t.buckets_min and buckets > 2 * t.n + 2:
        return "table: buckets not given back"
    return NULL


cdef bint in_table(Table* t, Link* wanted) noexcept nogil:
    cdef Link* link = table_chain(t, wanted.hash)
    while link != NULL and link != wanted:
        link = link.next
    return link != NULL


cdef const char* check_owner(Owner* owner) noexcept nogil:
    cdef Subscription* s = owner.head
    cdef uint32_t n = 0
    if s != NULL and s.prev != NULL:
        return "owner: something before the head"
    while s != NULL:
        if sub_owner(s) != owner or (s.next != NULL and s.next.prev != s):
            return "owner: chain of subscriptions"
        n += 1
        s = s.next
    if n == owner.n:
        return NULL
    return "owner: count"


cdef const char* check_list(Index* ix, List* l, Tally* tally) noexcept nogil:
    cdef uint32_t i
    cdef uint32_t live = 0
    cdef uint32_t firsts = 0
    cdef Subscription* s
    cdef const char* wrong
    if l.cap > BLOCK_ENTRIES or (l.n > l.cap and l.cap < BLOCK_ENTRIES):
        return "list: blocks"
    if (l.cap == 1) != (l.block == &l.places.only):
        return "list: the only entry"
    if l.cap > 1:
        tally.bytes += cells_bytes(l.block, l.cap * PLACE_BYTES)
        if (l.places.blocks.more == NULL) != (l.n <= BLOCK_ENTRIES):
            return "list: further blocks"
        if l.places.blocks.more != NULL:
            tally.bytes += cells_bytes(l.places.blocks.more, l.places.blocks.room * sizeof(Entry*))
            for i in range((l.n - 1) // BLOCK_ENTRIES):
                tally.bytes += cells_bytes(l.places.blocks.more[i], BLOCK_ENTRIES * PLACE_BYTES)
    if l.cap > 1 and (l.n <= 1 or l.pins == 0 and l.n < l.cap // 4):
        return "list: block not given back"
    if (l.flags & LIST_IS_LONG and l.pins == 0 and l.n <= LONG_UNTIL) or (not l.flags & LIST_IS_LONG and l.n >= LONG_FROM):
        return "list: long or not"
    for i in range(l.n):
        s = list_sub(l, i)
        if (s == NULL) != (list_entry(l, i).subscriber == NULL):
            return "list: half a gap"
        if s == NULL:
            if l.cap > 1 and i < l.places.blocks.low:
                return "list: a gap below the lowest"
            continue
        live += 1
        if sub_list(s) != l or sub_position(l, s) != i:
            return "list: back pointer"
        if list_find(ix, l, sub_owner(s)) != s:
            return "list: an owner twice, or not found"
        if s == &l.first:
            firsts += 1
        else:
            tally.bytes += cells_bytes(s, sizeof(FurtherSubscription))
        if l.flags & LIST_IS_LONG:
            tally.long_subs += 1
            if s == &l.first or not in_table(&ix.pairs, &(<FurtherSubscription*>s).link):
                return "list: not among the pairs"
        if s.prev == NULL:                      # each chain is walked once, from its head
            if sub_owner(s).head != s:
                return "owner: head"
            wrong = check_owner(sub_owner(s))
            if wrong != NULL:
                return wrong
        elif s.prev.next != s:
            return "owner: not in its chain"
    if live != l.live:
        return "list: live"
    if firsts != (l.first.owner != 0):
        return "list: the first subscription"
    return NULL


cdef const char* check_leaf(Index* ix, Leaf* leaf, Tally* tally) noexcept nogil:
    cdef Group* g = leaf.groups
    cdef Group* before = NULL
    cdef SharedGroup* shared
    cdef const char* wrong
    if leaf.plain.live == 0 and leaf.plain.pins == 0 and g == NULL:
        return "leaf: needed by nothing"
    if leaf_of(&leaf.plain) != leaf or leaf.plain.flags & LIST_OF_GROUP:
        return "leaf: its list"
    tally.leaves += 1
    tally.bytes += cells_bytes(leaf, leaf_bytes(leaf))
    tally.plain += leaf.plain.live
    wrong = check_list(ix, &leaf.plain, tally)
    while g != NULL and wrong == NULL:
        shared = <SharedGroup*>g
        if g.home != leaf or group_of(&g.members) != shared or not g.members.flags & LIST_OF_GROUP or shared.prev != before:
            return "group: pointers"
        if g.members.live == 0 and g.members.pins == 0:
            return "group: needed by nothing"
        if not in_table(&ix.groups, &shared.link):
            return "group: not in its table"
        tally.groups += 1
        tally.identified += g.id != 0
        tally.bytes += cells_bytes(g, group_bytes(shared))
        tally.shared += g.members.live
        wrong = check_list(ix, &g.members, tally)
        before = g
        g = g.next
    return wrong


cdef const char* check_siblings(LevelTree* tree, LevelNode* head, LevelNode* parent, Tally* tally) noexcept nogil:
    cdef LevelNode* node = head.first
    cdef LevelNode* other
    cdef uint32_t n = 0
    if (head.crowded and head.n_children <= tree.crowded_until) or (
            not head.crowded and head.n_children >= tree.crowded_from and tree.crowded_from != NEVER_HASHED):
        return "level: crowded or not"
    while node != NULL:
        n += 1
        if node.parent != parent or (node.next != NULL and node.next.prev != node):
            return "level: pointers"
        if level_head(tree, parent, level_text(node), node.link.n) != head:
            return "level: under the wrong letter"
        if node.next == NULL and head.first.prev != node:
            return "level: the last sibling"
        if memchr(level_text(node), c'/', node.link.n) != NULL:
            return "level: a slash in a level"
        if head.crowded:
            tally.crowd += 1
            if not in_table(&tree.crowd, &node.link):
                return "level: not in the table"
        else:
            other = node.next
            while other != NULL:
                if other.link.n == node.link.n and memcmp(level_text(other), level_text(node), node.link.n) == 0:
                    return "level: the same text twice"
                other = other.next
        node = node.next
    if n == head.n_children:
        return NULL
    return "level: count of children"


cdef const char* check_children(LevelTree* tree, LevelNode* parent, Tally* tally) noexcept nogil:
    cdef const char* wrong
    cdef uint32_t n = 0
    cdef int letter
    if not parent.top:
        return check_siblings(tree, parent, parent, tally)
    for letter in range(LETTERS):
        wrong = check_siblings(tree, &tree.letters[letter], parent, tally)
        if wrong != NULL:
            return wrong
        n += tree.letters[letter].n_children
    if n == parent.n_children and parent.first == NULL:
        return NULL
    return "level: count of the top's children"


cdef TreeNode* tree_after(LevelTree* tree, TreeNode* node) noexcept nogil:
    """Return the node that follows in the walk. The `+` child of a node comes before its text children."""
    cdef TreeNode* parent
    cdef LevelNode* onward
    if node.plus != NULL:
        return node.plus
    onward = level_first(tree, &node.level)
    while onward == NULL and node.level.parent != NULL:
        parent = <TreeNode*>node.level.parent
        onward = level_first(tree, &parent.level) if parent.plus == node else level_next(tree, &node.level)
        node = parent
    return <TreeNode*>onward


cdef const char* check_tree_node(Index* ix, Root* root, TreeNode* node, Tally* tally) noexcept nogil:
    cdef const char* wrong = check_children(&root.tree, &node.level, tally)
    cdef uint64_t hash = 0
    cdef Leaf* leaf
    if wrong != NULL:
        return wrong
    if node.plus != NULL and node.plus.level.parent != &node.level:
        return "tree: parent of a +"
    if node != &root.top:
        tally.nodes += 1
        tally.bytes += cells_bytes(node, level_bytes(&node.level))
        if node.leaves == NULL and node.plus == NULL and node.level.n_children == 0:
            return "tree: a node that leads nowhere"
        if (<TreeNode*>node.level.parent).plus != node and level_find(
                &root.tree, node.level.parent, level_text(&node.level), node.level.link.n, &hash) != &node.level:
            return "tree: a child that is not found"
    leaf = node.leaves
    if leaf != NULL and leaf.link.next != NULL and (
            leaf.link.next.next != NULL or leaf.link.next.hash == leaf.link.hash):
        return "tree: leaves of a node"
    while leaf != NULL and wrong == NULL:
        if leaf.node != node or leaf.link.n != 0 or leaf.link.hash > LEAF_MULTI:
            return "tree: node of a leaf"
        if node == &root.top and leaf.link.hash != LEAF_MULTI:
            return "tree: a filter without a level"
        wrong = check_leaf(ix, leaf, tally)
        leaf = <Leaf*>leaf.link.next
    return wrong


cdef const char* check_exact(Index* ix, Root* root, uint32_t letter, bint dollar, Tally* tally) noexcept nogil:
    cdef Table* table = &root.exact[letter]
    cdef const char* wrong = check_table(table, tally)
    cdef Link* link
    cdef Leaf* leaf
    cdef uint64_t b
    if wrong != NULL:
        return wrong
    for b in range(table_buckets(table)):
        link = table_slot(table, <uint32_t>b)[0]
        while link != NULL:
            leaf = <Leaf*>link
            if leaf.node != NULL or (leaf_text(leaf)[0] == c'$') != dollar:
                return "exact: a leaf of somewhere else"
            if exact_table(ix, root, leaf_text(leaf), link.n) != table:
                return "exact: under the wrong letter"
            if <uint32_t>hash_bytes(&ix.key, leaf_text(leaf), link.n) != link.hash:
                return "exact: hash"
            wrong = check_leaf(ix, leaf, tally)
            if wrong != NULL:
                return wrong
            link = link.next
    return NULL


cdef const char* check_root(Index* ix, Root* root, bint dollar, Tally* tally) noexcept nogil:
    cdef const char* wrong
    cdef TreeNode* node = &root.top
    cdef uint64_t before
    cdef uint32_t letter
    for letter in range(LETTERS):
        wrong = check_exact(ix, root, letter, dollar, tally)
        if wrong != NULL:
            return wrong
    before = tally.leaves
    tally.crowd = 0
    while node != NULL:
        wrong = check_tree_node(ix, root, node, tally)
        if wrong != NULL:
            return wrong
        node = tree_after(&root.tree, node)
    if tally.leaves - before != root.in_tree:
        return "tree: count of filters"
    if tally.crowd != root.tree.crowd.n:
        return "tree: count of the crowd"
    return check_table(&root.tree.crowd, tally)


cdef const char* check_index(Index* ix) noexcept nogil:
    cdef Tally tally
    cdef const char* wrong
    memset(&tally, 0, sizeof(tally))
    wrong = check_root(ix, &ix.roots[0], False, &tally)
    if wrong == NULL:
        wrong = check_root(ix, &ix.roots[1], True, &tally)
    if wrong == NULL:
        wrong = check_table(&ix.pairs, &tally)
    if wrong == NULL:
        wrong = check_table(&ix.groups, &tally)
    if wrong != NULL:
        return wrong
    if wrong == NULL:
        wrong = check_table(&ix.identified, &tally)
    if wrong != NULL:
        return wrong
    if tally.long_subs != ix.pairs.n or tally.groups != ix.groups.n or tally.identified != ix.identified.n:
        return "index: count of pairs or groups"
    if tally.leaves != ix.stats.filters or tally.nodes != ix.stats.nodes:
        return "index: count of filters or nodes"
    if tally.plain != ix.stats.subscriptions or tally.shared != ix.stats.shared:
        return "index: count of subscriptions"
    if tally.bytes != ix.account.cells.used_bytes:
        return "index: bytes"
    return NULL


cdef const char* check_retained_root(Retained* r, RetainedRoot* root, Tally* tally) noexcept nogil:
    cdef LevelNode* node = &root.top.level
    cdef LevelNode* onward
    cdef RetainedNode* at
    cdef const char* wrong
    tally.crowd = 0
    while node != NULL:
        at = <RetainedNode*>node
        wrong = check_children(&root.tree, node, tally)
        if wrong != NULL:
            return wrong
        if node.parent != NULL:
            if at.value == NULL and node.n_children == 0 and at.pins == 0:
                return "retained: a node that leads nowhere"
            tally.bytes += cells_bytes(at, level_bytes(node))
            tally.values += at.value != NULL
            tally.pins += at.pins
        elif at.value != NULL or at.pins:
            return "retained: something on the root"
        if at.value != NULL and at.born > r.clock:
            return "retained: born in the future"
        onward = level_first(&root.tree, node)
        while onward == NULL and node.parent != NULL:
            onward = level_next(&root.tree, node)
            node = node.parent
        node = onward
    if tally.crowd != root.tree.crowd.n:
        return "retained: count of the crowd"
    return check_table(&root.tree.crowd, tally)


cdef const char* check_retained(Retained* r, uint64_t cursor_bytes, uint64_t cursors) noexcept nogil:
    cdef Tally tally
    cdef const char* wrong
    cdef int i
    memset(&tally, 0, sizeof(tally))
    for i in range(2):
        wrong = check_retained_root(r, &r.roots[i], &tally)
        if wrong != NULL:
            return wrong
    if tally.values != r.count or tally.pins > cursors:
        return "retained: count of values or pins"
    if tally.bytes + cursor_bytes != r.account.cells.used_bytes:
        return "retained: bytes"
    return NULL


# ---- distribution of keys

cdef uint32_t longest_chain(Table* t) noexcept nogil:
    cdef uint32_t longest = 0
    cdef uint32_t n
    cdef uint64_t b
    cdef Link* link
    for b in range(table_buckets(t)):
        n = 0
        link = table_slot(t, <uint32_t>b)[0]
        while link != NULL:
            n += 1
            link = link.next
        if n > longest:
            longest = n
    return longest


cdef uint32_t index_longest_chain(Index* ix) noexcept nogil:
    cdef uint32_t longest = 0
    cdef int i, letter
    for i in range(2):
        longest = max(longest, longest_chain(&ix.roots[i].tree.crowd))
        for letter in range(LETTERS):
            longest = max(longest, longest_chain(&ix.roots[i].exact[letter]))
    return max(longest, longest_chain(&ix.pairs))
