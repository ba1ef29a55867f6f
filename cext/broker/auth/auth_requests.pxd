# Questions to the control plane: what the loop asks, who waits for it, and the answers. See ask.pyx.
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from cext.base.slab cimport SlabItem
from cext.base.view cimport View
from cext.base.wheel cimport Timer
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.listener cimport Security
from cext.session.message cimport Message
from cext.session.session cimport Session

cdef enum:
    AUTH_RING_BYTES = 4 << 20    # of requests that the control plane has not read; twice, as it reads one half while the other fills
    AUTH_FIELDS_MAX = 10
    AUTH_FIELD_NONE = 0xFFFFFFFFu      # length of a field that is not there
    ANSWERS_PER_TURN = 200

cdef enum:
    ASK_CONNECT = 1               # may this client in? Also each further step of an exchange [v5 4.12]
    ASK_AUTH = 2                  # both keep their handle over an exchange: its steps are told by it
    ASK_ACL = 3
    ASK_MESSAGE_IN = 4
    ASK_MESSAGE_OUT = 5
    ASK_EVENT = 6                 # no answer, no Question
    ASK_PUBLISH = 7               # an answer that nobody asked for: the control plane publishes
    ASK_BRIDGE = 20                 # no answer, no Question: what became of a link
    ASK_KICK_USERS = 10                 # an answer that nobody asked for: users are to be disconnected, after what was answered before
    ASK_WAIT = 8                  # no answer yet: the log-in stands in the control plane's own queue, and has so many seconds more
    ASK_CONTROL = 9               # a PUBLISH to a topic of the control plane's; its handle is the client's own. As a Question: it waits for room

cdef enum:
    # what an answer to ASK_ACL, ASK_MESSAGE_OUT is for
    FOR_PACKET = 0              # the client's packet that waits
    FOR_DELIVERY = 1            # deliveries that wait at the session's gate
    FOR_WILL = 2
    FOR_LATER = 3               # nothing waits: it will be known when it is needed

ctypedef struct AuthRequest:
    SlabItem slab               # its handle
    uint8_t kind
    uint8_t purpose
    uint8_t access
    uint8_t qos
    uint8_t retain
    uint8_t queued              # in the list of those that found no room
    uint8_t is_open             # asked and not answered
    uint8_t reauth              # of ASK_AUTH: of a client that is connected
    uint32_t item               # which filter of the packet, or which delivery that waits
    uint32_t turn               # of the session then: the client that it is asked for
    uint32_t epoch              # of the rules then
    uint32_t client_index       # whose packet waits; generation 0: nobody's
    uint32_t client_generation
    Session* session            # whose delivery or will it is; counted in session.jobs
    Message* message            # a reference, or NULL
    AuthRequest* prev
    AuthRequest* next
    Timer timer
    uint8_t* bytes              # owned: the topic, or what an AUTH packet holds
    uint32_t n

ctypedef struct AuthRequestHead:        # of a record in the ring; n_fields times a length and so many bytes follow
    uint32_t total              # bytes, this included
    uint8_t kind
    uint8_t a
    uint8_t b
    uint8_t c
    uint64_t handle
    uint32_t security
    uint32_t n_fields

ctypedef struct AuthAnswer:         # one block of malloc's, its bytes behind it
    AuthAnswer* next
    uint64_t handle
    uint8_t kind                # ASK_CONNECT, ASK_ACL, ASK_MESSAGE_IN, ASK_MESSAGE_OUT, ASK_PUBLISH, ASK_WAIT, ASK_CONTROL, ASK_KICK_USERS
    uint8_t qos
    uint8_t retain
    int32_t verdict             # connect: the reason code, or -1: allow_anonymous decides; publish: seconds until it expires, 0: never; wait: seconds; acl: 1 yes, 0 no, -1 no opinion; message: 1 take, 0 drop
    View text                   # user name, topic; p NULL: none
    View bytes                  # authentication data, payload
    View extra                  # correlation data

cdef int auth_requests_init(Broker* b) noexcept nogil
cdef void auth_requests_fini(Broker* b) noexcept nogil             # questions must have ended
cdef void auth_requests_open(Broker* b) noexcept nogil
cdef void auth_requests_close(Broker* b) noexcept nogil

# The loop's side. A question without its due answer times out (TIMER_AUTH_REQUEST). NULL: no memory.
cdef AuthRequest* auth_request_new(Broker* b, int kind, Client* c, Session* s, Message* m) noexcept nogil
cdef int auth_request_bytes(AuthRequest* q, View v) noexcept nogil          # copies; v.p NULL: nothing; -1: no memory
cdef void auth_request_send(Broker* b, AuthRequest* q) noexcept nogil       # now, or as soon as there is room; may be sent again when answered
cdef void auth_request_answered(Broker* b, AuthRequest* q) noexcept nogil   # it may be asked again; its handle stays
cdef void auth_request_end(Broker* b, AuthRequest* q) noexcept nogil        # frees it; answers to it are stale from now on
cdef void client_auth_request_end(Broker* b, Client* c) noexcept nogil   # the client's own; no-op without one
cdef inline uint64_t auth_request_handle(const AuthRequest* q) noexcept nogil:
    return <uint64_t>q.slab.index << 32 | q.slab.generation

cdef AuthRequest* auth_request_of(Broker* b, uint64_t handle) noexcept nogil    # NULL: stale
cdef Client* auth_request_client(Broker* b, AuthRequest* q) noexcept nogil  # NULL: gone
cdef void auth_requests_flush(Broker* b) noexcept nogil                  # those that found no room
cdef uint32_t auth_requests_pending(Broker* b) noexcept nogil
cdef AuthRequest* auth_requests_at(Broker* b, uint32_t i) noexcept nogil    # for each i below auth_requests_end
cdef uint32_t auth_requests_end(Broker* b) noexcept nogil
cdef void event_post(Broker* b, Security* security, int event, View id, View user, View detail) noexcept nogil
cdef bint bridge_event_post(Broker* b, View name, int event, View detail) noexcept nogil      # 0: there is no room now
# What a client published to a topic of the control plane's; 0: there is no room for it now. A Question of the kind waits until there is.
cdef bint control_post(Broker* b, Client* c, View topic, View payload, View correlation) noexcept nogil
cdef inline uint64_t client_handle(const Client* c) noexcept nogil:
    return <uint64_t>c.slab.index << 32 | c.slab.generation

cdef AuthAnswer* answers_next(Broker* b) noexcept nogil                  # the caller frees it; NULL: none

cdef enum:
    EVENT_CONNECTED = 0
    EVENT_DISCONNECTED = 1
    EVENT_SUBSCRIBED = 2
    EVENT_UNSUBSCRIBED = 3

# The control plane's side: any thread
cdef const uint8_t* auth_requests_swap(Broker* b, uint32_t* n) noexcept nogil   # as log_swap; one reader
cdef void answers_post(Broker* b, AuthAnswer* first, AuthAnswer* last) noexcept nogil    # taken over
