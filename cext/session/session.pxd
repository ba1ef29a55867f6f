# A session: what outlives a connection [v5 4.1]. And the table of sessions by client id.
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
    SESSION_ENDED = 1           # no longer in the table; its subscriptions are being removed in slices
    SESSION_DROPPING = 2        # in a drop episode: "Outgoing messages are being dropped" was logged
    SESSION_TRUSTED = 4         # of the embedding process: no ACL
    SESSION_RECHECK = 8         # resumed: what was queued is checked again before it goes out
    SESSION_STRANGER = 16       # by another user than before
    SESSION_WAITS = 32          # among the waiters for the open batch
    SESSION_READS = 128         # among those who wait for their turn to read from the store
    SESSION_BRIDGE = 64           # of a link to another broker: nobody else gets it

cdef enum:
    SHARES_MAX = 65535          # of a session: beyond, what comes through a group is a plain delivery

ctypedef struct Share:          # what a delivery that came through a shared group refers to
    uint64_t group              # Group.id
    uint32_t sub_id             # 0: none

ctypedef struct Session:
    Session* hash_next
    uint64_t hash
    void* client                # the broker's client while connected, else NULL
    void* security              # whose rules count for it, of the broker room; NULL: everything is allowed
    void* plugin_gate                  # what a plugin is to decide about, of the broker room; NULL: nothing
    uint32_t access_epoch       # in which access_root is true
    uint32_t access_root        # where the rules of its user begin
    uint32_t access_turn        # rises with every client that takes it: what was asked for the one before is void
    uint32_t expiry_s           # EXPIRY_NEVER: never
    Owner owner                 # its subscriptions
    Timer timer                 # offline: will delay or expiry, whichever is due first
    Queue queue
    Inbox inbox                 # inbound QoS 2
    Message* will               # a delayed will, waiting
    uint64_t will_due_ms
    uint64_t ends_ms            # offline: when it expires; 0: never
    Share* shares               # one per (group, identifier) that something in the queue came through
    void* replay                # the broker's job that sends retained messages here; NULL: none
    char* username              # owned; the ACL asks for it also while the client is offline
    uint32_t flags
    uint32_t jobs               # jobs that point here: it is freed when they are done
    uint32_t records            # what is still to be recorded and points here: the same
    uint32_t store_session_id                # its number in the store; 0: it is not to outlive the broker
    uint32_t logged             # positions before it are in sealed batches
    uint32_t safe               # positions before it are in committed ones
    uint32_t cleaned            # the pass in which its record was written again
    uint32_t paged              # positions before it were looked at: they are on the disk only, or are to stay
    uint32_t read_at            # from there on, up to read_end, the messages that are being read back lie
    uint32_t read_end
    uint32_t reads              # how many are still to come
    uint32_t unsent             # while offline: positions before it may have been sent
    uint16_t n_shares
    uint16_t shares_cap
    uint16_t id_len
    uint8_t client_id[1]        # id_len bytes, then a zero

ctypedef struct Sessions:
    Cells cells
    Session** buckets           # two tables while growing: bounded work per operation
    uint32_t mask
    Session** old
    uint32_t old_mask
    uint32_t moved              # old buckets moved so far
    uint32_t count
    const HashKey* key

cdef int sessions_init(Sessions* t, const HashKey* key) noexcept nogil
cdef void sessions_fini(Sessions* t) noexcept nogil             # the sessions themselves must have been freed
cdef Session* sessions_find(Sessions* t, View client_id) noexcept nogil
cdef Session* session_new(Sessions* t, View client_id) noexcept nogil          # not yet in the table; NULL: no memory
cdef void session_free(Sessions* t, Session* s) noexcept nogil  # the memory only
cdef int sessions_add(Sessions* t, Session* s) noexcept nogil
cdef void sessions_remove(Sessions* t, Session* s) noexcept nogil
# The place of (group, sub_id) among the session's shares, plus 1; `known`: what this returned for that group before, or any other
# value. 0: there is no room, or no memory. Places are good while the queue holds anything.
cdef uint16_t session_share(Session* s, uint64_t group, uint32_t sub_id, uint16_t known) noexcept nogil

cdef inline uint32_t session_sub_id(const Session* s, const Delivery* d) noexcept nogil:
    return s.shares[d.sub_id].sub_id if d.qos & DELIVERY_SHARED else d.sub_id

# Walk that visits each session once while the table does not change
cdef Session* sessions_first(Sessions* t, uint64_t* at) noexcept nogil
cdef Session* sessions_next(Sessions* t, Session* s, uint64_t* at) noexcept nogil
# Walk in slices while the table changes: visits one bucket, returns the cursor for the next call; begins and ends with 0. Who is there
# all the time is visited once.
ctypedef void (*session_fn)(void* ctx, Session* s) noexcept nogil
cdef uint32_t sessions_scan(Sessions* t, uint32_t cursor, session_fn visit, void* ctx) noexcept nogil
