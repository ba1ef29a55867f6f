# A client's packet that waits for the control plane. See pending_packet.pyx.
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client, Names, Owned, PendingPacket

cdef enum:
    PACKET_PENDING = 1                  # result of a handler: the packet must be handled again. Below every reason code

cdef PendingPacket* pending_packet_new(Broker* b, Client* c, int kind) noexcept nogil     # NULL: no memory. The client is no longer read from
cdef void pending_packet_free(Broker* b, Client* c) noexcept nogil                # frees it; no-op without one
cdef void pending_packet_wait(Broker* b, Client* c) noexcept nogil            # one more answer is needed
cdef void pending_packet_resume(Broker* b, Client* c) noexcept nogil          # the client is read from again
cdef int owned_set(Owned* o, View v) noexcept nogil                  # a copy; v.p NULL: nothing. -1: no memory
cdef void owned_free(Owned* o) noexcept nogil

cdef Names* names_take(Client* c) noexcept nogil                    # c.names, created if necessary; NULL: no memory
cdef void names_free(Client* c) noexcept nogil

cdef inline View owned_view(const Owned* o) noexcept nogil:
    cdef View v
    v.p = o.p
    v.n = o.n
    return v


cdef inline View method_of(const Client* c) noexcept nogil:         # p NULL: none
    cdef View none
    none.p = NULL
    none.n = 0
    return owned_view(&c.names.method) if c.names != NULL else none


cdef inline View proxied_of(const Client* c) noexcept nogil:        # p NULL: none
    cdef View none
    none.p = NULL
    none.n = 0
    return owned_view(&c.names.proxied) if c.names != NULL else none


cdef inline View path_of(const Client* c) noexcept nogil:           # p NULL: none
    cdef View none
    none.p = NULL
    none.n = 0
    return owned_view(&c.names.path) if c.names != NULL else none
