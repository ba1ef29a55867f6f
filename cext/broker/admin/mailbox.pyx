"""The queue of control requests, and the loop's answers. The loop answers a request from the broker's structs between two turns,
so only this queue needs a lock. This module knows requests, not the meaning of their results.
"""

from libc.errno cimport EAGAIN, EALREADY, EBUSY, EINVAL, ENOENT, ENOMEM
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, strlen

from cext.base.slab cimport slab_at, slab_end
from cext.base.view cimport View
from cext.broker.admin.control_request cimport (
    CLIENTS_SLICE, CONTROL_ADOPT, CONTROL_ATTACH, CONTROL_BRIDGE, CONTROL_CLIENTS, CONTROL_DROPS, CONTROL_FREEZE, CONTROL_FROZEN, CONTROL_HOT, CONTROL_KICK,
    CONTROL_LEAVE, CONTROL_LINK, CONTROL_LINKS, CONTROL_LISTENER_DROPS, CONTROL_OBSERVED, CONTROL_RELOAD, CONTROL_RELOAD_OVER, CONTROL_ROLES, CONTROL_SESSION, CONTROL_SESSIONS, CONTROL_SLOW, CONTROL_STATS,
    CONTROL_STOP, CONTROL_STREAMS, CONTROL_SUBSCRIPTIONS, CONTROL_THAW, CONTROL_TRACE, CONTROL_TRACE_STOP, CONTROL_WHOLE, CONTROL_WIRE, ControlRequest, SUBSCRIPTIONS_BYTES, SUBSCRIPTIONS_OF_ONE, SUBSCRIPTIONS_SLICE,
)
from cext.broker.admin.hot cimport answer_hot, answer_slow
from cext.broker.admin.inspect cimport answer_session, answer_sessions, out_put, out_text
from cext.broker.admin.links cimport answer_links
from cext.broker.admin.observations cimport answer_drops, answer_listener_drops, answer_observed
from cext.broker.admin.reload cimport Reload, reload_apply
from cext.broker.admin.statistics cimport stats_collect
from cext.broker.admin.whole cimport answer_streams, answer_whole
from cext.broker.core.bridge_state cimport BridgeCommand, bridges_of
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport ADDRESS_TEXT_MAX, client_address, username_of
from cext.broker.core.client_state cimport C_CONNECTED, Client
from cext.broker.core.log cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock,
)
from cext.broker.core.durable cimport Durable
from cext.broker.core.handover_state cimport FROZEN_LEAVES, FROZEN_THAWS, Handover, HandoverCounts, STOP_ENDS, STOP_FREEZES
from cext.broker.core.session_refs cimport session_client
from cext.broker.core.trace_state cimport TraceSpec
from cext.broker.lifecycle.accept cimport client_adopt
from cext.broker.lifecycle.reload_hold cimport reload_hold_over
from cext.broker.lifecycle.session_lifecycle cimport client_end
from cext.broker.lifecycle.wires cimport WireOrder, wire_serve
from cext.broker.links.sockets cimport link_sockets
from cext.broker.rules.roles cimport Roles
from cext.broker.storage.attach cimport durable_attach
from cext.broker.trace.slots cimport trace_begin, trace_stop
from cext.codec.reason cimport RC_ADMINISTRATIVE_ACTION
from cext.net.conn_output cimport conn_flush
from cext.net.reactor cimport reactor_wake
from cext.session.session cimport Session, sessions_find, sessions_scan
from cext.topic.index cimport SUBSCRIPTION_TEXT_BYTES, Subscription, subscription_read

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_cond_t:
        pass
    ctypedef struct pthread_condattr_t:
        pass
    int pthread_cond_init(pthread_cond_t* c, pthread_condattr_t* attributes)
    int pthread_cond_wait(pthread_cond_t* c, pthread_mutex_t* m)
    int pthread_cond_broadcast(pthread_cond_t* c)
    int pthread_cond_destroy(pthread_cond_t* c)

