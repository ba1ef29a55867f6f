"""Simulate workers with the real links, a model of a broker around each, clients, and faults: one seed is one schedule."""
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset
from cext.link.links cimport link_down, link_turn
from cext.testing.link_broker cimport broker_ops, deliver_long, deliver_next, worker_commit, worker_kill, worker_seal, worker_start, worker_wills
from cext.testing.link_check cimport check_bounds, check_end
from cext.testing.link_clients cimport client_act, client_lost, client_settle
from cext.testing.link_net cimport net_connect, net_cut, net_flush, net_read
from cext.testing.link_world cimport (
    CLIENTS, CONNECTIONS, Connection, FILTERS, NONE, Worker, World, chance, fail, note,
)

cdef enum:
    ROUNDS_MAX = 400            # rounds until everything must be quiet
    TRACE_BYTES = 1 << 20


cdef void kill(World* g, uint32_t w) noexcept nogil:
    cdef uint32_t i
    if not g.worker[w].alive:
        return
    if not g.worker[w].stored:
        g.store_lost[w] = 1
    for i in range(g.clients):
        if g.client[i].home == w:
            client_lost(g, i)
    for i in range(g.workers):
        if i != w:
            g.worker[i].notice[w] = 1
            g.worker[i].notice_run[w] = g.worker[w].links.run
    worker_kill(g, w)
    g.faults += 1


cdef void notices(World* g, uint32_t w) noexcept nogil:
    # The parent reports which workers have ended.
    cdef uint32_t i
    if not g.worker[w].alive or g.worker[w].frozen:
        return
    for i in range(g.workers):
        if g.worker[w].notice[i] and (g.quiet or chance(g, 2)):
            g.worker[w].notice[i] = 0
            note(g, b"worker %lld learns that %lld has ended", w, i, 0)
            link_down(&g.worker[w].links, i, g.worker[w].notice_run[i])
            g.moved += 1


cdef void restart(World* g, uint32_t w) noexcept nogil:
    if not g.worker[w].alive:
        memset(g.worker[w].notice, 0, sizeof(g.worker[w].notice))
        worker_start(g, w)
        g.moved += 1


cdef void pump(World* g, Connection* k) noexcept nogil:
    cdef uint32_t back
    if k.slow and not g.quiet and chance(g, 12):
        return
    for back in range(2):
        if k.used:
            net_flush(g, k, back)
        if k.used:
            net_read(g, k, back)


cdef void turn(World* g, uint32_t w) noexcept nogil:
    cdef uint32_t i
    if not g.worker[w].alive or g.worker[w].frozen:
        return
    for i in range(g.workers):
        net_connect(g, w, i)
    link_turn(&g.worker[w].links)
    worker_wills(&g.worker[w])
    if g.quiet or chance(g, 2):
        deliver_long(&g.worker[w])


cdef void store(World* g, uint32_t w) noexcept nogil:
    cdef Worker* k = &g.worker[w]
    if not k.alive or k.frozen:
        return
    if not g.quiet and ((g.slow[w] and chance(g, 10)) or (g.stall[w] and g.step > g.stall[w])):
        return
    if k.sealing:
        worker_commit(k)
    else:
        worker_seal(k)


cdef void fault(World* g) noexcept nogil:
    cdef uint32_t w = chance(g, g.workers)
    cdef uint32_t what = chance(g, g.rate[1] + g.rate[2] + g.rate[13] + g.rate[3] + 1)
    cdef uint32_t i, from_
    if what < g.rate[1]:
        kill(g, w)
    elif what < <uint32_t>g.rate[1] + g.rate[2]:
        if g.worker[w].alive and not g.worker[w].frozen:
            g.worker[w].frozen = 1
            note(g, b"worker %lld is frozen", w, 0, 0)
    elif what < <uint32_t>g.rate[1] + g.rate[2] + g.rate[13]:
        if g.worker[w].alive:
            g.worker[w].starved = 1
            note(g, b"worker %lld has no memory", w, 0, 0)
    else:
        from_ = chance(g, CONNECTIONS)
        for i in range(CONNECTIONS):
            if g.connection[(from_ + i) % CONNECTIONS].used:
                net_cut(g, &g.connection[(from_ + i) % CONNECTIONS])
                break


