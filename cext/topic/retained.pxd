# The retained tree: topic names to one value each (opaque here; a Message for the broker).
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.hash cimport HashKey
from cext.base.view cimport View
from cext.topic.level cimport LevelNode, LevelTree
from cext.topic.memory cimport Account
from cext.topic.options cimport IndexOptions

cdef struct Retained            # opaque
cdef struct RetainedNode        # opaque

ctypedef struct RetainedCursor:
    View filter                 # private copy, freed by retained_close
    RetainedNode* at            # pinned
    uint32_t depth
    uint32_t exact
    void* state                 # private

cdef Retained* retained_new(const HashKey* key, const IndexOptions* options) noexcept nogil    # NULL: no memory; options NULL: defaults
# free_value(ctx, value) is called for each value left.
cdef void retained_free(Retained* r, void (*free_value)(void*, void*) noexcept nogil, void* ctx) noexcept nogil
# Sets the value of a topic; *old gets the value that was there (or NULL). 0, or -1: no memory (nothing changed).
cdef int retained_set(Retained* r, const uint8_t* topic, uint32_t n, void* value, void** old) noexcept nogil
cdef void* retained_remove(Retained* r, const uint8_t* topic, uint32_t n) noexcept nogil    # the value that was there, or NULL
cdef void* retained_get(Retained* r, const uint8_t* topic, uint32_t n) noexcept nogil
# Streaming look-up by filter, resumable over turns while topics are set and removed in between: a topic that was there
# from open to close is returned exactly once; one that comes or goes meanwhile once or not at all. Each call does bounded
# work: retained_next visits at most `*budget` nodes (counted down) and returns a value, or NULL: with *budget == 0 "call again",
# else the end. `$` topics are matched only by filters that begin with `$`.
cdef int retained_open(Retained* r, RetainedCursor* c, View filter) noexcept nogil     # -1: no memory
cdef void* retained_next(Retained* r, RetainedCursor* c, uint32_t* budget) noexcept nogil
cdef void retained_close(Retained* r, RetainedCursor* c) noexcept nogil
# False: nothing matches, seen without a look-up.
cdef bint retained_may_match(Retained* r, View filter) noexcept nogil
cdef uint64_t retained_cursor_bytes(RetainedCursor* c) noexcept nogil
cdef uint64_t retained_count(Retained* r) noexcept nogil
cdef uint64_t retained_bytes(Retained* r) noexcept nogil      # of the tree itself, values excluded


# ---- private: the layout, here only because Cython wants it in a header; check.pyx reads it, other rooms do not ----

cdef struct RetainedNode:       # a level of a topic; the text follows the struct
    LevelNode level
    void* value                 # of the topic that ends here; NULL: none
    uint64_t born               # when the value came (Retained.clock); a replaced value keeps it
    uint64_t pins               # cursors that stand here

cdef struct RetainedRoot:
    LevelTree tree
    RetainedNode top            # before the first level

cdef struct Retained:
    Account account
    RetainedRoot roots[2]       # [1]: of topics that begin with `$`
    uint64_t clock              # values that ever came
    uint64_t count              # values that are there
