# What a load consists of: the clients, the sources of messages, the streams that receivers see, and what was counted. Structs only; who works on
# them: client (sockets), arrive (what comes), flow (what is sent), loop (turns and goals).
#
# A *source* is one topic with its numbered messages. A publisher sends those of its own sources in turn: first_source, first_source + stride, ...
# A *stream* is what one receiver (shared: all of them together) gets of one source. Receivers get all of the sources in a range, or, where
# `takers` says so, each source has its own few.
# The first 16 bytes of a payload: u48 nanoseconds since the load began, when the message was to be sent; u16 mark of the run; u32 source;
# u32 number.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.bench.histogram cimport Histogram
from cext.bench.stream cimport Stream
from cext.net.outward cimport sockaddr_storage

cdef enum:
    STAMP_SIZE = 16
    INFLIGHT_MAX = 10000
    HELD_BYTES = 1024           # of a PUBLISH: enough to know it, when the rest is skipped
    HELD_OTHER_MAX = 65536      # bytes of any other packet
    OUT_MAX = 300 << 20         # bytes that wait for one socket: the longest frame, and acknowledgements
    READ_BYTES = 512 * 1024
    BURST_BYTES = 64 * 1024     # of one send, but for a message that is larger
    EVENTS_MAX = 512

cdef enum:                      # Client.state
    CLIENT_OFF = 0
    CLIENT_OPENING = 1          # the socket is not connected yet
    CLIENT_SECURING = 2         # in the handshake of TLS
    CLIENT_UPGRADING = 3        # in that of a WebSocket
    CLIENT_GREETING = 4         # CONNECT was sent
    CLIENT_UP = 5
    CLIENT_LEAVING = 6          # DISCONNECT was sent; the broker's end of the connection is awaited
    CLIENT_DEAD = 7

cdef enum:                      # Slot.state: what is awaited for this packet id
    SLOT_FREE = 0
    SLOT_PUBACK = 1
    SLOT_PUBREC = 2
    SLOT_PUBCOMP = 3
    SLOT_SUBACK = 4

cdef enum:                      # Failure.kind
    FAIL_NONE = 0
    FAIL_CONNECT = 1            # code: errno
    FAIL_REFUSED = 2            # code: of CONNACK
    FAIL_CLOSED = 3             # code: errno, 0: an orderly end
    FAIL_DISCONNECT = 4         # code: of DISCONNECT
    FAIL_MALFORMED = 5          # code: packet type
    FAIL_SUBSCRIBE = 6          # code: of SUBACK
    FAIL_MEMORY = 7
    FAIL_LIMIT = 8              # code: the packet type that the broker's limits (Maximum QoS, Maximum Packet Size, Retain Available) rule out
    FAIL_TLS = 9                # text
    FAIL_CERTIFICATE = 10       # code: X509_V_ERR_x; text
    FAIL_WEB = 11               # code: HTTP status, 0: no HTTP, 1: 101 for somebody else; from 1000 on: RFC 6455 7.4.1
    FAIL_TONGUE = 12            # code: what it speaks instead of MQTT: TONGUE_x
    FAIL_GRANTED = 13           # code: the QoS of SUBACK, less than was asked for
    FAIL_NUMBERS = 14           # a publisher has sent number_max messages, and was to go on

cdef enum:
    TONGUE_TLS = 1
    TONGUE_HTTP = 2

ctypedef struct Slot:
    uint64_t sent_ns
    uint32_t fan
    uint8_t state

ctypedef struct Failure:        # the first one
    uint32_t kind
    int code
    uint32_t client
    uint8_t state               # that the client was in
    const char* text            # NULL: none; it lives as long as the program

ctypedef struct Source:
    uint32_t head_at            # its PUBLISH up to the payload, in Load.heads
    uint32_t head_n
    uint32_t pid_at             # in it
    uint32_t fan                # deliveries that a message is to cause
    uint32_t sent

ctypedef struct Arrival:        # a PUBLISH whose payload is still coming
    uint64_t stamp
    uint64_t place
    uint16_t pid
    uint8_t qos
    uint8_t known               # has a stamp

ctypedef struct Client
ctypedef struct Load

ctypedef struct TransportLayer:
    # What is between MQTT and the sockets (door.pyx). Each may end in client_fail.
    void (*begin)(Load* g, Client* c) noexcept nogil             # the socket is connected; client_greet comes at the end of this
    void (*write)(Load* g, Client* c, const uint8_t* p, size_t n) noexcept nogil
    size_t (*receive)(Load* g, Client* c, uint8_t* p, size_t n) noexcept nogil     # reads once; how many bytes of MQTT it put at p
    void (*leave)(Load* g, Client* c) noexcept nogil             # nothing more will be written
    void (*off)(Client* c) noexcept nogil

