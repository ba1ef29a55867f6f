# Cursors and the read requests that they send to the storage thread.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.view cimport View
from cext.base.wheel cimport Timer
from cext.broker.persist.streams cimport Stream, Streams
from cext.journal.journal cimport JournalLoss
from cext.journal.reader cimport Reader
from cext.session.session cimport Session

cdef enum:
    CURSORS_MAX = 256           # cursors of one broker
    CURSORS_OF_SESSION_MAX = 16
    READ_REQUEST_BYTES = 64 << 10        # bytes of records read per request, plus one record

cdef enum:
    PLACE_FIRST = 1             # the oldest record that is kept
    PLACE_TIME = 2              # the first record that is not older than time_us

cdef enum:
    PART_SHARDS = 64            # JOURNAL_SHARDS_MAX; STRIDE of mosq/journal/parts.py

ctypedef struct ReadPlace:      # place in a part of a stream from which on a request reads
    uint64_t time_us
    uint64_t found              # bit i: seqs[i] is valid; otherwise the place counts
    uint64_t seqs[64]           # sequence numbers to read next, per shard (JOURNAL_SHARDS_MAX)
    uint64_t ahead              # bit i: shard i had no record of that time yet; older records are skipped until one comes
    uint32_t shard              # shard to begin with, so that no shard has to wait for the others
    uint8_t place               # PLACE_*

ctypedef struct PartPlace:      # of one part
    ReadPlace where             # from where the next read begins
    uint64_t seen               # bit i: an undelivered record of shard i was found (discard_records)
    uint64_t held_us            # the part is not read before this time

ctypedef struct ReadRequest:            # a read request; belongs to the storage thread while it is there, otherwise to the loop
    ReadRequest* next
    ReadRequest* all_next               # always the loop's
    Cursor* cursor              # always the loop's; NULL = the cursor has ended, and the request is freed when it returns
    Stream* stream
    uint8_t cancel          # the loop's: the cursor has ended
    uint8_t cancelled                # under the lock: the request must return
    PartPlace* parts            # of each part of the stream; they follow the struct
    uint32_t part               # part to begin with, so that no part has to wait for the others
    JournalLoss loss            # result: records that are missing
    int error                   # result of the last read: 0 or -errno
    uint8_t* p                  # result: entries of a ReadRecord and the record, as in a block
    uint64_t n
    uint64_t cap
    View filter                 # filter to match; its bytes follow the parts

ctypedef struct ReadRecord:
    uint64_t seq
    uint32_t shard              # PART_SHARDS * place in the list of parts + shard
    uint32_t n                  # bytes of the record that follows

ctypedef struct Cursor:
    Cursor* next
    Session* session            # the session's `jobs` counts this cursor
    Stream* stream
    ReadRequest* read_request
    uint64_t at                 # position in the bytes that the request has read
    uint32_t sub_id
    uint32_t access_epoch       # the right to the stream was checked in this epoch of the rules ...
    uint32_t access_turn        # ... for this client of the session
    uint32_t right_n            # bytes of the filter that name the right: $stream/NAME/PLACE
    uint8_t options             # options of the subscription
    uint8_t arrived             # the request has returned, and not all of its records are delivered
    uint8_t waiting_for_client               # records wait for the client, and Broker.cursor_bytes counts them
    # the request returned and its records were discarded; it is sent again when there is memory and the client has room
    uint8_t discarded
    uint8_t delivering               # a delivery is in progress: output that drains in the meantime changes nothing
    uint8_t failing             # the log has reported that the stream cannot be read
    View filter                  # the subscription's filter; its bytes follow the struct

ctypedef struct Cursors:
    Streams* streams
    # fields of the loop
    Cursor* first
    uint32_t n
    ReadRequest* all
    ReadRequest* read_requests                   # requests to send
    ReadRequest* back                   # requests that returned
    uint8_t any_cancelled
    uint8_t* props              # properties of the message that is sent
    uint64_t props_cap
    Timer timer                 # TIMER_CURSORS: armed while records are discarded or could not be delivered
    # fields under the lock
    ReadRequest* read_requests_taken
    ReadRequest* done
    uint8_t cancelled
    # fields of the storage thread
    ReadRequest* waiting                # in the order of their turns
    ReadRequest* served
    uint64_t retry_us           # no read before this time, after an error; 0 = reading works
    Reader* reader
