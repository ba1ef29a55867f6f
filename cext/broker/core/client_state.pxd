# A client: a connection that speaks MQTT, with all its state while it is connected.
from libc.stdint cimport int8_t, uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.slab cimport SlabItem
from cext.base.view cimport View
from cext.base.wheel cimport Timer
from cext.broker.core.listener cimport Listener
from cext.net.conn_state cimport Conn
from cext.session.message cimport Message
from cext.session.session cimport Session

ctypedef struct Will:
    Message* message                    # message.qos and .retain belong to the will
    uint32_t delay_s
    uint32_t expiry_s
    uint8_t has_expiry

ctypedef struct AliasIn:
    uint8_t* topic
    uint32_t n

ctypedef struct AliasSlot:
    uint64_t hash
    uint8_t* topic
    uint32_t n
    uint16_t alias

ctypedef struct AliasOut:
    AliasSlot* slots                    # open addressing, at most half full
    uint32_t mask
    uint16_t n
    uint16_t max

ctypedef struct Aliases:                # topic aliases of a client that uses some
    AliasIn* taken                      # set by the client: alias_max_in entries, from its first alias on
    AliasOut given                      # sent to the client; slots NULL: none

cdef enum:
    C_NEW = 0                           # before CONNECT
    C_CONNECTED = 1
    C_ENDED = 2                         # DISCONNECT or CONNACK was sent; its socket may linger
    C_AUTHENTICATING = 3                        # its CONNECT waits for the control plane, or for AUTH of the client
    C_OPENING = 4                       # a bridge's connection before CONNACK
    C_MOVING = 5                        # its CONNECT belongs to another worker, to which the connection goes in this turn or a later one
    C_RELAY = 6                         # one half of a relay between a TLS connection and the worker that has its client

cdef enum:
    CF_REMOTE_BRIDGE = 1
    CF_TRUSTED = 2                      # a connection of the embedding process
    CF_PROBLEM_INFO = 4                 # Request Problem Information
    CF_DOOMED = 8                       # in the list of clients that end after this turn
    CF_REAUTH = 16                      # an AUTH exchange is in progress while it is connected
    CF_IDENTIFIED = 32                  # TLS has proved its identity, which is its user name
    CF_BRIDGE = 64                        # this broker is the client: listener.bridge is the bridge
    CF_NEWCOMER = 128                   # in the list of connections that have not logged in

cdef enum:
    TIMER_CLIENT = 1
    TIMER_SESSION = 2
    TIMER_RETAINED = 3
    TIMER_SYS = 4
    TIMER_AUTH_REQUEST = 5
    TIMER_DENIED = 6
    TIMER_BRIDGE = 7
    TIMER_ACCOUNTS = 8
    TIMER_CURSORS = 9
    TIMER_LOG_RATES = 10
    TIMER_RELOAD_HOLD = 11
    TIMER_TRACE = 12
    TIMER_LINK_WAIT = 13
    TIMER_LINKS = 14
    TIMER_FIGURES = 15
    TIMER_CALLERS = 16
    TIMER_DIAL = 17             # of a half of a relay whose connection is not open yet

cdef enum:
    PENDING_CONNECT = 1
    PENDING_AUTH = 2                     # AUTH of a connected client
    PENDING_PUBLISH = 3
    PENDING_FILTERS = 4                  # SUBSCRIBE, UNSUBSCRIBE

ctypedef struct Owned:
    uint8_t* p                          # allocated by malloc; NULL: none
    uint32_t n

