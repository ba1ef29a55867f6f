# Auth requests: the loop's requests to the control plane, the clients that wait for them, and the answers. See auth_requests.pyx.
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.slab cimport SlabItem
from cext.base.view cimport View
from cext.base.wheel cimport Timer
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.listener cimport Security
from cext.session.message cimport Message
from cext.session.session cimport Session

cdef enum:
    AUTH_RING_BYTES = 4 << 20    # bytes of unread requests; allocated twice: the control plane reads one half while the other fills
    AUTH_FIELDS_MAX = 10
    OFFLINE_BIT = 32            # EVENT_DISCONNECTED: bit of the record's handle; the session stays. Below it: the reason
    AUTH_FIELD_NONE = 0xFFFFFFFFu      # length of an absent field
    ANSWERS_PER_TURN = 200
    NOWHERE = 0xFFFFFFFFu       # place of a removed security: auth requests of its sessions may be pending

cdef enum:
    ASK_CONNECT = 1               # may this client log in? Also each further step of an exchange [v5 4.12]
    ASK_AUTH = 2                  # AUTH packet; keeps the handle of the exchange
    ASK_ACL = 3
    ASK_MESSAGE_IN = 4
    ASK_MESSAGE_OUT = 5
    ASK_EVENT = 6                 # no answer, no AuthRequest
    ASK_PUBLISH = 7               # answer without a request: the control plane publishes
    ASK_BRIDGE = 20                 # no answer, no AuthRequest: an event of a bridge
    ASK_PAUSE = 12                # may this client try to log in now? Then the loop asks its native plugins. An AuthRequest is ASK_CONNECT
    ASK_KICK_USERS = 10                 # answer without a request: disconnects users, after the answers before it
    ASK_WAIT = 8                  # not yet an answer: the login is in the control plane's own queue and has this many seconds more
    ASK_AGAIN = 11                # answer: the control plane has asked no component, because the configuration has changed
    ASK_CONTROL = 9               # PUBLISH to a topic of the control plane; the handle is the client's. As an AuthRequest: it waits for room

cdef enum:
    # what an answer to ASK_ACL or ASK_MESSAGE_OUT is for
    FOR_PACKET = 0              # the client's packet that waits
    FOR_DELIVERY = 1            # deliveries in the session's plugin gate
    FOR_WILL = 2
    FOR_LATER = 3               # nothing waits: the verdict is for later use

ctypedef struct AuthRequest:
    SlabItem slab               # its handle
    uint8_t kind
    uint8_t purpose
    uint8_t access
    uint8_t qos
    uint8_t retain
    uint8_t queued              # 1: in the list of those that found no room
    uint8_t is_open             # 1: sent and not answered
    uint8_t reauth              # ASK_AUTH: 1 = of a connected client
    uint8_t natives_asked       # ASK_ACL: 1 = native plugins on the loop have left the decision to others
    uint8_t pause_checked       # ASK_CONNECT: 1 = the client's user and address have no pause
    uint32_t item               # which filter of the packet, or which gated delivery
    uint32_t turn               # turn of the session then, to recognise its client
    uint32_t epoch              # epoch of the rules then
    uint32_t client_index       # client whose packet waits; generation 0: none
    uint32_t client_generation
    Session* session            # session of the delivery or will; counted in session.jobs
    uint64_t waiting_will       # FOR_WILL: number of the will's record; 0 = none
    Message* message            # a reference, or NULL
    AuthRequest* prev
    AuthRequest* next
    Timer timer
    uint8_t* bytes              # owned: the topic, or the content of an AUTH packet
    uint32_t n

ctypedef struct AuthRequestHead:        # head of a record in the ring; n_fields times a length and its bytes follow
    uint32_t total              # bytes, including this head
    uint8_t kind
    uint8_t a
    uint8_t b
    uint8_t c
    uint64_t handle
    uint32_t security
    uint32_t n_fields

ctypedef struct ClientFacts:            # what native plugins may know of a client; cext/shim/shim.h has the same layout
    uint64_t connection         # 0: not connected
    uint32_t subscriptions
    uint16_t keepalive
    uint16_t listener_port
    uint8_t version             # 0: nothing is known
    uint8_t clean_start         # 2: not known
    uint8_t websockets
    uint8_t unused[5]

ctypedef struct AuthAnswer:         # one block of malloc, with its bytes behind it
    AuthAnswer* next
    uint64_t handle
    uint8_t kind                # ASK_CONNECT, ASK_ACL, ASK_MESSAGE_IN, ASK_MESSAGE_OUT, ASK_PUBLISH, ASK_WAIT, ASK_AGAIN, ASK_CONTROL, ASK_KICK_USERS
    uint8_t qos
    uint8_t retain
    uint8_t here                # publish: only to subscribers of this worker
    # connect: reason code, or -1: allow_anonymous decides, or ASK_NATIVES; publish: seconds until expiry, 0: never; wait: seconds;
    # acl: 1 allow, 0 deny, -1 no opinion; message: 1 take, 0 drop, -1 could not be asked about
    int32_t verdict
    View text                   # user name, topic; refusal of a login: the plugin that refuses it; p NULL: none
    View bytes                  # authentication data, payload
    View extra                  # correlation data; connect: client id; message, publish: properties
    View target                 # publish: only to the session with this client id

