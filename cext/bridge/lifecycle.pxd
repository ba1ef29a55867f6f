# The functions of this room that the broker's rooms call.
from cext.broker.core.bridge_state cimport Bridge, Bridges

cdef void bridge_free(Bridge* l) noexcept nogil                  # and its configurations
cdef void bridges_free(Bridges* bridges) noexcept nogil            # after the loop has ended
cdef void bridges_prepare(Bridges* bridges) noexcept nogil         # sets the ops; the caller allocates the room
