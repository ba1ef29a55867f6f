"""Accept or refuse new connections before a byte is read. This module knows listeners and limits, not MQTT."""

from libc.errno cimport ENOMEM
from libc.stdint cimport uint8_t, uint32_t
from libc.stdio cimport snprintf

from cext.base.wheel cimport wheel_add
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport (
    END_REFUSED, address_text, client_doom, client_give, client_take, log_line, log_line_of, log_text,
)
from cext.broker.core.client_state cimport CF_TRUSTED, Client
from cext.broker.core.listener cimport Listener
from cext.broker.core.log cimport LOG_LINE_MAX, LOG_NOTICE, LOG_WARNING, log_wanted
from cext.broker.core.stats cimport REFUSED_DESCRIPTORS, REFUSED_GLOBAL, REFUSED_LISTENER, REFUSED_MEMORY
from cext.broker.persist.publication cimport memory_short
from cext.net.conn cimport conn_open, conn_tls_context, conn_web
from cext.net.conn_state cimport Address, Conn, ListenSocket

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)

cdef enum:
    WARN_EVERY_S = 60


cdef void refuse_connection(Broker* b, int fd, const Address* a, int reason, const char* text) noexcept nogil:
    cdef char where[64]
    b.stats.refused[reason] += 1
    if log_wanted(&b.log, LOG_NOTICE):
        address_text(a, where, sizeof(where))
        log_line(b, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX, "Client connection from %s denied: %s.", where, text))
    c_close(fd)


cdef bint listener_prepare(Broker* b, Listener* listener, Conn* conn) noexcept nogil:
    """Prepare the transport that the listener has below MQTT (TLS, proxy header, WebSocket). Returns 0 if there is no memory."""
    if listener.tls_context != NULL and conn_tls_context(&b.reactor, conn, listener.tls_context) != 0:
        return 0
    if not listener.proxy_version and not listener.websockets:
        return 1
    listener.upgrade.size_max = b.settings.packet_buffer_size
    return conn_web(conn, listener.proxy_version, &listener.upgrade if listener.websockets else NULL) == 0


cdef void client_accept(void* broker, ListenSocket* l, int fd, const Address* a) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    cdef Listener* listener = <Listener*>l.owner
    cdef Client* c
    cdef char where[64]
    b.stats.sockets += 1
    if listener.max_connections >= 0 and listener.n_connections >= listener.max_connections:
        refuse_connection(b, fd, a, REFUSED_LISTENER, "max_connections exceeded")
        return
    if b.settings.global_max_connections >= 0 and b.clients.used >= b.settings.global_max_connections:
        refuse_connection(b, fd, a, REFUSED_GLOBAL, "global_max_connections exceeded")
        return
    # connections have a memory reserve: a client that resumes a session must get in, or its queue would never be taken
    if memory_short(b, b.settings.memory_limit // 8):
        refuse_connection(b, fd, a, REFUSED_MEMORY, "memory_limit reached")
        return
    c = client_take(b)
    if c == NULL or conn_open(&b.reactor, &c.conn, fd, a) != 0:
        if c != NULL:
            client_give(b, c)
        refuse_connection(b, fd, a, REFUSED_MEMORY, "out of memory")
        return
    if not listener_prepare(b, listener, &c.conn):
        client_doom(b, c, END_REFUSED)
    c.listener = listener
    listener.n_connections += 1
    c.conn.rx_ms = b.reactor.now_ms
    wheel_add(&b.wheel, &c.timer, b.reactor.now_ms + b.settings.connect_timeout_ms)
    if listener.proxy_version:
        return                   # the proxy header will report the client's address; Mosquitto has no log line at this point
    if log_wanted(&b.log, LOG_NOTICE) and b.settings.connection_messages:
        address_text(a, where, sizeof(where))
        log_line_of(b, c, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX, "New connection from %s:%d on port %d.", where,
                                               <int>a.port, <int>l.port))


cdef int client_adopt(Broker* b, int fd) noexcept nogil:
    cdef Client* c = client_take(b)
    cdef Address a
    cdef int err
    cdef uint8_t* p = <uint8_t*>&a
    cdef uint32_t i
    for i in range(sizeof(Address)):
        p[i] = 0
    if c == NULL:
        return ENOMEM
    err = conn_open(&b.reactor, &c.conn, fd, &a)
    if err:
        client_give(b, c)
        return err
    c.listener = b.adopted
    c.listener.n_connections += 1
    c.flags |= CF_TRUSTED
    c.conn.rx_ms = b.reactor.now_ms
    wheel_add(&b.wheel, &c.timer, b.reactor.now_ms + b.settings.connect_timeout_ms)
    return 0


cdef void no_descriptors(void* broker) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    b.stats.refused[REFUSED_DESCRIPTORS] += 1
    if b.reactor.now_s - b.descriptors_warned_s >= WARN_EVERY_S:
        b.descriptors_warned_s = b.reactor.now_s
        log_text(
            b, LOG_WARNING,
            "Unable to accept new connection, system socket count has been exceeded. Try increasing \"ulimit -n\" or equivalent.")
