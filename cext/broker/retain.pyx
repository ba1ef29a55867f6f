"""Retained messages. Knows the retained tree and a subscription's options; not how a delivery travels.

A replay streams: bounded nodes per slice, and it waits while the subscriber's socket or queue is full, so a subscriber to `#` gets all of a
million retained messages and the broker holds only what is in flight. A session that goes offline in the middle gets the rest queued.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, strlen

from cext.base.view cimport View
from cext.base.wheel cimport Timer, wheel_add, wheel_remove
from cext.broker.acl cimport ACL_WRITE, acl_allows
from cext.broker.broker cimport (
    Broker, Client, DROP_MEMORY, DROP_RETAINED, HIGH_WATER_BYTES, JOB_REPLAY, Job, Publication, REPLAY_NODES,
    REPLAY_WAITING_MAX, TIMER_RETAINED,
)
from cext.broker.deliver cimport deliver, drop, publication_fini, publication_of, publication_store
from cext.broker.jobs cimport job_add, job_free, job_new
from cext.net.reactor cimport CONN_HUNGRY
from cext.session.message cimport message_ref, message_unref
from cext.session.queue cimport queue_waiting
from cext.session.session cimport SESSION_ENDED, Session
from cext.topic.name cimport Filter
from cext.topic.retained cimport (
    retained_close, retained_next, retained_open, retained_remove, retained_set,
)

cdef enum:
    NO_LOCAL = 1 << 2


# ---------------------------------------------------------------- keeping

cdef void item_free(Broker* b, RetainedItem* item) noexcept nogil:
    wheel_remove(&b.wheel, &item.timer)
    message_unref(&b.messages, &b.reactor.buffers, item.message)
    retained_item_free(item)


cdef void retained_item_free(void* p) noexcept nogil:
    free((<RetainedItem*>p).source)
    free(p)


cdef char* source_names(Session* s) noexcept nogil:
    cdef size_t user_n = strlen(s.username) if s.username != NULL else 0
    cdef char* out = <char*>calloc(1, <size_t>s.id_len + user_n + 2)
    if out != NULL:
        memcpy(out, s.client_id, s.id_len)
        if user_n:
            memcpy(out + s.id_len + 1, s.username, user_n)
    return out


cdef void retain_store(Broker* b, Publication* p) noexcept nogil:
    cdef void* old = NULL
    cdef RetainedItem* item
    if p.payload.n == 0:
        old = retained_remove(b.retained, p.topic.p, p.topic.n)
        if old != NULL:
            item_free(b, <RetainedItem*>old)
        return
    item = <RetainedItem*>calloc(1, sizeof(RetainedItem))
    if item == NULL or publication_store(b, p) == NULL:
        free(item)
        drop(b, NULL, DROP_MEMORY)
        return
    item.message = message_ref(p.message)
    item.timer.kind = TIMER_RETAINED
    item.expires_ms = p.expires_ms
    if p.source != NULL:
        item.source_hash = p.source.hash
        if b.settings.check_retain_source and b.acl != NULL:
            item.source = source_names(p.source)
    if retained_set(b.retained, p.topic.p, p.topic.n, item, &old) != 0:
        item_free(b, item)
        drop(b, NULL, DROP_MEMORY)
        return
    if old != NULL:
        item_free(b, <RetainedItem*>old)
    if item.expires_ms:
        wheel_add(&b.wheel, &item.timer, item.expires_ms)


cdef inline RetainedItem* item_of(Timer* t) noexcept nogil:
    return <RetainedItem*>(<uint8_t*>t - <size_t>&(<RetainedItem*>NULL).timer)


cdef void retained_expired(Broker* b, Timer* t) noexcept nogil:
    cdef RetainedItem* item = item_of(t)
    if item.expires_ms > b.reactor.now_ms:
        wheel_add(&b.wheel, t, item.expires_ms)      # further away than the wheel reaches
        return
    b.stats.drops[DROP_RETAINED] += 1
    retained_remove(b.retained, item.message.topic.p, item.message.topic.n)
    item_free(b, item)


# ---------------------------------------------------------------- replay

cdef void replay_begin(Broker* b, Session* s, const Filter* f, uint8_t options, uint32_t sub_id) noexcept nogil:
    cdef Job* j = job_new(b, JOB_REPLAY, NULL)
    if j == NULL or retained_open(b.retained, &j.cursor, f.filter) != 0:
        free(j)
        drop(b, s, DROP_MEMORY)
        return
    j.session = s
    s.jobs += 1
    j.options = options
    j.sub_id = sub_id
    if replay_slice(b, j):
        replay_end(b, j)
        job_free(b, j)
    else:
        job_add(b, j)


cdef bint crowded(Broker* b, Session* s) noexcept nogil:
    cdef Client* c = <Client*>s.client
    if c == NULL:
        return 0                 # offline: the queue and its limits decide
    if c.conn.out_bytes > HIGH_WATER_BYTES:
        c.conn.flags |= CONN_HUNGRY
        return 1
    return queue_waiting(&s.queue) >= REPLAY_WAITING_MAX


cdef bint source_may_write(Broker* b, RetainedItem* item) noexcept nogil:
    cdef View id, user
    if item.source == NULL or b.acl == NULL:
        return 1
    id.p = <const uint8_t*>item.source
    id.n = <uint32_t>strlen(item.source)
    user.p = id.p + id.n + 1
    user.n = <uint32_t>strlen(<const char*>user.p)
    if user.n == 0:
        user.p = NULL
    return acl_allows(b.acl, user, id, item.message.topic, ACL_WRITE)


cdef bint replay_slice(Broker* b, Job* j) noexcept nogil:
    cdef uint32_t budget = REPLAY_NODES
    cdef RetainedItem* item
    cdef Publication p
    cdef Session* s = j.session
    cdef uint8_t qos
    while budget:
        if s.flags & SESSION_ENDED or j.cancelled:
            return 1
        if crowded(b, s):
            j.blocked = 1
            return 0
        item = <RetainedItem*>retained_next(b.retained, &j.cursor, &budget)
        if item == NULL:
            return budget != 0
        if j.options & NO_LOCAL and item.source_hash == s.hash:
            continue
        if not source_may_write(b, item):
            continue
        publication_of(&p, item.message)
        p.shaped = 0
        qos = j.options & 3
        if item.message.qos < qos and not b.settings.upgrade_outgoing_qos:
            qos = item.message.qos
        if item.expires_ms == 0 or item.expires_ms > b.reactor.now_ms:
            deliver(b, s, &p, qos, 1, &j.sub_id, 1 if j.sub_id else 0)
        publication_fini(b, &p)
    return 0


cdef void replay_end(Broker* b, Job* j) noexcept nogil:
    retained_close(b.retained, &j.cursor)


cdef void replay_cancel(Broker* b, Session* s, View filter) noexcept nogil:
    cdef Job* j = b.jobs
    if s.jobs == 0:
        return
    while j != NULL:
        if j.kind == JOB_REPLAY and j.session == s and j.cursor.filter.n == filter.n \
                and memcmp(j.cursor.filter.p, filter.p, filter.n) == 0:
            j.cancelled = 1
            j.blocked = 0
        j = j.next
