# Streams for plain clients: a subscription to $stream/NAME/PLACE/FILTER is a cursor that goes through the stream's files, and then on with what comes. It
# never meets the index nor the routes: cursor.pyx is the loop's side, which delivers, cursor_reading.pyx the storage thread's, which reads.
#
#     subscribe -> Ask --[lock: hand]--> waits for what it has not read -> read, matched -> [lock: take] -> delivered as the session has room -> asked again
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.view cimport View
from cext.base.wheel cimport Timer
from cext.broker.core.broker cimport Broker
from cext.broker.persist.streams cimport Stream, Streams
from cext.journal.journal cimport JournalLoss
from cext.journal.reader cimport Reader
from cext.session.session cimport Session
from cext.topic.name cimport Filter

cdef enum:
    CURSORS_MAX = 256           # of a broker
    CURSORS_OF_SESSION_MAX = 16
    READ_REQUEST_BYTES = 64 << 10        # of records brought at once, and one more

cdef enum:
    PLACE_FIRST = 1             # the oldest that is kept
    PLACE_TIME = 2              # the first one that is not older than time_us

ctypedef struct ReadRequest:            # with the storage thread from hand to hand, else the loop's
    ReadRequest* next
    ReadRequest* all_next               # the loop's, always
    Cursor* cursor              # the loop's, always; NULL: it is over, and the ask goes when it is back
    Stream* stream
    uint8_t wants_over          # the loop's
    uint8_t over                # under the lock: it is to come back
    uint8_t place               # PLACE_*
    uint64_t time_us
    uint64_t found              # bit i: seqs[i] says where; else the place does
    uint64_t seqs[64]           # to be read next, of each shard. JOURNAL_SHARDS_MAX
    uint64_t ahead              # bit i: nothing of that time was there yet; what is older is passed over until something is
    uint32_t shard              # to begin with, so that none waits for the others
    JournalLoss loss            # brought: what is not there
    int error                   # of the last reading: 0 or -errno
    uint8_t* p                  # brought: entries of an ReadRecord and the record, as in a block
    uint64_t n
    uint64_t cap
    View filter                 # what is to be matched; follows the struct

ctypedef struct ReadRecord:
    uint64_t seq
    uint32_t shard
    uint32_t n                  # bytes of the record that follows

ctypedef struct Cursor:
    Cursor* next
    Session* session            # its `jobs` counts this
    Stream* stream
    ReadRequest* read_request
    uint64_t at                 # in what the ask has brought
    uint32_t sub_id
    uint8_t options             # of the subscription
    uint8_t brought             # the ask is back, and not all of it is delivered
    uint8_t waits               # for its client, with what was brought, which is in Broker.cursor_bytes
    uint8_t discarded                # the ask is back without anything: asked again when there is memory and its client has room
    uint8_t going               # it is being delivered to: what drains meanwhile changes nothing
    uint8_t failing             # the log has said that it cannot be read
    View whole                  # the subscription's filter; follows the struct

ctypedef struct Cursors:
    Streams* streams
    # the loop's
    Cursor* first
    uint32_t n
    ReadRequest* all
    ReadRequest* read_requests                   # to be handed over
    ReadRequest* back                   # came back
    uint8_t some_over
    uint8_t* props              # of a message that is sent
    uint64_t props_cap
    Timer timer                 # TIMER_CURSORS: some are shed, or could not be delivered
    # under the lock
    ReadRequest* read_requests_taken
    ReadRequest* done
    uint8_t over
    # the storage thread's
    ReadRequest* waiting                # in order of their turns
    ReadRequest* served
    uint64_t retry_us           # nothing is read before; 0: reading works
    Reader* reader

# ---- the loop's

# Is that filter one of a stream's, here?
cdef bint cursor_wanted(Broker* b, View filter) noexcept nogil
# A reason code. 0 .. 2: granted; it takes the place of one with the same filter.
cdef uint8_t cursor_open(Broker* b, Session* s, const Filter* f, uint8_t options, uint32_t sub_id) noexcept nogil
cdef bint cursor_close(Broker* b, Session* s, View filter) noexcept nogil       # 0: there was none
cdef void cursors_unblock(Broker* b, Session* s) noexcept nogil                 # it has room, has a client again, has lost it, or has ended
# Memory is short: what waits for slow readers goes, and is read again. 0: there was none
cdef bint cursors_discard(Broker* b) noexcept nogil
cdef void cursors_timer(Broker* b) noexcept nogil
cdef void cursors_come(Broker* b) noexcept nogil                                # the storage thread has brought something
cdef void cursors_begin(Streams* t) noexcept nogil                              # before the store is started
cdef void cursors_fini(Broker* b, Streams* t) noexcept nogil                    # after the store is closed

# ---- between, under the store's lock

cdef void cursors_hand(Cursors* k) noexcept nogil
cdef void cursors_take(Cursors* k) noexcept nogil
