"""Run the event loop's turn, with its listeners. This module knows epoll, sockets and the order of a turn. conn_input.pyx reads,
conn_output.pyx sends, conn.pyx opens and closes. None of them knows MQTT: the callbacks know the meaning of the bytes.

    reactor_turn:  turn_wait -> epoll_wait -> input that waited, until the turn is late -> events (read -> on_input | writable -> send)
    (the broker runs timers and jobs)
    reactor_flush: every dirty connection once -> on_free for the closed ones
    reactor_accept: accept -> on_accept

Invariant: a connection is freed only when it is in no list of the turn. Connections that end in a turn leave before new ones come, so a limit counts
those that are there. Cost per turn and active connection: one read and at most one write.
"""

from libc.errno cimport ECONNABORTED, EINTR, EMFILE, ENFILE, ENOMEM, errno
from libc.stdint cimport uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from cext.base.buffer cimport buffers_fini, buffers_init
from cext.base.clock cimport clock_monotonic_us, clock_wall_s
from cext.net.conn cimport conn_connected, conn_gone, conn_mark_dirty, conn_watch
from cext.net.conn_input cimport conn_check_end, conn_feed, conn_read
from cext.net.conn_output cimport conn_send
from cext.net.conn_state cimport (
    ACCEPTS_MAX, ARENA_BYTES, ARENA_MARGIN, Address, CONN_BLOCKED, CONN_CLOSED, CONN_CONNECTING, CONN_DEAF, CONN_DIRTY,
    CONN_HELD, CONN_PAUSED, CONN_READY, CONN_SHAKING, CONN_SMALL, Conn, TURN_EVENTS_MAX, ListenSocket, Reactor, SOURCE_CONN,
    SOURCE_NOTICE, SOURCE_PASSAGE, SOURCE_LAYER, SOURCE_LISTENER, SOURCE_WATCHED,
)
from cext.net.system cimport (
    AF_INET, AF_INET6, EFD_CLOEXEC, EFD_NONBLOCK, EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLEXCLUSIVE, EPOLLOUT, EPOLL_CLOEXEC, EPOLL_CTL_ADD,
    EPOLL_CTL_DEL, O_CLOEXEC, O_RDONLY, SOCK_CLOEXEC, SOCK_NONBLOCK, accept4, c_close, c_open, c_read,
    c_write, epoll_create1, epoll_ctl, epoll_event, epoll_wait, eventfd, ntohs, sockaddr, sockaddr_in, sockaddr_in6,
    sockaddr_storage,
)

cdef extern from * nogil:
    """
    static const unsigned int mosq_source_wake = 3;     /* SOURCE_WAKE, as epoll's pointer for the wake descriptor */
    static const unsigned int mosq_source_watched = 4;     /* SOURCE_WATCHED, the same */
    static const unsigned int mosq_source_passage = 6;        /* SOURCE_PASSAGE, the same */
    static const unsigned int mosq_source_notice = 7;         /* SOURCE_NOTICE, the same */
    """
    const unsigned int mosq_source_wake
    const unsigned int mosq_source_watched
    const unsigned int mosq_source_passage
    const unsigned int mosq_source_notice

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int us)

cdef enum:
    IDLE_BUFFERS_MAX_BYTES = 4 << 20
    LISTENER_PAUSE_MS = 100     # pause of a listener when no descriptor is left to refuse a connection with
    TURNS_AT_ONCE = 16          # turns that may follow each other at once after a rest


# ---------------------------------------------------------------- start and end

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
    now_read(r)
    return 0


cdef inline void now_read(Reactor* r) noexcept nogil:
    r.now_us = clock_monotonic_us()
    r.now_ms = r.now_us // 1000
    r.now_s = clock_wall_s()


cdef int reactor_watch(Reactor* r, int fd) noexcept nogil:
    return watch_source(r, fd, &mosq_source_watched)


cdef int reactor_watch_passage(Reactor* r, int fd) noexcept nogil:
    return watch_source(r, fd, &mosq_source_passage)


cdef int reactor_watch_notice(Reactor* r, int fd) noexcept nogil:
    return watch_source(r, fd, &mosq_source_notice)


cdef int watch_source(Reactor* r, int fd, const unsigned int* source) noexcept nogil:
    cdef epoll_event e
    e.events = EPOLLIN
    e.data.ptr = <void*>source
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


# ---------------------------------------------------------------- the turn

cdef void turn_wait(Reactor* r) noexcept nogil:
    """Let events gather before the next turn, if many turns have just followed each other. A turn handles all that has
    arrived with few system calls, so fewer turns cost less. The first TURNS_AT_ONCE turns after a rest do not wait: a
    request that needs several turns is answered as quickly as without this. `turn_due_us` moves on by the interval with
    each turn."""
    cdef uint64_t now_us = clock_monotonic_us()
    cdef uint64_t early_us = TURNS_AT_ONCE * <uint64_t>r.turn_interval_us
    if r.turn_due_us > now_us + early_us:       # by more than the interval only if a reload has made that shorter
        usleep(<unsigned int>min(r.turn_due_us - now_us - early_us, <uint64_t>r.turn_interval_us))
    r.turn_due_us = max(r.turn_due_us, now_us) + r.turn_interval_us


