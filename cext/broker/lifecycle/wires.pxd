# Connections to workers on other machines: one for a link in each direction, one for each relayed client. See wires.pyx.
from libc.stdint cimport uint32_t
from cext.base.hash cimport HashKey
from cext.base.view cimport View
from cext.base.wheel cimport Timer
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.workers cimport Workers
from cext.net.conn_state cimport Address

cdef enum:
    WIRE_OUT = 1                # a new link to the worker, in place of the one before
    WIRE_IN = 2                 # a link that the worker has opened
    WIRE_CLOSE = 3              # the process has ended, or is silent: close its links, forget its keys, and end its relays
    WIRE_LISTEN = 4             # accept connections of other workers on `fd`; `strangers_fd` gets those that begin without a ticket
    WIRE_TAKE = 5               # take tickets of the worker with this key
    WIRE_GIVE = 6               # connect to the worker at `remote` for clients, with tickets of this key; without a key, clients wait

ctypedef struct WireOrder:      # of the control plane. Descriptors belong to this room from now on; -1: none
    int what                    # WIRE_...
    int fd
    int strangers_fd
    bint known                  # 0: there is no key
    HashKey key
    Address remote
    uint32_t scope              # interface of a link-local IPv6 address

cdef void wire_serve(Broker* b, uint32_t place, const WireOrder* o) noexcept nogil
# Begin to connect to the worker of a client in state C_MOVING, which waits. Return 0 or errno; EAGAIN: not now.
cdef int wire_dial(Broker* b, Client* c, uint32_t place) noexcept nogil
# The end of that: of the half of a relay that is not connected yet. err: 0 or errno.
cdef void wire_opened(Broker* b, Client* half, int err) noexcept nogil
cdef void wire_late(Broker* b, Timer* t) noexcept nogil            # TIMER_DIAL
# Ask the control plane for a link to a worker.
cdef void wire_wanted(Workers* w, uint32_t place) noexcept nogil
# Give a client the names that came with it. Returns -1 if there is no memory.
cdef int names_fill(Client* c, View proxied, View path) noexcept nogil
# Note the worker at the other end of a relay: of the half here, or of the client that is served here.
cdef void wire_mark(Broker* b, Client* c, uint32_t place) noexcept nogil
# End some relays of processes that have ended or are silent; call it when Workers.relays_walk is 1. Return 1 if more are left.
cdef bint relays_slice(Broker* b) noexcept nogil
cdef void wires_close(Broker* b) noexcept nogil             # the loop ends
