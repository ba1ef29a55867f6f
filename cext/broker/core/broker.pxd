# The root of all state: each broker has one Broker, so several can exist in one process.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from cext.base.hash cimport HashKey
from cext.base.slab cimport Slab
from cext.base.wheel cimport Timer, Wheel
from cext.broker.core.client_state cimport Client
from cext.broker.core.job_state cimport Job, Merge
from cext.broker.core.handover_state cimport HandoverTotals
from cext.broker.core.listener cimport Listener, Security
from cext.broker.core.log cimport Log
from cext.broker.core.settings cimport Settings
from cext.broker.core.stats cimport Average, SYS_LOADS_N, Stats
from cext.net.conn_state cimport Reactor, input_fn
from cext.session.message cimport Messages
from cext.session.session cimport Session, Sessions
from cext.topic.index cimport Index
from cext.topic.match cimport Match
from cext.topic.retained cimport Retained

ctypedef struct Broker

# The functions of the replay room that lower rooms call. The loop sets them at the start.
ctypedef struct ReplayOps:
    bint (*discard)(Broker* b) noexcept nogil                   # frees what was read for slow readers; 0 = there was nothing
    void (*unblock)(Broker* b, Session* s) noexcept nogil       # called when the session has room, has another client, or has ended

# The functions of traces that lower and later rooms give each other. The loop sets them at the start; they are called while there is a trace.
ctypedef struct TraceOps:
    void (*sent)(Broker* b, Client* c, const uint8_t* p, uint32_t n) noexcept nogil     # a whole small packet was written to the client
    input_fn input                                              # the reactor's function for input

ctypedef struct NewcomerNetwork:
    # the newcomers of the source networks that have one hash, from the oldest to the newest, as positions in the slab + 1; 0: none
    uint64_t bytes                      # memory that they are counted as
    uint32_t n
    uint32_t first
    uint32_t last
    uint32_t first_met                  # number of the first one

