"""Hold CONNECT packets from SIGHUP until its reload is over: a client that connects after the signal must meet the new rules, as with
Mosquitto, which reloads between two turns of its loop. This module knows the signal and a flag. It does not know what a reload does.

The control plane reloads in another thread. Between the signal and the moment at which that thread notices it, the kernel knows that the
signal is pending, because all threads block it. The control plane sets `reload_held` before it takes the signal from the kernel. So the
loop looks at the kernel first and at the flag second, and there is no moment at which it sees neither.

With several workers the signal waits for their parent. It blocks the signal too, and counts it in the memory that all workers map before it takes
it from the kernel. So a worker looks for the signal in /proc/PARENT/status first, and compares the count with that of its last reload second.

Invariant: no CONNECT waits longer than RELOAD_HOLD_MS, whatever the control plane does; after that the old rules apply. Connected clients
notice nothing.
"""

from libc.stdint cimport uint8_t, uint64_t

from cext.base.wheel cimport wheel_add, wheel_remove
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport TIMER_RELOAD_HOLD
from cext.broker.core.link_state cimport links_of
from cext.broker.core.newcomers cimport newcomers_resume
from cext.broker.core.workers cimport Workers, workers_of

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    int sigpending(sigset_t* signals)
    int sigismember(const sigset_t* signals, int number)

cdef extern from *:
    """
    static inline void mosq_flag_put(unsigned char* flag, int value) { __atomic_store_n(flag, (unsigned char)value, __ATOMIC_SEQ_CST); }
    static inline int mosq_flag_get(const unsigned char* flag) { return __atomic_load_n(flag, __ATOMIC_SEQ_CST); }
    static inline void mosq_reloads_put(uint64_t* p, uint64_t n) { __atomic_store_n(p, n, __ATOMIC_SEQ_CST); }
    static inline uint64_t mosq_reloads_get(const uint64_t* p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }

    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    /* Return whether a signal waits for the whole process whose status file this is. */
    static int mosq_status_pending(int status, int number) {
        char text[4096];
        const char* mask;
        ssize_t n = status < 0 ? 0 : pread(status, text, sizeof(text) - 1, 0);
        if (n <= 0)
            return 0;
        text[n] = 0;
        mask = strstr(text, "\\nShdPnd:");
        return mask != NULL && strtoull(mask + 8, NULL, 16) >> (number - 1) & 1;
    }
    """
    void mosq_flag_put(uint8_t* flag, bint value) nogil
    bint mosq_flag_get(const uint8_t* flag) nogil
    void mosq_reloads_put(uint64_t* p, uint64_t n) nogil
    uint64_t mosq_reloads_get(const uint64_t* p) nogil
    bint mosq_status_pending(int status, int number) nogil

cdef enum:
    RELOAD_HOLD_MS = 3000       # less than the time that clients wait for CONNACK


cdef inline bint reload_expected(Broker* b) noexcept nogil:
    cdef sigset_t pending
    cdef const Workers* w = workers_of(b)
    if w != NULL:
        return (mosq_status_pending(w.parent_status, b.reload_signal) or mosq_reloads_get(&w.counts.reloads) != mosq_reloads_get(&w.reloads_over)
                or mosq_flag_get(&b.reload_held))
    if sigpending(&pending) == 0 and sigismember(&pending, b.reload_signal) == 1:
        return 1
    return mosq_flag_get(&b.reload_held)


cdef bint connect_held(Broker* b) noexcept nogil:
    if b.wills_restored:
        return 1                 # no client may return and cancel a will that was due before the start
    if b.links != NULL and not links_of(b).ready:
        return 1                 # this worker does not know yet what the others subscribe to
    if b.reload_signal == 0:
        return 0
    if not reload_expected(b):
        b.reload_hold_ms = 0
        return 0
    if b.reload_hold_ms == 0:
        b.reload_hold_ms = b.reactor.now_ms
        b.reload_hold_timer.kind = TIMER_RELOAD_HOLD
        wheel_add(&b.wheel, &b.reload_hold_timer, b.reactor.now_ms + RELOAD_HOLD_MS)
    return b.reactor.now_ms < b.reload_hold_ms + RELOAD_HOLD_MS


cdef void reload_hold_put(Broker* b, bint held) noexcept nogil:
    cdef Workers* w = workers_of(b)
    mosq_flag_put(&b.reload_held, held)
    if w != NULL and not held:
        mosq_reloads_put(&w.reloads_over, mosq_reloads_get(&w.reloads_begun))


cdef void reload_covers(Broker* b, uint64_t reloads) noexcept nogil:
    mosq_reloads_put(&workers_of(b).reloads_begun, reloads)


cdef void reload_hold_over(Broker* b) noexcept nogil:
    if not reload_expected(b):
        wheel_remove(&b.wheel, &b.reload_hold_timer)
        b.reload_hold_ms = 0    # otherwise reloads one after the other could hold a client for longer
    newcomers_resume(b)
