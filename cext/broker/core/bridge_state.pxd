# Bridges: the broker's connections to other brokers, and the table of functions that the core calls them by.
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.view cimport View
from cext.base.wheel cimport Timer
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.listener cimport Listener
from cext.codec.frame cimport Frame
from cext.net.conn_state cimport Address, TransportContext
from cext.session.session cimport Session
from cext.topic.lines cimport Lines

cdef enum:
    BRIDGES_MAX = 1000
    BRIDGE_RETRY_MS = 100         # until an event that found the ring full is told again
    BRIDGE_PAST_MAX = 16
    NAME_ROOM_BYTES = 65536
    VIA_BYTES = 29              # a user property, encoded

ctypedef struct BridgeSpec:       # what its operator wants: one block of malloc's, texts and lines in it
    uint32_t bytes_n            # of the block
    uint64_t key                # of all that it was made from: the same key, the same wish
    View name
    View local_id
    View remote_id
    View username               # for the remote broker; p NULL: none
    View password
    View notice                 # the topic of its state
    Lines lines
    TransportContext* tls_context    # a reference; NULL: plain
    Address bound               # family 0: none
    uint32_t bound_scope
    uint8_t version             # V31, V311, V5
    uint8_t clean_start         # on the remote broker
    uint8_t local_clean         # here: nothing is kept while it is down
    uint8_t try_private
    uint8_t notifications
    uint8_t notify_local_only
    uint8_t attempt_unsubscribe
    uint8_t outgoing_retain
    uint8_t loop_guard          # v5: messages say which brokers they came through
    uint8_t reload_lazy         # a changed one waits until the connection breaks
    uint16_t keepalive_s
    uint16_t receive_max
    uint16_t alias_max
    uint32_t session_expiry_s
    uint32_t packet_max         # of what goes out; 0: any
    uint32_t threshold          # lazy: so many waiting deliveries ask for a connection; 0: not lazy
    uint32_t idle_ms            # lazy: 0: never
    uint32_t connect_timeout_ms     # from the first attempt to CONNACK
    uint32_t user_timeout_ms
    uint32_t tcp_idle_s
    uint32_t tcp_interval_s
    uint32_t tcp_count
    uint32_t others             # that hold it, too
    BridgeSpec* older             # see Link.past
    uint32_t upto               # the queue's position behind the last delivery that came under it

cdef enum:
    BRIDGE_DOWN = 0
    BRIDGE_OPENING = 1            # the socket, TLS
    BRIDGE_CONNECTING = 2             # CONNECT is out
    BRIDGE_UP = 3

cdef enum:
    BRIDGE_EVENT_UP = 0
    BRIDGE_EVENT_DOWN = 1
    BRIDGE_EVENT_REFUSED = 2
    BRIDGE_EVENT_WANTED = 3
    BRIDGE_EVENT_IDLE = 4
    NO_EVENT_WAITING = 0xFF
    NO_QOS = 0xFF

ctypedef struct Bridge:
    Listener listener                   # of its connections; door.link points here
    BridgeSpec* spec
    BridgeSpec* next_spec         # takes the place when the connection is gone
    Session* session            # from the loop's begin to the link's end
    Client* client              # NULL: neither a connection nor an attempt
    Bridge* gone_next
    Timer timer                 # TIMER_BRIDGE: an event to tell again, idleness
    uint64_t active_ms          # when a message last went either way
    uint64_t pinged_ms          # a PINGREQ without an answer; 0: none
    uint16_t first_pid          # of the packets that subscribe: line i has first_pid + i, cyclically
    uint8_t state
    uint8_t as_bridge           # the level carries 0x80 in this attempt
    uint8_t was_up              # with these lines, since we run
    uint8_t retained_sent            # what is retained here has been told there, or waits in the queue
    uint8_t event_waiting              # the last event that found no room, or NO_EVENT_WAITING
    uint8_t wanted              # lazy: told already
    uint8_t idle_notified
    uint8_t will_qos            # that the remote takes in a will, as far as it has said
    uint8_t will_retain
    uint8_t max_qos             # of this connection
    uint8_t retain_ok
    uint8_t local_qos           # the subscriptions here were made for this max_qos; NO_QOS: there are none
    BridgeSpec* past              # before spec, the youngest first: by their lines what was queued under them goes out
    const Lines* naming         # of the delivery that is written; else spec's
    uint32_t unsure_upto        # positions before it may have come under lines that are not known any more
    BridgeSpec* old_spec          # under which it was connected last, as far as we know: what is not asked for any more is unsubscribed from

cdef enum:
    BRIDGE_CONNECT = 1
    BRIDGE_CLOSE = 2
    BRIDGE_STATES = 3
    BRIDGE_RENEW = 4

ctypedef struct BridgeState
ctypedef struct Bridges

ctypedef struct BridgeCommand:
    uint8_t kind
    uint8_t as_bridge
    int32_t fd                  # a connected socket to go on with; -1: none
    View name
    Address remote
    uint32_t remote_scope
    const char* host            # ends with a zero
    BridgeState* out              # BRIDGE_STATES: the asker's room for `n` of them; n: how many there are
    uint32_t n
    Bridges* bridges                # BRIDGE_RENEW: where there are none yet, these are it
    Bridge** fresh                # BRIDGE_RENEW: n links with their specs. Taken: NULL; what is left is the asker's to free, with what hangs there

ctypedef struct BridgeState:
    char name[256]              # cut, ends with a zero
    uint8_t state
    uint32_t pending
    uint64_t waiting_bytes

# What the room above does (cext/peer), so that this one need not know it.
ctypedef struct BridgeOps:
    int (*packet)(Broker* b, Client* c, const Frame* f) noexcept nogil      # all but PUBLISH and acknowledgements of an open one; as handlers
    void (*goodbye)(Broker* b, Client* c, int reason) noexcept nogil        # its DISCONNECT
    void (*ended)(Broker* b, Client* c, int reason) noexcept nogil          # after the session was left
    void (*client_timer)(Broker* b, Client* c) noexcept nogil
    void (*bridge_timer)(Broker* b, Bridge* l) noexcept nogil
    void (*begin)(Broker* b) noexcept nogil                                 # the loop begins
    int (*ask)(Broker* b, BridgeCommand* a) noexcept nogil                        # 0 or errno
    void (*opened)(Broker* b, Client* c, int err) noexcept nogil
    void (*free)(Bridges* bridges) noexcept nogil                               # when nothing runs any more

ctypedef struct Bridges:          # Broker.links
    BridgeOps ops
    uint8_t* room               # NAME_ROOM_BYTES: the topic of the packet that is written
    uint8_t* props_room         # grows to what one packet needs
    uint32_t props_cap
    uint8_t via[29]             # VIA_BYTES: the user property that says a message came through this broker
    Bridge** at                   # malloc's
    uint32_t n
    Bridge* gone                  # of which connections are not freed yet

cdef inline Bridges* bridges_of(const Broker* b) noexcept nogil:     # NULL: none
    return <Bridges*>b.bridges

cdef inline Bridge* bridge_of(const Client* c) noexcept nogil:       # of a client with CF_BRIDGE
    return <Bridge*>c.listener.bridge
