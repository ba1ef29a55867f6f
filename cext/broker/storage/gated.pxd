# Deliveries of plugin gates in the store. See gated.pyx.
from cext.broker.core.broker cimport Broker
from cext.broker.core.durable cimport Durable
from cext.store.state cimport StoreRecord

cdef int gated_record(Broker* b, Durable* t) noexcept nogil             # deliveries that wait when their batch is sealed. -1: no memory
cdef void gated_forget(Broker* b, Durable* t) noexcept nogil            # the open batch is sealed, or the store ends
cdef void gated_copy(Broker* b, Durable* t, const StoreRecord* old) noexcept nogil      # for clean.pyx
