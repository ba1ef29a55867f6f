# The relay: an epoll loop that copies each PUBLISH to the subscribers of its topic, and does nothing else. It answers every packet
# that needs an answer and remembers none. What a broker costs above it is the broker's own work.
# This module knows frames. It does not know sessions, retained messages, wildcards other than `/#` at the end, or limits.
# Invariant: a frame leaves as it came, so all clients must have the same version of MQTT and QoS. `mosq bench` has such clients.
# Cost: one recv for each readable connection, one lookup and one copy for each delivery, one send for each connection and turn.
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove, memset

from cext.base.hash cimport HashKey, hash_bytes
from cext.base.view cimport View
from cext.codec.decode cimport Connect, Subscribe, SubscribeItem, decode_connect, decode_subscribe, subscribe_next
from cext.codec.encode cimport (
    ACK_SIZE_MAX, Connack, PINGRESP_SIZE, connack_size, encode_ack, encode_connack, encode_pingresp, encode_suback, suback_size,
)
from cext.codec.frame cimport (
    Frame, T_CONNECT, T_PINGREQ, T_PUBACK, T_PUBCOMP, T_PUBLISH, T_PUBREC, T_PUBREL, T_SUBACK, T_SUBSCRIBE, frame_next,
)
from cext.net.system cimport (
    EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_MOD, IPPROTO_TCP, MSG_NOSIGNAL, SOCK_CLOEXEC,
    SOCK_NONBLOCK, accept4, c_close, epoll_create1, epoll_ctl, epoll_event, epoll_wait, recv, send, setsockopt,
)

cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_NODELAY

cdef enum:
    SUBACK_CODES_MAX = 64       # filters of one SUBSCRIBE


# ---------------------------------------------------------------- memory

cdef bint relay_room(void** p, size_t* cap, size_t n) noexcept nogil:
    """Let the buffer at *p have at least n bytes."""
    cdef void* grown
    if n <= cap[0]:
        return True
    grown = realloc(p[0], n * 2)
    if grown == NULL:
        return False
    p[0] = grown
    cap[0] = n * 2
    return True


cdef bint relay_list(RelayPeer*** p, uint32_t* cap, uint32_t n) noexcept nogil:
    """Let the list at *p have at least n places; new places are NULL."""
    cdef uint32_t more = n * 2
    cdef void* grown
    if n <= cap[0]:
        return True
    grown = realloc(p[0], more * sizeof(RelayPeer*))
    if grown == NULL:
        return False
    p[0] = <RelayPeer**>grown
    memset(p[0] + cap[0], 0, (more - cap[0]) * sizeof(RelayPeer*))
    cap[0] = more
    return True


# ---------------------------------------------------------------- topics

cdef RelayTopic** relay_place(RelayState* r, const uint8_t* name, uint32_t n, bint is_prefix) noexcept nogil:
    """Return the place of a topic in its chain; the place contains NULL if the topic is not there."""
    cdef HashKey key
    cdef RelayTopic** at
    key.k0 = key.k1 = is_prefix
    at = r.chains + (hash_bytes(&key, name, n) & (RELAY_CHAINS - 1))
    while at[0] != NULL and not (at[0].n == n and at[0].is_prefix == is_prefix and memcmp(at[0].name, name, n) == 0):
        at = &at[0].next
    return at


cdef bint relay_prefix_known(RelayState* r, uint32_t n) noexcept nogil:
    """Let the relay look for prefixes of n bytes. False: there are too many different lengths."""
    cdef uint32_t i
    for i in range(r.n_prefixes):
        if r.prefix_n[i] == n:
            return True
    if r.n_prefixes == RELAY_PREFIXES:
        return False
    r.prefix_n[r.n_prefixes] = n
    r.n_prefixes += 1
    return True


