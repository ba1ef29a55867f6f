"""Freeze the loop for a handover. The loop has ended its turn and reads no socket any more.

    close bridges -> work until it is quiet -> close the store -> save.pyx -> wait for the order of the control plane
        FROZEN_THAWS   open the store again, and continue as if nothing had happened
        FROZEN_LEAVES  another process has everything: close the connections that stay

A connection that cannot move is not closed before, so an upgrade that fails closes no client. Its client is in the state as one whose connection has
ended: the new process sends its will and keeps its session. Nothing that it sends is read after the freezing.
It is quiet when no job, no doomed client and no batch is left. Then all acknowledgements are released, and the store has everything that it is to
have. A client that keeps it from that for QUIET_PATIENCE_MS, such as one that takes its retained messages slowly, is closed. Packets, deliveries, and
wills in the store move if they wait for a plugin, and the new process asks its plugins again. Without a store, the loop waits for the verdicts about
wills. It does not freeze while commands for the control plane are unread.

The store is closed because only one process may have it open. The lsns of its records are the same when it is opened again, also after another
process has opened it and was killed. So the messages that refer to records need no change.
Cost: nothing while the loop runs.
"""

from libc.errno cimport EAGAIN, EBUSY, EIO, ENOMEM
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset, strerror

from cext.base.clock cimport clock_monotonic_us, clock_wall_s
from cext.base.slab cimport slab_at, slab_end
from cext.broker.admin.mailbox cimport mailbox_serve
from cext.broker.auth.auth_requests cimport FOR_WILL, AuthRequest, auth_requests_at, auth_requests_end, commands_wait
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport client_disconnect, log_line, log_text
from cext.broker.core.client_state cimport CF_BRIDGE, C_CONNECTED, C_ENDED, Client
from cext.broker.core.durable cimport Durable, durable_of
from cext.broker.core.handover_state cimport FROZEN_LEAVES, FROZEN_WAITS, HANDOVER_WHY_MAX, Handover, STAYS_BRIDGE, STAYS_BUSY
from cext.broker.core.log cimport LOG_ERROR, LOG_LINE_MAX, LOG_NOTICE
from cext.broker.core.turn cimport turn_begin
from cext.broker.handover.restore cimport keepalives_shift
from cext.broker.handover.save cimport state_save
from cext.broker.handover.save_clients cimport client_stays
from cext.broker.lifecycle.session_lifecycle cimport client_end, end_doomed_clients
from cext.broker.packets.answer cimport answers_serve
from cext.broker.persist.accounts cimport accounts_flush
from cext.broker.storage.commit cimport durable_seal, durable_start, durable_stop, durable_turn
from cext.broker.storage.stream_files cimport STREAM_WHY_MAX, streams_pause, streams_resume
from cext.codec.reason cimport RC_SERVER_SHUTTING_DOWN
from cext.net.conn cimport conn_finish
from cext.net.conn_state cimport CONN_CLOSED, CONN_HELD
from cext.net.reactor cimport reactor_flush
from cext.net.system cimport c_read, c_write
from cext.store.state cimport StoreLoss, StoreOptions, StoreRecord
from cext.store.store cimport store_close, store_error, store_open, store_recover

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
    int poll(pollfd* fds, unsigned long n, int timeout_ms)
    short POLLIN

cdef extern from "<string.h>" nogil:
    char* strdup(const char* s)

cdef enum:
    QUIET_WITHIN_MS = 3000
    QUIET_PATIENCE_MS = 500
    REOPEN_MS = 250              # pause before the next attempt to open the store again

ctypedef struct Stored:         # the store, while it is closed
    char* dir                   # NULL: there is none, or it is open
    StoreOptions options
    uint8_t id[16]
    uint64_t next_lsn


# ---------------------------------------------------------------- until it is quiet

cdef void frozen_clock(Broker* b) noexcept nogil:
    b.reactor.now_us = clock_monotonic_us()
    b.reactor.now_ms = b.reactor.now_us // 1000
    b.reactor.now_s = clock_wall_s()


cdef void client_give_up(Broker* b, Handover* h, Client* c, int why) noexcept nogil:
    """End a client before the handover. Its session goes on, and its will is sent as usual."""
    h.counts.closed += 1
    h.counts.reasons[why] += 1
    client_end(b, c, RC_SERVER_SHUTTING_DOWN)


cdef void bridges_close(Broker* b, Handover* h) noexcept nogil:
    """End the connections to other brokers, which the control plane of the process that goes on opens again."""
    cdef uint32_t i
    cdef Client* c
    for i in range(slab_end(&b.clients)):
        c = <Client*>slab_at(&b.clients, i)
        if c != NULL and c.state != C_ENDED and not c.conn.flags & CONN_CLOSED and c.flags & CF_BRIDGE:
            client_give_up(b, h, c, STAYS_BRIDGE)


