# What the links of a worker report about themselves. See links.pyx.
from libc.stdint cimport uint64_t
from cext.broker.admin.control_request cimport ControlRequest
from cext.broker.core.broker cimport Broker

ctypedef struct LinkFigures:            # of the link to one other worker; cext/setup/inspection.pyx has the same order
    uint64_t place
    uint64_t connected
    uint64_t routes                     # entries of the other worker in this one's index
    uint64_t routes_digest              # sum of their hashes
    uint64_t own_routes                 # entries that this worker has announced to all others
    uint64_t own_digest                 # sum of their hashes
    uint64_t sent                       # messages with a number, since this process began
    uint64_t unacknowledged             # of them
    uint64_t unacknowledged_bytes
    uint64_t queued                     # of the unacknowledged ones: not sent on this connection yet
    uint64_t queued_bytes               # in the output, not taken by the socket
    uint64_t dropped                    # QoS 0, because the link was full or not connected
    uint64_t latency_us                 # of the last acknowledgement that was timed, from the sending of its message
    uint64_t latency_max_us
    uint64_t latency_n                  # acknowledgements that were timed; 0: none
    uint64_t latency_sum_us

cdef void answer_links(Broker* b, ControlRequest* a) noexcept nogil
