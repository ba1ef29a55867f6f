# The streams' journals: opened, written by the storage thread, closed. See stream_files.pyx.
from libc.stdint cimport uint32_t, uint64_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.persist.streams cimport Stream
from cext.journal.journal cimport JournalFound, JournalOptions

cdef enum:
    STREAM_WHY_MAX = 512

# Once, before the streams: room for them, and their folder in the store's. 0; -1 and why
cdef int streams_begin(Broker* b, char* why) noexcept nogil
# Its journal, in a folder of its name. The store is open and read. NULL and why
cdef Stream* stream_open(Broker* b, const char* name, const JournalOptions* options, bint events, JournalFound* found, char* why) noexcept nogil
cdef int stream_filter(Broker* b, Stream* s, View filter) noexcept nogil        # 0; -1: no memory, or it is no filter for a stream
cdef void streams_open_done(Broker* b) noexcept nogil       # from here on the storage thread knows them
cdef void streams_fini(Broker* b) noexcept nogil            # after the store is closed
