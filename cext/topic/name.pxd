# Topic names and filters as strings [v5 4.7] [v3.1.1 4.7].
from libc.stdint cimport uint8_t, uint32_t
from cext.base.view cimport View

cdef enum:
    LEVELS_MAX = 201            # limit of levels, as in Mosquitto: 200 separators

# Return 0, or RC_TOPIC_NAME_INVALID: empty, over 65535 bytes, contains `+` or `#`, or has more than LEVELS_MAX
# levels. The codec checks UTF-8.
cdef int name_check(const uint8_t* s, uint32_t n) noexcept nogil

# Return the number of levels of a name or filter (1 if it is empty).
cdef uint32_t level_count(const uint8_t* s, uint32_t n) noexcept nogil

ctypedef struct Filter:
    View whole                  # as the client sent it
    View filter                 # without $share/GROUP/
    View group                  # empty if not shared
    uint8_t wildcard            # 1 = `filter` contains + or #

# Return 0, or RC_TOPIC_FILTER_INVALID: empty, misplaced wildcard, too many levels, or `$share/` without a group, without a filter
# or with a wildcard in the group name [v5 4.8.2].
cdef int filter_parse(const uint8_t* s, uint32_t n, Filter* out) noexcept nogil

# Return whether the (valid) filter matches the (valid) topic, with the `$` rule [v5 4.7.2-1]. This is the comparison of
# textbooks; ACLs and test models use it.
cdef bint filter_matches(View filter, View topic) noexcept nogil
# Return whether `outer` matches every topic that `inner` matches.
cdef bint filter_covers(View outer, View inner) noexcept nogil
