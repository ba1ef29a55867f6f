"""Seal batches, then release acknowledgements: seal the open batch, let the storage thread write it, and release what waited for
it. This module knows the order of batches, not their place on the disk.

    open batch --its time, or SEAL_EARLY_BYTES--> sealed (a ticket) --storage thread--> written [synced] --> committed: waiters

One batch is written at a time, unless many bytes wait. So a slow disk makes batches larger, not more numerous.

The time of a batch adapts. A message that all its subscribers acknowledge before its batch is sealed need not be written (it is
elided), and its publisher gets the acknowledgement at once. If most messages are elided, it pays to be patient: then a batch is
sealed `interval` after its first change. If they are not, or the batch has a message for an offline session, waiting only delays
acknowledgements: then a batch is sealed at the end of the turn, but not more often than every COMMIT_PACE_US. One batch in PROBES waits
in any case, to measure. A batch without waiters, of journals (streams.pxd) only, is lazy.
Cost: one look at two counters per turn; for a batch, its contents.
"""

from libc.errno cimport EIO
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from cext.base.clock cimport clock_monotonic_us
from cext.base.slab cimport slab_get
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.durable cimport (
    ACKS_PER_RECORD, Durable, DurableBatch, MEMORY_PAUSE_MS, PENDING, Pending, PendingDelivery, SEAL_EARLY_BYTES, StoreGauges, StoredAck,
    TROUBLE_ERROR, TROUBLE_FULL, TROUBLE_LOW, TROUBLE_MEMORY, Waiter, durable_of,
)
from cext.broker.core.link_state cimport links_of
from cext.broker.core.log cimport LOG_ERROR, LOG_NOTICE
from cext.broker.core.observed cimport OBSERVED_COMMIT, observe
from cext.broker.core.settings cimport DURABILITY_STRICT
from cext.broker.core.workers cimport log_own
from cext.broker.persist.pending_acks cimport pending_acks_release, pending_acks_resume
from cext.broker.persist.persist cimport message_recorded, pending_ends_record, persist_reserve
from cext.broker.persist.streams cimport streams_end, streams_news, streams_recorded, streams_seal, streams_turn
from cext.broker.replay.cursor cimport cursors_receive
from cext.broker.routing.pump cimport pump
from cext.broker.routing.page_in cimport pages_receive
from cext.broker.routing.retain cimport retained_from_bytes, retained_from_record
from cext.broker.routing.session_release cimport session_record_done
from cext.broker.storage.clean cimport clean_some
from cext.broker.storage.gated cimport gated_forget, gated_record
from cext.broker.storage.waiting_wills cimport restored_wills_forget
from cext.broker.storage.stream_files cimport streams_fini
from cext.link.links cimport link_committed, link_seal
from cext.net.reactor cimport reactor_watch
from cext.session.message cimport MESSAGE_RETAINED, MESSAGE_SPREAD, Message, RECORD_ROOM, message_bytes, message_unref
from cext.session.queue cimport D_DONE, queue_at
from cext.session.record cimport (
    RECORD_ACKS, RECORD_ACK_BYTES, RECORD_ENTRY_SHARED, RECORD_GATED_DONE, RECORD_MSG, RECORD_PUBLISHER, RECORD_RETAINED_SET, RecordEntry,
    RecordMessage, record_ack_put, record_entry_put, record_entry_size, record_msg_end_put, record_msg_put, record_msg_size,
)
from cext.session.session cimport SESSION_ENDED, SESSION_WAITS, Session
from cext.store.state cimport (
    STORE_CLEAN, STORE_ERROR, STORE_ERROR_OVER, STORE_FULL, STORE_FULL_OVER, STORE_LOW, STORE_LOW_OVER, STORE_READ,
    STORE_READ_ERROR, STORE_WHY_MAX, StoreStats,
)
from cext.store.store cimport (
    store_append, store_close, store_error, store_poll, store_seal, store_start, store_stats, store_synced, store_written,
)
from cext.topic.index cimport IndexStats, index_stats

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int us)

