# Open streams by the settings. See streams.pyx.
from cext.broker.core.broker cimport Broker

cdef list streams_open(Broker* b, list specs)
