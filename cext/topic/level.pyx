# Nodes by level. A scan finds children while there are few, a hash when there are many. The top's children are divided into 27
# lists by first letter. This module does not know what belongs to a node, nor wildcards: text is text.
# Invariant: siblings are in the order of creation, so that a cursor survives additions and removals around it. All children of a
# crowded node are in the tree's one table, and no other nodes are.
# Cost: O(1) for find, add and drop; 56 bytes and the text per node, 8 to 16 more for each child of a crowded node.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset
from cext.base.hash cimport HashKey, hash_bytes
from cext.topic.memory cimport MemoryAccount, memory_take
from cext.topic.options cimport CHILD_HASH_THRESHOLD, IndexOptions, LETTERS, NEVER_HASHED, by_letter
from cext.topic.table cimport Link, table_add, table_chain, table_drop, table_init


cdef void level_tree_init(LevelTree* t, LevelNode* top, const HashKey* key, const IndexOptions* options) noexcept nogil:
    memset(t, 0, sizeof(LevelTree))
    table_init(&t.crowd)
    t.key = key[0]
    t.by_letter = by_letter(options)
    t.crowded_from = options.child_hash_threshold if options.child_hash_threshold else CHILD_HASH_THRESHOLD
    t.crowded_until = t.crowded_from // 2
    top.top = 1


cdef LevelNode* level_find(LevelTree* t, LevelNode* parent, const uint8_t* text, uint32_t n, uint64_t* hash) noexcept nogil:
    cdef LevelNode* head = level_head(t, parent, text, n)
    cdef LevelNode* node
    cdef Link* link
    cdef uint32_t h
    if not head.crowded:
        node = head.first
        while node != NULL:
            if node.link.n == n and memcmp(level_text(node), text, n) == 0:
                return node
            node = node.next
        return NULL
    if hash[0] == 0:
        hash[0] = hash_bytes(&t.key, text, n)
    h = crowd_hash(parent, hash[0])
    link = table_chain(&t.crowd, h)
    while link != NULL:
        node = <LevelNode*>link
        if link.hash == h and link.n == n and node.parent == parent and memcmp(level_text(node), text, n) == 0:
            return node
        link = link.next
    return NULL


cdef inline void crowd_add(LevelTree* t, MemoryAccount* a, LevelNode* node) noexcept nogil:
    node.link.hash = crowd_hash(node.parent, hash_bytes(&t.key, level_text(node), node.link.n))
    table_add(&t.crowd, a, &node.link)


cdef LevelNode* level_new(MemoryAccount* a, LevelNode* parent, const uint8_t* text, uint32_t n, size_t size) noexcept nogil:
    cdef LevelNode* node = <LevelNode*>memory_take(a, size + n)
    if node == NULL:
        return NULL
    memset(node, 0, size)
    node.parent = parent
    node.text_at = <uint8_t>size
    node.link.n = n
    memcpy(level_text(node), text, n)
    return node


cdef LevelNode* level_add(LevelTree* t, MemoryAccount* a, LevelNode* parent, const uint8_t* text, uint32_t n,
                          size_t size) noexcept nogil:
    cdef LevelNode* node = level_new(a, parent, text, n, size)
    cdef LevelNode* head = level_head(t, parent, text, n)
    cdef LevelNode* other
    if node == NULL:
        return NULL
    if head.first == NULL:
        head.first = node
    else:
        node.prev = head.first.prev
        node.prev.next = node
    head.first.prev = node
    if head != parent:
        parent.n_children += 1
    head.n_children += 1
    if head.crowded:
        crowd_add(t, a, node)
    elif head.n_children >= t.crowded_from and t.crowded_from != NEVER_HASHED:
        head.crowded = 1
        other = head.first
        while other != NULL:
            crowd_add(t, a, other)
            other = other.next
    return node


cdef void level_drop(LevelTree* t, MemoryAccount* a, LevelNode* node) noexcept nogil:
    cdef LevelNode* head = level_head(t, node.parent, level_text(node), node.link.n)
    cdef LevelNode* other
    if head.crowded:
        table_drop(&t.crowd, a, &node.link)
    if node.next != NULL:
        node.next.prev = node.prev
    else:
        head.first.prev = node.prev             # the last sibling was removed (if it was the only one, `first` changes below)
    if head.first == node:
        head.first = node.next
    else:
        node.prev.next = node.next
    if head != node.parent:
        node.parent.n_children -= 1
    head.n_children -= 1
    if head.crowded and head.n_children <= t.crowded_until:
        head.crowded = 0
        other = head.first
        while other != NULL:
            table_drop(&t.crowd, a, &other.link)
            other = other.next


# ---- the children in order ----

cdef LevelNode* level_first_from(LevelTree* t, uint32_t letter) noexcept nogil:
    while letter < LETTERS:
        if t.letters[letter].first != NULL:
            return t.letters[letter].first
        letter += 1
    return NULL


cdef LevelNode* level_first(LevelTree* t, LevelNode* parent) noexcept nogil:
    return level_first_from(t, 0) if parent.top else parent.first


cdef LevelNode* level_next(LevelTree* t, LevelNode* node) noexcept nogil:
    if node.next != NULL or not node.parent.top:
        return node.next
    return level_first_from(t, <uint32_t>(level_head(t, node.parent, level_text(node), node.link.n) - t.letters) + 1)


cdef LevelNode* level_pop(LevelTree* t, LevelNode* parent) noexcept nogil:
    cdef LevelNode* node = level_first(t, parent)
    if node != NULL:
        level_head(t, parent, level_text(node), node.link.n).first = node.next
    return node
