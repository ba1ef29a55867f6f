# One pass over a CONNECT packet. There is one pass when the packet arrives, and a second one if the control plane decided about
# the login.
from libc.stdint cimport uint8_t, uint64_t
from cext.broker.auth.tls_identity cimport TLS_NAME_MAX
from cext.codec.decode cimport Connect
from cext.codec.encode cimport Connack
from cext.codec.frame cimport Frame

cdef enum:
    # what the control plane has decided about the login
    LOGIN_OPEN = 0                      # nothing: first pass
    LOGIN_ALLOWED = 1
    LOGIN_NO_OPINION = 2                # the listener's settings decide
    LOGIN_NOT_CHECKED = 3               # the same, as if no plugin checked user names

cdef enum:
    # verdicts of the control plane
    END_SILENTLY = -2                   # end the connection without CONNACK
    NOT_CHECKED = -3

ctypedef struct Connecting:
    const Frame* frame
    Connect packet
    Connack connack                     # answer, filled by several steps
    uint8_t login                       # LOGIN_*
    uint8_t id_was_empty                # the packet has no client id
    uint64_t changes                    # changes_of before the first change to the session
    uint8_t tls_name[TLS_NAME_MAX]      # user name from the certificate
