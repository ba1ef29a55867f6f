# The parts of a load: the clients, the sources of messages, the streams that receivers see, and the counters. Structs only; the
# modules that use them are client (sockets), arrivals (input), flow (output) and loop (turns and goals).
#
# A *source* is one topic with its numbered messages. A publisher sends those of its own sources in turn: first_source,
# first_source + stride, ...
# A *stream* is what one receiver gets from one source; if streams are shared, what all receivers together get. Receivers get all
# sources of a range, or, with `takers`, each source has its own receivers.
# The first 16 bytes of a payload: u48 nanoseconds from the beginning of the load to the time at which the message is due; u16
# mark of the run; u32 source; u32 number.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.bench.histogram cimport Histogram
from cext.bench.stream cimport Stream
from cext.net.outward cimport sockaddr_storage

cdef enum:
    STAMP_SIZE = 16
    INFLIGHT_MAX = 10000
    HELD_BYTES = 1024           # kept bytes of a PUBLISH whose rest is skipped: enough to recognise it
    HELD_OTHER_MAX = 65536      # largest size of any other packet in bytes
    OUT_MAX = 300 << 20         # bytes that wait for one socket: the longest frame, and acknowledgements
    READ_BYTES = 512 * 1024
    BURST_BYTES = 64 * 1024     # size of one send, unless a single message is larger
    LOAD_EVENTS_MAX = 512

cdef enum:                      # Client.state
    CLIENT_OFF = 0
    CLIENT_OPENING = 1          # the socket is not connected yet
    CLIENT_SECURING = 2         # TLS handshake
    CLIENT_UPGRADING = 3        # WebSocket handshake
    CLIENT_GREETING = 4         # CONNECT was sent
    CLIENT_UP = 5
    CLIENT_LEAVING = 6          # DISCONNECT was sent; the client waits until the broker ends the connection
    CLIENT_DEAD = 7

cdef enum:                      # Slot.state: the acknowledgement for which the packet id waits
    SLOT_FREE = 0
    SLOT_PUBACK = 1
    SLOT_PUBREC = 2
    SLOT_PUBCOMP = 3
    SLOT_SUBACK = 4

cdef enum:                      # Failure.kind
    FAIL_NONE = 0
    FAIL_CONNECT = 1            # code: errno
    FAIL_REFUSED = 2            # code: that of CONNACK
    FAIL_CLOSED = 3             # code: errno; 0 = an orderly end
    FAIL_DISCONNECT = 4         # code: that of DISCONNECT
    FAIL_MALFORMED = 5          # code: packet type
    FAIL_SUBSCRIBE = 6          # code: that of SUBACK
    FAIL_MEMORY = 7
    # code: packet type excluded by the broker's limits (Maximum QoS, Maximum Packet Size, Retain Available)
    FAIL_LIMIT = 8
    FAIL_TLS = 9                # text only
    FAIL_CERTIFICATE = 10       # code: X509_V_ERR_x; text
    FAIL_WEB = 11               # code: HTTP status; 0 = no HTTP; 1 = 101 with another key; from 1000 on RFC 6455 7.4.1
    FAIL_PROTOCOL = 12          # code: the protocol of the peer if it is not MQTT, PEER_SPEAKS_x
    FAIL_GRANTED = 13           # code: the QoS in SUBACK, lower than requested
    FAIL_NUMBERS = 14           # a publisher has sent number_max messages and must send more

cdef enum:
    PEER_SPEAKS_TLS = 1
    PEER_SPEAKS_HTTP = 2

ctypedef struct Slot:
    uint64_t sent_ns
    uint32_t fan
    uint8_t state

ctypedef struct Failure:        # the first failure
    uint32_t kind
    int code
    uint32_t client
    uint8_t state               # state of the client at that time
    const char* text            # NULL = none; the text is constant

ctypedef struct Source:
    uint32_t head_at            # offset of its PUBLISH, without the payload, in Load.heads
    uint32_t head_n
    uint32_t pid_at             # offset of the packet id in the head
    uint32_t fan                # number of deliveries that a message causes
    uint32_t sent

ctypedef struct Arrival:        # a PUBLISH with an incomplete payload
    uint64_t stamp
    uint64_t place
    uint16_t pid
    uint8_t qos
    uint8_t known               # it has a stamp

ctypedef struct Client
ctypedef struct Load

ctypedef struct TransportLayer:
    # Functions between MQTT and the sockets (transports.pyx). Each may end in client_fail.
    void (*begin)(Load* g, Client* c) noexcept nogil             # the socket is connected; it ends with client_greet
    void (*write)(Load* g, Client* c, const uint8_t* p, size_t n) noexcept nogil
    # Read once. Return the number of bytes of MQTT put at p.
    size_t (*receive)(Load* g, Client* c, uint8_t* p, size_t n) noexcept nogil
    void (*leave)(Load* g, Client* c) noexcept nogil             # nothing more will be written
    void (*fini)(Client* c) noexcept nogil

