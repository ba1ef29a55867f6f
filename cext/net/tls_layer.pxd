# The state that the TLS connections of one loop share. See tls_layer.pyx.
from libc.stdint cimport uint32_t
from cext.net.conn_state cimport Conn, Reactor
from cext.net.tls_pool cimport step_fn
from cext.net.tls_state cimport Tls, TlsLayer

cdef enum:
    ERRORS_BYTES = 2048         # enough for tls_errors

# Return NULL if there is no memory. The caller sets `ops`.
cdef TlsLayer* tls_layer_new(uint32_t n_threads, step_fn step) noexcept nogil
cdef void tls_layer_free(void* layer) noexcept nogil         # its pool is stopped and empty
cdef void tls_stopped(Reactor* r, Conn* c, int got) noexcept nogil
cdef void tls_errors(const Tls* t, char* out, size_t n) noexcept nogil
cdef void tls_end(Reactor* r, Conn* c, char* lines) noexcept nogil
cdef void tls_fail(Reactor* r, Conn* c) noexcept nogil
