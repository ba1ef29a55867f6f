"""The event loop's turn. Knows epoll, sockets and bytes; does not know MQTT: what bytes mean is behind the callbacks.

    reactor_turn:  epoll_wait -> input that waited -> events (accept | read -> on_input | writable -> flush)
    (the broker runs timers and jobs)
    reactor_flush: every dirty connection once -> on_free for the dead

Invariants: reading goes through one arena, so an idle connection holds no buffer; output is collected during a turn and flushed once
per connection; EPOLLOUT is armed only after EAGAIN; a closed connection stays allocated until the end of the turn, so that
events and lists of this turn may still point to it. Cost per turn and active connection: one read, at most one write.
"""

from libc.errno cimport EAGAIN, ECONNABORTED, ECONNRESET, EINTR, EMFILE, ENFILE, ENOBUFS, ENOMEM, EPROTO, errno
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove, memset

from cext.base.buffer cimport buffer_give, buffer_take, buffers_fini, buffers_init
from cext.base.clock cimport clock_monotonic_ms, clock_wall_s
from cext.net.proxy cimport PROXY_V2_BYTES_MAX, Proxied
from cext.net.upgrade cimport UpgradeRules
from cext.net.web cimport (
    WEB_BAD_PROXY, WEB_MORE, WEB_NO_MEMORY, WEB_OPEN, WEB_PLAIN, WEB_PROXY, WEB_REFUSED, WEB_UPGRADE, web_frame, web_free,
    web_new, web_proxy_wants, web_request_drop, web_stage_end, web_take,
)
from cext.net.websocket cimport WS_CLOSED, WS_FAILED, WS_HEAD_SIZE_MAX, ws_decode

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        void* ptr
        uint32_t u32
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    int epoll_create1(int flags)
    int epoll_ctl(int ep, int op, int fd, epoll_event* e)
    int epoll_wait(int ep, epoll_event* events, int n, int timeout_ms)
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL
    uint32_t EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int value, int flags)
    int EFD_CLOEXEC, EFD_NONBLOCK

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len
    ssize_t readv(int fd, const iovec* iov, int n)

cdef extern from "<sys/socket.h>" nogil:
    struct sockaddr:
        uint16_t sa_family
    struct sockaddr_storage:
        uint16_t ss_family
    struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen
    ssize_t recv(int fd, void* p, size_t n, int flags)
    ssize_t send(int fd, const void* p, size_t n, int flags)
    ssize_t sendmsg(int fd, const msghdr* m, int flags)
    int shutdown(int fd, int how)
    int getsockopt(int fd, int level, int name, void* value, unsigned int* n)
    int MSG_NOSIGNAL, MSG_PEEK, SHUT_WR, AF_INET, AF_INET6, SOL_SOCKET, SO_ERROR

cdef extern from "<netinet/in.h>" nogil:
    struct in_addr:
        uint32_t s_addr
    struct in6_addr:
        uint8_t s6_addr[16]
    struct sockaddr_in:
        uint16_t sin_port
        in_addr sin_addr
    struct sockaddr_in6:
        uint16_t sin6_port
        in6_addr sin6_addr
        uint32_t sin6_scope_id
    uint16_t ntohs(uint16_t v)

