# The storage thread's side of cursors: what is asked for is read.
from libc.stdint cimport uint64_t
from cext.broker.replay.cursor cimport Cursors

# committed: all that was taken is written and its batch is. When it is to be called again at the latest, 0: whenever something is written; *news: some came back
cdef uint64_t cursors_serve(Cursors* k, bint committed, bint* news) noexcept nogil
