# The state of a TLS connection, and the keys of tickets, for another process. See tls_move.pyx.
from libc.stdint cimport uint8_t, uint32_t
from cext.net.conn_state cimport Conn, Reactor, Transport, TransportContext

cdef uint32_t tls_save(const Conn* c, bint seals, uint8_t* out, uint32_t n) noexcept nogil           # as TransportOps.save
cdef Transport* tls_restore(TransportContext* x, Reactor* r, Conn* c, const uint8_t* p, uint32_t n) noexcept nogil
cdef uint32_t ticket_keys_save(TransportContext* x, uint8_t* out, uint32_t n) noexcept nogil
cdef void ticket_keys_restore(TransportContext* x, const uint8_t* p, uint32_t n) noexcept nogil