cdef extern from * nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <sys/socket.h>
    extern int accept4(int, struct sockaddr *, socklen_t *, int);
    """
    int accept4(int fd, sockaddr* a, unsigned int* n, int flags)
    int SOCK_NONBLOCK, SOCK_CLOEXEC

cdef extern from "<fcntl.h>" nogil:
    int c_open "open"(const char* path, int flags, ...)
    int O_RDONLY, O_CLOEXEC

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)
    ssize_t c_read "read"(int fd, void* p, size_t n)
    ssize_t c_write "write"(int fd, const void* p, size_t n)

cdef extern from * nogil:
    """
    static const unsigned int mosq_source_wake = 3;     /* SOURCE_WAKE, as epoll's pointer for the wake descriptor */
    static const unsigned int mosq_source_news = 4;     /* SOURCE_NEWS, the same */
    """
    const unsigned int mosq_source_wake
    const unsigned int mosq_source_news

cdef enum:
    IDLE_BUFFERS_MAX_BYTES = 4 << 20
    ACCEPT_PAUSE_MS = 100               # of a listener, when there is no descriptor to refuse anybody with


# ---------------------------------------------------------------- life

cdef int reactor_init(Reactor* r, void* ctx) noexcept nogil:
    cdef epoll_event e
    memset(r, 0, sizeof(Reactor))
    r.ctx = ctx
    r.ep = epoll_create1(EPOLL_CLOEXEC)
    r.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
    r.spare_fd = c_open("/dev/null", O_RDONLY | O_CLOEXEC)
    r.arena = <uint8_t*>malloc(ARENA_MARGIN + ARENA_BYTES)
    if r.ep < 0 or r.wake_fd < 0:
        return errno
    if r.arena == NULL:
        return ENOMEM
    r.arena += ARENA_MARGIN
    buffers_init(&r.buffers, IDLE_BUFFERS_MAX_BYTES)
    e.events = EPOLLIN
    e.data.ptr = <void*>&mosq_source_wake
    if epoll_ctl(r.ep, EPOLL_CTL_ADD, r.wake_fd, &e) != 0:
        return errno
    r.now_ms = clock_monotonic_ms()
    r.now_s = clock_wall_s()
    return 0


cdef int reactor_watch(Reactor* r, int fd) noexcept nogil:
    cdef epoll_event e
    e.events = EPOLLIN
    e.data.ptr = <void*>&mosq_source_news
    return 0 if epoll_ctl(r.ep, EPOLL_CTL_ADD, fd, &e) == 0 else errno


cdef void reactor_fini(Reactor* r) noexcept nogil:
    if r.layer != NULL:
        r.layer_free(r.layer)
        r.layer = NULL
    if r.ep >= 0:
        c_close(r.ep)
    if r.wake_fd >= 0:
        c_close(r.wake_fd)
    if r.spare_fd >= 0:
        c_close(r.spare_fd)
    if r.arena != NULL:
        free(r.arena - ARENA_MARGIN)
        buffers_fini(&r.buffers)
    r.ep = r.wake_fd = r.spare_fd = -1
    r.arena = NULL


cdef void reactor_wake(Reactor* r) noexcept nogil:
    cdef uint64_t one = 1
    c_write(r.wake_fd, &one, 8)


cdef int reactor_listen(Reactor* r, ListenSocket* l) noexcept nogil:
    cdef epoll_event e
    l.source = SOURCE_LISTENER
    e.events = EPOLLIN
    e.data.ptr = l
    return errno if epoll_ctl(r.ep, EPOLL_CTL_ADD, l.fd, &e) != 0 else 0


cdef void reactor_unlisten(Reactor* r, ListenSocket* l) noexcept nogil:
    if l.paused:
        unpause(r, l)
    if l.fd >= 0:
        epoll_ctl(r.ep, EPOLL_CTL_DEL, l.fd, NULL)
    l.fd = -1                    # an event of this turn may still point here


# ---------------------------------------------------------------- the turn

cdef int reactor_turn(Reactor* r, int timeout_ms) noexcept nogil:
    cdef epoll_event events[EVENTS_MAX]
    cdef int i, n
    cdef uint32_t source
    cdef uint64_t count
    if r.ready != NULL or r.dirty != NULL:
        timeout_ms = 0
    elif r.paused != NULL and (timeout_ms < 0 or timeout_ms > ACCEPT_PAUSE_MS):
        timeout_ms = ACCEPT_PAUSE_MS
    n = epoll_wait(r.ep, events, EVENTS_MAX, timeout_ms)
    r.turns += 1
    r.now_ms = clock_monotonic_ms()
    r.now_s = clock_wall_s()
    if r.paused != NULL and r.now_ms >= r.resume_ms:
        resume(r)
    if n < 0:
        return 0 if errno == EINTR else errno
    serve_ready(r)
    for i in range(n):
        source = (<uint32_t*>events[i].data.ptr)[0]
        if source == SOURCE_CONN:
            serve_conn(r, <Conn*>events[i].data.ptr, events[i].events)
        elif source == SOURCE_LISTENER:
            serve_listener(r, <ListenSocket*>events[i].data.ptr)
        elif source == SOURCE_NEWS:
            r.on_news(r.ctx)
        else:
            c_read(r.wake_fd, &count, 8)
            r.on_wake(r.ctx)
    return 0


cdef void serve_conn(Reactor* r, Conn* c, uint32_t events) noexcept nogil:
    if c.flags & CONN_CLOSED:
        return                   # closed earlier in this turn
    if c.flags & CONN_CONNECTING:
        connected(r, c)
        return
    if events & EPOLLOUT and not c.flags & CONN_HELD:
        flush(r, c)
        if c.flags & CONN_CLOSED:
            return
    if events & (EPOLLIN | EPOLLHUP | EPOLLERR):
        if not c.flags & (CONN_PAUSED | CONN_READY):
            read_input(r, c)
        elif events & (EPOLLHUP | EPOLLERR):
            gone(r, c, 0)
        elif not c.flags & CONN_DEAF:
            c.flags |= CONN_DEAF
            conn_watch(r, c)


cdef void serve_ready(Reactor* r) noexcept nogil:
    cdef Conn* c = r.ready
    cdef Conn* following
    r.ready = NULL
    while c != NULL:
        following = c.ready_next
        c.flags &= ~<uint32_t>CONN_READY
        if c.flags & CONN_CLOSED and not c.flags & CONN_DIRTY:
            conn_mark_dirty(r, c)
        if not c.flags & (CONN_CLOSED | CONN_PAUSED):
            if c.in_buf != NULL:
                feed_buffered(r, c)
            over(r, c)
            if c.flags & CONN_DEAF and not c.flags & (CONN_CLOSED | CONN_PAUSED | CONN_READY):
                c.flags &= ~<uint32_t>CONN_DEAF
                conn_watch(r, c)
        c = following


cdef void serve_listener(Reactor* r, ListenSocket* l) noexcept nogil:
    cdef sockaddr_storage storage
    cdef unsigned int size
    cdef Address a
    cdef int _, fd
    for _ in range(ACCEPTS_MAX if l.fd >= 0 else 0):
        size = sizeof(storage)
        fd = accept4(l.fd, <sockaddr*>&storage, &size, SOCK_NONBLOCK | SOCK_CLOEXEC)
        if fd < 0:
            if errno == EMFILE or errno == ENFILE:
                refuse_one(r, l)
            elif errno == ECONNABORTED or errno == EINTR:
                continue
            return
        r.n_accepted += 1
        address_of_sockaddr(&storage, &a)
        r.on_accept(r.ctx, l, fd, &a)


cdef void listener_watch(Reactor* r, ListenSocket* l, uint32_t events) noexcept nogil:
    cdef epoll_event e
    e.events = events
    e.data.ptr = l
    epoll_ctl(r.ep, EPOLL_CTL_MOD, l.fd, &e)


cdef void pause(Reactor* r, ListenSocket* l) noexcept nogil:
    if not l.paused:
        l.paused = 1
        l.paused_next = r.paused
        r.paused = l
        listener_watch(r, l, 0)
    r.resume_ms = r.now_ms + ACCEPT_PAUSE_MS


cdef void resume(Reactor* r) noexcept nogil:
    cdef ListenSocket* l
    while r.paused != NULL:
        l = r.paused
        r.paused = l.paused_next
        l.paused = 0
        listener_watch(r, l, EPOLLIN)


cdef void unpause(Reactor* r, ListenSocket* l) noexcept nogil:
    """It goes away."""
    cdef ListenSocket** at = &r.paused
    while at[0] != NULL and at[0] != l:
        at = &at[0].paused_next
    if at[0] == l:
        at[0] = l.paused_next
    l.paused = 0


cdef void refuse_one(Reactor* r, ListenSocket* l) noexcept nogil:
    """Out of descriptors: without this the connection would stay in the backlog and the loop would spin on it."""
    cdef int fd
    r.on_no_descriptors(r.ctx)
    if r.spare_fd < 0:
        r.spare_fd = c_open("/dev/null", O_RDONLY | O_CLOEXEC)       # somebody else in this process was quicker the last time
    if r.spare_fd < 0:
        pause(r, l)
        return
    c_close(r.spare_fd)
    fd = accept4(l.fd, NULL, NULL, SOCK_CLOEXEC)
    if fd >= 0:
        c_close(fd)
    r.spare_fd = c_open("/dev/null", O_RDONLY | O_CLOEXEC)


cdef void address_of_sockaddr(sockaddr_storage* storage, Address* a) noexcept nogil:
    memset(a, 0, sizeof(Address))
    a.family = <uint8_t>storage.ss_family
    if storage.ss_family == AF_INET:
        a.port = ntohs((<sockaddr_in*>storage).sin_port)
        memcpy(a.ip, &(<sockaddr_in*>storage).sin_addr, 4)
    elif storage.ss_family == AF_INET6:
        a.port = ntohs((<sockaddr_in6*>storage).sin6_port)
        memcpy(a.ip, &(<sockaddr_in6*>storage).sin6_addr, 16)


# ---------------------------------------------------------------- connections

cdef int conn_watch(Reactor* r, Conn* c) noexcept nogil:
    cdef epoll_event e
    e.events = (0 if c.flags & CONN_DEAF else EPOLLIN) | (EPOLLOUT if c.flags & CONN_BLOCKED else 0)
    e.data.ptr = c
    return epoll_ctl(r.ep, EPOLL_CTL_MOD, c.fd, &e)


cdef int conn_open(Reactor* r, Conn* c, int fd, const Address* a) noexcept nogil:
    return conn_begin(r, c, fd, a, EPOLLIN)


cdef int conn_await(Reactor* r, Conn* c, int fd, const Address* a) noexcept nogil:
    cdef int err = conn_begin(r, c, fd, a, EPOLLOUT)
    if err == 0:
        c.flags |= CONN_CONNECTING | CONN_OPENING
    return err


cdef int conn_begin(Reactor* r, Conn* c, int fd, const Address* a, uint32_t events) noexcept nogil:
    cdef epoll_event e
    c.source = SOURCE_CONN
    c.fd = fd
    c.address = a[0]
    e.events = events
    e.data.ptr = c
    return errno if epoll_ctl(r.ep, EPOLL_CTL_ADD, fd, &e) != 0 else 0


cdef void connected(Reactor* r, Conn* c) noexcept nogil:
    """The connect is over, for good or bad."""
    cdef int err = 0
    cdef unsigned int size = sizeof(err)
    c.flags &= ~<uint32_t>CONN_CONNECTING
    if getsockopt(c.fd, SOL_SOCKET, SO_ERROR, &err, &size) != 0:
        err = errno
    if c.flags & CONN_CLOSING and not err:
        err = ECONNABORTED       # the owner has changed its mind: nobody is to wait for the peer's end
    c.rx_ms = r.now_ms
    if not err and conn_watch(r, c) != 0:
        err = errno
    if not err and c.transport != NULL:
        err = c.transport.ops.greet(r, c)
    if err:
        gone(r, c, err)
    elif c.transport == NULL:
        outward_opened(r, c)


cdef bint outward_opened(Reactor* r, Conn* c) noexcept nogil:
    """1: it is of no use any more."""
    c.flags &= ~<uint32_t>CONN_OPENING
    r.on_opened(r.ctx, c, 0)
    return c.flags & (CONN_CLOSED | CONN_CLOSING) != 0


cdef void gone(Reactor* r, Conn* c, int err) noexcept nogil:
    """The peer closed (0), or errno: who has not heard that it is open hears that it will not be."""
    if c.flags & CONN_OPENING:
        c.flags &= ~<uint32_t>CONN_OPENING
        r.on_opened(r.ctx, c, err if err else ECONNRESET)
    else:
        r.on_lost(r.ctx, c, err)


cdef void conn_close(Reactor* r, Conn* c) noexcept nogil:
    if c.flags & CONN_CLOSED:
        return
    c.flags |= CONN_CLOSED
    if c.transport != NULL:
        c.transport.ops.close(r, c)
        c.transport = NULL
    epoll_ctl(r.ep, EPOLL_CTL_DEL, c.fd, NULL)   # a forked child may hold a copy: closing ours would not end its events
    c_close(c.fd)
    c.fd = -1
    drop_output(r, c)
    drop_input(r, c)
    web_free(&r.buffers, c)
    if not c.flags & CONN_DIRTY:
        conn_mark_dirty(r, c)    # reactor_flush finds it there and frees it


cdef void conn_finish(Reactor* r, Conn* c) noexcept nogil:
    if c.flags & (CONN_CLOSED | CONN_CLOSING):
        return
    c.flags |= CONN_CLOSING
    c.flags &= ~<uint32_t>(CONN_HUNGRY | CONN_PAUSED)
    if c.flags & CONN_DEAF:
        c.flags &= ~<uint32_t>CONN_DEAF
        conn_watch(r, c)
    drop_input(r, c)
    if c.web != NULL:
        web_request_drop(&r.buffers, c.web)
    if not c.flags & CONN_DIRTY:
        conn_mark_dirty(r, c)


cdef void conn_mark_dirty(Reactor* r, Conn* c) noexcept nogil:
    c.flags |= CONN_DIRTY
    c.dirty_next = r.dirty
    r.dirty = c


cdef void conn_resume(Reactor* r, Conn* c) noexcept nogil:
    c.flags &= ~<uint32_t>CONN_PAUSED
    if c.flags & (CONN_READY | CONN_CLOSED):
        return
    c.flags |= CONN_READY
    c.ready_next = r.ready
    r.ready = c


# ---------------------------------------------------------------- input

cdef void drop_input(Reactor* r, Conn* c) noexcept nogil:
    if c.in_buf != NULL:
        buffer_give(&r.buffers, c.in_buf, c.in_cap)
        c.in_buf = NULL
    c.in_off = c.in_len = c.in_cap = c.in_need = 0


cdef ssize_t receive(Reactor* r, Conn* c, uint8_t* p, size_t n) noexcept nogil:
    """The owner's bytes, as recv: 0 the peer closed, -1 errno; NOTHING: what came was not for the owner."""
    cdef ssize_t got
    if c.transport != NULL and not c.flags & CONN_CLOSING:
        got = c.transport.ops.receive(r, c, p, n)
    else:
        got = recv(c.fd, p, n, 0)
    if got > 0:
        r.bytes_in += <uint64_t>got
        if c.web != NULL and not c.flags & CONN_CLOSING:
            return web_input(r, c, p, <size_t>got)
    return got


