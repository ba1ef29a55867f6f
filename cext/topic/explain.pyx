# Explain a match: repeat the walk of index_match, count everything, and describe every matching filter as JSON.
# This module does not know which client asks, what a subscriber is, nor how a group selects a member. It reads the layout of the
# index and changes nothing. It does not use the match cache, so the answer is about the walk itself.
# Invariant: the answer reports what index_match finds (tests/topic/test_topic_explain.py compares both). The answer is whole JSON
# for any amount of room: a filter that does not fit is left out with all later ones, "truncated" reports that, and the totals at
# the end, for which room is reserved, include them.
# Cost: that of the match, and the text. Nothing is allocated. The module is separate from index.pyx, so
# that a match pays for no counter.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memcpy, memset, strlen
from cext.base.hash cimport hash_bytes
from cext.base.view cimport View
from cext.topic.index cimport (
    Entry, Group, IN_TABLE_EXACT, IN_TABLE_WILD, Index, IndexStats, LEAF_MULTI, Leaf, List, Root, TreeNode, exact_table, index_stats,
)
from cext.topic.leaf cimport leaf_text, index_root
from cext.topic.level cimport LevelNode, LevelTree, crowd_hash, level_head, level_text
from cext.topic.name cimport LEVELS_MAX, filter_matches
from cext.topic.options cimport LETTERS, letter_of
from cext.topic.table cimport Link, Table, table_buckets, table_chain, table_slot

cdef enum:
    TAIL_BYTES = 640            # room reserved for the text after the filters: 13 numbers of 20 digits, and their names

cdef struct Cost:
    uint64_t hashes             # hashes computed
    uint64_t bytes_hashed
    uint64_t links              # links of hash chains looked at
    uint64_t nodes              # visited nodes of the tree, without its top
    uint64_t scanned            # children looked at in a scan
    uint64_t bytes_compared
    uint64_t filters_compared   # filters compared in the mode INDEX_SCAN

cdef struct Way:                # how the walk reached one node from the top
    uint32_t links
    uint32_t scanned
    uint32_t hashed             # levels that a hash found

cdef struct Explanation:
    Index* ix
    strategy_fn strategy
    route_fn route
    void* ctx                   # argument of both
    View topic
    uint8_t* out
    uint32_t at
    uint32_t cap
    bint full                   # 1 = something did not fit: nothing more is written until the caller takes it back
    bint truncated
    uint64_t filters
    uint64_t lists
    uint64_t subscribers
    uint64_t groups
    Cost cost


# ---- JSON ----

cdef void put_bytes(Explanation* a, const void* p, uint32_t n) noexcept nogil:
    if a.full or n > a.cap - a.at:
        a.full = True
        return
    memcpy(a.out + a.at, p, n)
    a.at += n


cdef void explain_put(Explanation* a, const char* text) noexcept nogil:
    put_bytes(a, text, <uint32_t>strlen(text))


cdef void explain_put_number(Explanation* a, const char* before, uint64_t value) noexcept nogil:
    cdef char digits[24]
    explain_put(a, before)
    put_bytes(a, digits, <uint32_t>snprintf(digits, sizeof(digits), "%llu", <unsigned long long>value))


cdef void put_escaped(Explanation* a, const uint8_t* p, uint32_t n) noexcept nogil:
    # Write the contents of a JSON string. p is valid UTF-8.
    cdef uint32_t i = 0, start
    cdef char code[8]
    while i < n and not a.full:
        start = i
        while i < n and p[i] >= 0x20 and p[i] != c'"' and p[i] != c'\\':
            i += 1
        put_bytes(a, p + start, i - start)
        if i == n:
            return
        if p[i] < 0x20:
            put_bytes(a, code, <uint32_t>snprintf(code, sizeof(code), "\\u%04x", <unsigned int>p[i]))
        else:
            explain_put(a, "\\")
            put_bytes(a, p + i, 1)
        i += 1


cdef void put_letter(Explanation* a, const uint8_t* text, uint32_t n) noexcept nogil:
    # Write the partition by first letter; null if there is only one.
    cdef char name[2]
    cdef uint32_t letter = letter_of(text, n)
    explain_put(a, ",\"letter\":")
    if not a.ix.by_letter:
        explain_put(a, "null")
    elif letter == LETTERS - 1:
        explain_put(a, "\"other\"")
    else:
        name[0] = <char>(c'a' + letter)
        name[1] = 0
        explain_put(a, "\"")
        explain_put(a, name)
        explain_put(a, "\"")


