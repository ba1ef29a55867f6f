# A match: the subscriber lists and shared groups whose filters match a topic. See match.pyx.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.topic.index cimport Group, Index, List

ctypedef struct MatchPlace:     # the place in the index where a match that is not complete continues
    Group* group                # a pinned group: continue with it; NULL: continue at a node of the tree
    uint8_t inside              # 1: the filters that end at the node are done
    uint16_t depth              # levels of the path from the root to the node
    uint8_t plus[26]            # LEVELS_MAX / 8, rounded up; bit i: level i of the path is `+`, otherwise it is the topic's level

ctypedef struct Match:          # reused for every match: the arrays grow to the largest size needed and keep it
    List** lists                # one for each matching filter with plain subscribers
    uint32_t n_lists
    uint32_t cap_lists
    Group** groups              # all shared groups with members, of all matching filters
    uint32_t n_groups
    uint32_t cap_groups
    uint64_t steps              # steps left: the match takes one for each visited node, and for each list and group found
    MatchPlace place            # valid after MATCH_PART

cdef enum:
    MATCH_WHOLE = 0
    MATCH_PART = 1              # the steps are used up: Match.place is where index_match_on continues


# Return the number of places in the lists, gaps included: the cost of a walk over them.
cdef inline uint64_t match_places(const Match* m) noexcept nogil:
    cdef uint64_t places = 0
    cdef uint32_t i
    for i in range(m.n_lists):
        places += m.lists[i].n
    return places


# Return the number of subscribers in the lists. The match itself does not count them, because that reads each list,
# which the delivery does anyway.
cdef inline uint64_t match_total(const Match* m) noexcept nogil:
    cdef uint64_t total = 0
    cdef uint32_t i
    for i in range(m.n_lists):
        total += m.lists[i].live
    return total

cdef void match_init(Match* m) noexcept nogil
cdef void match_fini(Match* m) noexcept nogil
# Find all lists and groups that `topic` (a valid name) matches. Return 0, or -1 if there is no memory for the result arrays. A
# filter with an empty plain list is not reported. Only filters that begin with `$` match topics that begin with `$` [v5 4.7.2-1].
cdef int index_match(Index* ix, const uint8_t* topic, uint32_t n, Match* m) noexcept nogil
# Do the same in at most `steps` steps. Return MATCH_WHOLE, -1, or MATCH_PART: then the caller calls index_match_on until it returns
# something else, or match_leave. m.steps is the number of steps that are left.
cdef int index_match_some(Index* ix, const uint8_t* topic, uint32_t n, Match* m, uint64_t steps) noexcept nogil
# Continue at m.place: find further lists and groups. The index may have changed since. Each filter that had subscribers all the
# time is found exactly once; one that was added or removed in between is found once or not at all.
cdef int index_match_on(Index* ix, const uint8_t* topic, uint32_t n, Match* m, uint64_t steps) noexcept nogil
# Give up a match that is not complete.
cdef void match_leave(Index* ix, MatchPlace* place) noexcept nogil
