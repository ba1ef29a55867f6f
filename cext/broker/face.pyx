# The face of the broker room for tests: what cannot be reached over a socket of this machine.
from libc.string cimport memcpy, memset
from cext.broker.handle_control cimport address_local
from cext.net.reactor cimport Address


def is_local(family: int, ip: bytes) -> bool:
    cdef Address a
    if len(ip) > sizeof(a.ip):
        raise ValueError(ip)
    memset(&a, 0, sizeof(a))
    a.family = family
    memcpy(a.ip, <const char*>ip, len(ip))
    return address_local(&a)
