"""Store retained messages and replay them to new subscriptions. This module knows the retained tree and a subscription's options,
not how a delivery is sent.

A replay is a stream: it visits a bounded number of nodes per slice and waits while the subscriber's socket or queue is full. So a
subscriber to `#` gets all of a million retained messages, while the broker holds only those in flight. If the session goes
offline during the replay, the rest is queued.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memmove, strlen

from cext.base.cells cimport cells_give, cells_take_zeroed
from cext.base.view cimport View
from cext.base.wheel cimport Timer, wheel_add, wheel_remove
from cext.broker.core.access cimport access_of_names, origin_read, security_of_origin
from cext.broker.core.bounds cimport HIGH_WATER_BYTES, REPLAY_BYTES_MAX, REPLAY_NODES, REPLAY_WAITING_MAX, WORK_RETAIN
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client, TIMER_RETAINED
from cext.broker.core.job_state cimport JOB_REPLAY, Job
from cext.broker.core.jobs cimport job_add, job_free, job_new
from cext.broker.core.publication_state cimport Publication, SCOPE_COPY, SCOPE_LOCAL
from cext.broker.core.session_refs cimport session_client, session_replay, session_security
from cext.broker.core.stats cimport DROP_MEMORY, DROP_RETAINED
from cext.broker.links.publisher cimport publisher_bytes
from cext.broker.links.retained cimport retained_announce, retained_owner
from cext.broker.persist.persist cimport persist_reserve, persist_retained, persist_retained_end, record_room
from cext.broker.persist.publication cimport drop, drop_unlogged, dropped, publication_fini, publication_of, publication_store
from cext.broker.routing.deliver cimport deliver
from cext.broker.routing.delivery_rules cimport NO_LOCAL
from cext.broker.routing.overflow cimport queue_bytes_full
from cext.broker.routing.plugin_gate cimport plugin_gate_waiting
from cext.broker.rules.acl cimport ACL_WRITE
from cext.net.conn_state cimport CONN_BLOCKED, CONN_HUNGRY
from cext.session.message cimport MESSAGE_COPY, Message, message_ref, message_unref
from cext.session.queue cimport queue_waiting
from cext.session.record cimport RECORD_RETAINED_FROM, RecordFrom, record_from_put, record_from_size
from cext.session.session cimport SESSION_ENDED, Session
from cext.topic.index cimport Entry, index_entry
from cext.topic.name cimport Filter, filter_parse
from cext.topic.retained cimport retained_close, retained_get, retained_next, retained_open, retained_remove, retained_set


# ---------------------------------------------------------------- store

cdef inline RetainedItem* item_in(void* value) noexcept nogil:
    """Return the item of a value; NULL = the value is a bare message."""
    return <RetainedItem*>(<size_t>value - 1) if <size_t>value & 1 else NULL


cdef Message* message_in(void* value) noexcept nogil:
    return item_in(value).message if <size_t>value & 1 else <Message*>value


cdef void value_free(Broker* b, void* value) noexcept nogil:
    cdef RetainedItem* item = item_in(value)
    message_unref(&b.messages, &b.reactor.buffers, message_in(value))
    if item != NULL:
        wheel_remove(&b.wheel, &item.timer)
        free(item.source)
        cells_give(&b.messages.cells, item, sizeof(RetainedItem))


cdef Message* retained_message(Broker* b, View topic) noexcept nogil:
    cdef void* value = retained_get(b.retained, topic.p, topic.n)
    return message_in(value) if value != NULL else NULL


cdef char* source_names(Session* s) noexcept nogil:
    cdef size_t user_n = strlen(s.username) if s.username != NULL else 0
    cdef char* out = <char*>calloc(1, <size_t>s.id_len + user_n + 2)
    if out != NULL:
        memcpy(out, s.client_id, s.id_len)
        if user_n:
            memcpy(out + s.id_len + 1, s.username, user_n)
    return out


cdef bint publisher_record_of(Broker* b, View topic, RecordFrom* out) noexcept nogil:
    cdef void* value = retained_get(b.retained, topic.p, topic.n)
    cdef RetainedItem* item = item_in(value) if value != NULL else NULL
    if item == NULL or item.source == NULL or item.origin == 0:
        return 0
    source_of(item, &out.id, &out.user)
    out.security = item.origin
    out.topic = topic
    return 1


cdef uint64_t retained_from_bytes(Broker* b, View topic) noexcept nogil:
    cdef RecordFrom r
    return record_from_size(&r) if publisher_record_of(b, topic, &r) else 0


cdef void retained_from_record(Broker* b, View topic) noexcept nogil:
    cdef RecordFrom r
    cdef uint64_t lsn
    cdef uint8_t* out
    if publisher_record_of(b, topic, &r):
        out = record_room(b, RECORD_RETAINED_FROM, record_from_size(&r), &lsn)
        if out != NULL:
            record_from_put(out, &r)


cdef void retained_from(Broker* b, const RecordFrom* r) noexcept nogil:
    """Set the publisher of a topic's retained message from its record. If there is no memory for the names, or the settings do
    not check publishers any more, the message counts as the broker's own."""
    cdef void* value = retained_get(b.retained, r.topic.p, r.topic.n)
    cdef void* old = NULL
    cdef RetainedItem* item
    cdef bint checked = b.settings.check_retain_source and b.n_securities != 0 and r.security != 0
    if value == NULL or not (checked or b.links != NULL):
        return
    item = item_in(value)
    if item == NULL:
        item = <RetainedItem*>cells_take_zeroed(&b.messages.cells, sizeof(RetainedItem))
        if item == NULL:
            return
        item.message = message_ref(message_in(value))
        item.timer.kind = TIMER_RETAINED
        if retained_set(b.retained, r.topic.p, r.topic.n, <void*>(<size_t>item | 1), &old) != 0:
            old = <void*>(<size_t>item | 1)
        value_free(b, old)
        if item_in(old) != NULL:
            return
    free(item.source)
    item.source = <char*>calloc(1, <size_t>r.id.n + r.user.n + 2)
    if item.source == NULL:
        return
    memcpy(item.source, r.id.p, r.id.n)
    if r.user.n:
        memcpy(item.source + r.id.n + 1, r.user.p, r.user.n)
    if checked:
        item.origin = origin_read(b, r.security)
        item.security = security_of_origin(b, item.origin)


