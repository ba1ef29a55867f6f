"""Make a broker one of several workers: from the descriptors of the parent to the struct. This module knows their number and order. It does not know
how a connection is passed on."""

import os

from libc.errno cimport errno
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc
from libc.string cimport memcpy, memset

from cext.base.hash cimport HashKey, hash_bytes
from cext.base.pybytes cimport view_of
from cext.broker.admin.whole cimport figure_counts
from cext.broker.loop.links_life cimport links_new
from cext.broker.core.broker cimport Broker
from cext.broker.core.workers cimport FIGURES_N, Figures, WORKERS_MAX, WORKER_LISTENERS_MAX, WireEnds, WorkerCounts, Workers
from cext.broker.lifecycle.passing cimport workers_free
from cext.topic.name cimport filter_matches

cdef extern from "<sys/mman.h>":
    void* mmap(void* p, size_t n, int protection, int flags, int fd, long offset)
    int munmap(void* p, size_t n)
    int PROT_READ, PROT_WRITE, MAP_SHARED
    void* MAP_FAILED

cdef extern from *:
    """
    #include <stdint.h>
    static inline void mosq_bank_put(uint64_t* p, uint64_t n) { __atomic_store_n(p, n, __ATOMIC_RELEASE); }
    static inline uint64_t mosq_wanted_take(uint64_t* p) { return __atomic_exchange_n(p, 0, __ATOMIC_ACQUIRE); }
    static inline uint64_t mosq_reload_counted(uint64_t* p) { return __atomic_add_fetch(p, 1, __ATOMIC_SEQ_CST); }
    """
    void mosq_bank_put(uint64_t* p, uint64_t n)
    uint64_t mosq_wanted_take(uint64_t* p)
    uint64_t mosq_reload_counted(uint64_t* p)

cdef extern from *:
    """
    #include <errno.h>
    #include <pthread.h>
    #include <signal.h>
    #include <string.h>
    #include <time.h>
    #include <unistd.h>

    typedef struct {
        const uint64_t* until_ns;   /* of CLOCK_BOOTTIME, in memory that another process writes */
        uint32_t period_ms;
        timer_t timer;
    } MosqLease;

    static int mosq_lease_move(MosqLease* l) {
        uint64_t at = __atomic_load_n(l->until_ns, __ATOMIC_ACQUIRE) | 1;   /* 0 would stop the timer */
        struct itimerspec spec = {{0, 0}, {(time_t)(at / 1000000000u), (long)(at % 1000000000u)}};
        return timer_settime(l->timer, TIMER_ABSTIME, &spec, NULL);
    }

    static void* mosq_lease_run(void* ctx) {
        MosqLease* l = ctx;
        struct timespec pause = {l->period_ms / 1000, l->period_ms % 1000 * 1000000L};
        for (;;) {
            nanosleep(&pause, NULL);
            if (mosq_lease_move(l) != 0) kill(getpid(), SIGKILL);
        }
        return NULL;
    }

    /* Returns 0 or an errno. The timer and the thread last until the process ends. */
    static int mosq_lease_obey(MosqLease* l) {
        struct sigevent event;
        sigset_t all, before;
        pthread_t thread;
        int got;
        memset(&event, 0, sizeof(event));
        event.sigev_notify = SIGEV_SIGNAL;
        event.sigev_signo = SIGKILL;
        if (timer_create(CLOCK_BOOTTIME, &event, &l->timer) != 0 || mosq_lease_move(l) != 0) return errno;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        got = pthread_create(&thread, NULL, mosq_lease_run, l);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (got == 0) pthread_detach(thread);
        return got;
    }
    """
    ctypedef struct MosqLease:
        const uint64_t* until_ns
        uint32_t period_ms
    int mosq_lease_obey(MosqLease* l) nogil

cdef extern from "<signal.h>":
    ctypedef struct sigset_t:
        pass
    int sigemptyset(sigset_t* signals)
    int sigaddset(sigset_t* signals, int number)
    int SIGCONT

cdef extern from "<sys/prctl.h>":
    int prctl(int option, unsigned long value)
    int PR_SET_PDEATHSIG

cdef extern from "<sys/signalfd.h>":
    int signalfd(int fd, const sigset_t* signals, int flags)
    int SFD_CLOEXEC
    int SFD_NONBLOCK


def counts_bytes():
    """Return the bytes of the memory for counts."""
    return WORKERS_MAX * sizeof(WorkerCounts)


cdef WorkerCounts* counts_map(int counts_fd) except NULL:
    cdef void* p = mmap(NULL, WORKERS_MAX * sizeof(WorkerCounts), PROT_READ | PROT_WRITE, MAP_SHARED, counts_fd, 0)
    if p == MAP_FAILED:
        raise OSError(errno, os.strerror(errno))
    return <WorkerCounts*>p


def counts_ended(int counts_fd, int place):
    """The process of a worker has ended: its connections and gauges count no more, its counters stay. Raise OSError."""
    cdef WorkerCounts* all = counts_map(counts_fd)
    cdef WorkerCounts* c = &all[place]
    cdef Figures* ended = &c.banks[c.bank & 1]
    cdef Figures* next = &c.banks[(c.bank + 1) & 1]
    cdef int i
    for i in range(FIGURES_N):
        next.now[i] = 0
        next.before[i] = ended.before[i] + ended.now[i] if figure_counts(i) else 0
    mosq_bank_put(&c.bank, c.bank + 1)
    c.connections = c.sessions = c.told_ms = 0
    memset(c.of_listener, 0, sizeof(c.of_listener))
    munmap(all, WORKERS_MAX * sizeof(WorkerCounts))