ctypedef struct Mailbox:
    pthread_mutex_t lock
    pthread_cond_t answered
    ControlRequest* first
    ControlRequest* last
    bint open


cdef int mailbox_init(Broker* b) noexcept nogil:
    cdef Mailbox* m = <Mailbox*>calloc(1, sizeof(Mailbox))
    if m == NULL:
        return -1
    pthread_mutex_init(&m.lock, NULL)
    pthread_cond_init(&m.answered, NULL)
    b.mailbox = m
    return 0


cdef void mailbox_fini(Broker* b) noexcept nogil:
    cdef Mailbox* m = <Mailbox*>b.mailbox
    if m == NULL:
        return
    pthread_mutex_destroy(&m.lock)
    pthread_cond_destroy(&m.answered)
    free(m)
    b.mailbox = NULL


cdef void mailbox_open(Broker* b) noexcept nogil:
    cdef Mailbox* m = <Mailbox*>b.mailbox
    pthread_mutex_lock(&m.lock)
    m.open = 1
    pthread_mutex_unlock(&m.lock)


cdef void mailbox_close(Broker* b) noexcept nogil:
    cdef Mailbox* m = <Mailbox*>b.mailbox
    cdef ControlRequest* a
    pthread_mutex_lock(&m.lock)
    m.open = 0
    while m.first != NULL:
        a = m.first
        m.first = a.next
        a.result = -1
        a.done = 1
    m.last = NULL
    pthread_cond_broadcast(&m.answered)
    pthread_mutex_unlock(&m.lock)


cdef int mailbox_post(Broker* b, ControlRequest* a) noexcept nogil:
    cdef Mailbox* m = <Mailbox*>b.mailbox
    a.next = NULL
    a.done = 0
    a.result = 0
    pthread_mutex_lock(&m.lock)
    if not m.open:
        pthread_mutex_unlock(&m.lock)
        return -1
    if m.last != NULL:
        m.last.next = a
    else:
        m.first = a
    m.last = a
    reactor_wake(&b.reactor)
    while not a.done:
        pthread_cond_wait(&m.answered, &m.lock)
    pthread_mutex_unlock(&m.lock)
    return a.result


cdef void mailbox_serve(void* broker) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    cdef Mailbox* m = <Mailbox*>b.mailbox
    cdef ControlRequest* a
    while True:
        pthread_mutex_lock(&m.lock)
        a = m.first
        if a != NULL:
            m.first = a.next
            if m.first == NULL:
                m.last = NULL
        pthread_mutex_unlock(&m.lock)
        if a == NULL:
            return
        answer(b, a)
        pthread_mutex_lock(&m.lock)
        a.done = 1
        pthread_cond_broadcast(&m.answered)
        pthread_mutex_unlock(&m.lock)
        if b.stopping == STOP_FREEZES:
            return               # the frozen loop serves the others


# ---------------------------------------------------------------- answers

cdef inline bint changes_broker(int kind) noexcept nogil:
    """Return whether the request changes what a handover has written down."""
    return (kind == CONTROL_KICK or kind == CONTROL_ADOPT or kind == CONTROL_RELOAD or kind == CONTROL_BRIDGE or kind == CONTROL_ATTACH
            or kind == CONTROL_ROLES or kind == CONTROL_TRACE)


cdef void answer_frozen(Broker* b, ControlRequest* a) noexcept nogil:
    cdef Handover* h = <Handover*>b.handover
    if h == NULL:
        a.result = EAGAIN
    elif h.error:
        a.result = h.error
        out_put(a, h.why, <uint32_t>strlen(h.why))
        h.order = FROZEN_THAWS
    elif h.n_fds and out_put(a, h.fds, h.n_fds * <uint32_t>sizeof(h.fds[0])) != 0:
        a.result = ENOMEM
    else:
        a.fd = h.state_fd
        memcpy(a.stats, &h.counts, sizeof(HandoverCounts))


