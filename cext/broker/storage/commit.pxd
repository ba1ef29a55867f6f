# Seal batches, then release acknowledgements. See commit.pyx.
from libc.stdint cimport uint32_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.durable cimport Durable, StoreGauges

cdef int durable_init(Broker* b, int level, uint32_t interval_ms) noexcept nogil     # 0 or ENOMEM; the caller opens the store
cdef Durable* durable_new(int level, uint32_t interval_ms) noexcept nogil        # NULL = no memory; the caller opens the store
cdef void durable_fini(Broker* b) noexcept nogil
cdef void durable_forget(Broker* b) noexcept nogil      # take the store from the broker, and free all but the store and the struct itself
# Start the storage thread when the loop begins. Returns 0 or errno, and logs the reason.
cdef int durable_start(Broker* b) noexcept nogil
# Write all records after the loop has ended, and end the storage thread.
cdef void durable_close(Broker* b) noexcept nogil
cdef void durable_stop(Broker* b) noexcept nogil         # the same of an open store, without the end of the streams
# Seal what is due and release what is committed, at the end of a turn. Returns 1 if it must be called again at once.
cdef bint durable_turn(Broker* b) noexcept nogil
cdef int durable_timeout_ms(Broker* b, int timeout_ms) noexcept nogil
# Fill the gauges for $SYS and statistics; all 0 without a store.
cdef void durable_gauges(Broker* b, StoreGauges* out) noexcept nogil
cdef void durable_seal(Broker* b) noexcept nogil
# Seal the open batch, and wait until it is committed; at the start only. Return 0 if it is not committed in this time.
cdef bint durable_commit(Broker* b, uint32_t wait_ms) noexcept nogil
