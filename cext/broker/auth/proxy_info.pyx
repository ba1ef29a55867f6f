"""Take the information of a connection before its first MQTT packet. This module knows the listener's rules and log lines. It does not know how the
bytes are read.

The broker believes a PROXY header: the header's address replaces the system's in every line and limit, and the name of its TLS certificate may
become the user name. The broker believes X-Forwarded-For only from the listener's `websockets_trusted_proxy` networks, because any client can send
it. Neither makes a connection local (Address.by_proxy).
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, memset

from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport END_REFUSED, END_UPGRADE, client_address, client_doom, log_line, peer_line_wanted
from cext.broker.core.client_state cimport CF_IDENTIFIED, Client, client_of
from cext.broker.core.listener cimport Listener
from cext.broker.core.log cimport LOG_LINE_MAX, LOG_NOTICE
from cext.broker.core.log_rate cimport LINE_CONNECTED, LINE_PROTOCOL
from cext.broker.core.newcomers cimport newcomer_moved
from cext.broker.core.pending_packet cimport names_take, owned_set, proxied_of
from cext.codec.decode cimport Connect
from cext.codec.utf8 cimport utf8_check
from cext.net.address cimport address_in
from cext.net.proxy cimport PROXY_CERT_CONN, PROXY_CERT_SESS, PROXY_TLS, PROXY_V2_HEAD_BYTES, Proxied
from cext.net.conn_state cimport Address, Conn, PROXY_ITSELF
from cext.net.upgrade cimport SEEN_FORWARDED, Upgrade, list_last

cdef extern from "<sys/socket.h>" nogil:
    int AF_INET, AF_INET6, AF_UNIX

cdef extern from "<arpa/inet.h>" nogil:
    int inet_pton(int family, const char* text, void* out)

cdef enum:
    COMMON_NAME_MAX = 1024       # RFC 5280 A.1 allows 64; longer names exist
    MOSQUITTO_V2_BYTES_MAX = PROXY_V2_HEAD_BYTES + 500


# ---------------------------------------------------------------- PROXY

cdef int proxy_rejected(Broker* b, Client* c, const char* why) noexcept nogil:
    cdef char where[ADDRESS_TEXT_MAX]
    if peer_line_wanted(b, c, LOG_NOTICE, LINE_PROTOCOL):
        client_address(c, where, sizeof(where))
        log_line(b, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX, "Connection from %s:%d rejected, %s.", where,
                                         <int>c.conn.address.port, why))
    client_doom(b, c, END_REFUSED)
    return -1


cdef int proxy_corrupt(Broker* b, Client* c) noexcept nogil:
    """Reject a header. Where Mosquitto's words do not name the proxy, its address follows them: in version 1, and with `compat` in version 2,
    if the first 16 bytes are wrong or announce more than Mosquitto reads."""
    cdef char where[ADDRESS_TEXT_MAX]
    cdef uint32_t announced = c.conn.web.proxy_need
    cdef const char* words = "Connection rejected, corrupt PROXY header."
    if c.listener.proxy_version == 2:
        if not b.settings.compat or 0 < announced <= MOSQUITTO_V2_BYTES_MAX:
            return proxy_rejected(b, c, "corrupt PROXY header")
        words = "Client (null) [(null):0] disconnected: bad socket read/write: Invalid input. The PROXY header is corrupt."
    if peer_line_wanted(b, c, LOG_NOTICE, LINE_PROTOCOL):
        client_address(c, where, sizeof(where))
        log_line(b, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX, "%s It is from %s:%d.", words, where, <int>c.conn.address.port))
    client_doom(b, c, END_REFUSED)
    return -1


cdef void log_proxied_tls(Broker* b, Client* c, const Proxied* p) noexcept nogil:
    cdef char where[ADDRESS_TEXT_MAX]
    if p.tls_version.n == 0 or p.cipher.n == 0 or not b.settings.connection_messages:
        return
    if utf8_check(p.tls_version.p, p.tls_version.n) != 0 or utf8_check(p.cipher.p, p.cipher.n) != 0 \
            or not peer_line_wanted(b, c, LOG_NOTICE, LINE_CONNECTED):
        return
    client_address(c, where, sizeof(where))
    log_line(b, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX, "Connection from %s:%d negotiated %.*s cipher %.*s", where,
                                     <int>c.conn.address.port, <int>p.tls_version.n, <const char*>p.tls_version.p,
                                     <int>p.cipher.n, <const char*>p.cipher.p))


cdef int proxy_name_store(Client* c, const Proxied* p) noexcept nogil:
    """Store the name until CONNECT."""
    cdef uint32_t n = p.common_name.n
    if n == 0 or n > COMMON_NAME_MAX or utf8_check(p.common_name.p, n) != 0:
        return 0                 # without a name CONNECT is refused
    return -1 if names_take(c) == NULL or owned_set(&c.names.proxied, p.common_name) != 0 else 0


cdef int proxy_path_store(Client* c, View path) noexcept nogil:
    """Store the path for log lines. A path with blanks or control characters is left out: it could forge a line."""
    cdef uint32_t i
    if path.n == 0 or utf8_check(path.p, path.n) != 0:
        return 0
    for i in range(path.n):
        if path.p[i] <= c' ' or path.p[i] == 0x7F:
            return 0
    return -1 if names_take(c) == NULL or owned_set(&c.names.path, path) != 0 else 0


cdef int client_proxied(void* broker, Conn* conn, const Proxied* p) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    cdef Client* c = client_of(conn)
    cdef Listener* listener = c.listener
    cdef bint has_certificate
    if p == NULL:
        return proxy_corrupt(b, c)
    if b.settings.compat and listener.proxy_version == 2 and ((p.local and not p.family) or p.size > MOSQUITTO_V2_BYTES_MAX):
        return proxy_corrupt(b, c)       # Mosquitto refuses a LOCAL header without addresses, and long headers
    conn.address.by_proxy = PROXY_ITSELF if p.local and not b.settings.compat else 1
    if not p.local or (b.settings.compat and p.family):      # Mosquitto uses the addresses of a LOCAL header
        conn.address.family = p.family
        conn.address.port = p.port
        memcpy(conn.address.ip, p.ip, sizeof(p.ip))
        newcomer_moved(b, c)
        if proxy_path_store(c, p.path) != 0:
            return proxy_rejected(b, c, "out of memory")
    if listener.proxy_version != 2:
        return 0
    if listener.proxy_require_tls and not (p.has_tls and p.tls & PROXY_TLS):
        return proxy_rejected(b, c, "client did not connect using TLS")
    has_certificate = p.has_tls and p.tls & PROXY_TLS and p.tls & (PROXY_CERT_CONN | PROXY_CERT_SESS) and p.verify == 0
    if listener.require_certificate and not has_certificate:
        return proxy_rejected(b, c, "client did not provide a certificate")
    log_proxied_tls(b, c, p)
    if has_certificate and proxy_name_store(c, p) != 0:
        return proxy_rejected(b, c, "out of memory")
    return 0


cdef bint proxied_identity(Client* c, Connect* p) noexcept nogil:
    if c.listener.proxy_version != 2 or not c.listener.require_certificate or not c.listener.use_identity_as_username:
        return 0
    p.has_username = p.has_password = 0
    p.password.n = 0
    if proxied_of(c).p == NULL:
        return 1
    c.flags |= CF_IDENTIFIED
    p.has_username = 1
    p.username = proxied_of(c)
    return 0


# ---------------------------------------------------------------- upgrade

cdef bint forwarded_address_read(const uint8_t* text, uint32_t n, Address* out) noexcept nogil:
    """Parse `1.2.3.4`, `1.2.3.4:5`, `2001:db8::1` or `[2001:db8::1]:5`, the forms that reverse proxies write."""
    cdef char buffer[ADDRESS_TEXT_MAX]
    cdef Address a
    cdef uint32_t i, size = n, colons = 0
    memset(&a, 0, sizeof(a))
    if n and text[0] == c'[':
        text += 1
        size = 0
        while size < n - 1 and text[size] != c']':
            size += 1
    else:
        for i in range(n):
            if text[i] == c':':
                colons += 1
                size = i
        if colons != 1:
            size = n
    if size == 0 or size >= sizeof(buffer):
        return 0
    memcpy(buffer, text, size)
    buffer[size] = 0
    if inet_pton(AF_INET, buffer, a.ip) == 1:
        a.family = <uint8_t>AF_INET
    elif inet_pton(AF_INET6, buffer, a.ip) == 1:
        a.family = <uint8_t>AF_INET6
    else:
        return 0
    a.port = out.port            # port of the connection: the port of a forwarded address means nothing here
    a.by_proxy = 1
    out[0] = a
    return 1


cdef void forwarded_read(const Listener* d, View value, Address* address) noexcept nogil:
    """Replace the address by the one that the proxies report. Each proxy appends the address of its peer, so the last one that is no trusted proxy is
    the client's; what stands before it was written by the client."""
    cdef View item
    while address_in(address, d.trusted_proxies, d.n_trusted_proxies) or (d.trusts_unix and address.family == AF_UNIX):
        item = list_last(&value)
        if not forwarded_address_read(item.p, item.n, address):
            return


cdef void client_upgraded(void* broker, Conn* conn, const Upgrade* u, const uint8_t* text) noexcept nogil:
    cdef Client* c = client_of(conn)
    cdef View value
    if u.wrong:
        client_doom(<Broker*>broker, c, END_UPGRADE + u.wrong)
    elif u.seen & SEEN_FORWARDED:
        value.p = text + u.forwarded_at
        value.n = u.forwarded_n
        forwarded_read(c.listener, value, &conn.address)
        newcomer_moved(<Broker*>broker, c)
