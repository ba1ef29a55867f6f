# Topic lines of a link: which topics go which way, and under which names. See lines.pyx.
from libc.stdint cimport uint8_t, uint32_t
from cext.base.view cimport View

cdef enum:
    LINE_IN = 1                 # what the remote broker publishes comes in
    LINE_OUT = 2                # what is published here goes out
    LINES_MAX = 10_000          # per link

ctypedef struct Line:
    View local                  # filters, in full
    View remote                 # without $share/GROUP/
    View remote_whole           # as it is subscribed to
    View local_prefix           # local == local_prefix + pattern, remote == remote_prefix + the same pattern
    View remote_prefix
    uint32_t local_stem         # bytes before a `#` that is the filter's only wildcard; NO_STEM: it is none such
    uint32_t remote_stem
    uint8_t ways                # LINE_IN | LINE_OUT
    uint8_t qos
    uint8_t granted             # what the remote said to its subscription: 0..2, or 0x80 and more: refused; NOT_GRANTED
    uint8_t maps                # one of the prefixes is not empty

cdef enum:
    NOT_GRANTED = 0xFF
    NO_STEM = 0xFFFFFFFFu

ctypedef struct Lines:
    Line* at
    uint32_t n
    uint8_t maps_in             # any of those that come in changes names
    uint8_t maps_out

ctypedef struct Renaming:
    # the name begins with `prefix` in place of its first `cut` bytes
    View prefix
    uint32_t cut

# After the filters are set.
cdef void line_prepare(Line* line) noexcept nogil
# The line that rules a topic of the remote's; NULL: none lets it in. *out: how it is called here.
cdef const Line* line_in(const Lines* lines, View topic, Renaming* out) noexcept nogil
# Does any line send this topic of ours out?
cdef bint lines_send(const Lines* lines, View topic) noexcept nogil
# How it is called there; no line that matches and changes names: as here.
cdef void line_out(const Lines* lines, View topic, Renaming* out) noexcept nogil

# The length of the new name; a topic has 1 to 65535 bytes.
cdef inline uint32_t renamed_n(const Renaming* name, View topic) noexcept nogil:
    return name.prefix.n + topic.n - name.cut

cdef inline bint can_be(const Renaming* name, View topic) noexcept nogil:
    return 0 < renamed_n(name, topic) <= 65535
