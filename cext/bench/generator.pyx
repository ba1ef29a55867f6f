# Python API of the room: a load as a Python object. Its methods set the next goal and read the counters; `run` works without the
# GIL. This module knows bytes and numbers. mosq/tools/bench makes the names of clients, topics and scenarios.
# Invariant: one thread owns a Generator, so no method is called while another one runs.
from libc.stdint cimport UINT32_MAX, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from cext.base.clock cimport clock_monotonic_ns
from cext.base.pybytes cimport view_of
from cext.bench.client cimport client_fini, client_leave, client_write
from cext.bench.flow cimport flow_begin
from cext.bench.histogram cimport HISTOGRAM_BUCKETS, Histogram, histogram_from
from cext.bench.load cimport (
    CLIENT_GREETING, CLIENT_SECURING, CLIENT_UP, CLIENT_UPGRADING, Client, FAIL_CERTIFICATE, FAIL_CLOSED, FAIL_CONNECT,
    FAIL_DISCONNECT, FAIL_GRANTED, FAIL_LIMIT, FAIL_MALFORMED, FAIL_MEMORY, FAIL_NONE, FAIL_NUMBERS, FAIL_PROTOCOL,
    FAIL_REFUSED, FAIL_SUBSCRIBE, FAIL_TLS, FAIL_WEB, Failure, INFLIGHT_MAX, Load, READ_BYTES, STAMP_SIZE, Source,
)
from cext.bench.loop cimport (
    GOAL_FLOW, GOAL_LEFT, GOAL_PONGS, GOAL_RECEIVED, GOAL_SUBSCRIBED, GOAL_TIME, GOAL_UP, RUN_DONE, RUN_FAILED, RUN_MORE,
    RUN_STALLED, load_run,
)
from cext.bench.stream cimport Stream, stream_fini
from cext.bench.transports cimport Transports, transports_free, transports_new
from cext.bench.web cimport WEB_ACCEPT_SIZE
from cext.codec.as_client cimport ConnectOut, connect_size, encode_connect, encode_pingreq
from cext.codec.encode cimport PublishHead, publish_head_put, publish_head_size
from cext.net.outward cimport address_put
from cext.net.conn_state cimport Address
from cext.net.tls_state cimport TlsContext

cdef extern from "<sys/epoll.h>" nogil:
    int epoll_create1(int flags)
    int EPOLL_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)

cdef extern from "<sys/socket.h>" nogil:
    int AF_INET, AF_INET6

cdef enum:
    SCRATCH_MIN = 128 * 1024            # size of a burst, or of the longest SUBSCRIBE

MORE, DONE, FAILED, STALLED = RUN_MORE, RUN_DONE, RUN_FAILED, RUN_STALLED
STAMP_BYTES = STAMP_SIZE
INFLIGHT_LIMIT = INFLIGHT_MAX
FAILURES = {FAIL_CONNECT: "connect", FAIL_REFUSED: "refused", FAIL_CLOSED: "closed", FAIL_DISCONNECT: "disconnect",
            FAIL_MALFORMED: "malformed", FAIL_SUBSCRIBE: "subscribe", FAIL_MEMORY: "memory", FAIL_LIMIT: "limit", FAIL_TLS: "tls",
            FAIL_CERTIFICATE: "certificate", FAIL_WEB: "web", FAIL_PROTOCOL: "protocol",
            FAIL_GRANTED: "granted", FAIL_NUMBERS: "numbers"}
STAGES = {CLIENT_SECURING: "TLS", CLIENT_UPGRADING: "WebSocket", CLIENT_GREETING: "MQTT"}


cdef void* array_new(size_t n, size_t size) except NULL:
    cdef void* p = calloc(n + 1, size)
    if p == NULL:
        raise MemoryError
    return p


cdef dict figures(const Histogram* h):
    cdef uint32_t i
    cdef uint64_t width, first
    buckets = []
    for i in range(<uint32_t>HISTOGRAM_BUCKETS):
        if h.buckets[i]:
            first = histogram_from(i, &width)
            buckets.append((first, width, h.buckets[i]))
    return {"count": h.count, "least_ns": h.least_ns, "most_ns": h.most_ns, "sum_ns": h.sum_ns, "buckets": buckets}


