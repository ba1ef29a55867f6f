# The subscription index: filters to subscriber lists. It does not know who a subscriber is: an Owner is a list head
# that the session room embeds; what is passed through is an opaque pointer.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.hash cimport HashKey
from cext.base.view cimport View
from cext.topic.cache cimport MatchCache
from cext.topic.level cimport LevelNode, LevelTree
from cext.topic.memory cimport Account
from cext.topic.name cimport Filter
from cext.topic.options cimport IndexOptions, LETTERS, letter_of
from cext.topic.table cimport Link, Table

cdef struct Subscription        # opaque to other rooms: one (owner, filter) pair
cdef struct Group               # see below
cdef struct Index               # opaque

ctypedef struct Owner:
    Subscription* head          # all subscriptions of this owner, newest first; NULL when none
    uint32_t n                  # how many

ctypedef struct Entry:          # 16 bytes, what a fan-out walks over
    void* subscriber                   # NULL: removed while the list was pinned; skip it
    uint32_t sub_id             # 0: none
    uint8_t options             # v5 option byte: qos | no local << 2 | retain as published << 3 | retain handling << 4
    uint8_t reserved
    uint16_t share              # of a group's member: a note of the broker's for its session, 0 at first; see share.pyx

cdef enum:
    BLOCK_ENTRIES = 1024        # of a list that needs more than one block

ctypedef struct List:
    uint32_t n                  # entries, gaps included
    uint32_t live               # entries without gaps
    uint32_t pins               # while > 0: positions do not move, removal leaves a gap, additions go to the end
    uint32_t low                # while live < n: no gap lies below
    Entry* block                # the first: `cap` entries and, after them, their subscriptions (NULL at a gap)
    Entry** more                # further ones of BLOCK_ENTRIES each; NULL: none
    uint16_t cap                # places of the first block
    uint16_t flags
    uint32_t room               # places of `more`, while there is one


