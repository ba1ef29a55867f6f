# A session: the state of a client that outlives a connection [v5 4.1]. Also the table of sessions by client id.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.cells cimport Cells
from cext.base.hash cimport HashKey
from cext.base.view cimport View
from cext.base.wheel cimport Timer
from cext.session.message cimport Message
from cext.session.queue cimport DELIVERY_SHARED, Delivery, Inbox, Queue
from cext.topic.index cimport Owner

cdef enum:
    EXPIRY_NEVER = 0xFFFFFFFFu  # [v5 3.1.2.11.2]

cdef enum:
    SESSION_ENDED = 1           # not in the table any more; slices remove its subscriptions
    SESSION_DROPPING = 2        # in a drop episode: "Outgoing messages are being dropped" was logged
    SESSION_TRUSTED = 4         # session of the embedding process: no ACL applies
    SESSION_RECHECK = 8         # resumed: queued messages are checked again before they are sent
    SESSION_STRANGER = 16       # resumed by another user than its record names: the origin was unknown
    SESSION_WAITS = 32          # in the list of waiters for the open batch
    SESSION_READS = 128         # in the list of sessions that wait for their turn to read from the store
    SESSION_BRIDGE = 64         # session of a bridge: no other client gets it
    SESSION_WILL_STORED = 512   # the will of its client has a record of its own, because the session has none
    SESSION_PEER = 1024         # stands for another worker in the index; it has ended from the beginning
    SESSION_ORIGIN_UNKNOWN = 256        # from a record without an origin: the mount point is unknown, the user name not certain

cdef enum:
    SHARES_MAX = 65535          # limit for a session; further deliveries through a group are plain deliveries

ctypedef struct Share:          # group and identifier of deliveries that came through a shared group
    uint64_t group              # Group.id
    uint32_t sub_id             # 0 = none

ctypedef struct Session:
    Session* hash_next
    uint64_t hash
    void* client                # the broker's client while connected; otherwise NULL
    void* security              # rules that apply to the session (broker room core); NULL = everything is allowed
    void* plugin_gate           # what a plugin must decide about (broker room routing); NULL = nothing
    uint32_t access_epoch       # epoch in which access_root is valid
    uint32_t access_root        # node at which the rules of its user begin
    uint32_t access_turn        # incremented by each client that takes the session: auth requests of earlier clients are void
    uint32_t origin             # listener of `security`, as the store keeps it (broker room core); 0 = none
    uint32_t expiry_s           # session expiry interval; EXPIRY_NEVER = never
    Owner owner                 # the session's subscriptions
    Timer timer                 # offline: will delay or expiry, whichever is due first
    Queue queue
    Inbox inbox                 # inbound QoS 2 messages
    Message* will               # a delayed will that waits; NULL = none
    uint64_t will_due_ms
    uint64_t ends_ms            # offline: time of expiry; 0 = never
    Share* shares               # one for each (group, identifier) of queued deliveries
    void* replay                # the broker's job that sends retained messages to this session; NULL = none
    char* username              # owned by the session; the ACL needs it also while the client is offline
    char* mount_point           # owned by the session: mount point of its filters; NULL = none
    uint32_t flags
    uint32_t jobs               # number of jobs that point to this session; it is freed only at 0
    uint32_t records            # number of changes still to be recorded that point to this session; it is freed only at 0
    uint32_t store_session_id   # number of the session in the store; 0 = it must not outlive the broker
    uint32_t logged             # deliveries before this position are in sealed batches
    uint32_t safe               # deliveries before this position are in committed batches
    uint32_t cleaned            # number of the cleaning pass that copied its record
    uint32_t paged              # deliveries before this position were examined: they are paged, or they stay in memory
    uint32_t read_at            # positions from here up to read_end: deliveries whose messages are being read back
    uint32_t read_end
    uint32_t reads              # number of messages still to be read back
    uint32_t unsent             # offline: deliveries before this position may have been sent
    uint16_t n_shares
    uint16_t shares_cap
    uint16_t id_len
    uint8_t client_id[1]        # id_len bytes, then a zero byte

ctypedef struct Sessions:
    Cells cells
    Session** buckets           # two tables while growing, so that each operation does bounded work
    uint32_t mask
    Session** old
    uint32_t old_mask
    uint32_t moved              # number of old buckets already moved
    uint32_t count
    const HashKey* key

cdef int sessions_init(Sessions* t, const HashKey* key) noexcept nogil
cdef void sessions_fini(Sessions* t) noexcept nogil             # the sessions themselves must have been freed
cdef Session* sessions_find(Sessions* t, View client_id) noexcept nogil
cdef Session* session_new(Sessions* t, View client_id) noexcept nogil          # not in the table yet; NULL = no memory
cdef char* session_text(View v) noexcept nogil                  # a copy for Session.username or .mount_point; NULL = no memory
cdef void session_free(Sessions* t, Session* s) noexcept nogil  # frees only the memory of the session
cdef int sessions_add(Sessions* t, Session* s) noexcept nogil
cdef void sessions_remove(Sessions* t, Session* s) noexcept nogil
# Return the place of (group, sub_id) among the session's shares, plus 1, or 0 if there is no room or no memory. `known` is the
# earlier result for that group, or any other value. Places are valid while the queue contains a delivery.
cdef uint16_t session_share(Session* s, uint64_t group, uint32_t sub_id, uint16_t known) noexcept nogil

cdef inline uint32_t session_sub_id(const Session* s, const Delivery* d) noexcept nogil:
    return s.shares[d.sub_id].sub_id if d.qos & DELIVERY_SHARED else d.sub_id

# Iterate over all sessions, each once, while the table does not change.
cdef Session* sessions_first(Sessions* t, uint64_t* at) noexcept nogil
cdef Session* sessions_next(Sessions* t, Session* s, uint64_t* at) noexcept nogil
# Iterate in slices while the table changes: visit one bucket and return the cursor for the next call. The cursor begins and ends
# with 0. A session that exists all the time is visited once. A visit may remove its own session, and no other.
ctypedef void (*session_fn)(void* ctx, Session* s) noexcept nogil
cdef uint32_t sessions_scan(Sessions* t, uint32_t cursor, session_fn visit, void* ctx) noexcept nogil
