# distutils: libraries = ssl crypto
"""Count the memory that OpenSSL takes. This module knows OpenSSL's allocator, and no connections.

OpenSSL calls malloc through three functions that a program may replace before the first allocation. Ours add the usable size to a counter
of the thread, so the calls of one handshake can be attributed to its connection, in whichever thread they run, without a lock. If Python's
`ssl` or `hashlib` was loaded before, OpenSSL refuses the functions; then connections are counted by the sizes measured with OpenSSL 3.0.

Cost: a few nanoseconds per allocation.
"""

from libc.stdint cimport int64_t, uint32_t

from cext.net.conn_state cimport Transport

cdef extern from * nogil:
    """
    #include <stdlib.h>
    #include <malloc.h>
    #include <openssl/crypto.h>

    static __thread long long mosq_tls_bytes;
    static int mosq_tls_counts;

    static void* mosq_tls_malloc(size_t n, const char* file, int line) {
        void* p = malloc(n);
        if (p) mosq_tls_bytes += malloc_usable_size(p);
        return p;
    }
    static void* mosq_tls_realloc(void* old, size_t n, const char* file, int line) {
        size_t before = old ? malloc_usable_size(old) : 0;
        void* p = realloc(old, n);
        if (p || !n) mosq_tls_bytes += (long long)(p ? malloc_usable_size(p) : 0) - (long long)before;
        return p;
    }
    static void mosq_tls_free(void* p, const char* file, int line) {
        if (p) mosq_tls_bytes -= malloc_usable_size(p);
        free(p);
    }
    static int mosq_tls_install(void) {
        if (!mosq_tls_counts)
            mosq_tls_counts = CRYPTO_set_mem_functions(mosq_tls_malloc, mosq_tls_realloc, mosq_tls_free);
        return mosq_tls_counts;
    }
    """
    long long mosq_tls_bytes
    int mosq_tls_counts
    int mosq_tls_install()


cdef bint tls_memory_begin() noexcept nogil:
    return mosq_tls_install() != 0


cdef int64_t tls_memory_now() noexcept nogil:
    return mosq_tls_bytes


cdef void tls_memory_add(Transport* t, int64_t before, uint32_t estimate) noexcept nogil:
    cdef int64_t n = mosq_tls_bytes - before if mosq_tls_counts else <int64_t>estimate
    n += t.memory
    t.memory = <uint32_t>(n if 0 < n < 0xFFFFFFFFu else 0)
