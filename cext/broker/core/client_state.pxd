# A client: a connection that speaks MQTT, with all that is kept for it while it is connected.
from libc.stdint cimport int8_t, uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.slab cimport SlabItem
from cext.base.view cimport View
from cext.base.wheel cimport Timer
from cext.broker.core.listener cimport Listener
from cext.net.conn_state cimport Conn
from cext.session.message cimport Message
from cext.session.session cimport Session

ctypedef struct Will:
    Message* message                    # message.qos and .retain are the will's
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

ctypedef struct Aliases:                # of a client that uses some
    AliasIn* taken                      # the client's: alias_max_in entries, once one was used
    AliasOut given                      # to the client; slots NULL: none are

cdef enum:
    C_NEW = 0                           # no CONNECT yet
    C_CONNECTED = 1
    C_ENDED = 2                         # told goodbye; its socket may linger
    C_AUTHENTICATING = 3                        # its CONNECT waits for the control plane, or for the client's AUTH
    C_OPENING = 4                       # a link's: on its way to CONNACK

cdef enum:
    CF_REMOTE_BRIDGE = 1
    CF_TRUSTED = 2                      # of the embedding process
    CF_PROBLEM_INFO = 4                 # Request Problem Information
    CF_DOOMED = 8                       # in the list of those to be ended after this turn
    CF_REAUTH = 16                      # an exchange of AUTH packets goes on while it is connected
    CF_IDENTIFIED = 32                  # TLS found who it is, and its user name is that
    CF_BRIDGE = 64                        # we are the client: door.link says which link it is

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

cdef enum:
    PENDING_CONNECT = 1
    PENDING_AUTH = 2                     # of a connected client
    PENDING_PUBLISH = 3
    PENDING_FILTERS = 4                  # SUBSCRIBE, UNSUBSCRIBE

ctypedef struct Owned:
    uint8_t* p                          # malloc's; NULL: none
    uint32_t n

ctypedef struct PendingPacket:
    # a packet that waits for the control plane: CONNECT as a copy, others in the connection's input, where they come up again
    uint8_t kind                        # PARKED_...
    uint8_t waits                       # 0: its client is read from again
    uint8_t answered                    # nothing stands against it any more
    int8_t allowed                      # -1: not known
    uint8_t replaced                    # a transform gave text, bytes, qos and retain
    uint8_t dropped                     # a transform took the message
    uint8_t qos
    uint8_t retain
    uint8_t* frame
    uint32_t frame_n
    uint32_t n_open                     # filters asked about and not answered
    uint32_t n_walked                   # filters that are known or asked about, and how many bytes of the packet come after them
    uint32_t walk_left
    uint8_t* verdicts                   # of each filter
    Owned id                            # assigned
    Owned text                          # the answer's user name, or topic
    Owned bytes                         # the answer's authentication data, or payload

ctypedef struct Names:
    Owned method                        # of extended authentication
    Owned proxied                       # name of the certificate that a PROXY header told of, for CONNECT

ctypedef struct PendingAck:        # an acknowledgement that waits for a batch
    uint32_t serial             # of the batch; 0: only for those before it
    uint32_t pending            # its message, while that batch is the open one
    uint16_t pid
    uint8_t packet_type
    uint8_t rc

ctypedef struct PendingAcks:           # of a client, in order [v5 4.6.0-2]
    PendingAck* ring
    uint32_t mask
    uint32_t head
    uint32_t tail
    uint32_t waits              # serial for which the client is among the waiters
    uint32_t held               # serial until which its whole output waits; 0: none
    uint32_t blocked            # the place after the promise that waits for a job; 0: none
    uint8_t paused              # its client is not read from for this
    uint8_t strict              # what waits for a job is to reach the disk
    uint8_t soft                # `held` does not count while the store takes nothing

ctypedef struct Client:
    SlabItem slab
    Conn conn
    Session* session                    # NULL until CONNECT is accepted
    Listener* listener                          # NULL: adopted
    Timer timer                         # first CONNECT, keepalive, linger
    Will* will
    Aliases* aliases                    # NULL: none, either way
    Client* doomed_next
    PendingPacket* pending_packet                      # its packet that waits for the control plane; NULL: none
    PendingAcks* pending_acks                  # acknowledgements that wait for the store; NULL: none ever did
    Names* names                        # what few clients have; NULL: nothing of it. See parked.pxd
    uint64_t auth_request                   # handle of what is asked for its CONNECT, its exchange of AUTH, its PUBLISH; 0: nothing
    uint32_t packet_max                 # what the client takes; 0: any
    uint32_t out_packets                # PUBLISHes written since its output was last empty
    uint16_t keepalive_s
    uint16_t alias_max_in               # what it was told: a reload does not change it
    uint16_t window                     # deliveries in flight at most
    uint16_t jobs
    uint8_t version
    uint8_t state
    uint8_t flags
    uint16_t doom_reason
    uint16_t kicks                      # that there were before it connected; see kick.pyx

cdef inline Client* client_of(Conn* c) noexcept nogil:
    return <Client*>(<uint8_t*>c - sizeof(SlabItem))
