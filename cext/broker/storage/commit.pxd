# From what was recorded to what may be said. See commit.pyx.
from libc.stdint cimport uint32_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.durable cimport StoreGauges

cdef int durable_init(Broker* b, int level, uint32_t interval_ms) noexcept nogil     # 0 or ENOMEM; the store is the caller's to open
cdef void durable_fini(Broker* b) noexcept nogil
# When the loop begins: 0 or errno, and why is logged.
cdef int durable_start(Broker* b) noexcept nogil
# After the loop: all that was recorded is written, and the thread ends.
cdef void durable_close(Broker* b) noexcept nogil
# After what a turn has done: seals what is due, lets go what is committed. 1: call again at once.
cdef bint durable_turn(Broker* b) noexcept nogil
cdef int durable_timeout_ms(Broker* b, int timeout_ms) noexcept nogil
# For $SYS and stats; all 0 without a store.
cdef void durable_gauges(Broker* b, StoreGauges* out) noexcept nogil
cdef void durable_seal(Broker* b) noexcept nogil
