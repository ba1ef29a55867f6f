# The retained tree: from topic names to one value each. A cursor reads values by filter in slices.
# This module does not know what a value is. It never frees a value except at the end, through the
# function that the caller passes.
# Invariants: a node stays while it has a value, a child or a cursor, so a cursor's path to the root always exists. Siblings are
# in the order of creation, on the first level within their letter. A value records when it was added, so that a cursor skips
# values newer than itself. It follows that a value that exists from open to close is returned exactly once.
# Cost: set, get, remove and an exact look-up are O(levels). A wildcard look-up takes one step per node that agrees with the
# filter so far. A node takes 80 bytes and the text of its level. A walk up takes at most LEVELS_MAX steps, which the walk
# down has already been charged for.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcpy, memset
from cext.base.cells cimport cells_bytes, cells_fini
from cext.base.hash cimport HashKey
from cext.base.view cimport View
from cext.topic.level cimport (
    LevelTree, level_add, level_drop, level_find, level_first, level_free, level_next, level_pop, level_tree_init,
)
from cext.topic.memory cimport memory_give, memory_take
from cext.topic.options cimport IndexOptions
from cext.topic.table cimport table_fini

cdef enum:
    PHASE_START = 0             # no node was visited yet
    PHASE_DOWN = 1              # `at` was visited, its children were not
    PHASE_END = 2

cdef struct CursorState:        # one allocation: this struct, the levels' starts, the filter's text
    uint64_t opened             # the tree's clock at the opening
    uint32_t levels
    uint8_t phase
    uint8_t multi               # 1 = the last level is `#`
    uint16_t reserved
    size_t block_bytes          # size of the whole allocation


cdef Retained* retained_new(const HashKey* key, const IndexOptions* options) noexcept nogil:
    cdef Retained* r = <Retained*>calloc(1, sizeof(Retained))
    cdef IndexOptions defaults
    cdef int i
    if r == NULL:
        return NULL
    if options == NULL:
        memset(&defaults, 0, sizeof(defaults))
        options = &defaults
    for i in range(2):
        level_tree_init(&r.roots[i].tree, &r.roots[i].top.level, key, options)
    return r


cdef void retained_visit(Retained* r, void (*visit)(void*, void*) noexcept nogil, void* ctx) noexcept nogil:
    cdef LevelTree* t
    cdef LevelNode* top
    cdef LevelNode* at
    cdef LevelNode* following
    cdef int i
    for i in range(2):
        t = &r.roots[i].tree
        top = &r.roots[i].top.level
        at = level_first(t, top)
        while at != NULL:
            if (<RetainedNode*>at).value != NULL:
                visit(ctx, (<RetainedNode*>at).value)
            following = level_first(t, at)
            while following == NULL and at != top:
                following = level_next(t, at)
                at = at.parent
            at = following


cdef inline RetainedRoot* retained_root(Retained* r, const uint8_t* p) noexcept nogil:
    return &r.roots[p[0] == c'$']


cdef void retained_free(Retained* r, void (*free_value)(void*, void*) noexcept nogil, void* ctx) noexcept nogil:
    # Go down to a node without children, free it, and continue with its parent: no recursion at any depth.
    cdef RetainedNode* node
    cdef RetainedNode* child
    cdef RetainedNode* parent
    cdef int i
    if r == NULL:
        return
    for i in range(2):
        node = &r.roots[i].top
        while node != NULL:
            child = <RetainedNode*>level_pop(&r.roots[i].tree, &node.level)
            if child != NULL:
                node = child
                continue
            if node.value != NULL and free_value != NULL:
                free_value(ctx, node.value)
            parent = <RetainedNode*>node.level.parent
            if parent != NULL:
                level_free(&r.account, &node.level)
            node = parent
        table_fini(&r.roots[i].tree.crowd, &r.account)
    cells_fini(&r.account.cells)
    free(r)


cdef void prune(Retained* r, RetainedRoot* root, RetainedNode* node) noexcept nogil:
    cdef RetainedNode* parent
    while node.value == NULL and node.level.n_children == 0 and node.pins == 0 and node.level.parent != NULL:
        parent = <RetainedNode*>node.level.parent
        level_drop(&root.tree, &r.account, &node.level)
        level_free(&r.account, &node.level)
        node = parent


