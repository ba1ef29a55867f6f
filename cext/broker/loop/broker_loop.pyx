"""The root of the broker: it connects the parts, and runs the loop.

    each turn:  wait - read and handle packets - timers - doomed clients - one slice per job - flush - accept

Invariant: the module has no state; two brokers may run in one process.
Cost of an idle turn: none, because there are no idle turns.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from cext.base.cells cimport cells_fini
from cext.base.clock cimport clock_monotonic_us
from cext.base.hash cimport hash_key_init
from cext.base.slab cimport slab_at, slab_end, slab_fini, slab_init
from cext.base.wheel cimport Timer, wheel_advance, wheel_init, wheel_remove, wheel_timeout_ms
from cext.broker.admin.mailbox cimport mailbox_close, mailbox_fini, mailbox_init, mailbox_open, mailbox_serve
from cext.broker.admin.sys cimport sys_begin, sys_fini, sys_init, sys_timer_fired
from cext.broker.admin.whole cimport figures_begin, figures_timer
from cext.broker.loop.links_life cimport links_free, links_reopen, links_start
from cext.broker.auth.auth_requests cimport auth_requests_close, auth_requests_fini, auth_requests_init
from cext.broker.auth.proxy_info cimport client_proxied, client_upgraded
from cext.broker.auth.tls_identity cimport listener_context, log_transport_error, recheck_slice
from cext.broker.core.bounds cimport SHAPES_BYTES, TIMERS_PER_TURN
from cext.broker.core.bridge_calls cimport bridge_timer_fired, bridges_begin, conn_opened
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport END_ERRNO, END_LOST, aliases_free, client_doom, client_give, denials_sum, lines_sum
from cext.broker.core.client_state cimport (
    C_CONNECTED, C_ENDED, Client, TIMER_ACCOUNTS, TIMER_AUTH_REQUEST, TIMER_BRIDGE, TIMER_CLIENT, TIMER_CURSORS, TIMER_DENIED,
    TIMER_CALLERS, TIMER_DIAL, TIMER_LINK_WAIT, TIMER_FIGURES, TIMER_LINKS, TIMER_LOG_RATES,
    TIMER_RELOAD_HOLD, TIMER_RETAINED, TIMER_SESSION, TIMER_TRACE, client_of,
)
from cext.broker.core.durable cimport MEMORY_PAUSE_MS, changes_of, durable_of, lacks_since
from cext.broker.core.handover_state cimport STOP_FREEZES
from cext.broker.core.job_state cimport JOB_FANOUT, JOB_KICK, JOB_REPLAY, Job
from cext.broker.core.jobs cimport job_append, job_free, job_owner, jobs_unblock
from cext.broker.core.link_state cimport links_of
from cext.broker.core.log cimport log_fini, log_init
from cext.broker.core.observed cimport OBSERVED_HANDSHAKE, OBSERVED_TURN, observe, observed_of
from cext.broker.core.newcomers cimport newcomer_leave
from cext.broker.core.pending_packet cimport names_free, pending_packet_free
from cext.broker.core.resident cimport heap_bytes, resident_begin, resident_check, resident_end
from cext.broker.core.session_refs cimport session_replay
from cext.broker.core.turn cimport turn_begin, turn_is_over
from cext.broker.core.workers cimport workers_of
from cext.broker.handover.frozen cimport frozen_run
from cext.broker.handover.restore cimport arrived_begin
from cext.broker.lifecycle.accept cimport client_accept, descriptors_begin, newcomer_grew, no_descriptors
from cext.broker.lifecycle.kick cimport kick_end, kick_slice
from cext.broker.lifecycle.reload_hold cimport reload_hold_over
from cext.broker.lifecycle.session_lifecycle cimport (
    client_end, client_timer_fired, end_doomed_clients, drop_slice, restored_wills_slice, session_timer_fired, session_will, will_free,
    will_is_delayed, will_send_now,
)
from cext.broker.lifecycle.shed cimport shed_largest
from cext.broker.lifecycle.passing cimport relay_drained, workers_passage_due, workers_free, workers_pass, workers_receive, workers_start
from cext.broker.lifecycle.callers cimport caller_accept, caller_lost, callers_late
from cext.broker.lifecycle.wires cimport relays_slice, wire_late, wire_opened, wires_close
from cext.broker.links.sockets cimport link_empty, link_freed, link_input, link_lost, links_close, links_read_on, links_turn
from cext.broker.arrivals.fanouts cimport fanout_done
from cext.broker.arrivals.waits cimport wait_of_job_done, wait_timed_out
from cext.broker.packets.answer cimport answers_serve, auth_request_timer, auth_requests_forget
from cext.broker.packets.dispatch cimport dispatch, dispatch_traced
from cext.broker.persist.accounts cimport accounts_begin, accounts_close, accounts_fini, accounts_timer
from cext.broker.persist.drop_examples cimport drop_examples_free
from cext.broker.persist.pending_acks cimport pending_acks_free, pending_acks_job_done
from cext.broker.replay.cursor cimport cursors_discard, cursors_timer, cursors_unblock
from cext.broker.replay.parts cimport parts_notice
from cext.broker.routing.observe cimport observe_begin, observe_end, observe_flushed
from cext.broker.routing.pump cimport pump, session_clear
from cext.broker.routing.merge cimport merge_end
from cext.broker.routing.plugin_gate cimport plugin_gate_free
from cext.broker.routing.retain cimport replay_end, replay_slice, retained_expired, value_free
from cext.broker.routing.route cimport fanout_end, fanout_slice, fanout_spare_free
from cext.broker.routing.session_release cimport session_release
from cext.broker.storage.commit cimport durable_close, durable_fini, durable_start, durable_timeout_ms, durable_turn
from cext.broker.storage.undelivered cimport undelivered_deliver
from cext.broker.trace.events cimport trace_sent
from cext.broker.trace.slots cimport trace_timer_fired, tracing_fini
from cext.codec.reason cimport RC_QUOTA_EXCEEDED, RC_SERVER_SHUTTING_DOWN
from cext.link.state cimport LinkWaiter
from cext.net.conn cimport conn_close, conn_resume
from cext.net.conn_state cimport Address, CONN_CLOSED, CONN_PAUSED, CONN_PEER, CONN_RELAY, Conn, ListenSocket
from cext.net.reactor cimport reactor_accept, reactor_fini, reactor_flush, reactor_init, reactor_turn
from cext.session.message cimport Message, message_unref
from cext.session.session cimport (
    SESSION_ENDED, Session, session_free, sessions_fini, sessions_first, sessions_init, sessions_next, sessions_remove,
)
from cext.topic.index cimport index_free, index_new, index_remove_some
from cext.topic.match cimport match_fini, match_init
from cext.topic.retained cimport retained_free, retained_new

cdef extern from "<unistd.h>" nogil:
    ssize_t c_write "write"(int fd, const void* p, size_t n)

cdef enum:
    SCRATCH_KEEP_BYTES = 64 * 1024
    PASSAGE_AGAIN_MS = 10           # until a full passage to another worker is tried again
    STOP_SLICES = 80             # turns of jobs: at most about a second


# ---------------------------------------------------------------- callbacks of the reactor

cdef size_t dispatch_linked(void* broker, Conn* conn, const uint8_t* p, size_t n) noexcept nogil:
    """Take the place of dispatch in a broker with links. A broker that is alone does not ask whose connection it is."""
    return link_input(<Broker*>broker, conn, p, n) if conn.flags & CONN_PEER else dispatch(broker, conn, p, n)


cdef size_t dispatch_linked_traced(void* broker, Conn* conn, const uint8_t* p, size_t n) noexcept nogil:
    return link_input(<Broker*>broker, conn, p, n) if conn.flags & CONN_PEER else dispatch_traced(broker, conn, p, n)


cdef void on_accept(void* ctx, ListenSocket* l, int fd, const Address* a) noexcept nogil:
    if l.owner == NULL:
        caller_accept(<Broker*>ctx, fd, a)
    else:
        client_accept(ctx, l, fd, a)


cdef void on_opened(void* ctx, Conn* conn, int err) noexcept nogil:
    if conn.flags & CONN_RELAY:
        wire_opened(<Broker*>ctx, client_of(conn), err)
    else:
        conn_opened(ctx, conn, err)


cdef void on_lost(void* ctx, Conn* conn, int err) noexcept nogil:
    if conn.flags & CONN_PEER:
        if conn.flags & CONN_RELAY:
            caller_lost(<Broker*>ctx, conn)
        else:
            link_lost(<Broker*>ctx, conn)
        return
    client_doom(<Broker*>ctx, client_of(conn), END_ERRNO + err if err else END_LOST)


cdef void on_drained(void* ctx, Conn* conn) noexcept nogil:
    cdef Broker* b = <Broker*>ctx
    cdef Client* c = client_of(conn)
    if conn.flags & CONN_PEER:
        link_empty(b, conn)
        return
    if conn.flags & CONN_RELAY:
        relay_drained(b, c)
        return
    if c.session != NULL:
        pump(b, c.session, NULL)
        jobs_unblock(b, c.session)
    if conn.flags & CONN_PAUSED and c.jobs == 0:
        conn_resume(&b.reactor, conn)


cdef void on_free(void* ctx, Conn* conn) noexcept nogil:
    cdef Broker* b = <Broker*>ctx
    cdef Client* c = client_of(conn)
    if conn.flags & CONN_PEER:
        link_freed(conn)
        return
    will_free(b, c.will)
    c.will = NULL
    if c.listener != NULL and not conn.flags & CONN_RELAY:
        c.listener.n_connections -= 1
    pending_acks_free(c)
    newcomer_leave(b, c)
    client_give(b, c)


cdef bint is_late(void* ctx) noexcept nogil:
    return turn_is_over(<Broker*>ctx)


cdef void on_wake(void* ctx) noexcept nogil:
    (<Broker*>ctx).answers_due = 1
    mailbox_serve(ctx)


cdef void on_shaken(void* ctx, uint64_t us) noexcept nogil:
    observe(<Broker*>ctx, OBSERVED_HANDSHAKE, us * 1000)


cdef void on_news(void* ctx) noexcept nogil:
    if (<Broker*>ctx).durable != NULL:           # an attach may have failed in this turn
        durable_of(<Broker*>ctx).news = 1


cdef void on_notice(void* ctx) noexcept nogil:
    parts_notice(<Broker*>ctx)


cdef void release_message(void* ctx, void* ref) noexcept nogil:
    cdef Broker* b = <Broker*>ctx
    message_unref(&b.messages, &b.reactor.buffers, <Message*>ref)


cdef void timer_fired(void* ctx, Timer* t) noexcept nogil:
    if t.kind == TIMER_CLIENT:
        client_timer_fired(<Broker*>ctx, t)
    elif t.kind == TIMER_SESSION:
        session_timer_fired(<Broker*>ctx, t)
    elif t.kind == TIMER_RETAINED:
        retained_expired(<Broker*>ctx, t)
    elif t.kind == TIMER_AUTH_REQUEST:
        auth_request_timer(<Broker*>ctx, t)
    elif t.kind == TIMER_BRIDGE:
        bridge_timer_fired(<Broker*>ctx, t)
    elif t.kind == TIMER_DENIED:
        denials_sum(<Broker*>ctx)
    elif t.kind == TIMER_LOG_RATES:
        lines_sum(<Broker*>ctx)
    elif t.kind == TIMER_RELOAD_HOLD:
        reload_hold_over(<Broker*>ctx)
    elif t.kind == TIMER_TRACE:
        trace_timer_fired(<Broker*>ctx, t)
    elif t.kind == TIMER_LINK_WAIT:
        wait_timed_out(<Broker*>ctx, t)
    elif t.kind == TIMER_LINKS:
        links_reopen(<Broker*>ctx)
    elif t.kind == TIMER_FIGURES:
        figures_timer(<Broker*>ctx)
        links_read_on(<Broker*>ctx)
    elif t.kind == TIMER_DIAL:
        wire_late(<Broker*>ctx, t)
    elif t.kind == TIMER_CALLERS:
        callers_late(<Broker*>ctx)
    elif t.kind == TIMER_ACCOUNTS:
        accounts_timer(<Broker*>ctx)
    elif t.kind == TIMER_CURSORS:
        cursors_timer(<Broker*>ctx)
    else:
        sys_timer_fired(<Broker*>ctx, t)


# ---------------------------------------------------------------- jobs

cdef bint job_slice(Broker* b, Job* j) noexcept nogil:
    cdef uint64_t changes = changes_of(b)
    cdef Client* c
    cdef bint done
    if j.kind == JOB_FANOUT:
        done = fanout_slice(b, j)
        if j.arrival != NULL:
            j.arrival.recorded |= changes_of(b) != changes
        c = job_owner(b, j) if lacks_since(b, changes) and not j.again_ms else NULL
        if c != NULL:
            client_doom(b, c, RC_QUOTA_EXCEEDED)     # not all deliveries are recorded: the message is not acknowledged
        return done
    if j.kind == JOB_REPLAY:
        return replay_slice(b, j)
    if j.kind == JOB_KICK:
        return kick_slice(b, j)
    return drop_slice(b, j)


cdef void job_end(Broker* b, Job* j) noexcept nogil:
    cdef Session* s = j.session
    cdef Client* c = NULL
    if j.kind == JOB_FANOUT:
        fanout_end(b, j)
        if j.waiter != NULL and b.links != NULL:         # otherwise the process ends
            wait_of_job_done(b, <LinkWaiter*>j.waiter, j.durability)
        if j.arrival != NULL:
            fanout_done(b, j)
        c = job_owner(b, j)
    elif j.kind == JOB_REPLAY:
        replay_end(b, j)
    elif j.kind == JOB_KICK:
        kick_end(b, j)
    job_free(b, j)
    if c != NULL:
        pending_acks_job_done(b, c)
    if s != NULL:
        session_release(b, s)


cdef bint jobs_run(Broker* b) noexcept nogil:
    """Run slices of jobs until the budget is used up: at most one of each, at least one. A job that is not done goes to the end of
    the list. Returns 1 if jobs are left that need no memory. A slice may append jobs. A blocked replay leaves the list, held by its session,
    until jobs_unblock adds it again."""
    cdef Job* last = b.jobs_tail
    cdef Job* j
    cdef bint is_last = b.jobs == NULL
    cdef bint rest = 1
    cdef bint done
    turn_begin(b)
    while not is_last:
        j = b.jobs
        is_last = j == last
        if j.again_ms > b.reactor.now_ms:
            done = 0
        else:
            done = job_slice(b, j)   # it may append jobs
            rest &= j.again_ms > b.reactor.now_ms
        b.jobs = j.next
        if b.jobs == NULL:
            b.jobs_tail = NULL
        if done:
            job_end(b, j)
        elif not j.blocked:
            job_append(b, j)
        rest &= is_last or not turn_is_over(b)
        is_last |= turn_is_over(b)
        b.work += 1
    b.jobs_rest = rest and b.jobs != NULL
    return b.jobs != NULL and not b.jobs_rest


# ---------------------------------------------------------------- the loop

cdef int broker_run(Broker* b, int event_fd) noexcept nogil:
    cdef int err = durable_start(b)
    cdef uint64_t one = 1
    if b.links != NULL:
        b.reactor.on_input = dispatch_linked
        b.trace.input = dispatch_linked_traced
    err = err or workers_start(b)
    descriptors_begin(b)
    resident_begin(b)
    b.reactor.layer_threads = b.settings.tls_handshake_threads
    b.reactor.layer_per_network = b.settings.tls_handshakes_per_address
    b.reactor.turn_interval_us = b.settings.turn_interval_us
    accounts_begin(b)
    observe_begin(b)
    mailbox_open(b)
    if b.workers != NULL:
        figures_begin(b)
    sys_begin(b)
    bridges_begin(b)
    err = err or undelivered_deliver(b) or links_start(b)
    b.wills_restored = b.sessions.count != 0 or (b.durable != NULL and durable_of(b).restored_wills != NULL)
    turn_begin(b)
    while answers_serve(b):      # what plugins have published in their initialization comes before the first client
        pass
    arrived_begin(b)
    if not err:
        err = turns_run(b, event_fd)
    while not err and b.stopping == STOP_FREEZES:
        if not frozen_run(b, jobs_run, event_fd):
            mailbox_close(b)
            c_write(event_fd, &one, 8)
            return 0             # another process has the clients and the store
        err = turns_run(b, event_fd)
    mailbox_close(b)
    auth_requests_close(b)
    stop_clients(b)
    if b.links != NULL:
        links_close(b)
        wires_close(b)
        reactor_flush(&b.reactor)
    durable_close(b)
    resident_end(b)
    c_write(event_fd, &one, 8)
    return err


cdef int turns_run(Broker* b, int event_fd) noexcept nogil:      # long: the parts of a turn in their order
    """Run turns until b.stopping is set, or the reactor fails. Return 0 or errno."""
    cdef int timeout_ms = 0
    cdef int err = 0
    cdef bint more, moves
    cdef uint64_t one = 1
    cdef uint64_t work
    while not b.stopping and not err:
        work = b.work
        turn_begin(b)
        err = reactor_turn(&b.reactor, timeout_ms)
        if err:
            break
        more = wheel_advance(&b.wheel, b.reactor.now_ms, TIMERS_PER_TURN, timer_fired, b)
        if b.answers_due:
            more |= answers_serve(b)
        if b.rechecks:
            more |= recheck_slice(b)
        if b.workers != NULL and workers_of(b).relays_walk:
            more |= relays_slice(b)
        end_doomed_clients(b)
        if b.wills_restored and (b.links == NULL or links_of(b).ready):
            more |= restored_wills_slice(b)
        if b.jobs != NULL:
            more |= jobs_run(b)
            end_doomed_clients(b)
        if b.durable != NULL:
            more |= durable_turn(b)
            end_doomed_clients(b)
        moves = b.workers != NULL and workers_pass(b)
        if b.links != NULL:
            more |= links_turn(b)
        reactor_flush(&b.reactor)
        if b.observed != NULL and observed_of(b).n_probes:
            observe_flushed(b)
        turn_begin(b)
        reactor_accept(&b.reactor)
        if b.workers != NULL:
            err = workers_receive(b)
        resident_check(b)
        shed_largest(b)
        if b.log.unread or b.auth_requests_unread:
            b.log.unread = 0
            b.auth_requests_unread = 0
            c_write(event_fd, &one, 8)
        if b.links != NULL:
            more |= links_of(b).due      # a flush made room
        more |= b.doomed != NULL or (b.jobs != NULL and not b.jobs_rest)
        more |= b.answers_due != 0       # of native plugins on the loop
        timeout_ms = 0 if more else wheel_timeout_ms(&b.wheel, b.reactor.now_ms)
        if moves and (timeout_ms < 0 or timeout_ms > PASSAGE_AGAIN_MS):
            timeout_ms = PASSAGE_AGAIN_MS
        if b.jobs_rest and (timeout_ms < 0 or timeout_ms > MEMORY_PAUSE_MS):
            timeout_ms = MEMORY_PAUSE_MS
        if b.durable != NULL:
            timeout_ms = durable_timeout_ms(b, timeout_ms)
        turn_measure(b, b.work - work)
        if b.scratch_cap > SCRATCH_KEEP_BYTES:
            free(b.scratch)
            b.scratch = NULL
            b.scratch_cap = 0
    return err


cdef inline void turn_measure(Broker* b, uint64_t work) noexcept nogil:
    """Record the largest turn. The reactor read the clock after its wait."""
    cdef uint64_t us = clock_monotonic_us() - b.reactor.now_us
    if work > b.turn_work_max:
        b.turn_work_max = work
    observe(b, OBSERVED_TURN, us * 1000)
    if us > b.turn_us_max:
        b.turn_us_max = us
    if heap_bytes(b) > b.heap_max:
        b.heap_max = heap_bytes(b)


cdef void stop_clients(Broker* b) noexcept nogil:
    """Stop all clients [v5 4.13.1]. Wills are sent while all clients are still connected, as in Mosquitto; then v5 clients get
    DISCONNECT with the reason. At a node of a cluster a will with a delay stays with its session, which goes on at another node [v5 3.1.3.2.2]."""
    cdef bint goes_on = b.settings.node.n != 0 and b.durable != NULL
    cdef uint32_t i
    cdef int _
    cdef uint64_t at = 0
    cdef Client* c
    cdef Session* s
    for i in range(slab_end(&b.clients)):
        c = <Client*>slab_at(&b.clients, i)
        if c != NULL and c.state == C_CONNECTED and not (goes_on and will_is_delayed(c)):
            will_send_now(b, c)
    # Before a worker knows the routes of the others, nothing may be published: the records of these wills stay for the next start.
    s = sessions_first(&b.sessions, &at) if not goes_on and (b.links == NULL or links_of(b).ready) else NULL
    while s != NULL:
        session_will(b, s)
        s = sessions_next(&b.sessions, s, &at)
    for _ in range(STOP_SLICES):      # wills to very many subscribers: as far as a stop within a second allows
        if b.jobs == NULL or not jobs_run(b):
            break
        reactor_flush(&b.reactor)
    for i in range(slab_end(&b.clients)):
        c = <Client*>slab_at(&b.clients, i)
        if c != NULL and not c.conn.flags & CONN_CLOSED and c.state != C_ENDED:
            client_end(b, c, RC_SERVER_SHUTTING_DOWN)
    reactor_flush(&b.reactor)
    for i in range(slab_end(&b.clients)):
        c = <Client*>slab_at(&b.clients, i)
        if c != NULL:
            conn_close(&b.reactor, &c.conn)
    reactor_flush(&b.reactor)
    accounts_close(b)


# ---------------------------------------------------------------- init and free

cdef int broker_init(Broker* b) noexcept nogil:
    cdef int err = reactor_init(&b.reactor, b)
    if err:
        return err
    b.reactor.on_accept = on_accept
    b.reactor.on_input = dispatch
    b.reactor.on_lost = on_lost
    b.reactor.on_drained = on_drained
    b.reactor.on_small = newcomer_grew
    b.reactor.on_free = on_free
    b.reactor.release = release_message
    b.reactor.on_wake = on_wake
    b.reactor.is_late = is_late
    b.reactor.on_watched = on_news
    b.reactor.on_passage = workers_passage_due
    b.reactor.on_notice = on_notice
    b.reactor.on_no_descriptors = no_descriptors
    b.reactor.on_proxied = client_proxied
    b.reactor.on_upgraded = client_upgraded
    b.reactor.on_transport_error = log_transport_error
    b.reactor.context_of = listener_context
    b.reactor.on_opened = on_opened
    b.reactor.on_shaken = on_shaken
    b.trace.sent = trace_sent
    b.trace.input = dispatch_traced
    b.replay.discard = cursors_discard
    b.replay.unblock = cursors_unblock
    b.started_ms = b.reactor.now_ms
    b.started_s = b.reactor.now_s
    wheel_init(&b.wheel, b.reactor.now_ms)
    slab_init(&b.clients, sizeof(Client), b.settings.pool_grow, b.settings.pool_idle_max)
    match_init(&b.match)
    if hash_key_init(&b.key) != 0 or hash_key_init(&b.names_key) != 0 or log_init(&b.log) != 0:
        return ENOMEM
    if mailbox_init(b) != 0 or auth_requests_init(b) != 0 or sys_init(b) != 0:
        return ENOMEM
    b.index = index_new(&b.key, &b.settings.index)
    b.retained = retained_new(&b.key, &b.settings.index)
    b.shape_bytes = <uint8_t*>malloc(SHAPES_BYTES)
    if b.index == NULL or b.retained == NULL or b.shape_bytes == NULL or sessions_init(&b.sessions, &b.names_key) != 0:
        return ENOMEM
    return 0


cdef void retained_value_free(void* b, void* value) noexcept nogil:
    value_free(<Broker*>b, value)


cdef void sessions_clear(Broker* b) noexcept nogil:
    cdef uint64_t at = 0
    cdef Session* following
    cdef Job* j
    cdef Session* s = sessions_first(&b.sessions, &at)
    while s != NULL:
        following = sessions_next(&b.sessions, s, &at)
        sessions_remove(&b.sessions, s)
        if s.replay != NULL:
            j = session_replay(s)
            replay_end(b, j)
            job_free(b, j)
        session_clear(b, s, -1)
        plugin_gate_free(b, s)
        wheel_remove(&b.wheel, &s.timer)            # the other timers of the wheel live longer
        if s.will != NULL:
            message_unref(&b.messages, &b.reactor.buffers, s.will)
        while index_remove_some(b.index, &s.owner, 1000):
            pass
        session_free(&b.sessions, s)
        s = following


cdef void broker_fini(Broker* b) noexcept nogil:
    cdef uint32_t i
    cdef Client* c
    cdef Job* j
    cdef Session* s
    durable_fini(b)
    links_free(b)
    workers_free(b)
    if b.auth_requests != NULL:
        auth_requests_forget(b)
    while b.jobs != NULL:
        j = b.jobs
        b.jobs = j.next
        s = j.session
        if s != NULL and s.flags & SESSION_ENDED:
            session_clear(b, s, -1)
            while index_remove_some(b.index, &s.owner, 1000):
                pass
        job_end(b, j)
    b.jobs_tail = NULL
    fanout_spare_free(b)
    if b.sessions.buckets != NULL:
        sessions_clear(b)
        sessions_fini(&b.sessions)
    accounts_fini(b)
    if b.index != NULL:
        index_free(b.index)
    if b.retained != NULL:
        retained_free(b.retained, retained_value_free, b)
    match_fini(&b.match)
    tracing_fini(b)
    sys_fini(b)
    observe_end(b)
    mailbox_fini(b)
    auth_requests_fini(b)
    log_fini(&b.log)
    drop_examples_free(b)
    free(b.log_rates)
    free(b.shape_bytes)
    free(b.scratch)
    merge_end(&b.merge)
    for i in range(slab_end(&b.clients)):
        c = <Client*>slab_at(&b.clients, i)
        if c != NULL:
            pending_packet_free(b, c)
            aliases_free(c)
            names_free(c)
            pending_acks_free(c)
    slab_fini(&b.clients)
    reactor_fini(&b.reactor)
    cells_fini(&b.messages.cells)