ctypedef struct Client:
    int fd
    uint8_t state
    uint8_t queued              # is in the ring of publishers that may send
    uint8_t armed               # EPOLLOUT is asked for
    uint8_t arriving            # `arrival` counts when skip is 0
    uint16_t inflight
    uint16_t window             # what inflight may be
    uint16_t n_free
    uint16_t* free_pids         # of slots; taken from the end
    Slot* slots
    uint32_t sent               # messages; as a subscriber: filters
    uint32_t quota              # what `sent` may be: each publisher has the same share
    uint32_t owed               # at a fixed rate: due and not sent
    uint32_t source             # the one that is sent next
    uint32_t first_source       # receives from these: [first_source, first_source + n_sources)
    uint32_t n_sources
    uint32_t first_stream
    uint32_t held_n
    uint8_t* held               # the beginning of a packet that has not come wholly
    uint64_t skip               # bytes of it that need not be looked at
    Arrival arrival
    uint8_t* out                # out[out_at] .. out[out_n - 1]: what the socket did not take
    size_t out_at
    size_t out_n
    size_t out_cap
    uint64_t begun_ns
    void* transport                  # of Load.door's

ctypedef struct Counts:
    uint64_t published
    uint64_t expected           # deliveries of what was published
    uint64_t received           # with those that came twice
    uint64_t twice
    uint64_t late               # after one that was sent later
    uint64_t foreign            # not of this run, or not for this client
    uint64_t acknowledged
    uint64_t refused            # publications, by a reason code
    uint64_t stray              # acknowledgements of nothing
    uint64_t up
    uint64_t subscribed
    uint64_t closed             # connections, not by us
    uint64_t left
    uint64_t pongs
    uint64_t written_off        # deliveries that the window no longer waits for
    uint64_t bytes_received
    uint64_t large_bytes        # of them, of payloads that were not looked at

ctypedef struct Goal:
    uint32_t kind               # GOAL_x of loop.pxd
    uint32_t first              # clients [first, first + n)
    uint32_t n
    uint32_t next               # the next of them to be connected
    uint32_t pending_max        # handshakes at a time
    uint64_t target             # of the counter that the kind looks at
    uint64_t base               # what counts.up + counts.closed (left + closed) were before

ctypedef struct Load:
    # what it is told
    uint8_t version
    uint8_t qos
    uint8_t retain
    uint8_t shared              # streams are those of sources: any receiver takes a message
    uint16_t mark
    uint32_t payload_n
    uint32_t n_publishers       # clients [0, n_publishers)
    uint32_t stride             # of a publisher's sources
    uint8_t drawn               # which of them is next is drawn, else they take turns
    uint32_t inflight
    uint32_t burst
    uint32_t number_max         # messages of one publisher in one flow: their numbers in payloads have 32 bits
    uint64_t window             # deliveries; 0: none
    double interval_ns          # between two messages, of all; 0: flat out
    uint64_t messages_max       # 0: none
    uint64_t end_ns             # no more are due; 0: none
    uint64_t stall_ns
    sockaddr_storage address
    uint32_t address_n
    const TransportLayer* transport         # NULL: bytes of MQTT are those of the socket
    # what it consists of
    uint32_t n_clients
    Client* clients
    uint32_t n_sources
    Source* sources
    uint8_t* heads
    uint32_t head_max           # bytes of the longest
    uint32_t n_streams
    Stream* streams
    uint32_t* takers            # NULL: ranges. Stream i is that of client takers[i]; those of source s: from taker_at[s] to taker_at[s + 1]
    uint32_t* taker_at
    uint32_t* lasts             # shared: after the highest number that receiver r got of source s, at r * n_sources + s
    uint8_t* greetings          # CONNECT of client i: from greeting_at[i] to greeting_at[i + 1]
    uint32_t* greeting_at
    uint32_t n_filters
    uint32_t filter_max         # bytes of the longest; a SUBSCRIBE of it fits into `scratch`
    uint8_t* filters            # filter i: from filter_at[i] to filter_at[i + 1]; client goal.first + i % goal.n asks for it
    uint32_t* filter_at
    uint32_t* ring              # publishers that may send
    uint32_t ring_at
    uint32_t ring_n
    # where it stands
    int ep
    uint64_t epoch_ns
    uint64_t now_ns             # of the last read or write
    uint64_t flow_ns            # since when there is publishing
    uint64_t scheduled          # messages whose time has come
    uint64_t dice               # never 0
    uint64_t flow_published     # at the beginning of the flow
    uint64_t flow_acknowledged
    uint64_t last_published_ns
    uint64_t last_received_ns
    uint64_t progress
    uint64_t progress_ns
    uint8_t sending             # a flow is under way: what is ready may publish
    uint8_t tolerant            # a lost connection is counted and does not end the goal
    Goal goal
    Failure failure
    Counts counts
    Histogram latency           # of deliveries, from the time in their stamp
    Histogram ack               # of a PUBLISH: to PUBACK or PUBCOMP; of a SUBSCRIBE: to SUBACK
    Histogram handshake         # from an open socket to the end of TLS's handshake and a WebSocket's
    Histogram greeting          # from the first packet of a connection to CONNACK
    Histogram lateness          # at a fixed rate: how long after its time a message was sent
    uint8_t* buffer             # READ_BYTES
    uint8_t* answers            # acknowledgements of one read
    size_t answers_n
    uint8_t* scratch            # one burst
    size_t scratch_cap
