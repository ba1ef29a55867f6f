"""The life of a link: asked for, open, ended, changed. Knows when something is due; not the packets of opening (opening.pyx, up.pyx), nor when a
link is tried again or where: "connect" and "close" come from the control plane, "up", "down", "refused", "wanted" and "idle" go there.

    keepalive: every keepalive_s a PINGREQ; nothing heard until the next one: the link is dead
    a changed configuration: the new LinkSpec waits in next_spec until there is no connection, then takes the place of the old one

Cost: nothing per message; one timer per open link.
"""

from libc.errno cimport ENOENT
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from cext.base.view cimport View
from cext.base.wheel cimport timer_armed, wheel_add, wheel_remove
from cext.broker.broker cimport Broker, C_OPENING, Client, TIMER_LINK
from cext.broker.client cimport (
    END_LOST, END_NORMAL, client_room, client_wrote, log_line, log_packet, reason_text,
)
from cext.broker.life cimport client_end
from cext.broker.link cimport (
    EVENT_LINK_DOWN, EVENT_LINK_IDLE, LINK_CONNECT, LINK_DOWN, LINK_RENEW, LINK_STATES, LINK_UP, Link, LinkAsk, LinkOps, Links,
    LINK_PAST_MAX, LinkSpec, NOTHING_UNTOLD, link_find, link_of, link_queued, link_tell, links_of, past_free, spec_free,
)
from cext.broker.log cimport LOG_DEBUG, LOG_LINE_MAX, LOG_NOTICE, log_wanted
from cext.codec.as_client cimport Goodbye, PINGREQ_SIZE, decode_goodbye, encode_pingreq
from cext.codec.decode cimport decode_empty
from cext.codec.encode cimport DISCONNECT_SIZE_MAX, encode_disconnect
from cext.codec.frame cimport Frame, T_CONNACK, T_DISCONNECT, T_PINGREQ, T_PINGRESP, T_SUBACK, T_UNSUBACK, V5
from cext.codec.reason cimport (
    RC_DISCONNECT_WITH_WILL, RC_KEEP_ALIVE_TIMEOUT, RC_MALFORMED, RC_PACKET_TOO_LARGE, RC_PROTOCOL_ERROR,
    RC_QUOTA_EXCEEDED, RC_SUCCESS, RC_TOPIC_ALIAS_INVALID, RC_TOPIC_NAME_INVALID,
)
from cext.net.reactor cimport CONN_PAUSED, TransportContext
from cext.peer.local cimport local_begin, local_clear, local_end, local_notice, local_subscribe
from cext.peer.opening cimport handle_connack, link_open, link_opened, text_view
from cext.peer.up cimport handle_suback, link_watch


# ---------------------------------------------------------------- packets

cdef int packet(Broker* b, Client* c, const Frame* f) noexcept nogil:
    cdef int kind = f.first >> 4
    if c.state == C_OPENING:     # [v5 3.1.4-6] [v3.1.1 3.2.0-1]
        return handle_connack(b, c, f) if kind == T_CONNACK else RC_PROTOCOL_ERROR
    if kind == T_PINGRESP:
        return handle_pingresp(b, c, f)
    if kind == T_SUBACK or kind == T_UNSUBACK:
        return handle_suback(b, c, f)
    if kind == T_DISCONNECT:
        return handle_goodbye(b, c, f)
    return RC_PROTOCOL_ERROR     # what only a client sends; AUTH was never offered [v5 4.12.0-7]


cdef int handle_pingresp(Broker* b, Client* c, const Frame* f) noexcept nogil:
    cdef int rc = decode_empty(f)
    if rc:
        return rc
    if log_wanted(&b.log, LOG_DEBUG):
        log_packet(b, c, "Received", T_PINGRESP, -1, -1)
    link_of(c).pinged_ms = 0
    return 0


cdef int handle_goodbye(Broker* b, Client* c, const Frame* f) noexcept nogil:
    cdef Goodbye g
    cdef int rc = decode_goodbye(f, c.version, &g)
    if rc:
        return rc
    if log_wanted(&b.log, LOG_NOTICE):
        log_line(b, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX, "Bridge %.*s: the remote broker ended the connection (%d).",
                                         <int>link_of(c).spec.name.n, <const char*>link_of(c).spec.name.p, <int>g.rc))
    return END_LOST


