# The state that the TLS connections of one loop share. See tls_layer.pyx.
from cext.net.conn_state cimport Conn, Reactor
from cext.net.tls_state cimport TlsLayer

# Return NULL if there is no memory. The caller sets `ops`.
cdef TlsLayer* tls_layer_new() noexcept nogil
cdef void tls_layer_free(void* layer) noexcept nogil
cdef void tls_stopped(Reactor* r, Conn* c, int got) noexcept nogil
cdef void tls_fail(Reactor* r, Conn* c) noexcept nogil
