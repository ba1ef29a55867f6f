# Parse the filter of a subscription to a stream. See cursor_place.pyx.
from cext.base.view cimport View
from cext.broker.replay.cursor_state cimport ReadRequest

# Take the first level off `rest`, which then begins behind the slash. Returns 0 if there is no slash, or the level is empty or
# has a wildcard.
cdef bint level_take(View* rest, View* level) noexcept nogil
# Parse `first`, a time, or numbers into a request whose stream is set. Returns 0 if the text is none of them.
cdef bint place_take(View v, ReadRequest* a) noexcept nogil
