"""Give the links their actions, and begin and end them. This module connects the rooms; the actions are in foreign.pyx, sockets.pyx and arrival.pyx."""

from libc.errno cimport ENOMEM
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from cext.base.hash cimport HashKey, hash_key_init
from cext.base.slab cimport slab_fini, slab_init
from cext.broker.arrivals.arrival cimport arrival, group_again
from cext.broker.arrivals.copies cimport copies_end, copies_walk, copy_arrived, walk_close
from cext.broker.arrivals.waits cimport wait_released, waits_free
from cext.broker.core.bridge_calls cimport bridges_ready
from cext.broker.core.broker cimport Broker
from cext.base.wheel cimport wheel_add
from cext.broker.core.client cimport log_text
from cext.broker.core.durable cimport RestoredWill, durable_of
from cext.broker.core.link_state cimport BrokerLinks, FANOUT_PLACES, LinkWait, PeerLog, StoredMark, links_of
from cext.broker.core.log cimport LOG_ERROR
from cext.broker.core.workers cimport workers_of
from cext.broker.lifecycle.passing cimport link_pass
from cext.broker.lifecycle.wires cimport wire_wanted
from cext.broker.core.newcomers cimport newcomers_resume
from cext.broker.links.foreign cimport foreign_lost, foreign_route, foreign_routes_end, foreign_unroute
from cext.broker.links.outward cimport expiry_put
from cext.broker.links.own cimport own_routes_restored
from cext.broker.links.records cimport identity_forget, mark_record, record_run
from cext.broker.links.sockets cimport link_begin, socket_bind, socket_close, socket_send
from cext.broker.routing.retain cimport retained_publisher
from cext.broker.storage.commit cimport durable_commit
from cext.link.frame cimport LF_RETAINED, LINK_AGAIN, LINK_RETAIN, LinkFrame
from cext.link.links cimport link_identity_restore, link_restore, link_restore_hole, link_start, links_fini, links_init
from cext.link.state cimport LINK_OUT, LinkLimits, LinkOps
from cext.net.system cimport AF_UNIX, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_STREAM, c_close
from cext.session.message cimport MESSAGE_AGAIN, Message, message_ref, message_unref
from cext.session.session cimport SESSION_ENDED, SESSION_PEER, Session, sessions_first, sessions_next

cdef extern from "<sys/socket.h>" nogil:
    int socketpair(int family, int type, int protocol, int* ends)

cdef enum:
    FRAME_MAX = 0x10000000 + 3 * 65536      # the largest packet of MQTT, and the fields of a frame
    LINK_MESSAGES_MAX = 1 << 20
    OUTPUT_MAX = 8 << 20
    RESERVE = 64 << 20
    SLICE = 256 * 1024
    WAITS_BLOCK = 256
    COMMIT_WAIT_MS = 5000
    NO_GENERATION = 0           # the first one is 1
    REOPEN_AGAIN_MS = 1000


# ---------------------------------------------------------------- actions

cdef void message_keep(void* broker, void* message) noexcept nogil:
    message_ref(<Message*>message)


cdef void message_drop(void* broker, void* message) noexcept nogil:
    message_unref(&(<Broker*>broker).messages, &(<Broker*>broker).reactor.buffers, <Message*>message)


cdef void message_view(void* broker, void* message, LinkFrame* out) noexcept nogil:
    cdef Message* m = <Message*>message
    out.text = m.topic
    out.props = m.props
    out.payload = m.payload
    expiry_put(m.expires_ms, out)
    if out.type == LF_RETAINED:
        out.publisher = retained_publisher(<Broker*>broker, m)
        out.flags |= m.qos | LINK_RETAIN
    elif m.flags & MESSAGE_AGAIN:
        out.flags |= LINK_AGAIN


cdef void peer_lost(void* broker, uint32_t slot) noexcept nogil:
    cdef Broker* b = <Broker*>broker
    foreign_lost(b, slot)
    copies_end(broker, slot, NO_GENERATION)


cdef void links_ready(void* broker) noexcept nogil:
    links_of(<Broker*>broker).ready = 1
    bridges_ready(<Broker*>broker)
    newcomers_resume(<Broker*>broker)


cdef bint link_open(Broker* b, uint32_t slot) noexcept nogil:
    """Open a link that has ended, although the other process runs: both do not know yet which bytes the other one has. Returns 0 if that must be tried again."""
    cdef int ends[2]
    cdef bint passed
    if links_of(b).peers[slot].conns[LINK_OUT] != NULL or links_of(b).links.peers[slot].out.down:
        return 1
    if workers_of(b).remote >> slot & 1:
        wire_wanted(workers_of(b), slot)
        return 1                            # the control plane gives a new one, sooner or later
    if socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0:
        return 0
    passed = link_pass(b, slot, ends[1]) == 0
    c_close(ends[1])
    if passed:
        link_begin(b, slot, ends[0])
    else:
        c_close(ends[0])
    return passed


cdef void links_reopen(Broker* b) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef uint64_t closed = l.closed
    cdef uint32_t slot
    l.closed = 0
    for slot in range(l.n):
        if closed >> slot & 1 and not link_open(b, slot):
            l.closed |= <uint64_t>1 << slot
    if l.closed:
        wheel_add(&b.wheel, &l.reopen, b.reactor.now_ms + REOPEN_AGAIN_MS)


