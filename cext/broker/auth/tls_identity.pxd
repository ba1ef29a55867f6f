# The identity of a client by its TLS connection.
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.codec.decode cimport Connect
from cext.net.conn_state cimport Conn, TransportContext
from libc.stdint cimport uint8_t

cdef enum:
    TLS_NAME_MAX = 1024         # bytes of a user name from a certificate
    IDENTITY_BYTES = 20 * 1024  # bytes of a certificate's names and PEM

# Take the user name from the connection, if the listener requires it; it is in `room`. 1: the connection has none.
cdef bint tls_identity(Client* c, Connect* p, uint8_t* room) noexcept nogil
# Fill in common name, subject and PEM of the peer's certificate, if present; they are in `room`.
cdef void tls_identity_fields(Client* c, View* fields, uint8_t* room) noexcept nogil
# Return whether the listener takes the user name from TLS, and the bytes of that name in `room` (0 or less: it has none).
cdef bint tls_names(const Client* c) noexcept nogil
cdef int tls_name(const Client* c, uint8_t* room) noexcept nogil
cdef void log_negotiated_tls(Broker* b, Client* c, View id) noexcept nogil
cdef void log_transport_error(void* broker, Conn* conn, const char* text) noexcept nogil      # wrong_fn of the reactor
cdef TransportContext* listener_context(void* broker, Conn* conn) noexcept nogil      # context_fn of the reactor
# After a reload, check the certificates and keys of clients in slices, and end clients that the new settings do not accept. 1: some clients are left.
cdef void recheck_begin(Broker* b) noexcept nogil
cdef bint recheck_slice(Broker* b) noexcept nogil
