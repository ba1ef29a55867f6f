"""Perform one reload from the control plane's side: prepare everything, exchange it between two turns (cext/broker/admin/reload.pyx), and free the
old objects. This module knows the memory of both sides, not the meaning of the settings.

    make securities and listeners -> bind new sockets -> request the exchange from the loop -> close removed sockets, free the old
        any failure: close the new sockets, open those again that had to make room; nothing has changed
"""

from cext.setup.listen import close, port_of, set_nodelay, sockets_of, twin_of

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from cext.broker.admin.reload cimport Reload
from cext.broker.core.listener cimport Listener, Security
from cext.engine cimport Engine
from cext.net.conn_state cimport ListenSocket
from cext.setup.listeners cimport listen_sockets_new, listener_new, lists_free, tickets_keep
from cext.setup.security cimport security_new, security_place
from cext.setup.settings cimport settings_free, settings_read


def address_of(spec):
    return spec.get("path") or (int(spec.get("port") or 0), spec.get("host") or "", spec.get("socket_domain") or "",
                                spec.get("bind_interface") or "")


def listener_key(spec):
    """Return the identity of a listener: its address and its protocol from the first byte on, because connections could not continue with another
    protocol."""
    return address_of(spec), spec.get("protocol") or "mqtt", int(spec.get("enable_proxy_protocol") or 0)


