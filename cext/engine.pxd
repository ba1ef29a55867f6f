# The Engine's memory, for the other modules of this room (renewal.pyx, bridge_control.pyx).
from libc.stdint cimport uint8_t, uint32_t
from cext.broker.admin.control_request cimport ControlRequest
from cext.broker.admin.reload cimport Reload
from libc.stdint cimport uint64_t

from cext.broker.core.broker cimport Broker

cdef class Engine:
    cdef Broker b
    cdef list keep              # bytes that the broker's views point into
    cdef list specs
    cdef list sockets           # per listener: a list
    cdef list watched           # per listener: a list of addresses of ListenSockets
    cdef int event
    cdef int reload_fd          # signalfd of watch_reload(); -1: not used
    cdef bint made
    cdef list open_ports
    cdef list keep_adopted
    cdef object files           # file operations of the store that are not the system's (persist); None: the system's
    cdef list keep_before       # the bytes of the configuration before
    cdef list gone              # ListenSockets that are not watched any more: an event of their last turn may have pointed to them
    cdef bint nodelay
    cdef list given             # listening sockets of the process before: (origin, [Socket]); None: none
    cdef public uint64_t rules_set      # number of calls of set_roles

    cdef int _listeners_new(self, list securities) except -1
    cdef int _request(self, ControlRequest* a) except -2
    cdef tuple _request_bytes(self, ControlRequest* a)
    cdef bytes _asked(self, uint8_t kind, uint32_t index=*)
    cdef int _reload(self, Reload* r) except -1
