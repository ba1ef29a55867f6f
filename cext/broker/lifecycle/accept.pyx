"""Accept or refuse new connections before a byte is read. This module knows listeners and limits, not MQTT."""

from libc.errno cimport ENOMEM
from libc.limits cimport INT_MAX
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf

from cext.base.wheel cimport wheel_add
from cext.broker.core.bounds cimport WORK_ACCEPT, WORK_END
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport (
    END_REFUSED, address_text, client_doom, client_give, client_take, line_allowed, log_line, log_line_of, log_text,
)
from cext.broker.core.client_state cimport CF_NEWCOMER, CF_TRUSTED, Client, client_of
from cext.broker.core.listener cimport Listener
from cext.broker.core.log cimport LOG_LINE_MAX, LOG_NOTICE, LOG_WARNING, log_wanted
from cext.broker.core.log_rate cimport LINE_ACCEPTED, LINE_DENIED
from cext.broker.core.newcomers cimport newcomer_add, newcomer_count, newcomer_to_end
from cext.broker.core.resident cimport resident_check
from cext.broker.core.stats cimport (
    REFUSED_DESCRIPTORS, REFUSED_EVICTED, REFUSED_GLOBAL, REFUSED_LISTENER, REFUSED_MEMORY,
)
from cext.broker.core.workers cimport others_connections, others_of_listener, own_connections
from cext.broker.lifecycle.passing cimport connection_deal
from cext.broker.lifecycle.session_lifecycle cimport client_end
from cext.broker.persist.publication cimport memory_short
from cext.net.conn cimport conn_close, conn_open, conn_tls_context, conn_web
from cext.net.conn_state cimport Address, CONN_CLOSED, Conn, ListenSocket

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)

cdef extern from "<fcntl.h>" nogil:
    int fcntl(int fd, int command, int argument)
    int F_DUPFD_CLOEXEC

cdef extern from "<sys/resource.h>" nogil:
    ctypedef unsigned long rlim_t
    struct rlimit:
        rlim_t rlim_cur
    int getrlimit(int resource, rlimit* limit)
    int RLIMIT_NOFILE

cdef enum:
    WARN_EVERY_S = 60


cdef void count_refused(Broker* b, const Address* a, int reason, const char* text) noexcept nogil:
    cdef char where[64]
    b.stats.refused[reason] += 1
    if log_wanted(&b.log, LOG_NOTICE) and line_allowed(b, a, LINE_DENIED):
        address_text(a, where, sizeof(where))
        log_line(b, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX, "Client connection from %s denied: %s.", where, text))


cdef void refuse_connection(Broker* b, int fd, const Address* a, int reason, const char* text) noexcept nogil:
    count_refused(b, a, reason, text)
    c_close(fd)


cdef bint listener_prepare(Broker* b, Listener* listener, Conn* conn) noexcept nogil:
    """Prepare the transport that the listener has below MQTT (TLS, proxy header, WebSocket). Returns 0 if there is no memory."""
    if listener.tls_context != NULL and conn_tls_context(&b.reactor, conn, listener.tls_context) != 0:
        return 0
    if not listener.proxy_version and not listener.websockets:
        return 1
    listener.upgrade.size_max = b.settings.packet_buffer_size
    listener.upgrade.compat = b.settings.compat
    return conn_web(conn, listener.proxy_version, &listener.upgrade if listener.websockets else NULL) == 0


cdef bint listener_full(Broker* b, Listener* listener) noexcept nogil:
    return listener.max_connections >= 0 and listener.n_connections + others_of_listener(b, listener) >= <uint64_t>listener.max_connections


cdef bint all_full(Broker* b) noexcept nogil:
    return b.settings.global_max_connections >= 0 and own_connections(b) + others_connections(b) >= <uint64_t>b.settings.global_max_connections


cdef void client_accept(void* broker, ListenSocket* l, int fd, const Address* a) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    cdef Listener* listener = <Listener*>l.owner
    cdef Client* c
    b.stats.sockets += 1
    b.work += WORK_ACCEPT
    fd = descriptor_below_limit(b, fd)
    if fd < 0:
        return
    if listener_full(b, listener):
        l.full = 1
        refuse_connection(b, fd, a, REFUSED_LISTENER, "max_connections exceeded")
        return
    if all_full(b):
        l.full = 1
        refuse_connection(b, fd, a, REFUSED_GLOBAL, "global_max_connections exceeded")
        return
    # connections have a memory reserve: a client that resumes a session must get in, or its queue would never be taken
    if memory_short(b, b.settings.memory_limit // 8):
        refuse_connection(b, fd, a, REFUSED_MEMORY, "memory_limit reached")
        return
    if listener.tls_context != NULL and b.workers != NULL and connection_deal(b, listener, fd, a):
        return                   # another worker does its handshake
    c = client_open(b, listener, fd, a)
    if c == NULL:
        return
    l.full = listener_full(b, listener) or all_full(b)
    c.conn.rx_ms = 0             # no byte has come
    client_welcome(b, c)


cdef Client* client_open(Broker* b, Listener* listener, int fd, const Address* a) noexcept nogil:
    cdef Client* c = client_take(b)
    if c == NULL or conn_open(&b.reactor, &c.conn, fd, a) != 0:
        if c != NULL:
            client_give(b, c)
        refuse_connection(b, fd, a, REFUSED_MEMORY, "out of memory")
        return NULL
    c.listener = listener
    listener.n_connections += 1
    c.conn.rx_ms = b.reactor.now_ms
    newcomer_add(b, c)
    wheel_add(&b.wheel, &c.timer, b.reactor.now_ms + b.settings.connect_timeout_ms)
    return c


cdef void client_welcome(Broker* b, Client* c) noexcept nogil:
    cdef const Address* a = &c.conn.address
    cdef char where[64]
    if not listener_prepare(b, c.listener, &c.conn):
        client_doom(b, c, END_REFUSED)
    newcomers_shrink(b)
    resident_check(b)
    if c.listener.proxy_version:
        return                   # the proxy header will report the client's address; Mosquitto has no log line at this point
    if log_wanted(&b.log, LOG_NOTICE) and b.settings.connection_messages and line_allowed(b, a, LINE_ACCEPTED):
        address_text(a, where, sizeof(where))
        log_line_of(b, c, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX, "New connection from %s:%d on port %d.", where,
                                               <int>a.port, <int>c.listener.port))


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
    newcomer_add(b, c)           # its CONNECT may have to wait, for the links or for wills: newcomers_resume finds it
    c.conn.rx_ms = b.reactor.now_ms
    wheel_add(&b.wheel, &c.timer, b.reactor.now_ms + b.settings.connect_timeout_ms)
    return 0


