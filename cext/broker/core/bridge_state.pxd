# Bridges: the broker's connections to other brokers, and the table of functions by which lower rooms call the bridge room.
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
    BRIDGE_RETRY_MS = 100         # pause before an event that found the ring full is reported again
    BRIDGE_PAST_MAX = 16
    NAME_ROOM_BYTES = 65536
    VIA_BYTES = 29              # bytes of the encoded user property
    QOS0_HELD_MAX = 100         # QoS 0 messages that wait for the end of an attempt to connect
    QOS0_HELD_BYTES_MAX = 1 << 20      # bytes of their payloads

ctypedef struct BridgeSpec:       # the configuration of a bridge: one block of malloc, with its texts and lines
    uint32_t bytes_n            # bytes of the block
    uint64_t key                # hash of everything it was made from; equal keys: equal configurations
    View name
    View local_id
    View remote_id
    View username               # user name for the remote broker; p NULL: none
    View password
    View notice                 # topic of the bridge's state
    Lines lines
    TransportContext* tls_context    # a reference; NULL: without TLS
    Address bound               # local address; family 0: none
    uint32_t bound_scope
    uint8_t version             # V31, V311, V5
    uint8_t clean_start         # clean start on the remote broker
    uint8_t local_clean         # 1: the local session ends with each connection
    uint8_t try_private
    uint8_t notifications
    uint8_t notify_local_only
    uint8_t attempt_unsubscribe
    uint8_t outgoing_retain
    uint8_t loop_guard          # 1: v5 messages name the brokers that they passed
    uint8_t reload_lazy         # 1: a changed configuration waits until the connection breaks
    uint16_t keepalive_s
    uint16_t receive_max
    uint16_t alias_max
    uint32_t session_expiry_s
    uint32_t packet_max_in      # Maximum Packet Size of CONNECT; 0: left out
    uint32_t packet_max         # bytes of the largest packet that is sent; 0: no limit
    uint32_t threshold          # lazy bridge: waiting deliveries that request a connection; 0: not lazy
    uint32_t idle_ms            # lazy bridge: idle time before it disconnects; 0: never
    uint32_t connect_timeout_ms     # from the first attempt to CONNACK
    uint32_t user_timeout_ms
    uint32_t tcp_idle_s
    uint32_t tcp_interval_s
    uint32_t tcp_count
    uint32_t others             # further holders of this configuration
    BridgeSpec* older             # next in Bridge.past
    uint32_t upto               # position in the queue behind the last delivery under this configuration

cdef enum:
    BRIDGE_DOWN = 0
    BRIDGE_OPENING = 1            # socket and TLS
    BRIDGE_CONNECTING = 2             # CONNECT was sent
    BRIDGE_UP = 3

cdef enum:
    BRIDGE_EVENT_UP = 0
    BRIDGE_EVENT_DOWN = 1
    BRIDGE_EVENT_REFUSED = 2
    BRIDGE_EVENT_WANTED = 3
    BRIDGE_EVENT_IDLE = 4
    BRIDGE_EVENT_READY = 5      # of a worker: the bridge may connect, because the other workers are known
    NO_EVENT_WAITING = 0xFF
    NO_QOS = 0xFF

