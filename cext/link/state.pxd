# The structs of the links of one worker. links.pxd has the functions, and explains them.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.hash cimport HashKey
from cext.base.slab cimport Slab, SlabItem
from cext.base.view cimport View
from cext.link.frame cimport LinkFrame
from cext.topic.memory cimport MemoryAccount
from cext.topic.table cimport Link, Table

cdef enum:
    LINK_OUT = 0                # the connection that this worker opens: it sends messages and reads answers
    LINK_IN = 1                 # the connection that the other worker opens

    LINK_TAKEN = 0              # answers of LinkOps.message
    LINK_NO_MEMBER = 1
    LINK_LATER = 2              # its delivery takes several turns; link_arrived reports the end
    LINK_NO_MEMORY = 3          # not taken: link_read leaves the frame where it is

    FRAME_WAITS = 1             # answer of in_frame, beside 0 and errors: it was not taken

cdef struct Links
ctypedef struct OwnRoute
ctypedef struct OwnIdentity
ctypedef struct ForeignIdentity

ctypedef struct LinkHole:
    uint64_t number
    uint64_t batch              # HOLE_OPEN, HOLE_BUSY, or the batch in which it was resolved
    uint64_t identity           # HOLE_BUSY: of its message, or 0

cdef extern from *:
    uint64_t HOLE_OPEN "UINT64_MAX"             # the message must come again, or VOID
    uint64_t HOLE_BUSY "INT64_MAX"        # it is being delivered, LINK_LATER

ctypedef struct LinkWaiter:     # what a publisher or subscriber waits for; see link_waiter_new
    SlabItem item
    void* context               # the caller's object; NULL = its client is gone
    uint32_t open               # number of events that have not come; the caller's own hold counts as one
    uint64_t confirm            # 0, or an ASK of another worker: its CONFIRM is sent at the release
    uint16_t slot               # of that worker
    uint16_t generation         # of its connection

ctypedef struct LinkSend:       # how a message with a number goes to one log
    uint8_t flags               # QoS, LINK_RETAIN, LINK_OWNER, LINK_PLAIN
    uint8_t durability          # as in LinkFrame
    uint16_t part               # copies of one QoS 2 message for shared groups: 1, 2, ... in the order in which the choices were recorded
    uint32_t bytes              # size with which the message counts
    uint64_t identity           # of a QoS 2 message; otherwise 0
    uint64_t batch              # it is not sent before this batch is committed; 0 = at once
    uint64_t tried              # mask of the workers that have no member of the group
    View group                  # `$share/GROUP/FILTER`, or empty
    View publisher              # as in LinkFrame

