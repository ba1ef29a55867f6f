# Take a store into use while the broker runs. See attach.pyx.
from cext.broker.core.broker cimport Broker
from cext.broker.core.durable cimport Durable

# t: an empty store, opened and recovered. Return 0, or errno: then the broker has no store, and the caller closes it and frees t.
cdef int durable_attach(Broker* b, Durable* t) noexcept nogil
