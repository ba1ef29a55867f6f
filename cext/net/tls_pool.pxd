# The threads that run handshakes. See tls_pool.pyx.
from libc.stdint cimport uint8_t, uint32_t
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
    LANES = 256                 # addresses share this many lanes
    POOL_THREADS_MAX = 16
    LANE_ORDERED_MAX = 32       # while more handshakes than this wait in a lane, its newest is taken first

cdef enum:
    # Handshake.place
    PLACE_LOOP = 0              # the loop owns the handshake
    PLACE_LANE = 1              # waits for its first step
    PLACE_LATER = 2             # waits for another step
    PLACE_THREAD = 3            # a thread works on it
    PLACE_DONE = 4              # waits for the loop

cdef enum:
    # Handshake.result
    STEP_MORE = 0               # the peer's next bytes are needed
    STEP_COMPLETE = 1
    STEP_ENDED = 2              # the peer ended it in order
    STEP_FAILED = 3

ctypedef struct Handshake
ctypedef void (*step_fn)(Handshake* h) noexcept nogil

ctypedef struct Handshake:      # a handshake that has begun. `place` and the links of lists belong to the pool's lock.
    Handshake* before           # neighbours in one of the pool's lists
    Handshake* next
    Handshake* older            # neighbours among the handshakes of the lane; loop only
    Handshake* newer
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
    uint8_t lane
    uint8_t away                # loop only: 1 = the pool has it
    uint8_t ready               # loop only: 1 = a step is complete, and the loop has not used its result
    uint8_t begun               # loop only: 1 = counted in its lane

ctypedef struct List:
    Handshake* first
    Handshake* last
    uint32_t n

ctypedef struct Lane:
    List waiting
    uint8_t listed              # 1 = in the ring
    uint8_t next                # next lane in the ring
    # loop only: all handshakes that began and did not end
    Handshake* oldest
    Handshake* newest
    uint32_t n_begun

ctypedef struct Pool:
    pthread_mutex_t lock
    pthread_cond_t work
    step_fn step
    Lane lanes[256]             # size is LANES
    List later
    List done
    HashKey key
    uint32_t ring_n             # lanes with handshakes, from ring_first to ring_last
    uint8_t ring_first
    uint8_t ring_last
    uint8_t stopping
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
cdef uint8_t pool_lane(const Pool* p, const Conn* c) noexcept nogil
# Count a handshake that begins or ends in its lane; loop only.
cdef void lane_enter(Pool* p, Handshake* h) noexcept nogil
cdef void lane_leave(Pool* p, Handshake* h) noexcept nogil