cdef bint relay_add(RelayState* r, RelayPeer* c, View filter) noexcept nogil:
    """Add a subscription. False: the relay cannot serve this filter, or there is no memory."""
    cdef uint32_t n = filter.n
    cdef bint is_prefix = n > 2 and filter.p[n - 1] == 35 and filter.p[n - 2] == 47         # "/#"
    cdef RelayTopic** at
    cdef RelayTopic* t
    if is_prefix:
        n -= 2
    if n == 0 or filter.p[0] == 36 or memchr(filter.p, 43, n) != NULL or memchr(filter.p, 35, n) != NULL:       # "$", "+", "#"
        return False
    if is_prefix and not relay_prefix_known(r, n):
        return False
    at = relay_place(r, filter.p, n, is_prefix)
    if at[0] == NULL:
        t = <RelayTopic*>calloc(1, sizeof(RelayTopic) + n)
        if t == NULL:
            return False
        t.name = <uint8_t*>(t + 1)
        memcpy(t.name, filter.p, n)
        t.n, t.is_prefix = n, is_prefix
        at[0] = t
        r.n_exact += not is_prefix
    t = at[0]
    if not relay_list(&t.peers, &t.cap_peers, t.n_peers + 1):
        return False
    t.peers[t.n_peers] = c
    t.n_peers += 1
    c.n_filters += 1
    return True


cdef void relay_forget(RelayState* r, RelayPeer* c) noexcept nogil:
    """Remove all subscriptions of a connection."""
    cdef uint32_t h, i, kept
    cdef RelayTopic* t
    for h in range(<uint32_t>RELAY_CHAINS):
        t = r.chains[h]
        while t != NULL:
            kept = 0
            for i in range(t.n_peers):
                if t.peers[i] != c:
                    t.peers[kept] = t.peers[i]
                    kept += 1
            t.n_peers = kept
            t = t.next


# ---------------------------------------------------------------- output

cdef void relay_drop(RelayState* r, RelayPeer* c) noexcept nogil:
    cdef uint32_t i
    if c.n_filters:
        relay_forget(r, c)
    for i in range(r.n_dirty if c.listed else 0):
        if r.dirty[i] == c:
            r.dirty[i] = NULL
    r.by_fd[c.fd] = NULL
    c_close(c.fd)
    free(c.held)
    free(c.out)
    free(c)


cdef bint relay_put(RelayState* r, RelayPeer* c, const uint8_t* p, size_t n) noexcept nogil:
    """Append to the output of a connection. False: no memory."""
    if c.out_at and c.out_n + n > c.out_cap:
        memmove(c.out, c.out + c.out_at, c.out_n - c.out_at)
        c.out_n -= c.out_at
        c.out_at = 0
    if not relay_room(<void**>&c.out, &c.out_cap, c.out_n + n):
        return False
    memcpy(c.out + c.out_n, p, n)
    c.out_n += n
    if not c.listed:
        if not relay_list(&r.dirty, &r.dirty_cap, r.n_dirty + 1):
            return False
        c.listed = 1
        r.dirty[r.n_dirty] = c
        r.n_dirty += 1
    return True


cdef void relay_watch(RelayState* r, RelayPeer* c, bint blocked) noexcept nogil:
    cdef epoll_event e
    if c.blocked != blocked:
        c.blocked = blocked
        e.events = EPOLLIN | EPOLLOUT if blocked else EPOLLIN
        e.data.u32 = <uint32_t>c.fd
        epoll_ctl(r.ep, EPOLL_CTL_MOD, c.fd, &e)


cdef void relay_send(RelayState* r, RelayPeer* c) noexcept nogil:
    """Send the output of a connection. If the connection is broken, its next read ends it."""
    cdef ssize_t sent = send(c.fd, c.out + c.out_at, c.out_n - c.out_at, MSG_NOSIGNAL)
    if sent > 0:
        c.out_at += <size_t>sent
    if c.out_at == c.out_n:
        c.out_at = c.out_n = 0
    relay_watch(r, c, c.out_n != 0)


# ---------------------------------------------------------------- packets

cdef bint relay_connect(RelayState* r, RelayPeer* c, const Frame* f) noexcept nogil:
    cdef Connect m
    cdef Connack a
    cdef uint8_t[64] answer
    if decode_connect(f, &m) != 0:
        return False
    c.version = m.version
    memset(&a, 0, sizeof(a))
    a.version = m.version
    return connack_size(&a) <= sizeof(answer) and relay_put(r, c, answer, <size_t>(encode_connack(answer, &a) - answer))


