# Connections between workers. A direction has bytes that the writer holds, bytes on the wire, and bytes that the reader has: a kill of
# the writer loses the first, a cut loses the second. Both sides notice the end of a connection at different times.
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memmove, memset
from cext.base.view cimport View
from cext.link.frame cimport link_error_text
from cext.link.links cimport link_accept, link_broken, link_connected, link_drained, link_read
from cext.link.state cimport LINK_IN, LINK_OUT
from cext.testing.link_world cimport BYTES, CONNECTIONS, Connection, Direction, WIRE, Worker, World, chance, fail, note


cdef int64_t net_send(void* owner, uint32_t slot, int way, const uint8_t* head, uint32_t n, void* message, View payload) noexcept nogil:
    cdef Worker* w = <Worker*>owner
    cdef uint8_t place = w.out[slot] if way == LINK_OUT else w.inward[slot]
    cdef Direction* d
    if place == 0:
        fail(w.world, b"worker %lld sends to %lld without a connection", w.index, slot, way)
        return -1
    d = &w.world.connection[place - 1].forth if way == LINK_OUT else &w.world.connection[place - 1].back
    w.world.moved += 1
    if d.taken > BYTES // 2:
        memmove(d.data, d.data + d.taken, d.n - d.taken)
        d.n -= d.taken
        d.sent -= d.taken
        d.seen -= d.taken
        d.taken = 0
    if d.n + n + payload.n > BYTES:
        fail(w.world, b"the output of worker %lld to %lld has no bound", w.index, slot, way)
        return -1
    memcpy(d.data + d.n, head, n)
    if payload.n:
        memcpy(d.data + d.n + n, payload.p, payload.n)
    d.n += n + payload.n
    note(w.world, b"        worker %lld sends to %lld: frame %lld", w.index, slot, head[4])
    return d.n - d.sent


cdef void side_close(World* g, Connection* k, bint a) noexcept nogil:
    if a:
        k.a_open = 0
        k.forth.n = k.forth.sent
    else:
        k.b_open = 0
        k.back.n = k.back.sent
    if not k.a_open and not k.b_open:
        k.used = 0
    g.moved += 1


cdef void net_close(void* owner, uint32_t slot, int way) noexcept nogil:
    cdef Worker* w = <Worker*>owner
    cdef uint8_t place = w.out[slot] if way == LINK_OUT else w.inward[slot]
    if place == 0:
        return
    note(w.world, b"        worker %lld closes its connection %lld with %lld", w.index, way, slot)
    if way == LINK_OUT:
        w.out[slot] = 0
    else:
        w.inward[slot] = 0
    side_close(w.world, &w.world.connection[place - 1], way == LINK_OUT)


cdef void net_bind(void* owner, uint32_t slot, void* connection) noexcept nogil:
    cdef Worker* w = <Worker*>owner
    cdef Connection* k = <Connection*>connection
    if w.inward[slot]:
        net_close(owner, slot, LINK_IN)
    w.inward[slot] = <uint8_t>(k - w.world.connection + 1)
    k.bound = 1


cdef void net_connect(World* g, uint32_t a, uint32_t b) noexcept nogil:
    cdef uint32_t i
    cdef Connection* k
    if a == b or not g.worker[a].alive or not g.worker[b].alive or g.worker[a].out[b]:
        return
    for i in range(CONNECTIONS):
        k = &g.connection[i]
        if not k.used:
            memset(k, 0, sizeof(Connection) - 2 * sizeof(Direction))
            k.forth.n = k.forth.sent = k.forth.seen = k.forth.taken = 0
            k.back.n = k.back.sent = k.back.seen = k.back.taken = 0
            k.used, k.a, k.b, k.a_open, k.b_open = 1, <uint8_t>a, <uint8_t>b, 1, 1
            k.slow = chance(g, 100) < g.rate[10]
            g.worker[a].out[b] = <uint8_t>(i + 1)
            g.moved += 1
            note(g, b"worker %lld connects to %lld", a, b, 0)
            link_connected(&g.worker[a].links, b)
            return


cdef void net_flush(World* g, Connection* k, bint back) noexcept nogil:
    cdef Direction* d = &k.back if back else &k.forth
    cdef Worker* w = &g.worker[k.b if back else k.a]
    cdef uint32_t n = d.n - d.sent
    if n == 0 or w.frozen or not (k.b_open if back else k.a_open):
        return
    if n > WIRE - (d.sent - d.seen):
        n = WIRE - (d.sent - d.seen)
    if n and not g.quiet:
        n = 1 + chance(g, n)
    if n == 0:
        return
    d.sent += n
    g.moved += 1
    link_drained(&w.links, k.a if back else k.b, LINK_IN if back else LINK_OUT, d.n - d.sent)


cdef void ended(World* g, Connection* k, bint back) noexcept nogil:
    # The reader of this direction notices the end of the connection.
    cdef Worker* w = &g.worker[k.a if back else k.b]
    cdef uint32_t slot = k.b if back else k.a
    if back or k.bound:
        if (w.out[slot] if back else w.inward[slot]) == k - g.connection + 1:
            note(g, b"worker %lld notices the end of its connection %lld with %lld", w.index, not back, slot)
            link_broken(&w.links, slot, LINK_OUT if back else LINK_IN)
            if back:
                w.out[slot] = 0
            else:
                w.inward[slot] = 0
    side_close(g, k, back)


cdef void net_read(World* g, Connection* k, bint back) noexcept nogil:
    cdef Direction* d = &k.back if back else &k.forth
    cdef Worker* w = &g.worker[k.a if back else k.b]
    cdef uint32_t slot = k.b if back else k.a
    cdef uint32_t n = d.sent - d.seen
    cdef int64_t taken
    if not k.used or w.frozen or not (k.a_open if back else k.b_open):
        return
    if k.cut or (n == 0 and not (k.b_open if back else k.a_open)):
        ended(g, k, back)
        return
    if n == 0 and d.taken == d.seen:        # otherwise a frame may wait for memory
        return
    if n:
        d.seen += n if g.quiet else 1 + chance(g, n)
        g.moved += 1
    if not back and not k.bound:
        taken = link_accept(&w.links, d.data + d.taken, d.seen - d.taken, k, w.links.n, &slot)
        if taken < 0:
            note(g, b"worker %lld refuses a connection of %lld", w.index, k.a, 0)
            side_close(g, k, 0)
        if taken <= 0:
            return
        d.taken += <uint32_t>taken
    taken = link_read(&w.links, slot, LINK_OUT if back else LINK_IN, d.data + d.taken, d.seen - d.taken)
    if taken >= 0:
        d.taken += <uint32_t>taken
        g.moved += taken != 0
    else:
        note(g, link_error_text(w.links.error), 0, 0, 0)
        fail(g, b"worker %lld refuses a frame of %lld: wrong field %lld", w.index, slot, -taken)


cdef void net_cut(World* g, Connection* k) noexcept nogil:
    note(g, b"the connection from %lld to %lld is cut", k.a, k.b, 0)
    k.cut = 1


cdef void net_kill(World* g, uint32_t w) noexcept nogil:
    cdef uint32_t i
    cdef Connection* k
    for i in range(CONNECTIONS):
        k = &g.connection[i]
        if k.used and k.a == w and k.a_open:
            side_close(g, k, 1)
        if k.used and k.b == w and k.b_open:
            side_close(g, k, 0)
    memset(g.worker[w].out, 0, sizeof(g.worker[w].out))
    memset(g.worker[w].inward, 0, sizeof(g.worker[w].inward))