cdef void order_frozen(Broker* b, ControlRequest* a) noexcept nogil:
    if b.handover == NULL:
        a.result = EAGAIN
    else:
        (<Handover*>b.handover).order = FROZEN_THAWS if a.kind == CONTROL_THAW else FROZEN_LEAVES


cdef void answer(Broker* b, ControlRequest* a) noexcept nogil:    # long: one branch for each question
    if b.handover != NULL and changes_broker(a.kind):
        a.result = EBUSY
    elif a.kind == CONTROL_STOP:
        b.stopping = STOP_ENDS
    elif a.kind == CONTROL_FREEZE:
        if b.handover != NULL or b.stopping:
            a.result = EALREADY
        else:
            b.stopping = STOP_FREEZES
    elif a.kind == CONTROL_FROZEN:
        answer_frozen(b, a)
    elif a.kind == CONTROL_THAW or a.kind == CONTROL_LEAVE:
        order_frozen(b, a)
    elif a.kind == CONTROL_STATS:
        stats_collect(b, a.stats)
    elif a.kind == CONTROL_CLIENTS:
        answer_clients(b, a)
    elif a.kind == CONTROL_KICK:
        answer_kick(b, a)
    elif a.kind == CONTROL_ADOPT:
        a.result = client_adopt(b, a.fd)
    elif a.kind == CONTROL_RELOAD:
        reload_apply(b, <Reload*>a.reload)
        a.result = (<Reload*>a.reload).error
    elif a.kind == CONTROL_RELOAD_OVER:
        reload_hold_over(b)
    elif a.kind == CONTROL_LINK:
        link_sockets(b, a.from_index, a.fd, <int>a.cursor)
    elif a.kind == CONTROL_WIRE:
        wire_serve(b, a.from_index, <const WireOrder*>a.reload)
    elif a.kind == CONTROL_BRIDGE:
        answer_bridge(b, a)
    elif a.kind == CONTROL_ATTACH:
        a.result = durable_attach(b, <Durable*>a.reload)
    elif a.kind == CONTROL_ROLES:
        roles_swap(b, a)
    elif a.kind == CONTROL_SUBSCRIPTIONS:
        answer_subscriptions(b, a)
    elif a.kind == CONTROL_SESSIONS:
        answer_sessions(b, a)
    elif a.kind == CONTROL_TRACE:
        a.result = trace_begin(b, <TraceSpec*>a.reload)
    elif a.kind == CONTROL_TRACE_STOP:
        a.result = not trace_stop(b, a.left_out)
    elif a.kind == CONTROL_SESSION:
        answer_session(b, a)
    elif a.kind == CONTROL_OBSERVED:
        answer_observed(b, a)
    elif a.kind == CONTROL_STREAMS:
        answer_streams(b, a)
    elif a.kind == CONTROL_HOT:
        answer_hot(b, a)
    elif a.kind == CONTROL_SLOW:
        answer_slow(b, a)
    elif a.kind == CONTROL_DROPS:
        answer_drops(b, a)
    elif a.kind == CONTROL_LISTENER_DROPS:
        answer_listener_drops(b, a)
    elif a.kind == CONTROL_WHOLE and b.workers != NULL:
        answer_whole(b, a)
    elif a.kind == CONTROL_LINKS:
        answer_links(b, a)
    else:
        a.result = EINVAL


cdef void answer_bridge(Broker* b, ControlRequest* a) noexcept nogil:
    cdef BridgeCommand* command = <BridgeCommand*>a.reload
    if b.bridges == NULL:
        b.bridges = command.bridges      # the broker's first bridges
    a.result = bridges_of(b).ops.command(b, command) if b.bridges != NULL else ENOENT


cdef void answer_kick(Broker* b, ControlRequest* a) noexcept nogil:
    cdef View id
    cdef Client* c
    id.p = a.text
    id.n = a.text_n
    s = sessions_find(&b.sessions, id)
    if s == NULL or s.client == NULL:
        a.result = 1
        return
    # End the client and send its DISCONNECT before the answer: the client that requested the kick may be the kicked client.
    c = session_client(s)
    client_end(b, c, RC_ADMINISTRATIVE_ACTION)
    conn_flush(&b.reactor, &c.conn)