cdef enum:
    BATCHES = 64                 # entries of Durable.batches
    COMMIT_PACE_US = 500
    LAZY_US = 10000              # time of a batch without waiters
    LAZY_BYTES = 1 << 20         # size at which such a batch is sealed earlier
    PROBES = 64
    SESSION_ROOM = 128           # approximate size of a session's record
    SUBSCRIPTION_ROOM = 96
    POLL_US = 100                # of durable_commit


# ---------------------------------------------------------------- seal

cdef inline bint is_pending_delivery(const PendingDelivery* o) noexcept nogil:
    cdef Session* s = o.session
    if s.flags & SESSION_ENDED or <int>(o.position - s.queue.floor) < 0 or <int>(o.position - s.queue.tail) >= 0:
        return 0
    return queue_at(&s.queue, o.position).state != D_DONE


cdef inline void pending_entry_fill(const PendingDelivery* o, RecordEntry* e) noexcept nogil:
    e.store_session_id = o.session.store_session_id
    e.position = o.position
    e.sub_id = o.sub_id
    e.pid = o.pid
    e.qos = o.qos


cdef int pending_record(Broker* b, Durable* t, Pending* p) noexcept nogil:
    """Write the record of a pending message. Returns -1 if there is no memory; then nothing has changed."""
    cdef RecordMessage r
    cdef RecordEntry e
    cdef Message* m = p.message
    cdef uint64_t bytes = 0, lsn
    cdef uint32_t n = 0, i
    cdef uint8_t marks = 0
    cdef uint8_t* out
    i = p.first
    while i:
        if is_pending_delivery(&t.pending_deliveries[i - 1]):
            pending_entry_fill(&t.pending_deliveries[i - 1], &e)
            bytes += record_entry_size(&e)
            marks |= e.qos
            n += 1
        i = t.pending_deliveries[i - 1].next
    if n == 0 and not m.flags & MESSAGE_RETAINED:
        m.lsn = p.lsn_before
        t.elided_messages += 1
        return 0
    message_recorded(b, m, &r)
    if m.flags & MESSAGE_RETAINED:
        r.flags |= RECORD_RETAINED_SET
    if m.flags & MESSAGE_RETAINED or marks & RECORD_ENTRY_SHARED:
        r.source_hash = m.source_hash        # for No Local, and for shared groups that select by publisher
    bytes = record_msg_size(&r, bytes)
    if not persist_reserve(b, NULL, bytes + p.publisher_n + (retained_from_bytes(b, r.topic) if m.flags & MESSAGE_RETAINED else 0)):
        return -1
    out = store_append(&t.store, RECORD_MSG, 0, <uint32_t>bytes, &m.lsn) if bytes <= 0x7FFFFFFF else NULL
    if out == NULL:
        return -1
    out = record_msg_put(out, &r, n)
    i = p.first
    while i:
        if is_pending_delivery(&t.pending_deliveries[i - 1]):
            pending_entry_fill(&t.pending_deliveries[i - 1], &e)
            out = record_entry_put(out, &e)
        i = t.pending_deliveries[i - 1].next
    record_msg_end_put(out, &r)
    if p.publisher:
        out = store_append(&t.store, RECORD_PUBLISHER, 0, p.publisher_n, &lsn)
        if out != NULL:
            memcpy(out, t.publishers + p.publisher - 1, p.publisher_n)
    if m.flags & MESSAGE_RETAINED:
        retained_from_record(b, r.topic)
    if p.lsn_before:
        m.flags |= MESSAGE_SPREAD            # deliveries in the earlier record are not in this one
    if p.lsn_before == 0:
        b.messages.recorded_bytes += message_bytes(m) + RECORD_ROOM
    t.written_messages += 1
    return 0


cdef void seal_pending_deliveries(Broker* b, Durable* t) noexcept nogil:
    """Mark all deliveries of the batch as recorded: from here on, an acknowledgement refers to a record."""
    cdef uint32_t i
    cdef PendingDelivery* o
    cdef Session* s
    for i in range(t.n_pending_deliveries):
        o = &t.pending_deliveries[i]
        s = o.session
        if <int>(o.position + 1 - s.logged) > 0:
            s.logged = o.position + 1
    for i in range(t.n_pending_deliveries):
        session_record_done(b, t.pending_deliveries[i].session)
    t.n_pending_deliveries = 0