cdef void read_input(Reactor* r, Conn* c) noexcept nogil:
    cdef ssize_t got
    cdef uint32_t have = c.in_len - c.in_off
    if c.web != NULL and c.web.stage == WEB_PROXY and not c.flags & CONN_CLOSING:
        read_proxy(r, c)
        return
    if have > ARENA_MARGIN or c.in_need > ARENA_MARGIN:
        read_large(r, c)
        over(r, c)
        return
    got = receive(r, c, r.arena, ARENA_BYTES)
    if c.flags & CONN_OPENING and c.transport != NULL and c.transport.open and outward_opened(r, c):
        return
    if got <= 0:
        lost(r, c, got)
        over(r, c)
        return
    c.rx_ms = r.now_ms
    if c.flags & CONN_CLOSING:
        return                   # read only to let the peer see our end rather than a reset
    cdef uint8_t* p = r.arena - have
    if have:
        memcpy(p, c.in_buf + c.in_off, have)
        drop_input(r, c)
    feed(r, c, p, have + <size_t>got)
    over(r, c)


cdef void lost(Reactor* r, Conn* c, ssize_t got) noexcept nogil:
    if got == 0:
        gone(r, c, 0)
    elif got != NOTHING and errno != EAGAIN and errno != EINTR:
        gone(r, c, errno)