cdef bint relay_subscribe(RelayState* r, RelayPeer* c, const Frame* f) noexcept nogil:
    cdef Subscribe m
    cdef SubscribeItem item
    cdef uint8_t[SUBACK_CODES_MAX] codes
    cdef uint8_t[SUBACK_CODES_MAX + 16] answer
    cdef uint32_t n = 0
    if decode_subscribe(f, c.version, &m) != 0:
        return False
    while n < SUBACK_CODES_MAX and subscribe_next(&m, &item):
        codes[n] = item.options & 3 if relay_add(r, c, item.filter) else 0x80
        n += 1
    if suback_size(c.version, n) > sizeof(answer):
        return False
    return relay_put(r, c, answer, <size_t>(encode_suback(answer, T_SUBACK, c.version, m.pid, codes, n) - answer))


cdef bint relay_acknowledge(RelayState* r, RelayPeer* c, int packet_type, const uint8_t* pid) noexcept nogil:
    cdef uint8_t[ACK_SIZE_MAX] answer
    cdef uint8_t* end = encode_ack(answer, packet_type, c.version, <uint16_t>(pid[0] << 8 | pid[1]), 0)
    return relay_put(r, c, answer, <size_t>(end - answer))


cdef bint relay_copy(RelayState* r, const RelayTopic* t, const Frame* f) noexcept nogil:
    cdef uint32_t i
    if t != NULL:
        for i in range(t.n_peers):
            if not relay_put(r, t.peers[i], f.start, f.total_len):
                return False
    return True


cdef bint relay_publish(RelayState* r, RelayPeer* c, const Frame* f) noexcept nogil:
    cdef uint32_t i, n, prefix_n
    cdef int qos = f.first >> 1 & 3
    cdef const uint8_t* topic = f.body + 2
    if f.body_len < 2:
        return False
    n = <uint32_t>(f.body[0] << 8 | f.body[1])
    if f.body_len < 2 + n + (2 if qos else 0):
        return False
    if r.n_exact and not relay_copy(r, relay_place(r, topic, n, False)[0], f):
        return False
    for i in range(r.n_prefixes):
        prefix_n = r.prefix_n[i]
        if prefix_n == n or (prefix_n < n and topic[prefix_n] == 47):       # "/"
            if not relay_copy(r, relay_place(r, topic, prefix_n, True)[0], f):
                return False
    return qos == 0 or relay_acknowledge(r, c, T_PUBACK if qos == 1 else T_PUBREC, topic + n)


cdef bint relay_packet(RelayState* r, RelayPeer* c, const Frame* f) noexcept nogil:
    """Handle one packet. False: the connection must end."""
    cdef int t = f.first >> 4
    cdef uint8_t[PINGRESP_SIZE] answer
    if t == T_CONNECT:
        return relay_connect(r, c, f)
    if c.version == 0:
        return False
    if t == T_PUBLISH:
        return relay_publish(r, c, f)
    if t == T_PUBACK or t == T_PUBCOMP:
        return True
    if t == T_PUBREC or t == T_PUBREL:
        return f.body_len >= 2 and relay_acknowledge(r, c, T_PUBREL if t == T_PUBREC else T_PUBCOMP, f.body)
    if t == T_SUBSCRIBE:
        return relay_subscribe(r, c, f)
    if t == T_PINGREQ:
        encode_pingresp(answer)
        return relay_put(r, c, answer, PINGRESP_SIZE)
    return False                # DISCONNECT, and packets that the relay does not know


# ---------------------------------------------------------------- input

cdef bint relay_packets(RelayState* r, RelayPeer* c, const uint8_t* p, const uint8_t* end) noexcept nogil:
    """Handle the packets of a read, and hold the incomplete one at its end. False: the connection must end."""
    cdef Frame f
    cdef int found
    cdef size_t left
    while p < end:
        found = frame_next(p, <size_t>(end - p), 0, &f)
        if found > 1:
            return False
        if found == 0:
            break
        if not relay_packet(r, c, &f):
            return False
        p += f.total_len
    left = <size_t>(end - p)
    if left and p != c.held:
        if not relay_room(<void**>&c.held, &c.held_cap, left):
            return False
        memmove(c.held, p, left)
    c.held_n = left
    return True


