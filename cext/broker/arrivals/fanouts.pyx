"""Deliver messages of other workers in slices, like those of clients. This module knows jobs, and what a link must know of their end. It does not know
how a message is routed.

    message -> no fan-out of its worker and topic runs: route; a long one becomes a job
            -> otherwise behind that one, also if it is short: the order of a topic stays
    no memory for the job, or for a session in a later slice -> LINK_NO_MEMORY before any session has it; the job waits, and goes on at that session
    done    -> its identity is recorded, its number gets the batch (link_arrived), and the next one begins

A publisher of this worker would wait for its fan-out; one of another worker cannot. So its link is not read while FANOUT_PLACES wait: then the other
worker keeps what comes, up to its bounds. Messages of other topics go on.
Invariant: BrokerLinks.fanouts has the first job of each worker and topic, and each of these is among the jobs of the broker; those behind it are not.
Cost: for each message that comes while fan-outs run, a look at the first ones, at most FANOUT_PLACES for each worker.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.durable cimport Durable, batch_changed, batch_needed, changes_of, durable_of
from cext.broker.core.job_state cimport Arrival, Job
from cext.broker.core.jobs cimport job_append
from cext.broker.core.link_state cimport BrokerLinks, FANOUT_PLACE_BYTES, links_of
from cext.broker.core.publication_state cimport Publication
from cext.broker.core.settings cimport DURABILITY_STRICT
from cext.broker.links.records cimport record_identity
from cext.broker.routing.route cimport fanout_later, fanout_of, fanout_spare, route
from cext.link.frame cimport LinkFrame
from cext.link.links cimport link_arrived
from cext.link.state cimport LINK_LATER, LINK_NO_MEMORY, LINK_TAKEN, LinkIn
from cext.session.message cimport message_bytes


cdef Job* fanout_before(BrokerLinks* l, uint32_t slot, View topic) noexcept nogil:
    """Return the last job of this worker and topic; NULL = none."""
    cdef Job* j
    cdef uint32_t i
    for i in range(l.fanouts_n):
        j = <Job*>l.fanouts[i]
        if j.arrival.slot == slot and j.message.topic.n == topic.n and memcmp(j.message.topic.p, topic.p, topic.n) == 0:
            while j.arrival.behind != NULL:
                j = j.arrival.behind
            return j
    return NULL


cdef int fanout_arrived(Broker* b, uint32_t slot, const LinkFrame* f, Publication* p, uint64_t changes) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef Job* before = fanout_before(l, slot, p.topic) if l.fanouts_n else NULL
    cdef Job* j
    if l.spare == NULL:
        l.spare = <Arrival*>calloc(1, sizeof(Arrival))
    p.patient = f.number != 0
    if p.patient and (l.spare == NULL or not fanout_spare(b)):
        return LINK_NO_MEMORY
    if before != NULL and l.spare != NULL:
        j = fanout_later(b, p)
        if j != NULL:
            before.arrival.behind = j
            fanout_of_link(l, slot, f, j, changes_of(b) != changes)
            return LINK_LATER
        if p.patient:
            return LINK_NO_MEMORY
    route(b, p, NULL)
    if p.lacks:
        return LINK_NO_MEMORY
    j = fanout_of(b, p)
    if j == NULL or l.spare == NULL:     # a message of QoS 0 without memory counts for no bound
        return LINK_TAKEN
    l.fanouts[l.fanouts_n] = j
    l.fanouts_n += 1
    fanout_of_link(l, slot, f, j, changes_of(b) != changes)
    return LINK_LATER


cdef void fanout_of_link(BrokerLinks* l, uint32_t slot, const LinkFrame* f, Job* j, bint recorded) noexcept nogil:
    """Note where the message of the job came from."""
    cdef LinkIn* i = &l.links.peers[slot].inward
    cdef Arrival* a = l.spare
    l.spare = NULL
    j.arrival = a
    a.log, a.run, a.number, a.identity, a.slot = i.log, i.run, f.number, f.identity, slot
    a.recorded = recorded
    a.places = 1 + <uint32_t>(message_bytes(j.message) // FANOUT_PLACE_BYTES)
    l.fanout_places[slot] += a.places


cdef void fanout_leaves(BrokerLinks* l, Job* j) noexcept nogil:
    """Put the next one of its topic in its place, or close the gap."""
    cdef uint32_t i = 0
    while l.fanouts[i] != j:
        i += 1
    if j.arrival.behind != NULL:
        l.fanouts[i] = j.arrival.behind
        return
    l.fanouts_n -= 1
    l.fanouts[i] = l.fanouts[l.fanouts_n]


cdef void fanout_done(Broker* b, Job* j) noexcept nogil:
    cdef BrokerLinks* l = links_of(b)
    cdef Durable* t = durable_of(b)
    cdef Arrival* a = j.arrival
    cdef uint64_t batch = 0
    if a.behind != NULL:
        job_append(b, a.behind)
    if l != NULL:                # otherwise the process ends
        fanout_leaves(l, j)
        l.fanout_places[a.slot] -= a.places
        if a.recorded and t != NULL:
            if a.identity:
                record_identity(b, a.slot, a.log, a.identity, 0)
            if j.durability == DURABILITY_STRICT:
                batch_changed(t, 0)      # a batch that is synced also syncs those before it
            if batch_needed(t, j.durability):
                batch = l.batch if t.dirty else l.batch - 1
        link_arrived(&l.links, a.slot, a.log, a.run, a.number, a.identity, batch)
    free(a)
    j.arrival = NULL