cdef inline Entry* list_entry(const List* l, uint32_t i) noexcept nogil:
    if i < BLOCK_ENTRIES:
        return &l.block[i]
    return &l.more[i // BLOCK_ENTRIES - 1][i % BLOCK_ENTRIES]


# The entries from i on that lie side by side: how many, at most up to `end` (<= l.n).
cdef inline uint32_t list_run(const List* l, uint32_t i, uint32_t end) noexcept nogil:
    cdef uint32_t n = BLOCK_ENTRIES - i % BLOCK_ENTRIES
    return n if n < end - i else end - i


cdef struct Group:              # a shared subscription: one (group name, filter)
    List members
    uint32_t cursor             # where to look first (share.pyx picks; any value is valid, take it modulo n)
    uint8_t strategy            # of share.pxd; 0: not asked for yet
    uint64_t id                 # unique in the life of the broker, given with the strategy: a group may end and come again
    void* chosen                # sticky: who, to be compared only
    uint32_t seen               # of a large group: where somebody was online
    View name                   # group name, for logs
    Group* next                 # next group on the same filter
    void* home                  # the filter node

ctypedef struct Match:          # reused for every match: arrays grow to the high-water mark and stay
    List** lists                # one per matching filter that has plain subscribers
    uint32_t n_lists
    uint32_t cap_lists
    Group** groups              # shared groups with a member, of every matching filter
    uint32_t n_groups
    uint32_t cap_groups


# Places in the lists, gaps included: what a walk over them takes.
cdef inline uint64_t match_places(const Match* m) noexcept nogil:
    cdef uint64_t places = 0
    cdef uint32_t i
    for i in range(m.n_lists):
        places += m.lists[i].n
    return places


# Subscribers in the lists. Not part of the match: it looks at each list, which whoever delivers does anyway.
cdef inline uint64_t match_total(const Match* m) noexcept nogil:
    cdef uint64_t total = 0
    cdef uint32_t i
    for i in range(m.n_lists):
        total += m.lists[i].live
    return total

cdef void match_init(Match* m) noexcept nogil
cdef void match_fini(Match* m) noexcept nogil

cdef enum:
    INDEX_ADDED = 0
    INDEX_REPLACED = 1          # same owner, same filter (and group): options and sub_id replaced [v5 3.8.4-3]
    INDEX_NOT_FOUND = 2
    INDEX_REMOVED = 3

cdef Index* index_new(const HashKey* key, const IndexOptions* options) noexcept nogil   # NULL: no memory; options NULL: defaults
cdef void index_free(Index* ix) noexcept nogil
# f comes from filter_parse. INDEX_ADDED, INDEX_REPLACED, or -1: no memory (nothing changed).
cdef int index_add(Index* ix, Owner* owner, void* subscriber, const Filter* f, uint8_t options, uint32_t sub_id) noexcept nogil
cdef int index_remove(Index* ix, Owner* owner, const Filter* f) noexcept nogil     # INDEX_REMOVED or INDEX_NOT_FOUND
# Removes up to max subscriptions of owner; returns how many were removed (bounded work; 0 = none is left).
cdef uint32_t index_remove_some(Index* ix, Owner* owner, uint32_t max) noexcept nogil
# Everything that `topic` (a valid name) matches. 0, or -1: no memory for the result arrays. A filter whose plain list
# is empty is not reported. `$` topics are matched only by filters that begin with `$` [v5 4.7.2-1].
cdef int index_match(Index* ix, const uint8_t* topic, uint32_t n, Match* m) noexcept nogil
# The entry of an owner's subscription to f, or NULL.
cdef Entry* index_entry(Index* ix, Owner* owner, const Filter* f) noexcept nogil
# The shared group of f, or NULL.
cdef Group* index_group(Index* ix, const Filter* f) noexcept nogil
# The entry of an owner in a list, or NULL: no scan where the list is long.
cdef Entry* entry_of(Index* ix, List* l, Owner* owner) noexcept nogil
# A pinned list (and its node) stays where it is until the last unpin, which may free it.
cdef void list_pin(List* l) noexcept nogil
cdef void list_unpin(Index* ix, List* l) noexcept nogil
# Before the last unpin: closes some of the gaps. True: call again.
cdef bint list_tidy(Index* ix, List* l) noexcept nogil
# Walk of an owner's subscriptions: start with owner.head. Writes the filter as the client wrote it ($share/... included)
# into buf (65535 + 1024 bytes are always enough), *n its length; returns the next one or NULL at the end.
cdef Subscription* subscription_read(Subscription* s, uint8_t* buf, uint32_t* n, uint8_t* options, uint32_t* sub_id) noexcept nogil
# gauges
ctypedef struct IndexStats:
    uint64_t filters            # distinct (nodes with a list or group)
    uint64_t subscriptions      # plain
    uint64_t shared             # shared
    uint64_t nodes
    uint64_t bytes
    uint64_t exact              # filters found by hash of the whole
    uint64_t buckets            # of all hash tables
    uint64_t cache_hits
    uint64_t cache_misses
    uint64_t depth              # levels of the deepest filter that ever was in the tree
cdef void index_stats(Index* ix, IndexStats* out) noexcept nogil
cdef uint64_t index_bytes(Index* ix) noexcept nogil


# ---- private: the layout, here only because Cython wants it in a header; check.pyx reads it, other rooms do not ----

cdef struct Subscription:
    Link link                   # in Index.pairs while its list is long; .n: its position in the list
    List* list
    Owner* owner
    Subscription* next          # of the same owner
    Subscription* prev

cdef struct Slot:               # the block of a list of one: most filters have one subscriber
    Entry entry
    Subscription* sub

cdef enum:
    LIST_OF_GROUP = 1           # flags of a List: home is a SharedGroup, else a Leaf
    LIST_IS_LONG = 2            # its subscriptions are in Index.pairs
    LONG_FROM = 17              # subscribers: from so many on an owner's own is found by hash, down to LONG_UNTIL
    LONG_UNTIL = 8

cdef enum:
    IN_TABLE_EXACT = 1          # which filters lie in the tables of whole filters; bit = 1 << Filter.wildcard
    IN_TABLE_WILD = 2

cdef struct Leaf

cdef struct TreeNode:           # a level of a wildcard filter; the text follows the struct
    LevelNode level             # children with a text
    TreeNode* plus              # child `+`
    Leaf* leaves                # the filter that ends at this level, and the one that goes on with `#`: none, one or both

cdef struct Leaf:               # a filter that has subscribers, groups or pins; the text of one in a table follows the struct
    Link link                   # in Root.exact, .n: bytes of the filter. In a tree: .next of TreeNode.leaves, .hash: LEAF_...
    List plain
    Group* groups
    TreeNode* node              # NULL: in a table
    Slot slot

cdef enum:
    LEAF_HERE = 0
    LEAF_MULTI = 1

cdef struct SharedGroup:        # the group's name follows the struct
    Group group                 # home: the Leaf
    Link link                   # in Index.groups
    Group* prev
    Slot slot

cdef struct Root:
    Table exact[LETTERS]        # whole filters by first letter (by_letter, else all in the first)
    LevelTree tree              # the others
    TreeNode top                # before the first level
    uint64_t in_tree            # filters in the tree: while 0 a match does not look there

cdef struct Index:
    HashKey key
    Account account
    Root roots[2]               # [1]: what begins with `$`
    Table pairs                 # subscriptions of long lists, keyed by (owner, list)
    Table groups                # keyed by (filter, name)
    IndexStats stats            # kept as it goes, bytes and buckets excepted
    MatchCache cache            # of roots[0]
    uint8_t by_letter
    uint8_t in_table            # IN_TABLE_...


# A list is part of what it belongs to.
cdef inline Leaf* leaf_of(List* l) noexcept nogil:
    return <Leaf*>(<uint8_t*>l - <size_t>&(<Leaf*>NULL).plain)


cdef inline SharedGroup* group_of(List* l) noexcept nogil:
    return <SharedGroup*>l      # its first member's first member


# The table of whole filters that this one would be in.
cdef inline Table* exact_table(Index* ix, Root* root, const uint8_t* text, uint32_t n) noexcept nogil:
    return &root.exact[letter_of(text, n)] if ix.by_letter else &root.exact[0]
