"""Translate topic names between the two brokers of a bridge. This module knows prefixes and filters, but
not bridges, sessions or packets.

As in Mosquitto, the first line that matches *and has a prefix* determines the name; lines without prefixes change nothing and
hide no other line. Unlike in Mosquitto, an inbound topic must match a line: a remote broker must not publish here what the bridge
never subscribed to. `a/#` also matches `a`, which does not begin with `a/`; then nothing is cut off, as in Mosquitto.

Cost: one comparison per line until a line matches. Nothing is allocated or copied: a Renaming describes the change of the bytes.
"""

from libc.stdint cimport uint32_t
from libc.string cimport memcmp

from cext.base.view cimport View
from cext.topic.name cimport filter_matches


cdef inline bint line_topic_starts(View topic, View prefix) noexcept nogil:
    return prefix.n == 0 or (topic.n >= prefix.n and memcmp(topic.p, prefix.p, prefix.n) == 0)


cdef uint32_t stem_of(View filter) noexcept nogil:
    cdef uint32_t i
    if filter.n == 0 or filter.p[filter.n - 1] != c'#':
        return NO_STEM
    for i in range(filter.n - 1):
        if filter.p[i] == c'+':
            return NO_STEM
    return filter.n - 1


cdef void line_prepare(Line* line) noexcept nogil:
    line.local_stem = stem_of(line.local)
    line.remote_stem = stem_of(line.remote)


cdef inline bint matches(View filter, uint32_t stem, View topic) noexcept nogil:
    """Return filter_matches(filter, topic). Most lines end in `#` and most topics are below it, so
    one comparison usually suffices."""
    if topic.n > stem and memcmp(topic.p, filter.p, stem) == 0 and (stem or topic.p[0] != c'$'):
        return 1
    return filter_matches(filter, topic)


cdef inline uint32_t cut_of(View topic, View prefix, uint32_t stem) noexcept nogil:
    """Return the number of bytes to cut off a topic that the line matches. A topic longer than the stem was
    already compared with the prefix."""
    if (prefix.n <= stem and topic.n > stem and stem != NO_STEM) or line_topic_starts(topic, prefix):
        return prefix.n
    return 0


cdef inline void name_unchanged(Renaming* out) noexcept nogil:
    out.prefix.p = NULL
    out.prefix.n = 0
    out.cut = 0


cdef const Line* line_in(const Lines* lines, View topic, Renaming* out) noexcept nogil:
    cdef const Line* found = NULL
    cdef const Line* line
    cdef uint32_t i
    name_unchanged(out)
    for i in range(lines.n):
        line = &lines.at[i]
        if not line.ways & LINE_IN or (found != NULL and not line.maps):
            continue
        if matches(line.remote, line.remote_stem, topic):
            if found == NULL:
                found = line
            if line.maps:
                out.prefix = line.local_prefix
                out.cut = cut_of(topic, line.remote_prefix, line.remote_stem)
                return line
            if not lines.maps_in:
                return line
    return found


cdef bint lines_send(const Lines* lines, View topic) noexcept nogil:
    cdef uint32_t i
    for i in range(lines.n):
        if lines.at[i].ways & LINE_OUT and matches(lines.at[i].local, lines.at[i].local_stem, topic):
            return 1
    return 0


cdef void line_out(const Lines* lines, View topic, Renaming* out) noexcept nogil:
    cdef const Line* line
    cdef uint32_t i
    name_unchanged(out)
    if not lines.maps_out:
        return
    for i in range(lines.n):
        line = &lines.at[i]
        if line.maps and line.ways & LINE_OUT and matches(line.local, line.local_stem, topic):
            out.prefix = line.remote_prefix
            out.cut = cut_of(topic, line.local_prefix, line.local_stem)
            return
