# Fuzz targets of the codec. Each reads every byte of its views, so that ASan finds invalid ones, and aborts if an invariant
# breaks. Input of the decoders: a byte that selects the version, the packet's first byte, its body.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport abort, free, malloc
from libc.string cimport memcmp, memcpy
from cext.base.view cimport View
cimport cext.codec.decode as d
cimport cext.codec.encode as e
cimport cext.codec.frame as fr
cimport cext.codec.properties as pr
from cext.codec.utf8 cimport utf8_check


cdef inline void must(bint holds) noexcept nogil:
    if not holds:
        abort()


cdef uint64_t bytes_sum(const uint8_t* p, size_t n) noexcept nogil:
    cdef uint64_t total = n
    cdef size_t i
    for i in range(n):
        total = total * 31 + p[i]
    return total


cdef inline uint64_t view_sum(View v) noexcept nogil:
    return bytes_sum(v.p, v.n)


cdef uint64_t props_sum(const pr.Props* p) noexcept nogil:
    cdef uint64_t total = p.present + view_sum(p.raw)
    if pr.props_has(p, pr.P_CONTENT_TYPE):
        total += view_sum(p.content_type)
    if pr.props_has(p, pr.P_RESPONSE_TOPIC):
        total += view_sum(p.response_topic)
    if pr.props_has(p, pr.P_CORRELATION_DATA):
        total += view_sum(p.correlation_data)
    if pr.props_has(p, pr.P_AUTH_METHOD):
        total += view_sum(p.auth_method)
    if pr.props_has(p, pr.P_AUTH_DATA):
        total += view_sum(p.auth_data)
    if pr.props_has(p, pr.P_REASON_STRING):
        total += view_sum(p.reason_string)
    return total


cdef uint64_t forward_sum(const pr.Props* p) noexcept nogil:
    # Forward the block into memory of exactly the announced size.
    cdef uint32_t size = pr.props_forward_size(p)
    cdef uint8_t* out = <uint8_t*>malloc(size + 1)
    cdef uint64_t total
    must(size <= p.raw.n)
    must((size == p.raw.n) == pr.props_verbatim(p))
    must(pr.props_forward_put(out, p) == out + size)
    total = bytes_sum(out, size)
    free(out)
    return total


cdef uint64_t frame(const uint8_t* p, size_t n) noexcept nogil:
    # The input is a stream of packets; its first byte selects packet_max.
    cdef fr.Frame f
    cdef uint64_t total = 0
    cdef uint32_t packet_max
    cdef const uint8_t* end = p + n
    if n == 0:
        return 0
    packet_max = p[0]
    p += 1
    f.total_len = 0
    while fr.frame_next(p, end - p, packet_max, &f) == 1:
        must(f.start == p and f.body + f.body_len == p + f.total_len and f.body + f.body_len <= end)
        must(packet_max == 0 or f.total_len <= packet_max)
        total += f.first + bytes_sum(f.body, f.body_len)
        p += f.total_len
    return total


cdef bint utf8_slow(const uint8_t* s, size_t n) noexcept nogil:
    # Decode, encode again and compare, with none of the shortcuts of the fast decoder.
    cdef size_t i = 0, length, k
    cdef uint32_t c
    while i < n:
        length = 1 if s[i] < 0x80 else 2 if s[i] >> 5 == 6 else 3 if s[i] >> 4 == 14 else 4 if s[i] >> 3 == 30 else 0
        if length == 0 or i + length > n:
            return 0
        c = s[i] if length == 1 else s[i] & (0x7F >> length)
        for k in range(1, length):
            if s[i + k] >> 6 != 2:
                return 0
            c = c << 6 | (s[i + k] & 63)
        if length != <size_t>(1 if c < 0x80 else 2 if c < 0x800 else 3 if c < 0x10000 else 4) or c > 0x10FFFF:
            return 0
        if c < 0x20 or 0x7F <= c < 0xA0 or 0xD800 <= c < 0xE000 or 0xFDD0 <= c < 0xFDF0 or c & 0xFFFE == 0xFFFE:
            return 0
        i += length
    return 1


cdef uint64_t utf8(const uint8_t* p, size_t n) noexcept nogil:
    cdef bint good = utf8_check(p, <uint32_t>n) == 0
    must(good == utf8_slow(p, n))
    return good


cdef uint64_t properties(const uint8_t* p, size_t n) noexcept nogil:
    cdef pr.Props props
    cdef const uint8_t* at
    cdef const uint8_t* end = p + n
    cdef int place
    if n == 0:
        return 0
    place = p[0] & 15
    at = p + 1
    if pr.props_decode(&at, end, place, &props) != 0:
        return 0
    must(at <= end and props.raw.p + props.raw.n == at)
    return props_sum(&props) + forward_sum(&props)


cdef bint packet_from(const uint8_t* p, size_t n, int packet_type, int* version, fr.Frame* f) noexcept nogil:
    if n < 2:
        return 0
    version[0] = 3 + p[0] % 3
    f.first = <uint8_t>(packet_type << 4 | (p[1] & 15))
    f.start = p
    f.body = p + 2
    f.body_len = <uint32_t>(n - 2)
    f.total_len = f.body_len + 2
    return 1


cdef uint64_t connect(const uint8_t* p, size_t n) noexcept nogil:
    cdef fr.Frame f
    cdef d.Connect c
    cdef int version
    if not packet_from(p, n, fr.T_CONNECT, &version, &f) or d.decode_connect(&f, &c) != 0:
        return 0
    return (props_sum(&c.props) + props_sum(&c.will_props) + forward_sum(&c.will_props) + view_sum(c.client_id)
            + view_sum(c.will_topic) + view_sum(c.will_payload) + view_sum(c.username) + view_sum(c.password)
            + c.keepalive + c.version + c.will_qos)


