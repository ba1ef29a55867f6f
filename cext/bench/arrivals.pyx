# The input from brokers: split it into packets, decode them with the broker's own codec, count and acknowledge them. This module
# knows MQTT's client side. It does not know when something is sent (flow.pyx), or which goal the loop waits for (loop.pyx).
# Invariant: nothing that a broker sends is trusted. Bytes that are no MQTT end the client. A payload without the mark of this
# run, or of a message that was not sent or not for this client, counts as foreign and as nothing else.
# Cost: one recv for up to READ_BYTES, and one reading of the clock for each. Only the beginning of a large payload is read.
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from cext.base.clock cimport clock_monotonic_ns
from cext.bench.client cimport client_fail, client_write, slot_end, slot_state
from cext.bench.flow cimport flow_ready
from cext.bench.histogram cimport histogram_add
from cext.bench.load cimport (
    Arrival, CLIENT_GREETING, CLIENT_LEAVING, CLIENT_UP, Client, FAIL_CLOSED, FAIL_DISCONNECT, FAIL_GRANTED, FAIL_LIMIT,
    FAIL_MALFORMED, FAIL_MEMORY, FAIL_NONE, FAIL_PROTOCOL, FAIL_REFUSED, FAIL_SUBSCRIBE, HELD_BYTES, HELD_OTHER_MAX, Load,
    PEER_SPEAKS_HTTP, PEER_SPEAKS_TLS, READ_BYTES, SLOT_PUBACK, SLOT_PUBCOMP, SLOT_PUBREC, SLOT_SUBACK, STAMP_SIZE,
)
from cext.bench.stream cimport STREAM_LATE, STREAM_NO_MEMORY, STREAM_TWICE, stream_take
from cext.codec.as_client cimport (
    ConnackIn, ServerDisconnect, Suback, decode_connack, decode_server_ack, decode_server_disconnect, decode_suback,
)
from cext.codec.decode cimport Ack, Publish, decode_publish
from cext.codec.encode cimport encode_ack
from cext.codec.frame cimport (
    Frame, T_CONNACK, T_DISCONNECT, T_PINGRESP, T_PUBACK, T_PUBCOMP, T_PUBLISH, T_PUBREC, T_PUBREL, T_SUBACK, frame_next,
)
from cext.codec.properties cimport P_MAXIMUM_PACKET_SIZE, P_MAXIMUM_QOS, P_RECEIVE_MAXIMUM, P_RETAIN_AVAILABLE, props_has

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void* p, size_t n, int flags)
    int MSG_TRUNC

cdef enum:
    TLS_ALERT = 21              # content type [RFC 8446 5.1]


cdef inline void acknowledge(Load* g, int packet_type, uint16_t pid) noexcept nogil:
    # without a reason code an acknowledgement has four bytes, no more than its packet, so READ_BYTES hold those of one read
    g.answers_n = <size_t>(encode_ack(g.answers + g.answers_n, packet_type, g.version, pid, 0) - g.answers)


# ---------------------------------------------------------------- messages

cdef inline int64_t source_stream(const Load* g, const Client* c, uint32_t source) noexcept nogil:
    """Return the stream of this source for this client. -1 = the client is to receive nothing of it, or there is no such
    source."""
    cdef uint32_t i
    if source - c.first_source >= c.n_sources:
        return -1
    if g.takers == NULL:
        return source if g.shared else c.first_stream + source - c.first_source
    for i in range(g.taker_at[source], g.taker_at[source + 1]):
        if g.takers[i] == <uint32_t>(c - g.clients):
            return i
    return -1


cdef void count_delivery(Load* g, Client* c, uint32_t source, int64_t stream, uint32_t number) noexcept nogil:
    cdef uint32_t* last
    cdef int status = stream_take(g.streams + stream, number)
    if status == STREAM_NO_MEMORY:
        client_fail(g, c, FAIL_MEMORY, 0)
    elif status == STREAM_TWICE:
        g.counts.twice += 1
    elif g.shared:                      # here the order at one receiver counts
        last = g.lasts + <size_t>(c - g.clients - g.n_publishers) * g.n_sources + source
        if number < last[0]:
            g.counts.late += 1
        else:
            last[0] = number + 1
    elif status == STREAM_LATE:
        g.counts.late += 1


cdef void on_delivery(Load* g, Client* c, const Arrival* a) noexcept nogil:
    cdef uint32_t source = <uint32_t>a.place
    cdef uint32_t number = <uint32_t>(a.place >> 32)
    cdef uint64_t sent_ns = g.epoch_ns + (a.stamp & 0xFFFFFFFFFFFFULL)
    cdef int64_t stream = -1
    if a.qos:
        acknowledge(g, T_PUBACK if a.qos == 1 else T_PUBREC, a.pid)
    if a.known and a.stamp >> 48 == g.mark:
        stream = source_stream(g, c, source)
    if stream < 0 or number >= g.sources[source].sent:
        g.counts.foreign += 1
        return
    g.counts.received += 1
    g.last_received_ns = g.now_ns
    histogram_add(&g.latency, g.now_ns - sent_ns if g.now_ns > sent_ns else 0)
    count_delivery(g, c, source, stream, number)


