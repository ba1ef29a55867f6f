# The structs of the broker room: everything hangs off one Broker, so that several can live in one process.
from libc.stdint cimport int8_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.hash cimport HashKey
from cext.base.slab cimport Slab, SlabItem
from cext.base.view cimport View
from cext.base.wheel cimport Timer, Wheel
from cext.net.reactor cimport Conn, Reactor, TransportContext
from cext.net.upgrade cimport UpgradeRules
from cext.session.message cimport Message, Messages
from cext.session.session cimport Session, Sessions
from cext.topic.index cimport Index, List, Match
from cext.topic.options cimport IndexOptions
from cext.topic.retained cimport Retained, RetainedCursor
from cext.broker.acl cimport Acl
from cext.broker.roles cimport Roles
from cext.broker.log cimport Log

cdef enum:
    # named bounds of the data plane; each has a test that reaches it
    HIGH_WATER_BYTES = 256 * 1024       # unsent output of a client above which its queue stays a queue
    LEND_MIN_BYTES = 4096               # payloads from here on are lent to the socket, smaller ones copied
    SHAPES_BYTES = 64 * 1024            # encodings of one publication that are kept for its fan-out
    REPLAY_NODES = 1000                 # retained nodes visited per slice
    DROP_SLICE = 1000                   # subscriptions of an ended session removed per slice, or work of handing its deliveries over
    TIMERS_PER_TURN = 200       # thousands may fall due at once, and each may end a client: the others must not notice
    REPLAY_WAITING_MAX = 100            # a retained replay waits while so many deliveries wait
    REPLAY_BYTES_MAX = 1024 * 1024      # of filters whose retained messages a session still waits for
    WORK_SEND = 50                      # what the first write to a connection in a turn costs, in appends
    LINGER_MS = 2000                    # for the peer to read our last words
    SUB_IDS_MAX = 64                    # identifiers on one merged copy
    LAST_VALUES_MAX = 4096              # deliveries that queue_overflow last_value looks at
    QUEUE_SPAN_MAX = 1 << 20            # positions from the first not acknowledged on, with queue_overflow drop_oldest
    MERGE_KEEP = 1024                   # places of the scratch for merged copies that is kept
    MERGE_BYTES_MAX = 8 * 1024 * 1024   # of all sliced fan-outs that merge; above, one more waits

cdef enum:
    # why a delivery or a message was dropped: index into Stats.drops; names in stats.pyx
    DROP_QUEUE_MESSAGES = 0     # max_queued_messages
    DROP_QUEUE_BYTES = 1        # max_queued_bytes
    DROP_QOS0_BLOCKED = 2       # QoS 0 while the socket is full
    DROP_OUTPUT_BYTES = 3       # max_output_bytes
    DROP_PACKET_SIZE = 4        # over the peer's maximum packet size
    DROP_EXPIRED = 5
    DROP_ACL_READ = 6
    DROP_ACL_WRITE = 7
    DROP_MEMORY = 8             # memory_limit, or none left
    DROP_PAYLOAD_SIZE = 9       # message_size_limit
    DROP_QUOTA = 10             # receive maximum exceeded by a publisher
    DROP_SESSION_ENDED = 11     # owed to a session that ended
    DROP_RETAINED = 12          # a retained message refused or expired
    DROP_TRANSFORM = 13         # taken by a plugin that changes messages
    DROP_DISK = 14              # the store's disk is full
    DROP_REPLACED = 15          # queue_overflow last_value: a newer one for its topic came
    DROP_LOOP = 16              # it came back to a broker that it had been through
    DROP_UNREADABLE = 17        # its record in the store is damaged
    DROP_NO_NAME = 18           # a bridge: none of its lines sends that topic out any more, or under an impossible name
    DROP_REASONS = 19

cdef enum:
    REFUSED_LISTENER = 0        # max_connections
    REFUSED_GLOBAL = 1          # global_max_connections
    REFUSED_CLIENTS = 2         # global_max_clients
    REFUSED_DESCRIPTORS = 3
    REFUSED_MEMORY = 4
    REFUSED_ACCESS = 5          # user name, password, anonymous: CONNECT was not authorised
    REFUSED_AUTH_TIMEOUT = 6    # the control plane did not answer in time
    REFUSED_DISK = 7            # a session that is to last, while the store's disk is full
    REFUSED_REASONS = 8

cdef enum:
    # how long an acknowledgement waits; 0: as for all
    DURABILITY_NONE = 1         # nothing is kept
    DURABILITY_ASYNC = 2        # acknowledged at once, written within the interval
    DURABILITY_GROUP = 3        # acknowledged when it is written: safe from kill -9
    DURABILITY_STRICT = 4       # acknowledged when it is on the disk: safe from a power loss

