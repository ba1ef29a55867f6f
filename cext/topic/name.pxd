# Topic names and filters as strings [v5 4.7] [v3.1.1 4.7].
from libc.stdint cimport uint8_t, uint32_t
from cext.base.view cimport View

cdef enum:
    LEVELS_MAX = 200            # as in Mosquitto: more levels are refused

# 0, or RC_TOPIC_NAME_INVALID: empty, over 65535 bytes, `+` or `#` in it, more than LEVELS_MAX levels. UTF-8 is the codec's.
cdef int name_check(const uint8_t* s, uint32_t n) noexcept nogil

# Levels of a name or filter (empty: 1).
cdef uint32_t level_count(const uint8_t* s, uint32_t n) noexcept nogil

ctypedef struct Filter:
    View whole                  # as the client wrote it
    View filter                 # without $share/GROUP/
    View group                  # empty when not shared
    uint8_t wildcard            # 1 when `filter` has + or #

# 0, or RC_TOPIC_FILTER_INVALID: empty, misplaced wildcard, too many levels, `$share/` without a group, without a filter or with
# a wildcard in the group name [v5 4.8.2].
cdef int filter_parse(const uint8_t* s, uint32_t n, Filter* out) noexcept nogil

# Does the (valid) filter match the (valid) topic, `$` rule included [v5 4.7.2-1]? The textbook's comparison; ACLs and models use it.
cdef bint filter_matches(View filter, View topic) noexcept nogil
# Is every topic that `inner` matches also matched by `outer`?
cdef bint filter_covers(View outer, View inner) noexcept nogil
