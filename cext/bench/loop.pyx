# One thread, one epoll: connect and subscribe as the goal requires, publish what is due, read the input. This module knows goals
# and time. It does not know scenarios (mosq/tools/bench/scenarios.py), which are sequences of goals.
# Invariant: the loop sleeps whenever there is nothing to send, so that its busy share is meaningful; at a fixed rate it sleeps to
# the nanosecond.
# Cost of a turn: one reading of the clock, one epoll_wait, and the work.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from cext.base.clock cimport clock_monotonic_ns
from cext.base.view cimport View
from cext.bench.arrivals cimport client_read
from cext.bench.client cimport client_flush, client_open, client_opened, client_write, slot_take
from cext.bench.flow cimport flow_all_sent, flow_can, flow_due_ns, flow_outstanding, flow_pump, flow_ready
from cext.bench.load cimport CLIENT_OPENING, CLIENT_UP, Client, FAIL_NONE, LOAD_EVENTS_MAX, Load, SLOT_SUBACK
from cext.codec.as_client cimport encode_subscribe

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        void* ptr
        uint32_t u32
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    uint32_t EPOLLIN, EPOLLOUT, EPOLLERR, EPOLLHUP

cdef extern from * nogil:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <errno.h>
    #include <poll.h>
    #include <signal.h>
    #include <sys/epoll.h>
    #include <sys/prctl.h>
    #include <sys/syscall.h>
    #include <time.h>
    #include <unistd.h>
    #ifndef SYS_epoll_pwait2
    #define SYS_epoll_pwait2 441
    #endif
    extern int ppoll(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *);
    extern long syscall(long, ...);
    /* Call epoll_wait with a timeout in nanoseconds; Linux before 5.11 needs two calls for it */
    static int mosq_bench_wait(int ep, struct epoll_event *events, int n, unsigned long long ns) {
        struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
        if (ns) {
            int got = (int)syscall(SYS_epoll_pwait2, ep, events, n, &t, NULL, (size_t)0);
            if (got >= 0 || errno != ENOSYS)
                return got;
            struct pollfd p = {ep, POLLIN, 0};
            ppoll(&p, 1, &t, NULL);
        }
        return epoll_wait(ep, events, n, 0);
    }
    /* Set the timer slack of this thread in nanoseconds; 0 restores the default of the system, which is 50 us. */
    static void mosq_bench_slack(unsigned long ns) { prctl(PR_SET_TIMERSLACK, ns, 0, 0, 0); }
    """
    int mosq_bench_wait(int ep, epoll_event* events, int n, unsigned long long ns)
    void mosq_bench_slack(unsigned long ns)

cdef enum:
    OPENS_MAX = 256             # connections begun in one turn
    # without input for so long (or half of stall_ns), deliveries on their way count as lost, and the window continues without
    # them
    WRITE_OFF_NS = 500000000
    SLEEP_MAX_NS = 20000000


# ---------------------------------------------------------------- the goal

cdef void connect_more(Load* g) noexcept nogil:
    cdef uint32_t begun = 0
    cdef uint64_t ended = g.counts.up + g.counts.closed - g.goal.base
    while (g.goal.next < g.goal.first + g.goal.n and begun < OPENS_MAX
           and g.goal.next - g.goal.first < ended + g.goal.pending_max):
        client_open(g, g.clients + g.goal.next)
        g.goal.next += 1
        begun += 1
        ended = g.counts.up + g.counts.closed - g.goal.base


cdef void subscribe_more(Load* g, Client* c) noexcept nogil:
    """Send as many filters as the client's packet ids allow, in one write."""
    cdef uint64_t i
    cdef View filter
    cdef uint16_t pid
    cdef uint8_t* p = g.scratch
    if c.out_n:
        return
    while p + g.filter_max + 16 <= g.scratch + g.scratch_cap:
        i = <uint64_t>(c - g.clients - g.goal.first) + <uint64_t>c.sent * g.goal.n
        pid = slot_take(c, SLOT_SUBACK, g.now_ns) if i < g.n_filters else 0
        if pid == 0:
            break
        c.sent += 1
        filter.p = g.filters + g.filter_at[i]
        filter.n = g.filter_at[i + 1] - g.filter_at[i]
        p = encode_subscribe(p, g.version, pid, filter, g.qos)
    if p != g.scratch:
        client_write(g, c, g.scratch, <size_t>(p - g.scratch))


cdef void goal_step(Load* g, uint64_t now_ns) noexcept nogil:
    cdef uint32_t i
    if g.goal.kind == GOAL_UP:
        connect_more(g)
    elif g.goal.kind == GOAL_SUBSCRIBED and not g.goal.next:
        g.goal.next = 1
        g.now_ns = now_ns
        for i in range(g.goal.n):
            subscribe_more(g, g.clients + g.goal.first + i)
    elif g.goal.kind == GOAL_FLOW:
        flow_pump(g, now_ns)