# ---------------------------------------------------------------- descriptors

cdef void descriptors_begin(Broker* b) noexcept nogil:
    """Note how many descriptors the process needs without clients. The system always hands out the lowest free number."""
    b.fd_first = fcntl(b.reactor.ep, F_DUPFD_CLOEXEC, 0)
    if b.fd_first >= 0:
        c_close(b.fd_first)
    fd_limit_read(b)


cdef void fd_limit_read(Broker* b) noexcept nogil:
    """Read the limit of the process, which another program may have changed, less the reserve. The reserve is at most half."""
    cdef rlimit limit
    cdef uint64_t most = INT_MAX
    cdef uint64_t reserved = b.settings.descriptors_reserved
    if getrlimit(RLIMIT_NOFILE, &limit) == 0 and limit.rlim_cur < most:
        most = limit.rlim_cur
    b.fd_limit = <int>(most - (reserved if reserved <= most // 2 else most // 2))


cdef uint32_t connections_room(Broker* b) noexcept nogil:
    fd_limit_read(b)
    return <uint32_t>(b.fd_limit - b.fd_first) if b.fd_limit > b.fd_first >= 0 else 0


cdef int descriptor_below_limit(Broker* b, int fd) noexcept nogil:
    """Connections have only numbers below fd_limit, so the numbers above are the reserve. A connection with a higher number gets that of a
    newcomer, which ends."""
    cdef int lower = -1
    if fd < b.fd_limit:
        return fd
    fd_limit_read(b)
    if fd < b.fd_limit:
        return fd
    warn_of_descriptors(b)
    if newcomer_evict(b, 0):
        lower = fcntl(fd, F_DUPFD_CLOEXEC, 0)
        if lower >= b.fd_limit:      # another thread was faster
            c_close(lower)
            lower = -1
    if lower < 0:
        b.stats.refused[REFUSED_DESCRIPTORS] += 1
    c_close(fd)
    return lower


cdef bint newcomer_evict(Broker* b, bint by_bytes) noexcept nogil:
    """End a connection that has not logged in: the oldest of a network that holds much memory (by_bytes) or many descriptors. Returns 0 if there
    is none."""
    cdef Client* c = newcomer_to_end(b, by_bytes)
    if c == NULL:
        return 0
    b.work += WORK_END
    count_refused(b, &c.conn.address, REFUSED_EVICTED, "login_memory exceeded before its login" if by_bytes
                  else "no descriptor is left, and it had not logged in")
    b.log.was_refused = 0        # this was its line
    client_end(b, c, END_REFUSED)
    conn_close(&b.reactor, &c.conn)      # its descriptor is free at once
    return 1


cdef void newcomer_grew(void* broker, Conn* conn) noexcept nogil:
    """Count the memory of a connection that has not logged in, and end some of these while all of them have too much. The present
    one may be among them."""
    cdef Broker* b = <Broker*>broker
    cdef Client* c = client_of(conn)
    if not c.flags & CF_NEWCOMER or conn.flags & CONN_CLOSED:
        return
    newcomer_count(b, c)
    newcomers_shrink(b)
    resident_check(b)


cdef void newcomers_shrink(Broker* b) noexcept nogil:
    cdef uint64_t most = b.settings.login_memory
    if b.settings.memory_limit and (most == 0 or most > b.settings.memory_limit // 4):
        most = b.settings.memory_limit // 4
    while most and b.newcomers_bytes > most and newcomer_evict(b, 1):
        if b.reactor.now_s - b.newcomers_warned_s >= WARN_EVERY_S:
            b.newcomers_warned_s = b.reactor.now_s
            log_text(b, LOG_WARNING, "Connections that have not logged in need more than login_memory, or a quarter of memory_limit. "
                                     "The oldest of the networks that hold most of it end.")


cdef void warn_of_descriptors(Broker* b) noexcept nogil:
    if b.reactor.now_s - b.descriptors_warned_s < WARN_EVERY_S:
        return
    b.descriptors_warned_s = b.reactor.now_s
    log_text(b, LOG_WARNING, "Unable to accept new connection, system socket count has been exceeded. "
                             "Try increasing \"ulimit -n\" or equivalent.")
    if log_wanted(&b.log, LOG_WARNING):
        log_line(b, LOG_WARNING, snprintf(
            b.log.line, LOG_LINE_MAX, "Of the descriptors that \"ulimit -n\" (LimitNOFILE of systemd) allows, there are %u for clients. The "
            "others are for the store, the log, reloads and bridges. Connections without a login end to make room.",
            <unsigned int>connections_room(b)))


cdef void no_descriptors(void* broker) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    b.stats.refused[REFUSED_DESCRIPTORS] += 1
    warn_of_descriptors(b)
    newcomer_evict(b, 0)