# What the room calls. `owner` is the pointer given to links_init, `slot` the number of another worker.
ctypedef struct LinkOps:
    # Append bytes to the output of a connection: n bytes at `head`, then the payload. `message` (or NULL) keeps the payload valid as
    # long as the caller holds a reference, so a large payload may be lent to the socket. Return the bytes that wait in the output
    # now, or -1: the connection is broken, and the caller closes it (no call of link_broken is needed).
    int64_t (*send)(void* owner, uint32_t slot, int way, const uint8_t* head, uint32_t n, void* message, View payload) noexcept nogil
    void (*close)(void* owner, uint32_t slot, int way) noexcept nogil       # close the connection, and drop its input and output
    # A connection that was given to link_accept belongs to `slot` from now on: close the one before, if there is one.
    void (*bind)(void* owner, uint32_t slot, void* connection) noexcept nogil
    # The room keeps messages by reference.
    void (*keep)(void* owner, void* message) noexcept nogil
    void (*drop)(void* owner, void* message) noexcept nogil
    void (*view)(void* owner, void* message, LinkFrame* out) noexcept nogil     # fill in text, props, payload, and expiry with LINK_EXPIRES; of a RETAINED frame also QoS and publisher
    # A message has arrived: deliver it to subscribers of this worker, and set the retained message (LINK_OWNER). Set *batch to the
    # number of the open batch if the store must have it before it is acknowledged. Views are valid during the call.
    int (*message)(void* owner, uint32_t slot, const LinkFrame* f, uint64_t* batch) noexcept nogil
    # The log of `slot` has no member of the group: send the message to another log with the same waiter (link_send with s, whose
    # `tried` is complete), or deliver it here and let the waiter wait for the batch with the delivery (link_wait_commit).
    void (*again)(void* owner, uint32_t slot, void* message, LinkSend* s, LinkWaiter* waiter) noexcept nogil
    # A route of another log: f.text the filter (with `$share/GROUP/`), f.flags the highest QoS, f.online. Keep `generation` with it.
    void (*route)(void* owner, uint32_t slot, const LinkFrame* f, uint16_t generation) noexcept nogil
    void (*unroute)(void* owner, uint32_t slot, View filter) noexcept nogil
    void (*routes_end)(void* owner, uint32_t slot, uint16_t generation) noexcept nogil      # remove routes of other generations
    # A retained message that `slot` owns; without payload: there is none. Keep `generation` with it.
    void (*retained)(void* owner, uint32_t slot, const LinkFrame* f, uint16_t generation) noexcept nogil
    void (*retained_end)(void* owner, uint32_t slot, uint16_t generation) noexcept nogil
    # Call link_retained_to for the retained messages that this worker owns, from *cursor (at first 0) on, for about `bytes` bytes.
    # Return 1 at the end.
    int (*retained_walk)(void* owner, uint32_t slot, uint64_t* cursor, uint32_t bytes) noexcept nogil
    # Put into the open batch: all numbers of this log and run up to `number` are done, except the n numbers at `holes`.
    void (*mark)(void* owner, uint32_t slot, uint64_t log, uint64_t run, uint64_t number, const LinkHole* holes, uint32_t n) noexcept nogil
    void (*forget)(void* owner, uint32_t slot, uint64_t log, uint64_t identity) noexcept nogil      # its record may go
    void (*lost)(void* owner, uint32_t slot) noexcept nogil     # the worker has another log: its routes and retained messages are void
    void (*released)(void* owner, void* context) noexcept nogil     # a waiter has everything
    void (*ready)(void* owner) noexcept nogil                   # open the listeners

ctypedef struct LinkLimits:
    uint32_t frame_max          # bytes of the largest frame
    uint32_t messages_max       # messages kept for one log
    uint64_t bytes_max          # their bytes
    uint32_t output_max         # bytes that wait in an output: above it QoS 0 is dropped, and kept messages are not sent
    uint32_t reserve            # bytes above output_max for routes, retained messages and answers: above it the connection is closed
    uint32_t slice              # bytes of one slice of a snapshot

ctypedef struct LinkPair:
    uint64_t number
    void* item                  # a waiter, a message, or nothing

ctypedef struct LinkRing:       # pairs with rising numbers; its memory grows by doubling
    LinkPair* at
    uint32_t cap
    uint32_t head
    uint32_t n

ctypedef struct Kept:           # a message with a number
    void* message               # NULL = void
    LinkWaiter* waiter
    uint64_t identity
    uint64_t batch
    uint64_t tried
    uint8_t* group              # NULL = it is for no group
    uint8_t* publisher
    uint32_t bytes
    uint32_t publisher_n
    uint16_t group_n
    uint16_t part
    uint8_t flags
    uint8_t durability

cdef enum:
    LO_DOWN = 0                 # no connection
    LO_HELLO = 1                # HELLO is sent
    LO_ROUTES = 2               # the snapshot of routes is sent
    LO_OPENS = 3                # the snapshot of open identities is sent
    LO_RETAINED = 4             # messages may be sent; the snapshot of retained messages is sent
    LO_LIVE = 5

