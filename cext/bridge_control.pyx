"""The Engine's functions for bridges. The first bridge loads this module: a broker without bridges does not load it."""

import _socket
import os

from libc.errno cimport ENOENT
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from cext.bridge.lifecycle cimport bridges_free
from cext.broker.admin.control_request cimport CONTROL_BRIDGE, ControlRequest
from cext.broker.core.bridge_state cimport (
    BRIDGES_MAX, BRIDGE_CLOSE, BRIDGE_CONNECT, BRIDGE_RENEW, BRIDGE_STATES, Bridge, BridgeCommand, BridgeState, Bridges,
)
from cext.engine cimport Engine
from cext.net.conn_state cimport Address
from cext.setup.bridges cimport bridges_drop, bridges_new, bridges_read

STATES = ("down", "opening", "asking", "up")


cdef int bridge_command_send(Engine e, BridgeCommand* a) except -2:
    cdef ControlRequest request
    memset(&request, 0, sizeof(request))
    request.kind = CONTROL_BRIDGE
    request.reload = a
    result = e._request(&request)
    if result < 0:
        raise RuntimeError("the broker is not running")
    return result


cdef int sockaddr_read(Address* a, uint32_t* scope, given) except -1:
    """Parse (family, numeric host, port)."""
    cdef bytes packed
    family, host, port = given[:3]
    text, _, zone = str(host).partition("%")
    packed = _socket.inet_pton(family, text)
    a.family = <uint8_t><int>family
    a.port = <uint16_t><int>port
    memcpy(a.ip, <const char*>packed, len(packed))
    if zone:
        scope[0] = int(zone) if zone.isdigit() else _socket.if_nametoindex(zone)
    return 0


def bridges_start(Engine e, list specs):
    e.b.bridges = bridges_new(specs)


def bridge_command(Engine e, str name, str what, sockaddr=None, host=None, try_private=False, fd=-1):
    cdef BridgeCommand a
    cdef bytes encoded = name.encode()
    cdef bytes text = (host or (sockaddr[1] if sockaddr else "")).encode()
    memset(&a, 0, sizeof(a))
    if what not in ("connect", "close"):
        raise ValueError(f"{what!r} is nothing that a link does: expected connect or close")
    a.kind = BRIDGE_CONNECT if what == "connect" else BRIDGE_CLOSE
    a.name.p = <const uint8_t*><const char*>encoded
    a.name.n = <uint32_t>len(encoded)
    a.host = text
    a.as_bridge = bool(try_private)
    a.fd = fd
    if sockaddr is not None:
        sockaddr_read(&a.remote, &a.remote_scope, sockaddr)
    elif what == "connect" and fd < 0:
        raise ValueError("connect needs an address")
    result = bridge_command_send(e, &a)
    if result == ENOENT:
        raise KeyError(name)
    if result:
        raise OSError(result, os.strerror(result))


def bridge_states(Engine e):
    cdef BridgeCommand a
    cdef uint32_t i
    if e.b.bridges == NULL:
        return []
    memset(&a, 0, sizeof(a))
    a.kind = BRIDGE_STATES
    a.n = BRIDGES_MAX
    a.out = <BridgeState*>calloc(BRIDGES_MAX, sizeof(BridgeState))
    if a.out == NULL:
        raise MemoryError
    try:
        bridge_command_send(e, &a)
        return [{"name": a.out[i].name.decode("utf-8", "replace"), "state": STATES[a.out[i].state], "pending": a.out[i].pending,
                 "pending_bytes": a.out[i].waiting_bytes} for i in range(a.n)]
    finally:
        free(a.out)


cdef class Fresh:
    """The bridges of a reload, made before anything changes."""
    cdef Bridge** at
    cdef uint32_t n
    cdef Bridges* first           # the first bridges of this broker

    def __cinit__(self, Engine e, list specs):
        self.n = <uint32_t>len(specs)
        bridges_read(specs, &self.at)
        if e.b.bridges == NULL:
            self.first = bridges_new([])

    def __dealloc__(self):
        bridges_drop(self.at, self.n)
        bridges_free(self.first)

    def apply(self, Engine e):
        cdef BridgeCommand a
        memset(&a, 0, sizeof(a))
        a.kind = BRIDGE_RENEW
        a.n = self.n
        a.fresh = self.at
        a.bridges = self.first
        if bridge_command_send(e, &a) == 0:
            free(a.fresh)        # the list before the reload
            self.at = NULL
            if e.b.bridges == self.first:
                self.first = NULL
