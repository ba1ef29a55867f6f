# The parts of a TLS context that OpenSSL does not hold: pre-shared keys, the key log, references.
from cext.net.conn_state cimport TransportContext
from cext.net.tls_state cimport Psk, Tls, TlsContext

cdef void tls_context_release(TransportContext* x) noexcept nogil
cdef const Psk* psk_of(const TlsContext* x, const char* identity) noexcept nogil          # NULL = unknown
# Return whether the certificate or key of a complete handshake would be accepted by x too, which may be newer than its own context.
cdef bint context_accepts(const TlsContext* x, const Tls* t) noexcept nogil
# Set the context's callbacks. Call it after the fields that they depend on are set.
cdef void tls_context_callbacks(TlsContext* x) noexcept nogil
