# A control request: what another thread wants from the loop, and the loop's answer. See mailbox.pyx.
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from cext.broker.rules.roles cimport Roles

cdef enum:
    CONTROL_STOP = 1
    CONTROL_STATS = 2
    CONTROL_CLIENTS = 3             # of pool positions [from_index, ...): out gets records, next_index where to go on (0: end)
    CONTROL_KICK = 4
    CONTROL_ADOPT = 5
    CONTROL_RELOAD = 6
    CONTROL_BRIDGE = 21               # reload: BridgeCommand*, of link.pxd
    CONTROL_ROLES = 20              # `swap`: n_swap new Roles by place of their security, NULL: none; gets the old ones back
    CONTROL_SUBSCRIPTIONS = 7       # of the table of sessions from `cursor` on (0: begin, end): out gets records, left_out how many are not there
    CONTROL_SESSIONS = 8            # from `cursor` on, about `from_index` of them: out gets records of inspect.pyx
    CONTROL_SESSION = 9             # of client id `text`: its record, and its subscriptions from the from_index-th on; left_out: how many more

cdef enum:
    CLIENTS_SLICE = 1000        # pool positions looked at per request
    STATS_N = 80               # at least as many as STATS of engine.pyx has
    SUBSCRIPTIONS_SLICE = 1000  # subscriptions and buckets per request, about
    SUBSCRIPTIONS_OF_ONE = 1000  # of one session at most; the others are counted
    SUBSCRIPTIONS_BYTES = 1 << 18   # of one session at most

ctypedef struct ControlRequest:
    ControlRequest* next
    int32_t kind
    int32_t done
    int32_t result              # 0: done; else errno, or 1: not found
    int32_t fd
    void* reload                # Reload*, of reload.pxd
    Roles** swap
    uint32_t n_swap
    uint8_t* text               # kick: client id
    uint32_t text_n
    uint32_t from_index
    uint32_t next_index
    uint8_t* out                # malloc'ed by the loop, the asker frees it
    uint32_t out_n
    uint32_t out_cap
    uint32_t cursor
    uint64_t left_out
    uint64_t stats[STATS_N]      # order of mailbox.pyx
