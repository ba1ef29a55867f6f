# The PROXY protocol's header, versions 1 and 2 [haproxy.org, proxy-protocol.txt], sans-IO: what a proxy says of the client it stands for.
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from cext.base.view cimport View

cdef enum:
    PROXY_BAD = -1
    PROXY_MORE = 0
    PROXY_DONE = 1

cdef enum:
    PROXY_V1_BYTES_MAX = 107
    PROXY_V2_BYTES_MAX = 8192   # a client's certificate among the TLVs fits; the format would allow 64 KiB

cdef enum:
    # Proxied.tls: what the SSL TLV's first byte says
    PROXY_TLS = 1               # the client came over TLS
    PROXY_CERT_CONN = 2         # with a certificate, in this connection
    PROXY_CERT_SESS = 4         # with a certificate, at least once in this TLS session

ctypedef struct Proxied:
    uint32_t size               # of the header when DONE; bytes that it needs when MORE, 0: not known
    uint8_t local               # the connection speaks for itself: LOCAL, UNKNOWN or no address
    uint8_t family              # AF_INET, AF_INET6, AF_UNIX (no address is kept); 0: none
    uint8_t has_tls             # there was an SSL TLV
    uint8_t tls                 # PROXY_TLS ...
    uint32_t verify             # 0: the client's certificate is good
    uint16_t port               # of the client
    uint8_t ip[16]
    View tls_version            # views into the header; n 0: not told
    View cipher
    View common_name

# p: the n bytes that have come since the connection began, from the first. version: 1 or 2, and no other is taken.
cdef int proxy_read(int version, const uint8_t* p, size_t n, Proxied* out) noexcept nogil
