"""Convert the arguments and results of a handover. The memory file itself is the matter of cext/broker/handover."""

from libc.errno cimport EPROTO
from libc.stdint cimport int32_t, uint32_t
from libc.stdlib cimport free, malloc

from cext.broker.core.broker cimport Broker
from cext.broker.core.handover_state cimport HANDOVER_WHY_MAX, HandoverCounts
from cext.broker.handover.restore cimport state_restore


def counts_read(size_t address):
    """Return the HandoverCounts at an address as a dict."""
    cdef const HandoverCounts* c = <const HandoverCounts*>address
    return {"connections": c.connections, "closed": c.closed, "sessions": c.sessions, "messages": c.messages, "bytes": c.bytes, "us": c.us}


def state_arrives(size_t broker, int state_fd, list fds):
    """Restore the state in a memory file. Return the numbers as a dict. Raise OSError with the reason."""
    cdef char why[HANDOVER_WHY_MAX]
    cdef HandoverCounts counts
    cdef uint32_t i, n = <uint32_t>len(fds)
    cdef int32_t* numbers = <int32_t*>malloc((n + 1) * sizeof(int32_t))
    cdef int rc
    if numbers == NULL:
        raise MemoryError
    for i in range(n):
        numbers[i] = fds[i]
    why[0] = 0
    with nogil:
        rc = state_restore(<Broker*>broker, state_fd, numbers, n, &counts, why, sizeof(why))
    free(numbers)
    if rc != 0:
        raise OSError(EPROTO, (<bytes>why).decode("utf-8", "replace"))
    return counts_read(<size_t>&counts)