cdef void on_publish(Load* g, Client* c, const Frame* f, bint whole) noexcept nogil:
    cdef Publish m
    cdef Arrival a
    if decode_publish(f, g.version, &m) != 0:
        client_fail(g, c, FAIL_MALFORMED, T_PUBLISH)
        return
    a.stamp = a.place = 0
    a.known = m.payload.n >= STAMP_SIZE
    a.qos = m.qos
    a.pid = m.pid
    if a.known:
        memcpy(&a.stamp, m.payload.p, 8)
        memcpy(&a.place, m.payload.p + 8, 8)
    if whole:
        on_delivery(g, c, &a)
    else:
        c.arrival = a
        c.arriving = 1


# ---------------------------------------------------------------- acknowledgements

cdef void on_ack(Load* g, Client* c, const Frame* f) noexcept nogil:
    cdef int t = f.first >> 4
    cdef uint8_t awaited
    cdef Ack a
    if decode_server_ack(f, g.version, &a) != 0:
        client_fail(g, c, FAIL_MALFORMED, t)
        return
    if t == T_PUBREL:
        acknowledge(g, T_PUBCOMP, a.pid)
        return
    awaited = slot_state(c, a.pid, g.inflight)
    if awaited != (SLOT_PUBACK if t == T_PUBACK else SLOT_PUBREC if t == T_PUBREC else SLOT_PUBCOMP):
        g.counts.stray += 1
        return
    if t == T_PUBREC and a.rc < 0x80:
        c.slots[a.pid - 1].state = SLOT_PUBCOMP
        acknowledge(g, T_PUBREL, a.pid)
        return
    if a.rc >= 0x80:
        g.counts.refused += 1
        g.counts.expected -= c.slots[a.pid - 1].fan
    g.counts.acknowledged += 1
    histogram_add(&g.ack, g.now_ns - slot_end(c, a.pid))
    flow_ready(g, c)


cdef void on_connack(Load* g, Client* c, const Frame* f) noexcept nogil:
    cdef ConnackIn a
    cdef bint publisher = c - g.clients < <long>g.n_publishers
    if c.state != CLIENT_GREETING or decode_connack(f, g.version, &a) != 0:
        client_fail(g, c, FAIL_MALFORMED, T_CONNACK)
        return
    if a.rc:
        client_fail(g, c, FAIL_REFUSED, a.rc)
        return
    c.window = <uint16_t>g.inflight
    if publisher and props_has(&a.props, P_RECEIVE_MAXIMUM) and a.props.receive_max < c.window:
        c.window = a.props.receive_max
    if publisher and ((props_has(&a.props, P_MAXIMUM_QOS) and a.props.max_qos < g.qos)
                      or (props_has(&a.props, P_RETAIN_AVAILABLE) and not a.props.retain_available and g.retain)
                      or (props_has(&a.props, P_MAXIMUM_PACKET_SIZE) and a.props.packet_max < g.head_max + g.payload_n)):
        client_fail(g, c, FAIL_LIMIT, T_PUBLISH)
        return
    c.state = CLIENT_UP
    g.counts.up += 1
    histogram_add(&g.greeting, g.now_ns - c.begun_ns)


cdef void on_suback(Load* g, Client* c, const Frame* f) noexcept nogil:
    cdef Suback a
    cdef uint32_t i
    if decode_suback(f, g.version, &a) != 0:
        client_fail(g, c, FAIL_MALFORMED, T_SUBACK)
        return
    if slot_state(c, a.pid, g.inflight) != SLOT_SUBACK:
        g.counts.stray += 1
        return
    histogram_add(&g.ack, g.now_ns - slot_end(c, a.pid))
    g.counts.subscribed += 1
    for i in range(a.codes.n):
        # the flow's QoS was requested
        if (a.codes.p[i] >= 0x80 or a.codes.p[i] < g.qos) and g.failure.kind == FAIL_NONE:
            g.failure.kind = FAIL_SUBSCRIBE if a.codes.p[i] >= 0x80 else FAIL_GRANTED
            g.failure.code = a.codes.p[i]
            g.failure.client = <uint32_t>(c - g.clients)


cdef void on_disconnect(Load* g, Client* c, const Frame* f) noexcept nogil:
    cdef ServerDisconnect a
    if decode_server_disconnect(f, g.version, &a) != 0:
        client_fail(g, c, FAIL_MALFORMED, T_DISCONNECT)
    else:
        client_fail(g, c, FAIL_DISCONNECT, a.rc)


