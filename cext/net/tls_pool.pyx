"""Run the steps of handshakes in threads, so that no private-key operation holds the loop. This module knows lists, threads and
the order of work. It does not know OpenSSL (`step`) or sockets.

    loop:    bytes -> pool_put -> (nothing) -> event_fd readable -> pool_take -> the output is sent
    thread:  the next handshake -> step -> done

Ownership: a handshake belongs to the loop, or to the pool from pool_put until pool_take or pool_cancel returns it. One lock guards
all queues and `place`; no step runs under it. A connection that closes sets `conn` to NULL, and the loop frees the rest when the handshake comes
back.

Order: each network has a lane (an IPv4 address, or a /64 of IPv6), and the threads serve the lanes in turn, so a flood from one address
delays another by one step. In a lane the oldest goes first. A step is light if our signature is written: the peer waits for
little, and the handshake is nearly complete, so light steps go first. All others are heavy, also the second step after a HelloRetryRequest, and all
steps of key exchanges without a signature, where the peer's answer costs the private-key operation. A peer can cause many light steps
by small records. So after LIGHT_STEPS_IN_A_ROW of them a heavy one has its turn; a usual handshake has one of each.

Invariants: a connection has at most one handshake in the pool, so the queues are as short as the number of connections. A queue is in its ring
while a handshake waits in it. A lane exists while it has a handshake, so the threads see only lanes that exist. Cost: a lock and a
wake-up for each step; O(1).
"""

from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from cext.base.hash cimport hash_bytes, hash_key_init
from cext.net.address cimport address_ipv4
from cext.net.conn_state cimport Address, Conn
from cext.net.system cimport AF_INET6, EFD_CLOEXEC, EFD_NONBLOCK, c_close, c_read, c_write, eventfd

cdef extern from * nogil:
    """
    #include <pthread.h>
    #include <signal.h>
    #include <sys/resource.h>
    #include <unistd.h>
    #include <sched.h>
    /* In Linux, 0 is the calling thread, not the process. A thread with SCHED_BATCH does not push another one from a processor when it
       wakes up; without it, the loop waited for a processor three times as long (docs/adr/0014). A refusal changes nothing. */
    extern int pthread_setname_np(pthread_t, const char *);
    static inline void mosq_thread_yields(int nice)
    {
        pthread_setname_np(pthread_self(), "mosq-tls");
        struct sched_param none = {0};
        setpriority(PRIO_PROCESS, 0, nice);
        sched_setscheduler(0, SCHED_BATCH, &none);
    }
    static inline int mosq_thread_start(pthread_t *t, void *(*run)(void *), void *p)
    {
        sigset_t all, old;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        int err = pthread_create(t, NULL, run, p);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        return err;
    }
    """
    void thread_yields "mosq_thread_yields"(int nice)
    int thread_start "mosq_thread_start"(pthread_t* t, void* (*run)(void*) noexcept nogil, void* p)
    long sysconf(int name)
    int _SC_NPROCESSORS_ONLN
    int pthread_join(pthread_t t, void** result)
    int pthread_mutex_init(pthread_mutex_t* m, void* attributes)
    int pthread_mutex_lock(pthread_mutex_t* m)
    int pthread_mutex_unlock(pthread_mutex_t* m)
    int pthread_mutex_destroy(pthread_mutex_t* m)
    int pthread_cond_init(pthread_cond_t* c, void* attributes)
    int pthread_cond_wait(pthread_cond_t* c, pthread_mutex_t* m)
    int pthread_cond_signal(pthread_cond_t* c)
    int pthread_cond_broadcast(pthread_cond_t* c)
    int pthread_cond_destroy(pthread_cond_t* c)

cdef enum:
    AUTO_MAX = 4
    NICE = 5                    # where processors are short, the loop goes first


# ---------------------------------------------------------------- lists

cdef void list_append(List* s, Handshake* h) noexcept nogil:
    h.next = NULL
    h.before = s.last
    if s.last != NULL:
        s.last.next = h
    else:
        s.first = h
    s.last = h
    s.n += 1


cdef void list_remove(List* s, Handshake* h) noexcept nogil:
    if h.before != NULL:
        h.before.next = h.next
    else:
        s.first = h.next
    if h.next != NULL:
        h.next.before = h.before
    else:
        s.last = h.before
    h.before = h.next = NULL
    s.n -= 1


