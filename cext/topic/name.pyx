# Topic names and topic filters as strings: validity and matching.
# This module knows the rules of [v5 4.7] [v3.1.1 4.7] and nothing of trees or subscribers. The codec has checked UTF-8.
# Invariant: every accepted string has 1..LEVELS_MAX levels and 1..65535 bytes, so every walk over levels is bounded.
# Cost: one pass over the bytes, no allocation.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy
from cext.base.view cimport View
from cext.codec.reason cimport RC_TOPIC_FILTER_INVALID, RC_TOPIC_NAME_INVALID

cdef enum:
    BYTES_MAX = 65535           # limit of a string: its length has 16 bits on the wire [v5 1.5.4]
    SHARE_BYTES = 7             # length of b"$share/"


cdef inline uint64_t has_byte(uint64_t word, uint64_t byte) noexcept nogil:
    # Return a value other than 0 if one of the word's bytes is `byte`.
    cdef uint64_t x = word ^ (byte * 0x0101010101010101u)
    return (x - 0x0101010101010101u) & ~x & 0x8080808080808080u


cdef uint32_t level_count(const uint8_t* s, uint32_t n) noexcept nogil:
    cdef uint32_t i
    cdef uint32_t levels = 1
    for i in range(n):
        levels += s[i] == c'/'
    return levels


cdef int name_check(const uint8_t* s, uint32_t n) noexcept nogil:
    cdef uint32_t i = 0
    cdef uint64_t word
    if n == 0 or n > BYTES_MAX:                             # [v5 4.7.3-1] [v5 4.7.3-3]
        return RC_TOPIC_NAME_INVALID
    while i + 8 <= n:
        memcpy(&word, s + i, 8)
        if has_byte(word, c'+') | has_byte(word, c'#'):     # [v5 4.7.0-1]
            return RC_TOPIC_NAME_INVALID
        i += 8
    while i < n:
        if s[i] == c'+' or s[i] == c'#':
            return RC_TOPIC_NAME_INVALID
        i += 1
    if n >= LEVELS_MAX and level_count(s, n) > LEVELS_MAX:  # fewer bytes cannot have more levels
        return RC_TOPIC_NAME_INVALID
    return 0


cdef int check_levels(const uint8_t* s, uint32_t n, uint8_t* wildcard) noexcept nogil:
    cdef uint32_t i
    cdef uint32_t levels = 1
    wildcard[0] = 0
    for i in range(n):
        if s[i] == c'/':
            levels += 1
        elif s[i] == c'#':
            # `#` must be alone in its level, and the last one [v5 4.7.1-1].
            if i + 1 != n or (i > 0 and s[i - 1] != c'/'):
                return RC_TOPIC_FILTER_INVALID
            wildcard[0] = 1
        elif s[i] == c'+':
            # `+` must be alone in its level [v5 4.7.1-2].
            if (i > 0 and s[i - 1] != c'/') or (i + 1 < n and s[i + 1] != c'/'):
                return RC_TOPIC_FILTER_INVALID
            wildcard[0] = 1
    return RC_TOPIC_FILTER_INVALID if levels > LEVELS_MAX else 0


cdef int filter_parse(const uint8_t* s, uint32_t n, Filter* out) noexcept nogil:
    cdef const uint8_t* slash
    if n == 0 or n > BYTES_MAX:
        return RC_TOPIC_FILTER_INVALID
    out.whole.p = s
    out.whole.n = n
    out.filter = out.whole
    out.group.p = NULL
    out.group.n = 0
    if n >= SHARE_BYTES and memcmp(s, b"$share/", SHARE_BYTES) == 0:
        # `$share` without a slash is an ordinary filter: only filters that begin with `$share/` are shared [v5 4.8.2-1].
        out.group.p = s + SHARE_BYTES
        slash = <const uint8_t*>memchr(out.group.p, c'/', n - SHARE_BYTES)
        if slash == NULL:
            return RC_TOPIC_FILTER_INVALID
        out.group.n = <uint32_t>(slash - out.group.p)
        out.filter.p = slash + 1
        out.filter.n = n - SHARE_BYTES - out.group.n - 1
        if out.group.n == 0 or out.filter.n == 0:           # [v5 4.8.2-1] [v5 4.8.2-2]
            return RC_TOPIC_FILTER_INVALID
        if memchr(out.group.p, c'+', out.group.n) != NULL or memchr(out.group.p, c'#', out.group.n) != NULL:
            return RC_TOPIC_FILTER_INVALID                  # [v5 4.8.2-2]
    return check_levels(out.filter.p, out.filter.n, &out.wildcard)


# Return the length of the level of v that begins at `at`. The next level begins at `at` + length + 1; past v.n there is none.
cdef inline uint32_t level_length(View v, uint32_t at) noexcept nogil:
    cdef const uint8_t* slash = <const uint8_t*>memchr(v.p + at, c'/', v.n - at)
    return v.n - at if slash == NULL else <uint32_t>(slash - (v.p + at))


cdef inline bint is_wild(View v, uint32_t at, uint32_t bytes, uint8_t sign) noexcept nogil:
    return bytes == 1 and v.p[at] == sign


cdef bint filter_matches(View filter, View topic) noexcept nogil:
    cdef uint32_t f = 0
    cdef uint32_t t = 0
    cdef uint32_t f_bytes
    cdef uint32_t t_bytes
    if filter.n == 0 or topic.n == 0:
        return False
    if topic.p[0] == c'$' and filter.p[0] != c'$':          # [v5 4.7.2-1]
        return False
    while f <= filter.n:
        f_bytes = level_length(filter, f)
        if is_wild(filter, f, f_bytes, c'#'):
            return True                                     # `#` includes the parent level [v5 4.7.1.2]
        if t > topic.n:
            return False
        t_bytes = level_length(topic, t)
        if not is_wild(filter, f, f_bytes, c'+'):
            if f_bytes != t_bytes or memcmp(filter.p + f, topic.p + t, f_bytes) != 0:
                return False
        f += f_bytes + 1
        t += t_bytes + 1
    return t > topic.n


cdef bint filter_covers(View outer, View inner) noexcept nogil:
    cdef uint32_t o = 0
    cdef uint32_t i = 0
    cdef uint32_t o_bytes
    cdef uint32_t i_bytes
    cdef bint nameless = True       # the levels before i can only be the empty topic, which does not exist
    if outer.n == 0 or inner.n == 0:
        return False
    if inner.p[0] == c'$' and outer.p[0] != c'$':           # [v5 4.7.2-1]
        return False
    while o <= outer.n:
        o_bytes = level_length(outer, o)
        if is_wild(outer, o, o_bytes, c'#'):
            return True
        if i > inner.n:
            return False
        i_bytes = level_length(inner, i)
        if is_wild(inner, i, i_bytes, c'#'):
            # `#` also stands for "no further level", which only `#` covers. But the filters `#` and `/#` always match at least
            # one more level, because without it the topic would be empty.
            return nameless and is_wild(outer, o, o_bytes, c'+') and o + 3 == outer.n and outer.p[o + 2] == c'#'
        if not is_wild(outer, o, o_bytes, c'+'):
            if o_bytes != i_bytes or memcmp(outer.p + o, inner.p + i, o_bytes) != 0:
                return False
        nameless = i == 0 and i_bytes == 0
        o += o_bytes + 1
        i += i_bytes + 1
    return i > inner.n