ctypedef struct NativeAccess:           # an access check of native plugins on the loop; cext/shim/access.c has the same layout
    uint64_t connection         # 0: not connected
    uint32_t subscriptions
    uint8_t access
    uint8_t qos
    uint8_t retain
    uint8_t unused
    const char* username
    View topic
    View payload
    View props
    const ClientFacts* facts    # NULL: not given, like the following
    const char* address
    View client_id

cdef enum:
    # results of native_access_fn and of native_access; 0 denied, 1 allowed
    NATIVE_BY_RULES = -1        # the plugins have no opinion, and there are no others
    NATIVE_ASK_OTHERS = -2
    NATIVE_DESCRIBE = -3        # native_access_fn: the client is not known; it wants the rest of the struct

ctypedef int (*native_access_fn)(void* realm, const NativeAccess* asked) noexcept nogil

cdef enum:
    # `waits` of native_ask_fn
    NATIVE_WAITS = 1            # the answer comes later
    NATIVE_PAUSE = 2            # the control plane has to check first whether user and address have a pause after failed logins
    NATIVE_NO_PAUSE = 3         # given: it has, and there is none
    ASK_NATIVES = -4            # AuthAnswer.verdict of ASK_PAUSE: there is none

# A native plugin that is called on the loop (cext/shim/loop.c). It returns an answer, allocated by malloc, or NULL; then `waits` is 0 if the
# control plane decides.
ctypedef AuthAnswer* (*native_ask_fn)(void* realm, const AuthRequestHead* head, const View* fields, int* waits) noexcept nogil

cdef int auth_requests_init(Broker* b) noexcept nogil
cdef void auth_requests_fini(Broker* b) noexcept nogil             # all auth requests must have ended
cdef void auth_requests_close(Broker* b) noexcept nogil

# The loop's side. An auth request without an answer in time is ended (TIMER_AUTH_REQUEST). NULL: no memory.
cdef AuthRequest* auth_request_new(Broker* b, int kind, Client* c, Session* s, Message* m) noexcept nogil
cdef int auth_request_bytes(AuthRequest* q, View v) noexcept nogil          # copies; v.p NULL: nothing; -1: no memory
cdef void auth_request_send(Broker* b, AuthRequest* q) noexcept nogil       # now, or as soon as there is room; may be sent again when answered
cdef void auth_request_answered(Broker* b, AuthRequest* q) noexcept nogil   # it may be sent again; its handle stays
cdef void auth_request_end(Broker* b, AuthRequest* q) noexcept nogil        # frees it; answers to it are stale from now on
cdef void client_auth_request_end(Broker* b, Client* c) noexcept nogil   # request of the client itself; no-op without one
cdef inline uint64_t auth_request_handle(const AuthRequest* q) noexcept nogil:
    return <uint64_t>q.slab.index << 32 | q.slab.generation

cdef AuthRequest* auth_request_of(Broker* b, uint64_t handle) noexcept nogil    # NULL: stale
cdef Client* auth_request_client(Broker* b, AuthRequest* q) noexcept nogil  # NULL: gone
cdef void auth_requests_flush(Broker* b) noexcept nogil                  # sends those that found no room
cdef uint32_t auth_requests_pending(Broker* b) noexcept nogil
# After a reload: correct the securities of requests that the control plane has not read. `before[i]`: 1 + the former place of the security that is
# now at place i; 0 = it is new.
cdef void auth_requests_move(Broker* b, const uint32_t* before, uint32_t n) noexcept nogil
cdef AuthRequest* auth_requests_at(Broker* b, uint32_t i) noexcept nogil    # for each i below auth_requests_end
cdef uint32_t auth_requests_end(Broker* b) noexcept nogil
# `c`: the client, if native plugins may want to know more of it. `clean`: Clean Start, 2: not known. `about`: see OFFLINE_BIT.
cdef void event_post(Broker* b, Client* c, int event, View id, View user, View detail, int clean, uint64_t about) noexcept nogil
cdef bint bridge_event_post(Broker* b, View name, int event, View detail) noexcept nogil      # 0: there is no room now
# Report a client's PUBLISH to a topic of the control plane. 0: there is no room now; an AuthRequest of this kind waits until there is.
cdef bint control_post(Broker* b, Client* c, View topic, View payload, View correlation) noexcept nogil
cdef bint commands_wait(Broker* b) noexcept nogil        # the control plane has not read all of these PUBLISHes
cdef inline uint64_t client_handle(const Client* c) noexcept nogil:
    return <uint64_t>c.slab.index << 32 | c.slab.generation

# Ask native plugins on the loop about access to a message, at once. The caller has filled in the message and the kind of access. Return
# 0, 1 or a constant above. c NULL: offline.
cdef int native_access(Client* c, Session* s, NativeAccess* asked) noexcept nogil
cdef inline bint is_native_at_once(const Security* security) noexcept nogil:
    return security.each and security.native_realm != NULL

cdef AuthAnswer* answers_next(Broker* b) noexcept nogil                  # the caller frees it; NULL: none

cdef enum:
    EVENT_CONNECTED = 0
    EVENT_DISCONNECTED = 1
    EVENT_SUBSCRIBED = 2
    EVENT_UNSUBSCRIBED = 3

# The control plane's side: any thread
cdef const uint8_t* auth_requests_swap(Broker* b, uint32_t* n) noexcept nogil   # like log_swap; one reader
cdef void answers_post(Broker* b, AuthAnswer* first, AuthAnswer* last) noexcept nogil    # takes the answers over