cdef View retained_publisher(Broker* b, const Message* m) noexcept nogil:
    cdef View id, user, none
    cdef void* value = retained_get(b.retained, m.topic.p, m.topic.n)
    cdef RetainedItem* item = item_in(value) if value != NULL else NULL
    none.p = NULL
    none.n = 0
    if item == NULL or item.message != m or item.source == NULL:
        return none
    source_of(item, &id, &user)
    return publisher_bytes(b, item.origin, id, user)


cdef void copy_count(Broker* b, View topic, uint16_t generation) noexcept nogil:
    cdef void* value = retained_get(b.retained, topic.p, topic.n)
    cdef RetainedItem* item = item_in(value) if value != NULL else NULL
    if item != NULL and item.source != NULL:
        item.generation = generation
    elif value != NULL:
        message_in(value).source_hash = generation


cdef uint64_t copy_generation(void* value) noexcept nogil:
    cdef RetainedItem* item = item_in(value)
    return item.generation if item != NULL and item.generation else message_in(value).source_hash


cdef inline void source_of(const RetainedItem* item, View* id, View* user) noexcept nogil:
    id.p = <const uint8_t*>item.source
    id.n = <uint32_t>strlen(item.source)
    user.p = id.p + id.n + 1
    user.n = <uint32_t>strlen(<const char*>user.p)


cdef void* value_new(Broker* b, Publication* p) noexcept nogil:
    """Return a new value of the retained tree, with its own reference to the message; NULL = no memory."""
    cdef bint keep_source = b.settings.check_retain_source and p.source != NULL and p.source.security != NULL
    cdef bint names = keep_source or (b.links != NULL and p.source != NULL)      # other workers need them for No Local
    cdef RetainedItem* item
    if publication_store(b, p) == NULL:
        return NULL
    if p.source != NULL:
        p.message.source_hash = p.source.hash
    if not names and p.expires_ms == 0:
        return message_ref(p.message)
    item = <RetainedItem*>cells_take_zeroed(&b.messages.cells, sizeof(RetainedItem))
    if item == NULL:
        return NULL
    item.message = message_ref(p.message)
    item.timer.kind = TIMER_RETAINED
    item.expires_ms = p.expires_ms
    if keep_source:
        item.security = session_security(p.source)
        item.origin = p.source.origin
    if names:
        item.source = source_names(p.source)
        if item.source == NULL:         # without names the broker could not decide whether it may still be sent
            value_free(b, <void*>(<size_t>item | 1))
            return NULL
    return <void*>(<size_t>item | 1)


