"""Run the steps of handshakes in threads, so that no private-key operation holds the loop. This module knows lists, threads and
the order of work. It does not know OpenSSL (`step`) or sockets.

    loop:    bytes -> pool_put -> (nothing) -> event_fd readable -> pool_take -> the output is sent
    thread:  the next handshake -> step -> done

Ownership: a handshake belongs to the loop, or to the pool from pool_put until pool_take or pool_cancel returns it. One lock guards
all lists and `place`; no step runs under it. A connection that closes sets `conn` to NULL, and the loop frees the rest when the handshake comes
back.

Order: a handshake that has had its first step goes first, because its private-key operation is done, and a peer waits for little. The others
wait in lanes by address, and the threads serve the lanes in turn, so a flood from one address delays another by one handshake.
In a long lane the newest goes first: its peer still waits, while the oldest has often given up.

Invariants: a connection has at most one handshake in the pool, so the lists are as short as the number of connections. Cost: a
lock and a wake-up for each step; O(1).
"""

from libc.errno cimport errno
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memset

from cext.base.hash cimport hash_bytes, hash_key_init
from cext.net.conn_state cimport Conn
from cext.net.system cimport AF_INET6, EFD_CLOEXEC, EFD_NONBLOCK, c_close, c_read, c_write, eventfd

cdef extern from * nogil:
    """
    #include <pthread.h>
    #include <signal.h>
    #include <sys/resource.h>
    #include <unistd.h>
    /* In Linux, 0 is the calling thread, not the process. */
    extern int pthread_setname_np(pthread_t, const char *);
    static inline void mosq_thread_yields(int nice)
    {
        pthread_setname_np(pthread_self(), "mosq-tls");
        setpriority(PRIO_PROCESS, 0, nice);
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


cdef void ring_append(Pool* p, uint8_t at) noexcept nogil:
    p.lanes[at].listed = 1
    if p.ring_n:
        p.lanes[p.ring_last].next = at
    else:
        p.ring_first = at
    p.ring_last = at
    p.ring_n += 1


cdef Handshake* next_work(Pool* p) noexcept nogil:
    """Return the handshake whose turn it is, removed from its list; NULL = none. A lane that is empty by now leaves the ring."""
    cdef Handshake* h = p.later.first
    cdef Lane* lane
    cdef uint8_t at
    if h != NULL:
        list_remove(&p.later, h)
        return h
    while p.ring_n:
        at = p.ring_first
        lane = &p.lanes[at]
        p.ring_first = lane.next
        p.ring_n -= 1
        lane.listed = 0
        h = lane.waiting.last if lane.waiting.n > LANE_ORDERED_MAX else lane.waiting.first
        if h == NULL:
            continue
        list_remove(&lane.waiting, h)
        if lane.waiting.first != NULL:
            ring_append(p, at)
        return h
    return NULL


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
    cdef Lane* lane = &p.lanes[h.lane]
    pthread_mutex_lock(&p.lock)
    if h.n_steps:
        h.place = PLACE_LATER
        list_append(&p.later, h)
    else:
        h.place = PLACE_LANE
        list_append(&lane.waiting, h)
        if not lane.listed:
            ring_append(p, h.lane)
    pthread_cond_signal(&p.work)
    pthread_mutex_unlock(&p.lock)


cdef bint pool_cancel(Pool* p, Handshake* h) noexcept nogil:
    cdef bint ours = 1
    pthread_mutex_lock(&p.lock)
    if h.place == PLACE_LANE:
        list_remove(&p.lanes[h.lane].waiting, h)         # an empty lane stays in the ring until its turn
    elif h.place == PLACE_LATER:
        list_remove(&p.later, h)
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


cdef uint8_t pool_lane(const Pool* p, const Conn* c) noexcept nogil:
    """Return the lane of an address; of IPv6 only the network counts, because a host may have all addresses in it. Listeners for both
    families get IPv4 addresses as ::ffff:a.b.c.d."""
    cdef bint network = c.address.family == AF_INET6 and memcmp(c.address.ip, b"\0\0\0\0\0\0\0\0\0\0\xff\xff", 12) != 0
    return <uint8_t>hash_bytes(&p.key, c.address.ip, 8 if network else 16)


cdef void lane_enter(Pool* p, Handshake* h) noexcept nogil:
    cdef Lane* lane = &p.lanes[h.lane]
    h.older = lane.newest
    h.newer = NULL
    if lane.newest != NULL:
        lane.newest.newer = h
    else:
        lane.oldest = h
    lane.newest = h
    lane.n_begun += 1
    h.begun = 1


cdef void lane_leave(Pool* p, Handshake* h) noexcept nogil:
    cdef Lane* lane = &p.lanes[h.lane]
    if not h.begun:
        return
    h.begun = 0
    if h.older != NULL:
        h.older.newer = h.newer
    else:
        lane.oldest = h.newer
    if h.newer != NULL:
        h.newer.older = h.older
    else:
        lane.newest = h.older
    lane.n_begun -= 1