cdef int reactor_turn(Reactor* r, int timeout_ms) noexcept nogil:
    cdef epoll_event events[TURN_EVENTS_MAX]
    cdef int i, n
    cdef uint32_t source
    cdef uint64_t count
    if r.ready != NULL or r.dirty != NULL:
        timeout_ms = 0
    elif r.paused != NULL and (timeout_ms < 0 or timeout_ms > LISTENER_PAUSE_MS):
        timeout_ms = LISTENER_PAUSE_MS
    if r.turn_interval_us and timeout_ms != 0:
        turn_wait(r)
    n = epoll_wait(r.ep, events, TURN_EVENTS_MAX, timeout_ms)
    r.turns += 1
    now_read(r)
    if r.paused != NULL and r.now_ms >= r.resume_ms:
        listeners_resume(r)
    if n < 0:
        return 0 if errno == EINTR else errno
    serve_ready(r)
    for i in range(n):
        source = (<uint32_t*>events[i].data.ptr)[0]
        if source == SOURCE_CONN:
            serve_conn(r, <Conn*>events[i].data.ptr, events[i].events)
        elif source == SOURCE_LISTENER:
            listener_due(r, <ListenSocket*>events[i].data.ptr)
        elif source == SOURCE_WATCHED:
            r.on_watched(r.ctx)
        elif source == SOURCE_LAYER:
            serve_layer(r)
        elif source == SOURCE_PASSAGE:
            r.on_passage(r.ctx)
        elif source == SOURCE_NOTICE:
            r.on_notice(r.ctx)
        else:
            c_read(r.wake_fd, &count, 8)
            r.on_wake(r.ctx)
    return 0


cdef void serve_conn(Reactor* r, Conn* c, uint32_t events) noexcept nogil:
    if c.flags & CONN_CLOSED:
        return                  # closed earlier in this turn
    if c.flags & CONN_CONNECTING:
        conn_connected(r, c)
        return
    if events & EPOLLOUT and not c.flags & CONN_HELD:
        conn_send(r, c)
        if c.flags & CONN_CLOSED:
            return
    if events & (EPOLLIN | EPOLLHUP | EPOLLERR):
        if not c.flags & (CONN_PAUSED | CONN_READY | CONN_SHAKING):
            conn_read(r, c)
            if c.flags & CONN_SMALL:
                r.on_small(r.ctx, c)
        elif events & (EPOLLHUP | EPOLLERR):
            conn_gone(r, c, 0)
        elif not c.flags & CONN_DEAF:
            c.flags |= CONN_DEAF
            conn_watch(r, c)


cdef void serve_layer(Reactor* r) noexcept nogil:
    """Read the connections for which a thread of the layer has completed its work."""
    cdef Conn* c = r.layer_next(r.layer)
    while c != NULL:
        c.flags &= ~<uint32_t>CONN_SHAKING
        if c.flags & CONN_DEAF and not c.flags & (CONN_PAUSED | CONN_READY):
            c.flags &= ~<uint32_t>CONN_DEAF
            conn_watch(r, c)
        conn_read(r, c)
        if c.flags & CONN_SMALL:
            r.on_small(r.ctx, c)
        c = r.layer_next(r.layer)


cdef void serve_ready(Reactor* r) noexcept nogil:
    """Serve the connections whose input waits, each at most once, at least one. One that has more is appended again."""
    cdef Conn* c
    cdef Conn* last = r.ready_last
    cdef bint is_last = r.ready == NULL
    while not is_last:
        c = r.ready
        is_last = c == last or (r.is_late != NULL and r.is_late(r.ctx))
        r.ready = c.ready_next
        c.flags &= ~<uint32_t>CONN_READY
        if c.flags & CONN_CLOSED and not c.flags & CONN_DIRTY:
            conn_mark_dirty(r, c)
        if not c.flags & (CONN_CLOSED | CONN_PAUSED):
            if c.in_buf != NULL:
                conn_feed(r, c)
            conn_check_end(r, c)
            if c.flags & CONN_DEAF and not c.flags & (CONN_CLOSED | CONN_PAUSED | CONN_READY):
                c.flags &= ~<uint32_t>CONN_DEAF
                conn_watch(r, c)


cdef void reactor_flush(Reactor* r) noexcept nogil:
    cdef Conn* c = r.dirty
    cdef Conn* following
    cdef Conn* dead = NULL
    r.dirty = NULL
    while c != NULL:
        following = c.dirty_next
        c.flags &= ~<uint32_t>CONN_DIRTY
        if not c.flags & (CONN_CLOSED | CONN_BLOCKED | CONN_HELD):
            conn_send(r, c)
        # Serve_ready handles the connections in the ready list.
        if c.flags & CONN_CLOSED and not c.flags & (CONN_DIRTY | CONN_READY):
            c.dirty_next = dead
            dead = c
        c = following
    while dead != NULL:
        following = dead.dirty_next
        r.on_free(r.ctx, dead)
        dead = following


