# TLS as a transport of the reactor. See tls.pyx.
from cext.net.tls_state cimport TlsContext

# Create a context around an empty SSL_CTX, with one reference. Return NULL if there is no memory. cext/setup/tls.pyx fills it.
cdef TlsContext* tls_context_new(bint outward) noexcept nogil
