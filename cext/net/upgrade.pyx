"""Read and answer a client's WebSocket handshake [RFC 6455 4.2], sans-IO. This module knows one kind of HTTP request; it does
not know sockets, frames or MQTT.

    request line, header lines, empty line -> 101, or the status of a refusal

Invariants: the verdict does not depend on how the bytes were split; each byte is read at most twice; the first invalid line is
answered when it ends, and bytes that cannot become `GET ` at once, so the server never waits for the end of an invalid request. A
request has at most `size_max` bytes.
Any path is accepted, as in Mosquitto. Stricter than Mosquitto: lines must end with CR LF, and Sec-WebSocket-Version is required.
Cost: about a microsecond a handshake, most of it for SHA-1.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memchr, memcmp, memcpy

from cext.base.view cimport View
from cext.net.accept_key cimport WS_KEY_SIZE, ws_accept

cdef extern from "<strings.h>" nogil:
    int strncasecmp(const char* a, const char* b, size_t n)


# ---------------------------------------------------------------- tokens and lists

cdef inline bint is_token(uint8_t c) noexcept nogil:
    """Return whether c is a tchar [RFC 9110 5.6.2]."""
    if c'a' <= c <= c'z' or c'A' <= c <= c'Z' or c'0' <= c <= c'9':
        return 1
    return c != 0 and memchr(b"!#$%&'*+-.^_`|~", c, 15) != NULL


cdef inline bint is_blank(uint8_t c) noexcept nogil:
    return c == c' ' or c == c'\t'


cdef View trim(const uint8_t* p, size_t n) noexcept nogil:
    cdef View v
    while n and is_blank(p[0]):
        p += 1
        n -= 1
    while n and is_blank(p[n - 1]):
        n -= 1
    v.p = p
    v.n = <uint32_t>n
    return v


cdef inline bint same_word(View v, const char* word, uint32_t n) noexcept nogil:
    """Return whether v equals the word, without regard to case."""
    return v.n == n and strncasecmp(<const char*>v.p, word, n) == 0


cdef View list_next(View* rest) noexcept nogil:
    """Return the next item of a comma-separated list; p is NULL at the end."""
    cdef View item
    cdef const uint8_t* comma
    cdef size_t n
    if rest.p == NULL:
        return rest[0]
    comma = <const uint8_t*>memchr(rest.p, c',', rest.n) if rest.n else NULL
    n = <size_t>(comma - rest.p) if comma != NULL else rest.n
    item = trim(rest.p, n)
    if comma == NULL:
        rest.p = NULL
    else:
        rest.p = comma + 1
        rest.n -= <uint32_t>n + 1
    return item


cdef View list_last(View* rest) noexcept nogil:
    """Take the last item from a comma-separated list; an empty list has an empty item."""
    cdef uint32_t start = rest.n
    cdef View item
    while start and rest.p[start - 1] != c',':
        start -= 1
    item = trim(rest.p + start, rest.n - start)
    rest.n = start - 1 if start else 0
    return item


cdef bint list_has(View value, const char* word, uint32_t n) noexcept nogil:
    cdef View item = list_next(&value)
    while item.p != NULL:
        if same_word(item, word, n):
            return 1
        item = list_next(&value)
    return 0


# ---------------------------------------------------------------- lines

cdef int upgrade_refuse(Upgrade* u, int what, int status) noexcept nogil:
    u.wrong = <uint8_t>what
    return status


cdef int start_check(Upgrade* u, const uint8_t* p, size_t n) noexcept nogil:
    """Check the method as far as it has arrived. A word that may be another method gets 405 when it
    ends; other bytes are not HTTP."""
    cdef size_t i = 0
    if n >= 4 and memcmp(p, b"GET ", 4) == 0 or n < 4 and memcmp(p, b"GET ", n) == 0:
        return 0
    while i < n and i <= 16 and c'A' <= p[i] <= c'Z':
        i += 1
    if i == n and i <= 16:
        return 0                # the bytes may be a method: the next byte decides
    return upgrade_refuse(u, WRONG_METHOD, 405) if i and i <= 16 and p[i] == c' ' else upgrade_refuse(u, WRONG_REQUEST, 400)


cdef int request_line(Upgrade* u, const uint8_t* p, size_t n) noexcept nogil:
    cdef const uint8_t* target = p + 4
    cdef const uint8_t* space
    cdef size_t i
    if n < 4 or memcmp(p, b"GET ", 4) != 0:
        return upgrade_refuse(u, WRONG_REQUEST, 400)
    space = <const uint8_t*>memchr(target, c' ', n - 4)
    if space == NULL or space == target:
        return upgrade_refuse(u, WRONG_REQUEST, 400)
    for i in range(<size_t>(space - target)):
        if target[i] <= 0x20 or target[i] == 0x7F:
            return upgrade_refuse(u, WRONG_REQUEST, 400)
    n -= <size_t>(space + 1 - p)
    if n != 8 or memcmp(space + 1, b"HTTP/", 5) != 0 or space[7] != c'.' or not (
            c'0' <= space[6] <= c'9' and c'0' <= space[8] <= c'9'):
        return upgrade_refuse(u, WRONG_REQUEST, 400)
    if space[6] != c'1' or space[8] == c'0':
        return upgrade_refuse(u, WRONG_VERSION, 505)  # 1.1 or higher is required [RFC 6455 4.2.1]
    return 0


cdef bint key_good(View v) noexcept nogil:
    """Return whether v is base64 of 16 bytes: 22 letters, of which the last holds 2 bits, and two padding signs."""
    cdef uint32_t i
    if v.n != WS_KEY_SIZE or v.p[22] != c'=' or v.p[23] != c'=' or memchr(b"AQgw", v.p[21], 4) == NULL:
        return 0
    for i in range(22):
        if not (c'a' <= v.p[i] <= c'z' or c'A' <= v.p[i] <= c'Z' or c'0' <= v.p[i] <= c'9' or v.p[i] == c'+' or v.p[i] == c'/'):
            return 0
    return 1


cdef void subprotocol_choose(Upgrade* u, View value) noexcept nogil:
    """Choose the first subprotocol that the broker supports, in the client's order [RFC 6455 4.2.2]."""
    cdef View item = list_next(&value)
    u.seen |= SEEN_SUBPROTOCOL
    while item.p != NULL and u.subprotocol == SUBPROTOCOL_NONE:
        if item.n == 4 and memcmp(item.p, b"mqtt", 4) == 0:
            u.subprotocol = SUBPROTOCOL_MQTT
        elif item.n == 8 and memcmp(item.p, b"mqttv3.1", 8) == 0:
            u.subprotocol = SUBPROTOCOL_MQTTV31
        item = list_next(&value)


