# Requests from other threads to the loop: posted under a lock, served between turns, answered to a waiting thread.
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from cext.broker.broker cimport Broker
from cext.broker.roles cimport Roles

cdef enum:
    ASK_STOP = 1
    ASK_STATS = 2
    ASK_CLIENTS = 3             # of pool positions [from_index, ...): out gets records, next_index where to go on (0: end)
    ASK_KICK = 4
    ASK_ADOPT = 5
    ASK_RELOAD = 6
    ASK_LINK = 21               # reload: LinkAsk*, of link.pxd
    ASK_ROLES = 20              # `swap`: n_swap new Roles by place of their security, NULL: none; gets the old ones back
    ASK_SUBSCRIPTIONS = 7       # of the table of sessions from `cursor` on (0: begin, end): out gets records, left_out how many are not there
    ASK_SESSIONS = 8            # from `cursor` on, about `from_index` of them: out gets records of inspect.pyx
    ASK_SESSION = 9             # of client id `text`: its record, and its subscriptions from the from_index-th on; left_out: how many more

cdef enum:
    CLIENTS_SLICE = 1000        # pool positions looked at per request
    STATS_N = 80               # at least as many as STATS of engine.pyx has
    SUBSCRIPTIONS_SLICE = 1000  # subscriptions and buckets per request, about
    SUBSCRIPTIONS_OF_ONE = 1000  # of one session at most; the others are counted
    SUBSCRIPTIONS_BYTES = 1 << 18   # of one session at most

ctypedef struct Ask:
    Ask* next
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

cdef int mailbox_init(Broker* b) noexcept nogil
cdef void mailbox_fini(Broker* b) noexcept nogil
# Blocks the calling thread until the loop has answered; -1 when the loop is not running (any more).
cdef int mailbox_ask(Broker* b, Ask* a) noexcept nogil
cdef void mailbox_open(Broker* b) noexcept nogil            # the loop runs from here
cdef void mailbox_close(Broker* b) noexcept nogil           # and no more: whoever waits is let go
cdef void mailbox_serve(void* broker) noexcept nogil        # plain_fn of the reactor