cdef int acks_record(Durable* t, uint8_t kind, const StoredAck* acks, uint32_t* n_acks) noexcept nogil:
    cdef uint32_t i = 0, n
    cdef uint64_t lsn
    cdef uint8_t* out
    while i < n_acks[0]:
        n = n_acks[0] - i if n_acks[0] - i < ACKS_PER_RECORD else <uint32_t>ACKS_PER_RECORD
        out = store_append(&t.store, kind, 0, n * RECORD_ACK_BYTES, &lsn)
        if out == NULL:
            return -1
        for i in range(i, i + n):
            out = record_ack_put(out, acks[i].store_session_id, acks[i].position)
        i += 1
    n_acks[0] = 0
    return 0


cdef void seal_waiters(Durable* t) noexcept nogil:
    """Note for each session that waits for this batch that it may then send all deliveries that it has now."""
    cdef uint32_t i = t.waiters_tail
    cdef Waiter* w
    while i != t.waiters_head:
        i -= 1
        w = &t.waiters[i & t.waiters_mask]
        if w.serial != t.serial:
            break
        if w.session != NULL:
            w.position = w.session.queue.tail
            w.session.flags &= ~<uint32_t>SESSION_WAITS


cdef inline uint64_t subscription_count(Broker* b) noexcept nogil:
    cdef IndexStats stats
    index_stats(b.index, &stats)
    return stats.subscriptions + stats.shared


cdef bint batch_complete(Broker* b, Durable* t) noexcept nogil:
    """Complete the records of the open batch. Returns 0 if there is no memory; records that are already written count once."""
    cdef uint32_t i
    for i in range(t.n_pendings):
        if t.pendings[i].message.lsn == (PENDING | i) and pending_record(b, t, &t.pendings[i]) != 0:
            return 0
    return gated_record(b, t) == 0 and pending_ends_record(t) == 0 and acks_record(t, RECORD_ACKS, t.acks, &t.n_acks) == 0 \
        and acks_record(t, RECORD_GATED_DONE, t.gated_done, &t.n_gated_done) == 0 and streams_recorded(b)


cdef void log_memory_state(Broker* b, Durable* t, bint short) noexcept nogil:
    """Log the beginning and the end of a memory shortage. Without memory for a batch the whole batch waits, and no new
    acknowledgement is promised."""
    if short:
        t.pause_until_ms = b.reactor.now_ms + MEMORY_PAUSE_MS
        if t.trouble & TROUBLE_MEMORY:
            return
        t.trouble |= TROUBLE_MEMORY
        log_own(b, LOG_ERROR,
                "Error: no memory for the store: QoS 1 and 2 are refused until there is some again, QoS 0 continues.")
    elif t.trouble & TROUBLE_MEMORY:
        t.trouble &= ~<uint8_t>TROUBLE_MEMORY
        log_own(b, LOG_NOTICE, "There is memory for the store again: QoS 1 and 2 are accepted.")
    else:
        return
    pending_acks_resume(b)


cdef inline bint is_patient(const Durable* t) noexcept nogil:
    return (t.patient and not t.urgent) or t.serial % PROBES == 0


cdef void pace_adapt(Durable* t) noexcept nogil:
    """Adapt the pace when the open batch is sealed: measure whether it paid to wait."""
    cdef uint64_t elided = t.elided_messages - t.elided_before
    cdef uint64_t written = t.written_messages - t.written_before
    if is_patient(t) and elided + written:
        t.patient = elided >= written
    t.elided_before = t.elided_messages
    t.written_before = t.written_messages
    t.sealed_us = clock_monotonic_us()