cdef uint8_t goodbye_code(const Link* l, int reason) noexcept nogil:
    """[v5 3.14.2.1] What a client may say. With 0x04 the remote sends our will: the state 0."""
    if (reason == RC_MALFORMED or reason == RC_PROTOCOL_ERROR or reason == RC_TOPIC_NAME_INVALID or reason == RC_TOPIC_ALIAS_INVALID
            or reason == RC_PACKET_TOO_LARGE or reason == RC_QUOTA_EXCEEDED):
        return <uint8_t>reason
    return RC_DISCONNECT_WITH_WILL if l.spec.notifications and not l.spec.notify_local_only else RC_SUCCESS


cdef void goodbye(Broker* b, Client* c, int reason) noexcept nogil:
    """3.x can only say goodbye without the will: where there is one, the connection just ends."""
    cdef Link* l = link_of(c)
    cdef uint8_t code = goodbye_code(l, reason)
    cdef uint8_t* p
    if c.version != V5 and code != RC_SUCCESS:
        return
    p = client_room(b, c, DISCONNECT_SIZE_MAX)
    if p == NULL:
        return
    client_wrote(b, c, encode_disconnect(p, code), p)
    if log_wanted(&b.log, LOG_DEBUG):
        log_line(b, LOG_DEBUG, snprintf(b.log.line, LOG_LINE_MAX, "Bridge %.*s sending DISCONNECT", <int>l.spec.local_id.n,
                                        <const char*>l.spec.local_id.p))


# ---------------------------------------------------------------- ends

cdef void ended(Broker* b, Client* c, int reason) noexcept nogil:
    cdef Link* l = link_of(c)
    cdef uint8_t was = l.state
    cdef const char* why = reason_text(reason)
    if l.client != c:
        return
    l.client = NULL
    l.state = LINK_DOWN
    l.pinged_ms = 0
    l.wanted = 0
    l.idle_told = 0
    if b.stopping:
        return
    if was == LINK_UP:
        local_notice(b, l, b"0")
    if l.spec.local_clean:
        local_clear(b, l)
    if l.next_spec != NULL:
        spec_take(b, l)
        ids_claim(b)
    if was != LINK_DOWN:         # else a refusal has been told
        link_tell(b, l, EVENT_LINK_DOWN, text_view(why if why != NULL else <const char*>b"closed"))
    link_queued(b, l)            # what waits may be enough for the next


# ---------------------------------------------------------------- timers

cdef void client_timer(Broker* b, Client* c) noexcept nogil:
    cdef Link* l = link_of(c)
    cdef uint8_t* p
    if c.state == C_OPENING:
        client_end(b, c, RC_KEEP_ALIVE_TIMEOUT)
        return
    if c.conn.flags & CONN_PAUSED:
        c.conn.rx_ms = b.reactor.now_ms          # it is us who do not listen
    if l.pinged_ms and c.conn.rx_ms < l.pinged_ms:
        client_end(b, c, RC_KEEP_ALIVE_TIMEOUT)
        return
    p = client_room(b, c, PINGREQ_SIZE)
    if p == NULL:
        return
    client_wrote(b, c, encode_pingreq(p), p)
    l.pinged_ms = b.reactor.now_ms
    if log_wanted(&b.log, LOG_DEBUG):
        log_packet(b, c, "Sending", T_PINGREQ, -1, -1)
    link_watch(b, l, c)


cdef void link_timer(Broker* b, Link* l) noexcept nogil:
    cdef View none
    cdef uint64_t due_ms
    none.p = NULL
    none.n = 0
    if l.untold != NOTHING_UNTOLD:
        link_tell(b, l, l.untold, none)
        link_queued(b, l)
    if l.state != LINK_UP or l.spec.idle_ms == 0 or l.idle_told:
        return
    due_ms = l.active_ms + l.spec.idle_ms
    if l.session.queue.pending:
        due_ms = b.reactor.now_ms + l.spec.idle_ms
    if due_ms <= b.reactor.now_ms:
        l.idle_told = 1
        link_tell(b, l, EVENT_LINK_IDLE, none)
    elif not timer_armed(&l.timer):
        wheel_add(&b.wheel, &l.timer, due_ms)