cdef RetainedNode* descend(Retained* r, RetainedRoot* root, const uint8_t* topic, uint32_t n, bint make) noexcept nogil:
    # Return the topic's node. NULL means: not found, or (make) no memory, and nothing is left behind.
    cdef RetainedNode* node = &root.top
    cdef RetainedNode* onward
    cdef const uint8_t* p = topic
    cdef const uint8_t* end = topic + n
    cdef const uint8_t* slash
    cdef uint32_t bytes
    cdef uint64_t hash
    while p <= end:
        slash = <const uint8_t*>memchr(p, c'/', end - p)
        if slash == NULL:
            slash = end
        bytes = <uint32_t>(slash - p)
        hash = 0
        onward = <RetainedNode*>level_find(&root.tree, &node.level, p, bytes, &hash)
        if onward == NULL:
            if not make:
                return NULL
            onward = <RetainedNode*>level_add(&root.tree, &r.account, &node.level, p, bytes, sizeof(RetainedNode))
            if onward == NULL:
                prune(r, root, node)
                return NULL
        node = onward
        p = slash + 1
    return node


cdef int retained_set(Retained* r, const uint8_t* topic, uint32_t n, void* value, void** old) noexcept nogil:
    cdef RetainedNode* node
    old[0] = NULL
    if n == 0:
        return 0
    if value == NULL:
        old[0] = retained_remove(r, topic, n)
        return 0
    node = descend(r, retained_root(r, topic), topic, n, True)
    if node == NULL:
        return -1
    old[0] = node.value
    if node.value == NULL:
        r.clock += 1
        r.count += 1
        r.system += topic[0] == c'$'
        node.born = r.clock
    node.value = value
    return 0


cdef void* retained_remove(Retained* r, const uint8_t* topic, uint32_t n) noexcept nogil:
    cdef RetainedNode* node = descend(r, retained_root(r, topic), topic, n, False) if n else NULL
    cdef void* old
    if node == NULL or node.value == NULL:
        return NULL
    old = node.value
    node.value = NULL
    r.count -= 1
    r.system -= topic[0] == c'$'
    prune(r, retained_root(r, topic), node)
    return old


cdef void* retained_get(Retained* r, const uint8_t* topic, uint32_t n) noexcept nogil:
    cdef RetainedNode* node = descend(r, retained_root(r, topic), topic, n, False) if n else NULL
    return node.value if node != NULL else NULL


# ---- cursors ----

cdef inline uint32_t* level_starts(CursorState* state) noexcept nogil:
    return <uint32_t*>(state + 1)


cdef int retained_open(Retained* r, RetainedCursor* c, View filter) noexcept nogil:
    cdef uint32_t levels = 1
    cdef uint32_t i
    cdef uint32_t* starts
    cdef uint8_t* text
    cdef CursorState* state
    c.at = NULL
    c.depth = 0
    c.exact = 1
    for i in range(filter.n):
        if filter.p[i] == c'/':
            levels += 1
        elif filter.p[i] == c'+' or filter.p[i] == c'#':
            c.exact = 0
    cdef size_t block_bytes = sizeof(CursorState) + (levels + 1) * sizeof(uint32_t) + filter.n
    state = <CursorState*>memory_take(&r.account, block_bytes)
    c.state = state
    c.filter.p = NULL
    c.filter.n = 0
    if state == NULL:
        return -1
    starts = level_starts(state)
    text = <uint8_t*>(starts + levels + 1)
    memcpy(text, filter.p, filter.n)
    c.filter.p = text
    c.filter.n = filter.n
    starts[0] = 0
    levels = 1
    for i in range(filter.n):
        if filter.p[i] == c'/':
            starts[levels] = i + 1
            levels += 1
    starts[levels] = filter.n + 1
    state.block_bytes = block_bytes
    state.opened = r.clock
    state.levels = levels
    state.phase = PHASE_START if filter.n else PHASE_END
    state.multi = filter.n > 0 and filter.p[filter.n - 1] == c'#'
    return 0