cdef void roles_swap(Broker* b, ControlRequest* a) noexcept nogil:
    """Exchange the roles. Verdicts of the old rules become invalid, and logins that were answered but not yet processed are requested
    again."""
    cdef uint32_t i
    cdef Roles* old
    for i in range(a.n_swap):
        if i < b.n_securities and a.swap[i] != NULL and b.securities[i].roles != NULL:
            old = b.securities[i].roles
            b.securities[i].roles = a.swap[i]
            a.swap[i] = old
    b.access_epoch += 1


cdef int client_put(ControlRequest* a, Client* c) noexcept nogil:
    """Append a client's record: version, keepalive, subscriptions, pending deliveries, unsent bytes, port; client id, user name,
    address. Returns -1 if there is no memory."""
    cdef char where[ADDRESS_TEXT_MAX]
    cdef uint32_t numbers[6]
    cdef View user = username_of(c)
    cdef int n = client_address(c, where, sizeof(where))
    numbers[0] = c.version
    numbers[1] = c.keepalive_s
    numbers[2] = c.session.owner.n
    numbers[3] = c.session.queue.pending
    numbers[4] = c.conn.out_bytes
    numbers[5] = c.conn.address.port
    if out_put(a, numbers, sizeof(numbers)) != 0 or out_text(a, c.session.client_id, c.session.id_len) != 0:
        return -1
    if out_text(a, user.p, user.n) != 0:
        return -1
    return out_text(a, where, <uint32_t>n)


cdef void answer_clients(Broker* b, ControlRequest* a) noexcept nogil:
    cdef uint32_t i
    cdef uint32_t end = slab_end(&b.clients)
    cdef Client* c
    cdef uint32_t stop = a.from_index + CLIENTS_SLICE
    a.next_index = stop if stop < end else 0
    for i in range(a.from_index, stop if stop < end else end):
        c = <Client*>slab_at(&b.clients, i)
        if c != NULL and c.state == C_CONNECTED and client_put(a, c) != 0:
            a.result = ENOMEM
            return


ctypedef struct SubscriptionListing:
    ControlRequest* request
    uint32_t n
    uint8_t filter[SUBSCRIPTION_TEXT_BYTES]


cdef void list_session(void* listing, Session* s) noexcept nogil:
    """Append a record per subscription: client id, options, length of the filter, filter."""
    cdef SubscriptionListing* l = <SubscriptionListing*>listing
    cdef ControlRequest* a = l.request
    cdef Subscription* sub = s.owner.head
    cdef uint32_t n, sub_id
    cdef uint32_t listed = 0
    cdef uint32_t from_n = a.out_n
    cdef uint8_t options
    while sub != NULL and listed < SUBSCRIPTIONS_OF_ONE and a.out_n - from_n < SUBSCRIPTIONS_BYTES:
        sub = subscription_read(sub, l.filter, &n, &options, &sub_id)
        if (out_text(a, s.client_id, s.id_len) != 0 or out_put(a, &options, 1) != 0 or out_put(a, &n, 4) != 0 or
                out_put(a, l.filter, n) != 0):
            a.result = ENOMEM
            return
        listed += 1
    l.n += listed
    a.left_out += s.owner.n - listed


cdef void answer_subscriptions(Broker* b, ControlRequest* a) noexcept nogil:
    cdef SubscriptionListing l
    cdef uint32_t buckets = 0
    l.request = a
    l.n = 0
    while True:
        a.cursor = sessions_scan(&b.sessions, a.cursor, list_session, &l)
        buckets += 1
        if a.result or a.cursor == 0 or a.out_n >= SUBSCRIPTIONS_BYTES:
            return
        if l.n >= SUBSCRIPTIONS_SLICE or buckets >= SUBSCRIPTIONS_SLICE:
            return
