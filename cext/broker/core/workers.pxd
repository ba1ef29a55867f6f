# The state of a broker that is one of several workers of a machine (`cluster_local N`). Broker.workers is NULL in a broker that is alone.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.hash cimport HashKey, hash_bytes
from cext.base.slab cimport SlabItem
from cext.base.view cimport View
from cext.base.wheel cimport Timer
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.link_state cimport LinkConn
from cext.broker.core.listener cimport Listener
from cext.broker.core.stats cimport STATS_N, STREAM_GAUGES
from cext.net.conn_state cimport input_fn

cdef enum:
    WORKERS_MAX = 64
    WORKER_LISTENERS_MAX = 64           # listeners that are counted over all workers
    WIRES_READY = 32                    # connections to each worker on another machine that wait for clients
    WIRES_ARRIVALS = 128                # connections from each of them that wait for the descriptions of clients
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
    # of the place 0: start of the broker. The largest sums that this worker has seen: connected clients, memory
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

ctypedef struct WireEnds:
    # the connections of a worker on another machine: to it, and from it, that wait for clients
    int fds[WIRES_READY]
    uint32_t n
    uint32_t arrivals_n
    LinkConn* arrivals[WIRES_ARRIVALS]
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
    int wires_fd                        # an eventfd: links are wanted, or connections were used
    uint8_t wires_used                  # 1: in this turn
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
# Log a line about this process: that of a worker begins with its number.
cdef void log_own(Broker* b, uint32_t type, const char* text) noexcept nogil
