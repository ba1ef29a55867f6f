"""Pass a connection to the worker to which its client id belongs, and receive those of this worker. This module knows connections before their login.
It does not know packets: CONNECT is handled by the worker that the client id names.

    accepting worker:  CONNECT is read and valid -> client_moves -> (end of the turn's events) workers_pass: sendmsg with the descriptor
    worker of the id:  workers_receive (where the loop accepts) -> a new client with all these bytes, which is handled in the next turn

A keyed hash of the client id names the worker, so a client cannot choose it. All bytes that were read go along: CONNECT, and what the client has
sent behind it; also the address that a proxy reported, and the state of WebSocket frames. Nothing was sent to the client yet, except the answer to
an HTTP upgrade. The descriptor is closed here only after the other worker has got its own, so the client notices nothing.

A passage is one half of a pair of SOCK_SEQPACKET sockets. The parent keeps both halves open, so the connections that wait for a worker that has died
are received by the process that follows it. A passage that is full makes the connections wait here, as newcomers with their deadline and limits.

A TLS connection stays with the worker that did its handshake, because its keys cannot move yet. Its client moves: the two workers are connected by a
pair of stream sockets, and the accepting one relays the plain bytes, below MQTT and above TLS and WebSocket. So that one worker does not do all
handshakes, new TLS connections are dealt out in turn before a byte is read.

Invariant: a client in state C_MOVING is not read from and has not answered. Cost: nothing for packets other than CONNECT.
"""

from libc.errno cimport EAGAIN, EINTR, EMSGSIZE, ENOBUFS, ENOMEM, EPIPE, errno
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from cext.base.buffer cimport buffer_take
from cext.base.slab cimport SlabItem, slab_get
from cext.base.view cimport View
from cext.base.wheel cimport wheel_add, wheel_left_ms, wheel_remove
from cext.broker.auth.tls_identity cimport TLS_NAME_MAX, log_negotiated_tls, tls_name, tls_names
from cext.broker.core.bounds cimport WORK_ACCEPT
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport END_REFUSED, END_SILENT, client_doom, client_give, client_take
from cext.broker.core.client_state cimport CF_DOOMED, CF_TRUSTED, C_ENDED, C_MOVING, C_RELAY, Client, client_of
from cext.broker.core.listener cimport Listener
from cext.broker.core.log cimport LOG_ERROR
from cext.broker.core.newcomers cimport newcomer_leave
from cext.broker.core.pending_packet cimport PACKET_PENDING, path_of, proxied_of
from cext.broker.core.stats cimport REFUSED_MEMORY
from cext.broker.core.workers cimport Passage, WORKERS_MAX, Workers, log_own, relay_other, worker_of_id, workers_of, workers_publish
from cext.broker.lifecycle.accept cimport client_open, client_welcome, descriptor_below_limit, newcomer_grew, refuse_connection
from cext.broker.core.link_state cimport NO_SLOT
from cext.broker.links.sockets cimport link_accepted
from cext.broker.lifecycle.session_lifecycle cimport client_end
from cext.broker.lifecycle.callers cimport caller_input
from cext.broker.lifecycle.wires cimport names_fill, wire_dial
from cext.broker.persist.publication cimport memory_short
from cext.codec.reason cimport RC_KEEP_ALIVE_TIMEOUT
from cext.net.conn cimport conn_close, conn_drop_input, conn_open, conn_resume
from cext.net.conn_output cimport conn_flush, conn_room, conn_wrote
from cext.net.conn_state cimport (
    ACCEPTS_MAX, ARENA_BYTES, Address, CONN_CLOSED, CONN_CLOSING, CONN_HUNGRY, CONN_INNER, CONN_MOVED, CONN_PAUSED, CONN_PEER, CONN_RELAY,
    Conn, conn_unsent,
)
from cext.net.reactor cimport reactor_watch_notice, reactor_watch_passage
from cext.net.system cimport AF_UNIX, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, c_close, c_write, iovec
from cext.net.web cimport WEB_OPEN, web_new
from cext.net.websocket cimport WsDecoder

cdef extern from "<sys/mman.h>" nogil:
    int munmap(void* p, size_t n)

