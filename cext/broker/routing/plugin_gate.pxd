# What a plugin is to decide about a session: verdicts that are known, and deliveries that wait for one. See gate.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.view cimport View
from cext.broker.auth.auth_requests cimport AuthRequest
from cext.broker.core.broker cimport Broker
from cext.broker.core.publication_state cimport Publication
from cext.session.message cimport Message
from cext.session.session cimport Session

cdef enum:
    ACL_SUBSCRIBE = 4           # kinds of access beside ACL_READ and ACL_WRITE, as the control plane numbers them
    ACL_UNSUBSCRIBE = 8

cdef enum:
    DECISIONS = 64              # verdicts kept per session
    DECISION_WAYS = 4           # places that one may lie at
    DECISION_TOPIC_MAX = 512    # bytes; verdicts on longer topics are not kept
    GATED_MAX = 1000             # deliveries that wait, where max_queued_messages sets no limit

cdef enum:
    # of a delivery that waits
    GATED_ASKED = 0                 # may it be read?
    GATED_TRANSFORMING = 1               # how does a plugin change it?
    GATED_READY = 2
    GATED_DROPPED = 3

ctypedef struct Decision:
    uint64_t hash               # 0: free
    uint8_t* topic
    uint32_t n
    uint8_t access
    uint8_t allowed

ctypedef struct GatedDelivery:
    Message* message            # a reference
    uint64_t hash               # of its topic
    uint64_t group              # with `shared`: the group that it came through
    uint32_t sub_id
    uint8_t qos
    uint8_t retain
    uint8_t shared
    uint8_t state

ctypedef struct PluginGate:
    Decision decisions[64]      # DECISIONS
    uint32_t epoch              # in which they are true
    uint32_t next_way
    GatedDelivery* ring                  # capacity mask + 1
    uint32_t mask
    uint32_t head
    uint32_t tail
    uint64_t bytes

# 1: yes, 0: no, -1: nobody knows yet
cdef int plugin_gate_verdict(Broker* b, Session* s, View topic, uint8_t access) noexcept nogil
cdef void plugin_gate_learn(Broker* b, Session* s, View topic, uint8_t access, bint allowed) noexcept nogil
# What an answer means: 1 yes, 0 no; -1 (no opinion): what the rules say, or no without any.
cdef bint plugin_gate_settled(Broker* b, Session* s, View topic, uint8_t access, int verdict) noexcept nogil
# May it go out now? 0: yes. 1: it was taken, or dropped.
cdef bint plugin_gate_takes(Broker* b, Session* s, Publication* p, uint8_t qos, uint8_t retain, const uint32_t* sub_ids, uint32_t n_sub_ids) noexcept nogil
cdef void plugin_gate_answered(Broker* b, AuthRequest* q, int allowed) noexcept nogil      # to ASK_ACL about a delivery
cdef void plugin_gate_changed(Broker* b, AuthRequest* q, Message* m, bint keep) noexcept nogil     # to ASK_MESSAGE_OUT; keep 0: dropped
# The first of those that wait, when its fate is known; NULL: none. The caller takes over its message.
cdef bint plugin_gate_next(Session* s, GatedDelivery* out) noexcept nogil
cdef void plugin_gate_renew(Broker* b, Session* s) noexcept nogil       # another client, perhaps another user: everything is asked anew
cdef void plugin_gate_clear(Broker* b, Session* s) noexcept nogil       # drops what waits
cdef void plugin_gate_free(Broker* b, Session* s) noexcept nogil

cdef inline PluginGate* session_plugin_gate(const Session* s) noexcept nogil:       # NULL = nothing waits, no verdict is known
    return <PluginGate*>s.plugin_gate

cdef inline uint32_t plugin_gate_waiting(const Session* s) noexcept nogil:
    return session_plugin_gate(s).tail - session_plugin_gate(s).head if s.plugin_gate != NULL else 0
