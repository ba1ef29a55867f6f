# Streams: the broker appends messages to journals that other programs may read (docs/journal.md). This module selects the streams of a message, and
# decides what happens if one cannot accept it. The journal room knows the files; the storage thread writes them before the batch that was sealed
# with them.
#
# A stream is in the index as a shared group of one member, under a name that no client can give to a group ("/" and its own). So the match finds it
# together with the subscribers, and neither fan-outs nor merging handle it.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport strlen
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.publication_state cimport Publication
from cext.broker.core.stats cimport STREAM_GAUGES
from cext.broker.core.workers cimport PartEnds, Workers
from cext.journal.journal cimport Journal, JournalStats
from cext.topic.index cimport Owner
from cext.topic.match cimport Match

cdef enum:
    STREAMS_MAX = 32
    STREAM_NAME_MAX = 64
    STREAM_FILTERS_MAX = 256    # filters of one stream

ctypedef struct StreamPart:     # of a stream that several processes have written: a journal with its own folder and numbers
    uint32_t number             # 0: that of a broker that is one process; otherwise the worker's
    Stream* local               # the journal, if this process writes it; NULL: another one does, or none
    char* dir                   # its folder, if `local` is NULL
    PartEnds* ends              # how far it can be read, if `local` is NULL; NULL: it cannot be read
    uint8_t left                # 1: no process writes it, and `ends` is its own

ctypedef struct Stream:
    Journal journal
    StreamPart* parts           # by number; NULL: those of the stream of events, and of a part that is open for retention only
    uint32_t n_parts
    PartEnds* published         # where other workers read how far this journal may be read; NULL: there are none
    uint32_t shared             # number of its name among the workers plus 1; 0: none
    Owner owner                 # of its filters
    char name[66]               # begins with '/', as the name of a group cannot; STREAM_NAME_MAX + 2
    Stream* hit                 # next stream of the current message
    uint64_t looked             # number of the last message that it was checked for
    uint64_t records            # appended records
    uint64_t lost               # messages that were not appended
    uint64_t lost_reported          # events: lost ones that a gap record has reported
    JournalStats stats          # as of the last look
    char why[512]               # JOURNAL_WHY_MAX: text of its last error
    uint64_t lost_logged        # `lost` as of the last log line
    uint32_t errors_logged      # errors as of the last log line
    uint8_t loses               # 1: the log has reported losses, and not their end
    uint64_t forced_logged      # stats.forced_records as of the last log line
    uint64_t gauges[STREAM_GAUGES]      # last values published in $SYS, by GAUGE_..., plus 1; 0 = not yet published
    uint64_t committed[64]      # JOURNAL_SHARDS_MAX, used by the storage thread: position behind the last record whose batch is written

ctypedef struct StreamsWriter:      # state of the storage thread
    uint64_t due_us             # monotonic; 0: not before something is written
    uint64_t marked_us
    uint8_t dirty               # 1: records are written and not marked
    uint8_t retains             # 1: some streams have a retention

ctypedef struct Streams:
    StreamsWriter writer
    Stream* at[33]              # STREAMS_MAX, and the stream of events
    uint32_t n
    uint32_t n_filters
    Stream* events              # one of them; NULL: no events
    uint64_t messages           # number of the current message, for Stream.looked
    uint64_t now_us             # wall clock of this turn; 0: not read yet
    uint8_t changed             # 1: something was appended that no record of the store mentions
    uint8_t loses               # 1: some stream has losses to log, or their end
    Workers* workers            # NULL: the broker is alone
    void* cursors               # Cursors* of the subscriptions to streams (cursor.pxd); NULL: none so far


cdef inline Streams* streams_of(Broker* b) noexcept nogil:
    return <Streams*>b.streams      # NULL: no streams


cdef inline View stream_name(const Stream* s) noexcept nogil:
    cdef View v
    v.p = <const uint8_t*>s.name + 1
    v.n = <uint32_t>strlen(s.name) - 1
    return v


# ---- for the routes

# Append the message to those streams of its match (NULL: to those with a filter for its topic) that do not have it yet. `refusable`: if one of them cannot accept it, the function returns 0 and
# appends it to none; otherwise it counts it as lost there. Sets p.journalled if there are streams.
cdef bint stream_message(Broker* b, Publication* p, const Match* m, bint refusable) noexcept nogil

# ---- for whatever happens

cdef inline bint streams_want_events(Broker* b) noexcept nogil:
    return b.streams != NULL and streams_of(b).events != NULL

# Append an event; kind is JOURNAL_CONNECT ... of cext.journal.record. username.p NULL: none. Does nothing without a stream of events (check
# streams_want_events before costly work). Never refuses: an event without room is counted, and a JOURNAL_GAP reports the number as soon as there is
# room.
cdef void stream_event(Broker* b, uint8_t kind, View topic, View client_id, View username, uint8_t reason, View payload) noexcept nogil
cdef bint streams_events_fit(Broker* b) noexcept nogil      # 1: there is room for an event that can wait. Only with a stream of events
cdef void streams_events_lose(Broker* b, uint64_t n) noexcept nogil     # counts n events that were not made as lost

# ---- for the broker

# Return the number of the index's shared subscriptions that belong to streams.
cdef inline uint64_t streams_filters(Broker* b) noexcept nogil:
    return streams_of(b).n_filters if b.streams != NULL else 0

cdef void streams_again(Broker* b) noexcept nogil           # records again what the removed segment recorded

cdef bint streams_recorded(Broker* b) noexcept nogil       # records the positions of the streams in the open batch if they have changed. 0: no memory
cdef void streams_seal(Broker* b) noexcept nogil            # called before the batch is sealed
cdef void streams_news(Broker* b) noexcept nogil            # called when the storage thread has news or errors
cdef void streams_turn(Broker* b) noexcept nogil            # the end of a turn
cdef void streams_end(Broker* b) noexcept nogil             # called before the last batch is sealed
