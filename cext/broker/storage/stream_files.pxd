# The journals of streams: opened, written by the storage thread, closed. See stream_files.pyx.
from libc.stdint cimport uint32_t, uint64_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.persist.streams cimport Stream
from cext.journal.journal cimport JournalFound, JournalOptions

cdef enum:
    STREAM_WHY_MAX = 512

# Allocate the streams and make their folder in the store's, once, before any stream is opened. Returns 0, or -1 and the reason.
cdef int streams_begin(Broker* b, char* why) noexcept nogil
# Open the stream's journal in `folder` (NULL: in a folder of its name in the store's); the store is open and recovered. Returns NULL and the reason on
# failure.
cdef Stream* stream_open(Broker* b, const char* name, const char* folder, const JournalOptions* options, bint events,      # parameters: two results
                         JournalFound* found, char* why) noexcept nogil
# 0; -1 = no memory, or the filter is not allowed for a stream
cdef int stream_filter(Broker* b, Stream* s, View filter) noexcept nogil
cdef void streams_open_done(Broker* b) noexcept nogil       # from here on the storage thread knows the streams
cdef void streams_fini(Broker* b) noexcept nogil            # after the store is closed
# Close the files of all streams while another process may have them, after durable_stop; and open them again, after the store. The second function
# returns 0; or -1 and the reason, and all are closed.
cdef void streams_pause(Broker* b) noexcept nogil
cdef int streams_resume(Broker* b, char* why) noexcept nogil
