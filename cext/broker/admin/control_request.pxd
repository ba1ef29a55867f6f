# A control request: a request of another thread to the loop, and the loop's answer. See mailbox.pyx.
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from cext.broker.core.stats cimport STATS_N
from cext.broker.rules.roles cimport Roles

cdef enum:
    CONTROL_STOP = 1
    CONTROL_STATS = 2
    CONTROL_CLIENTS = 3      # pool positions from from_index on: out gets records, next_index = position to continue at (0 = end)
    CONTROL_KICK = 4
    CONTROL_ADOPT = 5
    CONTROL_RELOAD = 6
    CONTROL_LINK = 30                # the descriptors `fd` (out) and `cursor` (in) are a new link to the worker `from_index`
    CONTROL_WIRE = 43                # WireOrder* of lifecycle/wires.pxd in `reload`, about the worker `from_index`
    CONTROL_RELOAD_OVER = 22         # the clients that wait for a reload go on
    CONTROL_BRIDGE = 21               # reload of bridges: BridgeCommand* of bridge_state.pxd
    CONTROL_ROLES = 20              # `swap`: n_swap new Roles, one for each security, NULL = unchanged; the loop puts the old ones there
    CONTROL_FREEZE = 26              # freeze the loop after this turn, for a handover
    # wait until it is frozen: fd = the memory file, out gets the descriptors of the connections, stats gets HandoverCounts. With an error, out gets
    # the reason, and the loop goes on
    CONTROL_FROZEN = 27
    CONTROL_THAW = 28                # the frozen loop goes on
    CONTROL_LEAVE = 29               # another process has everything: the frozen loop ends
    CONTROL_ATTACH = 23              # take the store of the Durable* `reload` into use, with all that the broker has now
    # table of sessions from `cursor` on (0 = begin; afterwards 0 = complete): out gets records, left_out = subscriptions that are missing
    CONTROL_SUBSCRIPTIONS = 7
    CONTROL_TRACE = 24              # begin a trace: TraceSpec* of core/trace_state.pxd in `reload`
    CONTROL_TRACE_STOP = 25         # end the trace `left_out`; result 1: there is none
    CONTROL_SESSIONS = 8            # sessions from `cursor` on, about `from_index` of them: out gets records of inspect.pyx
    # the session of client id `text`: its record, and its subscriptions from from_index on; left_out = how many more
    CONTROL_SESSION = 9
    CONTROL_OBSERVED = 10           # out gets the struct Observed without its probes; nothing if nothing is observed
    CONTROL_STREAMS = 11            # out gets a record of each stream, see observations.pyx
    CONTROL_HOT = 12                # out gets the sketch HOT_... `from_index`, see hot.pyx; nothing if nothing is observed
    CONTROL_SLOW = 13               # sessions from `cursor` on: out gets the clients above the limits in `stats`, which gets sums; see hot.pyx
    CONTROL_DROPS = 14              # out gets the example of each reason of drops, see observations.pyx
    CONTROL_WHOLE = 40              # of a worker: out gets the figures of all workers, see whole.pyx
    CONTROL_LINKS = 41              # out gets a struct LinkFigures of each other worker, see links.pyx
    CONTROL_LISTENER_DROPS = 15     # out gets the drops of the broker and of each listener by reason, see observations.pyx

cdef enum:
    CLIENTS_SLICE = 1000        # pool positions, or sessions, per request
    SUBSCRIPTIONS_SLICE = 1000  # approximate number of subscriptions and buckets per request
    SUBSCRIPTIONS_OF_ONE = 1000  # largest number of subscriptions of one session; the others are counted
    SUBSCRIPTIONS_BYTES = 1 << 18   # largest size of the subscriptions of one session

ctypedef struct ControlRequest:
    ControlRequest* next
    int32_t kind
    int32_t done
    int32_t result              # 0 = done; otherwise errno, or 1 = not found
    int32_t fd
    void* reload                # Reload* of reload.pxd, BridgeCommand* of bridge_state.pxd, Durable* of durable.pxd, or WireOrder* of lifecycle/wires.pxd
    Roles** swap
    uint32_t n_swap
    uint8_t* text               # kick: client id
    uint32_t text_n
    uint32_t from_index
    uint32_t next_index
    uint8_t* out                # allocated with malloc by the loop; the requesting thread frees it
    uint32_t out_n
    uint32_t out_cap
    uint32_t cursor
    uint64_t left_out
    uint64_t stats[STATS_N]     # by STAT_... of core/stats.pxd
