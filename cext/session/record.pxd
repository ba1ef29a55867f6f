# The bodies of the store's records: what outlives the process, as bytes. The store knows (kind, flags, body) and not what a body means; this
# room knows bodies and not where they lie. Little-endian, no alignment. See record.pyx and docs/storage.md.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.view cimport View

cdef enum:
    RECORD_SESSION = 1          # the whole state of a session itself; the latest one counts
    RECORD_SUB = 2              # a subscription, new or with new options
    RECORD_UNSUB = 3
    RECORD_END = 4              # the session and all that is its own are gone
    RECORD_MSG = 5              # a message with those who are owed it; a later one for the same (session, position) takes its place
    RECORD_ACKS = 6             # deliveries that are done
    RECORD_RELEASED = 7         # PUBREC came: only PUBREL and PUBCOMP are still owed
    RECORD_INBOX = 8            # an inbound QoS 2 message before its PUBREL
    RECORD_INBOX_DONE = 9
    RECORD_RETAINED_GONE = 10
    RECORD_WILL = 11
    RECORD_WILL_GONE = 12
    RECORD_META = 13            # text, lines of key=value
    RECORD_RETAINED_FROM = 14   # who published its topic's retained message, where that decides who gets it
    RECORD_STREAMS = 15         # how far each journal had come by this batch
    RECORD_KIND_MAX = 15

cdef enum:
    # what a *_read says of a body; 0: it is right
    RECORD_SHORT = -1           # it ends before its last field
    RECORD_LONG = -2            # bytes are left over
    RECORD_FLAGS = -3           # flags that this version does not know, or that contradict a field
    RECORD_VALUE = -4           # a field with a value that cannot be
    RECORD_KIND = -5            # no such kind

cdef enum:
    # RecordMessage.flags; the two of them that say what follows are the encoder's
    RECORD_QOS = 3
    RECORD_RETAIN = 4           # the flag of the PUBLISH
    RECORD_RETAINED_SET = 8     # it is its topic's retained message from here on
    RECORD_HAS_EXPIRY = 16
    RECORD_HAS_SOURCE = 32
    RECORD_AGAIN = 64           # a process before may have sent it already: it goes out with DUP

cdef enum:
    RECORD_CONNECTED = 1        # RecordSession.flags
    RECORD_HAS_USER = 2         # the encoder's
    RECORD_LINK = 4             # of a link to another broker

cdef enum:
    # in RecordEntry.qos; what is on disk does not change with queue.pxd, but today they are the same bits
    RECORD_ENTRY_RETAIN = 0x80          # DELIVERY_RETAIN
    RECORD_ENTRY_SHARED = 0x40          # DELIVERY_SHARED
    RECORD_ENTRY_HAS_SUB_ID = 0x20      # the encoder's

ctypedef struct RecordSession:
    uint32_t store_session_id                # number of a session in this store
    uint32_t expiry_s
    uint32_t next               # first position that was never sent, while offline
    uint32_t flags
    uint64_t ends_wall_ms       # when it expires; 0: never, or connected
    View id                     # at most 65535 bytes, as every View here but payloads and properties
    View user                   # p NULL: none

ctypedef struct RecordSub:      # of UNSUB too, whose options and sub_id are 0
    uint32_t store_session_id
    uint32_t sub_id             # 0: none
    uint32_t options            # the byte of the SUBSCRIBE [v5 3.8.3.1]
    View filter                 # with $share/...

ctypedef struct RecordMessage:
    uint32_t flags
    uint64_t expires_wall_ms    # 0: never
    uint64_t source_hash        # 0: the broker's own
    View topic
    View props                  # encoded, forwardable
    View payload

ctypedef struct RecordEntry:    # one who is owed a message
    uint32_t store_session_id
    uint32_t position           # in its queue; wraps
    uint32_t sub_id             # 0: none
    uint16_t pid                # 0 where it has none
    uint8_t qos                 # 0..2, with RECORD_ENTRY_RETAIN, RECORD_ENTRY_SHARED

ctypedef struct RecordMsg:
    RecordMessage message
    uint32_t n                  # entries
    View entries                # for record_entry_next

ctypedef struct RecordAck:      # of RELEASED too; of ACKS pid is 0
    uint32_t store_session_id
    uint32_t position
    uint16_t pid

ctypedef struct RecordInbox:    # of INBOX_DONE too, which has sno and pid only
    uint32_t store_session_id
    uint16_t pid
    uint8_t refused             # nothing will be routed: the message is empty and not written
    uint8_t journalled          # it was released, and is in its streams; those who subscribe may not have it
    RecordMessage message

ctypedef struct RecordWill:
    uint32_t store_session_id
    uint32_t delay_s
    uint64_t due_wall_ms        # 0: its client is connected
    RecordMessage message

ctypedef struct RecordFrom:
    uint32_t security           # whose rules count: its place
    View topic
    View id
    View user                   # empty: none