# ---------------------------------------------------------------- what the control plane asks

cdef void begin(Broker* b) noexcept nogil:
    cdef Links* links = links_of(b)
    cdef uint32_t i
    for i in range(links.n):
        link_begin(b, links.at[i])


cdef void link_begin(Broker* b, Link* l) noexcept nogil:
    l.door.link = l
    l.naming = &l.spec.lines
    l.door.security = b.adopted.security
    l.timer.kind = TIMER_LINK
    l.untold = NOTHING_UNTOLD
    l.will_qos = 1
    l.will_retain = l.spec.outgoing_retain
    local_begin(b, l)            # what failed is tried again when it is to connect, which says why
    link_queued(b, l)


cdef int ask(Broker* b, LinkAsk* a) noexcept nogil:
    cdef Link* l
    cdef int err
    if a.kind == LINK_RENEW:
        return renew(b, a)
    if a.kind == LINK_STATES:
        states(b, a)
        return 0
    l = link_find(b, a.name)
    if l == NULL:
        return ENOENT
    if a.kind == LINK_CONNECT:
        err = local_begin(b, l) if l.session == NULL else 0
        return err if err else link_open(b, l, a)
    if l.client != NULL:
        link_close(b, l)
    return 0


cdef void link_close(Broker* b, Link* l) noexcept nogil:
    cdef Client* c = l.client
    if l.state == LINK_UP:
        goodbye(b, c, END_NORMAL)
    client_end(b, c, END_NORMAL)


cdef void states(Broker* b, LinkAsk* a) noexcept nogil:
    cdef Links* links = links_of(b)
    cdef uint32_t i, n
    cdef Link* l
    for i in range(links.n if links.n < a.n else a.n):
        l = links.at[i]
        n = l.spec.name.n if l.spec.name.n < 255 else 255
        memcpy(a.out[i].name, l.spec.name.p, n)
        a.out[i].name[n] = 0
        a.out[i].state = l.state
        a.out[i].pending = l.session.queue.pending if l.session != NULL else 0
        a.out[i].waiting_bytes = l.session.queue.waiting_bytes + l.session.queue.inflight_bytes if l.session != NULL else 0
    a.n = links.n


# ---------------------------------------------------------------- a new configuration

cdef inline bint same(View x, View y) noexcept nogil:
    return x.n == y.n and memcmp(x.p, y.p, x.n) == 0


cdef void spec_take(Broker* b, Link* l) noexcept nogil:
    """There is no connection. What waits for the remote broker stays; what is subscribed to changes at once."""
    cdef LinkSpec* old = l.spec
    if l.session != NULL and not same(old.local_id, l.next_spec.local_id):
        local_end(b, l)
    l.spec = l.next_spec
    l.next_spec = NULL
    past_add(l, old)
    if l.was_up or l.old_spec == NULL:
        spec_free(l.old_spec)
        l.old_spec = old
    else:
        spec_free(old)           # it never came to subscribing there
    l.will_qos = 1
    l.will_retain = l.spec.outgoing_retain
    l.was_up = l.told_all = l.wanted = 0
    if l.session == NULL:
        local_begin(b, l)
    elif l.spec.local_clean:
        local_clear(b, l)
    else:
        l.max_qos = 2
        local_subscribe(b, l)


cdef void past_add(Link* l, LinkSpec* old) noexcept nogil:
    """What waits came under its lines, or under older ones."""
    cdef LinkSpec* s = l.past
    cdef uint32_t n = 1
    l.naming = &l.spec.lines
    if l.session == NULL or l.session.queue.pending == 0 or l.spec.local_clean:
        past_free(&l.past)
        return
    old.others += 1
    old.older = l.past
    old.upto = l.session.queue.tail
    l.past = old
    while s != NULL and n < LINK_PAST_MAX - 1:
        s = s.older
        n += 1
    if s != NULL and s.older != NULL:
        l.unsure_upto = s.older.upto
        past_free(&s.older)


cdef void ids_claim(Broker* b) noexcept nogil:
    """Somebody may have waited for a client id that is free now."""
    cdef Links* links = links_of(b)
    cdef uint32_t i
    for i in range(links.n):
        if links.at[i].session == NULL and links.at[i].door.link != NULL and links.at[i].client == NULL:
            local_begin(b, links.at[i])