cdef enum:
    OVERFLOW_NEWEST = 0         # what is dropped when a queue is full
    OVERFLOW_OLDEST = 1
    OVERFLOW_LAST_VALUE = 2     # of each topic one message waits, the last

ctypedef struct DurabilityRule:
    View filter
    uint8_t level

ctypedef struct ShareRule:
    View group
    uint8_t strategy

ctypedef struct Settings:
    uint32_t max_inflight_messages      # 1..65535
    uint32_t receive_maximum            # announced; 0: none
    uint64_t max_inflight_bytes         # 0: no limit, as in all that follow
    uint32_t max_queued_messages
    uint64_t max_queued_bytes
    uint64_t queue_memory               # above, what is on the disk need not be in memory as well
    uint32_t packet_max
    uint32_t message_size_limit
    uint64_t memory_limit
    int64_t global_max_clients          # -1: no limit
    int64_t global_max_connections
    uint32_t max_keepalive_s
    uint32_t connect_timeout_ms
    uint32_t auth_timeout_ms            # for the control plane's answers
    uint32_t log_denied_per_s           # denials that are told at notice; 0: never
    uint32_t persistent_expiry_s        # EXPIRY_NEVER: never
    uint32_t sys_interval_s
    uint32_t max_output_bytes
    uint32_t turn_budget                # appends; see WORK_SEND
    uint32_t topic_levels_max           # at most LEVELS_MAX
    uint8_t queue_qos0
    uint8_t upgrade_outgoing_qos
    uint8_t allow_duplicate_messages
    uint8_t check_retain_source
    uint8_t retain_available
    uint8_t connection_messages
    uint8_t acl_refuse_subscribe
    uint16_t packet_buffer_size         # of an HTTP request that becomes a WebSocket, at most
    uint8_t receive_maximum_disconnect
    uint8_t share_strategy              # of share.pxd; 0: the default
    uint32_t n_share_rules
    uint8_t overflow                    # OVERFLOW_...
    uint32_t n_durability_rules
    DurabilityRule* durability_rules    # the first that matches counts
    ShareRule* share_rules              # by length, then bytes of the group's name
    View* control_topics                # what is published there, the control plane answers
    uint32_t n_control_topics
    IndexOptions index
    uint32_t pool_grow                  # clients per block; 1 with idle_max 0: no pool
    uint32_t pool_idle_max
    View clientid_prefixes              # empty: any
    View version                        # "mosq version X"

ctypedef struct Security:
    # who may do what: one for the broker, or one per listener. Stays where it is over a reload, which changes what is in it
    Acl* acl                            # NULL: everything is allowed, where there are no roles either
    Roles* roles                        # dynamic security: asked before the acl; a reference. NULL: none
    uint8_t guards                      # deliveries are checked: rules, a plugin's verdicts or transforms
    uint8_t authenticate                # user names and passwords are checked by the control plane
    uint8_t ask_anonymous               # so are clients without a user name
    uint8_t authorize                   # a plugin decides about topics
    uint8_t extended                    # authentication methods are offered [v5 4.12]
    uint8_t events                      # who comes, goes, subscribes is told
    Acl* transform_in                   # topics (as if to be read) of messages that a plugin changes; NULL: none
    Acl* transform_out
    uint32_t place                      # in the control plane's list
    Security* gone_next                 # no listener uses it any more; sessions may

ctypedef struct Door:
    # a listener with its settings. Stays where it is over a reload, which changes what is in it
    Security* security
    Door* gone_next                     # its listener was removed; some connections are not freed yet
    uint8_t is_gone
    uint16_t port                       # 0: unix socket, or none
    uint8_t durability                  # of what its clients publish; 0: as for all
    uint8_t allow_anonymous
    uint8_t allow_zero_length_clientid
    uint8_t max_qos
    uint8_t versions                    # bit 1 << level
    uint8_t use_username_as_clientid
    uint16_t alias_max_in               # announced to clients
    uint16_t alias_max_out              # at most so many are used towards a client
    int64_t max_connections             # -1: no limit
    uint32_t n_connections
    void* link                          # Link* of link.pxd: these are its connections; NULL: a listener's
    uint8_t renames                     # topics or flags of what goes out change: a mount point, a link's lines
    View auto_id_prefix
    View mount_point
    uint8_t websockets
    uint8_t proxy_version               # of the header that every connection begins with; 0: none
    uint8_t proxy_require_tls
    uint8_t require_certificate
    uint8_t use_identity_as_username
    uint8_t use_subject_as_username
    TransportContext* secure            # NULL: no TLS. A reference
    UpgradeRules upgrade                # its origins are this Door's

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
    C_ASKING = 3                        # its CONNECT waits for the control plane, or for the client's AUTH
    C_OPENING = 4                       # a link's: on its way to CONNACK

