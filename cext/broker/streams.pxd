# Journal streams: what the broker carries is appended to journals that anybody may read (docs/journal.md). Here is which message goes into which stream,
# and what happens where one cannot be taken; how it lies in files is the journal room's, and the storage thread writes it before the batch that it was
# sealed with.
#
# A stream stands in the index as a shared group of one member, under a name that no client can give to one ("/" and its own): so the match finds it with
# everybody else, and neither fan-outs nor merging ever look at it.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.view cimport View
from cext.broker.broker cimport Broker, Publication
from cext.journal.journal cimport Journal, JournalStats
from cext.topic.index cimport Match, Owner

cdef enum:
    STREAMS_MAX = 32
    STREAM_NAME_MAX = 64
    STREAM_FILTERS_MAX = 256    # of one stream

ctypedef struct Stream:
    Journal journal
    Owner owner                 # of its filters
    char name[66]               # as a group's: begins with '/'. STREAM_NAME_MAX + 2
    Stream* hit                 # the next one that takes the message at hand
    uint64_t looked             # the number of the last message that it was looked at for
    uint64_t records            # appended
    uint64_t lost               # not appended, though it should have been
    uint64_t lost_told          # of them: that the log, or a gap record, has told
    JournalStats stats          # as of the last look
    uint8_t tells_loss          # the log has said that something is lost
    uint8_t failing             # the log has said that its files cannot be written

ctypedef struct Streams:
    Stream* at[33]              # STREAMS_MAX, and the one of events
    uint32_t n
    uint32_t n_filters
    Stream* events              # one of them; NULL: nobody wants events
    uint64_t messages           # numbers them, for Stream.looked
    uint64_t now_us             # wall clock, of this turn; 0: not asked yet
    uint8_t changed             # something was appended that no record of the store names
    uint8_t tight               # so much waits for the disk that publishers have to


cdef inline Streams* streams_of(Broker* b) noexcept nogil:
    return <Streams*>b.streams      # NULL: there are none


# ---- for the routes

# The message to those streams among its match that have not got it yet. `refusable`: 0 is returned where one of them cannot take it, and then none has;
# else it is counted as lost there.
cdef bint stream_message(Broker* b, const Publication* p, const Match* m, bint refusable) noexcept nogil

# ---- for whatever happens

cdef inline bint streams_want_events(Broker* b) noexcept nogil:
    return b.streams != NULL and streams_of(b).events != NULL

# Something happened: kind is JOURNAL_CONNECT ... of cext.journal.record. username.p NULL: there is none. Does nothing where events are off (look at
# streams_want_events before anything costly). Never refuses anybody: what does not fit is counted, and told by a JOURNAL_GAP as soon as there is room.
cdef void stream_event(Broker* b, uint8_t kind, View topic, View client_id, View username, uint8_t reason, View payload) noexcept nogil

# ---- for the broker

cdef void streams_fini(Broker* b) noexcept nogil           # after the store is closed