ctypedef struct Bridge:
    Listener listener                   # listener of its connections; listener.bridge points here
    BridgeSpec* spec
    BridgeSpec* next_spec         # configuration that takes effect after this connection
    Session* session            # local session, from the start of the loop to the end of the bridge
    Client* client              # NULL: neither a connection nor an attempt
    Bridge* gone_next
    Timer timer                 # TIMER_BRIDGE: an event to report again, idle time
    uint64_t active_ms          # time of the last message in either direction
    uint64_t pinged_ms          # time of a PINGREQ without an answer; 0: none
    uint64_t begun_ms           # time at which the bridge was configured: its first attempt comes soon
    uint32_t qos0_held          # QoS 0 messages that were queued since the last connection
    uint32_t qos0_held_bytes
    uint32_t granted_line       # line behind the last one that SUBACK answered: usually the next that it answers
    uint8_t version             # of the next attempt: spec.version, or V311 after the remote broker refused 5.0
    uint8_t state
    uint8_t as_bridge           # 1: the level carries 0x80 in this attempt
    uint8_t was_up              # 1: it was connected with these lines since the start
    uint8_t retained_sent            # 1: retained messages were sent there, or wait in the queue
    uint8_t event_waiting              # last event that found the ring full, or NO_EVENT_WAITING
    uint8_t wanted              # lazy bridge: 1 = the connection was requested
    uint8_t idle_notified
    uint8_t attempted           # 1: an attempt to connect has ended
    uint8_t ready               # 1: it may publish and connect; 0: its worker does not know the other workers yet
    uint8_t replay_all          # retained messages of all lines, not only of those with QoS 0, are sent when the other workers have confirmed the lines
    uint8_t will_qos            # QoS of a will that the remote broker accepts, as far as known
    uint8_t will_retain
    uint8_t max_qos             # Maximum QoS of this connection
    uint8_t retain_ok
    uint8_t local_qos           # Maximum QoS for which the local subscriptions were made; NO_QOS: there are none
    BridgeSpec* past              # configurations before spec, the youngest first; deliveries queued under them are sent by their lines
    const Lines* naming         # lines of the delivery that is written; NULL: those of spec
    uint32_t unsure_upto        # deliveries at lower positions may belong to lines that are unknown now
    BridgeSpec* old_spec          # configuration of the last connection, as far as known; filters that only it has are unsubscribed

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
    int32_t fd                  # connected socket; -1: none
    View name
    Address remote
    uint32_t remote_scope
    const char* host            # ends with a zero byte
    BridgeState* out              # BRIDGE_STATES: room of the caller for `n` states; n: their number
    uint32_t n
    Bridges* bridges                # BRIDGE_RENEW: these become the bridges of a broker that had none
    Bridge** fresh                # BRIDGE_RENEW: n bridges with their configurations. Taken: NULL; the caller frees the rest

ctypedef struct BridgeState:
    char name[256]              # cut, ends with a zero byte
    uint8_t state
    uint32_t pending
    uint64_t waiting_bytes

# The functions of the bridge room (cext/bridge), so that lower rooms can call it without knowing it.
ctypedef struct BridgeOps:
    int (*packet)(Broker* b, Client* c, const Frame* f) noexcept nogil      # packets except PUBLISH and acknowledgements of an open one
    void (*disconnect)(Broker* b, Client* c, int reason) noexcept nogil        # sends DISCONNECT
    void (*ended)(Broker* b, Client* c, int reason) noexcept nogil          # called after the client left its session
    void (*client_timer)(Broker* b, Client* c) noexcept nogil
    void (*bridge_timer)(Broker* b, Bridge* l) noexcept nogil
    void (*begin)(Broker* b) noexcept nogil                                 # called when the loop begins
    int (*command)(Broker* b, BridgeCommand* a) noexcept nogil                        # 0 or errno
    void (*opened)(Broker* b, Client* c, int err) noexcept nogil
    void (*ready)(Broker* b) noexcept nogil                                 # this worker knows all others
    void (*replay)(Broker* b, Client* c) noexcept nogil                     # the other workers know the subscriptions of a bridge, and this one has their retained messages
    void (*free)(Bridges* bridges) noexcept nogil                               # called after the loop has ended

ctypedef struct Bridges:          # of Broker.bridges
    BridgeOps ops
    uint8_t* room               # NAME_ROOM_BYTES: topic of the packet that is written
    uint8_t* props_room         # properties of the packet that is written; grows as needed
    uint32_t props_cap
    uint8_t via[29]             # VIA_BYTES: user property with the id of this broker
    Bridge** at                   # allocated by malloc
    uint32_t n
    Bridge* gone                  # removed bridges whose connections are not freed yet

cdef inline Bridges* bridges_of(const Broker* b) noexcept nogil:     # NULL: none
    return <Bridges*>b.bridges

cdef inline Bridge* bridge_of(const Client* c) noexcept nogil:       # bridge of a client with CF_BRIDGE
    return <Bridge*>c.listener.bridge
