"""The wills that wait for a plugin or for other workers, between two processes. This module knows their list and their requests, not how plugins decide.

A will that waits has a record of its own (persist_waiting_will), because its session may end, or get another will, before the plugin
decides. At a start each such record becomes a RestoredWill. restored_wills_slice asks about it under the same number before any client
is let in, so a later record with that number replaces the earlier one.
Cost: the list is searched from its beginning, where the oldest will is; the store has the records in the same order.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free

from cext.base.slab cimport slab_at, slab_end
from cext.broker.auth.auth_requests cimport (
    ASK_ACL, AuthRequest, FOR_WILL, auth_request_handle, auth_requests_at, auth_requests_end,
)
from cext.broker.core.broker cimport Broker
from cext.broker.core.durable cimport Durable, RestoredWill, durable_of
from cext.broker.core.link_state cimport LinkWait, links_of
from cext.broker.persist.persist cimport persist_waiting_will
from cext.session.message cimport message_unref
from cext.session.session cimport session_free


cdef RestoredWill** restored_will_at(Durable* t, uint64_t number) noexcept nogil:
    cdef RestoredWill** at = &t.restored_wills
    while at[0] != NULL and at[0].number != number:
        at = &at[0].next
    return at


cdef void restored_will_drop(Broker* b, RestoredWill** at) noexcept nogil:
    cdef RestoredWill* w = at[0]
    if w == NULL:
        return
    at[0] = w.next
    if w.session != NULL:
        if w.session.will != NULL:
            message_unref(&b.messages, &b.reactor.buffers, w.session.will)
        session_free(&b.sessions, w.session)
    free(w)


cdef void restored_wills_forget(Broker* b) noexcept nogil:
    cdef Durable* t = durable_of(b)
    while t.restored_wills != NULL:
        restored_will_drop(b, &t.restored_wills)


cdef inline AuthRequest* waiting_will_at(Broker* b, uint32_t i) noexcept nogil:
    cdef AuthRequest* q = auth_requests_at(b, i)
    return q if q != NULL and q.kind == ASK_ACL and q.purpose == FOR_WILL else NULL


cdef void waiting_wills_walk(Broker* b, bint stored) noexcept nogil:
    """Give each will that waits a record, or forget that it has one."""
    cdef AuthRequest* q
    cdef uint32_t i
    sent_wills_detach(b)
    for i in range(auth_requests_end(b) if b.auth_requests != NULL else 0):
        q = waiting_will_at(b, i)
        if q != NULL and stored:
            durable_of(b).last_will += 1
            q.waiting_will = persist_waiting_will(b, q.session, q.message, durable_of(b).last_will, auth_request_handle(q))
        elif q != NULL:
            q.waiting_will = 0


cdef void waiting_wills_attach(Broker* b) noexcept nogil:
    waiting_wills_walk(b, 1)


cdef void sent_wills_detach(Broker* b) noexcept nogil:
    """Forget the numbers of wills that other workers have not acknowledged: their records were in another store."""
    cdef LinkWait* k
    cdef uint32_t i
    for i in range(slab_end(&links_of(b).waits) if b.links != NULL else 0):
        k = <LinkWait*>slab_at(&links_of(b).waits, i)
        if k != NULL:
            k.will = 0


cdef void waiting_wills_detach(Broker* b) noexcept nogil:
    waiting_wills_walk(b, 0)
