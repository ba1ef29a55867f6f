"""The Engine's side of links to other brokers. Loaded with the first of them: a broker without bridges does not know this room."""

import errno
import os
import socket

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from cext.broker.link cimport (
    LINK_CLOSE, LINK_CONNECT, LINK_RENEW, LINK_STATES, LINKS_MAX, Link, LinkAsk, Links, LinkState,
)
from cext.broker.mailbox cimport ASK_LINK, Ask
from cext.engine cimport Engine
from cext.net.reactor cimport Address
from cext.peer.life cimport links_free
from cext.setup.links cimport links_drop, links_new, links_read

STATES = ("down", "opening", "asking", "up")


cdef int asked(Engine e, LinkAsk* a) except -2:
    cdef Ask ask
    memset(&ask, 0, sizeof(ask))
    ask.kind = ASK_LINK
    ask.reload = a
    result = e._ask(&ask)
    if result < 0:
        raise RuntimeError("the broker is not running")
    return result


cdef int address_read(Address* a, uint32_t* scope, given) except -1:
    """(family, numeric host, port)"""
    cdef bytes packed
    family, host, port = given[:3]
    text, _, zone = str(host).partition("%")
    packed = socket.inet_pton(family, text)
    a.family = <uint8_t><int>family
    a.port = <uint16_t><int>port
    memcpy(a.ip, <const char*>packed, len(packed))
    if zone:
        scope[0] = int(zone) if zone.isdigit() else socket.if_nametoindex(zone)
    return 0


def begin(Engine e, list specs):
    e.b.links = links_new(specs)


def link(Engine e, str name, str what, sockaddr=None, host=None, try_private=False, fd=-1):
    cdef LinkAsk a
    cdef bytes encoded = name.encode()
    cdef bytes text = (host or (sockaddr[1] if sockaddr else "")).encode()
    memset(&a, 0, sizeof(a))
    if what not in ("connect", "close"):
        raise ValueError(f"{what!r} is nothing that a link does: expected connect or close")
    a.kind = LINK_CONNECT if what == "connect" else LINK_CLOSE
    a.name.p = <const uint8_t*><const char*>encoded
    a.name.n = <uint32_t>len(encoded)
    a.host = text
    a.as_bridge = bool(try_private)
    a.fd = fd
    if sockaddr is not None:
        address_read(&a.remote, &a.remote_scope, sockaddr)
    elif what == "connect" and fd < 0:
        raise ValueError("connect needs an address")
    result = asked(e, &a)
    if result == errno.ENOENT:
        raise KeyError(name)
    if result:
        raise OSError(result, os.strerror(result))


def states(Engine e):
    cdef LinkAsk a
    cdef uint32_t i
    if e.b.links == NULL:
        return []
    memset(&a, 0, sizeof(a))
    a.kind = LINK_STATES
    a.n = LINKS_MAX
    a.out = <LinkState*>calloc(LINKS_MAX, sizeof(LinkState))
    if a.out == NULL:
        raise MemoryError
    try:
        asked(e, &a)
        return [{"name": a.out[i].name.decode("utf-8", "replace"), "state": STATES[a.out[i].state], "pending": a.out[i].pending,
                 "pending_bytes": a.out[i].waiting_bytes} for i in range(a.n)]
    finally:
        free(a.out)


cdef class Fresh:
    """Links of a reload, made before anything changes."""
    cdef Link** at
    cdef uint32_t n
    cdef Links* first           # of a broker that had none

    def __cinit__(self, Engine e, list specs):
        self.n = <uint32_t>len(specs)
        links_read(specs, &self.at)
        if e.b.links == NULL:
            self.first = links_new([])

    def __dealloc__(self):
        links_drop(self.at, self.n)
        links_free(self.first)

    def apply(self, Engine e):
        cdef LinkAsk a
        memset(&a, 0, sizeof(a))
        a.kind = LINK_RENEW
        a.n = self.n
        a.fresh = self.at
        a.links = self.first
        if asked(e, &a) == 0:
            free(a.fresh)        # the list that was before
            self.at = NULL
            if e.b.links == self.first:
                self.first = NULL
