# The retained tree: from topic names to one value each (opaque here; a Message for the broker).
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.hash cimport HashKey
from cext.base.view cimport View
from cext.topic.level cimport LevelNode, LevelTree
from cext.topic.memory cimport MemoryAccount
from cext.topic.options cimport IndexOptions

cdef struct Retained            # opaque to other rooms
cdef struct RetainedNode        # opaque to other rooms

ctypedef struct RetainedCursor:
    View filter                 # private copy, freed by retained_close
    RetainedNode* at            # pinned node; NULL = none
    uint32_t depth
    uint32_t exact
    void* state                 # private to retained.pyx

# NULL = no memory; options NULL = defaults.
cdef Retained* retained_new(const HashKey* key, const IndexOptions* options) noexcept nogil
# free_value(ctx, value) is called for each value in the tree.
cdef void retained_free(Retained* r, void (*free_value)(void*, void*) noexcept nogil, void* ctx) noexcept nogil
# Call visit(ctx, value) for each value, while the tree does not change.
cdef void retained_visit(Retained* r, void (*visit)(void*, void*) noexcept nogil, void* ctx) noexcept nogil
# Set the value of a topic. *old gets the earlier value or NULL. Return 0, or -1 if there is no memory (then nothing changed).
cdef int retained_set(Retained* r, const uint8_t* topic, uint32_t n, void* value, void** old) noexcept nogil
cdef void* retained_remove(Retained* r, const uint8_t* topic, uint32_t n) noexcept nogil    # returns the earlier value or NULL
cdef void* retained_get(Retained* r, const uint8_t* topic, uint32_t n) noexcept nogil
# Look up values by filter, with a cursor that can be resumed over turns while topics are set and removed. A topic that exists
# from open to close is returned exactly once; a topic that is added or removed in between is returned once or not at all. Each
# call does bounded work: retained_next visits at most `*budget` nodes (counted down) and returns a value or NULL. NULL with
# *budget == 0 means "call again"; otherwise it means the end. Only filters that begin with `$` match topics that begin with `$`.
cdef int retained_open(Retained* r, RetainedCursor* c, View filter) noexcept nogil     # -1 = no memory
cdef void* retained_next(Retained* r, RetainedCursor* c, uint32_t* budget) noexcept nogil
cdef void retained_close(Retained* r, RetainedCursor* c) noexcept nogil
# Return false if nothing can match, without a look-up.
cdef bint retained_may_match(Retained* r, View filter) noexcept nogil
cdef uint64_t retained_cursor_bytes(RetainedCursor* c) noexcept nogil
cdef uint64_t retained_count(Retained* r) noexcept nogil
cdef uint64_t retained_system(Retained* r) noexcept nogil    # of retained_count, those whose topic begins with `$`
cdef uint64_t retained_bytes(Retained* r) noexcept nogil      # memory of the tree itself, without values


# ---- private: the layout is in this header only because Cython requires it; check.pyx reads it, other rooms do not ----

cdef struct RetainedNode:       # a level of a topic; the text follows the struct
    LevelNode level
    void* value                 # value of the topic that ends here; NULL = none
    uint64_t born               # Retained.clock when the value was added; a replaced value keeps it
    uint64_t pins               # number of cursors at this node

cdef struct RetainedRoot:
    LevelTree tree
    RetainedNode top            # node above the first level

cdef struct Retained:
    MemoryAccount account
    RetainedRoot roots[2]       # roots[1]: topics that begin with `$`
    uint64_t clock              # number of values ever added
    uint64_t count              # number of values in the tree
    uint64_t system             # number of values whose topic begins with `$`