cdef void durable_seal(Broker* b) noexcept nogil:
    cdef Durable* t = durable_of(b)
    cdef uint32_t i
    cdef DurableBatch* batch
    cdef bint complete
    if b.links != NULL:
        link_seal(&links_of(b).links, links_of(b).batch)
    complete = batch_complete(b, t)
    log_memory_state(b, t, not complete)
    if not complete:
        return
    pace_adapt(t)
    seal_waiters(t)
    batch = &t.batches[t.batches_tail % BATCHES]
    batch.serial = t.serial
    batch.sync = t.strict or t.level == DURABILITY_STRICT
    t.strict = t.urgent = 0
    if b.streams != NULL:
        streams_seal(b)
    # before the seal, which hands it over: after a start the first batch decides whether to clean
    t.store.live_bytes = b.messages.recorded_bytes + b.sessions.count * SESSION_ROOM + subscription_count(b) * SUBSCRIPTION_ROOM
    batch.opened_us = t.opened_us
    batch.ticket = store_seal(&t.store, batch.sync)
    t.batches_tail += 1
    t.serial += 1
    t.sealed += 1
    if b.links != NULL:
        links_of(b).batch += 1
    seal_pending_deliveries(b, t)
    gated_forget(b, t)
    for i in range(t.n_pendings):
        message_unref(&b.messages, &b.reactor.buffers, t.pendings[i].message)
    t.n_pendings = t.n_publishers = 0
    t.n_freed = 0
    t.bytes = 0
    t.dirty = 0


# ---------------------------------------------------------------- release

cdef void waiter_serve(Broker* b, Waiter* w) noexcept nogil:
    cdef Session* s = w.session
    cdef Client* c
    if s == NULL:
        c = <Client*>slab_get(&b.clients, w.index, w.generation)
        if c != NULL:
            pending_acks_release(b, c)
        return
    if <int>(w.position - s.safe) > 0:
        s.safe = w.position
    if s.client != NULL and not s.flags & SESSION_ENDED:
        pump(b, s, NULL)
    session_record_done(b, s)


cdef void release_committed(Broker* b, Durable* t) noexcept nogil:
    cdef DurableBatch* batch
    cdef Waiter w
    cdef uint64_t written = store_written(&t.store)
    cdef uint64_t synced = store_synced(&t.store)
    while t.batches_head != t.batches_tail:
        batch = &t.batches[t.batches_head % BATCHES]
        if (synced if batch.sync else written) < batch.ticket:
            break
        t.committed = batch.serial
        if b.observed != NULL:
            observe(b, OBSERVED_COMMIT, (clock_monotonic_us() - batch.opened_us) * 1000)
        t.batches_head += 1
    if b.links != NULL:
        link_committed(&links_of(b).links, links_of(b).batch - <uint32_t>(t.serial - t.committed))
    while t.waiters_head != t.waiters_tail and <int>(t.waiters[t.waiters_head & t.waiters_mask].serial - t.committed) <= 0:
        w = t.waiters[t.waiters_head & t.waiters_mask]       # a copy: serving it may add others
        t.waiters_head += 1
        waiter_serve(b, &w)


cdef void log_place(Broker* b, int kind, const char* text, const char* disk) noexcept nogil:
    """Log a text with the place of the store."""
    cdef char line[160]
    cdef const char* place = durable_of(b).store.files.place
    if place == NULL:
        place = disk
    snprintf(line, sizeof(line), text, place)
    log_own(b, kind, line)


