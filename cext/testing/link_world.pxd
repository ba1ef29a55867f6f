# The world of the simulator of links (link_sim.pyx): workers with the real links and a model of a broker around each, clients, and the
# network between the workers. Everything has a fixed size, so that a schedule allocates nothing but what the links allocate.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.hash cimport HashKey
from cext.link.state cimport LinkLimits, LinkOps, LinkWaiter, Links

ctypedef struct World
ctypedef struct Worker

cdef enum:
    WORKERS = 5
    CLIENTS = 8
    TOPICS = 4
    FILTERS = 6                 # the last two are shared groups
    GROUPS_FROM = 4
    MESSAGES = 80
    QUEUE = 140                 # deliveries that wait in a session
    PIDS = 4                    # packet ids of a client; the last one is its will
    WILL = 3
    IDENTITIES = 100
    HOLES = 64
    LONG = 300                  # deliveries that take several turns
    PENDING = 64
    CONNECTIONS = 64
    BYTES = 16384               # bytes of one direction of a connection
    WIRE = 700                  # bytes in the system's socket buffer
    NONE = 255
    PAYLOAD_MAX = 120

    KIND_LIVE = 0
    KIND_RETAINED = 1
    KIND_GROUP = 2

ctypedef struct Due:            # a delivery in a session's queue
    uint16_t message
    uint8_t qos
    uint8_t kind
    uint32_t seq                # of the session; the client knows by it what it has
    uint32_t batch              # it is sent after this batch

ctypedef struct Inbound:        # inbox record of a QoS 2 message, or a will
    uint16_t message            # 0 = none
    uint8_t local_done          # 1 = the local deliveries are recorded
    uint8_t choice[2]           # for each group: worker + 1, 0 = not chosen
    uint8_t begun               # 1 = a will that must be sent
    uint8_t group_done          # mask: the local delivery to the group is recorded
    uint64_t identity

ctypedef struct Session:
    uint8_t exists
    uint8_t durable
    uint8_t qos[FILTERS]        # NONE = not subscribed
    uint16_t waiting            # deliveries in the queue
    uint32_t seq
    Inbound inbox[PIDS]
    Due queue[QUEUE]

ctypedef struct Mark:
    uint64_t log
    uint64_t run
    uint64_t number
    uint32_t holes
    uint64_t hole[HOLES]

ctypedef struct Known:          # a recorded identity of another log
    uint64_t log
    uint64_t identity
    uint16_t part
    uint8_t slot

ctypedef struct State:          # the content of a store
    uint64_t log
    uint64_t run
    uint32_t known_n
    uint16_t retained[TOPICS]   # of the topics that this worker owns
    Mark marks[WORKERS]
    Known known[IDENTITIES]
    Session sessions[CLIENTS]

ctypedef struct Waiting:        # a client's packet that is not answered
    uint8_t kind                # WAIT_...; 0 = free
    uint8_t client
    uint8_t item                # packet id, or filter
    uint8_t stage
    uint16_t message
    uint32_t epoch              # connection of the client
    uint64_t identity
    LinkWaiter* waiter
    Worker* worker

cdef enum:
    WAIT_PUBACK = 1
    WAIT_PUBREC = 2
    WAIT_ROUTED = 3             # released by all logs
    WAIT_PUBCOMP = 4            # the end of the inbox record is committed
    WAIT_ROUTES = 5
    WAIT_CURRENT = 6
    WAIT_SUBACK = 7
    WAIT_CONNACK = 8

ctypedef struct Route:
    uint8_t there
    uint8_t qos
    uint16_t generation
    uint32_t online

ctypedef struct Copy:           # a retained message of another owner
    uint16_t message
    uint16_t generation

ctypedef struct SimMessage:     # what a Message is in the broker; each start of a worker has its own
    uint32_t refs

ctypedef struct LongDelivery:   # a message whose delivery takes several turns
    uint64_t log                # of its sender
    uint64_t run
    uint64_t number             # 0 = it has none
    uint64_t identity
    uint16_t message
    uint8_t slot
    uint8_t qos
    uint8_t recorded            # 1 = a part of it is in a batch

