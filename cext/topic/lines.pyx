"""Names on both sides of a link. Knows prefixes and filters; not links, sessions or packets.

As in Mosquitto: the first line that matches *and has a prefix* gives the name; lines without prefixes change nothing and hide nothing. Other than
in Mosquitto, what comes in must match a line: a remote broker may not put here what was never asked of it. `a/#` also matches `a`, which does not
begin with `a/`: then nothing is cut off, as in Mosquitto.

Cost: one comparison per line until one is found; nothing is allocated or copied: a Renaming says what to do with the bytes.
"""

from libc.stdint cimport uint32_t
from libc.string cimport memcmp

from cext.base.view cimport View
from cext.topic.name cimport filter_matches


cdef inline bint starts(View topic, View prefix) noexcept nogil:
    return prefix.n == 0 or (topic.n >= prefix.n and memcmp(topic.p, prefix.p, prefix.n) == 0)


cdef inline void as_it_is(Renaming* out) noexcept nogil:
    out.prefix.p = NULL
    out.prefix.n = 0
    out.cut = 0


cdef const Line* line_in(const Lines* lines, View topic, Renaming* out) noexcept nogil:
    cdef const Line* found = NULL
    cdef const Line* line
    cdef uint32_t i
    as_it_is(out)
    for i in range(lines.n):
        line = &lines.at[i]
        if not line.ways & LINE_IN or (found != NULL and not line.maps):
            continue
        if filter_matches(line.remote, topic):
            if found == NULL:
                found = line
            if line.maps:
                out.prefix = line.local_prefix
                out.cut = line.remote_prefix.n if starts(topic, line.remote_prefix) else 0
                return line
            if not lines.maps_in:
                return line
    return found


cdef void line_out(const Lines* lines, View topic, Renaming* out) noexcept nogil:
    cdef const Line* line
    cdef uint32_t i
    as_it_is(out)
    if not lines.maps_out:
        return
    for i in range(lines.n):
        line = &lines.at[i]
        if line.maps and line.ways & LINE_OUT and filter_matches(line.local, topic):
            out.prefix = line.remote_prefix
            out.cut = line.local_prefix.n if starts(topic, line.local_prefix) else 0
            return
