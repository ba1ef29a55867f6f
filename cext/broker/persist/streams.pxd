# Journal streams: what the broker carries is appended to journals that anybody may read (docs/journal.md). Here is which message goes into which stream,
# and what happens where one cannot be taken; how it lies in files is the journal room's, and the storage thread writes it before the batch that it was
# sealed with.
#
# A stream stands in the index as a shared group of one member, under a name that no client can give to one ("/" and its own): so the match finds it with
# everybody else, and neither fan-outs nor merging ever look at it.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport strlen
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.publication_state cimport Publication
from cext.broker.core.stats cimport STREAM_GAUGES
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
    uint64_t lost_reported          # events: of them, that a gap record tells
    JournalStats stats          # as of the last look
    char why[512]               # JOURNAL_WHY_MAX: of its last error
    uint64_t lost_logged        # of them: that the log has told
    uint32_t errors_logged      # of stats
    uint8_t loses               # the log has said so, and not that it is over
    uint64_t forced_logged      # of stats.forced_records
    uint64_t gauges[STREAM_GAUGES]      # last values published in $SYS, by GAUGE_..., plus 1; 0 = not yet published
    uint64_t committed[64]      # the storage thread's, JOURNAL_SHARDS_MAX: behind the last record whose batch is written

ctypedef struct StreamsWriter:      # the storage thread's
    uint64_t due_us             # monotonic; 0: not before something is written
    uint64_t marked_us
    uint8_t dirty               # something is behind the marks
    uint8_t retains             # some of them have a bound

ctypedef struct Streams:
    StreamsWriter writer
    Stream* at[33]              # STREAMS_MAX, and the one of events
    uint32_t n
    uint32_t n_filters
    Stream* events              # one of them; NULL: nobody wants events
    uint64_t messages           # numbers them, for Stream.looked
    uint64_t now_us             # wall clock, of this turn; 0: not asked yet
    uint8_t changed             # something was appended that no record of the store names
    uint8_t loses               # some of them do, and it was not told, or is not over
    void* cursors               # Cursors* of those who are sent what is in streams (cursor.pxd); NULL: nobody was yet


cdef inline Streams* streams_of(Broker* b) noexcept nogil:
    return <Streams*>b.streams      # NULL: there are none


cdef inline View stream_name(const Stream* s) noexcept nogil:
    cdef View v
    v.p = <const uint8_t*>s.name + 1
    v.n = <uint32_t>strlen(s.name) - 1
    return v


# ---- for the routes

# The message to those streams among its match that have not got it yet. `refusable`: 0 is returned where one of them cannot take it, and then none has;
# else it is counted as lost there. Sets p.journalled where there are any.
cdef bint stream_message(Broker* b, Publication* p, const Match* m, bint refusable) noexcept nogil

# ---- for whatever happens

cdef inline bint streams_want_events(Broker* b) noexcept nogil:
    return b.streams != NULL and streams_of(b).events != NULL

# Something happened: kind is JOURNAL_CONNECT ... of cext.journal.record. username.p NULL: there is none. Does nothing where events are off (look at
# streams_want_events before anything costly). Never refuses anybody: what does not fit is counted, and told by a JOURNAL_GAP as soon as there is room.
cdef void stream_event(Broker* b, uint8_t kind, View topic, View client_id, View username, uint8_t reason, View payload) noexcept nogil
cdef bint streams_events_fit(Broker* b) noexcept nogil      # is there room for one that can wait? Where events are wanted
cdef void streams_events_lose(Broker* b, uint64_t n) noexcept nogil     # so many that there are were not even made: the same

# ---- for the broker

# How many of the index's shared subscriptions are streams'.
cdef inline uint64_t streams_filters(Broker* b) noexcept nogil:
    return streams_of(b).n_filters if b.streams != NULL else 0

cdef void streams_again(Broker* b) noexcept nogil           # what was recorded of them is about to go

cdef bint streams_recorded(Broker* b) noexcept nogil        # how far each has come, into the open batch, if any has come further. 0: no memory
cdef void streams_seal(Broker* b) noexcept nogil            # before the batch is
cdef void streams_news(Broker* b) noexcept nogil            # the storage thread has come further, or has failed
cdef void streams_turn(Broker* b) noexcept nogil            # the end of a turn
cdef void streams_end(Broker* b) noexcept nogil             # before the last batch is sealed