cdef class Renewal:
    """One reload: prepare everything, exchange it between two turns, and free the old objects."""
    cdef Engine e
    cdef Reload r
    cdef dict settings
    cdef list specs, securities, keep, before, sockets, watched
    cdef object fresh           # the bridges (bridge_control.Fresh), or None
    cdef dict heirs             # new listener -> ended one whose sockets it takes over: another protocol at the same address

    def __cinit__(self, Engine e, dict settings, list specs, list securities, fresh=None):
        memset(&self.r, 0, sizeof(Reload))
        self.e, self.settings, self.specs, self.securities, self.fresh = e, settings, specs, securities, fresh
        self.keep, self.sockets, self.watched = [], [[] for _ in specs], [[] for _ in specs]
        keys = {listener_key(spec): place for place, spec in enumerate(e.specs)}
        self.before = [keys.pop(listener_key(spec), None) for spec in specs]      # per new listener: its position before
        ended = {address_of(e.specs[place]): place for place in keys.values()}
        self.heirs = {place: ended.pop(address_of(spec)) for place, spec in enumerate(specs)
                      if self.before[place] is None and address_of(spec) in ended}

    def __dealloc__(self):
        # the settings here now belong to no other object
        settings_free(&self.r.settings)
        lists_free(self.r.securities, self.r.n_securities, self.r.listeners, self.r.n_listeners)
        free(self.r.securities_into)
        free(self.r.securities_list)
        free(self.r.listeners_into)
        free(self.r.listener_security)
        free(self.r.listeners_list)
        free(self.r.listen_sockets)
        free(self.r.ended)

    def prepare(self):
        """Check and make all that does not disturb the running broker."""
        settings_read(&self.r.settings, self.settings, self.keep)
        self.r.log_mask = <uint32_t>int(self.settings.get("log_mask", 15))
        self.r.log_json = bool(int(self.settings.get("log_json", 0)))
        self._make_securities()
        self._make_listeners()

    def commit(self):
        """Bind new sockets and exchange the configuration."""
        ended = [place for place in range(len(self.e.specs)) if place not in self.before]
        closed = self._make_room(ended)
        try:
            self._bind()
            self._watch(ended)
            self.e._reload(&self.r)
        except BaseException:
            self._undo(closed)
            raise
        self._keep(ended)
        if self.fresh is not None:
            self.fresh.apply(self.e)

    cdef int _make_securities(self) except -1:
        cdef uint32_t i, n = <uint32_t>len(self.securities)
        self.r.securities = <Security**>calloc(n + 1, sizeof(Security*))
        self.r.securities_into = <uint32_t*>calloc(n + 1, sizeof(uint32_t))
        self.r.securities_list = <Security**>calloc(n + 1, sizeof(Security*))
        if self.r.securities == NULL or self.r.securities_into == NULL or self.r.securities_list == NULL:
            raise MemoryError
        for i, spec in enumerate(self.securities):
            self.r.securities[i] = security_new(spec)
            self.r.securities[i].place = i
            self.r.n_securities = i + 1
        for place, was in self._same_securities().items():
            self.r.securities_into[<uint32_t>place] = <uint32_t>was + 1
        return 0

    def _same_securities(self):
        """Match the securities. A security is the same if one of its listeners used it before; a single one is always the same."""
        if len(self.securities) == self.e.b.n_securities == 1:
            return {0: 0}
        same = {}
        for spec, was in zip(self.specs, self.before, strict=True):
            place = security_place(spec, len(self.securities))
            if was is not None and place not in same:
                old = security_place(self.e.specs[was], self.e.b.n_securities)
                if old not in same.values():
                    same[place] = old
        return same

    cdef int _make_listeners(self) except -1:
        cdef uint32_t i, n = <uint32_t>len(self.specs)
        self.r.listeners = <Listener**>calloc(n + 1, sizeof(Listener*))
        self.r.listeners_into = <uint32_t*>calloc(n + 1, sizeof(uint32_t))
        self.r.listener_security = <uint32_t*>calloc(n + 1, sizeof(uint32_t))
        self.r.listeners_list = <Listener**>calloc(n + 1, sizeof(Listener*))
        if self.r.listeners == NULL or self.r.listeners_into == NULL or self.r.listener_security == NULL or self.r.listeners_list == NULL:
            raise MemoryError
        for i, spec in enumerate(self.specs):
            self.r.listener_security[i] = <uint32_t>security_place(spec, len(self.securities))
            self.r.listeners[i] = listener_new(spec, self.keep)
            self.r.n_listeners = i + 1
            if self.before[i] is not None:
                self.r.listeners_into[i] = <uint32_t>self.before[i] + 1
                tickets_keep(self.e.b.listeners[<uint32_t>self.before[i]], self.r.listeners[i])
        return 0

    def _make_room(self, ended):
        """Close a listener that goes and may hold the port of a new one, at another address, before the new one is tried."""
        wanted = {int(spec.get("port") or 0) for place, spec in enumerate(self.specs)
                  if self.before[place] is None and place not in self.heirs} - {0}
        closed = [place for place in ended if int(self.e.specs[place].get("port") or 0) in wanted and place not in self.heirs.values()]
        if closed:
            self._request_sockets((), [address for place in closed for address in self.e.watched[place]])
            for place in closed:
                close(self.e.sockets[place])
        return closed

    def _bind(self):
        nodelay = bool(int(self.settings.get("set_tcp_nodelay", 1)))
        for place, was in enumerate(self.before):
            if place in self.heirs:
                for s in self.e.sockets[self.heirs[place]]:
                    self.sockets[place].append(twin_of(s))
            elif was is None:
                self.sockets[place] = sockets_of(self.specs[place], nodelay)
            if was is None:
                self.watched[place] = listen_sockets_new(self.sockets[place], self.r.listeners[place])

    def _watch(self, ended):
        new = [address for addresses in self.watched for address in addresses]
        self._addresses(&self.r, new, [address for place in ended for address in self.e.watched[place]])

    cdef int _addresses(self, Reload* r, list new, list ended) except -1:
        cdef uint32_t i
        r.listen_sockets = <ListenSocket**>calloc(len(new) + 1, sizeof(ListenSocket*))
        r.ended = <ListenSocket**>calloc(len(ended) + 1, sizeof(ListenSocket*))
        if r.listen_sockets == NULL or r.ended == NULL:
            raise MemoryError
        for i, address in enumerate(new):
            r.listen_sockets[i] = <ListenSocket*><size_t>address
        r.n_listen_sockets = <uint32_t>len(new)
        for i, address in enumerate(ended):
            r.ended[i] = <ListenSocket*><size_t>address
        r.n_ended = <uint32_t>len(ended)
        return 0

    def _request_sockets(self, new, ended):
        cdef Reload r
        memset(&r, 0, sizeof(r))
        r.sockets_only = True
        try:
            self._addresses(&r, list(new), list(ended))
            self.e._reload(&r)
        finally:
            free(r.listen_sockets)
            free(r.ended)

    def _undo(self, closed):
        for opened in self.sockets:
            close(opened)
        for addresses in self.watched:
            for address in addresses:
                free(<void*><size_t>address)
        for place in closed:
            self.e.gone += self.e.watched[place]
            self.e.sockets[place], self.e.watched[place] = [], []
            self.e.sockets[place] = sockets_of(self.e.specs[place], self.e.nodelay)     # raises if another process took the port in between
            self.e.watched[place] = listen_sockets_new(self.e.sockets[place], self.e.b.listeners[<uint32_t>place])
            self._request_sockets(self.e.watched[place], ())

    def _keep(self, ended):
        nodelay = bool(int(self.settings.get("set_tcp_nodelay", 1)))
        for place, was in self.heirs.items():
            for s, old in zip(self.sockets[place], self.e.sockets[was], strict=True):
                s.file, old.file = old.file, None
                set_nodelay(s, nodelay)
        for place in ended:
            close(self.e.sockets[place])
            self.e.gone += self.e.watched[place]
        for place, was in enumerate(self.before):
            if was is not None:
                self.sockets[place], self.watched[place] = self.e.sockets[was], self.e.watched[was]
                for s in self.sockets[place]:
                    set_nodelay(s, nodelay)
        self.e.open_ports = [port_of(opened[0]) if opened else 0 for opened in self.sockets]
        self.e.sockets, self.e.watched, self.e.specs = self.sockets, self.watched, self.specs
        # the loop may still be in the turn of the exchange, with clients of removed listeners: their bytes are freed by the next reload
        self.e.keep_before, self.e.keep = self.e.keep, self.keep
        self.e.nodelay = nodelay