cdef bint goal_reached(const Load* g, uint64_t now_ns) noexcept nogil:
    if g.goal.kind == GOAL_UP:
        return g.counts.up + g.counts.closed - g.goal.base >= g.goal.n
    if g.goal.kind == GOAL_SUBSCRIBED:
        return g.counts.subscribed >= g.goal.target
    if g.goal.kind == GOAL_RECEIVED:
        return g.counts.received - g.counts.twice >= g.goal.target
    if g.goal.kind == GOAL_LEFT:
        return g.counts.left + g.counts.closed - g.goal.base >= g.goal.target
    if g.goal.kind == GOAL_PONGS:
        return g.counts.pongs >= g.goal.target
    if g.goal.kind == GOAL_FLOW:
        return (flow_all_sent(g, now_ns) and g.counts.received - g.counts.twice >= g.counts.expected
                and (g.qos == 0 or g.counts.acknowledged - g.flow_acknowledged >= g.counts.published - g.flow_published))
    return False


# ---------------------------------------------------------------- time

cdef bint is_stalled(Load* g, uint64_t now_ns) noexcept nogil:
    cdef uint64_t progress = (g.counts.published + g.counts.received - g.counts.twice + g.counts.acknowledged + g.counts.large_bytes
                              + g.counts.up + g.counts.closed + g.counts.left + g.counts.subscribed + g.counts.pongs)
    if progress != g.progress or g.goal.kind == GOAL_TIME:
        g.progress = progress
        g.progress_ns = now_ns
        return False
    if g.goal.kind != GOAL_FLOW:
        return now_ns - g.progress_ns > g.stall_ns
    if flow_all_sent(g, now_ns) or (g.interval_ns and flow_due_ns(g) == 0):
        return now_ns - g.progress_ns > g.stall_ns
    if g.interval_ns:                   # slow rates have pauses
        return False
    if g.window and now_ns - g.progress_ns > min(<uint64_t>WRITE_OFF_NS, g.stall_ns // 2) and flow_outstanding(g) >= <int64_t>g.window:
        g.counts.written_off += <uint64_t>flow_outstanding(g)
        return False
    return g.end_ns == 0 and now_ns - g.progress_ns > g.stall_ns


cdef uint64_t sleep_ns(const Load* g, uint64_t now_ns, uint64_t until_ns) noexcept nogil:
    cdef uint64_t ns = until_ns - now_ns if until_ns > now_ns else 0
    cdef uint64_t due_ns
    if ns > SLEEP_MAX_NS:
        ns = SLEEP_MAX_NS
    if g.goal.kind == GOAL_FLOW:
        if flow_can(g) and not (g.interval_ns == 0 and g.end_ns and now_ns >= g.end_ns):
            return 0
        due_ns = flow_due_ns(g) if g.interval_ns else 0
        if due_ns and due_ns < now_ns + ns:
            ns = due_ns - now_ns if due_ns > now_ns else 0
    elif g.goal.kind == GOAL_UP and g.goal.next < g.goal.first + g.goal.n:
        if g.goal.next - g.goal.first < g.counts.up + g.counts.closed - g.goal.base + g.goal.pending_max:
            return 0
    return ns


# ---------------------------------------------------------------- turns

cdef void on_event(Load* g, Client* c, uint32_t events) noexcept nogil:
    if c.fd < 0:
        return
    if c.state == CLIENT_OPENING:
        if events & (EPOLLOUT | EPOLLERR | EPOLLHUP):
            client_opened(g, c)
        return
    if events & EPOLLOUT:
        client_flush(g, c)
    if c.fd >= 0 and events & (EPOLLIN | EPOLLERR | EPOLLHUP):
        client_read(g, c)
    if c.state != CLIENT_UP:
        return
    if g.goal.kind == GOAL_SUBSCRIBED and g.goal.first <= c - g.clients < <int64_t>g.goal.first + g.goal.n:
        subscribe_more(g, c)
    elif g.sending:
        flow_ready(g, c)


cdef int load_run(Load* g, uint64_t until_ns) noexcept nogil:
    cdef int status
    mosq_bench_slack(1)
    status = load_turns(g, until_ns)
    mosq_bench_slack(0)
    return status


cdef int load_turns(Load* g, uint64_t until_ns) noexcept nogil:
    cdef epoll_event[LOAD_EVENTS_MAX] events
    cdef uint64_t now_ns = clock_monotonic_ns()
    cdef int n, i
    while True:
        goal_step(g, now_ns)
        if goal_reached(g, now_ns):
            return RUN_DONE
        if g.failure.kind != FAIL_NONE and not g.tolerant:
            return RUN_FAILED
        if now_ns >= until_ns:
            return RUN_MORE
        if is_stalled(g, now_ns):
            return RUN_STALLED
        n = mosq_bench_wait(g.ep, events, LOAD_EVENTS_MAX, sleep_ns(g, now_ns, until_ns))
        for i in range(n):
            on_event(g, g.clients + events[i].data.u32, events[i].events)
        now_ns = clock_monotonic_ns()