cdef void publish_again(const d.Publish* m, int version) noexcept nogil:
    # Encode the decoded message and decode it again: it must be the same, without the fields of one hop.
    cdef e.PublishHead h
    cdef d.Publish again
    cdef fr.Frame f
    cdef uint32_t forward = pr.props_forward_size(&m.props), remaining = 0, pid_at = 0, size
    cdef uint8_t* props = <uint8_t*>malloc(forward + 1)
    cdef uint8_t* out
    if pr.props_has(&m.props, pr.P_TOPIC_ALIAS) and m.props.alias == 0:
        free(props)
        return                   # decoded, so that the handler can send a specific code, but never encoded
    pr.props_forward_put(props, &m.props)
    h.version, h.qos, h.retain, h.dup, h.pid = <uint8_t>version, m.qos, m.retain, m.dup, m.pid
    h.alias = m.props.alias if pr.props_has(&m.props, pr.P_TOPIC_ALIAS) else 0
    h.has_expiry = pr.props_has(&m.props, pr.P_MESSAGE_EXPIRY)
    h.expiry = m.props.message_expiry if h.has_expiry else 0
    h.topic = m.topic
    h.props.p, h.props.n = props, forward
    h.sub_ids, h.n_sub_ids, h.payload_len = NULL, 0, m.payload.n
    size = e.publish_head_size(&h, &remaining)
    out = <uint8_t*>malloc(size + m.payload.n)
    must(e.publish_head_put(out, &h, remaining, &pid_at) == out + size)
    if m.payload.n:
        memcpy(out + size, m.payload.p, m.payload.n)
    must(fr.frame_next(out, size + m.payload.n, 0, &f) == 1 and f.total_len == size + m.payload.n)
    must(d.decode_publish(&f, version, &again) == 0)
    must(again.qos == m.qos and again.retain == m.retain and again.dup == m.dup and again.pid == m.pid)
    must(again.props.present == m.props.present and again.props.raw.n == m.props.raw.n)
    must(again.topic.n == m.topic.n and memcmp(again.topic.p, m.topic.p, m.topic.n) == 0)
    must(again.payload.n == m.payload.n and memcmp(again.payload.p, m.payload.p, m.payload.n) == 0)
    must(m.qos == 0 or (out[pid_at] << 8 | out[pid_at + 1]) == m.pid)
    free(out)
    free(props)


cdef uint64_t publish(const uint8_t* p, size_t n) noexcept nogil:
    cdef fr.Frame f
    cdef d.Publish m
    cdef int version
    if not packet_from(p, n, fr.T_PUBLISH, &version, &f) or d.decode_publish(&f, version, &m) != 0:
        return 0
    must(m.payload.p + m.payload.n == p + n)
    publish_again(&m, version)
    return props_sum(&m.props) + view_sum(m.topic) + view_sum(m.payload) + m.pid


cdef uint64_t ack(const uint8_t* p, size_t n) noexcept nogil:
    cdef fr.Frame f
    cdef d.Ack a
    cdef int version
    # The second byte selects the packet type: PUBACK .. PUBCOMP.
    if n < 2 or not packet_from(p, n, fr.T_PUBACK + (p[1] >> 4 & 3), &version, &f):
        return 0
    if d.decode_ack(&f, version, &a) != 0:
        return 0
    return props_sum(&a.props) + a.pid + a.rc


cdef uint64_t subscribe(const uint8_t* p, size_t n) noexcept nogil:
    cdef fr.Frame f
    cdef d.Subscribe s
    cdef d.SubscribeItem item
    cdef uint64_t total
    cdef int version
    if not packet_from(p, n, fr.T_SUBSCRIBE, &version, &f) or d.decode_subscribe(&f, version, &s) != 0:
        return 0
    total = props_sum(&s.props) + s.pid
    while d.subscribe_next(&s, &item):
        total += view_sum(item.filter) + item.options
    must(s.items.p == p + n)
    return total


cdef uint64_t unsubscribe(const uint8_t* p, size_t n) noexcept nogil:
    cdef fr.Frame f
    cdef d.Subscribe s
    cdef View topic_filter
    cdef uint64_t total
    cdef int version
    if not packet_from(p, n, fr.T_UNSUBSCRIBE, &version, &f) or d.decode_unsubscribe(&f, version, &s) != 0:
        return 0
    total = props_sum(&s.props) + s.pid
    while d.unsubscribe_next(&s, &topic_filter):
        total += view_sum(topic_filter)
    must(s.items.p == p + n)
    return total


cdef uint64_t disconnect(const uint8_t* p, size_t n) noexcept nogil:
    cdef fr.Frame f
    cdef d.Disconnect out
    cdef int version
    if not packet_from(p, n, fr.T_DISCONNECT, &version, &f) or d.decode_disconnect(&f, version, &out) != 0:
        return 0
    return props_sum(&out.props) + out.rc


cdef uint64_t auth(const uint8_t* p, size_t n) noexcept nogil:
    cdef fr.Frame f
    cdef d.Auth out
    cdef int version
    if not packet_from(p, n, fr.T_AUTH, &version, &f) or d.decode_auth(&f, version, &out) != 0:
        return 0
    return props_sum(&out.props) + out.rc