cdef bint is_open_level(RetainedCursor* c, CursorState* state, uint32_t i) noexcept nogil:
    # Return whether level i of the topic (counted from 0) matches any text.
    if state.multi and i + 1 >= state.levels:
        return True
    return (i < state.levels and level_starts(state)[i + 1] - level_starts(state)[i] == 2
            and c.filter.p[level_starts(state)[i]] == c'+')


cdef RetainedNode* child_of(LevelTree* tree, RetainedCursor* c, CursorState* state, RetainedNode* node) noexcept nogil:
    # Return the first child that agrees with the filter.
    cdef uint32_t start
    cdef uint64_t hash = 0
    if node.level.n_children == 0:
        return NULL
    if is_open_level(c, state, c.depth):
        return <RetainedNode*>level_first(tree, &node.level)
    if c.depth >= state.levels:
        return NULL
    start = level_starts(state)[c.depth]
    return <RetainedNode*>level_find(tree, &node.level, c.filter.p + start,
                                     level_starts(state)[c.depth + 1] - start - 1, &hash)


cdef RetainedNode* step(LevelTree* tree, RetainedCursor* c, CursorState* state, RetainedNode* node) noexcept nogil:
    # Return the node after `node` in the walk, or NULL at the end. Update c.depth.
    cdef RetainedNode* onward = child_of(tree, c, state, node)
    if onward != NULL:
        c.depth += 1
        return onward
    while c.depth > 0:
        if is_open_level(c, state, c.depth - 1):
            onward = <RetainedNode*>level_next(tree, &node.level)
            if onward != NULL:
                return onward
        node = <RetainedNode*>node.level.parent
        c.depth -= 1
    return NULL


cdef void cursor_leave(Retained* r, RetainedCursor* c) noexcept nogil:
    cdef RetainedNode* node = c.at
    c.at = NULL
    if node != NULL:
        node.pins -= 1
        prune(r, retained_root(r, c.filter.p), node)


cdef void* next_exact(Retained* r, RetainedCursor* c, CursorState* state, uint32_t* budget) noexcept nogil:
    budget[0] -= 1
    state.phase = PHASE_END
    return retained_get(r, c.filter.p, c.filter.n)


cdef void* retained_next(Retained* r, RetainedCursor* c, uint32_t* budget) noexcept nogil:
    cdef CursorState* state = <CursorState*>c.state
    cdef RetainedRoot* root
    cdef RetainedNode* node
    cdef void* value = NULL
    if state == NULL or state.phase == PHASE_END or budget[0] == 0:
        return NULL
    if c.exact:
        value = next_exact(r, c, state, budget)
        if value == NULL and budget[0] == 0:
            budget[0] = 1                       # the end is known: another call is unnecessary
        return value
    root = retained_root(r, c.filter.p)
    node = c.at if state.phase == PHASE_DOWN else &root.top
    state.phase = PHASE_DOWN
    while budget[0] > 0:
        node = step(&root.tree, c, state, node)
        if node == NULL:
            state.phase = PHASE_END
            break
        budget[0] -= 1
        # The node agrees with the filter up to its depth; `#` also matches the parent level [v5 4.7.1.2].
        if (node.value != NULL and node.born <= state.opened
                and (c.depth == state.levels or (state.multi and c.depth + 1 >= state.levels))):
            value = node.value
            break
    if node != NULL:
        node.pins += 1                          # before leave(), which must not prune the cursor's new node
    cursor_leave(r, c)
    c.at = node
    return value


cdef void retained_close(Retained* r, RetainedCursor* c) noexcept nogil:
    cursor_leave(r, c)
    if c.state != NULL:
        memory_give(&r.account, c.state, (<CursorState*>c.state).block_bytes)
    c.state = NULL
    c.filter.p = NULL
    c.filter.n = 0


cdef bint retained_may_match(Retained* r, View filter) noexcept nogil:
    return retained_root(r, filter.p).top.level.n_children != 0


cdef uint64_t retained_cursor_bytes(RetainedCursor* c) noexcept nogil:
    return cells_bytes(c.state, (<CursorState*>c.state).block_bytes)


cdef uint64_t retained_count(Retained* r) noexcept nogil:
    return r.count


cdef uint64_t retained_system(Retained* r) noexcept nogil:
    return r.system


cdef uint64_t retained_bytes(Retained* r) noexcept nogil:
    return r.account.cells.used_bytes
