# The state of a handover: a frozen loop, and what the control plane asks it. The loop fills it; the mailbox passes it on.
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

cdef enum:
    # Broker.stopping
    STOP_ENDS = 1                       # the loop ends and stops its clients
    STOP_FREEZES = 2                    # the loop freezes after this turn

cdef enum:
    # Handover.order
    FROZEN_WAITS = 0
    FROZEN_THAWS = 1                    # continue as if nothing had happened
    FROZEN_LEAVES = 2                   # another process has everything: end without a word to the clients

cdef enum:
    # why a connection does not move: HandoverCounts.reasons, and its texts in cext/takeover.pyx
    MOVES = 0
    STAYS_TLS = 1                       # the broker or the new process does not seal its records
    STAYS_HANDSHAKE = 2                 # its TLS handshake or its first packet is under way
    STAYS_AUTH = 3                      # an exchange of AUTH packets is under way
    STAYS_BEGUN = 4                     # it has sent a part of a PROXY header, an HTTP request or a SUBSCRIBE
    STAYS_BRIDGE = 5                    # a connection to another broker
    STAYS_BUSY = 6                      # it kept the broker from coming to rest
    STAYS_ENDING = 7                    # it is about to end, or belongs to this process
    STAYS_REASONS = 8

cdef enum:
    HANDOVER_WHY_MAX = 256

ctypedef struct HandoverCounts:
    uint64_t connections                # connections that move
    uint64_t closed                     # connections that were closed because they cannot move
    uint64_t sessions                   # sessions in the state; those that only the store has are not counted
    uint64_t messages
    uint64_t bytes                      # size of the state
    uint64_t us                         # time from the end of the last turn on
    uint64_t reasons[8]                 # STAYS_REASONS: connections that do not move, by STAYS_...

ctypedef struct HandoverTotals:         # of all processes since the start of the broker
    uint64_t upgrades
    uint64_t moved
    uint64_t closed
    uint64_t pause_us                   # pause of the last one

ctypedef struct Handover:
    int32_t error                       # 0, or errno: the loop did not freeze and goes on
    int32_t state_fd                    # memory file with the state; the requesting thread closes it
    int32_t* fds                        # descriptor of each connection that moves; they still belong to the loop
    uint32_t n_fds
    uint32_t order                      # FROZEN_...
    uint64_t begun_us                   # monotonic time of the end of the last turn
    uint8_t store_id[16]                # of the store, which is closed while the loop is frozen; zeros: it has no record
    HandoverCounts counts
    char why[256]                       # HANDOVER_WHY_MAX: reason for people, if `error`