cdef enum:
    CF_BRIDGE = 1
    CF_TRUSTED = 2                      # of the embedding process
    CF_PROBLEM_INFO = 4                 # Request Problem Information
    CF_DOOMED = 8                       # in the list of those to be ended after this turn
    CF_REAUTH = 16                      # an exchange of AUTH packets goes on while it is connected
    CF_IDENTIFIED = 32                  # TLS found who it is, and its user name is that
    CF_LINK = 64                        # we are the client: door.link says which link it is

cdef enum:
    TIMER_CLIENT = 1
    TIMER_SESSION = 2
    TIMER_RETAINED = 3
    TIMER_SYS = 4
    TIMER_QUESTION = 5
    TIMER_DENIED = 6
    TIMER_LINK = 7
    TIMER_ACCOUNTS = 8
    TIMER_CURSORS = 9

cdef enum:
    PARKED_CONNECT = 1
    PARKED_AUTH = 2                     # of a connected client
    PARKED_PUBLISH = 3
    PARKED_FILTERS = 4                  # SUBSCRIBE, UNSUBSCRIBE

ctypedef struct Owned:
    uint8_t* p                          # malloc's; NULL: none
    uint32_t n

ctypedef struct Parked:
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

ctypedef struct Promise:        # an acknowledgement that waits for a batch
    uint32_t serial             # of the batch; 0: only for those before it
    uint32_t pending            # its message, while that batch is the open one
    uint16_t pid
    uint8_t packet_type
    uint8_t rc

ctypedef struct Promises:           # of a client, in order [v5 4.6.0-2]
    Promise* ring
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
    Door* door                          # NULL: adopted
    Timer timer                         # first CONNECT, keepalive, linger
    Will* will
    Aliases* aliases                    # NULL: none, either way
    Client* doomed_next
    Parked* parked                      # its packet that waits for the control plane; NULL: none
    Promises* promises                  # acknowledgements that wait for the store; NULL: none ever did
    Names* names                        # what few clients have; NULL: nothing of it. See parked.pxd
    uint64_t question                   # handle of what is asked for its CONNECT, its exchange of AUTH, its PUBLISH; 0: nothing
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

ctypedef struct Shape:
    uint8_t* p
    uint32_t n
    uint32_t pid_at

ctypedef struct Publication:
    # a message on its way through route and deliver
    View topic
    View props                          # forwardable
    View payload
    uint64_t expires_ms                 # 0: never
    Session* source                     # NULL: the broker itself, or a publisher that is gone
    Message* message                    # stored lazily; once set, the publication holds a reference
    uint8_t* steal                      # the input buffer that the payload lies in, when it may be taken over
    uint32_t steal_cap
    uint8_t qos
    uint8_t retain
    uint8_t shaped                      # small enough for shapes
    uint8_t dup                         # of the PUBLISH that it came with; QoS 1
    uint8_t durability                  # 0: as for all
    uint8_t journalled                  # it is in its streams
    uint16_t share                      # through a shared group: its place in the session's table, plus 1; see share.pyx
    View frame                          # the frame as it came, when it may be passed on as it is
    uint32_t frame_pid_at
    uint8_t frame_version
    uint32_t shapes_used                # bytes of broker.shape_bytes
    uint32_t shapes_made                # bit i: shapes[i] is encoded
    Shape shapes[12]                    # (v5, qos, retain); last, as it is not cleared

cdef enum:
    JOB_FANOUT = 1
    JOB_REPLAY = 2
    JOB_DROP = 3
    JOB_KICK = 4

ctypedef struct MergePlace:
    void* who                           # of a session's first place; NULL: a further one
    uint32_t list
    uint32_t position
    uint32_t next                       # place of the same session
    uint32_t last                       # of a first place

ctypedef struct Merge:                  # who is in the lists of a match, and where; see merge.pyx
    MergePlace* places
    uint32_t* slots                     # of first places, plus 1; 0: free. At most half full
    uint32_t n
    uint32_t cap
    uint32_t mask
    uint32_t slots_cap

cdef enum:
    MERGE_NOT = 0
    MERGE_WANTED = 1
    MERGE_GATHERS = 2
    MERGE_DELIVERS = 3

