# The subscription index: from filters to subscriber lists. It does not know what a subscriber is: an Owner is a list head that
# the session room embeds, and a subscriber is an opaque pointer.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from cext.base.hash cimport HashKey
from cext.base.view cimport View
from cext.topic.cache cimport MatchCache
from cext.topic.level cimport LevelNode, LevelTree
from cext.topic.memory cimport MemoryAccount
from cext.topic.name cimport Filter
from cext.topic.options cimport IndexOptions, LETTERS, letter_of
from cext.topic.table cimport Link, Table

cdef struct Subscription        # defined below
cdef struct Group               # defined below
cdef struct Index               # opaque to other rooms

ctypedef struct Owner:
    Subscription* head          # all subscriptions of this owner, newest first; NULL = none
    uint32_t n                  # number of subscriptions

ctypedef struct Entry:          # an item of a subscriber list, 16 bytes; a fan-out walks over these
    void* subscriber            # NULL = removed while the list was pinned: skip the entry
    uint32_t sub_id             # Subscription Identifier; 0 = none
    uint8_t options             # v5 option byte: qos | no local << 2 | retain as published << 3 | retain handling << 4
    uint8_t reserved
    uint16_t share              # group members only: the broker's state for this session, 0 at first; see share.pyx

cdef enum:
    BLOCK_ENTRIES = 1024        # size of a block in a list with more than one block

cdef struct Subscription:       # one (owner, filter) pair; its fields are private to this room
    uintptr_t owner             # address of the Owner; bit SUB_IS_FIRST
    Subscription* next          # next subscription of the same owner
    Subscription* prev

cdef struct ListBlocks:
    Entry** more                # further blocks of BLOCK_ENTRIES each; NULL = none
    uint32_t room               # places of `more`; valid if `more` is not NULL
    uint32_t low                # valid while live < n: no gap is below this position

cdef union ListPlaces:
    Entry only                  # the entry, if cap is 1: most filters have one subscriber
    ListBlocks blocks           # else

ctypedef struct List:
    uint32_t n                  # number of entries, gaps included
    uint32_t live               # number of entries without gaps
    uint32_t pins               # while > 0: positions do not move, a removal leaves a gap, additions go to the end
    uint16_t cap                # places of the first block
    uint16_t flags
    Entry* block                # first block: `cap` entries, then their `cap` subscriptions (NULL at a gap); cap 1: places.only
    ListPlaces places
    Subscription first          # place for one of the subscriptions; owner 0 = unused


