# Topic lines of a bridge: which topics go in which direction, and under which names. See lines.pyx.
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from cext.base.view cimport View

cdef enum:
    LINE_IN = 1                 # direction: topics of the remote broker come in
    LINE_OUT = 2                # direction: local topics go out
    LINES_MAX = 10_000          # limit for a bridge

ctypedef struct Line:
    View local                  # whole local filter
    View remote                 # remote filter without $share/GROUP/
    View remote_whole           # remote filter as the bridge subscribes to it
    View local_prefix           # local == local_prefix + pattern; remote == remote_prefix + the same pattern
    View remote_prefix
    uint32_t local_stem         # bytes before the `#` if it is the filter's only wildcard; otherwise NO_STEM
    uint32_t remote_stem
    uint8_t ways                # mask of LINE_IN and LINE_OUT
    uint8_t qos
    uint8_t granted             # the remote broker's answer to the subscription: 0..2, 0x80 and above = refused; NOT_GRANTED
    uint8_t maps                # 1 = one of the prefixes is not empty
    uint16_t pid                # packet id of its SUBSCRIBE in this connection; 0 = none

cdef enum:
    NOT_GRANTED = 0xFF
    NO_STEM = 0xFFFFFFFFu

ctypedef struct Lines:
    Line* at
    uint32_t n
    uint8_t maps_in             # 1 = one of the inbound lines changes names
    uint8_t maps_out

ctypedef struct Renaming:
    # The new name begins with `prefix` instead of the first `cut` bytes.
    View prefix
    uint32_t cut

# Prepare a line for matching after its filters are set.
cdef void line_prepare(Line* line) noexcept nogil
# Return the line that applies to a topic of the remote broker, or NULL if no line lets it in. *out gets its local name.
cdef const Line* line_in(const Lines* lines, View topic, Renaming* out) noexcept nogil
# Return whether a line sends this local topic out.
cdef bint lines_send(const Lines* lines, View topic) noexcept nogil
# Determine the remote name of a local topic. If no matching line changes names, the name stays the same.
cdef void line_out(const Lines* lines, View topic, Renaming* out) noexcept nogil

# Return the length of the new name. A topic must have 1 to 65535 bytes.
cdef inline uint32_t renamed_n(const Renaming* name, View topic) noexcept nogil:
    return name.prefix.n + topic.n - name.cut

cdef inline bint can_be(const Renaming* name, View topic) noexcept nogil:
    return 0 < renamed_n(name, topic) <= 65535