ctypedef struct PendingPacket:
    # a packet that waits for the control plane: CONNECT as a copy; other packets stay in the connection's input and are handled again
    uint8_t kind                        # PENDING_...
    uint8_t waits                       # 0: its client is read from again
    uint8_t answered                    # 1: all answers allow it
    int8_t allowed                      # -1: not known
    uint8_t replaced                    # 1: a plugin has set text, bytes, qos and retain
    uint8_t dropped                     # 1: a plugin has dropped the message
    uint8_t unanswered                  # 1: no plugin has decided about the message in time, or there is no memory: it is refused
    uint8_t qos
    uint8_t retain
    uint8_t* frame
    uint32_t frame_n
    uint32_t n_open                     # filters with a request and without an answer
    uint32_t n_walked                   # filters with a verdict or a request, and the bytes of the packet behind them
    uint32_t walk_left
    uint8_t* verdicts                   # verdict of each filter; NULL: no plugin decides
    uint8_t* codes                      # reason code of each filter that is handled; NULL: the packet is not handled in slices
    uint32_t n_done                     # number of these filters, and the bytes of the packet behind them
    uint32_t done_left
    uint8_t routes                      # ROUTES_... of filter_slices.pxd
    uint8_t timed_out                   # 1: not all workers have confirmed the filters in time
    uint8_t acknowledged                # 1: SUBACK is sent; retained messages follow for the filters behind the n_done first ones
    uint64_t changes                    # changes_of before the first filter
    uint64_t since_ms                   # when the packet came: the wait counts for the expiry of a message
    uint8_t id_given                    # 1: a plugin has set the client id
    Owned id                            # assigned client id
    Owned props                         # properties of the answer, if p is not NULL
    Owned* changed                      # for each filter that a plugin has changed: options, then the filter; NULL: none was
    uint32_t changed_room
    Owned text                          # user name or topic of the answer
    Owned bytes                         # authentication data or payload of the answer

ctypedef struct Names:
    Owned method                        # authentication method
    Owned proxied                       # name of the certificate in a PROXY header, for CONNECT
    Owned path                          # the client's Unix socket in a PROXY header

ctypedef struct PendingAck:        # an acknowledgement that waits for a batch
    uint32_t serial             # serial of the batch; 0: waits only for the acknowledgements before it
    uint32_t pending            # its pending message while that batch is open
    uint16_t pid
    uint8_t packet_type
    uint8_t rc

ctypedef struct PendingAcks:           # acknowledgements of a client, in order [v5 4.6.0-2]
    PendingAck* ring
    uint32_t mask
    uint32_t head
    uint32_t tail
    uint32_t waits              # serial of the batch for which the client is in the ring of waiters
    uint32_t held               # serial of the batch until which all its output waits; 0: none
    uint32_t blocked            # position behind the acknowledgement that waits for a job; 0: none
    uint8_t paused              # 1: its client is not read from for this reason
    uint8_t strict              # 1: the acknowledgements that wait for a job need a sync
    uint8_t soft                # 1: `held` does not count while the store accepts nothing

ctypedef struct Client:
    SlabItem slab
    Conn conn
    Session* session                    # NULL until CONNECT is accepted
    Listener* listener                          # NULL: adopted
    Timer timer                         # wait for CONNECT, keepalive, linger
    Will* will
    Aliases* aliases                    # NULL: none in either direction
    Client* doomed_next
    PendingPacket* pending_packet                      # its packet that waits for the control plane; NULL: none
    PendingAcks* pending_acks                  # acknowledgements that wait for the store; NULL: none so far
    Names* names                        # what few clients have; NULL: nothing of it. See pending_packet.pxd
    uint64_t auth_request                   # handle of the request about its CONNECT, AUTH exchange or PUBLISH; 0: none
    uint32_t packet_max                 # largest packet that the client accepts; 0: no limit
    uint32_t out_packets                # PUBLISHes written since its output was last empty
    # neighbours among the newcomers of its network, as positions in the slab + 1; 0: none. Of a half whose connection is not open yet: its client, which waits
    uint32_t newcomer_prev
    uint32_t newcomer_next              # of a relay: its other half
    uint32_t newcomer_bytes             # memory that it is counted as
    uint32_t newcomer_met               # its number: older newcomers have smaller ones. Of a half whose connection is not open yet: the generation of its client
    uint16_t newcomer_network           # place in newcomer_networks
    uint16_t keepalive_s
    uint16_t alias_max_in               # Topic Alias Maximum that it received; a reload does not change it
    uint16_t window                     # largest number of deliveries in flight
    uint16_t receive_max                # Receive Maximum that it received; 0: none. A reload does not change it
    uint16_t jobs
    uint8_t version
    uint8_t state
    uint8_t flags
    uint8_t traced                      # 1: its next packet is in a trace already, and waits to be handled
    uint16_t doom_reason
    uint16_t kicks                      # kick commands before its connection; see kick.pyx
    uint8_t wire                        # the worker on another machine at the other end of its relay + 1; 0: none
    uint8_t wire_closes                 # WireEnds.closes when the relay began

cdef inline Client* client_of(Conn* c) noexcept nogil:
    return <Client*>(<uint8_t*>c - sizeof(SlabItem))
