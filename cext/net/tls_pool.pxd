# The threads that run handshakes. See tls_pool.pyx.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from cext.base.hash cimport HashKey
from cext.net.conn_state cimport Conn, Transport

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass

cdef enum:
    LANE_BUCKETS = 1024
    POOL_THREADS_MAX = 16
    LIGHT_STEPS_IN_A_ROW = 2    # while a handshake waits whose private-key operation is still to come

cdef enum:
    # Handshake.place. The first two are also the place of a queue in Lane.queues, and of a ring in Pool.rings.
    PLACE_HEAVY = 0             # waits for a step that may contain a private-key operation
    PLACE_LIGHT = 1             # waits for a step after it
    PLACE_LOOP = 2              # the loop owns the handshake
    PLACE_THREAD = 3            # a thread works on it
    PLACE_DONE = 4              # waits for the loop

cdef enum:
    # Handshake.result
    STEP_MORE = 0               # the peer's next bytes are needed
    STEP_COMPLETE = 1
    STEP_ENDED = 2              # the peer ended it in order
    STEP_FAILED = 3

ctypedef struct Handshake
ctypedef struct Lane
ctypedef struct Queue
ctypedef void (*step_fn)(Handshake* h) noexcept nogil

ctypedef struct Handshake:      # a handshake that has begun. `place` and the links of lists belong to the pool's lock.
    Handshake* before           # neighbours in one of the pool's lists
    Handshake* next
    Handshake* older            # neighbours among the handshakes of the lane that wait for their peer; loop only
    Handshake* newer
    Lane* lane                  # changed by the loop only; NULL = outbound, or closed
    Conn* conn                  # loop only; NULL = closed while a thread had the handshake
    void* tls                   # Tls of the connection
    const void* method          # BIO_METHOD for its SSL
    # While `place` is not PLACE_LOOP, the pool owns the fields below, and SSL, Peer and Records of the connection.
    uint8_t* received           # input that OpenSSL has not read yet: received_n bytes from received_off
    uint32_t received_off
    uint32_t received_n
    uint32_t received_cap
    uint32_t given              # bytes of whole records at the front of received, which OpenSSL may read
    uint8_t* out
    uint32_t out_n
    uint32_t out_cap
    char* errors                # lines for the log; NULL = none
    uint32_t n_steps
    Transport account           # `memory`: bytes that OpenSSL has allocated in the steps
    uint8_t result
    uint8_t place
    uint8_t light               # 1 = our flight is written with its signature: no private-key operation follows
    uint8_t away                # loop only: 1 = the pool has it
    uint8_t ready               # loop only: 1 = a step is complete, and the loop has not used its result
    uint8_t idle                # loop only: 1 = waits for its peer since idle_s
    int64_t idle_s              # loop only
    uint64_t begun_us           # loop only

ctypedef struct List:
    Handshake* first
    Handshake* last
    uint32_t n

ctypedef struct Queue:          # handshakes of a lane that wait for a thread, the oldest first
    List waiting
    Queue* before               # neighbours in the ring; the queue is in it while a handshake waits
    Queue* next

ctypedef struct Ring:           # the queues of all lanes, in the order in which they are served
    Queue* first
    Queue* last

ctypedef struct Lane:           # the handshakes of one network that began and did not end; exists while there is one
    Queue queues[2]             # PLACE_HEAVY, PLACE_LIGHT; these belong to the pool's lock, the other fields to the loop
    Lane* next                  # in the bucket
    uint64_t network            # keyed hash of the network
    Handshake* oldest           # of those that wait for their peer
    Handshake* newest
    uint32_t n_begun

ctypedef struct Pool:
    pthread_mutex_t lock
    pthread_cond_t work
    step_fn step
    Ring rings[2]               # PLACE_HEAVY, PLACE_LIGHT
    List done
    uint32_t light_steps        # light steps since the last heavy one
    uint8_t stopping
    Lane* lanes[1024]           # loop only; size is LANE_BUCKETS
    HashKey key
    int event_fd                # readable while `done` is not empty
    uint32_t n_threads          # 0 = the caller runs each step
    pthread_t threads[16]       # size is POOL_THREADS_MAX

# Return 0 or errno. step: runs one step of a handshake, in a thread of the pool.
cdef int pool_init(Pool* p, uint32_t n_threads, step_fn step) noexcept nogil
# Stop the threads. The handshakes in the lists stay allocated; pool_take returns them.
cdef void pool_stop(Pool* p) noexcept nogil
cdef void pool_fini(Pool* p) noexcept nogil
# Return the number of threads for `wanted`; -1 = by the number of processors.
cdef uint32_t pool_threads(int wanted) noexcept nogil
# Give a handshake to the threads.
cdef void pool_put(Pool* p, Handshake* h) noexcept nogil
# Take back a handshake that no thread has begun. Return 0 if one has; then it will be in `done`.
cdef bint pool_cancel(Pool* p, Handshake* h) noexcept nogil
# Return the next handshake whose step is complete; NULL = none.
cdef Handshake* pool_take(Pool* p) noexcept nogil
# Return any handshake of the stopped pool; NULL = none.
cdef Handshake* pool_rest(Pool* p) noexcept nogil
# Functions of the loop only, for connections from outside.
# Return the lane of the connection's network, a new one if it has none; NULL = no memory.
cdef Lane* lane_of(Pool* p, const Conn* c) noexcept nogil
# Count a handshake that begins or ends in its lane. The lane is freed with its last handshake.
cdef void lane_enter(Lane* lane, Handshake* h) noexcept nogil
cdef void lane_leave(Pool* p, Handshake* h) noexcept nogil
# Note that a handshake waits for its peer from now on, or no longer.
cdef void lane_idle(Handshake* h, int64_t now_s) noexcept nogil
cdef void lane_busy(Handshake* h) noexcept nogil