cdef void relay_read(RelayState* r, RelayPeer* c) noexcept nogil:
    cdef ssize_t got
    cdef uint8_t* p = r.buffer
    if c.held_n:                # continue behind the incomplete frame
        if not relay_room(<void**>&c.held, &c.held_cap, c.held_n + 65536):
            relay_drop(r, c)
            return
        p = c.held
        got = recv(c.fd, p + c.held_n, c.held_cap - c.held_n, 0)
    else:
        got = recv(c.fd, p, RELAY_READ_BYTES, 0)
    if got <= 0:
        if got == 0 or (errno != EAGAIN and errno != EINTR):
            relay_drop(r, c)
        return
    if not relay_packets(r, c, p, p + c.held_n + got):
        relay_drop(r, c)


# ---------------------------------------------------------------- turns

cdef void relay_accept(RelayState* r) noexcept nogil:
    cdef int _, fd, one = 1
    cdef epoll_event e
    cdef RelayPeer* c
    for _ in range(RELAY_ACCEPTS):
        fd = accept4(r.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)
        if fd < 0:
            return
        c = <RelayPeer*>calloc(1, sizeof(RelayPeer))
        if c == NULL or not relay_list(&r.by_fd, &r.by_fd_cap, <uint32_t>fd + 1):
            free(c)
            c_close(fd)
            return
        c.fd = fd
        r.by_fd[fd] = c
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one))
        e.events = EPOLLIN
        e.data.u32 = <uint32_t>fd
        epoll_ctl(r.ep, EPOLL_CTL_ADD, fd, &e)


cdef void relay_event(RelayState* r, uint32_t fd, uint32_t events) noexcept nogil:
    cdef RelayPeer* c = r.by_fd[fd] if fd < r.by_fd_cap else NULL
    if <int>fd == r.listener:
        relay_accept(r)
    elif c != NULL:
        if events & EPOLLOUT:
            relay_send(r, c)
        if events & (EPOLLIN | EPOLLERR | EPOLLHUP):
            relay_read(r, c)


cdef bint relay_turn(RelayState* r, int timeout_ms) noexcept nogil:
    cdef epoll_event[RELAY_EVENTS] events
    cdef int i, n = epoll_wait(r.ep, events, RELAY_EVENTS, timeout_ms)
    for i in range(n):
        relay_event(r, events[i].data.u32, events[i].events)
    for i in range(<int>r.n_dirty):
        if r.dirty[i] != NULL:
            r.dirty[i].listed = 0
            if not r.dirty[i].blocked:
                relay_send(r, r.dirty[i])
    r.n_dirty = 0
    return n > 0


cdef class Relay:
    """A relay on a listening socket, which must not block. One thread owns it."""
    cdef RelayState r

    def __cinit__(self, int listener):
        cdef epoll_event e
        cdef RelayState* r = &self.r
        memset(r, 0, sizeof(RelayState))
        r.listener = listener
        r.chains = <RelayTopic**>calloc(RELAY_CHAINS, sizeof(RelayTopic*))
        r.buffer = <uint8_t*>malloc(RELAY_READ_BYTES)
        r.ep = epoll_create1(EPOLL_CLOEXEC)
        if r.chains == NULL or r.buffer == NULL:
            raise MemoryError
        e.events = EPOLLIN
        e.data.u32 = <uint32_t>listener
        if r.ep < 0 or epoll_ctl(r.ep, EPOLL_CTL_ADD, listener, &e) != 0:
            raise OSError("no epoll descriptor")

    def __dealloc__(self):
        cdef uint32_t i
        cdef RelayState* r = &self.r
        cdef RelayTopic* t
        for i in range(r.by_fd_cap):
            if r.by_fd[i] != NULL:
                relay_drop(r, r.by_fd[i])
        for i in range(<uint32_t>RELAY_CHAINS if r.chains != NULL else 0):
            while r.chains[i] != NULL:
                t = r.chains[i]
                r.chains[i] = t.next
                free(t.peers)
                free(t)
        if r.ep > 0:
            c_close(r.ep)
        free(r.by_fd)
        free(r.dirty)
        free(r.chains)
        free(r.buffer)

    def run(self, int timeout_ms):
        """Run until no event occurs for so long, or a signal arrives."""
        with nogil:
            while relay_turn(&self.r, timeout_ms):
                pass
