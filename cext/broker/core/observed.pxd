# What the broker measures while `observe_messages` asks for it: histograms of waits, and sketches of hot names. See routing/observe.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.histogram cimport Histogram, histogram_add
from cext.base.sketch cimport Sketch
from cext.broker.core.broker cimport Broker

cdef enum:
    OBSERVED_FLUSH = 0          # a message's arrival until it is sent to a subscriber, by the QoS of the delivery: three histograms
    OBSERVED_COMMIT = 3         # first record of a batch until the batch is on disk
    OBSERVED_TURN = 4           # length of a turn, without the wait for events
    OBSERVED_HANDSHAKE = 5      # first bytes of a TLS connection until its handshake is complete
    OBSERVED_MATCH = 6          # match of one topic
    OBSERVED_N = 7

cdef enum:
    PROBES_MAX = 64             # messages that are followed at the same time

ctypedef struct Probe:          # a delivery that is followed until it is sent
    uint64_t arrived_us
    uint32_t client             # slab handle of the subscriber's client
    uint32_t generation
    uint32_t position           # QoS 1 and 2: position in the session's queue
    uint8_t qos

cdef enum:
    # sketches of the sampled messages
    HOT_TOPICS = 0
    HOT_PUBLISHERS = 1          # by client id
    HOT_RECEIVERS = 2           # by client id; each delivery counts
    HOT_DELAYS = 3              # longest time from arrival to flush by client id, in microseconds
    HOT_N = 4
    HOT_WINDOW_US = 30_000_000

ctypedef struct HotWindow:
    Sketch of_what[4]           # HOT_N

ctypedef struct Hot:
    # the counts of this window and of the one before; a window begins at a multiple of HOT_WINDOW_US of the monotonic clock
    HotWindow windows[2]
    uint32_t now                # place of this window in `windows`
    uint64_t number             # number of this window since the clock's zero
    uint64_t since_us           # nothing was counted before

ctypedef struct Observed:
    uint32_t period             # one message in this many is observed; 0 = none
    uint64_t dice
    Histogram at[7]             # OBSERVED_N
    Probe probes[64]            # PROBES_MAX; the first n_old are older than this turn
    uint32_t n_probes
    uint32_t n_old
    uint64_t look_again_us      # the older probes are examined again at this time
    uint64_t lost               # probes without a result: the subscriber left, or its queue dropped the delivery
    uint64_t passed_over        # messages that were not followed, because all probes were taken
    Hot* hot                    # NULL: no memory for it


cdef inline Observed* observed_of(const Broker* b) noexcept nogil:
    return <Observed*>b.observed


cdef inline void observe(const Broker* b, int what, uint64_t ns) noexcept nogil:
    if b.observed != NULL and observed_of(b).period:
        histogram_add(&observed_of(b).at[what], ns)