cdef const char* mode_name(Index* ix) noexcept nogil:
    if ix.in_table & IN_TABLE_WILD:
        return "scan"
    if ix.in_table & IN_TABLE_EXACT:
        return "full" if ix.by_letter else "hash"
    return "letter" if ix.by_letter else "tree"


# ---- one filter ----

cdef uint32_t route_count_of(Explanation* a, List* l) noexcept nogil:
    cdef uint32_t n = 0, worker
    while a.route != NULL and a.route(a.ctx, l, n, &worker) != NULL:
        n += 1
    return n


cdef void put_routes(Explanation* a, List* l) noexcept nogil:
    # Write the workers among the subscribers, if there are any: a broker that is alone has none.
    cdef uint32_t n = 0, worker
    cdef Entry* e = a.route(a.ctx, l, 0, &worker) if a.route != NULL else NULL
    if e == NULL:
        return
    explain_put(a, ",\"routes\":[")
    while e != NULL and not a.full:
        explain_put_number(a, "{\"worker\":" if n == 0 else ",{\"worker\":", worker)
        explain_put_number(a, ",\"qos\":", e.options & 3)
        explain_put(a, "}")
        n += 1
        e = a.route(a.ctx, l, n, &worker)
    explain_put(a, "]")


cdef void put_subscribers(Explanation* a, Leaf* leaf) noexcept nogil:
    cdef Group* group = leaf.groups
    cdef bint first = True
    cdef uint32_t routes = route_count_of(a, &leaf.plain)
    explain_put_number(a, ",\"subscribers\":", leaf.plain.live - routes)
    put_routes(a, &leaf.plain)
    explain_put(a, ",\"groups\":[")
    while group != NULL and not a.full:
        if group.members.live:
            explain_put(a, "{\"name\":\"" if first else ",{\"name\":\"")
            put_escaped(a, group.name.p, group.name.n)
            explain_put(a, "\",\"strategy\":\"")
            explain_put(a, a.strategy(a.ctx, group))
            explain_put_number(a, "\",\"members\":", group.members.live - route_count_of(a, &group.members))
            put_routes(a, &group.members)
            explain_put(a, "}")
            first = False
        group = group.next
    explain_put(a, "]}")


cdef void put_path(Explanation* a, Leaf* leaf, const char* before, const char* between, const char* after) noexcept nogil:
    # Write the levels that lead to a leaf of the tree.
    cdef LevelNode* levels[LEVELS_MAX]
    cdef LevelNode* at = &leaf.node.level
    cdef uint32_t n = 0
    while at.parent != NULL:
        levels[n] = at
        n += 1
        at = at.parent
    explain_put(a, before)
    while n and not a.full:
        n -= 1
        put_escaped(a, level_text(levels[n]), levels[n].link.n)
        if n or leaf.link.hash == LEAF_MULTI:
            explain_put(a, between)
    if leaf.link.hash == LEAF_MULTI:
        explain_put(a, "#")
    explain_put(a, after)


cdef bint counted(Explanation* a, Leaf* leaf) noexcept nogil:
    # Count a matching filter. Return true if the answer must also describe it.
    cdef Group* group = leaf.groups
    cdef uint64_t groups = 0
    while group != NULL:
        groups += group.members.live != 0
        group = group.next
    if not leaf.plain.live and not groups:
        return False                    # only a pin keeps the leaf
    a.filters += 1
    a.groups += groups
    a.lists += leaf.plain.live != 0
    a.subscribers += leaf.plain.live
    return not a.truncated


cdef void explain_table(Explanation* a, Leaf* leaf, uint32_t links) noexcept nogil:
    cdef uint32_t mark = a.at
    if not counted(a, leaf):
        return
    explain_put(a, ",{\"filter\":\"" if a.filters > 1 else "{\"filter\":\"")
    put_escaped(a, leaf_text(leaf), leaf.link.n)
    if a.ix.in_table & IN_TABLE_WILD:
        explain_put(a, "\",\"path\":\"scan\"")
    else:
        explain_put(a, "\",\"path\":\"exact\"")
        put_letter(a, leaf_text(leaf), leaf.link.n)
        explain_put_number(a, ",\"links\":", links)
    put_subscribers(a, leaf)
    explain_settle(a, mark)


