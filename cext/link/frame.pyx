# Encoding and decoding of the frames of a link, by one table: each type has a string with the letters of its fields.
# This module knows the bytes of a frame, not when it is sent or what it means.
# Invariant: a decoded frame is whole and each of its fields is in range, so later modules check nothing again.
# Cost: one pass over the fields; a topic is searched for wildcards; a filter is parsed.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from cext.base.view cimport View
from cext.base.words cimport load32, load64, store32
from cext.codec.utf8 cimport utf8_check
from cext.topic.name cimport Filter, filter_parse, name_check

cdef enum:
    LINK_DURABILITY_MAX = 4     # DURABILITY_STRICT of the broker
    LONG_LENGTH = 4             # bytes of the length of properties and of a publisher, which may be longer than 65535 bytes

# v version  s slot  w workers  l log  r run  n number  i identity  m part  f flags  q QoS  o members online  e expiry  d durability
# t topic  u filter  g group  c publisher  p properties  b payload: the rest of the frame
cdef extern from *:
    """
    static const char *const mosq_link_fields[] = {
        "",
        "vswlrn",           /* HELLO */
        "qou",              /* ROUTE */
        "u",                /* UNROUTE */
        "i",                /* OPEN */
        "",                 /* SNAPSHOT_END */
        "n", "n",           /* ASK, ASK_RETAINED */
        "fegctpb",          /* MESSAGE0 */
        "fdnimegctpb",      /* MESSAGE */
        "n",                /* VOID */
        "i",                /* RELEASED */
        "fectpb",           /* RETAINED */
        "",                 /* RETAINED_END */
        "n",                /* CURRENT */
        "vslrn",            /* WELCOME */
        "n", "n", "n",      /* CONFIRM, ACK, NO_MEMBER */
    };
    """
    const char* mosq_link_fields[]


cdef const char* link_error_text(int error) noexcept nogil:
    if error == wrong(c'v'):
        return b"version"
    if error == wrong(c's') or error == wrong(c'w'):
        return b"number of the worker"
    if error == wrong(c'l') or error == wrong(c'r'):
        return b"log or run"
    if error == wrong(c'n'):
        return b"number"
    if error == wrong(c'i') or error == wrong(c'm'):
        return b"identity"
    if error == wrong(c'f') or error == wrong(c'q') or error == wrong(c'o') or error == wrong(c'e') or error == wrong(c'd'):
        return b"flags, QoS, durability or expiry"
    if error == wrong(c't'):
        return b"topic"
    if error == wrong(c'u') or error == wrong(c'g'):
        return b"filter"
    if error == wrong(c'p'):
        return b"properties"
    if error == wrong(c'c'):
        return b"publisher"
    if error == wrong(c'L'):
        return b"length"
    return b"type"


cdef inline bint view_take(const uint8_t** p, const uint8_t* end, uint32_t head, View* out) noexcept nogil:
    # Take bytes with a length of 2 or 4 bytes in front. Return 0 if the frame ends before.
    cdef const uint8_t* at = p[0]
    if <size_t>(end - at) < head:
        return 0
    out.n = load32(at) if head == LONG_LENGTH else <uint32_t>at[0] | <uint32_t>at[1] << 8
    out.p = at + head
    if <size_t>(end - out.p) < out.n:
        return 0
    p[0] = out.p + out.n
    return 1


cdef bint text_take(char field, const uint8_t** p, const uint8_t* end, LinkFrame* f) noexcept nogil:
    cdef Filter parsed
    if field == c'p':
        return view_take(p, end, LONG_LENGTH, &f.props)
    if field == c'c':
        return view_take(p, end, LONG_LENGTH, &f.publisher)
    if field == c'g':
        if not view_take(p, end, 2, &f.group):
            return 0
        return f.group.n == 0 or (utf8_check(f.group.p, f.group.n) == 0 and filter_parse(f.group.p, f.group.n, &parsed) == 0
                                  and parsed.group.n != 0)
    if not view_take(p, end, 2, &f.text) or utf8_check(f.text.p, f.text.n) != 0:
        return 0
    if field == c't':
        return name_check(f.text.p, f.text.n) == 0
    return filter_parse(f.text.p, f.text.n, &parsed) == 0


cdef inline uint32_t number_bytes(char field) noexcept nogil:
    # Return the size of a field that is a number; 0 = it is a text.
    if field == c'n' or field == c'i' or field == c'l' or field == c'r' or field == c'e':
        return 8
    if field == c'o':
        return 4
    if field == c'v' or field == c's' or field == c'w' or field == c'm':
        return 2
    return 1 if field == c'f' or field == c'q' or field == c'd' else 0


