"""Encode the publisher of a message for another worker, which needs it to check the publisher's rights for a retained message (check_retain_source), for
No Local of retained messages, and for groups that select by publisher. This module knows the bytes:

    origin: 4 bytes; 0 = it came through no listener | client id, 0 | user name
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport realloc
from libc.string cimport memchr, memcpy, strlen

from cext.base.view cimport View
from cext.base.words cimport load32, store32
from cext.broker.core.broker cimport Broker
from cext.broker.core.link_state cimport BrokerLinks, links_of
from cext.session.record cimport RecordFrom
from cext.session.session cimport Session

cdef enum:
    ORIGIN_BYTES = 4


cdef View publisher_bytes(Broker* b, uint32_t origin, View id, View user) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef uint32_t n = ORIGIN_BYTES + id.n + 1 + user.n
    cdef View out
    cdef uint8_t* grown
    out.p = NULL
    out.n = 0
    if n > l.publisher_cap:
        grown = <uint8_t*>realloc(l.publisher, n)
        if grown == NULL:
            return out
        l.publisher, l.publisher_cap = grown, n
    store32(l.publisher, origin)
    memcpy(l.publisher + ORIGIN_BYTES, id.p, id.n)
    l.publisher[ORIGIN_BYTES + id.n] = 0
    if user.n:
        memcpy(l.publisher + ORIGIN_BYTES + id.n + 1, user.p, user.n)
    out.p, out.n = l.publisher, n
    return out


cdef View publisher_of_session(Broker* b, const Session* s) noexcept nogil:
    cdef View id, user
    id.p, id.n = <const uint8_t*>s.client_id, s.id_len
    user.p = <const uint8_t*>s.username
    user.n = <uint32_t>strlen(s.username) if s.username != NULL else 0
    return publisher_bytes(b, s.origin if s.security != NULL else 0, id, user)


cdef bint publisher_read(View bytes, RecordFrom* out) noexcept nogil:
    cdef const uint8_t* end
    if bytes.n <= ORIGIN_BYTES:
        return 0
    out.security = load32(bytes.p)
    out.id.p = bytes.p + ORIGIN_BYTES
    end = <const uint8_t*>memchr(out.id.p, 0, bytes.n - ORIGIN_BYTES)
    if end == NULL:
        return 0
    out.id.n = <uint32_t>(end - out.id.p)
    out.user.p = end + 1
    out.user.n = <uint32_t>(bytes.p + bytes.n - out.user.p)
    return 1
