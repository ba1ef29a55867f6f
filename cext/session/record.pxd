# The bodies of the store's records: the state that outlives the process, as bytes. The store knows (kind, flags, body) and
# not the meaning of a body; this room knows bodies and not their position. Little-endian, without alignment. See
# record.pyx and docs/storage.md.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.view cimport View

cdef enum:
    RECORD_SESSION = 1          # the whole state of a session; the latest record counts
    RECORD_SUB = 2              # a subscription, new or with new options
    RECORD_UNSUB = 3
    RECORD_END = 4              # the end of a session and of everything that belongs to it
    RECORD_MSG = 5              # a message with its deliveries; a later record for the same (session, position) replaces it
    RECORD_ACKS = 6             # deliveries that are done
    RECORD_RELEASED = 7         # PUBREC was received: only PUBREL and PUBCOMP are pending
    RECORD_INBOX = 8            # an inbound QoS 2 message before its PUBREL
    RECORD_INBOX_DONE = 9
    RECORD_RETAINED_GONE = 10
    RECORD_WILL = 11
    RECORD_WILL_GONE = 12
    RECORD_META = 13            # text: lines of key=value
    RECORD_RETAINED_FROM = 14   # publisher of a topic's retained message, where that decides which client gets the message
    RECORD_STREAMS = 15         # position of each journal at this batch
    RECORD_CLIENT_WILL = 16     # the will of a connected client whose session is not stored; the latest record of its client id counts
    RECORD_CLIENT_WILL_GONE = 17        # it is sent or discarded
    RECORD_PUBLISHER = 18       # publisher of the message in the record before it; cleaning drops it
    RECORD_GATED = 19           # a message with its deliveries that wait for a plugin; the positions are those of the plugin gates
    RECORD_GATED_DONE = 20      # session and position: all gated deliveries before it have left the gate
    RECORD_WAITING_WILL = 21    # a will that waits for a plugin; the latest record of its number counts
    RECORD_WAITING_WILL_GONE = 22       # the plugin has decided
    # Bodies of these are numbers of 64 bits. A broker that is alone has none of them.
    RECORD_LINK_RUN = 23        # log and run of this worker
    RECORD_LINK_MARK = 24       # worker, its log, its run, number: all up to that one are done, except those that follow
    RECORD_LINK_IDENTITY = 25   # worker, its log, identity of a QoS 2 message of it that is delivered, part
    RECORD_LINK_IDENTITY_GONE = 26      # log, identity: it will not come again
    RECORD_LINK_CHOICE = 27     # identity of a QoS 2 message of this worker, part (a shared group), worker that was chosen for it
    RECORD_LINK_WILL = 28       # a will that was sent to other workers; the body of a RECORD_WAITING_WILL, with its identity as the handle. RECORD_WAITING_WILL_GONE ends it
    RECORD_UNDELIVERED = 29     # a message that these sessions of this store lack; a division writes it, RECORD_WAITING_WILL_GONE ends it
    RECORD_KIND_MAX = 29

cdef enum:
    # results of a *_read; 0 = the body is valid
    RECORD_SHORT = -1           # the body ends before its last field
    RECORD_LONG = -2            # the body has bytes after its last field
    RECORD_FLAGS = -3           # flags that this version does not know, or that contradict a field
    RECORD_VALUE = -4           # a field with an impossible value
    RECORD_KIND = -5            # unknown kind

cdef enum:
    # RecordMessage.flags. The encoder sets the two RECORD_HAS_ flags, which state the fields that follow.
    RECORD_QOS = 3
    RECORD_RETAIN = 4           # retain flag of the PUBLISH
    RECORD_RETAINED_SET = 8     # it becomes its topic's retained message
    RECORD_HAS_EXPIRY = 16
    RECORD_HAS_SOURCE = 32
    RECORD_AGAIN = 64           # an earlier process may have sent it already: it is sent with DUP

cdef enum:
    RECORD_CONNECTED = 1        # flag of RecordSession.flags
    RECORD_HAS_USER = 2         # set by the encoder
    RECORD_LINK = 4             # session of a bridge
    RECORD_HAS_ORIGIN = 8       # security and mount follow; missing in records of older versions and of imports
    RECORD_HAS_LISTENER = 32    # set by the encoder: security follows, without RECORD_HAS_ORIGIN
    RECORD_HAS_PID = 16         # set by the encoder: last_pid follows

cdef enum:
    # Flags in RecordEntry.qos. The format on disk does not change with queue.pxd, although the bits are the same today.
    RECORD_ENTRY_RETAIN = 0x80  # same bit as DELIVERY_RETAIN
    RECORD_ENTRY_SHARED = 0x40  # same bit as DELIVERY_SHARED
    RECORD_ENTRY_HAS_SUB_ID = 0x20      # set by the encoder

