# A client's socket. This module knows descriptors and bytes that wait to be written. Of MQTT it knows only the packet ids in use.
# Invariant: nothing here waits. Bytes that a socket does not accept are kept, at most one burst and the acknowledgements of one
# read: a client with such bytes publishes nothing more until they are sent (flow.pyx). An idle client has no buffer.
# Cost: one system call for each burst, and one more wake-up if the socket was full.
from libc.errno cimport EAGAIN, EINPROGRESS, EINTR, errno
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove

from cext.base.clock cimport clock_monotonic_ns
from cext.bench.load cimport (
    CLIENT_DEAD, CLIENT_GREETING, CLIENT_LEAVING, CLIENT_OFF, CLIENT_OPENING, CLIENT_UP, Client, FAIL_CLOSED, FAIL_CONNECT,
    FAIL_MEMORY, FAIL_NONE, Load, OUT_MAX, SLOT_FREE, Slot,
)
from cext.codec.frame cimport T_DISCONNECT

cdef extern from "<sys/socket.h>" nogil:
    struct sockaddr:
        uint16_t sa_family
    int socket(int family, int type, int protocol)
    int connect(int fd, const sockaddr* a, unsigned int n)
    int setsockopt(int fd, int level, int name, const void* value, unsigned int n)
    int getsockopt(int fd, int level, int name, void* value, unsigned int* n)
    ssize_t send(int fd, const void* p, size_t n, int flags)
    int shutdown(int fd, int how)
    int SOCK_STREAM, SOCK_NONBLOCK, SOCK_CLOEXEC, SOL_SOCKET, SO_ERROR, MSG_NOSIGNAL, SHUT_WR

cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_NODELAY

cdef extern from "<netinet/in.h>" nogil:
    int IPPROTO_TCP

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        void* ptr
        uint32_t u32
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_ctl(int ep, int op, int fd, epoll_event* e)
    int EPOLL_CTL_ADD, EPOLL_CTL_MOD
    uint32_t EPOLLIN, EPOLLOUT

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)


# ---------------------------------------------------------------- packet ids

cdef bint slots_init(Client* c, uint32_t inflight) noexcept nogil:
    cdef uint32_t i
    if c.slots == NULL:
        c.slots = <Slot*>calloc(inflight, sizeof(Slot))
        c.free_pids = <uint16_t*>malloc(inflight * sizeof(uint16_t))
        if c.slots == NULL or c.free_pids == NULL:
            return False
    for i in range(inflight):
        c.slots[i].state = SLOT_FREE
        c.free_pids[i] = <uint16_t>(inflight - i)
    c.n_free = <uint16_t>inflight
    c.inflight = 0
    return True


cdef uint16_t slot_take(Client* c, uint8_t state, uint64_t now_ns) noexcept nogil:
    cdef uint16_t pid
    if c.n_free == 0:
        return 0
    c.n_free -= 1
    pid = c.free_pids[c.n_free]
    c.slots[pid - 1].state = state
    c.slots[pid - 1].sent_ns = now_ns
    c.inflight += 1
    return pid


# ---------------------------------------------------------------- begin and end

cdef inline uint32_t client_index(const Load* g, const Client* c) noexcept nogil:
    return <uint32_t>(c - g.clients)


cdef void client_epoll_set(Load* g, Client* c, int op, uint32_t events) noexcept nogil:
    cdef epoll_event e
    e.events = events
    e.data.u32 = client_index(g, c)
    c.armed = (events & EPOLLOUT) != 0
    epoll_ctl(g.ep, op, c.fd, &e)


cdef void client_close(Load* g, Client* c) noexcept nogil:
    if g.transport != NULL:
        g.transport.fini(c)
    if c.fd >= 0:
        c_close(c.fd)
    c.fd = -1
    c.state = CLIENT_OFF
    c.out_at = c.out_n = 0
    c.held_n = 0
    c.skip = 0
    c.arriving = 0
    free(c.out)
    free(c.held)
    c.out = c.held = NULL
    c.out_cap = 0


cdef void client_fini(Load* g, Client* c) noexcept nogil:
    client_close(g, c)
    free(c.slots)
    free(c.free_pids)
    c.slots = NULL
    c.free_pids = NULL


cdef void client_fail(Load* g, Client* c, uint32_t kind, int code) noexcept nogil:
    client_fail_reported(g, c, kind, code, NULL)


cdef void client_fail_reported(Load* g, Client* c, uint32_t kind, int code, const char* text) noexcept nogil:
    if c.state == CLIENT_LEAVING:       # any error of the broker is then the expected end
        client_close(g, c)
        g.counts.left += 1
        return
    if g.failure.kind == FAIL_NONE:
        g.failure.kind = kind
        g.failure.code = code
        g.failure.client = client_index(g, c)
        g.failure.state = c.state
        g.failure.text = text
    if c.state == CLIENT_UP:
        g.counts.up -= 1
    g.counts.closed += 1
    client_close(g, c)
    c.state = CLIENT_DEAD