ctypedef struct LinkOut:        # to one other worker
    uint8_t state               # LO_...
    uint8_t down                # 1 = its process has ended
    uint8_t asked_retained      # 1 = the other worker waits for CURRENT
    uint64_t log                # of the other worker, from its WELCOME; 0 = not known
    uint64_t run
    int64_t pending             # bytes in the output
    Kept* kept                  # ring of `cap` places
    uint32_t cap
    uint32_t head               # place of the message with the number `first`
    uint32_t n
    uint64_t first
    uint64_t sent               # last number that was sent on this connection
    uint64_t carried            # ... on an earlier one
    uint64_t bytes              # bytes of the kept messages
    uint64_t dropped0           # QoS 0 that was dropped
    LinkRing routes             # waiters for CONFIRM, by Links.changes
    LinkRing currents           # waiters for CURRENT, by Links.asks
    LinkRing flushes            # waiters for the acknowledgement of a number
    uint64_t owner_last         # highest number with LINK_OWNER
    uint64_t confirmed
    uint64_t asked              # highest ASK on this connection
    OwnRoute* route_next        # next one of the snapshot
    OwnIdentity* open_next
    uint64_t cursor             # of the snapshot of retained messages
    uint8_t walked              # 1 = all of it is sent
    uint64_t walked_batch       # batch of the last change that is in it
    uint64_t current            # highest ASK_RETAINED of the other worker
    uint64_t current_log        # its log and run when it asked
    uint64_t current_run

ctypedef struct LinkIn:         # from one other worker
    uint8_t open
    uint8_t begun               # 1 = a number has come on this connection
    uint8_t dirty               # 1 = the mark must go into the open batch
    uint8_t routes_known        # 1 = a snapshot was complete since this worker started
    uint8_t retained_known
    uint16_t generation         # number of the connection
    uint64_t log                # 0 = not known
    uint64_t run
    uint64_t got                # highest number that was received
    uint64_t expected           # number that comes next on this connection, if `begun`
    uint64_t marked             # all numbers up to this one are committed or need no record, except holes
    uint64_t acked
    int64_t pending
    LinkRing batches            # number = batch, item = last number in it
    LinkHole* holes             # rising
    uint32_t holes_n
    uint32_t holes_cap
    ForeignIdentity* identities

ctypedef struct LinkPeer:
    LinkOut out
    LinkIn inward

ctypedef struct OwnRoute:       # a filter with subscribers of this worker; its text follows the struct
    Link link                   # .n: bytes of the text
    OwnRoute* next
    OwnRoute* prev
    uint64_t changed            # Links.changes when it last became wider
    uint32_t subscribers[3]     # by QoS
    uint32_t online             # members of a shared group that are online
    uint32_t online_sent
    uint8_t qos                 # highest QoS that was announced

ctypedef struct OwnIdentity:
    Link link
    OwnIdentity* next
    OwnIdentity* prev
    uint64_t identity
    uint64_t sent               # mask of the workers that have it

ctypedef struct ForeignIdentity:
    Link link
    ForeignIdentity* next       # of the same log
    ForeignIdentity* prev
    uint64_t log
    uint64_t identity
    uint64_t batch              # batch with its deliveries
    uint16_t part
    uint16_t generation
    uint32_t slot

ctypedef struct LinkStats:
    uint64_t sent               # messages with a number, first time
    uint64_t resent
    uint64_t sent0
    uint64_t dropped0           # QoS 0: the link was full or not connected
    uint64_t refused            # link_full found the link full
    uint64_t received
    uint64_t duplicates         # numbers that came again
    uint64_t identities         # messages dropped for their identity
    uint64_t no_member
    uint64_t closed             # connections that were closed because the other worker did not read

cdef struct Links:
    LinkOps ops
    void* owner
    LinkLimits limits
    HashKey key
    uint32_t self
    uint32_t n                  # number of workers
    uint32_t missing            # snapshots that the worker waits for before it is ready
    uint64_t log
    uint64_t run
    uint64_t serial             # of identities
    uint64_t committed          # highest committed batch
    uint64_t changes            # counts routes that became wider
    uint64_t asks               # counts link_wait_current
    uint64_t off                # rules switched off, in tests only (rules.pxd)
    int error                   # of the last frame that was refused
    LinkPeer* peers
    MemoryAccount memory
    Table routes
    uint64_t routes_digest      # sum of the hashes of their texts, to compare with what the others have
    OwnRoute* route_first
    OwnRoute* route_last
    Table opens
    OwnIdentity* open_first
    Table identities
    Slab waiters
    LinkRing commits            # waiters for a batch
    LinkRing retained           # retained messages of this owner, by batch
    uint8_t* room               # for the frame that is written
    uint32_t room_cap
    LinkStats stats


cdef inline View route_text(OwnRoute* r) noexcept nogil:
    cdef View v
    v.p = <uint8_t*>(r + 1)
    v.n = r.link.n
    return v