cdef void heal(World* g) noexcept nogil:
    cdef uint32_t w = chance(g, g.workers)
    if not g.worker[w].alive:
        restart(g, w)
    elif g.worker[w].frozen:
        note(g, b"worker %lld goes on", w, 0, 0)
        g.worker[w].frozen = 0
    elif g.worker[w].starved:
        note(g, b"worker %lld has memory again", w, 0, 0)
        g.worker[w].starved = 0


cdef void step(World* g) noexcept nogil:
    cdef uint32_t what = chance(g, 1000)
    cdef uint32_t w = chance(g, g.workers)
    cdef uint32_t c = chance(g, g.clients)
    cdef uint32_t i
    g.step += 1
    if what < 300:                          # some connections of one worker
        for i in range(CONNECTIONS):
            if g.connection[i].used and (g.connection[i].a == w or g.connection[i].b == w) and chance(g, 4):
                pump(g, &g.connection[i])
    elif what < 400:
        i = chance(g, CONNECTIONS)
        if g.connection[i].used:
            pump(g, &g.connection[i])
    elif what < 520:
        turn(g, w)
    elif what < 620:
        store(g, w)
    elif what < 840:
        client_act(g, c)
    elif what < 870:
        notices(g, w)
    elif what < 870 + <uint32_t>g.rate[8]:
        heal(g)
    elif what < 870 + <uint32_t>g.rate[8] + g.rate[0]:
        fault(g)
    elif g.worker[g.client[c].home].alive and not g.worker[g.client[c].home].frozen:
        while deliver_next(&g.worker[g.client[c].home], c):
            pass


cdef void bustle(World* g) noexcept nogil:
    # Each worker has a turn, and most connections move.
    cdef uint32_t i
    for i in range(g.workers):
        turn(g, i)
        store(g, i)
    for i in range(CONNECTIONS):
        if g.connection[i].used and chance(g, 5):
            pump(g, &g.connection[i])


cdef void settle(World* g) noexcept nogil:
    # No faults any more: go on until nothing happens.
    cdef uint32_t i, round, before
    cdef uint32_t active = 0
    for round in range(ROUNDS_MAX):
        before = g.moved
        g.step += 1
        for i in range(g.workers):
            restart(g, i)
            g.worker[i].frozen = g.worker[i].starved = 0
            notices(g, i)
            turn(g, i)
        for i in range(CONNECTIONS):
            if g.connection[i].used:
                pump(g, &g.connection[i])
        for i in range(g.workers):
            store(g, i)
        for i in range(g.clients):
            client_settle(g, i)
        if g.failure != NULL:
            return
        if g.moved != before:
            active = round
        elif round > active + 4:            # two batches may be sealed and committed before something happens
            return
    fail(g, b"it does not become quiet", 0, 0, 0)


