# A session's plugin gate: remembered verdicts, and deliveries that wait for a verdict of a plugin. See plugin_gate.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.view cimport View
from cext.broker.auth.auth_requests cimport AuthRequest, NativeAccess
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.publication_state cimport Publication
from cext.session.message cimport Message
from cext.session.session cimport Session

cdef enum:
    ACL_SUBSCRIBE = 4           # kinds of access besides ACL_READ and ACL_WRITE, numbered as in the control plane
    ACL_UNSUBSCRIBE = 8

cdef enum:
    DECISIONS = 64              # verdicts remembered per session
    DECISION_WAYS = 4           # places at which one verdict may be stored
    DECISION_TOPIC_MAX = 512    # bytes; verdicts about longer topics are not remembered
    GATED_MAX = 100000           # largest number of waiting deliveries where max_queued_messages sets no limit

cdef enum:
    # states of a gated delivery
    GATED_ASKED = 0                 # an auth request asks whether the session may read it
    GATED_TRANSFORMING = 1               # an auth request asks a plugin to change it
    GATED_READY = 2
    GATED_DROPPED = 3

ctypedef struct Decision:
    uint64_t hash               # 0 = free slot
    uint8_t* topic
    uint32_t n
    uint8_t access
    uint8_t allowed

ctypedef struct GatedDelivery:
    Message* message            # one reference
    uint64_t hash               # hash of the topic
    uint64_t group              # id of the shared group that it came through; valid if `shared`
    uint32_t sub_id
    uint8_t qos
    uint8_t retain
    uint8_t shared
    uint8_t state

ctypedef struct PluginGate:
    Decision decisions[64]      # DECISIONS entries
    uint32_t epoch              # epoch in which the decisions are valid
    uint32_t next_way
    GatedDelivery* ring                  # ring of mask + 1 entries
    uint32_t mask
    uint32_t head
    uint32_t tail
    uint32_t logged             # recorded deliveries have positions below it
    uint64_t bytes

# Return the remembered verdict: 1 = allowed, 0 = denied, -1 = not known.
cdef int plugin_gate_verdict(Broker* b, Session* s, View topic, uint8_t access) noexcept nogil
# The same; a plugin that decides about each message has no remembered verdicts.
cdef int plugin_gate_known(Broker* b, Session* s, View topic, uint8_t access) noexcept nogil
# Return whether the session may read the topic, by the plugin's remembered verdict if a plugin decides, otherwise by the rules: 1, 0, or
# -1 = not known.
cdef int plugin_gate_may_read(Broker* b, Session* s, View topic) noexcept nogil
cdef void plugin_gate_learn(Broker* b, Session* s, View topic, uint8_t access, bint allowed) noexcept nogil
# Return the meaning of a plugin's answer. 1 = allowed, 0 = denied; for -1 (no opinion) the rules decide, and without rules it is
# denied if there is a plugin.
cdef bint plugin_gate_settled(Broker* b, Session* s, View topic, uint8_t access, int verdict) noexcept nogil
# Ask native plugins on the loop about a message (is_native_at_once; native_access): 1, 0, or NATIVE_ASK_OTHERS. c NULL: offline.
cdef int plugin_gate_at_once(Broker* b, Client* c, Session* s, NativeAccess* asked) noexcept nogil
# Return 0 if the publication may be sent now; 1 = the gate has queued or dropped it.
cdef bint plugin_gate_takes(Broker* b, Session* s, Publication* p, uint8_t qos, uint8_t retain, const uint32_t* sub_ids,
                            uint32_t n_sub_ids) noexcept nogil
cdef void plugin_gate_answered(Broker* b, AuthRequest* q, int allowed) noexcept nogil      # answer to an ASK_ACL about a delivery
# answer to ASK_MESSAGE_OUT; keep 0 = the plugin drops the message
cdef void plugin_gate_changed(Broker* b, AuthRequest* q, Message* m, bint keep) noexcept nogil
# the delivery of an ASK_MESSAGE_OUT that no plugin was asked about: take its step again under the configuration in force
cdef void plugin_gate_again(Broker* b, AuthRequest* q) noexcept nogil
# Take the first gated delivery out of the gate if its verdict is known. Returns 0 if there is none. The caller owns its message;
# NULL: a gap that a restart has left.
cdef bint plugin_gate_next(Broker* b, Session* s, GatedDelivery* out) noexcept nogil
# the session has another client, perhaps another user: send all auth requests again
cdef void plugin_gate_renew(Broker* b, Session* s) noexcept nogil
# For the store: note all deliveries that wait; is the delivery at this position still needed; it has a record.
cdef void plugin_gate_record(Broker* b, Session* s) noexcept nogil
cdef bint plugin_gate_needs(const Session* s, uint32_t position) noexcept nogil
cdef void plugin_gate_logged(Session* s, uint32_t position) noexcept nogil
# For recovery: put a delivery into the gate, which plugin_gate_renew asks about; 1 = an impossible position, -1 = no memory. Those before
# a position have left.
cdef int plugin_gate_restore(Broker* b, Session* s, uint32_t position, Message* m, uint8_t qos, uint8_t retain, uint32_t sub_id) noexcept nogil
cdef void plugin_gate_left(Broker* b, Session* s, uint32_t position) noexcept nogil
cdef void plugin_gate_clear(Broker* b, Session* s) noexcept nogil       # drop all gated deliveries
cdef void plugin_gate_free(Broker* b, Session* s) noexcept nogil

cdef inline GatedDelivery* gated_at(PluginGate* g, uint32_t position) noexcept nogil:
    return &g.ring[position & g.mask]

cdef inline PluginGate* session_plugin_gate(const Session* s) noexcept nogil:   # NULL = no delivery waits and no verdict is known
    return <PluginGate*>s.plugin_gate

cdef inline uint32_t plugin_gate_waiting(const Session* s) noexcept nogil:
    return session_plugin_gate(s).tail - session_plugin_gate(s).head if s.plugin_gate != NULL else 0
