# Who a client is by its TLS connection.
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.codec.decode cimport Connect
from cext.net.conn_state cimport Conn
from libc.stdint cimport uint8_t

cdef enum:
    TLS_NAME_MAX = 1024         # bytes of a user name out of a certificate
    IDENTITY_BYTES = 20 * 1024  # of a certificate's names and PEM

# The user name that the connection gives, where the listener takes it from there; it lies in `room`. 1: there had to be one, but there is none.
cdef bint tls_identity(Client* c, Connect* p, uint8_t* room) noexcept nogil
# common name, subject and PEM of the peer's certificate, as far as there are; they lie in `room`.
cdef void tls_identity_fields(Client* c, View* fields, uint8_t* room) noexcept nogil
cdef void log_negotiated_tls(Broker* b, Client* c) noexcept nogil
cdef void log_transport_error(void* broker, Conn* conn, const char* text) noexcept nogil      # wrong_fn of the reactor
# After a reload, in slices: clients whose certificates what is trusted now does not let in are ended. 1: there are some left.
cdef void recheck_begin(Broker* b) noexcept nogil
cdef bint recheck_slice(Broker* b) noexcept nogil
