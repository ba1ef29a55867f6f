# What the broker room calls of this one.
from cext.broker.core.bridge_state cimport Bridge, Bridges

cdef void bridge_free(Bridge* l) noexcept nogil                  # and its specs
cdef void bridges_free(Bridges* bridges) noexcept nogil            # when nothing runs any more
cdef void bridges_prepare(Bridges* bridges) noexcept nogil         # its ops; its room is the caller's to make