cdef class Generator:
    """`clients` connections to one broker. The first `publishers` of them publish, the others receive."""
    cdef Load g

    def __cinit__(      # parameters: the settings of one load, by name
            self, ip, int port, *, uint32_t scope=0, uint32_t clients, uint32_t publishers, int version, int qos,
            uint32_t payload, uint16_t mark, uint32_t inflight=20, uint32_t burst=10, uint64_t window=0, uint32_t numbers=UINT32_MAX,
            double stall_s=3, size_t tls_context=0, bytes host=b"", bytes request=None, bytes accept=None):
        """tls_context: 0, or the address of a TlsContext, whose reference the Generator takes over; `host` is the expected name
        of the server. request: None, or the HTTP request for a WebSocket, and `accept` the required answer to its key. numbers:
        the most messages of one publisher in one flow. stall_s: seconds without progress after which a run stops."""
        cdef uint32_t i
        cdef Load* g = &self.g
        memset(g, 0, sizeof(Load))
        g.ep = -1
        if tls_context or request is not None:
            self._transport(tls_context, host, request, accept)
        if publishers > clients or not 0 < inflight <= INFLIGHT_MAX or not burst or 0 < payload < STAMP_SIZE:
            raise ValueError("out of range")
        self.address(ip, port, scope)
        g.clients = <Client*>array_new(clients, sizeof(g.clients[0]))
        g.n_clients = clients
        for i in range(clients):
            g.clients[i].fd = -1
        g.n_publishers = publishers
        g.ring = <uint32_t*>array_new(publishers, sizeof(uint32_t))
        g.greeting_at = <uint32_t*>array_new(clients + 1, sizeof(uint32_t))
        g.version, g.qos, g.payload_n, g.mark = version, qos, payload, mark
        g.inflight, g.burst, g.window, g.number_max = inflight, burst, window, numbers
        g.stall_ns = <uint64_t>(stall_s * 1e9)
        g.buffer = <uint8_t*>array_new(READ_BYTES, 1)
        g.answers = <uint8_t*>array_new(READ_BYTES + 64, 1)
        g.scratch = <uint8_t*>array_new(SCRATCH_MIN, 1)
        g.scratch_cap = SCRATCH_MIN
        g.ep = epoll_create1(EPOLL_CLOEXEC)
        if g.ep < 0:
            raise OSError("no epoll descriptor")
        g.epoch_ns = clock_monotonic_ns()
        g.dice = 0x9E3779B97F4A7C15ULL + mark

    def __dealloc__(self):
        cdef uint32_t i
        cdef Load* g = &self.g
        if g.clients != NULL:
            for i in range(g.n_clients):
                client_fini(g, g.clients + i)
        transports_free(<Transports*>g.transport)
        self._streams_free()
        if g.ep >= 0:
            c_close(g.ep)
        free(g.clients)
        free(g.ring)
        free(g.sources)
        free(g.heads)
        free(g.greetings)
        free(g.greeting_at)
        free(g.filters)
        free(g.filter_at)
        free(g.buffer)
        free(g.answers)
        free(g.scratch)

    cdef _transport(self, size_t tls_context, bytes host, bytes request, bytes accept):
        cdef Transports* layers
        cdef const uint8_t* asked = NULL
        cdef const uint8_t* answer = NULL
        if request is not None:
            if len(accept) != WEB_ACCEPT_SIZE:
                raise ValueError("an answer to a WebSocket's key has 28 bytes")
            asked, answer = <const uint8_t*><const char*>request, <const uint8_t*><const char*>accept
        layers = transports_new(<TlsContext*>tls_context, host, asked, <uint32_t>len(request or b""), answer)
        if layers == NULL:
            raise MemoryError
        self.g.transport = &layers.ops

    cdef _streams_free(self):
        cdef uint32_t i
        if self.g.streams != NULL:
            for i in range(self.g.n_streams):
                stream_fini(self.g.streams + i)
        free(self.g.streams)
        free(self.g.lasts)
        free(self.g.takers)
        free(self.g.taker_at)
        self.g.streams = NULL
        self.g.lasts = self.g.takers = self.g.taker_at = NULL
        self.g.n_streams = 0

    # ---------------------------------------------------------------- clients, sources, streams

    def address(self, bytes ip, int port, uint32_t scope=0):
        """Set the address to which clients connect from now on: the nodes of a cluster have several."""
        cdef Address a
        cdef size_t n = len(ip)
        if n != 4 and n != 16:
            raise ValueError("an address has 4 or 16 bytes")
        memset(&a, 0, sizeof(a))
        a.family = <uint8_t>(AF_INET if n == 4 else AF_INET6)
        a.port = <uint16_t>port
        memcpy(a.ip, <const char*>ip, n)
        self.g.address_n = address_put(&self.g.address, &a, scope)

    def greetings(self, names, *, uint32_t first=0, bint clean=True, uint32_t session_expiry=0, uint16_t keepalive=0):
        """Set the CONNECT packets. names: (client id, user or None, password or None) of the clients from `first` to the last."""
        cdef ConnectOut c
        cdef uint32_t i
        cdef Load* g = &self.g
        packets = []
        for client_id, user, password in names:
            memset(&c, 0, sizeof(c))
            c.version, c.clean_start, c.keepalive = g.version, clean, keepalive
            c.session_expiry = session_expiry
            c.client_id = view_of(client_id)
            if user is not None:
                c.has_username = 1
                c.username = view_of(user)
            if password is not None:
                c.has_password = 1
                c.password = view_of(password)
            packet = bytearray(connect_size(&c))
            encode_connect(<uint8_t*>packet, &c)
            packets.append(packet)
        if first + len(packets) != g.n_clients:
            raise ValueError("expected one name for each client")
        old = bytes(g.greetings[:g.greeting_at[first]]) if g.greetings != NULL else b""
        whole = old + b"".join(packets)
        free(g.greetings)
        g.greetings = <uint8_t*>array_new(len(whole), 1)
        memcpy(g.greetings, <const char*>whole, len(whole))
        for i in range(<uint32_t>len(packets)):
            g.greeting_at[first + i + 1] = g.greeting_at[first + i] + <uint32_t>len(packets[i])

    def sources(self, topics, fans, *, bint retain=False, uint32_t stride=0, bint drawn=False, payload=None):
        """Set the topics, and how many deliveries a message on each topic causes. stride 0: publisher i has only topics[i];
        otherwise topics i, i + stride, ..., in turn or drawn at random."""
        cdef PublishHead h
        cdef uint32_t i, size, remaining = 0, pid_at = 0, at = 0
        cdef Load* g = &self.g
        if len(topics) < g.n_publishers or len(topics) != len(fans):
            raise ValueError("expected a topic for each publisher")
        if payload is not None:
            g.payload_n = payload
        free(g.sources)
        free(g.heads)
        g.sources = NULL
        g.heads = NULL
        g.n_sources = <uint32_t>len(topics)
        g.stride, g.drawn, g.retain, g.head_max = stride, drawn, retain, 0
        for i in range(g.n_publishers):
            g.clients[i].source = i
        g.sources = <Source*>array_new(g.n_sources, sizeof(g.sources[0]))
        g.heads = <uint8_t*>array_new(sum(map(len, topics)) + 16 * len(topics), 1)
        memset(&h, 0, sizeof(h))
        h.version, h.qos, h.retain, h.payload_len = g.version, g.qos, retain, g.payload_n
        for i in range(g.n_sources):
            h.topic = view_of(topics[i])
            size = publish_head_size(&h, &remaining)
            if size == 0:
                raise ValueError("a message is longer than MQTT allows")
            publish_head_put(g.heads + at, &h, remaining, &pid_at)
            g.sources[i].head_at, g.sources[i].head_n, g.sources[i].pid_at, g.sources[i].fan = at, size, pid_at, fans[i]
            at += size
            g.head_max = max(g.head_max, size)

    def streams(self, receives, *, bint shared=False):
        """Set the streams. receives: (first source, number of sources) of each receiving client. shared: all receivers together
        get one stream."""
        cdef uint32_t i
        cdef uint64_t n = 0
        cdef Load* g = &self.g
        if len(receives) != g.n_clients - g.n_publishers:
            raise ValueError("expected the sources of each receiver")
        self._streams_free()
        for i in range(<uint32_t>len(receives)):
            first, count = receives[i]
            if not 0 <= first <= first + count <= g.n_sources:
                raise ValueError("there is no such source")
            g.clients[g.n_publishers + i].first_source = first
            g.clients[g.n_publishers + i].n_sources = count
            g.clients[g.n_publishers + i].first_stream = n
            n += count
        g.shared = shared
        if shared:
            g.lasts = <uint32_t*>array_new(<size_t>len(receives) * g.n_sources, sizeof(uint32_t))
            n = g.n_sources
        if n > UINT32_MAX:
            raise MemoryError
        g.streams = <Stream*>array_new(n, sizeof(Stream))
        g.n_streams = n

    def takers(self, takers):
        """Set the clients that receive from each source, instead of ranges of sources."""
        cdef uint32_t i, at = 0, client
        cdef Load* g = &self.g
        if len(takers) != g.n_sources:
            raise ValueError("expected the receivers of each source")
        self._streams_free()
        g.n_streams = <uint32_t>sum(map(len, takers))
        g.streams = <Stream*>array_new(g.n_streams, sizeof(Stream))
        g.takers = <uint32_t*>array_new(g.n_streams, sizeof(uint32_t))
        g.taker_at = <uint32_t*>array_new(g.n_sources + 1, sizeof(uint32_t))
        for i, clients in enumerate(takers):
            for client in clients:
                g.takers[at] = client
                at += 1
            g.taker_at[i + 1] = at
        for i in range(g.n_publishers, g.n_clients):
            g.clients[i].first_source, g.clients[i].n_sources = 0, g.n_sources

    # ---------------------------------------------------------------- goals

    cdef _goal(self, uint32_t kind, uint32_t first=0, uint32_t n=0, uint64_t target=0, uint64_t base=0):
        memset(&self.g.goal, 0, sizeof(self.g.goal))
        self.g.goal.kind, self.g.goal.first, self.g.goal.n, self.g.goal.next = kind, first, n, first
        self.g.goal.target, self.g.goal.base = target, base
        self.g.sending = 0
        self.g.progress_ns = clock_monotonic_ns()

    def connect(self, uint32_t first, uint32_t n, uint32_t pending=64):
        if first + n > self.g.n_clients or not pending:
            raise ValueError("there is no such client")
        self._goal(GOAL_UP, first, n, 0, self.g.counts.up + self.g.counts.closed)
        self.g.goal.pending_max = pending

    def subscribe(self, filters, uint32_t first, uint32_t n):
        """Subscribe. Client first + i % n requests filter i."""
        cdef uint32_t i, at = 0
        cdef Load* g = &self.g
        if not n or first + n > g.n_clients:
            raise ValueError("there is no such client")
        whole = b"".join(filters)
        free(g.filters)
        free(g.filter_at)
        g.filters = NULL
        g.filter_at = NULL
        g.n_filters = g.filter_max = 0
        g.filters = <uint8_t*>array_new(len(whole), 1)
        g.filter_at = <uint32_t*>array_new(len(filters) + 1, sizeof(uint32_t))
        memcpy(g.filters, <const char*>whole, len(whole))
        for i, filter in enumerate(filters):
            if len(filter) > 65535:
                raise ValueError("a filter is longer than MQTT allows")
            at += <uint32_t>len(filter)
            g.filter_max = max(g.filter_max, <uint32_t>len(filter))
            g.filter_at[i + 1] = at
        g.n_filters = <uint32_t>len(filters)
        for i in range(n):
            g.clients[first + i].sent = 0
        self._goal(GOAL_SUBSCRIBED, first, n, g.counts.subscribed + g.n_filters)
        g.goal.next = 0

    def publish(self, *, double rate=0, uint64_t messages=0, double seconds=0):
        """Publish until so many messages are sent or so many seconds are over. rate 0: at full speed; otherwise messages per
        second."""
        cdef uint64_t now_ns
        if not messages and not seconds:
            raise ValueError("expected a limit of messages or seconds")
        self._goal(GOAL_FLOW)
        now_ns = clock_monotonic_ns()
        self.g.interval_ns = 1e9 / rate if rate else 0
        self.g.messages_max = messages
        self.g.end_ns = now_ns + <uint64_t>(seconds * 1e9) if seconds else 0
        flow_begin(&self.g, now_ns)

    def expect(self, uint64_t deliveries):
        """Expect so many more deliveries, of messages that the broker stores."""
        self.g.counts.expected += deliveries

    def receive(self):
        """Wait for all expected deliveries."""
        self._goal(GOAL_RECEIVED, 0, 0, self.g.counts.expected)

    def leave(self, uint32_t first, uint32_t n):
        """Send DISCONNECT, and wait until the broker ends each connection: then it has processed it."""
        cdef uint32_t i
        cdef uint64_t base = self.g.counts.left + self.g.counts.closed, leaving = 0
        if first + n > self.g.n_clients:
            raise ValueError("there is no such client")
        for i in range(first, first + n):
            if self.g.clients[i].state == CLIENT_UP:
                leaving += 1
                client_leave(&self.g, self.g.clients + i)
        self._goal(GOAL_LEFT, 0, 0, leaving, base)

    def ping(self):
        """Send PINGREQ for each publisher, and wait for the answers: then the broker has read everything sent before."""
        cdef uint32_t i, n = 0
        cdef uint8_t[2] packet
        encode_pingreq(packet)
        for i in range(self.g.n_publishers):
            if self.g.clients[i].state == CLIENT_UP:
                client_write(&self.g, self.g.clients + i, packet, 2)
                n += 1
        self._goal(GOAL_PONGS, 0, 0, self.g.counts.pongs + n)

    def hold(self):
        self._goal(GOAL_TIME)

    def run(self, double seconds):
        """Run for at most so many seconds. Return MORE, DONE, FAILED or STALLED."""
        cdef uint64_t until_ns = clock_monotonic_ns() + <uint64_t>(seconds * 1e9)
        cdef int status
        with nogil:
            status = load_run(&self.g, until_ns)
        return status

    # ---------------------------------------------------------------- counters

    def tolerate(self, bint yes):
        """Count connections that fail, and continue with the others."""
        self.g.tolerant = yes

    def clear(self):
        """Clear the histograms."""
        memset(&self.g.latency, 0, sizeof(Histogram))
        memset(&self.g.ack, 0, sizeof(Histogram))
        memset(&self.g.handshake, 0, sizeof(Histogram))
        memset(&self.g.greeting, 0, sizeof(Histogram))
        memset(&self.g.lateness, 0, sizeof(Histogram))

    def counts(self):
        return self.g.counts

    def last_received_s(self):
        """Return the time of the last delivery on the clock of time.monotonic(); 0 = nothing was received since the last flow
        began."""
        return self.g.last_received_ns * 1e-9

    def last_published_s(self):
        """Return the time of the last publication on the clock of time.monotonic()."""
        return self.g.last_published_ns * 1e-9

    def unsent(self):
        """Return the number of messages that are due and not sent, at a fixed rate."""
        return self.g.scheduled - (self.g.counts.published - self.g.flow_published) if self.g.interval_ns else 0

    def unacknowledged(self):
        return self.g.counts.published - self.g.flow_published - (self.g.counts.acknowledged - self.g.flow_acknowledged) if self.g.qos else 0

    def figures(self, name):
        if name == "latency":
            return figures(&self.g.latency)
        if name == "ack":
            return figures(&self.g.ack)
        if name == "handshake":
            return figures(&self.g.handshake)
        return figures(&self.g.greeting if name == "greeting" else &self.g.lateness)

    def secured(self):
        """Return protocol and cipher of the last TLS handshake; None = there was none."""
        cdef Transports* layers = <Transports*>self.g.transport
        if layers == NULL or layers.load_tls.protocol == NULL or layers.load_tls.cipher == NULL:
            return None
        return layers.load_tls.protocol.decode(), layers.load_tls.cipher.decode()

    def failure(self):
        """Return (kind, code, number of the client, stage of the connection, text); None = no failure."""
        cdef const Failure* f = &self.g.failure
        if f.kind == FAIL_NONE:
            return None
        stage = STAGES.get(f.state, "")
        return FAILURES[f.kind], f.code, f.client, stage, f.text.decode("utf-8", "replace") if f.text != NULL else ""
