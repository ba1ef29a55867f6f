"""The side of a link that is here. Knows its session, queue and subscriptions, and what is published about it; not the connection.

Invariant: from the loop's begin to its end a link has a session, which nobody else can take, and which never expires (but for a moment after a
reload that gives one link the id of another: who has it keeps it until it lets go). While the link is down it is an offline session as any other:
what is owed to it waits in its queue, within the limits. All of it has a name at the other end: by the link's lines, or, should these have
changed since it was queued, by those of then, in a copy that says so (MESSAGE_NAMED).

    session present 1: the queue goes on where it was, in order, with the same packet ids (DUP), as after any lost connection
    session present 0: what was sent and not acknowledged is sent as new; what only awaited PUBCOMP had arrived, and is done;
                       what came at QoS 2 and awaited PUBREL will not be sent again: it is ours, and goes on now
"""

from libc.errno cimport EBUSY, ENOMEM
from libc.stdint cimport uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp

from cext.base.view cimport View
from cext.base.wheel cimport wheel_remove
from cext.broker.broker cimport Broker, Client, DROP_NO_NAME, Publication, TIMER_SESSION
from cext.broker.client cimport log_line
from cext.broker.deliver cimport NO_LOCAL, RETAIN_AS_PUBLISHED, delivery_done, joined, unsent_done
from cext.broker.keep cimport inbox_forgotten, owed_done, owed_kept, owed_released, session_kept, subscription_forgotten, subscription_kept, will_forgotten
from cext.broker.life cimport client_end, session_end
from cext.broker.link cimport Link, NO_QOS, link_of_session
from cext.broker.log cimport LOG_DEBUG, LOG_LINE_MAX, LOG_WARNING, log_wanted
from cext.broker.publication cimport drop, publication_fini, publication_of
from cext.broker.retain cimport replay_begin, retain_store
from cext.broker.route cimport route
from cext.codec.reason cimport RC_SESSION_TAKEN_OVER
from cext.session.message cimport MESSAGE_AGAIN, MESSAGE_NAMED, Message, message_bytes, message_new, message_unref
from cext.session.queue cimport D_DONE, D_RELEASED, D_SENT, D_WAITING, Delivery, Queue, inbox_fini, queue_at
from cext.session.session cimport (
    EXPIRY_NEVER, SESSION_LINK, SESSION_TRUSTED, Session, session_free, session_new, sessions_add, sessions_find,
)
from cext.topic.index cimport INDEX_REMOVED, index_add, index_remove, subscription_read
from cext.topic.lines cimport LINE_OUT, Line, Lines, Renaming, can_be, line_out, lines_send
from cext.topic.name cimport Filter, filter_parse
from cext.topic.retained cimport retained_count

cdef enum:
    FILTER_ROOM = 66600          # as subscription_read wants it


# ---------------------------------------------------------------- the session

cdef Session* session_free_for(Broker* b, Link* l) noexcept nogil:
    """The session that this link left here; NULL: there is none, any more. A client's of the same id is nobody's to carry elsewhere: it ends."""
    cdef Session* s = sessions_find(&b.sessions, l.spec.local_id)
    if s == NULL or s.flags & SESSION_LINK:
        return s
    if log_wanted(&b.log, LOG_WARNING):
        log_line(b, LOG_WARNING, snprintf(
            b.log.line, LOG_LINE_MAX, "Warning: Bridge %.*s takes the client id %.*s: the session of the client that had it ends.",
            <int>l.spec.name.n, <const char*>l.spec.name.p, <int>l.spec.local_id.n, <const char*>l.spec.local_id.p))
    if s.client != NULL:
        client_end(b, <Client*>s.client, RC_SESSION_TAKEN_OVER)
        s = sessions_find(&b.sessions, l.spec.local_id)      # it may have ended with it
    if s != NULL:
        session_end(b, s)
    return NULL


cdef int local_begin(Broker* b, Link* l) noexcept nogil:
    cdef Session* s = session_free_for(b, l)
    if s != NULL and link_of_session(b, s) != NULL:
        return EBUSY             # another link's, until that has taken its new name
    if s == NULL:
        s = session_new(&b.sessions, l.spec.local_id)
        if s == NULL:
            return ENOMEM
        s.timer.kind = TIMER_SESSION
        if sessions_add(&b.sessions, s) != 0:
            session_free(&b.sessions, s)
            return ENOMEM
    wheel_remove(&b.wheel, &s.timer)
    if s.will != NULL:
        message_unref(&b.messages, &b.reactor.buffers, s.will)
        s.will = NULL
        s.will_due_ms = 0
        will_forgotten(b, s)
    s.ends_ms = 0
    s.expiry_s = EXPIRY_NEVER
    s.security = NULL
    s.flags |= SESSION_LINK | SESSION_TRUSTED
    l.session = s
    l.max_qos = 2
    l.local_qos = NO_QOS
    l.was_up = 0
    l.told_all = retained_count(b.retained) == 0 or s.owner.head != NULL      # restored: it was told then, or waits
    session_kept(b, s)
    if not l.spec.local_clean:
        names_settle(b, l, NULL)
        local_subscribe(b, l)
    else:
        local_clear(b, l)
    local_notice(b, l, b"0")
    return 0