ctypedef struct Job:
    Job* next
    uint8_t kind
    uint8_t blocked                     # replay: waits for output to drain or for acknowledgements; not in the list meanwhile
    uint8_t options                     # replay: of the subscription whose cursor is open
    uint8_t open                        # replay: a cursor is open
    uint32_t sub_id
    uint32_t owner_index                # the client that waits for it: slab handle
    uint32_t owner_generation
    Session* session                    # replay, drop: whose; counted in session.jobs
    Message* message                    # fan-out
    Session* source
    List** lists                        # fan-out: pinned
    uint32_t* ends
    uint32_t n_lists
    uint32_t list
    uint32_t position
    uint16_t released_pid               # fan-out: of the QoS 2 message that PUBREL let go; 0: none
    uint8_t merging                     # fan-out: MERGE_...
    uint8_t durability                  # fan-out: of the publication
    uint32_t merge_n                    # entries to be gathered, at most
    Merge merge
    RetainedCursor cursor
    uint8_t* todo                       # replay: filters still to come, see retain.pyx
    uint32_t todo_at
    uint32_t todo_n
    uint32_t todo_cap
    View* kicked                        # kick: a table of user names
    uint32_t kicked_mask
    uint32_t kick                       # which it is; `position`: of the next client

ctypedef struct Stats:
    uint64_t messages_in                # packets of any kind
    uint64_t messages_out
    uint64_t publish_in
    uint64_t publish_out
    uint64_t publish_bytes_in           # payload
    uint64_t publish_bytes_out
    uint64_t publish_dropped
    uint64_t sockets                    # accepted
    uint64_t connections                # CONNECTs accepted
    uint64_t clients_expired
    uint64_t clients_max
    uint64_t clients_connected
    uint64_t shed                       # connections ended for a protocol error
    uint64_t drops[DROP_REASONS]
    uint64_t refused[REFUSED_REASONS]
    uint64_t asked                      # questions to the control plane
    uint64_t ask_timeouts               # of them, not answered in time
    uint64_t answers_stale              # late, twice, or for a client that is gone
    uint64_t events_lost                # found the ring full

ctypedef struct Average:
    # a load average over 1, 5 and 15 minutes, per minute
    uint64_t last
    double value[3]
    double sent[3]
    uint8_t was_sent

ctypedef struct Broker:
    Reactor reactor
    Wheel wheel
    Settings settings
    HashKey key
    HashKey names_key                   # of client ids: with a store the same in each process, since messages on record have such hashes
    Index* index
    Retained* retained
    Sessions sessions
    Messages messages
    Slab clients
    Match match
    Stats stats
    Log log
    Security** securities               # the first is that of adopted connections
    uint32_t n_securities
    Door** doors                        # by place in the control plane's list
    uint32_t n_doors
    Door* adopted                       # of connections without a listener
    Door* gone                          # whose listeners a reload has removed
    Security* gone_securities
    Job* jobs
    Job* jobs_tail
    Client* doomed
    uint32_t kicks                      # that there ever were
    uint32_t kicks_open
    uint32_t recheck_at                 # clients from here on have not shown their certificate to what a reload made
    bint rechecks
    uint64_t work                       # appends so far, sends weighed in
    uint8_t* shape_bytes
    Merge merge                         # of fan-outs that are done at once
    uint64_t merging_bytes              # held by those in slices
    uint64_t cursor_bytes               # held for those who are slow to read streams
    uint64_t groups_met                 # the last id given to a shared group
    uint64_t dice                       # state of the random strategy
    uint8_t* scratch                    # grows to what one packet needs, shrinks when idle
    uint32_t scratch_cap
    int64_t descriptors_warned_s
    uint32_t stopping
    uint64_t started_ms
    int64_t started_s
    Timer sys_timer
    uint64_t sys_next_s
    Average loads[9]
    void* sys                           # what was last published, see sys.pyx
    void* durable                       # what is to outlive the broker, see durable.pxd; NULL: nothing is
    void* streams                       # Streams* of streams.pxd; NULL: none
    void* accounts                      # Accounts* of accounts.pxd; NULL: nobody wants events
    void* mailbox
    void* asking                        # questions to the control plane, see ask.pyx
    void* links                         # Links* of link.pxd; NULL: none
    uint32_t access_epoch               # begins anew with every reload: what was found out about rules is void
    uint8_t ask_unread                  # the reader should be woken at the end of the turn
    uint8_t answers_due                 # there may be some
    Timer denied_timer                  # armed while denials are counted
    uint32_t denied_n                   # in the last second

cdef inline Client* client_of(Conn* c) noexcept nogil:
    return <Client*>(<uint8_t*>c - sizeof(SlabItem))

cdef int broker_init(Broker* b) noexcept nogil              # settings are set already; 0 or errno
cdef void broker_fini(Broker* b) noexcept nogil
# The loop, until ASK_STOP; event_fd is written to when there is something to read in the log.
cdef int broker_run(Broker* b, int event_fd) noexcept nogil