# ---------------------------------------------------------------- life

cdef void ops_fill(LinkOps* ops) noexcept nogil:
    ops.send, ops.close, ops.bind = socket_send, socket_close, socket_bind
    ops.keep, ops.drop, ops.view = message_keep, message_drop, message_view
    ops.message, ops.again = arrival, group_again
    ops.route, ops.unroute, ops.routes_end = foreign_route, foreign_unroute, foreign_routes_end
    ops.retained, ops.retained_end, ops.retained_walk = copy_arrived, copies_end, copies_walk
    ops.mark, ops.forget, ops.lost = mark_record, identity_forget, peer_lost
    ops.released, ops.ready = wait_released, links_ready


cdef int links_new(Broker* b, uint32_t slot, uint32_t n, const HashKey* key) noexcept nogil:
    cdef BrokerLinks* l = <BrokerLinks*>calloc(1, sizeof(BrokerLinks))
    cdef LinkOps ops
    cdef LinkLimits limits
    cdef uint32_t i
    if l == NULL:
        return -1
    memset(&limits, 0, sizeof(limits))
    limits.frame_max, limits.messages_max = FRAME_MAX, LINK_MESSAGES_MAX
    limits.output_max, limits.reserve, limits.slice = OUTPUT_MAX, RESERVE, SLICE
    ops_fill(&ops)
    l.peers = <PeerLog*>calloc(n, sizeof(PeerLog))
    l.stored = <StoredMark*>calloc(n, sizeof(StoredMark))
    l.fanouts = <void**>calloc(n, FANOUT_PLACES * sizeof(void*))
    if l.peers == NULL or l.stored == NULL or l.fanouts == NULL or links_init(&l.links, &ops, b, &limits, key, slot, n) != 0:
        free(l.fanouts)
        free(l.stored)
        free(l.peers)
        free(l)
        return -1
    l.n = n
    l.batch = 1
    for i in range(n):
        l.peers[i].slot = i
        l.peers[i].session.flags = SESSION_ENDED | SESSION_PEER
    l.reopen.kind = TIMER_LINKS
    slab_init(&l.waits, sizeof(LinkWait), WAITS_BLOCK, WAITS_BLOCK)
    b.links = l
    return 0


cdef int stored_restore(BrokerLinks* l) noexcept nogil:
    """Give the links what the store had. Returns -1 if there is no memory."""
    cdef StoredMark* m
    cdef uint32_t slot, i
    for slot in range(l.n):
        m = &l.stored[slot]
        if m.log and link_restore(&l.links, slot, m.log, m.run, m.number) != 0:
            return -1
        for i in range(m.n):
            if link_restore_hole(&l.links, slot, m.holes[i]) != 0:
                return -1
    free(l.stored)
    l.stored = NULL
    return 0


cdef int identities_restore(Broker* b) noexcept nogil:
    """Restore the identities of messages that wait for PUBREL, and of wills that were sent. Returns -1 if there is no memory."""
    cdef uint64_t at = 0
    cdef uint32_t i
    cdef Session* s = sessions_first(&b.sessions, &at)
    cdef RestoredWill* w = durable_of(b).restored_wills if b.durable != NULL else NULL
    while s != NULL:
        for i in range(s.inbox.mask + 1 if s.inbox.slots != NULL else 0):
            if s.inbox.slots[i].pid and s.inbox.slots[i].identity and link_identity_restore(
                    &links_of(b).links, s.inbox.slots[i].identity) != 0:
                return -1
        s = sessions_next(&b.sessions, s, &at)
    while w != NULL:
        if w.identity and link_identity_restore(&links_of(b).links, w.identity) != 0:
            return -1
        w = w.next
    return 0


cdef int links_start(Broker* b) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef HashKey bits
    cdef uint64_t log
    if l == NULL:
        return 0
    l.links.limits.bytes_max = b.settings.link_memory
    if hash_key_init(&bits) != 0 or own_routes_restored(b) != 0 or stored_restore(l) != 0 or identities_restore(b) != 0:
        return ENOMEM
    log = l.stored_log if l.stored_log else bits.k0 | 1
    if b.durable != NULL:
        record_run(b, log, l.stored_run + 1)
        if not durable_commit(b, COMMIT_WAIT_MS):
            log = bits.k0 | 1            # the next start may count this run again, and would be taken for it
            log_text(b, LOG_ERROR, "Error: the store does not accept the number of this start: the other workers forget what they know of this one.")
    link_start(&l.links, log, l.stored_run + 1)
    return 0


cdef void links_free(Broker* b) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef uint32_t slot
    if l == NULL:
        return
    for slot in range(l.n):
        walk_close(b, slot)
    waits_free(b)
    links_fini(&l.links)
    free(l.publisher)
    free(l.paused)
    free(l.choices)
    free(l.stored)
    free(l.fanouts)
    free(l.spare)
    slab_fini(&l.waits)
    free(l.peers)
    free(l)
    b.links = NULL
