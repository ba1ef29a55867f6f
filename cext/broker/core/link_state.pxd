# The links of a broker that is one of several workers (docs/adr/0023). Broker.links is NULL in a broker that is alone.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.slab cimport Slab, SlabItem
from cext.base.wheel cimport Timer
from cext.broker.core.broker cimport Broker
from cext.broker.core.job_state cimport Arrival
from cext.link.frame cimport LINK_WORKERS_MAX
from cext.link.state cimport LinkWaiter, Links
from cext.net.conn_state cimport Conn
from cext.session.message cimport Message
from cext.session.session cimport Session
from cext.topic.retained cimport RetainedCursor

cdef enum:
    NO_SLOT = 0xFFFFFFFFu       # of a connection whose HELLO has not come

ctypedef struct LinkConn:       # a socket of a link
    Conn conn                   # first: the reactor has a pointer to it, with CONN_PEER
    uint32_t slot
    uint32_t proved             # the worker that a handshake has proved to be at the other end; NO_SLOT: there was none
    uint8_t way                 # LINK_OUT, LINK_IN
    uint8_t gone                # 1: the socket has failed, or the other worker has closed it

ctypedef struct LinkProbe:      # how long acknowledgements of another worker take: one message at a time is timed
    uint64_t number             # of that message; 0: none
    uint64_t sent_us
    uint64_t last_us
    uint64_t most_us
    uint64_t sum_us
    uint64_t n                  # messages that were timed

# Another worker as a subscriber: its routes are entries of the index whose subscriber is this session. The session has ended, so each walk over
# subscribers passes it over. Entry.options has the highest QoS of the route, Entry.share the generation; of a shared group, sub_id has the members online.
ctypedef struct PeerLog:
    Session session             # first; SESSION_ENDED and SESSION_PEER
    uint32_t slot
    LinkConn* conns[2]          # by way; NULL: none
    RetainedCursor walk         # of the snapshot of retained messages for it
    uint8_t walks               # 1: `walk` is open
    LinkProbe probe
    uint64_t routes_digest      # sum of the hashes of its routes of `routes_generation`, as Links.routes_digest of that worker
    uint16_t routes_generation
    int refused                 # error of its last frame that was refused, and when that was; 0: none. Of no worker: at the own slot
    int64_t refused_ms

cdef enum:
    FANOUT_PLACES = 64          # fan-outs of the messages of one worker, from which on its link is not read
    FANOUT_PLACE_BYTES = 65536

cdef enum:
    LINK_WAIT_ACK = 1           # an acknowledgement in the ring of its client
    LINK_WAIT_PACKET = 2        # the pending packet of its client: a SUBSCRIBE
    LINK_WAIT_ROUTED = 3        # the end of a QoS 2 message's inbox record, which PUBCOMP follows
    LINK_WAIT_ENDED = 4         # PUBCOMP: the end is committed
    LINK_WAIT_WILL = 5          # the end of the record of a will
    LINK_WAIT_REPLAY = 6        # retained messages for a bridge that has connected

ctypedef struct LinkWait:       # the context of a LinkWaiter
    SlabItem item
    uint32_t client_index
    uint32_t client_generation
    uint32_t position           # of the acknowledgement
    uint8_t kind                # LINK_WAIT_...
    uint8_t strict              # LINK_WAIT_ROUTED; 1: the batch of the end must be synced
    uint16_t pid                # LINK_WAIT_ROUTED
    Session* session            # the same; counted in session.jobs
    Message* message            # the same; a reference
    uint64_t identity           # the same, LINK_WAIT_ENDED and LINK_WAIT_WILL
    uint64_t will               # LINK_WAIT_WILL: number of its record; 0 = it has none
    Timer timer                 # LINK_WAIT_PACKET: route_timeout
    LinkWaiter* waiter          # the same
    uint8_t current             # the same, and LINK_WAIT_REPLAY; 1: it waits for retained messages only

ctypedef struct StoredMark:     # of another worker, as the store had it at the start
    uint64_t log                # 0: none
    uint64_t run
    uint64_t number
    uint32_t n
    uint64_t holes[64]

ctypedef struct StoredChoice:   # of a worker for a QoS 2 message and a shared group, as the store had it at the start
    uint64_t identity
    uint64_t part
    uint64_t slot

ctypedef struct BrokerLinks:
    Links links
    uint32_t n                  # workers
    PeerLog* peers              # by slot; the own one is not used
    uint64_t shared_routes      # routes of groups among those in the index
    uint8_t ready               # 1: clients are served
    uint8_t due                 # 1: a link has more to send at once
    uint8_t gone                # 1: a connection is gone
    uint64_t batch              # the open batch, as the links count: from 1 in each run
    uint64_t found              # what a match has found: the workers, and the highest QoS of each
    uint8_t found_qos[LINK_WORKERS_MAX]
    Slab waits                  # LinkWait
    SlabItem* paused            # handles of the clients that are not read until all links have room; once for each message
    uint32_t paused_n
    uint32_t paused_cap
    uint64_t closed             # mask of the workers to which this one must open its link again
    Timer reopen
    uint64_t identity           # of the QoS 2 message that is routed now; 0: none yet
    void** fanouts              # Job*; FANOUT_PLACES for each worker: fan-outs of messages of other workers, the first one of each worker and topic
    uint32_t fanouts_n
    Arrival* spare              # of the next fan-out, so that memory for it is certain; NULL = none
    uint32_t fanout_places[LINK_WORKERS_MAX]    # of each worker: its fan-outs, and their bytes in units of FANOUT_PLACE_BYTES
    LinkWaiter* waiter          # what the publisher of the message that was routed last waits for; the publisher's handler takes it
    uint8_t* publisher          # the bytes of publisher.pyx
    uint32_t publisher_cap
    uint64_t stored_log         # of this worker, as the store had it at the start; 0: nothing was stored
    uint64_t stored_run
    StoredMark* stored          # by slot; NULL after the start
    StoredChoice* choices       # in the order of the store; the last one of a part counts
    uint32_t choices_n
    uint32_t choices_cap


# Return whether the publisher of the message that was routed last waits for other workers.
cdef inline bint waiter_is_left(const Broker* b) noexcept nogil:
    return b.links != NULL and (<const BrokerLinks*>b.links).waiter != NULL


# Take the waiter of the message that was routed last; NULL = no worker must acknowledge it.
cdef inline LinkWaiter* waiter_take(Broker* b) noexcept nogil:
    cdef LinkWaiter* w = (<BrokerLinks*>b.links).waiter if b.links != NULL else NULL
    if w != NULL:
        (<BrokerLinks*>b.links).waiter = NULL
    return w


cdef inline BrokerLinks* links_of(Broker* b) noexcept nogil:
    return <BrokerLinks*>b.links
