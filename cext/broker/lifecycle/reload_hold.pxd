# Hold CONNECT packets from SIGHUP until its reload is over. See reload_hold.pyx.
from libc.stdint cimport uint64_t
from cext.broker.core.broker cimport Broker

# Return whether a CONNECT must wait for a reload. Its client is paused then, and reload_hold_over resumes it. Cost: one system call per
# CONNECT, and with workers about 5 us in the kernel.
cdef bint connect_held(Broker* b) noexcept nogil
# Begin or end the hold. Any thread may call this.
cdef void reload_hold_put(Broker* b, bint held) noexcept nogil
# With workers: the reload that this worker begins is the answer to so many signals of the parent. Any thread may call this.
cdef void reload_covers(Broker* b, uint64_t reloads) noexcept nogil
# Resume the clients that wait: the reload was applied or refused, or it took too long.
cdef void reload_hold_over(Broker* b) noexcept nogil
