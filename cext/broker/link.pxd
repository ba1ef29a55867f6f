# Links to other brokers: what is kept about each, and what the rest of the room asks about them. See link.pyx.
from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t, uint64_t
from cext.base.view cimport View
from cext.base.wheel cimport Timer
from cext.codec.frame cimport Frame
from cext.net.reactor cimport Address, TransportContext
from cext.topic.lines cimport Lines, Renaming
from cext.session.session cimport Session
from cext.broker.broker cimport Broker, Client, Door

cdef enum:
    LINKS_MAX = 1000
    LINK_RETRY_MS = 100         # until an event that found the ring full is told again
    LINK_PAST_MAX = 16
    NAME_ROOM_BYTES = 65536
    VIA_BYTES = 29              # a user property, encoded

ctypedef struct LinkSpec:       # what its operator wants: one block of malloc's, texts and lines in it
    uint32_t bytes_n            # of the block
    uint64_t key                # of all that it was made from: the same key, the same wish
    View name
    View local_id
    View remote_id
    View username               # for the remote broker; p NULL: none
    View password
    View notice                 # the topic of its state
    Lines lines
    TransportContext* secure    # a reference; NULL: plain
    Address bound               # family 0: none
    uint32_t bound_scope
    uint8_t version             # V31, V311, V5
    uint8_t clean_start         # on the remote broker
    uint8_t local_clean         # here: nothing is kept while it is down
    uint8_t try_private
    uint8_t notifications
    uint8_t notify_local_only
    uint8_t attempt_unsubscribe
    uint8_t outgoing_retain
    uint8_t loop_guard          # v5: messages say which brokers they came through
    uint8_t reload_lazy         # a changed one waits until the connection breaks
    uint16_t keepalive_s
    uint16_t receive_max
    uint16_t alias_max
    uint32_t session_expiry_s
    uint32_t packet_max         # of what goes out; 0: any
    uint32_t threshold          # lazy: so many waiting deliveries ask for a connection; 0: not lazy
    uint32_t idle_ms            # lazy: 0: never
    uint32_t connect_timeout_ms     # from the first attempt to CONNACK
    uint32_t user_timeout_ms
    uint32_t tcp_idle_s
    uint32_t tcp_interval_s
    uint32_t tcp_count
    uint32_t others             # that hold it, too
    LinkSpec* older             # see Link.past
    uint32_t upto               # the queue's position behind the last delivery that came under it

cdef enum:
    LINK_DOWN = 0
    LINK_OPENING = 1            # the socket, TLS
    LINK_ASKING = 2             # CONNECT is out
    LINK_UP = 3

cdef enum:
    EVENT_LINK_UP = 0
    EVENT_LINK_DOWN = 1
    EVENT_LINK_REFUSED = 2
    EVENT_LINK_WANTED = 3
    EVENT_LINK_IDLE = 4
    NOTHING_UNTOLD = 0xFF
    NO_QOS = 0xFF

ctypedef struct Link:
    Door door                   # of its connections; door.link points here
    LinkSpec* spec
    LinkSpec* next_spec         # takes the place when the connection is gone
    Session* session            # from the loop's begin to the link's end
    Client* client              # NULL: neither a connection nor an attempt
    Link* gone_next
    Timer timer                 # TIMER_LINK: an event to tell again, idleness
    uint64_t active_ms          # when a message last went either way
    uint64_t pinged_ms          # a PINGREQ without an answer; 0: none
    uint16_t first_pid          # of the packets that subscribe: line i has first_pid + i, cyclically
    uint8_t state
    uint8_t as_bridge           # the level carries 0x80 in this attempt
    uint8_t was_up              # with these lines, since we run
    uint8_t told_all            # what is retained here has been told there, or waits in the queue
    uint8_t untold              # the last event that found no room, or NOTHING_UNTOLD
    uint8_t wanted              # lazy: told already
    uint8_t idle_told
    uint8_t will_qos            # that the remote takes in a will, as far as it has said
    uint8_t will_retain
    uint8_t max_qos             # of this connection
    uint8_t retain_ok
    uint8_t local_qos           # the subscriptions here were made for this max_qos; NO_QOS: there are none
    LinkSpec* past              # before spec, the youngest first: by their lines what was queued under them goes out
    const Lines* naming         # of the delivery that is written; else spec's
    uint32_t unsure_upto        # positions before it may have come under lines that are not known any more
    LinkSpec* old_spec          # under which it was connected last, as far as we know: what is not asked for any more is unsubscribed from

