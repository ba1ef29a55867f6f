# The state of a broker that is one of several workers of a machine (`cluster_local N`). Broker.workers is NULL in a broker that is alone.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.hash cimport HashKey, hash_bytes
from cext.base.slab cimport SlabItem
from cext.base.view cimport View
from cext.base.wheel cimport Timer
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.listener cimport Listener
from cext.broker.core.stats cimport STATS_N, STREAM_GAUGES
from cext.net.conn_state cimport Address, Conn, ListenSocket, input_fn
from cext.net.ticket cimport TicketKey

cdef enum:
    WORKERS_MAX = 64
    WORKER_LISTENERS_MAX = 64           # listeners that are counted over all workers
    WIRES_DIALS = 1024                  # connections to each worker on another machine that are not open yet; further clients wait
    WIRES_CALLERS = 256                 # connections from other machines that have not proved themselves; with more, the oldest ends
    WORKER_PARTS_MAX = 66               # streams of which all workers have parts, and parts that the first worker has open for retention
    # positions in Figures: the statistics; the processor time in microseconds; drops by listener and reason; what answer_observed
    # writes; messages with a number to each worker, and QoS 0 that the links to it dropped; the gauges of streams; logins that failed, and that were
    # refused by auth_backoff
    FIGURE_CPU_US = STATS_N
    FIGURE_DROPS = STATS_N + 1
    FIGURE_OBSERVED = STATS_N + 1 + WORKER_LISTENERS_MAX * 19           # DROP_REASONS
    FIGURE_LINKS = STATS_N + 1 + WORKER_LISTENERS_MAX * 19 + 2 + 7 * 110        # behind lost, passed over, OBSERVED_N histograms
    FIGURE_STREAMS = STATS_N + 1 + WORKER_LISTENERS_MAX * 19 + 2 + 7 * 110 + 2 * WORKERS_MAX
    FIGURE_LOGINS = FIGURE_STREAMS + WORKER_PARTS_MAX * STREAM_GAUGES
    FIGURES_N = FIGURE_LOGINS + 2

cdef enum:
    # reasons of lines about connections between machines, each of which is logged once in a while for each worker
    WIRE_BAD = 0                # a wrong description of a client
    WIRE_FORGED = 1             # a ticket without the right key
    WIRE_USED = 2               # a ticket for the second time
    WIRE_LATE = 3               # a ticket below the window
    WIRE_FULL = 4               # too many connections without a proof
    WIRE_DIAL = 5               # a connect that failed
    WIRE_REASONS = 6

ctypedef struct Figures:
    # the statistics of the process that has the place, and the counters of those that had it before. Their sum never falls
    uint64_t now[FIGURES_N]
    uint64_t before[FIGURES_N]

ctypedef struct PartEnds:
    # how far the other workers may read a part of a stream that a worker writes
    uint64_t n_shards                   # 0: not open yet
    uint64_t ends[64]                   # JOURNAL_SHARDS_MAX: position behind the last record whose batch is written

ctypedef struct WorkerCounts:
    # what a worker publishes for the limits that count over all workers. In memory that all workers map; each writes only its own place
    uint64_t connections
    uint64_t sessions
    uint64_t of_listener[WORKER_LISTENERS_MAX]
    uint64_t told_ms                    # when it last wrote its figures; 0: the process has ended, and no other one has written yet
    # of the place 0: how many times the parent has noticed SIGHUP
    uint64_t reloads
    # of the place 0: start of the first worker that maps this memory, which writes it. The largest sums that this worker has seen: connected clients, memory
    uint64_t began_ms
    uint64_t clients_max
    uint64_t heap_max
    # the parent fills the other bank when a process has ended, and then names it here; so a reader meets the old or the new one as a whole
    uint64_t bank
    Figures banks[2]
    # of the place 0: keyed hashes of the names of streams; 0: free. A name keeps its number until the broker ends
    uint64_t stream_names[WORKER_PARTS_MAX]
    PartEnds parts[WORKER_PARTS_MAX]    # of the streams that this worker writes, by the number of the name
    uint64_t parts_wanted               # 1: this worker waits for records of streams that the others write

ctypedef struct Passage:
    # the way to another worker for connections that belong there. The passage of this worker receives
    int fd
    SlabItem* waiting                   # handles (index, generation) of the clients that wait to go there, in order; a ring
    uint32_t cap                        # a power of two; 0: none has waited yet
    uint32_t head
    uint32_t tail