cdef void feed(Reactor* r, Conn* c, const uint8_t* p, size_t n) noexcept nogil:
    """Input that lies in the arena: what the owner leaves is kept in a buffer of the connection's own."""
    cdef size_t used = r.on_input(r.ctx, c, p, n)
    cdef size_t left = n - used
    if left == 0 or c.flags & (CONN_CLOSED | CONN_CLOSING):
        return
    conn_keep_input(r, c, p + used, left)


cdef void conn_keep_input(Reactor* r, Conn* c, const uint8_t* p, size_t n) noexcept nogil:
    """Appends to the connection's own buffer."""
    cdef uint32_t have = c.in_len - c.in_off
    cdef size_t want = have + n
    cdef uint32_t cap
    cdef uint8_t* q
    if c.in_buf == NULL or c.in_cap - c.in_len < n:
        q = buffer_take(&r.buffers, want, &cap)
        if q == NULL:
            gone(r, c, ENOMEM)
            return
        if have:
            memcpy(q, c.in_buf + c.in_off, have)
        if c.in_buf != NULL:
            buffer_give(&r.buffers, c.in_buf, c.in_cap)
        c.in_buf = q
        c.in_cap = cap
        c.in_off = 0
        c.in_len = have
    memcpy(c.in_buf + c.in_len, p, n)
    c.in_len += <uint32_t>n


