# Fuzz targets of bridges: packets of a remote broker (a byte that selects the version, the packet's first byte, its body),
# CONNECT encoded and decoded, and the names of topics on both sides of a bridge.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport abort, free, malloc
from libc.string cimport memcmp, memset
from cext.base.view cimport View
cimport cext.codec.as_client as a
cimport cext.codec.decode as d
cimport cext.codec.frame as fr
cimport cext.codec.properties as pr
from cext.codec.utf8 cimport utf8_check
from cext.topic.lines cimport LINE_IN, LINE_OUT, Line, Lines, Renaming, line_in, line_out, line_prepare
from cext.topic.name cimport Filter, filter_matches, filter_parse, name_check


cdef inline void must(bint holds) noexcept nogil:
    if not holds:
        abort()


cdef uint64_t view_sum(View v) noexcept nogil:
    cdef uint64_t total = v.n
    cdef uint32_t i
    for i in range(v.n):
        total = total * 31 + v.p[i]
    return total


cdef uint64_t props_sum(const pr.Props* p) noexcept nogil:
    return p.present + view_sum(p.raw)


cdef uint64_t as_client(const uint8_t* p, size_t n) noexcept nogil:
    cdef fr.Frame f
    cdef a.ConnackIn connack
    cdef a.Suback suback
    cdef a.ServerDisconnect disconnect
    cdef d.Ack ack
    cdef int version, t
    if n < 2:
        return 0
    version = 3 + p[0] % 3
    f.first = p[1]
    f.start = p
    f.body = p + 2
    f.body_len = <uint32_t>(n - 2)
    f.total_len = f.body_len + 2
    t = p[1] >> 4
    if t == fr.T_CONNECT:
        return connect_again(p + 2, <uint32_t>(n - 2), version)
    if t == fr.T_CONNACK and a.decode_connack(&f, version, &connack) == 0:
        must(version != fr.V31 or not connack.session_present)
        return props_sum(&connack.props) + connack.rc
    if (t == fr.T_SUBACK or t == fr.T_UNSUBACK) and a.decode_suback(&f, version, &suback) == 0:
        must(suback.pid != 0 and (suback.codes.n != 0 or t == fr.T_UNSUBACK))
        return props_sum(&suback.props) + view_sum(suback.codes)
    if t == fr.T_DISCONNECT and a.decode_server_disconnect(&f, version, &disconnect) == 0:
        return props_sum(&disconnect.props) + disconnect.rc
    if fr.T_PUBACK <= t <= fr.T_PUBCOMP and a.decode_server_ack(&f, version, &ack) == 0:
        must(ack.pid != 0)
        return props_sum(&ack.props) + ack.rc
    return 0


cdef View part(const uint8_t** p, const uint8_t* end) noexcept nogil:
    """Read a length of one byte, and at most that many bytes."""
    cdef View v
    v.p = p[0]
    v.n = 0
    if p[0] < end:
        v.n = p[0][0]
        v.p = p[0] + 1
        if v.n > <uint32_t>(end - v.p):
            v.n = <uint32_t>(end - v.p)
    p[0] = v.p + v.n
    return v