ctypedef struct Broker:
    Reactor reactor
    Wheel wheel
    Settings settings
    HashKey key
    HashKey names_key                # key of client id hashes; with a store the same in each process, because records of messages contain such hashes
    Index* index
    Retained* retained
    Sessions sessions
    Messages messages
    Slab clients
    Match match
    Stats stats
    Log log
    Security** securities               # the first is that of adopted connections
    uint32_t n_securities
    Listener** listeners                        # in the order of the control plane's list
    uint32_t n_listeners
    Listener* adopted                       # listener of connections without a listener of their own
    Listener* gone                          # listeners that a reload has removed
    Security* gone_securities
    Security* denied                        # denies everything: rules of sessions and messages whose listener does not exist any more
    Job* jobs
    Job* jobs_tail
    uint8_t jobs_rest                   # 1: all jobs wait for memory
    Job* spare_fanout                   # job for the rest of a fan-out that finds no memory, see fanout_spare; NULL: none
    Client* doomed
    uint32_t kicks                      # number of kick commands since the start
    uint32_t kicks_open
    uint32_t recheck_at                 # clients from this slab position on have not been checked against the reloaded certificates
    bint rechecks
    bint wills_restored                 # 1: wills of restored sessions remain to be sent, and CONNECT packets wait
    uint32_t wills_cursor               # place in the table of sessions, for the next slice of them
    uint64_t work                       # appends since the start, with sends weighed in
    uint64_t turn_work_max              # largest work of one turn since the start, and the longest turn
    uint64_t turn_us_max
    uint64_t turn_limit                 # value of `work` at which this turn's budget is used up; see turn.pxd
    uint8_t* shape_bytes
    Merge merge                         # merge of the fan-outs that end in one turn
    uint64_t merging_bytes              # bytes of the merges of sliced fan-outs
    uint64_t fanout_bytes               # bytes of the lists that they remember
    uint64_t cursor_bytes               # bytes read from streams for slow clients
    uint64_t groups_met                 # id of the newest shared group
    uint64_t dice                       # state of the random strategy
    uint8_t* scratch                    # grows to the size that one packet needs; shrinks when idle
    uint32_t scratch_cap
    int64_t descriptors_warned_s
    int fd_limit                        # new connections get descriptors below this one; 0: not read from the system yet
    int fd_first                        # lowest free descriptor when the loop started
    NewcomerNetwork newcomer_networks[512]  # NEWCOMER_NETWORKS: connections that have not logged in, see newcomers.pyx
    uint32_t newcomers_n
    uint32_t newcomers_met              # number of all newcomers so far
    uint64_t newcomers_bytes            # memory of all newcomers, OpenSSL's included
    int statm_fd                        # the system's count of the process's memory, see resident.pyx; -1: not watched
    uint64_t resident                   # bytes when it was last read
    uint64_t resident_counted           # counted bytes at that time: growth since then is known without another look
    uint64_t shed_next_ms               # see lifecycle/shed.pyx
    uint64_t resident_first             # bytes when the loop started
    uint64_t resident_next_ms           # it is read again at this time, or after this much input, or this many connections
    uint64_t resident_next_bytes
    uint64_t resident_next_accepted
    uint64_t heap_max                   # largest heap_bytes at the end of a turn since the start
    uint64_t heap_peak                  # most counted bytes since free pages were last returned to the system
    uint64_t trim_next_ms
    int64_t memory_warned_s
    bint memory_refused                 # 1: something was refused for memory_limit since the last look
    int64_t newcomers_warned_s
    uint8_t moves                       # 1: this worker stops here and starts at another node, so its clients get 0x9C instead of 0x8B
    uint32_t stopping                   # 0: the loop runs; otherwise STOP_... of handover_state.pxd
    uint64_t started_ms
    int64_t started_s
    Timer sys_timer
    uint64_t sys_next_s
    Average loads[SYS_LOADS_N]
    void* sys                           # Sys*: last published values, see admin/sys.pyx
    TraceOps trace
    void* tracing                       # Tracing* of trace_state.pxd; NULL: there was no trace yet
    void* durable                       # Durable* of durable.pxd; NULL: no store
    ReplayOps replay
    void* streams                       # Streams* of streams.pxd; NULL: none
    void* accounts                      # Accounts* of accounts.pxd; NULL: no stream has events
    void* mailbox
    void* auth_requests                        # requests to the control plane, see auth/auth_requests.pyx
    void* bridges                         # Bridges* of bridge_state.pxd; NULL: none
    uint8_t reload_held                 # 1: a reload is under way; read and written by two threads, see lifecycle/reload_hold.pyx
    int reload_signal                   # number of the signal for a reload; 0: none holds CONNECT packets
    uint64_t reload_hold_ms             # when the first CONNECT began to wait; 0: none waits
    Timer reload_hold_timer
    uint32_t access_epoch               # number of the rules in force; a reload increments it and so makes remembered verdicts invalid
    uint8_t auth_requests_unread                  # 1: the loop wakes the reader at the end of the turn
    uint8_t answers_due                 # 1: there may be answers
    Timer denied_timer                  # armed while denials are counted
    uint32_t denied_n                   # denials in the current second
    void* observed                      # Observed* of observed.pxd; NULL: nothing was observed yet
    uint64_t observe_at                 # number of received PUBLISH packets at which a message is observed; the maximum: never
    uint8_t observes                    # 1 while an observed message is routed
    void* drop_examples                 # DropExample* of persist/drop_examples.pxd; NULL: there was no drop yet
    void* log_rates                     # LogRates* of log_rate.pxd; NULL: no line was counted yet
    Timer log_rates_timer               # armed while lines are counted
    void* links                         # BrokerLinks* of link_state.pxd; NULL: the broker is alone
    void* workers                       # Workers* of workers.pxd; NULL: the broker is alone
    void* handover                      # Handover* of handover_state.pxd while the loop is frozen; NULL: it runs
    uint64_t arrived_us                 # monotonic time at which the process before froze; 0: this one has not taken over, or has begun
    HandoverTotals handovers