cdef int room_for_frame(Reactor* r, Conn* c) noexcept nogil:
    """Makes the buffer hold the whole unfinished frame; only its first part until so much has really come."""
    cdef uint32_t have = c.in_len - c.in_off
    cdef uint32_t want = c.in_need if have >= INPUT_FIRST_BYTES or c.in_need <= INPUT_FIRST_BYTES else INPUT_FIRST_BYTES
    cdef uint32_t cap
    cdef uint8_t* q
    if c.in_cap >= want and c.in_off == 0:
        return 0
    if c.in_cap >= want:
        memmove(c.in_buf, c.in_buf + c.in_off, have)
    else:
        q = buffer_take(&r.buffers, want, &cap)
        if q == NULL:
            return -1
        memcpy(q, c.in_buf + c.in_off, have)
        buffer_give(&r.buffers, c.in_buf, c.in_cap)
        c.in_buf = q
        c.in_cap = cap
    c.in_off = 0
    c.in_len = have
    return 0


cdef void read_large(Reactor* r, Conn* c) noexcept nogil:
    """The rest of a large frame goes to where it will stay; what follows it, to the arena, in the same call."""
    cdef iovec iov[2]
    cdef ssize_t got
    cdef size_t first
    cdef int n_iov = 1
    if room_for_frame(r, c) != 0:
        gone(r, c, ENOMEM)
        return
    if c.transport != NULL:
        read_large_tls(r, c)
        return
    if c.web != NULL:
        read_large_web(r, c)
        return
    first = (c.in_need if c.in_cap >= c.in_need else c.in_cap) - c.in_len
    iov[0].iov_base = c.in_buf + c.in_len
    iov[0].iov_len = first
    if c.in_cap >= c.in_need:
        iov[1].iov_base = r.arena
        iov[1].iov_len = ARENA_BYTES
        n_iov = 2
    got = readv(c.fd, iov, n_iov)
    if got <= 0:
        lost(r, c, got)
        return
    r.bytes_in += <uint64_t>got
    c.rx_ms = r.now_ms
    if <size_t>got < first:
        c.in_len += <uint32_t>got
        return
    c.in_len += <uint32_t>first
    got -= <ssize_t>first
    if c.in_len < c.in_need:
        return                   # the first part is full: the next read makes room for all
    after_large(r, c, r.arena, <size_t>got)


