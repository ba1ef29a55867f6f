"""Convert the arguments and results of a handover. The memory file itself is the matter of cext/broker/handover."""

from libc.errno cimport EPROTO
from libc.stdint cimport int32_t, uint32_t

from cext.broker.core.broker cimport Broker
from cext.broker.core.handover_state cimport (
    HANDOVER_WHY_MAX, HandoverCounts, STAYS_AUTH, STAYS_BEGUN, STAYS_BRIDGE, STAYS_BUSY, STAYS_ENDING, STAYS_HANDSHAKE, STAYS_TLS,
)
from cext.broker.handover.restore cimport state_restore

# why connections do not move, for the log
REASONS = (
    (STAYS_TLS, "with TLS whose records the broker or the new process does not seal (tls_compact_records)"),
    (STAYS_HANDSHAKE, "in the TLS handshake or before CONNECT"),
    (STAYS_AUTH, "in an exchange of AUTH packets"),
    (STAYS_BEGUN, "with a PROXY header, an HTTP request or a SUBSCRIBE that has begun"),
    (STAYS_BRIDGE, "to other brokers (bridges)"),
    (STAYS_BUSY, "that kept the broker from coming to rest"),
    (STAYS_ENDING, "about to end"),
)


def counts_read(size_t address):
    """Return the HandoverCounts at an address as a dict."""
    cdef const HandoverCounts* c = <const HandoverCounts*>address
    return {"connections": c.connections, "closed": c.closed, "sessions": c.sessions, "messages": c.messages, "bytes": c.bytes, "us": c.us,
            "reasons": [(c.reasons[why], text) for why, text in REASONS if c.reasons[why]]}


def state_arrives(size_t broker, int state_fd, bytes fds):
    """Restore the state in a memory file. `fds`: descriptors, 4 bytes each. Return the numbers as a dict. Raise OSError with the reason."""
    cdef char why[HANDOVER_WHY_MAX]
    cdef HandoverCounts counts
    cdef const char* numbers = fds
    cdef uint32_t n = <uint32_t>(len(fds) // sizeof(int32_t))
    cdef int rc
    why[0] = 0
    with nogil:
        rc = state_restore(<Broker*>broker, state_fd, <const int32_t*>numbers, n, &counts, why, sizeof(why))
    if rc != 0:
        raise OSError(EPROTO, (<bytes>why).decode("utf-8", "replace"))
    return counts_read(<size_t>&counts)
