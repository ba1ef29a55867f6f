"""Hold CONNECT packets from SIGHUP until its reload is over: a client that connects after the signal must meet the new rules, as with
Mosquitto, which reloads between two turns of its loop. This module knows the signal and a flag. It does not know what a reload does.

The control plane reloads in another thread. Between the signal and the moment at which that thread notices it, the kernel knows that the
signal is pending, because all threads block it. The control plane sets `reload_held` before it takes the signal from the kernel. So the
loop looks at the kernel first and at the flag second, and there is no moment at which it sees neither.

With workers the signal is pending in the parent, and the kernel shows it in /proc/PID/status. The parent sets a flag in the memory of all workers before
it takes the signal, and clears it when each worker that serves clients holds them by `reload_held`.

Invariant: no CONNECT waits longer than RELOAD_HOLD_MS, whatever the control plane does; after that the old rules apply. Connected clients
notice nothing.
"""

from libc.stdint cimport uint8_t
from libc.stdlib cimport strtoull
from libc.string cimport strlen, strstr

from cext.base.wheel cimport wheel_add, wheel_remove
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport TIMER_RELOAD_HOLD
from cext.broker.core.link_state cimport links_of
from cext.broker.core.workers cimport Workers, workers_of
from cext.broker.core.newcomers cimport newcomers_resume

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    int sigpending(sigset_t* signals)
    int sigismember(const sigset_t* signals, int number)

cdef extern from *:
    """
    static inline void mosq_flag_put(unsigned char* flag, int value) { __atomic_store_n(flag, (unsigned char)value, __ATOMIC_SEQ_CST); }
    static inline int mosq_flag_get(const unsigned char* flag) { return __atomic_load_n(flag, __ATOMIC_SEQ_CST); }
    """
    void mosq_flag_put(uint8_t* flag, bint value) nogil
    bint mosq_flag_get(const uint8_t* flag) nogil

cdef extern from "<unistd.h>" nogil:
    ssize_t pread(int fd, void* p, size_t n, long offset)

cdef enum:
    STATUS_BYTES = 4096         # more than a /proc/PID/status
    RELOAD_HOLD_MS = 3000       # less than the time that clients wait for CONNACK


cdef const char* SIGNALS_LINE = "\nShdPnd:"        # pending for the whole process, as a hexadecimal set


cdef bint parent_reloads(const Workers* w, int number) noexcept nogil:
    """Return whether the signal is pending in the parent, or was taken for a reload that this worker does not hold clients for yet."""
    cdef char status[STATUS_BYTES]
    cdef ssize_t n = pread(w.parent_fd, status, STATUS_BYTES - 1, 0) if w.parent_fd >= 0 else 0
    cdef const char* found
    status[n if n > 0 else 0] = 0
    found = strstr(status, SIGNALS_LINE)
    if found != NULL and strtoull(found + strlen(SIGNALS_LINE), NULL, 16) >> (number - 1) & 1:
        return 1
    return mosq_flag_get(&w.counts[0].reloading)


cdef inline bint reload_expected(Broker* b) noexcept nogil:
    cdef sigset_t pending
    if b.workers != NULL and parent_reloads(workers_of(b), b.reload_signal):
        return 1
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
    mosq_flag_put(&b.reload_held, held)


cdef void reload_hold_over(Broker* b) noexcept nogil:
    wheel_remove(&b.wheel, &b.reload_hold_timer)
    if not reload_expected(b):
        b.reload_hold_ms = 0    # otherwise reloads one after the other could hold a client for longer
    newcomers_resume(b)