cdef inline Entry* list_entry(const List* l, uint32_t i) noexcept nogil:
    if i < BLOCK_ENTRIES:
        return &l.block[i]
    return &l.places.blocks.more[i // BLOCK_ENTRIES - 1][i % BLOCK_ENTRIES]


# Return how many entries from i on are adjacent in memory, at most up to `end` (<= l.n).
cdef inline uint32_t list_run(const List* l, uint32_t i, uint32_t end) noexcept nogil:
    cdef uint32_t n = BLOCK_ENTRIES - i % BLOCK_ENTRIES
    return n if n < end - i else end - i


cdef struct Group:              # a shared group: one pair of group name and filter
    List members
    uint32_t cursor             # place at which the search for a member begins (share.pyx selects; any value is valid modulo n)
    uint8_t strategy            # strategy of share.pxd; 0 = not determined yet
    uint64_t id                 # unique while the broker runs, 0 at first; see group_identify. A group may end and be created again
    void* chosen                # strategy `sticky`: the selected subscriber, for comparison only
    uint32_t seen               # large groups: a place with a member that was online
    View name                   # group name, for logs
    Group* next                 # next group on the same filter
    void* home                  # filter node

cdef enum:
    INDEX_ADDED = 0
    INDEX_REPLACED = 1          # same owner, filter and group: options and sub_id were replaced [v5 3.8.4-3]
    INDEX_NOT_FOUND = 2
    INDEX_REMOVED = 3

# NULL = no memory; options NULL = defaults.
cdef Index* index_new(const HashKey* key, const IndexOptions* options) noexcept nogil
cdef void index_free(Index* ix) noexcept nogil
# f comes from filter_parse. Return INDEX_ADDED, INDEX_REPLACED, or -1 if there is no memory (then nothing changed).
cdef int index_add(Index* ix, Owner* owner, void* subscriber, const Filter* f, uint8_t options, uint32_t sub_id) noexcept nogil
cdef int index_remove(Index* ix, Owner* owner, const Filter* f) noexcept nogil     # INDEX_REMOVED or INDEX_NOT_FOUND
# End one subscription.
cdef void subscription_drop(Index* ix, Subscription* sub) noexcept nogil
# Remove up to max subscriptions of owner. Return how many were removed; 0 means that none was left.
cdef uint32_t index_remove_some(Index* ix, Owner* owner, uint32_t max) noexcept nogil
# Return the entry of an owner's subscription to f, or NULL.
cdef Entry* index_entry(Index* ix, Owner* owner, const Filter* f) noexcept nogil
# Return the shared group of f, or NULL.
cdef Group* index_group(Index* ix, const Filter* f) noexcept nogil
# Give a group its id, by which group_of_id finds it as long as it exists; NULL: it is gone.
cdef void group_identify(Index* ix, Group* group, uint64_t id) noexcept nogil
cdef Group* group_of_id(Index* ix, uint64_t id) noexcept nogil
cdef enum:
    SUBSCRIPTION_TEXT_BYTES = 66600     # size of a buffer for `$share/GROUP/FILTER`

# Write `$share/GROUP/FILTER` into buf (SUBSCRIPTION_TEXT_BYTES). Return its length.
cdef uint32_t group_read(Group* group, uint8_t* buf) noexcept nogil
# Return the entry of an owner in a list, or NULL. A long list is not scanned.
cdef Entry* subscriber_entry(Index* ix, List* l, Owner* owner) noexcept nogil
# A pinned list and its node stay allocated until the last unpin, which may free them.
cdef void list_pin(List* l) noexcept nogil
cdef void list_unpin(Index* ix, List* l) noexcept nogil
# Close some of the gaps before the last unpin. Return true if gaps are left, so that the caller calls again.
cdef bint list_tidy(Index* ix, List* l) noexcept nogil
# Walk over an owner's subscriptions, beginning with owner.head. Write the filter as the client sent it ($share/... included) into
# buf (SUBSCRIPTION_TEXT_BYTES), and its length into *n. Return the next subscription, or NULL at the end.
cdef Subscription* subscription_read(Subscription* s, uint8_t* buf, uint32_t* n, uint8_t* options, uint32_t* sub_id) noexcept nogil
cdef Subscription* subscription_next(Subscription* s) noexcept nogil       # next one of its owner; NULL: it was the last
cdef Entry* subscription_entry(Subscription* s) noexcept nogil             # valid until the next change of its list
# Return whether the subscription's filter, without $share/GROUP/, matches the topic.
cdef bint subscription_matches(Subscription* s, View topic) noexcept nogil
# gauges of the index
ctypedef struct IndexStats:
    uint64_t filters            # distinct filters: nodes with a list or group
    uint64_t subscriptions      # plain subscriptions
    uint64_t shared             # shared subscriptions
    uint64_t nodes
    uint64_t bytes
    uint64_t exact              # filters that are found by the hash of the whole filter
    uint64_t buckets            # buckets of all hash tables
    uint64_t cache_hits
    uint64_t cache_misses
    uint64_t depth              # levels of the deepest filter that was ever in the tree
cdef void index_stats(Index* ix, IndexStats* out) noexcept nogil
cdef uint64_t index_bytes(Index* ix) noexcept nogil


# ---- private: the layout is in this header only because Cython requires it; check.pyx reads it, other rooms do not ----

cdef struct FurtherSubscription:        # any subscription that is not List.first
    Subscription base
    List* list
    Link link                   # member of Index.pairs while its list is long; .n: its position in the list

cdef enum:
    SUB_IS_FIRST = 1            # bit of Subscription.owner: it is List.first, else a FurtherSubscription
    LIST_OF_GROUP = 1           # flag of a List: home is a SharedGroup, else a Leaf
    LIST_IS_LONG = 2            # flag of a List: its subscriptions are in Index.pairs
    LONG_FROM = 17              # number of subscribers from which a hash finds an owner's subscription; down to LONG_UNTIL
    LONG_UNTIL = 8

cdef enum:
    IN_TABLE_EXACT = 1          # filters in the tables of whole filters; bit = 1 << Filter.wildcard
    IN_TABLE_WILD = 2

cdef struct Leaf

cdef struct TreeNode:           # a level of a wildcard filter; the text follows the struct
    LevelNode level             # children with a text
    TreeNode* plus              # child `+`
    Leaf* leaves                # filter that ends at this level, and the one that continues with `#`: none, one or both

cdef struct Leaf:               # a filter with subscribers, groups or pins; in a table, the filter's text follows the struct
    Link link                   # in Root.exact, .n = bytes of the filter; in a tree, .next of TreeNode.leaves, .hash = LEAF_...
    Group* groups
    TreeNode* node              # NULL = the leaf is in a table
    List plain

cdef enum:
    LEAF_HERE = 0
    LEAF_MULTI = 1

cdef struct SharedGroup:        # a shared group with its hash link; the group's name follows the struct
    Group group                 # home: the Leaf
    Link link                   # member of Index.groups
    Link id_link                # member of Index.identified, if group.id is not 0
    Group* prev

cdef struct Root:
    Table exact[LETTERS]        # whole filters by first letter (by_letter; otherwise all in the first table)
    LevelTree tree              # all other filters
    TreeNode top                # node above the first level
    uint64_t in_tree            # number of filters in the tree; while it is 0 a match skips the tree

cdef struct Index:
    HashKey key
    MemoryAccount account
    Root roots[2]               # roots[1]: filters that begin with `$`
    Table pairs                 # subscriptions of long lists, keyed by (owner, list)
    Table groups                # shared groups, keyed by (filter, name)
    Table identified            # the same, by id
    IndexStats stats            # current gauges, except bytes and buckets
    MatchCache cache            # cache for roots[0]
    uint8_t by_letter
    uint8_t in_table            # a mask of IN_TABLE_...


# A list is a member of the struct that it belongs to.
cdef inline Leaf* leaf_of(List* l) noexcept nogil:
    return <Leaf*>(<uint8_t*>l - <size_t>&(<Leaf*>NULL).plain)


cdef inline SharedGroup* group_of_id_link(Link* link) noexcept nogil:
    return <SharedGroup*>(<uint8_t*>link - <size_t>&(<SharedGroup*>NULL).id_link)


cdef inline SharedGroup* group_of(List* l) noexcept nogil:
    return <SharedGroup*>l      # valid cast: the list is the first member of the first member


# For other rooms: return the group that a list belongs to; NULL = it is the plain list of a filter.
cdef inline Group* list_group(List* l) noexcept nogil:
    return &group_of(l).group if l.flags & LIST_OF_GROUP else NULL


# Return the table of whole filters that contains this filter, if it is in a table.
cdef inline Table* exact_table(Index* ix, Root* root, const uint8_t* text, uint32_t n) noexcept nogil:
    return &root.exact[letter_of(text, n)] if ix.by_letter else &root.exact[0]
