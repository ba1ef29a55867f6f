# Questions to the control plane: what the loop asks, who waits for it, and the answers. See ask.pyx.
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from cext.base.slab cimport SlabItem
from cext.base.view cimport View
from cext.base.wheel cimport Timer
from cext.broker.broker cimport Broker, Client, Security
from cext.session.message cimport Message
from cext.session.session cimport Session

cdef enum:
    ASK_RING_BYTES = 4 << 20    # of requests that the control plane has not read; twice, as it reads one half while the other fills
    ASK_FIELDS_MAX = 10
    ASK_NONE = 0xFFFFFFFFu      # length of a field that is not there
    ANSWERS_PER_TURN = 200

cdef enum:
    Q_CONNECT = 1               # may this client in? Also each further step of an exchange [v5 4.12]
    Q_AUTH = 2                  # both keep their handle over an exchange: its steps are told by it
    Q_ACL = 3
    Q_MESSAGE_IN = 4
    Q_MESSAGE_OUT = 5
    Q_EVENT = 6                 # no answer, no Question
    Q_PUBLISH = 7               # an answer that nobody asked for: the control plane publishes
    Q_LINK = 20                 # no answer, no Question: what became of a link
    Q_KICK = 10                 # an answer that nobody asked for: users are to be disconnected, after what was answered before
    Q_WAIT = 8                  # no answer yet: the log-in stands in the control plane's own queue, and has so many seconds more
    Q_CONTROL = 9               # a PUBLISH to a topic of the control plane's; its handle is the client's own. As a Question: it waits for room

cdef enum:
    # what an answer to Q_ACL, Q_MESSAGE_OUT is for
    FOR_PACKET = 0              # the client's packet that waits
    FOR_DELIVERY = 1            # deliveries that wait at the session's gate
    FOR_WILL = 2
    FOR_LATER = 3               # nothing waits: it will be known when it is needed

ctypedef struct Question:
    SlabItem slab               # its handle
    uint8_t kind
    uint8_t purpose
    uint8_t access
    uint8_t qos
    uint8_t retain
    uint8_t queued              # in the list of those that found no room
    uint8_t is_open             # asked and not answered
    uint8_t reauth              # of Q_AUTH: of a client that is connected
    uint32_t item               # which filter of the packet, or which delivery that waits
    uint32_t turn               # of the session then: the client that it is asked for
    uint32_t epoch              # of the rules then
    uint32_t client_index       # whose packet waits; generation 0: nobody's
    uint32_t client_generation
    Session* session            # whose delivery or will it is; counted in session.jobs
    Message* message            # a reference, or NULL
    Question* prev
    Question* next
    Timer timer
    uint8_t* bytes              # owned: the topic, or what an AUTH packet holds
    uint32_t n

ctypedef struct AskHead:        # of a record in the ring; n_fields times a length and so many bytes follow
    uint32_t total              # bytes, this included
    uint8_t kind
    uint8_t a
    uint8_t b
    uint8_t c
    uint64_t handle
    uint32_t security
    uint32_t n_fields

ctypedef struct Answer:         # one block of malloc's, its bytes behind it
    Answer* next
    uint64_t handle
    uint8_t kind                # Q_CONNECT, Q_ACL, Q_MESSAGE_IN, Q_MESSAGE_OUT, Q_PUBLISH, Q_WAIT, Q_CONTROL, Q_KICK
    uint8_t qos
    uint8_t retain
    int32_t verdict             # connect: the reason code, or -1: allow_anonymous decides; publish: seconds until it expires, 0: never; wait: seconds; acl: 1 yes, 0 no, -1 no opinion; message: 1 take, 0 drop
    View text                   # user name, topic; p NULL: none
    View bytes                  # authentication data, payload
    View extra                  # correlation data

cdef int asking_init(Broker* b) noexcept nogil
cdef void asking_fini(Broker* b) noexcept nogil             # questions must have ended
cdef void asking_open(Broker* b) noexcept nogil
cdef void asking_close(Broker* b) noexcept nogil

# The loop's side. A question without its due answer times out (TIMER_QUESTION). NULL: no memory.
cdef Question* question_new(Broker* b, int kind, Client* c, Session* s, Message* m) noexcept nogil
cdef int question_bytes(Question* q, View v) noexcept nogil          # copies; v.p NULL: nothing; -1: no memory
cdef void question_send(Broker* b, Question* q) noexcept nogil       # now, or as soon as there is room; may be sent again when answered
cdef void question_answered(Broker* b, Question* q) noexcept nogil   # it may be asked again; its handle stays
cdef void question_end(Broker* b, Question* q) noexcept nogil        # frees it; answers to it are stale from now on
cdef void client_question_end(Broker* b, Client* c) noexcept nogil   # the client's own; no-op without one
cdef inline uint64_t question_handle(const Question* q) noexcept nogil:
    return <uint64_t>q.slab.index << 32 | q.slab.generation

cdef Question* question_of(Broker* b, uint64_t handle) noexcept nogil    # NULL: stale
cdef Client* question_client(Broker* b, Question* q) noexcept nogil  # NULL: gone
cdef void questions_flush(Broker* b) noexcept nogil                  # those that found no room
cdef uint32_t questions_open(Broker* b) noexcept nogil
cdef Question* questions_at(Broker* b, uint32_t i) noexcept nogil    # for each i below questions_end
cdef uint32_t questions_end(Broker* b) noexcept nogil
cdef void event_post(Broker* b, Security* security, int event, View id, View user, View detail) noexcept nogil
cdef bint link_post(Broker* b, View name, int event, View detail) noexcept nogil      # 0: there is no room now
# What a client published to a topic of the control plane's; 0: there is no room for it now. A Question of the kind waits until there is.
cdef bint control_post(Broker* b, Client* c, View topic, View payload, View correlation) noexcept nogil
cdef inline uint64_t client_handle(const Client* c) noexcept nogil:
    return <uint64_t>c.slab.index << 32 | c.slab.generation

cdef Answer* answers_next(Broker* b) noexcept nogil                  # the caller frees it; NULL: none

cdef enum:
    EVENT_CONNECTED = 0
    EVENT_DISCONNECTED = 1
    EVENT_SUBSCRIBED = 2
    EVENT_UNSUBSCRIBED = 3

# The control plane's side: any thread
cdef const uint8_t* asking_swap(Broker* b, uint32_t* n) noexcept nogil   # as log_swap; one reader
cdef void answers_post(Broker* b, Answer* first, Answer* last) noexcept nogil    # taken over
