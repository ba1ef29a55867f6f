# The root of everything: each broker hangs off one Broker, so that several can live in one process.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from cext.base.hash cimport HashKey
from cext.base.slab cimport Slab
from cext.base.wheel cimport Timer, Wheel
from cext.broker.core.client_state cimport Client
from cext.broker.core.job_state cimport Job, Merge
from cext.broker.core.listener cimport Listener, Security
from cext.broker.core.log cimport Log
from cext.broker.core.settings cimport Settings
from cext.broker.core.stats cimport Average, SYS_LOADS_N, Stats
from cext.net.conn_state cimport Reactor
from cext.session.message cimport Messages
from cext.session.session cimport Session, Sessions
from cext.topic.index cimport Index, Match
from cext.topic.retained cimport Retained

ctypedef struct Broker

# The functions of the replay room that lower rooms call. The loop sets them at the start.
ctypedef struct ReplayOps:
    bint (*discard)(Broker* b) noexcept nogil                   # frees what was read for slow readers; 0 = there was nothing
    void (*unblock)(Broker* b, Session* s) noexcept nogil       # the session has room, has another client, or has ended

ctypedef struct Broker:
    Reactor reactor
    Wheel wheel
    Settings settings
    HashKey key
    HashKey names_key                   # of client ids: with a store the same in each process, since messages on record have such hashes
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
    Listener** listeners                        # by place in the control plane's list
    uint32_t n_listeners
    Listener* adopted                       # of connections without a listener
    Listener* gone                          # whose listeners a reload has removed
    Security* gone_securities
    Job* jobs
    Job* jobs_tail
    Client* doomed
    uint32_t kicks                      # that there ever were
    uint32_t kicks_open
    uint32_t recheck_at                 # clients from here on have not shown their certificate to what a reload made
    bint rechecks
    uint64_t work                       # appends so far, sends weighed in
    uint8_t* shape_bytes
    Merge merge                         # of fan-outs that are done at once
    uint64_t merging_bytes              # held by those in slices
    uint64_t cursor_bytes               # held for those who are slow to read streams
    uint64_t groups_met                 # the last id given to a shared group
    uint64_t dice                       # state of the random strategy
    uint8_t* scratch                    # grows to what one packet needs, shrinks when idle
    uint32_t scratch_cap
    int64_t descriptors_warned_s
    uint32_t stopping
    uint64_t started_ms
    int64_t started_s
    Timer sys_timer
    uint64_t sys_next_s
    Average loads[SYS_LOADS_N]
    void* sys                           # what was last published, see sys.pyx
    void* durable                       # what is to outlive the broker, see durable.pxd; NULL: nothing is
    ReplayOps replay
    void* streams                       # Streams* of streams.pxd; NULL: none
    void* accounts                      # Accounts* of accounts.pxd; NULL: nobody wants events
    void* mailbox
    void* auth_requests                        # questions to the control plane, see ask.pyx
    void* bridges                         # Links* of link.pxd; NULL: none
    uint32_t access_epoch               # begins anew with every reload: what was found out about rules is void
    uint8_t auth_requests_unread                  # the reader should be woken at the end of the turn
    uint8_t answers_due                 # there may be some
    Timer denied_timer                  # armed while denials are counted
    uint32_t denied_n                   # in the last second
