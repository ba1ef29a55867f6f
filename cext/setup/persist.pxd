# Open and read the store by the settings. See persist.pyx.
from cext.broker.core.broker cimport Broker
from cext.broker.core.durable cimport Durable

cdef object persist(Broker* b, str directory, str durability, int interval_ms, object segment_bytes, list streams, object files)
cdef Durable* attachable(str directory, str durability, int interval_ms) except NULL
cdef void attachable_free(Durable* t) noexcept
