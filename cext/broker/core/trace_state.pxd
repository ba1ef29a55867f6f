# The traces of a broker: clients, topics or addresses to follow, and the ring of events. The room cext/broker/trace works on these structs.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.view cimport View
from cext.base.wheel cimport Timer
from cext.broker.core.log cimport pthread_mutex_t
from cext.net.address cimport Network
from cext.net.conn_state cimport input_fn

cdef extern from *:
    """
    #ifndef MOSQ_TRACE_COUNT
    #define MOSQ_TRACE_COUNT
    #include <stdint.h>
    static inline void mosq_trace_put(uint64_t* count, uint64_t value) { __atomic_store_n(count, value, __ATOMIC_RELAXED); }
    static inline uint64_t mosq_trace_get(const uint64_t* count) { return __atomic_load_n(count, __ATOMIC_RELAXED); }
    #endif
    """
    void trace_count_put "mosq_trace_put" (uint64_t* count, uint64_t value) noexcept nogil
    uint64_t trace_count_get "mosq_trace_get" (const uint64_t* count) noexcept nogil

cdef enum:
    TRACES_MAX = 4              # traces at one time
    TRACE_RING_BYTES = 1 << 20  # bytes of unread events; allocated twice, while there is a trace or its last events are unread
    TRACE_HEAD_MAX = 8192       # bytes of a packet before its payload
    TRACE_PAYLOAD_MAX = 16384   # largest bound of the payload
    TRACE_TEXT_MAX = 1024       # bytes of a topic or of a rule in an event
    TRACE_RATE_MAX = 100000     # events per second
    TRACE_SECONDS_MAX = 86400

cdef enum:
    # what a trace follows
    TRACE_FREE = 0
    TRACE_CLIENT = 1            # a client id
    TRACE_TOPIC = 2             # messages whose topic a filter matches
    TRACE_ADDRESS = 3           # clients of a network, or of one port there

cdef enum:
    # kinds of events
    TE_RECEIVED = 1          # a packet of the client
    TE_SENT = 2              # a packet to the client
    TE_ACCESS = 3            # a decision about a topic; code: TRACE_ALLOWED ..., qos: kind of access
    TE_QUEUED = 4            # a delivery waits in the queue of its session
    TE_DROPPED = 5           # code: DROP_ of stats.pxd
    TE_CLOSED = 6            # the client ended; text: the reason
    TE_END = 7         # the last event of a trace; code: TRACE_END_

cdef enum:
    TRACE_DENIED = 0
    TRACE_ALLOWED = 1
    TRACE_BY_PLUGIN = 2         # a plugin decides

cdef enum:
    TRACE_END_ASKED = 0
    TRACE_END_TIME = 1
    TRACE_END_OWNER = 2         # its owner has disconnected
    TRACE_END_COUNT = 3

ctypedef struct TraceSlot:
    Timer timer                 # its time limit
    uint64_t id                 # numbers the traces of a broker
    uint64_t owner              # handle of the client that asked for it; 0: none
    uint64_t most               # events until it ends
    uint64_t passed             # events so far
    uint64_t second_ms          # begin of the present second, and the events in it
    uint32_t in_second
    uint32_t rate               # events per second
    uint32_t payload_max        # bytes of a payload
    uint8_t kind                # TRACE_
    Network network
    uint16_t port               # 0: any
    View what                   # client id or filter; owned
    # both: only the loop writes, and other threads read them: trace_count_put, trace_count_get
    uint64_t limited            # events above the rate
    uint64_t lost               # events that found the ring full

ctypedef struct TraceSpec:      # a request for a trace
    uint8_t kind
    uint64_t owner
    uint64_t most
    uint32_t rate
    uint32_t payload_max
    uint32_t seconds
    Network network
    uint16_t port
    View what
    uint64_t id                 # the answer
    uint32_t slot               # the answer

ctypedef struct TraceRecord:    # followed by client id, address, own address, topic, text, bytes of the packet; padded to 8
    uint64_t us                 # wall clock, since 1970
    uint64_t client             # handle of the client; 0: none
    uint32_t size               # with everything that follows
    uint32_t head_n             # bytes here of the packet before its payload
    uint32_t payload_n          # bytes here of its payload
    uint32_t total              # bytes of the whole packet
    uint32_t queue              # deliveries in the queue of the session
    uint16_t id_n
    uint16_t address_n
    uint16_t local_n
    uint16_t topic_n
    uint16_t text_n
    uint16_t port               # of the client
    uint16_t listener           # port of its listener
    uint8_t kind                # TE_
    uint8_t slots               # bit 1 << slot: the traces that it belongs to
    uint8_t version             # protocol level of the client
    uint8_t code
    uint8_t qos
    uint8_t spare[1]

ctypedef struct Tracing:
    TraceSlot slots[TRACES_MAX]
    uint32_t n                  # traces
    uint64_t begun              # traces since the start
    input_fn untraced           # the reactor's function for input without a trace
    pthread_mutex_t lock        # guards the halves; held for one copy
    uint8_t* filling
    uint8_t* draining
    uint32_t used
    uint8_t* mounted            # room for a topic with its mount point