ctypedef struct RecordSession:
    uint32_t store_session_id   # number of the session in this store
    uint32_t expiry_s
    uint32_t next               # offline: first position that was never sent
    uint32_t flags
    uint64_t ends_wall_ms       # time of expiry; 0 = never, or the client is connected
    View id                     # at most 65535 bytes, like every View here except payloads and properties
    View user                   # p NULL = none
    uint32_t security           # listener whose rules apply, see ORIGIN_KNOWN; 0 = not known
    View mount                  # mount point; empty = none; only with RECORD_HAS_ORIGIN
    uint16_t last_pid           # last packet id that the session used; 0 = none, or an older version

ctypedef struct RecordSub:      # SUB; also UNSUB, with options and sub_id 0
    uint32_t store_session_id
    uint32_t sub_id             # 0 = none
    uint32_t options            # subscription options byte of SUBSCRIBE [v5 3.8.3.1]
    View filter                 # with $share/... as the client sent it

ctypedef struct RecordMessage:
    uint32_t flags
    uint64_t expires_wall_ms    # 0 = never
    uint64_t source_hash        # hash of the publisher's client id; 0 = published by the broker
    View topic
    View props                  # encoded forwardable properties
    View payload

ctypedef struct RecordEntry:    # delivery of a message to one session
    uint32_t store_session_id
    uint32_t position           # position in its queue; wraps
    uint32_t sub_id             # 0 = none
    uint16_t pid                # 0 = none
    uint8_t qos                 # 0..2, with RECORD_ENTRY_RETAIN and RECORD_ENTRY_SHARED

ctypedef struct RecordMsg:
    RecordMessage message
    uint32_t n                  # number of entries
    View entries                # argument of record_entry_next

ctypedef struct RecordAck:      # RELEASED; also ACKS, with pid 0
    uint32_t store_session_id
    uint32_t position
    uint16_t pid

ctypedef struct RecordInbox:    # INBOX; also INBOX_DONE, with store_session_id and pid only
    uint32_t store_session_id
    uint16_t pid
    uint8_t refused             # 1 = nothing will be routed: the message is empty and not written
    uint8_t journalled          # 1 = it is released and in its streams; its subscribers may not have received it
    uint8_t local_done          # 1 = it is released, and this worker's subscribers have it; other workers may not have received it
    uint64_t identity           # of a message of a worker; 0 = none
    RecordMessage message

ctypedef struct RecordWill:
    uint32_t store_session_id
    uint32_t delay_s
    uint64_t due_wall_ms        # 0 = the client is connected
    RecordMessage message

ctypedef struct RecordClientWill:      # its session ends with its connection, so there is no delay [v5 3.1.3.2.2]
    uint32_t security           # listener whose rules apply
    uint32_t expiry_s           # message expiry interval from the sending on; only with has_expiry
    uint8_t has_expiry
    View id
    View user                   # p NULL = none
    View mount                  # empty = none
    RecordMessage message

ctypedef struct RecordWaitingWill:
    uint64_t number             # no two waiting wills of a store have the same
    uint64_t handle             # its auth request in the process that wrote the record; RECORD_LINK_WILL: its identity, 0 = none
    RecordClientWill will       # of any client; without has_expiry: the message has its time of expiry

ctypedef struct RecordUndelivered:
    uint64_t number             # no waiting will of the store has the same
    uint8_t unjournalled        # 1: its streams lack it, too
    View sessions               # store session ids, of 4 bytes
    View group                  # $share/GROUP/FILTER of which a member of this store gets it; empty = none
    RecordClientWill will       # the message and its publisher; without has_expiry. RECORD_RETAINED_SET: the topic lacks it

ctypedef struct RecordFrom:
    uint32_t security           # listener whose rules apply
    View topic
    View id
    View user                   # empty = none

ctypedef struct RecordPublisher:
    uint32_t security           # listener whose rules apply
    uint16_t pid                # packet id of its PUBLISH
    View id
    View user                   # empty = none

cdef enum:
    RECORD_ACK_BYTES = 8
    RECORD_RELEASED_BYTES = 10
    RECORD_END_BYTES = 4        # also WILL_GONE
    RECORD_INBOX_DONE_BYTES = 6
    RECORD_WAITING_WILL_GONE_BYTES = 8
    RECORD_MSG_HEAD_BYTES = 12  # size of a MSG without expiry, source, entries, topic, properties and payload
    RECORD_ENTRY_BYTES_MAX = 15
    RECORD_NUMBERS_MAX = 68     # of a RECORD_LINK_MARK with 64 holes

# X_size returns the number of bytes that X_put writes; X_put returns the address after them. Sizes have 64 bits, because the
# caller compares them with a record's limit. X_read fills `out` with views into `body` and returns 0, or a RECORD_ code above;
# then `out` is undefined. All are linear in the body.
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