cdef void connections_close(Broker* b) noexcept nogil:
    """Close the connections that stay, when another process has their sessions: nothing of these may change here."""
    cdef uint32_t i
    cdef Client* c
    for i in range(slab_end(&b.clients)):
        c = <Client*>slab_at(&b.clients, i)
        if c == NULL or not client_stays(c):
            continue
        if c.state == C_CONNECTED:
            client_disconnect(b, c, RC_SERVER_SHUTTING_DOWN)
        c.state = C_ENDED
        conn_finish(&b.reactor, &c.conn)
    reactor_flush(&b.reactor)


cdef bint client_is_busy(const Client* c) noexcept nogil:
    """Return whether something of the client is under way that the state does not contain."""
    if c.conn.flags & CONN_HELD or c.jobs:
        return 1
    if c.pending_acks != NULL and c.pending_acks.head != c.pending_acks.tail:
        return 1
    return c.session != NULL and c.session.replay != NULL


cdef Client* busy_client(Broker* b, Handover* h, bint closes) noexcept nogil:
    """Return a connected client that is busy; NULL = none is. With `closes`, end all of them."""
    cdef uint32_t i
    cdef Client* c
    cdef Client* found = NULL
    for i in range(slab_end(&b.clients)):
        c = <Client*>slab_at(&b.clients, i)
        if c == NULL or c.state != C_CONNECTED or not client_is_busy(c):
            continue
        found = c
        if not closes:
            return found
        client_give_up(b, h, c, STAYS_BUSY)
    return found


cdef bint will_waits(Broker* b) noexcept nogil:
    """Return whether a will that no store has waits for the verdict of a plugin."""
    cdef AuthRequest* q
    cdef uint32_t i
    for i in range(auth_requests_end(b)):
        q = auth_requests_at(b, i)
        if q != NULL and q.purpose == FOR_WILL and q.waiting_will == 0:
            return 1
    return 0


cdef bint store_is_quiet(Broker* b) noexcept nogil:
    cdef Durable* t = durable_of(b)
    if t == NULL:
        return 1
    return not t.dirty and t.batches_head == t.batches_tail and t.waiters_head == t.waiters_tail and t.n_pendings == 0 and \
        t.n_acks == 0 and t.readers_head == t.n_readers and t.store.loop.n_reads == 0 and not t.cleaning


cdef void store_waits(Broker* b) noexcept nogil:
    """Wait a moment for the storage thread."""
    cdef pollfd p
    memset(&p, 0, sizeof(p))
    p.fd = durable_of(b).store.event_fd if b.durable != NULL else b.reactor.wake_fd
    p.events = POLLIN
    poll(&p, 1, 1)


cdef void quiet_turn(Broker* b, jobs_fn jobs_run) noexcept nogil:
    """Do the work of a turn that needs no input."""
    frozen_clock(b)
    turn_begin(b)
    answers_serve(b)
    end_doomed_clients(b)
    if b.jobs != NULL:
        jobs_run(b)
        end_doomed_clients(b)
    if b.durable != NULL:
        durable_of(b).news = 1
        durable_turn(b)
        if durable_of(b).dirty and durable_of(b).batches_head == durable_of(b).batches_tail:
            durable_seal(b)
        end_doomed_clients(b)
    reactor_flush(&b.reactor)


cdef bint quiet_reached(Broker* b, Handover* h, jobs_fn jobs_run) noexcept nogil:
    cdef uint64_t begun_ms = b.reactor.now_ms
    cdef bint closed = 0
    bridges_close(b, h)
    while b.reactor.now_ms - begun_ms < QUIET_WITHIN_MS:
        quiet_turn(b, jobs_run)
        if b.jobs == NULL and b.doomed == NULL and b.reactor.dirty == NULL and store_is_quiet(b) and busy_client(b, h, 0) == NULL and not will_waits(b):
            return 1
        if not closed and b.reactor.now_ms - begun_ms > QUIET_PATIENCE_MS:
            if will_waits(b):
                return 0
            closed = 1
            busy_client(b, h, 1)
        if b.jobs == NULL and b.doomed == NULL and b.reactor.dirty == NULL:
            store_waits(b)
    return 0


cdef void requests_wait(Broker* b, int timeout_ms) noexcept nogil:
    """Wait for control requests, and answer them."""
    cdef pollfd p
    cdef uint64_t count
    memset(&p, 0, sizeof(p))
    p.fd = b.reactor.wake_fd
    p.events = POLLIN
    if poll(&p, 1, timeout_ms) > 0:
        c_read(b.reactor.wake_fd, &count, 8)
        mailbox_serve(b)


# ---------------------------------------------------------------- the store

cdef void store_leave(Broker* b, Handover* h, Stored* before) noexcept nogil:
    """Close the store and the streams."""
    cdef Durable* t = durable_of(b)
    before.dir = strdup(t.store.dir)
    if before.dir == NULL:
        freeze_refused(h, ENOMEM, "no memory")
        return
    before.options = t.store.options
    before.next_lsn = t.store.loop.next_lsn
    memcpy(before.id, t.store.store_id, sizeof(before.id))
    if before.next_lsn:          # else it has no file yet, and each process that opens it gives it another id
        memcpy(h.store_id, before.id, sizeof(h.store_id))
    durable_stop(b)
    if b.streams != NULL:
        streams_pause(b)