cdef void retain_store(Broker* b, Publication* p) noexcept nogil:
    cdef void* old = NULL
    cdef void* value
    b.work += WORK_RETAIN
    if p.payload.n == 0:
        if not persist_reserve(b, NULL, p.topic.n):
            return               # the publisher gets no acknowledgement
        old = retained_remove(b.retained, p.topic.p, p.topic.n)
        if old != NULL:
            persist_retained_end(b, message_in(old), 0)
            value_free(b, old)
        return
    value = value_new(b, p)
    if value == NULL:
        drop_unlogged(b, p.source, DROP_MEMORY, p.topic)
        return
    if retained_set(b.retained, p.topic.p, p.topic.n, value, &old) != 0:
        value_free(b, value)
        drop_unlogged(b, p.source, DROP_MEMORY, p.topic)
        return
    if old != NULL:
        persist_retained_end(b, message_in(old), 1)
        value_free(b, old)
    if p.scope & SCOPE_COPY:
        message_in(value).flags |= MESSAGE_COPY
    else:
        persist_retained(b, message_in(value))
    if p.expires_ms:
        wheel_add(&b.wheel, &item_in(value).timer, p.expires_ms)


cdef void retain_put(Broker* b, Publication* p) noexcept nogil:
    if b.links != NULL and not p.scope & SCOPE_LOCAL:
        p.owner = retained_owner(b, p.topic)
    if p.owner:
        return                   # its owner gets it with the message, and sends copies to all
    retain_store(b, p)
    if b.links != NULL and not p.scope & SCOPE_LOCAL and publication_store(b, p) != NULL:
        retained_announce(b, p.message)


cdef inline RetainedItem* item_of(Timer* t) noexcept nogil:
    return <RetainedItem*>(<uint8_t*>t - <size_t>&(<RetainedItem*>NULL).timer)


cdef void retained_expired(Broker* b, Timer* t) noexcept nogil:
    cdef RetainedItem* item = item_of(t)
    if item.expires_ms > b.reactor.now_ms:
        wheel_add(&b.wheel, t, item.expires_ms)      # beyond the range of the timer wheel
        return
    dropped(b, NULL, DROP_RETAINED, item.message.topic)
    persist_retained_end(b, item.message, 0)
    value_free(b, retained_remove(b.retained, item.message.topic.p, item.message.topic.n))


# ---------------------------------------------------------------- replay

cdef bint replay_has_room(Session* s, uint32_t n) noexcept nogil:
    cdef Job* j = session_replay(s)
    return j == NULL or j.todo_n - j.todo_at + n + sizeof(uint32_t) <= REPLAY_BYTES_MAX


cdef int todo_push(Job* j, View filter) noexcept nogil:
    """Append a filter with its length in front. Drops filters at the head that are done. Returns -1 if there is no memory."""
    cdef uint32_t need = filter.n + <uint32_t>sizeof(uint32_t)
    cdef uint8_t* bytes
    if j.todo_at > j.todo_n // 2:
        memmove(j.todo, j.todo + j.todo_at, j.todo_n - j.todo_at)
        j.todo_n -= j.todo_at
        j.todo_at = 0
    if j.todo_cap - j.todo_n < need:
        bytes = <uint8_t*>realloc(j.todo, <size_t>j.todo_cap * 2 + need)
        if bytes == NULL:
            return -1
        j.todo = bytes
        j.todo_cap = j.todo_cap * 2 + need
    memcpy(j.todo + j.todo_n, &filter.n, sizeof(uint32_t))
    memcpy(j.todo + j.todo_n + sizeof(uint32_t), filter.p, filter.n)
    j.todo_n += need
    return 0


cdef bint todo_pop(Job* j, View* filter) noexcept nogil:
    if j.todo_at == j.todo_n:
        return 0
    memcpy(&filter.n, j.todo + j.todo_at, sizeof(uint32_t))
    filter.p = j.todo + j.todo_at + sizeof(uint32_t)
    j.todo_at += filter.n + <uint32_t>sizeof(uint32_t)
    return 1