cdef extern from * nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <errno.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/socket.h>
    #include <unistd.h>

    extern int memfd_create(const char* name, unsigned int flags);

    static ssize_t mosq_passage_send(int passage, struct iovec* iov, int n_iov, const int* fds, int n_fds) {
        char control[CMSG_SPACE(2 * sizeof(int))] __attribute__((aligned(8)));
        struct msghdr m;
        struct cmsghdr* c;
        memset(&m, 0, sizeof(m));
        memset(control, 0, sizeof(control));
        m.msg_iov = iov;
        m.msg_iovlen = n_iov;
        m.msg_control = control;
        m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
        return sendmsg(passage, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    }

    static inline uint64_t mosq_told_get(const uint64_t* p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }

    /* fds has room for two; the caller owns those that are not -1. */
    static ssize_t mosq_passage_receive(int passage, void* p, size_t n, int* fds) {
        char control[CMSG_SPACE(2 * sizeof(int))] __attribute__((aligned(8)));
        struct iovec iov = {p, n};
        struct msghdr m;
        struct cmsghdr* c;
        ssize_t got;
        memset(&m, 0, sizeof(m));
        m.msg_iov = &iov;
        m.msg_iovlen = 1;
        m.msg_control = control;
        m.msg_controllen = sizeof(control);
        fds[0] = fds[1] = -1;
        got = recvmsg(passage, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (got < 0)
            return got;
        for (c = CMSG_FIRSTHDR(&m); c != NULL; c = CMSG_NXTHDR(&m, c))
            if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
                memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0));
        return got;
    }
    """
    uint64_t mosq_told_get(const uint64_t* p)
    ssize_t mosq_passage_send(int passage, iovec* iov, int n_iov, const int* fds, int n_fds)
    ssize_t mosq_passage_receive(int passage, void* p, size_t n, int* fds)
    int memfd_create(const char* name, unsigned int flags)
    int MFD_CLOEXEC
    int ETOOMANYREFS
    ssize_t pread(int fd, void* p, size_t n, long offset)
    int socketpair(int family, int type, int protocol, int* ends)

cdef enum:
    MOVE_INLINE_BYTES = 16 * 1024       # more input goes in a memory file: a message must fit into the socket's buffer
    WAITING_FIRST = 16
    RELAY_BYTES_MAX = 64 * 1024         # unsent bytes of one half, above which the other half is not read
    SILENT_MS = 2000                    # a worker that has written no figures for so long gets no new connections
    RELAY_WORK = 50                     # as the first append to a connection in a turn

ctypedef struct Move:
    # the head of a message: name of its certificate, socket path, and input follow, or are in the memory file
    uint32_t listener                   # place in the list of listeners
    uint32_t origin                     # and its identity there
    uint32_t input_n
    uint16_t proxied_n
    uint16_t path_n
    uint8_t in_file                     # 1: the second descriptor is the memory file
    uint8_t is_new                      # 1: nothing was read, and its TLS handshake begins in the worker that gets it
    uint8_t is_link                     # 1: no connection of a client, but a new link from another worker
    uint8_t is_relay                    # 1: one end of a relay; the worker that accepted the connection counts its bytes
    uint8_t is_web                      # 1: WebSocket frames, with the state `ws`
    Address address
    WsDecoder ws
    uint64_t due_ms                     # end of connect_timeout, on the monotonic clock of the machine


cdef bint id_is_own(Broker* b, View client_id) noexcept nogil:
    cdef Workers* w = workers_of(b)
    return w == NULL or worker_of_id(w, client_id) == w.place


cdef int client_moves(Broker* b, Client* c, View client_id) noexcept nogil:
    cdef Workers* w = workers_of(b)
    cdef uint32_t to
    if w == NULL or c.flags & CF_TRUSTED:
        return 0
    to = worker_of_id(w, client_id)
    if to == w.place:
        return 0
    if c.conn.flags & CONN_MOVED or move_waits(b, c, to) != 0:
        return END_REFUSED               # two workers disagree, during a reload; or there is no memory
    log_negotiated_tls(b, c, client_id)
    c.state = C_MOVING
    c.conn.flags |= CONN_PAUSED
    return PACKET_PENDING


cdef int move_waits(Broker* b, const Client* c, uint32_t place) noexcept nogil:
    if passage_wait(&workers_of(b).passages[place], c) != 0:
        return -1
    workers_of(b).waiting += 1
    return 0


cdef int passage_wait(Passage* d, const Client* c) noexcept nogil:
    """Append the client's handle to the ring. Returns -1 if there is no memory."""
    cdef SlabItem* ring
    cdef uint32_t i, cap
    if d.tail - d.head == d.cap:
        cap = 2 * d.cap if d.cap else WAITING_FIRST
        ring = <SlabItem*>malloc(cap * sizeof(SlabItem))
        if ring == NULL:
            return -1
        for i in range(d.tail - d.head):
            ring[i] = d.waiting[(d.head + i) & (d.cap - 1)]
        free(d.waiting)
        d.waiting = ring
        d.tail -= d.head
        d.head = 0
        d.cap = cap
    d.waiting[d.tail & (d.cap - 1)] = c.slab
    d.tail += 1
    return 0