cdef int header_take(Upgrade* u, const uint8_t* start, View name, View value) noexcept nogil:
    if same_word(name, b"upgrade", 7):
        if list_has(value, b"websocket", 9):
            u.seen |= SEEN_UPGRADE
    elif same_word(name, b"connection", 10):
        u.seen |= SEEN_CONNECTION_LINE
        if list_has(value, b"upgrade", 7):
            u.seen |= SEEN_CONNECTION
    elif same_word(name, b"sec-websocket-version", 21):
        if u.seen & SEEN_VERSION:
            return upgrade_refuse(u, WRONG_REQUEST, 400)              # at most once [RFC 6455 11.3.5]
        u.seen |= SEEN_VERSION | (SEEN_VERSION_13 if same_word(value, b"13", 2) else 0)
    elif same_word(name, b"sec-websocket-key", 17):
        if u.seen & SEEN_KEY:
            return upgrade_refuse(u, WRONG_REQUEST, 400)              # at most once [RFC 6455 11.3.1]
        u.seen |= SEEN_KEY
        if key_good(value):
            u.seen |= SEEN_KEY_GOOD
            memcpy(u.key, value.p, WS_KEY_SIZE)
    elif same_word(name, b"sec-websocket-protocol", 22):
        subprotocol_choose(u, value)                         # may be repeated [RFC 6455 11.3.4]
    elif same_word(name, b"origin", 6):
        if u.seen & SEEN_ORIGIN:
            return upgrade_refuse(u, WRONG_REQUEST, 400)              # at most once [RFC 6454 7.3]
        u.seen |= SEEN_ORIGIN
        u.origin_at = <uint16_t>(value.p - start)
        u.origin_n = <uint16_t>value.n
    elif same_word(name, b"x-forwarded-for", 15):
        u.seen |= SEEN_FORWARDED                    # proxies append, so the last header is the nearest proxy's
        u.forwarded_at = <uint16_t>(value.p - start)
        u.forwarded_n = <uint16_t>value.n
    return 0