cdef void ring_append(Ring* ring, Queue* q) noexcept nogil:
    q.next = NULL
    q.before = ring.last
    if ring.last != NULL:
        ring.last.next = q
    else:
        ring.first = q
    ring.last = q


cdef void ring_remove(Ring* ring, Queue* q) noexcept nogil:
    if q.next != NULL:
        q.next.before = q.before
    else:
        ring.last = q.before
    if q.before != NULL:
        q.before.next = q.next
    else:
        ring.first = q.next
    q.before = q.next = NULL


cdef void queue_append(Pool* p, Handshake* h, uint8_t place) noexcept nogil:
    cdef Queue* q = &h.lane.queues[place]
    if q.waiting.first == NULL:
        ring_append(&p.rings[place], q)
    list_append(&q.waiting, h)
    h.place = place


cdef void queue_remove(Pool* p, Handshake* h) noexcept nogil:
    cdef Queue* q = &h.lane.queues[h.place]
    list_remove(&q.waiting, h)
    if q.waiting.first == NULL:
        ring_remove(&p.rings[h.place], q)


cdef Handshake* next_work(Pool* p) noexcept nogil:
    """Return the handshake whose turn it is, removed from its queue; NULL = none."""
    cdef bint light = p.rings[PLACE_LIGHT].first != NULL and (p.rings[PLACE_HEAVY].first == NULL or p.light_steps < LIGHT_STEPS_IN_A_ROW)
    cdef Ring* ring = &p.rings[PLACE_LIGHT if light else PLACE_HEAVY]
    cdef Queue* q = ring.first
    cdef Handshake* h
    if q == NULL:
        return NULL
    p.light_steps = p.light_steps + 1 if light else 0
    h = q.waiting.first
    queue_remove(p, h)
    if q.waiting.first != NULL and q.next != NULL:       # the lane's next turn comes after those of the others
        ring_remove(ring, q)
        ring_append(ring, q)
    return h


# ---------------------------------------------------------------- threads

cdef void* pool_run(void* pool) noexcept nogil:
    cdef Pool* p = <Pool*>pool
    cdef Handshake* h
    cdef uint64_t one = 1
    cdef bint first
    thread_yields(NICE)
    pthread_mutex_lock(&p.lock)
    while True:
        h = NULL
        while not p.stopping:
            h = next_work(p)
            if h != NULL:
                break
            pthread_cond_wait(&p.work, &p.lock)
        if h == NULL:
            break
        h.place = PLACE_THREAD
        pthread_mutex_unlock(&p.lock)
        p.step(h)
        pthread_mutex_lock(&p.lock)
        h.place = PLACE_DONE
        first = p.done.first == NULL
        list_append(&p.done, h)
        if first:
            c_write(p.event_fd, &one, 8)
    pthread_mutex_unlock(&p.lock)
    return NULL


cdef uint32_t pool_threads(int wanted) noexcept nogil:
    cdef long processors
    if wanted >= 0:
        return wanted if wanted < POOL_THREADS_MAX else POOL_THREADS_MAX
    processors = sysconf(_SC_NPROCESSORS_ONLN)
    return 1 if processors <= 2 else AUTO_MAX if processors > AUTO_MAX else <uint32_t>(processors - 1)


cdef int pool_init(Pool* p, uint32_t n_threads, step_fn step) noexcept nogil:
    cdef uint32_t i
    cdef int err
    memset(p, 0, sizeof(Pool))
    p.step = step
    p.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
    if p.event_fd < 0:
        return errno
    if hash_key_init(&p.key) != 0:
        c_close(p.event_fd)
        return 5                # EIO
    pthread_mutex_init(&p.lock, NULL)
    pthread_cond_init(&p.work, NULL)
    for i in range(n_threads):
        err = thread_start(&p.threads[i], pool_run, p)
        if err:
            break               # fewer threads, or the loop itself, do the work
        p.n_threads = i + 1
    return 0


cdef void pool_stop(Pool* p) noexcept nogil:
    cdef uint32_t i
    pthread_mutex_lock(&p.lock)
    p.stopping = 1
    pthread_cond_broadcast(&p.work)
    pthread_mutex_unlock(&p.lock)
    for i in range(p.n_threads):
        pthread_join(p.threads[i], NULL)
    p.n_threads = 0