cdef void world_begin(World* g, uint64_t seed, uint64_t off) noexcept nogil:
    cdef uint32_t i, f, _i
    cdef char* trace = g.trace
    memset(g, 0, sizeof(World))
    g.trace, g.trace_cap = trace, TRACE_BYTES
    g.random = seed * 0x9E3779B97F4A7C15u + 0x1234567u
    g.off = off
    for _i in range(8):
        chance(g, 2)
    g.key.k0, g.key.k1 = g.random, 7
    broker_ops(g)
    g.workers = 2 + chance(g, 4) % 4
    if g.workers > 3 and chance(g, 2):
        g.workers = 2
    g.clients = 3 + chance(g, CLIENTS - 2)
    g.limits.frame_max = 4000
    g.limits.messages_max = 3 + chance(g, 30)
    g.limits.bytes_max = 400 + chance(g, 4000)
    g.limits.output_max = 100 + chance(g, 900)
    g.limits.reserve = 300 + chance(g, 1500)
    g.limits.slice = 1 + chance(g, 200) if chance(g, 2) else 1
    g.rate[0] = <uint8_t>chance(g, 45)      # faults
    g.rate[1] = <uint8_t>chance(g, 10)      # kills
    g.rate[2] = <uint8_t>chance(g, 4)       # freezes
    g.rate[3] = <uint8_t>chance(g, 10)      # cuts
    g.rate[4] = <uint8_t>chance(g, 8)       # clients that leave
    g.rate[5] = <uint8_t>chance(g, 8)       # lost replies
    g.rate[6] = <uint8_t>chance(g, 60)      # retained messages
    g.rate[7] = <uint8_t>chance(g, 40)      # wills
    g.rate[8] = <uint8_t>(5 + chance(g, 60))        # restarts
    g.rate[9] = <uint8_t>(1 + chance(g, 12))        # unsubscriptions
    g.rate[10] = <uint8_t>chance(g, 40)             # connections that are seldom read
    g.rate[13] = <uint8_t>chance(g, 6) if chance(g, 2) else 0           # workers without memory
    g.rate[12] = <uint8_t>chance(g, 60) if chance(g, 2) else 0          # deliveries that take several turns
    g.rate[11] = <uint8_t>(20 + chance(g, 60)) if chance(g, 2) else 0     # steps in which everything moves
    for i in range(g.workers):
        g.slow[i] = chance(g, 4) == 0
        g.stall[i] = 50 + chance(g, 300) if chance(g, 6) == 0 else 0
        g.worker[i].world, g.worker[i].index = g, <uint8_t>i
        g.worker[i].stored = chance(g, 10) != 0
        g.worker[i].committed.log = 1000 + i
        for f in range(CLIENTS):
            memset(g.worker[i].committed.sessions[f].qos, NONE, FILTERS)
    for i in range(g.clients):
        g.client[i].home = <uint8_t>chance(g, g.workers)
        g.client[i].durable = g.worker[g.client[i].home].stored and chance(g, 4) != 0
        g.client[i].version = 3 if chance(g, 2) else 5


cdef void schedule(World* g, uint64_t seed, uint64_t off) noexcept nogil:
    cdef uint32_t i, _i, steps
    world_begin(g, seed, off)
    if chance(g, 10):
        for i in range(g.workers):
            worker_start(g, i)
    if chance(g, 5):                        # most schedules begin with a running broker
        g.quiet = 1
        settle(g)
        g.quiet = 0
    steps = 50 + chance(g, 250) if g.rate[11] else 100 + chance(g, 500)
    for _i in range(steps):
        step(g)
        if g.rate[11] and chance(g, 100) < g.rate[11]:
            bustle(g)
        check_bounds(g)
        if g.failure != NULL:
            break
    if chance(g, 2):                        # some workers end at once
        for i in range(g.workers):
            if chance(g, 3) == 0:
                kill(g, i)
    g.quiet = 1
    note(g, b"no faults any more", 0, 0, 0)
    if g.failure == NULL:
        settle(g)
    if g.failure == NULL:
        check_end(g)
    for i in range(g.workers):
        if g.worker[i].alive:
            worker_kill(g, i)
    note(g, b"%lld messages, %lld faults", g.messages, g.faults, 0)


cdef class Simulator:
    """The world of one schedule after the other."""
    cdef World* world

    def __cinit__(self):
        self.world = <World*>calloc(1, sizeof(World))
        if self.world == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.world)

    def run(self, uint64_t first, uint64_t n, uint64_t off=0):
        """Run the schedules first .. first + n - 1. Return (number that ran, seed and text of the first failure or None)."""
        cdef uint64_t i
        self.world.trace = NULL
        for i in range(n):
            with nogil:
                schedule(self.world, first + i, off)
            if self.world.failure != NULL:
                return i + 1, (first + i, self._failure())
        return n, None

    def _failure(self):
        cdef char text[300]
        cdef int64_t* d = self.world.detail
        snprintf(text, sizeof(text), self.world.failure, <long long>d[0], <long long>d[1], <long long>d[2])
        return (<bytes>text).decode()

    def trace(self, uint64_t seed, uint64_t off=0):
        """Run one schedule. Return its events, a line each."""
        self.world.trace = <char*>malloc(TRACE_BYTES)
        if self.world.trace == NULL:
            raise MemoryError
        schedule(self.world, seed, off)
        text = self.world.trace[:self.world.trace_n].decode()
        free(self.world.trace)
        self.world.trace = NULL
        return text