cdef int header_line(Upgrade* u, const uint8_t* start, const uint8_t* p, size_t n) noexcept nogil:
    cdef size_t i = 0, k
    cdef View name, value
    while i < n and is_token(p[i]):
        i += 1
    if i == 0 or i == n or p[i] != c':':
        return upgrade_refuse(u, WRONG_REQUEST, 400)      # also a folded line, and a blank before the colon [RFC 9112 5.1, 5.2]
    for k in range(i + 1, n):
        if (p[k] < 0x20 and p[k] != c'\t') or p[k] == 0x7F:
            return upgrade_refuse(u, WRONG_REQUEST, 400)
    name.p = p
    name.n = <uint32_t>i
    value = trim(p + i + 1, n - i - 1)
    return header_take(u, start, name, value)


# ---------------------------------------------------------------- the request

cdef bint origin_allowed(const Upgrade* u, const uint8_t* p, const UpgradeRules* rules) noexcept nogil:
    """Return whether the origin is allowed. A client without Origin is not a browser and could send any value [RFC 6455 10.2], so
    it is accepted, as in Mosquitto."""
    cdef uint32_t i
    if rules.n_origins == 0 or not u.seen & SEEN_ORIGIN:
        return 1
    for i in range(rules.n_origins):
        if rules.origins[i].n == u.origin_n and strncasecmp(
                <const char*>rules.origins[i].p, <const char*>p + u.origin_at, u.origin_n) == 0:
            return 1
    return 0


cdef int upgrade_verdict(Upgrade* u, const uint8_t* p, const UpgradeRules* rules) noexcept nogil:
    if not u.seen & SEEN_UPGRADE or not u.seen & (SEEN_CONNECTION_LINE if rules.compat else SEEN_CONNECTION):
        return upgrade_refuse(u, WRONG_UPGRADE, 426)
    if not u.seen & SEEN_VERSION_13:
        return upgrade_refuse(u, WRONG_WS_VERSION, 426)               # [RFC 6455 4.4]
    if not u.seen & SEEN_KEY_GOOD:
        return upgrade_refuse(u, WRONG_KEY, 400 if u.seen & SEEN_KEY else 426)
    if not origin_allowed(u, p, rules):
        return upgrade_refuse(u, WRONG_ORIGIN, 403)
    if u.subprotocol == SUBPROTOCOL_NONE:
        return upgrade_refuse(u, WRONG_SUBPROTOCOL, 400)              # [v5 6.0.0-3]
    return UPGRADE_DONE


cdef int line_end(Upgrade* u, const uint8_t* p, uint32_t at, const UpgradeRules* rules) noexcept nogil:
    """Handle a line that ends before the LF at `at`. Return 0 to continue, otherwise a status."""
    cdef const uint8_t* line = p + u.line_at
    cdef size_t n = at - u.line_at
    cdef int status
    if n == 0 or p[at - 1] != c'\r':
        return upgrade_refuse(u, WRONG_REQUEST, 400)
    n -= 1
    if u.lines == 0:
        status = request_line(u, line, n)
        u.lines = 1
    elif n == 0:
        u.size = at + 1
        return upgrade_verdict(u, p, rules)
    else:
        status = header_line(u, p, line, n)
    u.line_at = at + 1
    return status