# ---------------------------------------------------------------- to another worker

cdef bint workers_pass(Broker* b) noexcept nogil:
    cdef Workers* w = workers_of(b)
    cdef uint32_t i
    if w.waiting:
        for i in range(w.n):
            passage_pass(b, w, i)
    return w.waiting != 0


cdef void passage_pass(Broker* b, Workers* w, uint32_t place) noexcept nogil:
    cdef Passage* d = &w.passages[place]
    cdef SlabItem* handle
    cdef Client* c
    cdef bint far = w.remote >> place & 1
    cdef int err
    while d.head != d.tail:
        handle = &d.waiting[d.head & (d.cap - 1)]
        c = <Client*>slab_get(&b.clients, handle.index, handle.generation)
        if c != NULL and c.state == C_MOVING and not c.flags & CF_DOOMED:
            err = wire_dial(b, c, place) if far else client_pass(b, c, d.fd)
            if err == EAGAIN or err == ENOBUFS or err == ETOOMANYREFS:     # the last: too many descriptors are on their way
                return
            if err:
                client_end(b, c, END_REFUSED)
            elif c.state == C_MOVING and not far:
                client_passed(b, c)
        d.head += 1
        w.waiting -= 1


cdef void client_passed(Broker* b, Client* c) noexcept nogil:
    """Forget a connection that another worker has now. The client is still connected, so there is no line about its end."""
    c.state = C_ENDED
    wheel_remove(&b.wheel, &c.timer)
    conn_close(&b.reactor, &c.conn)


cdef uint32_t listener_place(Broker* b, const Listener* listener) noexcept nogil:
    cdef uint32_t place = 0
    while place < b.n_listeners and b.listeners[place] != listener:
        place += 1
    return place


cdef int client_pass(Broker* b, Client* c, int passage) noexcept nogil:
    """Send the connection through a passage; of a TLS connection, one end of a relay. Returns 0 or errno."""
    cdef Move m
    cdef int ends[2]
    cdef int err
    if c.conn.transport == NULL:
        conn_flush(&b.reactor, &c.conn)          # the answer to an HTTP upgrade
        if conn_unsent(&c.conn) or c.conn.flags & CONN_CLOSED:
            return EMSGSIZE
    memset(&m, 0, sizeof(Move))
    m.listener = listener_place(b, c.listener)
    m.origin = c.listener.origin
    m.input_n = c.conn.in_len - c.conn.in_off
    m.address = c.conn.address
    m.due_ms = b.reactor.now_ms + wheel_left_ms(&b.wheel, &c.timer)
    if c.conn.transport == NULL:
        if c.conn.web != NULL:
            m.is_web = 1
            m.ws = c.conn.web.parser.ws
        return move_send(c, &m, proxied_of(c), passage, c.conn.fd)
    if socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0:
        return errno
    m.is_relay = 1
    err = relay_send(c, &m, passage, ends[1])
    c_close(ends[1])
    if err == 0:
        err = relay_begin(b, c, ends[0])
    if err:
        c_close(ends[0])
    else:
        relay_flow(b, c)
    return err