def reload_counted(int counts_fd):
    """Let all workers hold CONNECT packets until a reload that covers this signal is over; return how many there were. Raise OSError."""
    cdef WorkerCounts* all = counts_map(counts_fd)
    cdef uint64_t n = mosq_reload_counted(&all.reloads)
    munmap(all, WORKERS_MAX * sizeof(WorkerCounts))
    return n


def continue_when_parent_ends():
    """Let the system continue this process when its parent ends, if it is stopped then: it cannot notice the end itself. A change of the user
    clears this."""
    prctl(PR_SET_PDEATHSIG, SIGCONT)


cdef MosqLease lease


def obey_lease(int fd, uint32_t period_ms):
    """Let the system kill this process at the time in the first 8 bytes of the shared memory `fd`: nanoseconds of CLOCK_BOOTTIME. A thread
    without the GIL reads it every `period_ms`, so another process can move it. The timer is the kernel's: it also ends a process that is stopped
    or busy. Raise OSError."""
    cdef void* p
    cdef int got
    if lease.until_ns != NULL:
        raise ValueError("this process has a lease")
    p = mmap(NULL, sizeof(uint64_t), PROT_READ, MAP_SHARED, fd, 0)
    if p == MAP_FAILED:
        raise OSError(errno, os.strerror(errno))
    lease.until_ns = <const uint64_t*>p
    lease.period_ms = period_ms
    got = mosq_lease_obey(&lease)
    if got != 0:
        raise OSError(got, os.strerror(got))


def watch_signal(int number):
    """Return a descriptor that is readable while a blocked signal is pending; reading from it takes the signal. Raise OSError."""
    cdef sigset_t signals
    cdef int fd
    sigemptyset(&signals)
    sigaddset(&signals, number)
    fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK)
    if fd < 0:
        raise OSError(errno, os.strerror(errno))
    return fd


def passage_replace(size_t broker, int place, int fd):
    """See Engine.replace_passage. The descriptor stays, so the loop needs no request."""
    cdef Workers* w = <Workers*>(<Broker*>broker).workers
    if w == NULL or not 0 <= place < <int>w.n:
        raise ValueError(f"a passage to place {place}")
    os.dup2(fd, w.passages[place].fd, inheritable=False)


def wires_descriptor(size_t broker):
    """See Engine.wires_fd."""
    return (<Workers*>(<Broker*>broker).workers).wires_fd


def wires_wanted(size_t broker):
    """See Engine.links_wanted."""
    cdef Workers* w = <Workers*>(<Broker*>broker).workers
    cdef uint64_t links = mosq_wanted_take(&w.links_wanted)
    return [i for i in range(w.n) if links >> i & 1]


def logins_note(size_t broker, uint64_t failed, uint64_t refused):
    """See Engine.note_logins."""
    cdef Workers* w = <Workers*>(<Broker*>broker).workers
    mosq_bank_put(&w.logins[0], failed)
    mosq_bank_put(&w.logins[1], refused)


def worker_place(bytes key, bytes name, uint32_t n):
    """Return the place, from 0, of the worker of `n` that a client id or a topic belongs to: worker_of_id, and the owner of a retained
    message."""
    cdef HashKey k
    if len(key) != sizeof(HashKey) or n == 0:
        raise ValueError(f"a key of {len(key)} bytes, and {n} workers")
    memcpy(&k, <const char*>key, sizeof(HashKey))
    return hash_bytes(&k, <const uint8_t*><const char*>name, len(name)) % n


def filter_fits(bytes filter, bytes topic):
    """Return whether a filter, without `$share/GROUP/`, matches a topic."""
    return bool(filter_matches(view_of(filter), view_of(topic)))


def workers_new(size_t broker, int place, bytes key, list passages, list news, int counts_fd, int parent_status,     # parameters: of Engine.join
                uint64_t reloads):
    """See Engine.join. Raise ValueError and OSError."""
    cdef Broker* b = <Broker*>broker
    cdef Workers* w
    cdef int i
    if not 0 <= place < len(passages) <= WORKERS_MAX or len(news) != len(passages) or len(key) != sizeof(HashKey) or b.workers != NULL:
        raise ValueError(f"not a worker: place {place} of {len(passages)}")
    if b.n_listeners > WORKER_LISTENERS_MAX:
        raise ValueError(f"workers can have {WORKER_LISTENERS_MAX} listeners, these are {b.n_listeners}")
    w = <Workers*>calloc(1, sizeof(Workers))
    if w == NULL:
        raise MemoryError
    b.workers = w
    w.place = place
    w.n = <uint32_t>len(passages)
    memcpy(&w.key, <const char*>key, sizeof(HashKey))
    for i in range(WORKERS_MAX):
        w.passages[i].fd = w.news[i] = -1
    w.wires_fd = w.strangers_fd = w.calls.fd = -1
    w.parent_status = parent_status
    w.reloads_begun = w.reloads_over = reloads
    try:
        w.counts = counts_map(counts_fd)
        for i, fd in enumerate(passages):
            if fd < 0:
                w.remote |= <uint64_t>1 << i
            else:
                w.passages[i].fd = os.dup(fd)
        for i, fd in enumerate(news):
            w.news[i] = os.dup(fd) if fd >= 0 else -1
        if w.remote:
            w.wires = <WireEnds*>calloc(w.n, sizeof(WireEnds))
            if w.wires == NULL:
                raise MemoryError
            w.wires_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        if links_new(b, w.place, w.n, &w.key) != 0:
            raise MemoryError
    except BaseException:
        workers_free(b)
        raise