cdef int upgrade_read(Upgrade* u, const uint8_t* p, size_t n, const UpgradeRules* rules) noexcept nogil:
    cdef size_t limit = rules.size_max if rules.size_max < UPGRADE_SIZE_MAX else UPGRADE_SIZE_MAX
    cdef size_t have = n if n < limit else limit
    cdef const uint8_t* end
    cdef int status
    while u.scanned < have:
        if u.lines == 0:
            # check the method byte by byte, before its line ends
            status = start_check(u, p, have if have < 18 else 18)
            if status:
                return status
        end = <const uint8_t*>memchr(p + u.scanned, c'\n', have - u.scanned)
        if end == NULL:
            u.scanned = <uint32_t>have
            break
        u.scanned = <uint32_t>(end - p) + 1
        status = line_end(u, p, u.scanned - 1, rules)
        if status:
            return status
    return upgrade_refuse(u, WRONG_SIZE, 431) if n > limit else UPGRADE_MORE


# ---------------------------------------------------------------- the answer

cdef const char* upgrade_wrong_text(int wrong) noexcept nogil:
    if wrong == WRONG_METHOD:
        return "only GET is served here"
    if wrong == WRONG_VERSION:
        return "HTTP/1.1 is needed"
    if wrong == WRONG_UPGRADE:
        return "this is a WebSocket port: Upgrade: websocket and Connection: Upgrade are needed"
    if wrong == WRONG_WS_VERSION:
        return "Sec-WebSocket-Version: 13 is needed"
    if wrong == WRONG_KEY:
        return "Sec-WebSocket-Key must be 16 bytes in base64"
    if wrong == WRONG_SUBPROTOCOL:
        return "Sec-WebSocket-Protocol must offer mqtt or mqttv3.1"
    if wrong == WRONG_ORIGIN:
        return "this origin is not allowed"
    if wrong == WRONG_SIZE:
        return "the request is larger than packet_buffer_size"
    return "not a valid HTTP/1.1 request"


cdef const char* status_text(int status) noexcept nogil:
    if status == 403:
        return "403 Forbidden"
    if status == 405:
        return "405 Method Not Allowed"
    if status == 426:
        return "426 Upgrade Required"
    if status == 431:
        return "431 Request Header Fields Too Large"
    if status == 505:
        return "505 HTTP Version Not Supported"
    return "400 Bad Request"


cdef const char* status_headers(int status) noexcept nogil:
    if status == 405:
        return "Allow: GET\r\n"
    if status == 426:
        return "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    return ""


cdef uint8_t* upgrade_answer(uint8_t* out, const Upgrade* u, int status) noexcept nogil:
    cdef uint8_t accept[28]
    cdef const char* text
    cdef int n
    if status == UPGRADE_DONE:
        ws_accept(accept, u.key)
        n = snprintf(<char*>out, UPGRADE_ANSWER_MAX,
                     "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %.28s\r\n"
                     "Sec-WebSocket-Protocol: %s\r\n\r\n", <const char*>accept,
                     <const char*>b"mqttv3.1" if u.subprotocol == SUBPROTOCOL_MQTTV31 else <const char*>b"mqtt")
    else:
        text = upgrade_wrong_text(u.wrong)
        n = snprintf(<char*>out, UPGRADE_ANSWER_MAX,
                     "HTTP/1.1 %s\r\n%sContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close%s\r\n\r\n%s\n",
                     status_text(status), status_headers(status), <int>text_size(text) + 1,
                     <const char*>b", Upgrade" if status == 426 else <const char*>b"", text)
    return out + n


cdef inline size_t text_size(const char* text) noexcept nogil:
    cdef size_t n = 0
    while text[n]:
        n += 1
    return n
