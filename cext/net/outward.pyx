"""Open outbound connections: a non-blocking socket, its options, the start of its connect, and TLS above it. The
reactor's turn does the rest: writable -> getsockopt -> (the handshake) -> on_opened. This module knows no host names:
the control plane resolves them.

Cost: five to ten system calls for each attempt, none of which blocks.
"""

from libc.errno cimport EINPROGRESS, EINTR, EAFNOSUPPORT, EOPNOTSUPP, errno
from libc.stdint cimport uint32_t
from libc.string cimport memcpy, memset

from cext.net.conn cimport conn_await, conn_tls_context
from cext.net.conn_state cimport Address, Conn, Reactor
from cext.net.system cimport (
    AF_INET, AF_INET6, IPPROTO_IP, IPPROTO_TCP, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, SOL_SOCKET, SO_KEEPALIVE, bind,
    c_close, connect, htons, setsockopt, sockaddr, sockaddr_in, sockaddr_in6, socket,
)

cdef extern from * nogil:
    """
    #include <netinet/tcp.h>
    #ifndef TCP_USER_TIMEOUT
    #define TCP_USER_TIMEOUT 18
    #endif
    #ifndef IP_BIND_ADDRESS_NO_PORT
    #define IP_BIND_ADDRESS_NO_PORT 24
    #endif
    """
    int TCP_NODELAY, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT, TCP_USER_TIMEOUT, IP_BIND_ADDRESS_NO_PORT


cdef unsigned int address_put(sockaddr_storage* storage, const Address* a, uint32_t scope) noexcept nogil:
    memset(storage, 0, sizeof(sockaddr_storage))
    storage.ss_family = a.family
    if a.family == AF_INET:
        (<sockaddr_in*>storage).sin_port = htons(a.port)
        memcpy(&(<sockaddr_in*>storage).sin_addr, a.ip, 4)
        return sizeof(sockaddr_in)
    if a.family == AF_INET6:
        (<sockaddr_in6*>storage).sin6_port = htons(a.port)
        (<sockaddr_in6*>storage).sin6_scope_id = scope
        memcpy(&(<sockaddr_in6*>storage).sin6_addr, a.ip, 16)
        return sizeof(sockaddr_in6)
    return 0


cdef int socket_option_set(int fd, int level, int name, uint32_t value) noexcept nogil:
    cdef int number = <int>value
    return errno if setsockopt(fd, level, name, &number, sizeof(number)) != 0 else 0


cdef int socket_options_set(int fd, const Outward* o) noexcept nogil:
    cdef int err = 0
    if o.nodelay:
        err = socket_option_set(fd, IPPROTO_TCP, TCP_NODELAY, 1)
    if not err and o.keepalive_idle_s:
        err = socket_option_set(fd, SOL_SOCKET, SO_KEEPALIVE, 1)
        if not err:
            err = socket_option_set(fd, IPPROTO_TCP, TCP_KEEPIDLE, o.keepalive_idle_s)
        if not err and o.keepalive_interval_s:
            err = socket_option_set(fd, IPPROTO_TCP, TCP_KEEPINTVL, o.keepalive_interval_s)
        if not err and o.keepalive_count:
            err = socket_option_set(fd, IPPROTO_TCP, TCP_KEEPCNT, o.keepalive_count)
    if not err and o.user_timeout_ms:
        err = socket_option_set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, o.user_timeout_ms)
    return err


cdef int bind_local(int fd, const Outward* o) noexcept nogil:
    """Bind to the local address. The system selects the port at the connect, by the pair of addresses, so that one
    address serves many connections."""
    cdef sockaddr_storage storage
    cdef unsigned int n = address_put(&storage, &o.bound, o.bound_scope)
    if n == 0 or o.bound.family != o.remote.family:
        return EAFNOSUPPORT
    socket_option_set(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)        # no effect on systems without this option
    return errno if bind(fd, <sockaddr*>&storage, n) != 0 else 0


cdef int connect_begin(int fd, const Outward* o) noexcept nogil:
    cdef sockaddr_storage storage
    cdef unsigned int n = address_put(&storage, &o.remote, o.remote_scope)
    cdef int err = socket_options_set(fd, o)
    if not err and o.bound.family:
        err = bind_local(fd, o)
    if err:
        return err
    if connect(fd, <sockaddr*>&storage, n) == 0 or errno == EINPROGRESS or errno == EINTR:
        return 0                # also if the socket is connected already: the next turn reports it
    return errno


cdef int tls_attach(Reactor* r, Conn* c, const Outward* o) noexcept nogil:
    cdef int err = conn_tls_context(r, c, o.tls_context)
    if err:
        return err
    err = c.transport.ops.prepare(r, c, o.host) if c.transport.ops.prepare != NULL else EOPNOTSUPP
    if err:
        c.transport.ops.close(r, c)
        c.transport = NULL
    return err


cdef int conn_connect(Reactor* r, Conn* c, const Outward* o) noexcept nogil:
    cdef int err
    cdef int fd
    if o.remote.family != AF_INET and o.remote.family != AF_INET6:
        return EAFNOSUPPORT
    fd = socket(o.remote.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP)
    if fd < 0:
        return errno
    err = connect_begin(fd, o)
    if not err:
        c.fd = fd               # the transport's close writes to this descriptor
        if o.tls_context != NULL:
            err = tls_attach(r, c, o)
    if not err:
        err = conn_await(r, c, fd, &o.remote)
        if err and c.transport != NULL:
            c.transport.ops.close(r, c)
            c.transport = NULL
    if err:
        c_close(fd)
        c.fd = -1
    return err