cdef void pool_fini(Pool* p) noexcept nogil:
    pthread_mutex_destroy(&p.lock)
    pthread_cond_destroy(&p.work)
    c_close(p.event_fd)


# ---------------------------------------------------------------- the loop's side

cdef void pool_put(Pool* p, Handshake* h) noexcept nogil:
    pthread_mutex_lock(&p.lock)
    queue_append(p, h, PLACE_LIGHT if h.light else PLACE_HEAVY)
    pthread_cond_signal(&p.work)
    pthread_mutex_unlock(&p.lock)


cdef bint pool_cancel(Pool* p, Handshake* h) noexcept nogil:
    cdef bint ours = 1
    pthread_mutex_lock(&p.lock)
    if h.place == PLACE_HEAVY or h.place == PLACE_LIGHT:
        queue_remove(p, h)
    elif h.place == PLACE_DONE:
        list_remove(&p.done, h)
    else:
        ours = h.place == PLACE_LOOP
    if ours:
        h.place = PLACE_LOOP
    pthread_mutex_unlock(&p.lock)
    return ours


cdef Handshake* pool_take(Pool* p) noexcept nogil:
    """Empty the event before the look at the list: a step that ends between them writes it again only for an empty list."""
    cdef Handshake* h
    cdef uint64_t count
    pthread_mutex_lock(&p.lock)
    h = p.done.first
    if h != NULL:
        list_remove(&p.done, h)
        h.place = PLACE_LOOP
    if p.done.first == NULL:
        c_read(p.event_fd, &count, 8)
    pthread_mutex_unlock(&p.lock)
    return h


cdef Handshake* pool_rest(Pool* p) noexcept nogil:
    cdef Handshake* h = pool_take(p)
    if h == NULL:
        h = next_work(p)
    return h


# ---------------------------------------------------------------- lanes

cdef uint64_t network_of(const Pool* p, const Address* a) noexcept nogil:
    """Return a keyed hash. Of IPv6 only the network counts, because a host may have all addresses in it. All peers over unix sockets are one
    network."""
    cdef const uint8_t* v4 = address_ipv4(a)
    if v4 == NULL and a.family == AF_INET6:
        return hash_bytes(&p.key, a.ip, 8)
    return hash_bytes(&p.key, v4 if v4 != NULL else a.ip, 4)


cdef Lane* lane_of(Pool* p, const Conn* c) noexcept nogil:
    cdef uint64_t network = network_of(p, &c.address)
    cdef Lane** bucket = &p.lanes[network % LANE_BUCKETS]
    cdef Lane* lane = bucket[0]
    while lane != NULL and lane.network != network:
        lane = lane.next
    if lane == NULL:
        lane = <Lane*>calloc(1, sizeof(Lane))
        if lane != NULL:
            lane.network = network
            lane.next = bucket[0]
            bucket[0] = lane
    return lane


cdef void lane_enter(Lane* lane, Handshake* h) noexcept nogil:
    h.lane = lane
    lane.n_begun += 1


cdef void lane_leave(Pool* p, Handshake* h) noexcept nogil:
    cdef Lane* lane = h.lane
    cdef Lane** at
    if lane == NULL:
        return
    lane_busy(h)
    h.lane = NULL
    lane.n_begun -= 1
    if lane.n_begun:
        return
    at = &p.lanes[lane.network % LANE_BUCKETS]
    while at[0] != lane:
        at = &at[0].next
    at[0] = lane.next
    free(lane)


cdef void lane_idle(Handshake* h, int64_t now_s) noexcept nogil:
    cdef Lane* lane = h.lane
    if lane == NULL or h.idle:
        return
    h.idle = 1
    h.idle_s = now_s
    h.older = lane.newest
    h.newer = NULL
    if lane.newest != NULL:
        lane.newest.newer = h
    else:
        lane.oldest = h
    lane.newest = h


cdef void lane_busy(Handshake* h) noexcept nogil:
    cdef Lane* lane = h.lane
    if lane == NULL or not h.idle:
        return
    h.idle = 0
    if h.older != NULL:
        h.older.newer = h.newer
    else:
        lane.oldest = h.newer
    if h.newer != NULL:
        h.newer.older = h.older
    else:
        lane.newest = h.older
