"""Log the reason why a CONNECT could not be decoded, in Mosquitto's words and in its order of checks. This
module walks over the bytes a second time, only for the log. The client learns only that its packet was malformed.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp

from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport ADDRESS_TEXT_MAX, client_address, log_line, peer_line_wanted
from cext.broker.core.client_state cimport Client
from cext.broker.core.log cimport LOG_ERROR, LOG_INFORMATION, LOG_LINE_MAX, log_wanted
from cext.broker.core.log_rate cimport LINE_PROTOCOL
from cext.codec.frame cimport Frame, V31, V311, V5


cdef void log_protocol_error(Broker* b, Client* c, const char* text) noexcept nogil:
    cdef char where[ADDRESS_TEXT_MAX]
    if peer_line_wanted(b, c, LOG_INFORMATION, LINE_PROTOCOL):
        client_address(c, where, sizeof(where))
        log_line(b, LOG_INFORMATION, snprintf(b.log.line, LOG_LINE_MAX, "Protocol error from %s:%d: %s.", where,
                                              <int>c.conn.address.port, text))


cdef void log_connect_number(Broker* b, Client* c, const char* what, int number, bint hexadecimal) noexcept nogil:
    cdef char text[80]
    snprintf(text, sizeof(text), <const char*>b"%s (%02X)" if hexadecimal else <const char*>b"%s (%d)", what, number)
    log_protocol_error(b, c, text)


cdef void log_malformed_connect(Broker* b, Client* c, const Frame* f) noexcept nogil:
    cdef const uint8_t* p = f.body
    cdef uint32_t n = f.body_len
    cdef uint32_t name_n, at
    cdef int level
    if not log_wanted(&b.log, LOG_INFORMATION):
        return
    if n < 2:
        log_protocol_error(b, c, "CONNECT with missing protocol string length")
        return
    name_n = <uint32_t>(p[0] << 8 | p[1])
    at = 2 + name_n
    if name_n != 4 and name_n != 6:
        log_connect_number(b, c, "CONNECT with incorrect protocol string length", <int>name_n, False)
    elif n < at:
        log_protocol_error(b, c, "CONNECT with missing protocol string")
    elif n < at + 1:
        log_protocol_error(b, c, "CONNECT with missing protocol version")
    else:
        level = p[at] & 0x7F
        if level < V31 or level > V5:
            return                           # the line about the end of the connection is enough
        if name_n == 6 and memcmp(p + 2, b"MQIsdp", 6) == 0:
            if level != V31:
                log_connect_number(b, c, "CONNECT with invalid protocol version", p[at], False)
                return
        elif name_n == 4 and memcmp(p + 2, b"MQTT", 4) == 0:
            if level == V31:
                log_connect_number(b, c, "CONNECT with invalid protocol version", p[at], False)
                return
            if f.first & 15:
                log_connect_number(b, c, "CONNECT with non-zero reserved flags", f.first, True)
                return
        else:
            log_connect_protocol(b, c, p + 2, name_n)
            return
        log_flags_error(b, c, p + at + 1, n - at - 1, level)


cdef void log_connect_protocol(Broker* b, Client* c, const uint8_t* p, uint32_t n) noexcept nogil:
    cdef char text[64]
    snprintf(text, sizeof(text), "CONNECT with invalid protocol \"%.*s\"", <int>n, <const char*>p)
    log_protocol_error(b, c, text)


cdef void log_flags_error(Broker* b, Client* c, const uint8_t* p, uint32_t n, int level) noexcept nogil:
    cdef char text[80]
    cdef uint8_t flags
    if n < 1:
        log_protocol_error(b, c, "CONNECT with missing connect flags")
        return
    flags = p[0]
    if flags & 1 and level != V31:
        log_connect_number(b, c, "CONNECT with non-zero connect reserved flag", flags, True)
    elif n < 3:
        log_protocol_error(b, c, "CONNECT with missing keepalive")
    elif flags & 0x18 == 0x18:
        log_protocol_error(b, c, "CONNECT with invalid Will QoS (3)")
    elif not flags & 4 and flags & 0x38 and level != V31:
        snprintf(text, sizeof(text), "CONNECT without Will with non-zero QoS (%d) or retain (%d)", <int>(flags >> 3 & 3),
                 <int>(flags >> 5 & 1))
        log_protocol_error(b, c, text)
    elif flags & 0xC0 == 0x40 and level <= V311 and peer_line_wanted(b, c, LOG_ERROR, LINE_PROTOCOL):
        log_password_error(b, c, p, n)


cdef void log_password_error(Broker* b, Client* c, const uint8_t* p, uint32_t n) noexcept nogil:
    cdef uint32_t id_n = <uint32_t>(p[3] << 8 | p[4]) if n >= 5 else 0
    if n < 5 or id_n > n - 5:
        return
    log_line(b, LOG_ERROR, snprintf(b.log.line, LOG_LINE_MAX,
                                    "Protocol error from %.*s: password without username, closing connection.",
                                    <int>id_n, <const char*>(p + 5)))