cdef enum:
    RECORD_ACK_BYTES = 8
    RECORD_RELEASED_BYTES = 10
    RECORD_END_BYTES = 4        # WILL_GONE too
    RECORD_INBOX_DONE_BYTES = 6
    RECORD_MSG_HEAD_BYTES = 12  # of a MSG without expiry, source, entries, topic, properties, payload
    RECORD_ENTRY_BYTES_MAX = 15

# X_size is what X_put writes, in bytes; X_put returns the place after them. 64 bits: the caller compares with what a record may have.
# X_read gives views into `body`, and 0 or RECORD_x above; `out` means something only with 0. All are linear in the body.
cdef uint64_t record_session_size(const RecordSession* s) noexcept nogil
cdef uint8_t* record_session_put(uint8_t* out, const RecordSession* s) noexcept nogil
cdef int record_session_read(View body, RecordSession* out) noexcept nogil

cdef uint64_t record_sub_size(const RecordSub* s) noexcept nogil
cdef uint8_t* record_sub_put(uint8_t* out, const RecordSub* s) noexcept nogil
cdef int record_sub_read(View body, RecordSub* out) noexcept nogil
cdef uint64_t record_unsub_size(const RecordSub* s) noexcept nogil
cdef uint8_t* record_unsub_put(uint8_t* out, const RecordSub* s) noexcept nogil
cdef int record_unsub_read(View body, RecordSub* out) noexcept nogil

cdef uint8_t* record_end_put(uint8_t* out, uint32_t store_session_id) noexcept nogil         # END and WILL_GONE
cdef int record_end_read(View body, uint32_t* store_session_id) noexcept nogil

# A MSG is written in three steps: head, each entry, tail. entries_bytes: the sum of record_entry_size.
cdef inline uint32_t record_entry_size(const RecordEntry* e) noexcept nogil:
    return 15 if e.sub_id else 11

cdef uint64_t record_msg_size(const RecordMessage* m, uint64_t entries_bytes) noexcept nogil
cdef uint8_t* record_msg_put(uint8_t* out, const RecordMessage* m, uint32_t n) noexcept nogil
cdef uint8_t* record_entry_put(uint8_t* out, const RecordEntry* e) noexcept nogil
cdef uint8_t* record_msg_end_put(uint8_t* out, const RecordMessage* m) noexcept nogil
cdef int record_msg_read(View body, RecordMsg* out) noexcept nogil              # every entry was looked at: record_entry_next cannot fail
cdef bint record_entry_next(View* entries, RecordEntry* out) noexcept nogil     # 0: there is no further one

# ACKS and RELEASED are so many of these, one after the other.
cdef uint8_t* record_ack_put(uint8_t* out, uint32_t store_session_id, uint32_t position) noexcept nogil
cdef uint8_t* record_released_put(uint8_t* out, const RecordAck* a) noexcept nogil
cdef int record_acks_check(View body) noexcept nogil                            # a whole number of them
cdef int record_released_check(View body) noexcept nogil
cdef bint record_ack_next(View* body, RecordAck* out) noexcept nogil
cdef bint record_released_next(View* body, RecordAck* out) noexcept nogil

cdef uint64_t record_inbox_size(const RecordInbox* i) noexcept nogil
cdef uint8_t* record_inbox_put(uint8_t* out, const RecordInbox* i) noexcept nogil
cdef int record_inbox_read(View body, RecordInbox* out) noexcept nogil
cdef uint8_t* record_inbox_done_put(uint8_t* out, uint32_t store_session_id, uint16_t pid) noexcept nogil
cdef int record_inbox_done_read(View body, RecordInbox* out) noexcept nogil

cdef uint64_t record_will_size(const RecordWill* w) noexcept nogil
cdef uint8_t* record_will_put(uint8_t* out, const RecordWill* w) noexcept nogil
cdef int record_will_read(View body, RecordWill* out) noexcept nogil

cdef uint64_t record_from_size(const RecordFrom* f) noexcept nogil
cdef uint8_t* record_from_put(uint8_t* out, const RecordFrom* f) noexcept nogil
cdef int record_from_read(View body, RecordFrom* out) noexcept nogil

# One stream of a STREAMS: its name, and behind the last record of each shard
cdef uint64_t record_stream_size(View name, uint32_t shards) noexcept nogil
cdef uint8_t* record_stream_put(uint8_t* out, View name, const uint64_t* seqs, uint32_t shards) noexcept nogil
cdef bint record_stream_next(View* body, View* name, View* seqs) noexcept nogil     # 0: that was all. Of a body that record_streams_check took
cdef int record_streams_check(View body) noexcept nogil
# The shards of the stream of that name, at most 64: how many there are. 0: it is not there, or the body is not right
cdef uint32_t record_stream_find(View body, View name, uint64_t* seqs) noexcept nogil

cdef int record_topic_read(View body) noexcept nogil                            # RETAINED_GONE: the body is the topic
# The value of a key of a META, a view into it. 0: it has no such key.
cdef bint record_meta_find(View body, View key, View* value) noexcept nogil

# Whether a body of any kind is right: 0 or RECORD_x.
cdef int record_check(uint8_t kind, View body) noexcept nogil
