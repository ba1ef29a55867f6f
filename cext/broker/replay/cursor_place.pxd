# The text of a subscription to a stream. See cursor_place.pyx.
from cext.base.view cimport View
from cext.broker.replay.cursor cimport ReadRequest

# The level that `rest` begins with; `rest` goes on behind its slash. 0: there is no slash, or nothing before it, or a wildcard
cdef bint level_take(View* rest, View* level) noexcept nogil
# `first`, a time, numbers: into an ask whose stream is set. 0: it is none of them
cdef bint place_take(View v, ReadRequest* a) noexcept nogil