cdef void after_large(Reactor* r, Conn* c, const uint8_t* p, size_t n) noexcept nogil:
    """The large frame is whole; the n bytes at p, in the arena, follow it."""
    feed_buffered(r, c)
    if n == 0 or c.flags & (CONN_CLOSED | CONN_CLOSING):
        return
    if c.in_buf != NULL:
        conn_keep_input(r, c, p, n)
    elif c.flags & (CONN_PAUSED | CONN_READY):
        c.in_need = 0
        conn_keep_input(r, c, p, n)
    else:
        feed(r, c, p, n)


cdef void read_large_tls(Reactor* r, Conn* c) noexcept nogil:
    """Decrypted in the arena, as nothing may be left within the layer; the large frame's part is copied to where it will stay."""
    cdef uint8_t* p = r.arena
    cdef ssize_t got = receive(r, c, p, ARENA_BYTES)
    cdef size_t left, n
    if got <= 0:
        lost(r, c, got)
        return
    c.rx_ms = r.now_ms
    if c.flags & CONN_CLOSING:
        return
    left = <size_t>got
    while left:
        if room_for_frame(r, c) != 0:
            gone(r, c, ENOMEM)
            return
        n = (c.in_need if c.in_cap >= c.in_need else c.in_cap) - c.in_len
        n = n if n < left else left
        memcpy(c.in_buf + c.in_len, p, n)
        c.in_len += <uint32_t>n
        p += n
        left -= n
        if c.in_len >= c.in_need:
            after_large(r, c, p, left)
            return


cdef void read_large_web(Reactor* r, Conn* c) noexcept nogil:
    """The payload of WebSocket frames moves together where it is read to: what follows the large frame waits in the socket."""
    cdef uint32_t first = (c.in_need if c.in_cap >= c.in_need else c.in_cap) - c.in_len
    cdef ssize_t got = receive(r, c, c.in_buf + c.in_len, first)
    if got <= 0:
        lost(r, c, got)
        return
    c.rx_ms = r.now_ms
    c.in_len += <uint32_t>got
    if c.in_len >= c.in_need:
        feed_buffered(r, c)


cdef void feed_buffered(Reactor* r, Conn* c) noexcept nogil:
    cdef uint32_t have = c.in_len - c.in_off
    cdef size_t used = r.on_input(r.ctx, c, c.in_buf + c.in_off, have)
    if c.in_buf == NULL:
        return                   # closed, or stolen
    c.in_off += <uint32_t>used
    if c.in_off == c.in_len:
        drop_input(r, c)


cdef uint8_t* conn_steal_input(Conn* c, const uint8_t* p, uint32_t n, uint32_t* cap) noexcept nogil:
    cdef uint8_t* q = c.in_buf
    if q == NULL or p != q or c.in_off != 0 or c.in_len != n:
        return NULL
    cap[0] = c.in_cap
    c.in_buf = NULL
    c.in_len = c.in_cap = c.in_need = 0
    return q


# ---------------------------------------------------------------- layers

cdef int conn_tls_context(Reactor* r, Conn* c, TransportContext* x) noexcept nogil:
    c.transport = x.begin(x, r, c)
    return 0 if c.transport != NULL else ENOMEM


cdef int conn_web(Conn* c, int proxy_version, const UpgradeRules* rules) noexcept nogil:
    c.web = web_new(proxy_version, rules)
    return 0 if c.web != NULL else ENOMEM


cdef void read_proxy(Reactor* r, Conn* c) noexcept nogil:
    """The header is taken to its last byte and no further: what follows may be for TLS."""
    cdef Proxied proxied
    cdef size_t used
    cdef int found
    cdef ssize_t got = recv(c.fd, r.arena, PROXY_V2_BYTES_MAX, MSG_PEEK)
    if got > 0:
        got = recv(c.fd, r.arena, web_proxy_wants(c.web, r.arena, <size_t>got), 0)
    if got <= 0:
        lost(r, c, got)
        return
    r.bytes_in += <uint64_t>got
    found = web_take(&r.buffers, c, r.arena, <size_t>got, &used, &proxied)
    if found == WEB_MORE:
        return
    if found == WEB_NO_MEMORY:
        gone(r, c, ENOMEM)
        return
    if r.on_proxied(r.ctx, c, NULL if found == WEB_BAD_PROXY else &proxied) != 0:
        return
    web_stage_end(&r.buffers, c)
    if c.web.stage == WEB_PLAIN:
        web_free(&r.buffers, c)


