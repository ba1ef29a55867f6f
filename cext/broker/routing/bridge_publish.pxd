# A PUBLISH to a bridge: renamed, and with the property of the bridge loop guard. See bridge_publish.pyx.
from libc.stdint cimport uint32_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.publication_state cimport Publication
from cext.codec.encode cimport PublishHead

# Write the shape of p to a bridge, renamed. Returns a result such as WROTE.
cdef int write_renamed(Broker* b, Client* c, Publication* p, uint32_t flags) noexcept nogil
# Rename the topic of a head, set its retain flag, and append the property of the loop guard. Returns WROTE, NO_NAME or NO_ROOM.
cdef int head_rename(Broker* b, Client* c, PublishHead* h) noexcept nogil
