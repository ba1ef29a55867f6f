# What a plugin is to decide about a session: verdicts that are known, and deliveries that wait for one. See gate.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.view cimport View
from cext.broker.ask cimport Question
from cext.broker.broker cimport Broker, Publication
from cext.session.message cimport Message
from cext.session.session cimport Session

cdef enum:
    ACL_SUBSCRIBE = 4           # kinds of access beside ACL_READ and ACL_WRITE, as the control plane numbers them
    ACL_UNSUBSCRIBE = 8

cdef enum:
    DECISIONS = 64              # verdicts kept per session
    DECISION_WAYS = 4           # places that one may lie at
    DECISION_TOPIC_MAX = 512    # bytes; verdicts on longer topics are not kept
    HELD_MAX = 1000             # deliveries that wait, where max_queued_messages sets no limit

cdef enum:
    # of a delivery that waits
    H_ASKED = 0                 # may it be read?
    H_CHANGED = 1               # how does a plugin change it?
    H_READY = 2
    H_DROPPED = 3

ctypedef struct Decision:
    uint64_t hash               # 0: free
    uint8_t* topic
    uint32_t n
    uint8_t access
    uint8_t allowed

ctypedef struct Held:
    Message* message            # a reference
    uint64_t hash               # of its topic
    uint64_t group              # with `shared`: the group that it came through
    uint32_t sub_id
    uint8_t qos
    uint8_t retain
    uint8_t shared
    uint8_t state

ctypedef struct Gate:
    Decision decisions[64]      # DECISIONS
    uint32_t epoch              # in which they are true
    uint32_t next_way
    Held* ring                  # capacity mask + 1
    uint32_t mask
    uint32_t head
    uint32_t tail
    uint64_t bytes

# 1: yes, 0: no, -1: nobody knows yet
cdef int gate_verdict(Broker* b, Session* s, View topic, uint8_t access) noexcept nogil
cdef void gate_learn(Broker* b, Session* s, View topic, uint8_t access, bint allowed) noexcept nogil
# What an answer means: 1 yes, 0 no; -1 (no opinion): what the rules say, or no without any.
cdef bint gate_settled(Broker* b, Session* s, View topic, uint8_t access, int verdict) noexcept nogil
# May it go out now? 0: yes. 1: it was taken, or dropped.
cdef bint gate_takes(Broker* b, Session* s, Publication* p, uint8_t qos, uint8_t retain, const uint32_t* sub_ids, uint32_t n_sub_ids) noexcept nogil
cdef void gate_answered(Broker* b, Question* q, int allowed) noexcept nogil      # to Q_ACL about a delivery
cdef void gate_changed(Broker* b, Question* q, Message* m, bint keep) noexcept nogil     # to Q_MESSAGE_OUT; keep 0: dropped
# The first of those that wait, when its fate is known; NULL: none. The caller takes over its message.
cdef bint gate_next(Session* s, Held* out) noexcept nogil
cdef void gate_renew(Broker* b, Session* s) noexcept nogil       # another client, perhaps another user: everything is asked anew
cdef void gate_clear(Broker* b, Session* s) noexcept nogil       # drops what waits
cdef void gate_free(Broker* b, Session* s) noexcept nogil

cdef inline uint32_t gate_held(const Session* s) noexcept nogil:
    return (<Gate*>s.gate).tail - (<Gate*>s.gate).head if s.gate != NULL else 0
