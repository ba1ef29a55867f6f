# The workers of a machine: a connection goes to the worker to which its client id belongs. See passing.pyx.
from libc.stdint cimport uint8_t, uint32_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.listener cimport Listener
from cext.net.conn_state cimport Address

# Return PACKET_PENDING if the client id belongs to another worker: the connection goes there after the events of this turn, with all bytes that were
# read, of which none may be used up. 0: it belongs here, or the broker is alone. END_REFUSED: it cannot go there.
cdef int client_moves(Broker* b, Client* c, View client_id) noexcept nogil
# Return whether this worker may assign the client id to a client.
cdef bint id_is_own(Broker* b, View client_id) noexcept nogil
# Return 1 if a new TLS connection was dealt out to another worker, which owns fd then.
cdef bint connection_deal(Broker* b, Listener* listener, int fd, const Address* a) noexcept nogil
# Let a client wait until its connection can go to another worker. Return -1 if there is no memory.
cdef int move_waits(Broker* b, const Client* c, uint32_t place) noexcept nogil
# Connect a client and the other half of its relay, whose socket is open; then let its bytes flow.
cdef void relay_join(Broker* b, Client* c, Client* half) noexcept nogil
cdef void relay_flow(Broker* b, Client* c) noexcept nogil
# All output of one half of a relay is sent.
cdef void relay_drained(Broker* b, Client* c) noexcept nogil
# Parts of a turn. Return 1 if connections still wait to be passed on.
cdef bint workers_pass(Broker* b) noexcept nogil
cdef int link_pass(Broker* b, uint32_t to, int fd) noexcept nogil         # one end of a new link; 0 or errno
# Send bytes and a copy of a descriptor through a SOCK_SEQPACKET socket. Return 0 or errno.
cdef int descriptor_pass(int passage, const uint8_t* p, size_t n, int fd) noexcept nogil
cdef int workers_receive(Broker* b) noexcept nogil        # 0 or errno
cdef void workers_passage_due(void* broker) noexcept nogil     # callback of the reactor
cdef int workers_start(Broker* b) noexcept nogil            # the loop starts; 0 or errno
cdef void workers_free(Broker* b) noexcept nogil
