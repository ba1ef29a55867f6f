"""Deliver what a change of the number of workers has found undelivered: a message that a kill had caught between two workers (docs/adr/0041). This module
knows the records of such messages, and the subscriptions of a session. It does not know which session lacks a message: the division has decided that.

    a record names sessions of this store -> each gets the message by its own subscriptions, as route would have delivered it
                     a shared group       -> one member of this store
                     the topic            -> the message becomes the retained one
                     the streams          -> they get it
    the end of the record is in the same batch: after another kill either all of that has happened or nothing

This runs before the links begin, so a later message of the same publisher comes later.
Cost: for each named session a walk over its subscriptions.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from cext.base.view cimport View
from cext.broker.arrivals.arrival cimport group_takes
from cext.broker.core.bounds cimport SUB_IDS_MAX
from cext.broker.core.broker cimport Broker
from cext.broker.core.durable cimport Durable, RestoredWill, changes_of, durable_of, lacks_since, session_at
from cext.broker.core.publication_state cimport Publication, SCOPE_LOCAL
from cext.broker.links.own cimport is_shared
from cext.broker.persist.persist cimport persist_waiting_will_end
from cext.broker.persist.publication cimport publication_fini, publication_of
from cext.broker.persist.streams cimport stream_message
from cext.broker.routing.deliver cimport deliver
from cext.broker.routing.delivery_rules cimport NO_LOCAL, RETAIN_AS_PUBLISHED, qos_for
from cext.broker.routing.retain cimport retain_put
from cext.broker.storage.waiting_wills cimport restored_will_drop
from cext.session.record cimport record_undelivered_next
from cext.session.session cimport SESSION_ENDED, Session
from cext.topic.index cimport SUBSCRIPTION_TEXT_BYTES, Subscription, subscription_read
from cext.topic.name cimport filter_matches


cdef inline bint is_publisher(const Session* s, const Session* publisher) noexcept nogil:
    return s.id_len == publisher.id_len and memcmp(s.client_id, publisher.client_id, s.id_len) == 0


cdef void session_gets(Broker* b, Session* s, Publication* p) noexcept nogil:
    """Deliver by all subscriptions of the session that match: one merged copy, or one for each, if the settings allow that."""
    cdef uint8_t text[SUBSCRIPTION_TEXT_BYTES]
    cdef Subscription* sub = s.owner.head
    cdef View filter
    cdef uint32_t ids[SUB_IDS_MAX]
    cdef uint32_t sub_id, n = 0
    cdef uint8_t options, qos = 0, retain = 0
    cdef bint wanted = 0
    filter.p = text
    while sub != NULL:
        sub = subscription_read(sub, text, &filter.n, &options, &sub_id)
        if is_shared(filter) or not filter_matches(filter, p.topic) or options & NO_LOCAL and is_publisher(s, p.source):
            continue
        if b.settings.allow_duplicate_messages:
            deliver(b, s, p, qos_for(b, p, options), p.retain if options & RETAIN_AS_PUBLISHED else 0, &sub_id, 1 if sub_id else 0)
            continue
        wanted = 1
        qos = max(qos, qos_for(b, p, options))
        if options & RETAIN_AS_PUBLISHED:
            retain = p.retain
        if sub_id and n < SUB_IDS_MAX:
            ids[n] = sub_id
            n += 1
    if wanted:
        deliver(b, s, p, qos, retain, ids, n)


cdef void all_get(Broker* b, RestoredWill* w) noexcept nogil:
    cdef Publication p
    cdef View sessions = w.sessions
    cdef Session* s
    publication_of(&p, w.session.will)
    p.source = w.session
    if w.unjournalled and b.streams != NULL and not stream_message(b, &p, NULL, 1):
        stream_message(b, &p, NULL, 0)       # without room it is counted as lost there: no client waits for an answer
    if w.retained and b.settings.retain_available:
        retain_put(b, &p)
    p.journalled = 1
    p.scope = SCOPE_LOCAL
    if w.group.n:
        group_takes(b, &p, w.group)
    while sessions.n:
        s = session_at(durable_of(b), record_undelivered_next(&sessions))
        if s != NULL and not s.flags & SESSION_ENDED:
            session_gets(b, s, &p)
    publication_fini(b, &p)


cdef int undelivered_deliver(Broker* b) noexcept nogil:
    cdef Durable* t = durable_of(b)
    cdef RestoredWill** at = &t.restored_wills if t != NULL else NULL
    cdef RestoredWill* w
    cdef uint64_t changes
    while t != NULL and at[0] != NULL:
        w = at[0]
        if not w.undelivered:
            at = &w.next
            continue
        changes = changes_of(b)
        all_get(b, w)
        if lacks_since(b, changes):
            return ENOMEM
        persist_waiting_will_end(b, w.number)
        restored_will_drop(b, at)
    return 0