ctypedef struct Caller
ctypedef struct Caller:                 # a connection from another machine that has not proved itself
    Conn conn                           # first: the reactor has a pointer to it, with CONN_PEER and CONN_RELAY
    Caller* previous
    Caller* next
    uint64_t due_ms                     # when it must have proved itself

ctypedef struct WireEnds:
    # relays to and from a worker on another machine
    TicketKey out                       # of the clients that are relayed to it; unknown: they wait
    TicketKey ins[2]                    # of those that it relays: of the present proof, and of the one before, whose tickets may be on their way
    Address remote                      # where it accepts connections
    uint32_t scope                      # interface of a link-local IPv6 address
    uint32_t dials                      # connections to it that are not open yet
    uint64_t pause_ms                   # no connection to it is begun before
    uint64_t lines_ms[6]                # WIRE_REASONS: when a line was logged; 0: never. In the place of this worker: about connections of no worker
    uint8_t closes                      # how many times all was closed; a relay that has another number in Client.wire_closes ends

ctypedef struct Workers:
    uint32_t place                      # of this worker, from 0
    uint32_t n
    HashKey key                         # names the worker of a client id; the same in all workers, and unknown to clients
    Passage passages[WORKERS_MAX]
    WorkerCounts* counts                # of all workers
    int news[WORKERS_MAX]               # eventfds of all workers: notices that another one has written records of streams
    uint32_t waiting                    # clients that wait at all passages
    uint64_t remote                     # mask of the workers that are reached over the network (wires.pyx); they have no passage
    WireEnds* wires                     # by place; NULL: all workers are on this machine
    uint64_t links_wanted               # mask of the workers to which the control plane shall open a link
    int wires_fd                        # an eventfd: links are wanted
    ListenSocket calls                  # for connections from other machines; its owner is NULL
    int strangers_fd                    # a SOCK_SEQPACKET socket to the control plane, for those that begin without a ticket; -1: none
    Caller* callers                     # connections that have not proved themselves, the oldest first
    Caller* callers_last
    uint32_t callers_n
    Timer callers_timer                 # until the oldest must have proved itself
    uint8_t relays_walk                 # 1: relays of processes that have ended must end
    uint32_t relays_at                  # position in the slab of clients up to which that is done
    uint32_t halves                     # clients that are halves of relays
    uint32_t dealt                      # TLS connections that were dealt out to the workers
    input_fn input                      # what the reactor and traces call without workers
    input_fn traced
    uint64_t bank                       # WorkerCounts.bank, as long as this process runs
    uint64_t logins[2]                  # of this process: failed, and refused by auth_backoff; the control plane writes them
    Timer figures                       # when this worker writes its figures again
    uint8_t passage_due                 # 1: connections may wait at the own passage
    int parent_status                   # /proc/PARENT/status, with the signals that wait for the parent; -1: it cannot be read
    uint64_t reloads_begun              # WorkerCounts.reloads as the present reload of this worker covers it
    uint64_t reloads_over               # and as the last one has; any thread may write both

cdef inline Workers* workers_of(Broker* b) noexcept nogil:
    return <Workers*>b.workers

# Return the place of the worker to which a client id belongs.
cdef inline uint32_t worker_of_id(const Workers* w, View id) noexcept nogil:
    return <uint32_t>(hash_bytes(&w.key, id.p, id.n) % w.n)

# Return the other half of a relay; NULL if it has ended.
cdef Client* relay_other(Broker* b, const Client* c) noexcept nogil
# One half has ended: end the other one when its output is sent.
cdef void relay_part(Broker* b, Client* c) noexcept nogil
# Return the connections of this worker, without the halves of relays: their clients count where they are served.
cdef uint64_t own_connections(Broker* b) noexcept nogil
# Return what the other workers have: connections, sessions, or connections of a listener. 0 for a broker that is alone.
cdef uint64_t others_connections(Broker* b) noexcept nogil
cdef uint64_t others_sessions(Broker* b) noexcept nogil
cdef uint64_t others_of_listener(Broker* b, const Listener* d) noexcept nogil
# Publish this worker's own numbers, at the end of a turn.
cdef void workers_publish(Broker* b) noexcept nogil
# Return whether a line about a worker is due, WIRE_... is its reason, and note that it comes.
cdef bint wire_line_due(Broker* b, uint32_t place, int reason) noexcept nogil
# Log a line about this process: that of a worker begins with its number.
cdef void log_own(Broker* b, uint32_t type, const char* text) noexcept nogil
