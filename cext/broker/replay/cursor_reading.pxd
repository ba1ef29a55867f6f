# The storage thread's side of cursors: it reads the requested records.
from libc.stdint cimport uint64_t
from cext.broker.replay.cursor_state cimport Cursors

# Serve waiting requests. `committed`: all records that were taken are written and their batch is committed. Sets *served to 1 if
# a request returned. Returns the time of the next call at the latest, in microseconds; 0 = whenever a record is written.
cdef uint64_t cursors_serve(Cursors* k, bint committed, bint* served) noexcept nogil