ctypedef struct Client:
    int fd
    uint8_t state
    uint8_t queued              # in the ring of publishers that may send
    uint8_t armed               # EPOLLOUT is set
    uint8_t arriving            # `arrival` counts when skip is 0
    uint16_t inflight
    uint16_t window             # limit of inflight
    uint16_t n_free
    uint16_t* free_pids         # free slots; taken from the end
    Slot* slots
    uint32_t sent               # messages; for a subscriber: filters
    uint32_t quota              # limit of `sent`; equal for all publishers
    uint32_t n_due              # messages that are due and not sent, at a fixed rate
    uint32_t source             # source of the next message
    uint32_t first_source       # receives from the sources [first_source, first_source + n_sources)
    uint32_t n_sources
    uint32_t first_stream
    uint32_t held_n
    uint8_t* held               # beginning of an incomplete packet
    uint64_t skip               # bytes of the packet that are not read
    Arrival arrival
    uint8_t* out                # bytes out[out_at] .. out[out_n - 1] that the socket did not accept
    size_t out_at
    size_t out_n
    size_t out_cap
    uint64_t begun_ns
    void* transport             # TransportState of Load.transport

ctypedef struct Counts:
    uint64_t published
    uint64_t expected           # deliveries of the published messages
    uint64_t received           # including duplicates
    uint64_t twice
    uint64_t late               # after a message that was sent later
    uint64_t foreign            # not of this run, or not for this client
    uint64_t acknowledged
    uint64_t refused            # publications refused by a reason code
    uint64_t stray              # acknowledgements without a packet
    uint64_t up
    uint64_t subscribed
    uint64_t closed             # connections not ended by the load
    uint64_t left
    uint64_t pongs
    uint64_t written_off        # deliveries that the window no longer waits for
    uint64_t bytes_received
    uint64_t large_bytes        # part of bytes_received: payloads that were not read

ctypedef struct Goal:
    uint32_t kind               # GOAL_x of loop.pxd
    uint32_t first              # clients [first, first + n)
    uint32_t n
    uint32_t next               # next client to be connected
    uint32_t pending_max        # limit of simultaneous handshakes
    uint64_t target             # target of the counter of this kind
    uint64_t base               # counts.up + counts.closed at the beginning; for GOAL_LEFT: left + closed

ctypedef struct Load:
    # settings
    uint8_t version
    uint8_t qos
    uint8_t retain
    uint8_t shared              # streams belong to sources: any receiver takes a message
    uint16_t mark
    uint32_t payload_n
    uint32_t n_publishers       # clients [0, n_publishers)
    uint32_t stride             # distance between the sources of a publisher
    uint8_t drawn               # the next source is drawn at random instead of in turn
    uint32_t inflight
    uint32_t burst
    uint32_t number_max         # limit of the messages of one publisher in one flow: numbers in payloads have 32 bits
    uint64_t window             # deliveries on their way; 0 = no limit
    double interval_ns          # between two messages of all publishers; 0 = at full speed
    uint64_t messages_max       # 0 = no limit
    uint64_t end_ns             # time after which no message is due; 0 = none
    uint64_t stall_ns
    sockaddr_storage address
    uint32_t address_n
    const TransportLayer* transport         # NULL: MQTT lies directly on the socket
    # parts
    uint32_t n_clients
    Client* clients
    uint32_t n_sources
    Source* sources
    uint8_t* heads
    uint32_t head_max           # size of the longest head in bytes
    uint32_t n_streams
    Stream* streams
    # Receivers; NULL = ranges. Stream i is that of client takers[i]; source s has those from taker_at[s] to taker_at[s + 1].
    uint32_t* takers
    uint32_t* taker_at
    # for shared streams: number after the highest one that receiver r got from source s, at r * n_sources + s
    uint32_t* lasts
    uint8_t* greetings          # CONNECT of client i: from greeting_at[i] to greeting_at[i + 1]
    uint32_t* greeting_at
    uint32_t n_filters
    uint32_t filter_max         # size of the longest in bytes; a SUBSCRIBE with it fits `scratch`
    # filter i: from filter_at[i] to filter_at[i + 1]; client goal.first + i % goal.n requests it
    uint8_t* filters
    uint32_t* filter_at
    uint32_t* ring              # publishers that may send
    uint32_t ring_at
    uint32_t ring_n
    # state
    int ep
    uint64_t epoch_ns
    uint64_t now_ns             # time of the last read or write
    uint64_t flow_ns            # beginning of the flow
    uint64_t scheduled          # number of messages that became due
    uint64_t dice               # state of the random numbers; never 0
    uint64_t flow_published     # counter at the beginning of the flow
    uint64_t flow_acknowledged
    uint64_t last_published_ns
    uint64_t last_received_ns
    uint64_t progress
    uint64_t progress_ns
    uint8_t sending             # a flow is running: publishers that are ready may publish
    uint8_t tolerant            # a lost connection is counted and does not end the goal
    Goal goal
    Failure failure
    Counts counts
    Histogram latency           # of deliveries, from the time in their stamp
    Histogram ack               # from PUBLISH to PUBACK or PUBCOMP, from SUBSCRIBE to SUBACK
    Histogram handshake         # from the open socket to the end of the TLS and WebSocket handshakes
    Histogram greeting          # from the first packet of a connection to CONNACK
    Histogram lateness          # from the due time of a message to its sending, at a fixed rate
    uint8_t* buffer             # size = READ_BYTES
    uint8_t* answers            # acknowledgements of one read
    size_t answers_n
    uint8_t* scratch            # one burst
    size_t scratch_cap