# ---------------------------------------------------------------- what waits, and other lines

cdef inline bint same_name(const Renaming* x, const Renaming* y) noexcept nogil:
    return x.cut == y.cut and x.prefix.n == y.prefix.n and memcmp(x.prefix.p, y.prefix.p, x.prefix.n) == 0


cdef void names_settle(Broker* b, Link* l, const Lines* before) noexcept nogil:
    """The link's lines are others than those under which its queue was filled; before NULL: nobody knows those any more. O(what waits)."""
    cdef Queue* q = &l.session.queue
    cdef uint32_t at = q.floor, n = 0
    cdef Delivery* d
    while at != q.tail:
        d = queue_at(q, at)
        if d.message != NULL and not d.message.flags & MESSAGE_NAMED and not name_settle(b, l, d, at, before):
            nameless(b, l.session, d, at)
            n += 1
        at += 1
        if <int>(q.floor - at) > 0:
            at = q.floor
    if n and log_wanted(&b.log, LOG_WARNING):
        log_line(b, LOG_WARNING, snprintf(
            b.log.line, LOG_LINE_MAX, "Warning: Bridge %.*s: %u messages that waited are dropped: none of its topics sends them out any more.",
            <int>l.spec.name.n, <const char*>l.spec.name.p, n))


cdef bint name_settle(Broker* b, Link* l, Delivery* d, uint32_t at, const Lines* before) noexcept nogil:
    """0: it has no name."""
    cdef View topic = d.message.topic
    cdef Renaming now, was
    cdef bint known = before != NULL and lines_send(before, topic)
    line_out(&l.spec.lines, topic, &now)
    if known:
        line_out(before, topic, &was)
    if lines_send(&l.spec.lines, topic) and (not known or same_name(&was, &now)):
        return 1
    return known and can_be(&was, topic) and named(b, l.session, d, at, &was)


cdef bint named(Broker* b, Session* s, Delivery* d, uint32_t at, const Renaming* name) noexcept nogil:
    """A copy under that name takes the place of the message, also on record. 0: no memory."""
    cdef Message* old = d.message
    cdef Message* m
    m = message_new(&b.messages, joined(b, name, old.topic), old.props, old.payload)
    if m == NULL:
        return 0
    m.qos = old.qos
    m.retain = old.retain
    m.flags = old.flags & MESSAGE_AGAIN | MESSAGE_NAMED
    m.expires_ms = old.expires_ms
    m.source_hash = old.source_hash
    if s.sno and old.lsn:
        if <int>(at - s.logged) >= 0:
            owed_done(b, s, old, at)
        owed_kept(b, s, m, d, at)        # without memory the record has the older name, of which a start makes the best
    s.queue.waiting_bytes += message_bytes(m)
    s.queue.waiting_bytes -= message_bytes(old)
    d.message = m
    message_unref(&b.messages, &b.reactor.buffers, old)
    return 1


cdef void nameless(Broker* b, Session* s, Delivery* d, uint32_t at) noexcept nogil:
    """What may have been sent at QoS 2 is released: should it have arrived, it counts there, under the name that it had."""
    drop(b, s, DROP_NO_NAME)
    if d.state != D_SENT or d.qos & 3 != 2:
        unsent_done(b, s, d)
        return
    s.queue.waiting_bytes -= message_bytes(d.message)
    message_unref(&b.messages, &b.reactor.buffers, d.message)
    d.message = NULL
    d.state = D_RELEASED
    owed_released(b, s, d, at)


cdef void local_end(Broker* b, Link* l) noexcept nogil:
    cdef Session* s = l.session
    l.session = NULL
    if s != NULL:
        s.flags &= ~<uint32_t>(SESSION_LINK | SESSION_TRUSTED)
        session_end(b, s)


cdef void local_clear(Broker* b, Link* l) noexcept nogil:
    queue_drop(b, l.session)
    subscriptions_remove(b, l)


cdef void queue_drop(Broker* b, Session* s) noexcept nogil:
    """All that is owed. Ids go on from where they are: the remote may still hold some of them."""
    cdef Queue* q = &s.queue
    cdef Delivery* d
    while q.floor != q.tail:
        d = queue_at(q, q.floor)
        if s.sno and d.state != D_DONE:
            owed_done(b, s, d.message, q.floor)
        if d.message != NULL:
            message_unref(&b.messages, &b.reactor.buffers, d.message)
            d.message = NULL
        q.floor += 1
    q.next = q.floor
    q.pending = q.inflight = 0
    q.waiting_bytes = q.inflight_bytes = 0


cdef void subscriptions_remove(Broker* b, Link* l) noexcept nogil:
    cdef Session* s = l.session
    cdef uint8_t text[FILTER_ROOM]
    cdef Filter f
    cdef uint32_t n, sub_id
    cdef uint8_t options
    l.local_qos = NO_QOS
    while s.owner.head != NULL:
        subscription_read(s.owner.head, text, &n, &options, &sub_id)
        if filter_parse(text, n, &f) != 0 or index_remove(b.index, &s.owner, &f) != INDEX_REMOVED:
            return               # it was added: cannot be
        subscription_forgotten(b, s, f.whole)