cdef int relay_send(Client* c, Move* m, int passage, int end) noexcept nogil:
    """Send the other end of a relay, with the user name that TLS proves, if the listener takes it from there."""
    cdef uint8_t room[TLS_NAME_MAX]
    cdef View name
    cdef int n = tls_name(c, room) if tls_names(c) else 0
    name.p = room
    name.n = <uint32_t>n if n > 0 else 0
    return move_send(c, m, name if name.n else proxied_of(c), passage, end)


cdef int move_send(Client* c, Move* m, View proxied, int passage, int fd) noexcept nogil:
    cdef iovec iov[4]
    cdef View path = path_of(c)
    cdef int fds[2]
    cdef int n_fds = 1, n_iov = 4, err
    m.proxied_n = <uint16_t>proxied.n
    m.path_n = <uint16_t>path.n
    iov[0].iov_base = m
    iov[0].iov_len = sizeof(Move)
    iov[1].iov_base = <void*>proxied.p
    iov[1].iov_len = proxied.n
    iov[2].iov_base = <void*>path.p
    iov[2].iov_len = path.n
    iov[3].iov_base = c.conn.in_buf + c.conn.in_off
    iov[3].iov_len = m.input_n
    fds[0] = fd
    if m.input_n > MOVE_INLINE_BYTES:
        fds[1] = input_file(<const uint8_t*>iov[3].iov_base, m.input_n)
        if fds[1] < 0:
            return errno
        m.in_file = 1
        n_iov = 3
        n_fds = 2
    err = errno if mosq_passage_send(passage, iov, n_iov, fds, n_fds) < 0 else 0
    if n_fds == 2:
        c_close(fds[1])
    return EAGAIN if err == EINTR else err


cdef int input_file(const uint8_t* p, uint32_t n) noexcept nogil:
    """Return a memory file with the input, or -1 with errno."""
    cdef int fd = memfd_create("mosq-input", MFD_CLOEXEC)
    cdef ssize_t done
    while n and fd >= 0:
        done = c_write(fd, p, n)
        if done <= 0:
            c_close(fd)
            return -1
        p += done
        n -= <uint32_t>done
    return fd


cdef inline uint32_t deal_next(Workers* w) noexcept nogil:
    w.dealt += 1
    return (w.place + w.dealt - 1) % w.n


cdef bint connection_deal(Broker* b, Listener* listener, int fd, const Address* a) noexcept nogil:
    """Send a new TLS connection to the worker whose turn it is, if it works. Return 0 if that is this one, or if it cannot be sent."""
    cdef Workers* w = workers_of(b)
    cdef Move m
    cdef uint32_t to = deal_next(w)
    while to != w.place and b.reactor.now_ms - mosq_told_get(&w.counts[to].told_ms) > SILENT_MS:
        to = deal_next(w)
    if to == w.place:
        return 0
    memset(&m, 0, sizeof(Move))
    m.listener = listener_place(b, listener)
    m.origin = listener.origin
    m.is_new = 1
    m.address = a[0]
    m.due_ms = b.reactor.now_ms + b.settings.connect_timeout_ms
    if descriptor_pass(w.passages[to].fd, <const uint8_t*>&m, sizeof(Move), fd) != 0:
        return 0
    c_close(fd)
    return 1


cdef int link_pass(Broker* b, uint32_t to, int fd) noexcept nogil:
    cdef Move m
    memset(&m, 0, sizeof(Move))
    m.is_link = 1
    return descriptor_pass(workers_of(b).passages[to].fd, <const uint8_t*>&m, sizeof(Move), fd)


cdef int descriptor_pass(int passage, const uint8_t* p, size_t n, int fd) noexcept nogil:
    cdef iovec iov
    iov.iov_base = <void*>p
    iov.iov_len = n
    return 0 if mosq_passage_send(passage, &iov, 1, &fd, 1) >= 0 else errno


# ---------------------------------------------------------------- relays