cdef void explain_tree(Explanation* a, Leaf* leaf, const Way* way, uint32_t depth) noexcept nogil:
    cdef uint32_t mark = a.at
    if not counted(a, leaf):
        return
    put_path(a, leaf, ",{\"filter\":\"" if a.filters > 1 else "{\"filter\":\"", "/", "\",\"path\":\"tree\"")
    put_path(a, leaf, ",\"edges\":[\"", "\",\"", "\"]")
    explain_put_number(a, ",\"nodes\":", depth)
    explain_put_number(a, ",\"scanned\":", way.scanned)
    explain_put_number(a, ",\"hashed\":", way.hashed)
    explain_put_number(a, ",\"links\":", way.links)
    put_subscribers(a, leaf)
    explain_settle(a, mark)


cdef void explain_settle(Explanation* a, uint32_t mark) noexcept nogil:
    if a.full:
        a.full = False
        a.truncated = True              # later filters are not tried: each attempt would cost the rest of the room
        a.at = mark


# ---- the walk ----

cdef LevelNode* explain_find(Explanation* a, LevelTree* t, LevelNode* parent, const uint8_t* text, uint32_t n, uint64_t* hash, Way* way) noexcept nogil:
    # Do as level_find, and count.
    cdef LevelNode* head = level_head(t, parent, text, n)
    cdef LevelNode* node = head.first
    cdef Link* link
    cdef uint32_t h
    if not head.crowded:
        while node != NULL:
            way.scanned += 1
            a.cost.scanned += 1
            if node.link.n == n:
                a.cost.bytes_compared += n
                if memcmp(level_text(node), text, n) == 0:
                    return node
            node = node.next
        return NULL
    if hash[0] == 0:
        hash[0] = hash_bytes(&t.key, text, n)
        a.cost.hashes += 1
        a.cost.bytes_hashed += n
    way.hashed += 1
    h = crowd_hash(parent, hash[0])
    link = table_chain(&t.crowd, h)
    while link != NULL:
        way.links += 1
        a.cost.links += 1
        node = <LevelNode*>link
        if link.hash == h and link.n == n and node.parent == parent:
            a.cost.bytes_compared += n
            if memcmp(level_text(node), text, n) == 0:
                return node
        link = link.next
    return NULL


cdef inline uint32_t explained_level_end(View topic, uint32_t at) noexcept nogil:
    while at < topic.n and topic.p[at] != c'/':
        at += 1
    return at


cdef void walk_tree(Explanation* a, Root* root) noexcept nogil:
    # Do as match_tree of index.pyx, and count. The comments there apply here.
    cdef uint32_t starts[LEVELS_MAX + 1]
    cdef uint64_t hashes[LEVELS_MAX]
    cdef TreeNode* waiting[LEVELS_MAX]
    cdef uint32_t depths[LEVELS_MAX]
    cdef Way ways[LEVELS_MAX]
    cdef uint32_t n_waiting = 0, depth = 0, known = 0
    cdef Way way
    cdef Way before
    cdef TreeNode* node = &root.top
    cdef TreeNode* onward
    cdef Leaf* leaf
    memset(&way, 0, sizeof(Way))
    starts[0] = 0
    while True:
        leaf = node.leaves
        while leaf != NULL:
            if leaf.link.hash == LEAF_MULTI or starts[depth] > a.topic.n:
                explain_tree(a, leaf, &way, depth)
            leaf = <Leaf*>leaf.link.next
        onward = NULL
        if starts[depth] <= a.topic.n and (node.level.n_children or node.plus != NULL):
            if depth == known:
                if known == LEVELS_MAX:
                    return
                hashes[known] = 0
                known += 1
                starts[known] = explained_level_end(a.topic, starts[depth]) + 1
            before = way
            if node.level.n_children:
                onward = <TreeNode*>explain_find(a, &root.tree, &node.level, a.topic.p + starts[depth],
                                                 starts[depth + 1] - starts[depth] - 1, &hashes[depth], &way)
            depth += 1
            if onward == NULL:
                onward = node.plus
                way = before            # a `+` needs no search
            elif node.plus != NULL:
                waiting[n_waiting] = node.plus
                depths[n_waiting] = depth
                ways[n_waiting] = before
                n_waiting += 1
        if onward == NULL:
            if n_waiting == 0:
                return
            n_waiting -= 1
            onward = waiting[n_waiting]
            depth = depths[n_waiting]
            way = ways[n_waiting]
        a.cost.nodes += 1
        node = onward


cdef void walk_scan(Explanation* a, Root* root) noexcept nogil:
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
                a.cost.filters_compared += 1
                a.cost.bytes_compared += filter.n if filter.n < a.topic.n else a.topic.n
                if filter_matches(filter, a.topic):
                    explain_table(a, <Leaf*>link, 0)
                link = link.next


