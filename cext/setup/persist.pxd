# Open and read the store by the settings. See persist.pyx.
from cext.broker.core.broker cimport Broker

cdef object persist(Broker* b, str directory, str durability, int interval_ms, object segment_bytes, list streams)
