# A new configuration takes the place of the old one between two turns.
from libc.stdint cimport uint32_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.listener cimport Listener, Security
from cext.broker.core.settings cimport Settings
from cext.net.reactor cimport ListenSocket

ctypedef struct Reload:
    # Made by the asking thread. Afterwards it holds what that thread is to free: everything in it, as it stands then.
    Settings settings
    uint32_t log_mask
    bint log_json
    Security** securities       # new; where securities_into[i] is p + 1, what is in it changes places with what is in the p-th there is
    uint32_t* securities_into
    Security** securities_list  # room for n_securities: becomes the broker's list, and holds its old one afterwards
    uint32_t n_securities
    Listener** listeners                # likewise
    uint32_t* doors_into
    uint32_t* listener_security    # place of its security
    Listener** listeners_list
    uint32_t n_listeners
    ListenSocket** listen_sockets        # of new doors: listeners[i].owner is one of `doors`
    uint32_t n_listen_sockets
    ListenSocket** ended            # not watched any more; their sockets are closed by the asking thread
    uint32_t n_ended
    int error                   # errno of a socket that could not be watched: then nothing has changed
    bint sockets_only           # `listeners` and `ended` alone

cdef void reload_apply(Broker* b, Reload* r) noexcept nogil