cdef bint upgraded(Reactor* r, Conn* c, uint8_t* p, size_t n, size_t* left) noexcept nogil:
    """1: WebSocket frames from now on; the `left` bytes of them that came with the request lie at p."""
    cdef Proxied _
    cdef uint32_t before = c.out_bytes
    cdef size_t used
    cdef int found = web_take(&r.buffers, c, p, n, &used, &_)
    r.unsent_bytes += c.out_bytes - before
    if found == WEB_MORE:
        return 0
    if found == WEB_NO_MEMORY:
        gone(r, c, ENOMEM)
        return 0
    if not c.flags & CONN_DIRTY:
        conn_mark_dirty(r, c)
    r.on_upgraded(r.ctx, c, &c.web.parser.upgrade, p if c.web.request == NULL else c.web.request)
    if found == WEB_REFUSED:
        return 0
    web_stage_end(&r.buffers, c)
    memmove(p, p + used, n - used)
    left[0] = n - used
    return 1


cdef ssize_t web_input(Reactor* r, Conn* c, uint8_t* p, size_t n) noexcept nogil:
    """What is the owner's of the n bytes at p, moved together there."""
    cdef size_t left = n
    cdef size_t found = 0
    if not c.web.over and (c.web.stage == WEB_OPEN or (c.web.stage == WEB_UPGRADE and upgraded(r, c, p, n, &left))):
        found = ws_decode(&c.web.parser.ws, p, left)
        c.web.over = c.web.parser.ws.state == WS_CLOSED or c.web.parser.ws.state == WS_FAILED
        if c.web.parser.ws.ping_due and not c.flags & CONN_DIRTY:
            conn_mark_dirty(r, c)
    return <ssize_t>found if found else NOTHING


cdef void over(Reactor* r, Conn* c) noexcept nogil:
    """After the peer's last word, or an error in a layer: what came before has been taken by the owner, as far as it can be."""
    if (c.web == NULL and c.transport == NULL) or c.flags & (CONN_CLOSED | CONN_CLOSING | CONN_PAUSED | CONN_READY):
        return
    if c.web != NULL and c.web.over:
        gone(r, c, EPROTO if c.web.parser.ws.state == WS_FAILED else 0)
    elif c.transport != NULL and c.transport.over:
        gone(r, c, c.transport.error)


# ---------------------------------------------------------------- output

cdef inline void output_append(Conn* c, Seg* s) noexcept nogil:
    s.next = NULL
    if c.out_tail == NULL:
        c.out_head = s
    else:
        c.out_tail.next = s
    c.out_tail = s


cdef uint8_t* conn_room_new(Reactor* r, Conn* c, uint32_t n) noexcept nogil:
    """The first piece of a turn is small (most turns send little), and so is what follows a loan: the header of the next one, as a
    rule. A busy connection gets larger ones."""
    cdef uint32_t cap
    cdef bint little = c.out_bytes < 1024 or c.out_tail.ref != NULL
    cdef size_t head = WS_HEAD_SIZE_MAX if c.web != NULL else 0
    cdef size_t want = 2048 if little else 16384 if c.out_bytes < 32768 else 65536
    if want < n + sizeof(Seg) + head:
        want = n + sizeof(Seg) + head
    cdef uint8_t* p = buffer_take(&r.buffers, want, &cap)
    if p == NULL:
        return NULL
    cdef Seg* s = <Seg*>p
    s.p = p + sizeof(Seg) + head
    s.len = s.off = 0
    s.cap = cap - <uint32_t>(sizeof(Seg) + head)
    s.buffer_cap = cap
    s.ref = NULL
    output_append(c, s)
    return <uint8_t*>s.p


cdef int conn_lend(Reactor* r, Conn* c, const uint8_t* p, uint32_t n, void* ref) noexcept nogil:
    cdef Seg* s = <Seg*>malloc(sizeof(Seg))
    if s == NULL:
        return -1
    s.p = p
    s.len = s.cap = n
    s.off = s.buffer_cap = 0
    s.ref = ref
    output_append(c, s)
    c.out_bytes += n
    r.unsent_bytes += n
    if not c.flags & CONN_DIRTY:
        conn_mark_dirty(r, c)
    return 0


cdef inline void seg_free(Reactor* r, Seg* s) noexcept nogil:
    if s.ref != NULL:
        r.release(r.ctx, s.ref)
        free(s)
    else:
        buffer_give(&r.buffers, s, s.buffer_cap)