# ---------------------------------------------------------------- listeners

cdef int reactor_listen(Reactor* r, ListenSocket* l) noexcept nogil:
    l.source = SOURCE_LISTENER
    return errno if listener_add(r, l) != 0 else 0


cdef int listener_add(Reactor* r, ListenSocket* l) noexcept nogil:
    """Watch the socket. If processes share it, EPOLLEXCLUSIVE wakes one of those that wait, and all take from one queue. With SO_REUSEPORT each process
    would have a queue of its own: the connections in that of a process that has died are lost, those in that of a stopped one wait, and unix
    sockets have no such thing."""
    cdef epoll_event e
    e.events = EPOLLIN | (EPOLLEXCLUSIVE if l.shared else 0)
    e.data.ptr = l
    return epoll_ctl(r.ep, EPOLL_CTL_ADD, l.fd, &e)


cdef void reactor_unlisten(Reactor* r, ListenSocket* l) noexcept nogil:
    if l.paused:
        listener_unpause(r, l)
    if l.due:
        listener_not_due(r, l)
    if l.fd >= 0:
        epoll_ctl(r.ep, EPOLL_CTL_DEL, l.fd, NULL)
    l.fd = -1                   # an event of this turn may still point to this listener


cdef void listener_due(Reactor* r, ListenSocket* l) noexcept nogil:
    if not l.due and l.fd >= 0:
        l.due = 1
        l.due_next = r.due
        r.due = l


cdef void listener_not_due(Reactor* r, ListenSocket* l) noexcept nogil:
    cdef ListenSocket** at = &r.due
    while at[0] != l:
        at = &at[0].due_next
    at[0] = l.due_next
    l.due = 0


cdef void reactor_accept(Reactor* r) noexcept nogil:
    cdef ListenSocket* l
    if r.due != NULL:
        r.now_ms = clock_monotonic_us() // 1000      # the time to log in begins now; the turn may have begun before the process was suspended
    while r.due != NULL:
        l = r.due
        r.due = l.due_next
        l.due = 0
        serve_listener(r, l)


cdef void serve_listener(Reactor* r, ListenSocket* l) noexcept nogil:
    cdef sockaddr_storage storage
    cdef unsigned int size
    cdef Address a
    cdef int i, fd
    for i in range(ACCEPTS_MAX if l.fd >= 0 else 0):
        if i and r.is_late != NULL and r.is_late(r.ctx):
            return               # the others wait in the backlog
        size = sizeof(storage)
        fd = accept4(l.fd, <sockaddr*>&storage, &size, SOCK_NONBLOCK | SOCK_CLOEXEC)
        if fd < 0:
            if errno == EMFILE or errno == ENFILE:
                refuse_without_descriptor(r, l)
            elif errno == ECONNABORTED or errno == EINTR:
                continue
            return
        r.n_accepted += 1
        address_of_sockaddr(&storage, &a)
        r.on_accept(r.ctx, l, fd, &a)
        if l.full:
            # Only the first connection of a turn is known to have come before this turn's events, so only it may be refused. The others
            # wait for the next turn: their clients may have closed other connections before they opened these.
            l.full = 0
            return


cdef void listener_pause(Reactor* r, ListenSocket* l) noexcept nogil:
    if not l.paused:
        l.paused = 1
        l.paused_next = r.paused
        r.paused = l
        epoll_ctl(r.ep, EPOLL_CTL_DEL, l.fd, NULL)       # EPOLL_CTL_MOD is refused with EPOLLEXCLUSIVE
    r.resume_ms = r.now_ms + LISTENER_PAUSE_MS


cdef void listeners_resume(Reactor* r) noexcept nogil:
    cdef ListenSocket* l
    while r.paused != NULL:
        l = r.paused
        r.paused = l.paused_next
        l.paused = 0
        listener_add(r, l)


cdef void listener_unpause(Reactor* r, ListenSocket* l) noexcept nogil:
    """Take a listener that ends out of the list of paused ones."""
    cdef ListenSocket** at = &r.paused
    while at[0] != NULL and at[0] != l:
        at = &at[0].paused_next
    if at[0] == l:
        at[0] = l.paused_next
    l.paused = 0


cdef void refuse_without_descriptor(Reactor* r, ListenSocket* l) noexcept nogil:
    """Refuse one connection with the spare descriptor. Otherwise it would stay in the backlog, and the loop would spin on it."""
    cdef int fd
    r.on_no_descriptors(r.ctx)
    if r.spare_fd < 0:
        # Another part of this process took the descriptor the last time.
        r.spare_fd = c_open("/dev/null", O_RDONLY | O_CLOEXEC)
    if r.spare_fd < 0:
        listener_pause(r, l)
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
