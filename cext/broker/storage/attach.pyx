"""Take an empty store into use while the broker runs, because its folder could not be used at the start. This module knows what a session
consists of; persist.pyx has the records.

All that outlives the broker goes into one batch: sessions, subscriptions, queues with their progress, inbound QoS 2, wills, retained messages. Without
memory for all of it, nothing is recorded and the broker goes on without a store. From then on each change is recorded as if the store had been there.
Cost: one pause of the loop, about 1 us for each session, subscription, queued and retained message; once in the life of a broker, if at all.
"""

from libc.errno cimport EEXIST, ENOMEM
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.durable cimport Durable, changes_of, durable_lacks_memory, lacks_since
from cext.broker.core.job_state cimport JOB_FANOUT, Job
from cext.broker.core.session_refs cimport session_client
from cext.broker.persist.persist cimport (
    pending_delivery_record, pending_delivery_release, persist_client_will, persist_inbound, persist_retained, persist_session,
    persist_subscription, persist_will,
)
from cext.broker.routing.plugin_gate cimport plugin_gate_record
from cext.broker.routing.retain cimport message_in
from cext.broker.storage.commit cimport durable_forget, durable_seal, durable_start
from cext.broker.storage.waiting_wills cimport waiting_wills_attach, waiting_wills_detach
from cext.session.queue cimport D_DONE, D_RELEASED, Delivery, Queue, queue_at
from cext.session.session cimport SESSION_WAITS, SESSION_WILL_STORED, Session, sessions_first, sessions_next
from cext.topic.index cimport SUBSCRIPTION_TEXT_BYTES, Subscription, subscription_read
from cext.topic.retained cimport retained_visit


cdef void subscriptions_attach(Broker* b, Session* s) noexcept nogil:
    cdef uint8_t text[SUBSCRIPTION_TEXT_BYTES]
    cdef Subscription* sub = s.owner.head
    cdef uint32_t n, sub_id
    cdef uint8_t options
    cdef View filter
    while sub != NULL:
        sub = subscription_read(sub, text, &n, &options, &sub_id)
        filter.p = text
        filter.n = n
        persist_subscription(b, s, filter, options, sub_id)


cdef void queue_attach(Broker* b, Session* s) noexcept nogil:
    cdef Queue* q = &s.queue
    cdef uint32_t at = q.floor
    cdef Delivery* d
    s.logged = q.floor           # its deliveries get their records in the open batch
    s.paged = q.floor
    while at != q.tail:
        d = queue_at(q, at)
        if d.state == D_RELEASED:
            pending_delivery_release(b, s, d, at)
        elif d.state != D_DONE and pending_delivery_record(b, s, d.message, d, at) != 0:
            durable_lacks_memory(b)
        at += 1


cdef void session_attach_store(Broker* b, Session* s) noexcept nogil:
    cdef Client* c = session_client(s)
    cdef uint32_t i
    persist_session(b, s)
    if s.store_session_id:
        subscriptions_attach(b, s)
        queue_attach(b, s)
        plugin_gate_record(b, s)
        for i in range(s.inbox.mask + 1 if s.inbox.slots != NULL else 0):
            if s.inbox.slots[i].pid:
                persist_inbound(b, s, s.inbox.slots[i].pid, s.inbox.slots[i].message, s.inbox.slots[i].identity)
        if s.will != NULL:
            persist_will(b, s, s.will, 0, s.will_due_ms)
    if c != NULL and c.will != NULL:
        persist_client_will(b, s, c.will)


cdef void fanouts_attach(Broker* b) noexcept nogil:
    """Record the released messages that a fan-out still delivers: they are in no inbox any more."""
    cdef Job* j = b.jobs
    while j != NULL:
        if j.kind == JOB_FANOUT and j.session != NULL and j.released_pid:
            persist_inbound(b, j.session, j.released_pid, j.message, j.released_identity)
        j = j.next


cdef void retained_attach(void* ctx, void* value) noexcept nogil:
    persist_retained(<Broker*>ctx, message_in(value))


cdef void attach_undo(Broker* b) noexcept nogil:
    cdef uint64_t at = 0
    cdef Session* s = sessions_first(&b.sessions, &at)
    durable_forget(b)
    waiting_wills_detach(b)
    while s != NULL:
        s.store_session_id = 0
        s.flags &= ~<uint32_t>(SESSION_WAITS | SESSION_WILL_STORED)
        s = sessions_next(&b.sessions, s, &at)
    b.messages.recorded_bytes = 0


cdef int durable_attach(Broker* b, Durable* t) noexcept nogil:
    cdef uint64_t at = 0
    cdef uint64_t changes
    cdef Session* s
    cdef int err
    if b.durable != NULL:
        return EEXIST
    b.durable = t
    err = durable_start(b)
    if err:
        b.durable = NULL
        return err
    changes = changes_of(b)
    s = sessions_first(&b.sessions, &at)
    while s != NULL:
        session_attach_store(b, s)
        s = sessions_next(&b.sessions, s, &at)
    fanouts_attach(b)
    waiting_wills_attach(b)
    retained_visit(b.retained, retained_attach, b)
    if not lacks_since(b, changes) and t.dirty:
        durable_seal(b)
    if t.dirty or lacks_since(b, changes):
        attach_undo(b)
        return ENOMEM
    at = 0
    s = sessions_first(&b.sessions, &at)
    while s != NULL:
        if s.store_session_id:
            s.logged = s.queue.tail
        s = sessions_next(&b.sessions, s, &at)
    return 0
