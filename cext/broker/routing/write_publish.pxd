# Write a PUBLISH to a connected client's output. See write_publish.pyx.
from libc.stdint cimport uint32_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.publication_state cimport Publication

# Write p to the client. `flags`: see publish_flags. sub_ids may be NULL if n_sub_ids is 0. Returns a result such as WROTE.
cdef int write_publish(Broker* b, Client* c, Publication* p, uint32_t flags, const uint32_t* sub_ids,
                       uint32_t n_sub_ids) noexcept nogil
# Return the reason (DROP_...) that stands for a result other than WROTE.
cdef int write_fail_reason(int wrote) noexcept nogil
