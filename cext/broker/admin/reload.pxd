# Replace the configuration between two turns.
from libc.stdint cimport uint32_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.listener cimport Listener, Security
from cext.broker.core.settings cimport Settings
from cext.net.conn_state cimport ListenSocket

ctypedef struct Reload:
    # Made by the requesting thread. After the reload that thread frees everything that the struct then points to.
    Settings settings
    uint32_t log_mask
    bint log_json
    # new securities; where securities_into[i] is p + 1, the contents are exchanged with the current p-th security
    Security** securities
    uint32_t* securities_into
    Security** securities_list  # room for n_securities: becomes the broker's list, and holds the old one afterwards
    uint32_t n_securities
    Listener** listeners                # new listeners, in the same way
    uint32_t* listeners_into
    uint32_t* listener_security    # place of the listener's security
    Listener** listeners_list
    uint32_t n_listeners
    ListenSocket** listen_sockets        # sockets of new listeners: listeners[i].owner is one of `listeners`
    uint32_t n_listen_sockets
    ListenSocket** ended            # no longer watched; the requesting thread closes their sockets
    uint32_t n_ended
    int error                   # errno of a socket that could not be watched: then nothing has changed
    bint sockets_only           # apply only `listen_sockets` and `ended`

cdef void reload_apply(Broker* b, Reload* r) noexcept nogil
