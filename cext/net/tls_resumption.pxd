# Session tickets: checks before a session is resumed. See tls_resumption.pyx.
from cext.net.openssl cimport SSL_CTX

# Set the ticket callbacks of a listener's context. Its app data is the TlsContext.
cdef void tickets_callbacks(SSL_CTX* x) noexcept nogil
