"""Parse filters as clients send them, below the mount point of their listener."""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy

from cext.base.view cimport View
from cext.broker.core.client_state cimport Client
from cext.topic.name cimport Filter, filter_parse


cdef int parse_mounted(Client* c, View text, Filter* out, uint8_t** owned) noexcept nogil:
    """Parse a filter below the mount point with filter_parse. The caller frees *owned. -1: no memory."""
    cdef View mount = c.listener.mount_point
    cdef uint32_t at
    cdef int rc = filter_parse(text.p, text.n, out)
    owned[0] = NULL
    if rc or mount.n == 0:
        return rc
    owned[0] = <uint8_t*>malloc(<size_t>text.n + mount.n)
    if owned[0] == NULL:
        return -1
    at = <uint32_t>(out.filter.p - text.p)       # behind $share/GROUP/, if it is there
    memcpy(owned[0], text.p, at)
    memcpy(owned[0] + at, mount.p, mount.n)
    memcpy(owned[0] + at + mount.n, text.p + at, text.n - at)
    return filter_parse(owned[0], text.n + mount.n, out)
