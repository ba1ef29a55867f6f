# The model of a broker around the links of one worker.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.testing.link_world cimport Worker, World

cdef enum:
    ANSWER_NO = 0               # the answer follows
    ANSWER_REFUSED = 1          # 0x97
    ANSWER_BLOCKED = 2          # the worker does not read this client now

cdef void broker_ops(World* g) noexcept nogil
cdef void worker_start(World* g, uint32_t w) noexcept nogil
cdef void worker_kill(World* g, uint32_t w) noexcept nogil
cdef void worker_seal(Worker* w) noexcept nogil
cdef void worker_commit(Worker* w) noexcept nogil
cdef void deliver_long(Worker* w) noexcept nogil                # go on with a delivery that takes several turns
cdef void worker_wills(Worker* w) noexcept nogil                # publish the wills of clients that are gone
cdef bint topic_matches(uint32_t filter, uint32_t topic) noexcept nogil
# Packets of clients.
cdef void on_connect(Worker* w, uint32_t c, uint16_t will) noexcept nogil
cdef void on_gone(Worker* w, uint32_t c, bint clean) noexcept nogil         # clean: the will is removed
cdef int on_publish(Worker* w, uint32_t c, uint32_t pid, uint16_t message) noexcept nogil
cdef int on_pubrel(Worker* w, uint32_t c, uint32_t pid) noexcept nogil
cdef void on_subscribe(Worker* w, uint32_t c, uint32_t filter, uint8_t qos) noexcept nogil
cdef void on_unsubscribe(Worker* w, uint32_t c, uint32_t filter) noexcept nogil
cdef bint deliver_next(Worker* w, uint32_t c) noexcept nogil
cdef uint32_t owner_of(World* g, uint32_t topic) noexcept nogil        # of the retained messages of a topic