cdef uint64_t connect_again(const uint8_t* p, uint32_t n, int version) noexcept nogil:
    cdef const uint8_t* end = p + n
    cdef a.ConnectOut k
    cdef d.Connect c
    cdef fr.Frame f
    cdef uint8_t* out
    cdef uint32_t size
    memset(&k, 0, sizeof(k))
    if n < 4:
        return 0
    k.version = <uint8_t>version
    k.bridge = p[0] & 1
    k.clean_start = p[0] >> 1 & 1
    k.has_username = p[0] >> 2 & 1
    k.has_password = p[0] >> 3 & 1 if k.has_username or version == fr.V5 else 0
    k.has_will = p[0] >> 4 & 1
    k.will_qos = p[1] % 3 if k.has_will else 0
    k.will_retain = p[0] >> 5 & 1 if k.has_will else 0
    k.receive_max = p[2]
    k.alias_max = p[3]
    k.session_expiry = <uint32_t>p[2] * 70000
    k.packet_max = <uint32_t>p[3] * 70000
    p += 4
    k.client_id, k.username, k.password = part(&p, end), part(&p, end), part(&p, end)
    k.will_topic, k.will_payload = part(&p, end), part(&p, end)
    if utf8_check(k.client_id.p, k.client_id.n) or utf8_check(k.username.p, k.username.n) or utf8_check(k.will_topic.p, k.will_topic.n):
        return 0
    size = a.connect_size(&k)
    out = <uint8_t*>malloc(size)
    must(a.encode_connect(out, &k) == out + size)
    must(fr.frame_next(out, size, 0, &f) == 1 and f.total_len == size)
    must(d.decode_connect(&f, &c) == 0)
    must(c.version == version and c.bridge == (k.bridge if version != fr.V5 else 0) and c.clean_start == k.clean_start)
    must(c.client_id.n == k.client_id.n and (c.has_username == k.has_username) and (c.has_password == k.has_password))
    must(c.will == k.has_will and c.will_qos == k.will_qos and c.will_retain == k.will_retain)
    if k.has_username:
        must(c.username.n == k.username.n and memcmp(c.username.p, k.username.p, c.username.n) == 0)
    if k.has_will:
        must(c.will_payload.n == k.will_payload.n and memcmp(c.will_payload.p, k.will_payload.p, c.will_payload.n) == 0)
    if version == fr.V5:
        must(not pr.props_has(&c.props, pr.P_RECEIVE_MAXIMUM) or c.props.receive_max == k.receive_max)
    free(out)
    return size


cdef bint line_read(Line* line, const uint8_t** p, const uint8_t* end) noexcept nogil:
    """Make the prefix from the start of the filter, up to its first wildcard or less."""
    cdef Filter f
    cdef uint8_t how
    if p[0] == end:
        return 0
    how = p[0][0]
    p[0] += 1
    line.local, line.remote = part(p, end), part(p, end)
    line.ways = how & 3
    if filter_parse(line.local.p, line.local.n, &f) != 0 or f.group.n or filter_parse(line.remote.p, line.remote.n, &f) != 0 or f.group.n:
        return 0
    line.local_prefix, line.remote_prefix = line.local, line.remote
    line.local_prefix.n = stem(line.local, how >> 2 & 7)
    line.remote_prefix.n = stem(line.remote, how >> 5)
    line.maps = line.local_prefix.n + line.remote_prefix.n != 0
    line_prepare(line)
    return 1


cdef uint32_t stem(View v, uint32_t most) noexcept nogil:
    cdef uint32_t i = 0
    while i < v.n and i < most and v.p[i] != c'+' and v.p[i] != c'#':
        i += 1
    return i


cdef uint64_t lines(const uint8_t* p, size_t n) noexcept nogil:
    cdef const uint8_t* end = p + n
    cdef View topic = part(&p, end)
    cdef Line room[8]
    cdef Lines all
    cdef Renaming name
    cdef const Line* found
    cdef bint any = 0
    cdef uint32_t i
    memset(&all, 0, sizeof(all))
    all.at = room
    if name_check(topic.p, topic.n) != 0:
        return 0
    while all.n < 8 and line_read(&room[all.n], &p, end):
        if room[all.n].maps:
            all.maps_in |= room[all.n].ways & LINE_IN
            all.maps_out |= room[all.n].ways & LINE_OUT
        all.n += 1
    found = line_in(&all, topic, &name)
    for i in range(all.n):
        if room[i].ways & LINE_IN and filter_matches(room[i].remote, topic):
            any = 1
    must((found != NULL) == any)
    must(name.cut <= topic.n)
    if found != NULL:
        must(filter_matches(found.remote, topic))
    line_out(&all, topic, &name)
    must(name.cut <= topic.n and (name.prefix.n == 0 or name.prefix.p != NULL))
    return name.cut + view_sum(name.prefix)
