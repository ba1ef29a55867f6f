"""Replace the configuration between two turns. This module knows which objects must keep their address. It does not know the
source of the settings.

All steps that can fail were done before, except for the watching of new sockets: that comes first, and nothing is changed if it
fails.

Invariant: a Listener and a Security keep their address while connections, sessions or listeners may point to them; only their
contents change. One that no listener uses any more goes to the list of removed ones, and the connections of such a listener end.
Cost: O(listeners); O(clients) when listeners are removed or get another mount point.
"""

from libc.stdint cimport uint32_t
from libc.string cimport memcmp, memcpy

from cext.base.slab cimport slab_at, slab_end
from cext.base.view cimport View
from cext.broker.admin.sys cimport sys_again
from cext.broker.auth.auth_requests cimport NOWHERE, auth_requests_move
from cext.broker.auth.tls_identity cimport recheck_begin
from cext.broker.core.access cimport session_mounted_at
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport client_doom
from cext.broker.core.client_state cimport C_ENDED, Client
from cext.broker.core.listener cimport Listener, Security
from cext.broker.core.log cimport LOG_TRACE
from cext.broker.core.settings cimport Settings
from cext.codec.reason cimport RC_ADMINISTRATIVE_ACTION
from cext.net.reactor cimport reactor_listen, reactor_unlisten


cdef void reload_apply(Broker* b, Reload* r) noexcept nogil:
    cdef uint32_t i
    cdef bint withdrawn
    for i in range(r.n_listen_sockets):
        r.error = reactor_listen(&b.reactor, r.listen_sockets[i])
        if r.error:
            while i > 0:
                i -= 1
                reactor_unlisten(&b.reactor, r.listen_sockets[i])
            return
    for i in range(r.n_ended):
        reactor_unlisten(&b.reactor, r.ended[i])
    if r.sockets_only:
        return
    b.log.mask = r.log_mask | (b.log.mask & LOG_TRACE)
    b.log.json = r.log_json
    securities_swap(b, r)
    b.access_epoch += 1
    withdrawn = listeners_swap(b, r)
    settings_swap(b, r)
    recheck_begin(b)
    if withdrawn:
        end_withdrawn_clients(b)


cdef void settings_swap(Broker* b, Reload* r) noexcept nogil:
    cdef Settings old = b.settings
    b.settings = r.settings
    b.reactor.layer_per_network = b.settings.tls_handshakes_per_address
    b.reactor.turn_interval_us = b.settings.turn_interval_us
    b.fd_limit = 0                           # the next connection reads it, with the new reserve
    b.settings.index = old.index             # the index was built with these settings
    b.settings.pool_grow = old.pool_grow
    b.settings.pool_idle_max = old.pool_idle_max
    r.settings = old
    if b.settings.observe_messages != old.observe_messages:
        observe_begin(b)
    if b.settings.sys_interval_s != old.sys_interval_s:
        sys_again(b)


cdef void securities_swap(Broker* b, Reload* r) noexcept nogil:
    cdef Security** old = b.securities
    cdef uint32_t n_old = b.n_securities, i
    cdef Security* place
    cdef Security content
    for i in range(r.n_securities):
        place = r.securities[i]
        r.securities[i] = NULL
        if r.securities_into[i]:
            r.securities[i] = place          # this memory goes back, with the old contents
            place = old[r.securities_into[i] - 1]
            old[r.securities_into[i] - 1] = NULL
            content = place[0]
            place[0] = r.securities[i][0]
            r.securities[i][0] = content
        r.securities_list[i] = place
    for i in range(n_old):
        if old[i] != NULL:
            old[i].place = NOWHERE
            old[i].gone_next = b.gone_securities
            b.gone_securities = old[i]
    b.securities = r.securities_list
    b.n_securities = r.n_securities
    r.securities_list = old
    auth_requests_move(b, r.securities_into, r.n_securities)


cdef bint listeners_swap(Broker* b, Reload* r) noexcept nogil:
    """Exchange the listeners. Returns 1 if a listener was removed or has another mount point."""
    cdef Listener** old = b.listeners
    cdef uint32_t n_old = b.n_listeners, i
    cdef Listener* place
    cdef Listener content
    cdef bint withdrawn = 0
    for i in range(r.n_listeners):
        place = r.listeners[i]
        r.listeners[i] = NULL
        if r.listeners_into[i]:
            r.listeners[i] = place
            place = old[r.listeners_into[i] - 1]
            old[r.listeners_into[i] - 1] = NULL
            content = place[0]
            place[0] = r.listeners[i][0]
            place.n_connections = content.n_connections
            place.port = content.port
            memcpy(place.drops, content.drops, sizeof(place.drops))
            r.listeners[i][0] = content
            withdrawn |= not view_same(place.mount_point, content.mount_point)
        place.security = b.securities[r.listener_security[i]]
        r.listeners_list[i] = place
    for i in range(n_old):
        if old[i] != NULL:
            old[i].gone_next = b.gone
            b.gone = old[i]
            old[i].is_gone = 1
            withdrawn = 1
    b.listeners = r.listeners_list
    b.n_listeners = r.n_listeners
    b.adopted.security = b.securities[0]
    r.listeners_list = old
    return withdrawn


cdef inline bint view_same(View a, View b) noexcept nogil:
    return a.n == b.n and (a.n == 0 or memcmp(a.p, b.p, a.n) == 0)


cdef void end_withdrawn_clients(Broker* b) noexcept nogil:
    """End the clients of removed listeners, because that way of access is withdrawn, and the clients whose subscriptions are below a former mount
    point."""
    cdef uint32_t i
    cdef Client* c
    for i in range(slab_end(&b.clients)):
        c = <Client*>slab_at(&b.clients, i)
        if c != NULL and c.state != C_ENDED and (c.listener.is_gone or (
                c.session != NULL and not session_mounted_at(c.session, c.listener))):
            client_doom(b, c, RC_ADMINISTRATIVE_ACTION)
