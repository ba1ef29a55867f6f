# Paged messages that the storage thread has read. See page_in.pyx.
from cext.broker.core.broker cimport Broker
from cext.broker.core.durable cimport Durable

# Put the messages that were read into their deliveries, and pump their sessions. Called on STORE_READ.
cdef void pages_receive(Broker* b, Durable* t) noexcept nogil