cdef void on_packet(Load* g, Client* c, const Frame* f) noexcept nogil:
    cdef int t = f.first >> 4
    if t == T_CONNACK:
        on_connack(g, c, f)
    elif c.state != CLIENT_UP and c.state != CLIENT_LEAVING:
        client_fail(g, c, FAIL_MALFORMED, t)
    elif t == T_PUBLISH:
        on_publish(g, c, f, True)
    elif T_PUBACK <= t <= T_PUBCOMP:
        on_ack(g, c, f)
    elif t == T_SUBACK:
        on_suback(g, c, f)
    elif t == T_PINGRESP:
        g.counts.pongs += 1
    elif t == T_DISCONNECT:
        on_disconnect(g, c, f)
    else:
        client_fail(g, c, FAIL_MALFORMED, t)


# ---------------------------------------------------------------- bytes

cdef void input_keep(Load* g, Client* c, const uint8_t* p, size_t n) noexcept nogil:
    cdef uint8_t* held = <uint8_t*>malloc(n)
    if held == NULL:
        client_fail(g, c, FAIL_MEMORY, 0)
        return
    memcpy(held, p, n)
    c.held = held
    c.held_n = <uint32_t>n


cdef void large_publish_begin(Load* g, Client* c, Frame* f, const uint8_t* end) noexcept nogil:
    """Begin an incomplete PUBLISH. Its head is sufficient: the topics and properties of this run are far shorter than
    HELD_BYTES."""
    if c.state != CLIENT_UP and c.state != CLIENT_LEAVING:
        client_fail(g, c, FAIL_MALFORMED, T_PUBLISH)
        return
    c.skip = f.total_len - <uint64_t>(end - f.start)
    f.body_len = <uint32_t>(end - f.body)
    on_publish(g, c, f, False)


cdef int peer_protocol(const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Return the protocol, PEER_SPEAKS_x, of a peer that is no MQTT broker by its first bytes; 0 = unknown."""
    if end - p >= 3 and p[0] == TLS_ALERT and p[1] == 3 and p[2] <= 4:
        return PEER_SPEAKS_TLS
    return PEER_SPEAKS_HTTP if end - p >= 5 and memcmp(p, b"HTTP/", 5) == 0 else 0


cdef void packets_read(Load* g, Client* c, const uint8_t* p, const uint8_t* end) noexcept nogil:
    cdef Frame f
    cdef int found
    if c.state == CLIENT_GREETING and peer_protocol(p, end):
        client_fail(g, c, FAIL_PROTOCOL, peer_protocol(p, end))
        return
    while p < end and c.fd >= 0:
        found = frame_next(p, <size_t>(end - p), 0, &f)
        if found == 1:
            on_packet(g, c, &f)
            p += f.total_len
            continue
        if found > 1:
            client_fail(g, c, FAIL_MALFORMED, p[0] >> 4)
        elif f.total_len == 0 or end - p < HELD_BYTES or (p[0] >> 4 != T_PUBLISH and f.total_len <= HELD_OTHER_MAX):
            input_keep(g, c, p, <size_t>(end - p))
        elif p[0] >> 4 == T_PUBLISH:
            large_publish_begin(g, c, &f, end)
        else:
            client_fail(g, c, FAIL_MALFORMED, p[0] >> 4)
        return


cdef const uint8_t* payload_skip(Load* g, Client* c, const uint8_t* p, const uint8_t* end) noexcept nogil:
    cdef uint64_t n = <uint64_t>(end - p)
    if c.skip < n:
        n = c.skip
    c.skip -= n
    g.counts.large_bytes += n
    if c.skip == 0 and c.arriving:
        c.arriving = 0
        on_delivery(g, c, &c.arrival)
    return p + n


cdef void client_read(Load* g, Client* c) noexcept nogil:
    cdef uint32_t held_n = c.held_n
    cdef const uint8_t* p = g.buffer
    cdef ssize_t got
    if held_n:
        memcpy(g.buffer, c.held, held_n)
    if g.transport != NULL:
        got = <ssize_t>g.transport.receive(g, c, g.buffer + held_n, READ_BYTES - held_n)
        if got == 0:
            return
    elif c.skip > READ_BYTES:             # the content is not needed: TCP discards it without a copy [tcp(7)]
        got = recv(c.fd, g.buffer, c.skip - READ_BYTES, MSG_TRUNC)
        if got > 0:
            c.skip -= <uint64_t>got
            g.counts.bytes_received += <uint64_t>got
            g.counts.large_bytes += <uint64_t>got
            return
    else:
        got = recv(c.fd, g.buffer + held_n, READ_BYTES - held_n, 0)
    if got <= 0:
        if got == 0 or (errno != EAGAIN and errno != EINTR):
            client_fail(g, c, FAIL_CLOSED, 0 if got == 0 else errno)
        return
    if held_n:
        free(c.held)
        c.held = NULL
        c.held_n = 0
    g.now_ns = clock_monotonic_ns()
    g.answers_n = 0
    g.counts.bytes_received += <uint64_t>got
    if c.skip:
        p = payload_skip(g, c, p, g.buffer + got)
    packets_read(g, c, p, g.buffer + held_n + got)
    if g.answers_n and c.fd >= 0:
        client_write(g, c, g.answers, g.answers_n)