cdef void drop_output(Reactor* r, Conn* c) noexcept nogil:
    cdef Seg* s = c.out_head
    cdef Seg* following
    while s != NULL:
        following = s.next
        seg_free(r, s)
        s = following
    r.unsent_bytes -= c.out_bytes
    c.out_head = c.out_tail = NULL
    c.out_bytes = 0
    if c.web != NULL:
        c.web.framed = 0


cdef ssize_t send_some(Conn* c) noexcept nogil:
    cdef iovec iov[IOV_MAX_USED]
    cdef msghdr m
    cdef int n = 0
    cdef Seg* s = c.out_head
    if s.next == NULL:
        return send(c.fd, s.p + s.off, s.len - s.off, MSG_NOSIGNAL)
    while s != NULL and n < IOV_MAX_USED:
        iov[n].iov_base = <void*>(s.p + s.off)
        iov[n].iov_len = s.len - s.off
        n += 1
        s = s.next
    memset(&m, 0, sizeof(m))
    m.msg_iov = iov
    m.msg_iovlen = n
    return sendmsg(c.fd, &m, MSG_NOSIGNAL)


cdef inline bint busy(Conn* c) noexcept nogil:
    """The layer itself has something to send."""
    return c.transport.unsent != 0 or (c.flags & CONN_CLOSING and c.transport.open)


cdef void flush(Reactor* r, Conn* c) noexcept nogil:
    cdef ssize_t sent
    cdef Seg* s
    cdef uint32_t left
    if c.web != NULL and frame_output(r, c) != 0:
        return
    while c.out_head != NULL or (c.transport != NULL and busy(c)):
        sent = send_some(c) if c.transport == NULL else c.transport.ops.send(r, c)
        if sent < 0:
            if errno == EINTR:
                continue
            if errno == EAGAIN or errno == ENOBUFS:
                conn_block(r, c)
            else:
                gone(r, c, errno)
            return
        r.bytes_out += <uint64_t>sent
        c.out_bytes -= <uint32_t>sent
        if c.web != NULL:
            c.web.framed -= <uint32_t>sent
        r.unsent_bytes -= <uint64_t>sent
        while c.out_head != NULL:
            s = c.out_head
            left = s.len - s.off
            if <size_t>sent < left:
                s.off += <uint32_t>sent
                break
            sent -= left
            c.out_head = s.next
            if s.next == NULL:
                c.out_tail = NULL
            seg_free(r, s)
    if c.flags & CONN_BLOCKED:
        c.flags &= ~<uint32_t>CONN_BLOCKED
        conn_watch(r, c)
    if c.flags & CONN_CLOSING:
        end_output(r, c)
    elif c.flags & CONN_HUNGRY:
        c.flags &= ~<uint32_t>CONN_HUNGRY
        r.on_drained(r.ctx, c)


cdef int frame_output(Reactor* r, Conn* c) noexcept nogil:
    cdef uint32_t before = c.out_bytes
    if web_frame(&r.buffers, c) != 0:
        gone(r, c, ENOMEM)
        return -1
    r.unsent_bytes += c.out_bytes - before
    return 0


cdef void conn_flush(Reactor* r, Conn* c) noexcept nogil:
    if not c.flags & (CONN_CLOSED | CONN_BLOCKED | CONN_HELD):
        flush(r, c)


cdef void conn_block(Reactor* r, Conn* c) noexcept nogil:
    if not c.flags & CONN_BLOCKED:
        c.flags |= CONN_BLOCKED
        conn_watch(r, c)


cdef void end_output(Reactor* r, Conn* c) noexcept nogil:
    """All is sent. A close with unread input would reset the connection and destroy what the peer has not read yet, so
    our side is shut and the peer's end awaited; the owner sets the deadline."""
    if c.flags & CONN_SHUT:
        return
    c.flags |= CONN_SHUT
    shutdown(c.fd, SHUT_WR)


cdef void reactor_flush(Reactor* r) noexcept nogil:
    cdef Conn* c = r.dirty
    cdef Conn* following
    cdef Conn* dead = NULL
    r.dirty = NULL
    while c != NULL:
        following = c.dirty_next
        c.flags &= ~<uint32_t>CONN_DIRTY
        if not c.flags & (CONN_CLOSED | CONN_BLOCKED | CONN_HELD):
            flush(r, c)
        if c.flags & CONN_CLOSED and not c.flags & (CONN_DIRTY | CONN_READY):    # serve_ready brings the ready ones back
            c.dirty_next = dead
            dead = c
        c = following
    while dead != NULL:
        following = dead.dirty_next
        r.on_free(r.ctx, dead)
        dead = following
