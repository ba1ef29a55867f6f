# Connections to workers on other machines: one for a link in each direction, one for each relayed client. See wires.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.workers cimport Workers
from cext.net.conn_state cimport Conn

cdef enum:
    WIRE_OUT = 1                # a new link to the worker, in place of the one before
    WIRE_IN = 2                 # a link that the worker has opened
    WIRE_READY = 3              # a connection that waits for a client to relay
    WIRE_RELAY = 4              # the same, opened by the other worker
    WIRE_CLOSE = 5              # the process has ended, or is silent: close its links and connections, and end its relays

# Take a descriptor of the control plane, whose handshake is over. It belongs to this room from now on.
cdef void wire_serve(Broker* b, uint32_t place, int what, int fd) noexcept nogil
# Return a connection that waits for a client to this worker, which the caller owns; -1: none, and the control plane is asked for some.
cdef int wire_take(Workers* w, uint32_t place) noexcept nogil
# Send the other worker a description of the client, and its input, through a half of a relay. Return 0 or errno.
cdef int wire_head(Broker* b, Client* c, Conn* half, uint64_t left_ms) noexcept nogil
# Ask the control plane for a link to a worker.
cdef void wire_wanted(Workers* w, uint32_t place) noexcept nogil
cdef void wires_wake(Workers* w) noexcept nogil
# Give a client the names that came with it. Returns -1 if there is no memory.
cdef int names_fill(Client* c, View proxied, View path) noexcept nogil
# Note the worker at the other end of a relay: of the half here, or of the client that is served here.
cdef void wire_mark(Broker* b, Client* c, uint32_t place) noexcept nogil
# End some relays of processes that have ended or are silent; call it when Workers.relays_walk is 1. Return 1 if more are left.
cdef bint relays_slice(Broker* b) noexcept nogil
# Input, and the end, of a connection that another worker has opened for a client.
cdef size_t wire_input(Broker* b, Conn* conn, const uint8_t* p, size_t n) noexcept nogil
cdef void wire_lost(Broker* b, Conn* conn) noexcept nogil
cdef void wires_close(Broker* b) noexcept nogil             # the loop ends