cdef void local_subscribe(Broker* b, Link* l) noexcept nogil:
    cdef const Line* line
    cdef Filter f
    cdef uint32_t i
    cdef uint8_t options
    subscriptions_remove(b, l)
    l.local_qos = l.max_qos
    for i in range(l.spec.lines.n):
        line = &l.spec.lines.at[i]
        if not line.ways & LINE_OUT:
            continue
        options = (line.qos if line.qos < l.max_qos else l.max_qos) | NO_LOCAL | RETAIN_AS_PUBLISHED
        if log_wanted(&b.log, LOG_DEBUG):
            log_line(b, LOG_DEBUG, snprintf(b.log.line, LOG_LINE_MAX, "Bridge %.*s doing local SUBSCRIBE on topic %.*s",
                                            <int>l.spec.local_id.n, <const char*>l.spec.local_id.p, <int>line.local.n,
                                            <const char*>line.local.p))
        if filter_parse(line.local.p, line.local.n, &f) == 0 and index_add(
                b.index, &l.session.owner, l.session, &f, options, 0) >= 0:
            subscription_kept(b, l.session, line.local, options, 0)
        else:
            if log_wanted(&b.log, LOG_WARNING):
                log_line(b, LOG_WARNING, snprintf(b.log.line, LOG_LINE_MAX, "Warning: Bridge %.*s could not subscribe to %.*s here.",
                                                  <int>l.spec.name.n, <const char*>l.spec.name.p, <int>line.local.n,
                                                  <const char*>line.local.p))


cdef void local_replay(Broker* b, Link* l, bint all) noexcept nogil:
    """[v5 3.8.4] What is retained, as for a subscription that is made now. What the queue has kept anyway is not told twice: of a session that
    lives on at both ends only lines of QoS 0, whose messages nobody kept, get it again."""
    cdef const Line* line
    cdef Filter f
    cdef uint32_t i
    for i in range(l.spec.lines.n):
        line = &l.spec.lines.at[i]
        if line.ways & LINE_OUT and (all or line.qos == 0) and filter_parse(line.local.p, line.local.n, &f) == 0:
            replay_begin(b, l.session, &f)


# ---------------------------------------------------------------- publications

cdef void local_publish(Broker* b, Session* source, Message* m) noexcept nogil:
    cdef Publication p
    publication_of(&p, m)
    p.source = source
    if p.retain and b.settings.retain_available:
        retain_store(b, &p)
    route(b, &p, NULL)
    publication_fini(b, &p)


cdef void local_notice(Broker* b, Link* l, const char* state) noexcept nogil:
    cdef View none, payload
    cdef Message* m
    if not l.spec.notifications:
        return
    none.p = NULL
    none.n = 0
    payload.p = <const uint8_t*>state
    payload.n = 1
    m = message_new(&b.messages, l.spec.notice, none, payload)
    if m == NULL:
        return
    m.qos = 1
    m.retain = 1
    local_publish(b, NULL, m)
    message_unref(&b.messages, &b.reactor.buffers, m)


# ---------------------------------------------------------------- what the remote has forgotten, or does not take

cdef void local_forgotten(Broker* b, Link* l) noexcept nogil:
    cdef Session* s = l.session
    cdef uint32_t at = s.queue.floor
    cdef Delivery* d
    while at != s.queue.tail:
        d = queue_at(&s.queue, at)
        at += 1
        if d.state == D_SENT:
            d.state = D_WAITING
        elif d.state == D_RELEASED:
            delivery_done(b, s, d)
    inbox_release(b, s)


cdef void inbox_release(Broker* b, Session* s) noexcept nogil:
    """In the order of their packet ids, which is that of their coming but for where these begin anew."""
    cdef uint32_t i
    cdef Message* m
    if s.inbox.slots == NULL:
        return
    s.jobs += 1
    for i in range(s.inbox.mask + 1):
        if s.inbox.slots[i].pid:
            inbox_forgotten(b, s, s.inbox.slots[i].pid)
        m = s.inbox.slots[i].message if s.inbox.slots[i].pid else NULL
        if m == NULL:
            continue
        s.inbox.slots[i].message = NULL
        if m.expires_ms == 0 or m.expires_ms > b.reactor.now_ms:
            local_publish(b, s, m)
        message_unref(&b.messages, &b.reactor.buffers, m)
    s.jobs -= 1
    inbox_fini(&s.inbox)


cdef void local_lower(Broker* b, Link* l) noexcept nogil:
    """[v5 3.2.2-11] O(what waits), once per connection to a broker that takes less than QoS 2."""
    cdef Session* s = l.session
    cdef uint32_t at = s.queue.floor
    cdef Delivery* d
    while at != s.queue.tail:
        d = queue_at(&s.queue, at)
        at += 1
        if d.state == D_DONE or (d.qos & 3) <= l.max_qos:
            continue
        if d.state == D_RELEASED:
            delivery_done(b, s, d)
            continue
        d.state = D_WAITING
        d.qos = (d.qos & ~<uint8_t>3) | l.max_qos