# A MSG is written in three steps: head, each entry, tail. entries_bytes is the sum of record_entry_size.
cdef inline uint32_t record_entry_size(const RecordEntry* e) noexcept nogil:
    return 15 if e.sub_id else 11

cdef uint64_t record_msg_size(const RecordMessage* m, uint64_t entries_bytes) noexcept nogil
cdef uint8_t* record_msg_put(uint8_t* out, const RecordMessage* m, uint32_t n) noexcept nogil
cdef uint8_t* record_entry_put(uint8_t* out, const RecordEntry* e) noexcept nogil
cdef uint8_t* record_msg_end_put(uint8_t* out, const RecordMessage* m) noexcept nogil
# Checks every entry, so that record_entry_next cannot fail.
cdef int record_msg_read(View body, RecordMsg* out) noexcept nogil
cdef bint record_entry_next(View* entries, RecordEntry* out) noexcept nogil     # 0 = there is no further entry

# A body of ACKS or RELEASED is a sequence of these.
cdef uint8_t* record_ack_put(uint8_t* out, uint32_t store_session_id, uint32_t position) noexcept nogil
cdef uint8_t* record_released_put(uint8_t* out, const RecordAck* a) noexcept nogil
cdef int record_acks_check(View body) noexcept nogil                            # the body must contain a whole number of them
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

cdef uint64_t record_client_will_size(const RecordClientWill* w) noexcept nogil
cdef uint8_t* record_client_will_put(uint8_t* out, const RecordClientWill* w) noexcept nogil
cdef int record_client_will_read(View body, RecordClientWill* out) noexcept nogil
cdef int record_client_id_read(View body) noexcept nogil                        # CLIENT_WILL_GONE: the body is the client id

cdef uint64_t record_waiting_will_size(const RecordWaitingWill* w) noexcept nogil
cdef uint8_t* record_waiting_will_put(uint8_t* out, const RecordWaitingWill* w) noexcept nogil
cdef int record_waiting_will_read(View body, RecordWaitingWill* out) noexcept nogil
cdef uint8_t* record_waiting_will_gone_put(uint8_t* out, uint64_t number) noexcept nogil
cdef int record_waiting_will_gone_read(View body, uint64_t* number) noexcept nogil

cdef uint64_t record_undelivered_size(const RecordUndelivered* u) noexcept nogil
cdef uint8_t* record_undelivered_put(uint8_t* out, const RecordUndelivered* u) noexcept nogil
cdef int record_undelivered_read(View body, RecordUndelivered* out) noexcept nogil
# Take the next id of its sessions. Return 0 if there is no further one.
cdef uint32_t record_undelivered_next(View* sessions) noexcept nogil

cdef uint64_t record_publisher_size(const RecordPublisher* r) noexcept nogil
cdef uint8_t* record_publisher_put(uint8_t* out, const RecordPublisher* r) noexcept nogil
cdef int record_publisher_read(View body, RecordPublisher* out) noexcept nogil
cdef uint64_t record_from_size(const RecordFrom* f) noexcept nogil
cdef uint8_t* record_from_put(uint8_t* out, const RecordFrom* f) noexcept nogil
cdef int record_from_read(View body, RecordFrom* out) noexcept nogil

# One stream in a STREAMS record: its name, and the sequence number after the last record of each shard.
cdef uint64_t record_stream_size(View name, uint32_t shards) noexcept nogil
cdef uint8_t* record_stream_put(uint8_t* out, View name, const uint64_t* seqs, uint32_t shards) noexcept nogil
# 0 = end; the body must have passed record_streams_check.
cdef bint record_stream_next(View* body, View* name, View* seqs) noexcept nogil
cdef int record_streams_check(View body) noexcept nogil
# Copy the sequence numbers of the stream with that name, at most 64. Return their number, or 0 if the stream is not in
# the body or the body is invalid.
cdef uint32_t record_stream_find(View body, View name, uint64_t* seqs) noexcept nogil

cdef int record_topic_read(View body) noexcept nogil                            # RETAINED_GONE: the body is the topic
# Find the value of a key in a META body; *value is a view into it. Return 0 if the key is missing.
cdef bint record_meta_find(View body, View key, View* value) noexcept nogil

# RECORD_LINK_...: n numbers. The second returns their number in a body, or a RECORD_ code.
cdef uint8_t* record_numbers_put(uint8_t* out, const uint64_t* numbers, uint32_t n) noexcept nogil
cdef int record_numbers_read(uint8_t kind, View body, uint64_t* out) noexcept nogil     # out: room for RECORD_NUMBERS_MAX
# Check a body of any kind. Return 0 or a RECORD_ code.
cdef int record_check(uint8_t kind, View body) noexcept nogil