cdef void replay_begin(Broker* b, Session* s, const Filter* f) noexcept nogil:
    cdef Job* j = session_replay(s)
    if j != NULL:
        if todo_push(j, f.filter) != 0:
            drop(b, s, DROP_MEMORY, f.filter)
        return
    j = job_new(b, JOB_REPLAY, NULL)
    if j == NULL or todo_push(j, f.filter) != 0:
        free(j)
        drop(b, s, DROP_MEMORY, f.filter)
        return
    j.session = s
    s.jobs += 1
    s.replay = j
    if replay_slice(b, j):
        replay_end(b, j)
        job_free(b, j)
    elif not j.blocked:
        job_add(b, j)


cdef bint sending_congested(Broker* b, Session* s) noexcept nogil:
    """Return whether a replay must wait. A replay waits in all cases in which deliver() would drop: until the output drains, or
    until a delivery in flight is acknowledged."""
    cdef Client* c = session_client(s)
    cdef uint32_t most = REPLAY_WAITING_MAX
    if c == NULL:
        return 0                 # offline: the queue and its limits decide
    if c.conn.flags & CONN_BLOCKED or c.conn.out_bytes > HIGH_WATER_BYTES:
        c.conn.flags |= CONN_HUNGRY
        return 1
    if b.settings.max_queued_messages and b.settings.max_queued_messages < most:
        most = b.settings.max_queued_messages
    if queue_waiting(&s.queue) >= most or plugin_gate_waiting(s) >= most:
        return 1
    return queue_bytes_full(b, s)


cdef bint replay_open(Broker* b, Job* j) noexcept nogil:
    """Open the cursor of the next filter that is still subscribed. Returns 0 if there is none."""
    cdef View text
    cdef Filter f
    cdef Entry* e
    while todo_pop(j, &text):
        if filter_parse(text.p, text.n, &f) != 0:
            continue
        e = index_entry(b.index, &j.session.owner, &f)
        if e == NULL:
            continue
        if retained_open(b.retained, &j.cursor, text) != 0:
            drop(b, j.session, DROP_MEMORY, text)
            continue
        j.open = 1
        j.options = e.options
        j.sub_id = e.sub_id
        return 1
    return 0


cdef bint still_subscribed(Broker* b, Job* j) noexcept nogil:
    cdef Filter f
    return filter_parse(j.cursor.filter.p, j.cursor.filter.n, &f) == 0 and index_entry(b.index, &j.session.owner, &f) != NULL


cdef void replay_close(Broker* b, Job* j) noexcept nogil:
    if j.open:
        j.open = 0
        retained_close(b.retained, &j.cursor)


cdef bint source_may_write(Broker* b, const RetainedItem* item) noexcept nogil:
    cdef View id, user
    if item == NULL or item.source == NULL or item.origin == 0:
        return 1
    source_of(item, &id, &user)
    if user.n == 0:
        user.p = NULL
    return access_of_names(item.security, user, id, item.message.topic, ACL_WRITE)


cdef void replay_one(Broker* b, Job* j, void* value) noexcept nogil:
    cdef Publication p
    cdef Message* m = message_in(value)
    cdef uint8_t qos = j.options & 3
    if j.options & NO_LOCAL and m.source_hash == j.session.hash:
        return
    if not source_may_write(b, item_in(value)) or (m.expires_ms and m.expires_ms <= b.reactor.now_ms):
        return
    if m.qos < qos and not b.settings.upgrade_outgoing_qos:
        qos = m.qos
    publication_of(&p, m)
    p.shaped = 0
    deliver(b, j.session, &p, qos, 1, &j.sub_id, 1 if j.sub_id else 0)
    publication_fini(b, &p)


cdef bint replay_slice(Broker* b, Job* j) noexcept nogil:
    cdef uint32_t budget = REPLAY_NODES
    cdef void* value
    if j.open and not still_subscribed(b, j):
        replay_close(b, j)
    while budget:
        if j.session.flags & SESSION_ENDED:
            return 1
        if sending_congested(b, j.session):
            j.blocked = 1
            return 0
        if not j.open and not replay_open(b, j):
            return 1
        value = retained_next(b.retained, &j.cursor, &budget)
        if value != NULL:
            replay_one(b, j, value)
        elif budget:
            replay_close(b, j)
            budget -= 1
    return 0


cdef void replay_end(Broker* b, Job* j) noexcept nogil:
    replay_close(b, j)
    free(j.todo)
    j.todo = NULL
    j.session.replay = NULL