cdef enum:
    LINK_CONNECT = 1
    LINK_CLOSE = 2
    LINK_STATES = 3
    LINK_RENEW = 4

ctypedef struct LinkState
ctypedef struct Links

ctypedef struct LinkAsk:
    uint8_t kind
    uint8_t as_bridge
    int32_t fd                  # a connected socket to go on with; -1: none
    View name
    Address remote
    uint32_t remote_scope
    const char* host            # ends with a zero
    LinkState* out              # LINK_STATES: the asker's room for `n` of them; n: how many there are
    uint32_t n
    Links* links                # LINK_RENEW: where there are none yet, these are it
    Link** fresh                # LINK_RENEW: n links with their specs. Taken: NULL; what is left is the asker's to free, with what hangs there

ctypedef struct LinkState:
    char name[256]              # cut, ends with a zero
    uint8_t state
    uint32_t pending
    uint64_t waiting_bytes

# What the room above does (cext/peer), so that this one need not know it.
ctypedef struct LinkOps:
    int (*packet)(Broker* b, Client* c, const Frame* f) noexcept nogil      # all but PUBLISH and acknowledgements of an open one; as handlers
    void (*goodbye)(Broker* b, Client* c, int reason) noexcept nogil        # its DISCONNECT
    void (*ended)(Broker* b, Client* c, int reason) noexcept nogil          # after the session was left
    void (*client_timer)(Broker* b, Client* c) noexcept nogil
    void (*link_timer)(Broker* b, Link* l) noexcept nogil
    void (*begin)(Broker* b) noexcept nogil                                 # the loop begins
    int (*ask)(Broker* b, LinkAsk* a) noexcept nogil                        # 0 or errno
    void (*opened)(Broker* b, Client* c, int err) noexcept nogil
    void (*free)(Links* links) noexcept nogil                               # when nothing runs any more

ctypedef struct Links:          # Broker.links
    LinkOps ops
    uint8_t* room               # NAME_ROOM_BYTES: the topic of the packet that is written
    uint8_t* props_room         # grows to what one packet needs
    uint32_t props_cap
    uint8_t via[29]             # VIA_BYTES: the user property that says a message came through this broker
    Link** at                   # malloc's
    uint32_t n
    Link* gone                  # of which connections are not freed yet

cdef inline Links* links_of(const Broker* b) noexcept nogil:     # NULL: none
    return <Links*>b.links

cdef inline Link* link_of(const Client* c) noexcept nogil:       # of a client with CF_LINK
    return <Link*>c.door.link

# How what the remote broker publishes is called here. 0: it may not come in.
cdef bint link_lets_in(Broker* b, Client* c, View topic, Renaming* out) noexcept nogil
# How it is called there; *retain is what goes out. 0: it cannot be called anything.
cdef bint link_renames(Broker* b, Client* c, View topic, Renaming* out, int* retain) noexcept nogil
# The delivery at `position` of its queue is written next: link_renames goes by the lines under which it came, until link_named. 0: none is known.
cdef bint link_names(Client* c, uint32_t position, uint32_t floor, View topic) noexcept nogil
cdef inline void link_named(Client* c) noexcept nogil:
    link_of(c).naming = &link_of(c).spec.lines
# The first position in a link's queue from which all came under the lines of now, and nothing was sent.
cdef uint32_t link_settled(Broker* b, Session* s) noexcept nogil
cdef void past_free(LinkSpec** past) noexcept nogil
cdef void spec_free(LinkSpec* s) noexcept nogil
# What a message that goes through the link gets: n 0: nothing.
cdef View link_via(Broker* b, const Client* c) noexcept nogil
# *props and `via` behind them, good until the next; 0: no memory.
cdef bint link_props(Broker* b, View* props, View via) noexcept nogil
# Was a message with these properties here before?
cdef bint link_seen(Broker* b, View props) noexcept nogil
# Something was queued for a session whose link is down, or enough may wait there for another reason.
cdef void session_queued(Broker* b, Session* s) noexcept nogil
cdef void link_queued(Broker* b, Link* l) noexcept nogil
cdef bint link_keeps_qos0(Broker* b, Session* s) noexcept nogil
# Tells the control plane; what finds no room is told as soon as there is some, the last event of a link alone.
cdef void link_tell(Broker* b, Link* l, int event, View detail) noexcept nogil
cdef Link* link_find(Broker* b, View name) noexcept nogil
cdef Link* link_of_session(Broker* b, const Session* s) noexcept nogil      # NULL: none