ctypedef struct Worker:
    World* world
    uint8_t index
    uint8_t alive
    uint8_t frozen
    uint8_t starved             # 1 = it finds no memory for messages of other workers
    uint8_t ready
    uint8_t stored              # 0 = a worker without a store
    uint8_t sealing             # 1 = a sealed batch is not committed
    uint8_t out[WORKERS]        # connection + 1
    uint8_t inward[WORKERS]
    uint8_t notice[WORKERS]     # 1 = the parent reports the end of this worker
    uint64_t notice_run[WORKERS]
    uint64_t batch              # the open one
    uint64_t sealed_batch
    uint32_t kept               # references to messages
    Links links
    Route routes[WORKERS][FILTERS]
    Copy copies[WORKERS][TOPICS]
    Waiting waiting[PENDING]
    uint32_t long_n
    LongDelivery long_[LONG]
    SimMessage message[MESSAGES]
    uint16_t number[MESSAGES]   # properties of the messages on the wire
    State live
    State sealed
    State committed

ctypedef struct Sending:        # a message that a client has not finished
    uint16_t message
    uint8_t stage               # 1 = PUBLISH, 2 = PUBREL
    uint8_t pending             # 1 = it must be sent (again)
    uint32_t order

ctypedef struct SimClient:
    uint8_t home
    uint8_t durable
    uint8_t version             # 5 = refused messages are given up; 3 = the worker does not read while a link is full
    uint8_t connected
    uint8_t connecting          # CONNECT is sent
    uint8_t has_will
    uint32_t epoch
    uint32_t seen               # highest seq of this session
    uint16_t will
    uint8_t sub[FILTERS]        # 0 none, 1 SUBSCRIBE sent, 2 SUBACK came, 3 the connection broke before SUBACK
    uint8_t sub_qos[FILTERS]
    uint32_t sub_at[FILTERS]
    Sending sending[WILL]
    uint8_t live[MESSAGES]      # copies that came
    uint8_t sure[MESSAGES]      # ... with QoS 1 or 2
    uint8_t retained[MESSAGES]
    uint16_t last[CLIENTS][TOPICS][3]   # highest message of a publisher, by topic and QoS

ctypedef struct Sent:           # a message that was published
    uint8_t publisher
    uint8_t topic
    uint8_t qos
    uint8_t retain
    uint8_t clear               # without payload
    uint8_t acked
    uint8_t bytes
    uint8_t order               # 1 = it has a place in the order of its publisher
    uint8_t group_copies[2]
    uint8_t group_gone[2]       # 1 = a member got it that does not keep it
    uint32_t sends
    uint32_t at                 # step of the first PUBLISH
    uint32_t acked_at

ctypedef struct Direction:
    uint32_t n                  # bytes that were written
    uint32_t sent               # ... that are on the wire or were read
    uint32_t seen               # ... that the reader has
    uint32_t taken              # ... that the reader has handled
    uint8_t data[BYTES]

ctypedef struct Connection:
    uint8_t used
    uint8_t a
    uint8_t b
    uint8_t a_open
    uint8_t b_open
    uint8_t bound               # 1 = B has read HELLO
    uint8_t cut                 # 1 = what is on the wire is lost
    uint8_t slow                # 1 = it is seldom read
    Direction forth
    Direction back

ctypedef struct World:
    uint64_t random
    uint64_t off
    HashKey key
    LinkLimits limits
    LinkOps ops
    uint32_t workers
    uint32_t clients
    uint32_t step
    uint32_t moved              # counts what happened, to know when everything is quiet
    uint32_t messages           # number of the last one
    uint32_t order
    uint32_t faults
    uint8_t quiet               # 1 = no faults any more
    uint8_t rate[14]            # of this schedule
    uint8_t slow[WORKERS]       # 1 = commits are late
    uint32_t stall[WORKERS]     # step after which this worker commits nothing; 0 = none
    uint8_t store_lost[WORKERS]
    Worker worker[WORKERS]
    SimClient client[CLIENTS]
    Sent sent[MESSAGES]
    Connection connection[CONNECTIONS]
    char* trace                 # NULL = off
    size_t trace_n
    size_t trace_cap
    const char* failure
    int64_t detail[4]

cdef void note(World* g, const char* text, int64_t a, int64_t b, int64_t c) noexcept nogil
cdef void fail(World* g, const char* text, int64_t a, int64_t b, int64_t c) noexcept nogil
cdef bint without(World* g, int rule) noexcept nogil


cdef inline uint32_t chance(World* g, uint32_t n) noexcept nogil:      # 0 .. n - 1
    g.random ^= g.random >> 12
    g.random ^= g.random << 25
    g.random ^= g.random >> 27
    return <uint32_t>((g.random * 0x2545F4914F6CDD1Du) >> 33) % n