cdef void store_events(Broker* b, Durable* t, uint32_t flags) noexcept nogil:
    cdef char why[STORE_WHY_MAX]
    cdef char line[STORE_WHY_MAX + 20]
    cdef StoreStats stats
    cdef uint8_t before = t.trouble
    if flags & (STORE_FULL | STORE_FULL_OVER | STORE_LOW | STORE_LOW_OVER | STORE_ERROR | STORE_ERROR_OVER):
        store_stats(&t.store, &stats)        # each condition may have begun and ended several times
        t.trouble &= TROUBLE_MEMORY
        t.trouble |= (TROUBLE_FULL if stats.full else 0) | (TROUBLE_LOW if stats.low else 0) | (TROUBLE_ERROR if stats.failing else 0)
    if flags & STORE_FULL:
        log_place(b, LOG_ERROR, "Error: %s is full: QoS 1 and 2 are refused until there is room again, QoS 0 continues.", "the disk")
    if flags & STORE_LOW:
        log_place(b, LOG_ERROR, "Error: %s is nearly full: QoS 1 and 2 are refused until there is room again, QoS 0 continues.", "the disk")
    if flags & (STORE_FULL_OVER | STORE_LOW_OVER) and not t.trouble & TROUBLE_FULL:
        log_place(b, LOG_NOTICE, "%s has room again: QoS 1 and 2 are accepted.", "The disk")
    if flags & (STORE_ERROR | STORE_READ_ERROR):
        store_error(&t.store, why, sizeof(why))
        snprintf(line, sizeof(line), "Error: the store: %s", why)
        log_own(b, LOG_ERROR, line)
    if flags & STORE_ERROR_OVER:
        log_own(b, LOG_NOTICE, "The store is written again.")
    if t.trouble != before:
        pending_acks_resume(b)
    if flags & STORE_CLEAN:
        t.cleaning = 1


cdef inline uint64_t due_us(const Durable* t) noexcept nogil:
    cdef uint64_t interval_us = <uint64_t>t.interval_ms * 1000
    if t.lazy:
        return t.opened_us + max(interval_us, <uint64_t>LAZY_US)
    if is_patient(t):
        return t.opened_us + interval_us
    return t.sealed_us + min(interval_us, <uint64_t>COMMIT_PACE_US)


cdef inline bint seal_is_due(Broker* b, const Durable* t) noexcept nogil:
    if not t.dirty or t.batches_tail - t.batches_head >= BATCHES - 1 or b.reactor.now_ms < t.pause_until_ms:
        return 0
    if t.bytes >= (<uint64_t>LAZY_BYTES if t.lazy else <uint64_t>SEAL_EARLY_BYTES):
        return 1
    return t.batches_head == t.batches_tail and clock_monotonic_us() >= due_us(t)


cdef bint durable_commit(Broker* b, uint32_t wait_ms) noexcept nogil:
    cdef Durable* t = durable_of(b)
    cdef uint64_t until_us = clock_monotonic_us() + <uint64_t>wait_ms * 1000
    durable_seal(b)
    while not t.dirty and t.batches_head != t.batches_tail and clock_monotonic_us() < until_us:
        usleep(POLL_US)
        store_events(b, t, store_poll(&t.store))
        release_committed(b, t)
    return not t.dirty and t.batches_head == t.batches_tail


cdef bint durable_turn(Broker* b) noexcept nogil:
    cdef Durable* t = durable_of(b)
    cdef uint32_t flags
    if t.news:
        t.news = 0
        flags = store_poll(&t.store)
        store_events(b, t, flags)
        release_committed(b, t)
        if b.streams != NULL:
            streams_news(b)
            cursors_receive(b)
        if flags & STORE_READ:
            pages_receive(b, t)
    if t.cleaning:
        t.cleaning = clean_some(b)
    if seal_is_due(b, t):
        durable_seal(b)
        release_committed(b, t)          # the batch may have been empty
    if b.streams != NULL:
        streams_turn(b)
    return t.cleaning