cdef int relay_begin(Broker* b, Client* c, int fd) noexcept nogil:
    """Connect both halves: the TLS connection, which stays here, and the socket to the worker that has its client. Returns 0 or errno."""
    cdef Client* half = client_take(b)
    cdef Address none
    cdef int err
    memset(&none, 0, sizeof(Address))
    if half == NULL:
        return ENOMEM
    err = conn_open(&b.reactor, &half.conn, fd, &none)
    if err:
        client_give(b, half)
        return err
    half.listener = c.listener
    half.state = C_RELAY
    half.conn.flags |= CONN_RELAY | CONN_INNER
    workers_of(b).halves += 1
    relay_join(b, c, half)
    return 0


cdef void relay_join(Broker* b, Client* c, Client* half) noexcept nogil:
    newcomer_leave(b, c)
    half.newcomer_next = c.slab.index + 1
    c.newcomer_next = half.slab.index + 1
    c.newcomer_prev = 0
    c.state = C_RELAY
    c.listener.n_connections -= 1        # it counts where its client is served
    c.conn.flags |= CONN_RELAY
    workers_of(b).halves += 1
    wheel_remove(&b.wheel, &c.timer)


cdef void relay_flow(Broker* b, Client* c) noexcept nogil:
    conn_drop_input(&b.reactor, &c.conn)         # the other worker has it
    conn_resume(&b.reactor, &c.conn)


cdef size_t relay_input(Broker* b, Conn* conn, const uint8_t* p, size_t n) noexcept nogil:
    cdef Client* c = client_of(conn)
    cdef Client* other = relay_other(b, c)
    cdef uint8_t* room
    conn.in_need = 0
    if other == NULL or c.flags & CF_DOOMED or other.conn.flags & (CONN_CLOSED | CONN_CLOSING):
        return n
    if other.conn.out_bytes >= RELAY_BYTES_MAX:
        conn.flags |= CONN_PAUSED
        other.conn.flags |= CONN_HUNGRY          # relay_drained reads on
        return 0
    room = conn_room(&b.reactor, &other.conn, <uint32_t>n)
    if room == NULL:
        client_doom(b, c, END_SILENT)
        return n
    memcpy(room, p, n)
    conn_wrote(&b.reactor, &other.conn, <uint32_t>n)
    b.work += RELAY_WORK
    return n


cdef inline size_t relayed(Broker* b, Conn* conn, const uint8_t* p, size_t n) noexcept nogil:
    return caller_input(b, conn, p, n) if conn.flags & CONN_PEER else relay_input(b, conn, p, n)


cdef size_t workers_input(void* broker, Conn* conn, const uint8_t* p, size_t n) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    return relayed(b, conn, p, n) if conn.flags & CONN_RELAY else workers_of(b).input(broker, conn, p, n)


cdef size_t workers_traced(void* broker, Conn* conn, const uint8_t* p, size_t n) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    return relayed(b, conn, p, n) if conn.flags & CONN_RELAY else workers_of(b).traced(broker, conn, p, n)


cdef void relay_drained(Broker* b, Client* c) noexcept nogil:
    cdef Client* other = relay_other(b, c)
    if other != NULL and other.conn.flags & CONN_PAUSED:
        conn_resume(&b.reactor, &other.conn)


# ---------------------------------------------------------------- from another worker

cdef void workers_passage_due(void* broker) noexcept nogil:
    workers_of(<Broker*>broker).passage_due = 1


cdef int workers_receive(Broker* b) noexcept nogil:
    """Receive connections where the loop accepts, and publish the numbers of this worker. Return EPIPE if its passage was shut down, otherwise 0."""
    cdef Workers* w = workers_of(b)
    cdef int fds[2]
    cdef ssize_t got
    cdef int _
    if w.passage_due:
        w.passage_due = 0
        for _ in range(ACCEPTS_MAX):
            got = mosq_passage_receive(w.passages[w.place].fd, b.reactor.arena, ARENA_BYTES, fds)
            if got < 0:
                break                    # the others, if it is EINTR, wait for the next turn
            if got == 0 and fds[0] < 0:
                log_own(b, LOG_ERROR, "Error: the socket for connections from other workers was shut down. This worker ends.")
                return EPIPE
            b.work += WORK_ACCEPT
            if got >= <ssize_t>sizeof(Move) and fds[0] >= 0:
                client_received(b, <const Move*>b.reactor.arena, <size_t>got, fds)
            elif fds[0] >= 0:
                c_close(fds[0])
            if fds[1] >= 0:
                c_close(fds[1])
    workers_publish(b)
    return 0