cdef void look_up(Explanation* a, Table* table) noexcept nogil:
    # Do as exact_find, and count.
    cdef uint32_t hash = <uint32_t>hash_bytes(&a.ix.key, a.topic.p, a.topic.n)
    cdef Link* link = table_chain(table, hash)
    cdef uint32_t links = 0
    a.cost.hashes += 1
    a.cost.bytes_hashed += a.topic.n
    while link != NULL:
        links += 1
        a.cost.links += 1
        if link.hash == hash and link.n == a.topic.n:
            a.cost.bytes_compared += a.topic.n
            if memcmp(leaf_text(<Leaf*>link), a.topic.p, a.topic.n) == 0:
                explain_table(a, <Leaf*>link, links)
                return
        link = link.next


cdef void explain_walk(Explanation* a) noexcept nogil:
    cdef Root* root = index_root(a.ix, a.topic.p)
    cdef Table* table
    if a.ix.in_table & IN_TABLE_WILD:
        walk_scan(a, root)
        return
    table = exact_table(a.ix, root, a.topic.p, a.topic.n)
    if table.n:
        look_up(a, table)
    if root.in_tree:
        walk_tree(a, root)


# ---- the answer ----

cdef void put_head(Explanation* a) noexcept nogil:
    cdef uint32_t mark
    explain_put(a, "{\"index\":\"")
    explain_put(a, mode_name(a.ix))
    explain_put(a, "\",\"topic\":")
    mark = a.at
    a.cap //= 2                         # a long topic must leave room for filters
    explain_put(a, "\"")
    put_escaped(a, a.topic.p, a.topic.n)
    explain_put(a, "\"")
    a.cap *= 2
    if a.full:
        a.full = False
        a.at = mark
        explain_put(a, "null")
    explain_put(a, ",\"filters\":[")


cdef void put_tail(Explanation* a) noexcept nogil:
    explain_put(a, "],\"truncated\":true" if a.truncated else "],\"truncated\":false")
    explain_put_number(a, ",\"totals\":{\"filters\":", a.filters)
    explain_put_number(a, ",\"lists\":", a.lists)
    explain_put_number(a, ",\"subscribers\":", a.subscribers)
    explain_put_number(a, ",\"groups\":", a.groups)
    explain_put_number(a, "},\"cost\":{\"hashes\":", a.cost.hashes)
    explain_put_number(a, ",\"bytes_hashed\":", a.cost.bytes_hashed)
    explain_put_number(a, ",\"links\":", a.cost.links)
    explain_put_number(a, ",\"nodes\":", a.cost.nodes)
    explain_put_number(a, ",\"scanned\":", a.cost.scanned)
    explain_put_number(a, ",\"bytes_compared\":", a.cost.bytes_compared)
    explain_put_number(a, ",\"filters_compared\":", a.cost.filters_compared)
    explain_put(a, "}}")


cdef uint32_t index_explain(Index* ix, const uint8_t* topic, uint32_t n,     # parameters: two buffers with sizes, two callbacks
                            uint8_t* out, uint32_t cap, strategy_fn strategy, route_fn route, void* ctx, uint64_t* work) noexcept nogil:
    cdef Explanation a
    work[0] = 0
    if cap < EXPLAIN_BYTES_MIN:
        return 0
    memset(&a, 0, sizeof(Explanation))
    a.ix = ix
    a.strategy = strategy
    a.route = route
    a.ctx = ctx
    a.topic.p = topic
    a.topic.n = n
    a.out = out
    a.cap = ((cap if cap < EXPLAIN_BYTES_MAX else EXPLAIN_BYTES_MAX) - TAIL_BYTES) & ~<uint32_t>1
    put_head(&a)
    if n:
        explain_walk(&a)
    a.cap += TAIL_BYTES
    put_tail(&a)
    work[0] = (a.filters + a.groups + a.cost.links + a.cost.nodes + a.cost.scanned + a.cost.filters_compared
               + (a.at + a.cost.bytes_compared + a.cost.bytes_hashed) // 64)
    return a.at


cdef uint64_t index_load_hundredths(Index* ix) noexcept nogil:
    cdef IndexStats stats
    index_stats(ix, &stats)
    return (stats.exact + ix.pairs.n + ix.groups.n + ix.roots[0].tree.crowd.n + ix.roots[1].tree.crowd.n) * 100 // stats.buckets