cdef void link_end(Broker* b, Link* l) noexcept nogil:
    if l.client != NULL:
        goodbye_and_end(b, l)
    wheel_remove(&b.wheel, &l.timer)
    local_end(b, l)


cdef void goodbye_and_end(Broker* b, Link* l) noexcept nogil:
    cdef Client* c = l.client
    if l.state == LINK_UP:
        goodbye(b, c, END_NORMAL)
        local_notice(b, l, b"0")
    l.client = NULL              # whose end is nobody's news any more
    client_end(b, c, END_NORMAL)


cdef int renew(Broker* b, LinkAsk* a) noexcept nogil:
    """The fresh links take their places, by name: those that are not there any more end, changed ones hand their spec over, new ones begin, in
    this order, since client ids may go from one to the other."""
    cdef Links* links = links_of(b)
    cdef Link** before = links.at
    cdef uint32_t n_before = links.n, i
    cdef Link** place
    cdef Link* l
    for i in range(n_before):
        if named_in(a.fresh, a.n, before[i].spec.name) == NULL:
            link_end(b, before[i])
    for i in range(n_before):
        l = before[i]
        place = named_in(a.fresh, a.n, l.spec.name)
        if place != NULL:
            before[i] = place[0]         # with the spec that it is to take
            place[0] = l
        else:
            before[i] = NULL
            l.gone_next = links.gone
            links.gone = l
    links.at = a.fresh
    links.n = a.n
    for i in range(n_before):
        if before[i] != NULL:
            l = link_find(b, before[i].spec.name)
            l.door.security = b.adopted.security
            spec_renew(b, l, before[i].spec)
            free(before[i])
            before[i] = NULL
    for i in range(a.n):
        if a.fresh[i].door.link == NULL:
            link_begin(b, a.fresh[i])
    ids_claim(b)
    for i in range(a.n):
        link_queued(b, a.fresh[i])
    a.fresh = before             # nobody's by now: the asker's to free
    gone_free(links)
    return 0


cdef Link** named_in(Link** at, uint32_t n, View name) noexcept nogil:
    cdef uint32_t i
    for i in range(n):
        if same(at[i].spec.name, name):
            return at + i
    return NULL


cdef void spec_renew(Broker* b, Link* l, LinkSpec* fresh) noexcept nogil:
    spec_free(l.next_spec)
    l.next_spec = NULL
    if fresh.bytes_n == l.spec.bytes_n and fresh.key == l.spec.key:
        if fresh.secure != NULL:         # nothing has changed, but the files may have: for the next connection
            secure_swap(l.spec, fresh)
        spec_free(fresh)
        return
    l.next_spec = fresh
    if l.client == NULL:
        spec_take(b, l)
    elif not fresh.reload_lazy:
        link_close(b, l)


cdef void secure_swap(LinkSpec* s, LinkSpec* fresh) noexcept nogil:
    cdef TransportContext* secure = s.secure
    s.secure = fresh.secure
    fresh.secure = secure


cdef void gone_free(Links* links) noexcept nogil:
    cdef Link** at = &links.gone
    cdef Link* l
    while at[0] != NULL:
        l = at[0]
        if l.door.n_connections:
            at = &l.gone_next
            continue
        at[0] = l.gone_next
        link_free(l)


cdef void link_free(Link* l) noexcept nogil:
    spec_free(l.spec)
    spec_free(l.next_spec)
    spec_free(l.old_spec)
    past_free(&l.past)
    free(l)


cdef void links_free(Links* links) noexcept nogil:
    cdef uint32_t i
    cdef Link* l
    if links == NULL:
        return
    for i in range(links.n):
        link_free(links.at[i])
    while links.gone != NULL:
        l = links.gone
        links.gone = l.gone_next
        link_free(l)
    free(links.at)
    free(links.room)
    free(links.props_room)
    free(links)


cdef void links_prepare(Links* links) noexcept nogil:
    cdef LinkOps* ops = &links.ops
    ops.packet = packet
    ops.goodbye = goodbye
    ops.ended = ended
    ops.client_timer = client_timer
    ops.link_timer = link_timer
    ops.begin = begin
    ops.ask = ask
    ops.opened = link_opened
    ops.free = links_free