cdef Listener* listener_of(Broker* b, const Move* m) noexcept nogil:
    if m.listener < b.n_listeners and b.listeners[m.listener].origin == m.origin:
        return b.listeners[m.listener]
    return NULL


cdef void client_received(Broker* b, const Move* m, size_t n, const int* fds) noexcept nogil:
    """Make a client of a connection that another worker has accepted. The limits of connections were checked there."""
    cdef Listener* listener = listener_of(b, m)
    cdef int fd
    cdef Client* c
    if m.is_link:
        link_accepted(b, NO_SLOT, fds[0])
        return
    fd = descriptor_below_limit(b, fds[0])
    if fd < 0:
        return
    if listener == NULL or n != sizeof(Move) + <size_t>m.proxied_n + m.path_n + (0 if m.in_file else m.input_n):
        c_close(fd)                      # a reload has removed its listener
        return
    if memory_short(b, b.settings.memory_limit // 8):
        refuse_connection(b, fd, &m.address, REFUSED_MEMORY, "memory_limit reached")
        return
    c = client_open(b, listener, fd, &m.address)
    if c == NULL:
        return
    if m.due_ms <= b.reactor.now_ms:
        client_end(b, c, RC_KEEP_ALIVE_TIMEOUT)      # the time in the passage counts
        return
    wheel_add(&b.wheel, &c.timer, m.due_ms)
    if m.is_new:
        client_welcome(b, c)
        return
    c.conn.flags |= CONN_MOVED | (CONN_INNER if m.is_relay else 0)
    if passed_fill(b, c, m, fds[1]) != 0:
        client_end(b, c, END_REFUSED)
        return
    newcomer_grew(b, &c.conn)
    conn_resume(&b.reactor, &c.conn)


cdef int passed_fill(Broker* b, Client* c, const Move* m, int file) noexcept nogil:
    """Give the client its names, its input and the state of its WebSocket. Returns -1 if that fails."""
    cdef const uint8_t* p = <const uint8_t*>m + sizeof(Move)
    cdef View proxied, path
    proxied.p, proxied.n = p, m.proxied_n
    path.p, path.n = p + m.proxied_n, m.path_n
    if names_fill(c, proxied, path) != 0:
        return -1
    if m.is_web:
        c.conn.web = web_new(0, NULL)
        if c.conn.web == NULL:
            return -1
        c.conn.web.stage = WEB_OPEN
        c.conn.web.parser.ws = m.ws
    c.conn.in_buf = buffer_take(&b.reactor.buffers, m.input_n, &c.conn.in_cap)
    if c.conn.in_buf == NULL:
        return -1
    c.conn.in_len = m.input_n
    if not m.in_file:
        memcpy(c.conn.in_buf, p + m.proxied_n + m.path_n, m.input_n)
    elif file < 0 or pread(file, c.conn.in_buf, m.input_n, 0) != <ssize_t>m.input_n:
        return -1
    return 0


# ---------------------------------------------------------------- start, end

cdef int workers_start(Broker* b) noexcept nogil:
    cdef Workers* w = workers_of(b)
    if w == NULL:
        return 0
    w.input = b.reactor.on_input
    b.reactor.on_input = workers_input
    w.traced = b.trace.input
    b.trace.input = workers_traced
    w.passage_due = 1                       # connections may have come before this process
    workers_publish(b)
    return reactor_watch_passage(&b.reactor, w.passages[w.place].fd) or reactor_watch_notice(&b.reactor, w.news[w.place])


cdef void workers_free(Broker* b) noexcept nogil:
    cdef Workers* w = workers_of(b)
    cdef uint32_t i
    if w == NULL:
        return
    for i in range(w.n):
        free(w.passages[i].waiting)
        c_close(w.passages[i].fd)
        c_close(w.news[i])
    c_close(w.wires_fd)
    free(w.wires)
    if w.counts != NULL:
        munmap(w.counts, WORKERS_MAX * sizeof(w.counts[0]))
    free(w)
    b.workers = NULL