cdef int durable_timeout_ms(Broker* b, int timeout_ms) noexcept nogil:
    """Return the loop's time-out in milliseconds: the end of the open batch's time, if that is sooner. While a batch is being
    written, the storage thread wakes the loop."""
    cdef Durable* t = durable_of(b)
    cdef uint64_t now, due
    cdef int left = 1
    if not t.dirty or t.batches_head != t.batches_tail:
        return timeout_ms
    now = clock_monotonic_us()
    due = due_us(t)
    if due > now:
        left = <int>((due - now + 999) // 1000)
    if t.pause_until_ms > b.reactor.now_ms:
        left = <int>(t.pause_until_ms - b.reactor.now_ms)
    return left if timeout_ms < 0 or left < timeout_ms else timeout_ms


# ---------------------------------------------------------------- start and end

cdef void durable_gauges(Broker* b, StoreGauges* out) noexcept nogil:
    cdef Durable* t = durable_of(b)
    cdef StoreStats stats
    memset(out, 0, sizeof(StoreGauges))
    if t == NULL or t.closed:
        return
    store_stats(&t.store, &stats)
    out.trouble = t.trouble
    out.live_bytes = stats.live_bytes
    out.total_bytes = stats.total_bytes
    out.segments = stats.segments
    out.waiting_bytes = stats.waiting_bytes
    out.commits = t.sealed
    out.commit_us = stats.commit_us
    out.written = t.written_messages
    out.elided = t.elided_messages
    out.syncs = stats.syncs
    out.cleaned = stats.cleaned
    out.errors = stats.errors


cdef Durable* durable_new(int level, uint32_t interval_ms) noexcept nogil:
    cdef Durable* t = <Durable*>calloc(1, sizeof(Durable))
    if t == NULL:
        return NULL
    t.level = <uint8_t>level
    t.interval_ms = interval_ms
    t.patient = 1
    t.serial = t.clean_pass = 1
    return t


cdef int durable_init(Broker* b, int level, uint32_t interval_ms) noexcept nogil:
    b.durable = durable_new(level, interval_ms)
    return 0 if b.durable != NULL else -1


cdef int durable_start(Broker* b) noexcept nogil:
    cdef Durable* t = durable_of(b)
    cdef char why[STORE_WHY_MAX]
    cdef char line[STORE_WHY_MAX + 20]
    if t == NULL:
        return 0
    if store_start(&t.store) == 0:
        return reactor_watch(&b.reactor, t.store.event_fd)
    store_error(&t.store, why, sizeof(why))
    snprintf(line, sizeof(line), "Error: the store: %s", why)
    log_own(b, LOG_ERROR, line)
    return EIO


cdef void durable_close(Broker* b) noexcept nogil:
    if b.durable != NULL and not durable_of(b).closed:
        durable_stop(b)
    streams_fini(b)


cdef void durable_stop(Broker* b) noexcept nogil:
    cdef Durable* t = durable_of(b)
    cdef char why[STORE_WHY_MAX]
    cdef char line[STORE_WHY_MAX + 20]
    if b.streams != NULL:
        streams_end(b)
    t.closed = 1
    if t.dirty and t.store.running:
        durable_seal(b)
    if store_close(&t.store, why, sizeof(why)) != 0:
        snprintf(line, sizeof(line), "Error: the store: %s", why)
        log_own(b, LOG_ERROR, line)


cdef void durable_fini(Broker* b) noexcept nogil:
    """Free everything. Sessions and messages must still exist."""
    cdef Durable* t = durable_of(b)
    if t == NULL:
        return
    durable_close(b)
    durable_forget(b)
    free(t)


cdef void durable_forget(Broker* b) noexcept nogil:
    cdef Durable* t = durable_of(b)
    cdef uint32_t i
    for i in range(t.n_pending_deliveries):
        session_record_done(b, t.pending_deliveries[i].session)
    gated_forget(b, t)
    for i in range(t.n_pendings):
        t.pendings[i].message.lsn = 0
        message_unref(&b.messages, &b.reactor.buffers, t.pendings[i].message)
    while t.waiters_head != t.waiters_tail:
        if t.waiters[t.waiters_head & t.waiters_mask].session != NULL:
            session_record_done(b, t.waiters[t.waiters_head & t.waiters_mask].session)
        t.waiters_head += 1
    for i in range(t.readers_head, t.n_readers):
        session_record_done(b, t.readers[i])
    restored_wills_forget(b)
    b.durable = NULL
    free(<void*>t.streams.p)
    free(t.readers)
    free(t.pendings)
    free(t.pending_deliveries)
    free(t.publishers)
    free(t.acks)
    free(t.gated)
    free(t.gated_done)
    free(t.waiters)
    free(t.sessions_by_store_id)
    free(t.free_store_ids)
    free(t.seen)
