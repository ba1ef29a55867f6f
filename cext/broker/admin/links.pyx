"""Write the figures of the links between workers, for the control plane. This module knows their state. It does not know how they are shown."""

from libc.errno cimport ENOMEM
from libc.stdint cimport uint32_t
from libc.string cimport memset

from cext.broker.admin.control_request cimport ControlRequest
from cext.broker.admin.inspect cimport out_put
from cext.broker.core.broker cimport Broker
from cext.broker.core.link_state cimport BrokerLinks, PeerLog, links_of
from cext.link.state cimport LINK_OUT, LO_DOWN, LinkOut


cdef void link_figures(const PeerLog* peer, const LinkOut* o, LinkFigures* f) noexcept nogil:
    cdef uint64_t last = o.first + o.n - 1
    f.connected = o.state != LO_DOWN
    f.routes, f.routes_digest = peer.session.owner.n, peer.routes_digest
    f.sent = last
    f.unacknowledged = o.n
    f.unacknowledged_bytes = o.bytes
    f.queued = last - o.sent if last > o.sent else 0
    f.queued_bytes = peer.conns[LINK_OUT].conn.out_bytes if peer.conns[LINK_OUT] != NULL else 0
    f.dropped = o.dropped0
    f.latency_us, f.latency_max_us = peer.probe.last_us, peer.probe.most_us
    f.latency_n, f.latency_sum_us = peer.probe.n, peer.probe.sum_us


cdef void answer_links(Broker* b, ControlRequest* a) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef LinkFigures f
    cdef uint32_t slot
    if l == NULL:
        return
    for slot in range(l.n):
        if slot == l.links.self:
            continue
        memset(&f, 0, sizeof(f))
        f.place = slot
        f.own_routes, f.own_digest = l.links.routes.n, l.links.routes_digest
        link_figures(&l.peers[slot], &l.links.peers[slot].out, &f)
        if out_put(a, &f, sizeof(f)) != 0:
            a.result = ENOMEM
            return
