# The header of the PROXY protocol, versions 1 and 2 [haproxy.org, proxy-protocol.txt], sans-IO: a proxy's report
# about the client that it forwards.
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from cext.base.view cimport View

cdef enum:
    PROXY_BAD = -1
    PROXY_MORE = 0
    PROXY_DONE = 1

cdef enum:
    PROXY_V1_BYTES_MAX = 107
    PROXY_V2_HEAD_BYTES = 16
    PROXY_V2_BYTES_MAX = 8192   # enough for a client's certificate in the TLVs; the format would allow 64 KiB

cdef enum:
    # Proxied.tls: flags of the SSL TLV's first byte
    PROXY_TLS = 1               # the client used TLS
    PROXY_CERT_CONN = 2         # with a certificate, in this connection
    PROXY_CERT_SESS = 4         # with a certificate, at least once in this TLS session

ctypedef struct Proxied:
    # PROXY_DONE: bytes of the header; PROXY_MORE: bytes that the header needs, 0 = unknown; PROXY_BAD: bytes of a header whose
    # TLVs are wrong, 0 = the header has another fault
    uint32_t size
    uint8_t local               # 1 = the connection is the proxy's own: LOCAL, UNKNOWN or no address
    uint8_t family              # AF_INET, AF_INET6, AF_UNIX; 0 = none
    uint8_t has_tls             # 1 = there was an SSL TLV
    uint8_t tls                 # mask of PROXY_TLS, PROXY_CERT_CONN, PROXY_CERT_SESS
    uint32_t verify             # 0 = the client's certificate is valid
    uint16_t port               # the client's port
    uint8_t ip[16]
    View path                   # AF_UNIX: the client's socket; this and the three below: views into the header; n 0 = not reported
    View tls_version
    View cipher
    View common_name

# Read a header. p: the first n bytes of the connection. version: 1 or 2; a header of the other version is an error.
cdef int proxy_read(int version, const uint8_t* p, size_t n, Proxied* out) noexcept nogil