cdef bint number_take(char field, const uint8_t* p, LinkFrame* f) noexcept nogil:
    # Take a field that is a number. Return whether its value is possible.
    if field == c'n':
        f.number = load64(p)
        return f.number != 0 or f.type in (LF_HELLO, LF_WELCOME, LF_ACK)
    if field == c'i':
        f.identity = load64(p)
        return (f.identity != 0) == (f.type != LF_MESSAGE or f.flags & 3 == 2)
    if field == c'l':
        f.log = load64(p)
        return f.log != 0
    if field == c'r':
        f.run = load64(p)
        return f.run != 0
    if field == c'e':
        f.expires_ms = load64(p)
        return (f.flags & LINK_EXPIRES != 0) == (f.expires_ms != 0)
    if field == c'o':
        f.online = load32(p)
        return 1
    if field == c'f' or field == c'q':
        f.flags = p[0]
        return f.flags & 3 < 3 and f.flags <= (LINK_FLAGS if field == c'f' else 2)
    if field == c'd':
        f.durability = p[0]
        return p[0] <= LINK_DURABILITY_MAX
    return short_take(field, <uint32_t>p[0] | <uint32_t>p[1] << 8, f)


cdef inline bint short_take(char field, uint32_t value, LinkFrame* f) noexcept nogil:
    if field == c'v':
        f.version = <uint16_t>value
        return value == LINK_VERSION
    if field == c's':
        f.slot = <uint16_t>value
        return value < LINK_WORKERS_MAX
    if field == c'w':
        f.workers = <uint16_t>value
        return f.slot < value <= LINK_WORKERS_MAX
    f.part = <uint16_t>value
    return f.identity != 0 or value == 0


cdef int link_decode(const uint8_t* p, size_t n, uint32_t frame_max, LinkFrame* out) noexcept nogil:
    cdef const uint8_t* at = p + LINK_HEAD
    cdef const uint8_t* end
    cdef const char* field
    cdef uint32_t total, size
    if n < LINK_HEAD:
        return 0
    total = load32(p)
    if total == 0 or total > frame_max:
        return wrong(c'L')
    if p[4] == 0 or p[4] > LINK_TYPES:
        return wrong(c'T')
    if n - 4 < total:
        return 0
    end = p + 4 + total
    memset(out, 0, sizeof(LinkFrame))
    out.type = p[4]
    field = mosq_link_fields[p[4]]
    while field[0]:
        size = number_bytes(field[0])
        if size != 0:
            if <size_t>(end - at) < size or not number_take(field[0], at, out):
                return wrong(field[0])
            at += size
        elif field[0] == c'b':
            out.payload.p = at
            out.payload.n = <uint32_t>(end - at)
            at = end
        elif not text_take(field[0], &at, end, out):
            return wrong(field[0])
        field += 1
    if out.type == LF_MESSAGE0 and out.flags & 3:
        return wrong(c'f')
    # A message must have an effect. One of QoS 0 has a number only for its owner: for subscribers it would leave the order of QoS 0.
    if out.type == LF_MESSAGE:
        if not out.flags & (LINK_PLAIN | LINK_OWNER) and out.group.n == 0:
            return wrong(c'f')
        if out.flags & 3 == 0 and (out.flags & LINK_PLAIN or out.group.n):
            return wrong(c'f')
    return <int>(total + 4) if at == end else wrong(c'L')


cdef inline View* text_of(char field, LinkFrame* f) noexcept nogil:
    return &f.props if field == c'p' else &f.group if field == c'g' else &f.publisher if field == c'c' else &f.text


cdef inline uint32_t length_bytes(char field) noexcept nogil:
    return LONG_LENGTH if field == c'p' or field == c'c' else 2


cdef uint32_t link_head_size(const LinkFrame* f) noexcept nogil:
    cdef const char* field = mosq_link_fields[f.type]
    cdef uint32_t total = LINK_HEAD
    cdef uint32_t size
    while field[0]:
        size = number_bytes(field[0])
        if size == 0 and field[0] != c'b':
            size = text_of(field[0], <LinkFrame*>f).n + length_bytes(field[0])
        total += size
        field += 1
    return total


cdef inline uint64_t number_of(char field, const LinkFrame* f) noexcept nogil:
    if field == c'n':
        return f.number
    if field == c'i':
        return f.identity
    if field == c'l':
        return f.log
    if field == c'r':
        return f.run
    if field == c'e':
        return f.expires_ms
    if field == c'o':
        return f.online
    if field == c'f' or field == c'q':
        return f.flags
    if field == c'd':
        return f.durability
    return f.version if field == c'v' else f.slot if field == c's' else f.workers if field == c'w' else f.part


cdef uint32_t link_head_put(uint8_t* out, const LinkFrame* f) noexcept nogil:
    cdef const char* field = mosq_link_fields[f.type]
    cdef uint8_t* at = out + LINK_HEAD
    cdef View* text
    cdef uint64_t value
    cdef uint32_t size
    while field[0]:
        size = number_bytes(field[0])
        if size != 0:
            value = number_of(field[0], f)
            memcpy(at, &value, size)                # little-endian, as in cext/base/words.pxd
            at += size
        elif field[0] != c'b':
            text = text_of(field[0], <LinkFrame*>f)
            size = length_bytes(field[0])
            memcpy(at, &text.n, size)
            if text.n:
                memcpy(at + size, text.p, text.n)
            at += size + text.n
        field += 1
    store32(out, <uint32_t>(at - out) - 4 + f.payload.n)
    out[4] = f.type
    return <uint32_t>(at - out)