cdef void client_open(Load* g, Client* c) noexcept nogil:
    cdef int one = 1
    cdef const sockaddr* a = <const sockaddr*>&g.address
    c.begun_ns = clock_monotonic_ns()
    c.fd = socket(a.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)
    if c.fd < 0:
        client_fail(g, c, FAIL_CONNECT, errno)
        return
    if not slots_init(c, g.inflight):
        client_fail(g, c, FAIL_MEMORY, 0)
        return
    setsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one))
    if connect(c.fd, a, g.address_n) != 0 and errno != EINPROGRESS:
        client_fail(g, c, FAIL_CONNECT, errno)
        return
    c.state = CLIENT_OPENING
    client_epoll_set(g, c, EPOLL_CTL_ADD, EPOLLIN | EPOLLOUT)


cdef void client_opened(Load* g, Client* c) noexcept nogil:
    cdef int err = 0
    cdef unsigned int n = sizeof(err)
    if getsockopt(c.fd, SOL_SOCKET, SO_ERROR, &err, &n) != 0:
        err = errno
    if err:
        client_fail(g, c, FAIL_CONNECT, err)
        return
    client_epoll_set(g, c, EPOLL_CTL_MOD, EPOLLIN)
    if g.transport != NULL:
        g.transport.begin(g, c)
    else:
        client_greet(g, c)


cdef void client_greet(Load* g, Client* c) noexcept nogil:
    cdef uint32_t i = client_index(g, c)
    c.state = CLIENT_GREETING
    client_write(g, c, g.greetings + g.greeting_at[i], g.greeting_at[i + 1] - g.greeting_at[i])


cdef void client_leave(Load* g, Client* c) noexcept nogil:
    cdef uint8_t[2] goodbye
    goodbye[0] = T_DISCONNECT << 4
    goodbye[1] = 0
    if c.state != CLIENT_UP:
        return
    client_write(g, c, goodbye, 2)
    if g.transport != NULL and c.state == CLIENT_UP:
        g.transport.leave(g, c)
    if c.state == CLIENT_UP:
        c.state = CLIENT_LEAVING
        g.counts.up -= 1
        if c.out_n == 0:
            shutdown(c.fd, SHUT_WR)


# ---------------------------------------------------------------- bytes

cdef void output_keep(Load* g, Client* c, const uint8_t* p, size_t n) noexcept nogil:
    cdef uint8_t* grown
    if c.out_at > c.out_n // 2:
        memmove(c.out, c.out + c.out_at, c.out_n - c.out_at)
        c.out_n -= c.out_at
        c.out_at = 0
    if c.out_n + n > OUT_MAX:
        client_fail(g, c, FAIL_MEMORY, 0)
        return
    if c.out_n + n > c.out_cap:
        grown = <uint8_t*>realloc(c.out, (c.out_n + n) * 2)
        if grown == NULL:
            client_fail(g, c, FAIL_MEMORY, 0)
            return
        c.out = grown
        c.out_cap = (c.out_n + n) * 2
    memcpy(c.out + c.out_n, p, n)
    c.out_n += n


cdef void client_write(Load* g, Client* c, const uint8_t* p, size_t n) noexcept nogil:
    if c.fd < 0 or c.state == CLIENT_LEAVING:       # nothing follows a DISCONNECT [v5 3.14.4-2]
        return
    if g.transport != NULL:
        g.transport.write(g, c, p, n)
    else:
        client_put(g, c, p, n)


cdef void client_put(Load* g, Client* c, const uint8_t* p, size_t n) noexcept nogil:
    cdef ssize_t took
    if c.out_n == 0:
        took = send(c.fd, p, n, MSG_NOSIGNAL)
        if took < 0:
            if errno != EAGAIN and errno != EINTR:
                client_fail(g, c, FAIL_CLOSED, errno)
                return
            took = 0
        if <size_t>took == n:
            return
        p += took
        n -= <size_t>took
        client_epoll_set(g, c, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT)
    output_keep(g, c, p, n)


cdef void client_flush(Load* g, Client* c) noexcept nogil:
    cdef ssize_t took
    if c.out_n == 0:
        return
    took = send(c.fd, c.out + c.out_at, c.out_n - c.out_at, MSG_NOSIGNAL)
    if took < 0:
        if errno != EAGAIN and errno != EINTR:
            client_fail(g, c, FAIL_CLOSED, errno)
        return
    c.out_at += <size_t>took
    if c.out_at < c.out_n:
        return
    free(c.out)
    c.out = NULL
    c.out_at = c.out_n = c.out_cap = 0
    client_epoll_set(g, c, EPOLL_CTL_MOD, EPOLLIN)
    if c.state == CLIENT_LEAVING:
        shutdown(c.fd, SHUT_WR)
