"""What is wrong with a CONNECT that could not be decoded, in Mosquitto's words and in its order of looking [shared/reference 2.8]. Walks the
bytes once more, for the log alone: nobody but who reads the log learns more than that it was malformed."""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp

from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport address_text, log_line
from cext.broker.core.client_state cimport Client
from cext.broker.core.log cimport LOG_ERROR, LOG_INFORMATION, LOG_LINE_MAX, log_wanted
from cext.codec.frame cimport Frame, V31, V311, V5


cdef void say(Broker* b, Client* c, const char* what) noexcept nogil:
    cdef char where[64]
    address_text(&c.conn.address, where, sizeof(where))
    log_line(b, LOG_INFORMATION, snprintf(b.log.line, LOG_LINE_MAX, "Protocol error from %s:%d: %s.", where,
                                          <int>c.conn.address.port, what))


cdef void put_number(Broker* b, Client* c, const char* what, int number, bint hexadecimal) noexcept nogil:
    cdef char text[80]
    snprintf(text, sizeof(text), <const char*>b"%s (%02X)" if hexadecimal else <const char*>b"%s (%d)", what, number)
    say(b, c, text)


cdef void connect_complain(Broker* b, Client* c, const Frame* f) noexcept nogil:
    cdef const uint8_t* p = f.body
    cdef uint32_t n = f.body_len
    cdef uint32_t name_n, at
    cdef int level
    if not log_wanted(&b.log, LOG_INFORMATION):
        return
    if n < 2:
        say(b, c, "CONNECT with missing protocol string length")
        return
    name_n = <uint32_t>(p[0] << 8 | p[1])
    at = 2 + name_n
    if name_n != 4 and name_n != 6:
        put_number(b, c, "CONNECT with incorrect protocol string length", <int>name_n, False)
    elif n < at:
        say(b, c, "CONNECT with missing protocol string")
    elif n < at + 1:
        say(b, c, "CONNECT with missing protocol version")
    else:
        level = p[at] & 0x7F
        if level < V31 or level > V5:
            return                           # the end of the connection says it all
        if name_n == 6 and memcmp(p + 2, b"MQIsdp", 6) == 0:
            if level != V31:
                put_number(b, c, "CONNECT with invalid protocol version", p[at], False)
                return
        elif name_n == 4 and memcmp(p + 2, b"MQTT", 4) == 0:
            if level == V31:
                put_number(b, c, "CONNECT with invalid protocol version", p[at], False)
                return
            if f.first & 15:
                put_number(b, c, "CONNECT with non-zero reserved flags", f.first, True)
                return
        else:
            put_name(b, c, p + 2, name_n)
            return
        complain_flags(b, c, p + at + 1, n - at - 1, level)


cdef void put_name(Broker* b, Client* c, const uint8_t* p, uint32_t n) noexcept nogil:
    cdef char text[64]
    snprintf(text, sizeof(text), "CONNECT with invalid protocol \"%.*s\"", <int>n, <const char*>p)
    say(b, c, text)


cdef void complain_flags(Broker* b, Client* c, const uint8_t* p, uint32_t n, int level) noexcept nogil:
    cdef char text[80]
    cdef uint8_t flags
    if n < 1:
        say(b, c, "CONNECT with missing connect flags")
        return
    flags = p[0]
    if flags & 1 and level != V31:
        put_number(b, c, "CONNECT with non-zero connect reserved flag", flags, True)
    elif n < 3:
        say(b, c, "CONNECT with missing keepalive")
    elif flags & 0x18 == 0x18:
        say(b, c, "CONNECT with invalid Will QoS (3)")
    elif not flags & 4 and flags & 0x38 and level != V31:
        snprintf(text, sizeof(text), "CONNECT without Will with non-zero QoS (%d) or retain (%d)", <int>(flags >> 3 & 3), <int>(flags >> 5 & 1))
        say(b, c, text)
    elif flags & 0xC0 == 0x40 and level <= V311 and log_wanted(&b.log, LOG_ERROR):
        complain_password(b, c, p, n)


cdef void complain_password(Broker* b, Client* c, const uint8_t* p, uint32_t n) noexcept nogil:
    cdef uint32_t id_n = <uint32_t>(p[3] << 8 | p[4]) if n >= 5 else 0
    if n < 5 or id_n > n - 5:
        return
    log_line(b, LOG_ERROR, snprintf(b.log.line, LOG_LINE_MAX, "Protocol error from %.*s: password without username, closing connection.",
                                    <int>id_n, <const char*>(p + 5)))