cdef int record_skipped(void* ctx, const StoreRecord* r) noexcept nogil:
    return 0                     # the state in memory is what the records describe


cdef int store_reopened(Broker* b, Stored* before, char* why) noexcept nogil:
    """Open the store and the streams again, which another process may have opened in between. Return 0; otherwise they are closed, and `why` has the
    reason."""
    cdef Durable* t = durable_of(b)
    cdef StoreLoss loss
    if store_open(&t.store, before.dir, &before.options, NULL, why, STREAM_WHY_MAX) != 0:
        return -1
    if store_recover(&t.store, record_skipped, NULL, &loss) != 0:
        store_error(&t.store, why, STREAM_WHY_MAX)
    elif t.store.loop.next_lsn != before.next_lsn or before.next_lsn and memcmp(t.store.store_id, before.id, sizeof(before.id)) != 0:
        snprintf(why, STREAM_WHY_MAX, "%s does not have what this process has written there", before.dir)
    else:
        t.closed = 0             # the subscriptions to streams ask it for records
        if b.streams == NULL or streams_resume(b, why) == 0:
            if durable_start(b) == 0:
                return 0
            snprintf(why, STREAM_WHY_MAX, "the storage thread cannot be started")
            if b.streams != NULL:
                store_close(&t.store, NULL, 0)           # it knows the streams
                streams_pause(b)
    t.closed = 1
    store_close(&t.store, NULL, 0)
    return -1


cdef void store_returns(Broker* b, Handover* h, Stored* before, int event_fd) noexcept nogil:
    """Open the store again. While it cannot be opened, no client is served: without its records nothing can be acknowledged, and what the store has is
    not in memory. Only a request to stop ends the wait earlier, with b.stopping."""
    cdef char why[STREAM_WHY_MAX]
    cdef uint64_t one = 1
    cdef bint waited = 0
    why[0] = 0
    b.handover = h               # refuse requests that change something
    before.options.create = 0
    while not b.stopping and store_reopened(b, before, why) != 0:
        if not waited:
            log_line(b, LOG_ERROR, snprintf(b.log.line, LOG_LINE_MAX, "Error: Upgrade: no client is served until the store can be opened again: %s", why))
            c_write(event_fd, &one, 8)
        waited = 1
        requests_wait(b, REOPEN_MS)
    b.handover = NULL
    if waited and not b.stopping:
        log_text(b, LOG_NOTICE, "Upgrade: the store is open again, and clients are served.")


# ---------------------------------------------------------------- frozen

cdef int freeze_refused(Handover* h, int error, const char* why) noexcept nogil:
    h.error = error
    snprintf(h.why, HANDOVER_WHY_MAX, "%s", why)
    return -1


cdef int freeze(Broker* b, Handover* h, jobs_fn jobs_run) noexcept nogil:
    """Bring the loop to rest, as far as possible without the store's end. Return 0, or -1 with h.error."""
    if b.durable != NULL and durable_of(b).trouble:
        return freeze_refused(h, EIO, "the store accepts nothing: the disk is full or fails, or memory is missing")
    if commands_wait(b):
        return freeze_refused(h, EAGAIN, "commands of clients wait")
    accounts_flush(b)
    if not quiet_reached(b, h, jobs_run):
        return freeze_refused(h, EBUSY, "the broker did not come to rest: clients, plugins or the disk had too much to do")
    return 0


cdef void order_wait(Broker* b, Handover* h) noexcept nogil:
    """Answer control requests until one of them is the order."""
    b.handover = h
    mailbox_serve(b)
    while h.order == FROZEN_WAITS:
        requests_wait(b, -1)
    b.handover = NULL
    b.answers_due = 1            # their wake-ups were taken here


cdef bint frozen_run(Broker* b, jobs_fn jobs_run, int event_fd) noexcept nogil:
    cdef Handover h
    cdef Stored before
    memset(&h, 0, sizeof(h))
    memset(&before, 0, sizeof(before))
    h.state_fd = -1
    b.stopping = 0
    frozen_clock(b)
    h.begun_us = b.reactor.now_us
    if freeze(b, &h, jobs_run) == 0:
        if b.durable != NULL:
            store_leave(b, &h, &before)
        if not h.error:
            h.error = state_save(b, &h)
            if h.error:
                freeze_refused(&h, h.error, strerror(h.error))
        h.counts.us = clock_monotonic_us() - h.begun_us
    order_wait(b, &h)
    free(h.fds)
    if h.order != FROZEN_LEAVES:
        if before.dir != NULL:
            store_returns(b, &h, &before, event_fd)
        frozen_clock(b)
        keepalives_shift(b, (b.reactor.now_us - h.begun_us) // 1000)
    else:
        connections_close(b)
    free(before.dir)
    return h.order != FROZEN_LEAVES
