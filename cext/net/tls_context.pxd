# What a TLS context holds beside OpenSSL's: pre-shared keys, the key log, references.
from cext.net.reactor cimport TransportContext
from cext.net.tls cimport TlsContext

cdef void tls_context_release(TransportContext* x) noexcept nogil
# What the context's callbacks need, once what they stand on is set.
cdef void tls_context_callbacks(TlsContext* x) noexcept nogil
# Around each step of a handshake: `told` says that our secret has been told, and the client's is next.
cdef void keylog_begin(TlsContext* x, bint logged) noexcept nogil
cdef void keylog_end(TlsContext* x) noexcept nogil
