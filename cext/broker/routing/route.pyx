"""Route a publication to every matching session. This module knows the index and the options of a subscription. It does not know
sockets or how a delivery is queued.

    index_match -> streams: written, or refused        (before any session gets the message)
                -> per list: per entry: deliver          (small: at once)
                -> merge: one copy per session           (overlapping subscriptions, if the settings require it)
                -> JOB_FANOUT: pinned lists, a position  (above the turn budget: in slices, the publisher waits)
                -> per shared group: one member

Cost: one hash and one look-up for the match, plus the cost of each delivery.
"""

from libc.stdint cimport UINT32_MAX, UINT64_MAX, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from cext.base.view cimport View
from cext.broker.core.bounds cimport MERGE_BYTES_MAX, MERGE_KEEP, WORK_SEND
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.job_state cimport JOB_FANOUT, Job, MERGE_DELIVERS, MERGE_GATHERS, MERGE_NOT, MERGE_WANTED
from cext.broker.core.jobs cimport job_add, job_new
from cext.broker.core.publication_state cimport Publication
from cext.broker.core.settings cimport SHARE_STREAM
from cext.broker.persist.persist cimport persist_inbound_end
from cext.broker.persist.publication cimport publication_fini, publication_of, publication_store
from cext.broker.persist.streams cimport stream_message
from cext.broker.routing.deliver cimport deliver
from cext.broker.routing.delivery_rules cimport NO_LOCAL, RETAIN_AS_PUBLISHED, qos_for
from cext.broker.routing.merge cimport merge_begin, merge_bytes, merge_deliver, merge_end, merge_gather
from cext.broker.routing.share cimport share_deliver
from cext.session.message cimport message_ref
from cext.session.session cimport SESSION_ENDED, Session
from cext.topic.index cimport (
    Entry, List, Match, index_match, list_entry, list_pin, list_tidy, list_unpin, match_places, match_total,
)

cdef enum:
    GAPS_MAX = 1024              # allowed gaps of a pinned list beyond its number of subscribers
    RUN = 64                     # entries of a slice between two checks of the work done


cdef inline bint is_merged(Broker* b, Match* m, uint64_t total) noexcept nogil:
    """Return whether the match needs merged copies. A single list contains no session twice."""
    return m.n_lists > 1 and not b.settings.allow_duplicate_messages and total < UINT32_MAX


cdef inline bint is_long(const Broker* b, const Match* m) noexcept nogil:
    return match_places(m) * (WORK_SEND + 1) > b.settings.turn_budget


cdef bint route_slices(Broker* b, View topic) noexcept nogil:
    return index_match(b.index, topic.p, topic.n, &b.match) == 0 and is_long(b, &b.match)


cdef bint route_journalled(Broker* b, Publication* p) noexcept nogil:
    if index_match(b.index, p.topic.p, p.topic.n, &b.match) != 0 or not stream_message(b, p, &b.match, 1):
        return 0
    p.journalled = 1             # also if no stream wants it, so that route does not ask again
    return 1


cdef uint32_t route(Broker* b, Publication* p, Client* owner) noexcept nogil:
    cdef Match* m = &b.match
    cdef uint32_t i, matched
    cdef uint64_t total
    if index_match(b.index, p.topic.p, p.topic.n, m) != 0:
        # a stream may be among the subscribers
        return ROUTE_REFUSED if b.streams != NULL and owner != NULL and p.qos and not p.journalled else 0
    total = match_total(m)
    matched = <uint32_t>(total if total < 0x7FFFFFFF else 0x7FFFFFFF)
    if m.n_groups and b.streams != NULL and not p.journalled and not stream_message(b, p, m, owner != NULL and p.qos != 0):
        return ROUTE_REFUSED
    for i in range(m.n_groups):
        if m.groups[i].strategy != SHARE_STREAM:
            share_deliver(b, p, m.groups[i])
            matched += 1
    if m.n_lists == 0:
        return matched
    if is_long(b, m) and fanout_begin(b, p, m, total, owner):
        return matched
    if is_merged(b, m, total) and deliver_merged(b, p, m, total):
        return matched
    for i in range(m.n_lists):
        deliver_list(b, p, m.lists[i], 0, m.lists[i].n)
    return matched


cdef void deliver_list(Broker* b, Publication* p, List* l, uint32_t start, uint32_t end) noexcept nogil:
    cdef Entry* e
    cdef Session* s
    cdef uint32_t i
    for i in range(start, end):
        e = list_entry(l, i)
        s = <Session*>e.subscriber
        if s == NULL or s.flags & SESSION_ENDED:
            continue
        if not (e.options & NO_LOCAL and s == p.source):
            deliver(b, s, p, qos_for(b, p, e.options), p.retain if e.options & RETAIN_AS_PUBLISHED else 0,
                    &e.sub_id, 1 if e.sub_id else 0)


cdef bint deliver_merged(Broker* b, Publication* p, Match* m, uint64_t total) noexcept nogil:
    """Deliver merged copies. Returns 0 if there is no memory for that; then each session gets one copy per subscription."""
    cdef uint32_t i
    if merge_begin(&b.merge, <uint32_t>total) != 0:
        return 0
    for i in range(m.n_lists):
        merge_gather(b, &b.merge, m.lists, i, 0, m.lists[i].n)
    merge_deliver(b, p, &b.merge, m.lists, 0, UINT64_MAX)
    if b.merge.cap > MERGE_KEEP:
        merge_end(&b.merge)
    return 1


# ---------------------------------------------------------------- in slices

cdef bint fanout_begin(Broker* b, Publication* p, Match* m, uint64_t total, Client* owner) noexcept nogil:
    """Begin a fan-out job. Returns 0 if there is no memory for it; then the caller delivers at once, which delays others but
    loses nothing."""
    cdef Job* j
    cdef uint32_t i
    for i in range(m.n_lists):
        if m.lists[i].pins and m.lists[i].n > 2 * m.lists[i].live + GAPS_MAX:
            return 0             # pinned by one fan-out after another it would never close its gaps
    if publication_store(b, p) == NULL:
        return 0
    j = job_new(b, JOB_FANOUT, owner)
    if j == NULL:
        return 0
    j.lists = <List**>malloc(m.n_lists * (sizeof(List*) + sizeof(uint32_t)))
    if j.lists == NULL:
        free(j)
        return 0
    j.ends = <uint32_t*>(j.lists + m.n_lists)
    j.n_lists = m.n_lists
    for i in range(m.n_lists):
        j.lists[i] = m.lists[i]
        j.ends[i] = m.lists[i].n
        list_pin(m.lists[i])
    if is_merged(b, m, total):
        j.merging = MERGE_WANTED
        j.merge_n = <uint32_t>total
    j.message = message_ref(p.message)
    j.durability = p.durability
    j.session = p.source
    if j.session != NULL:
        j.session.jobs += 1
    job_add(b, j)
    return 1


cdef bint fanout_slice(Broker* b, Job* j) noexcept nogil:
    cdef Publication p
    cdef uint64_t limit = b.work + b.settings.turn_budget
    if j.merging == MERGE_WANTED and not merging_begin(b, j):
        return 0
    publication_of(&p, j.message)
    p.source = j.session
    p.durability = j.durability
    if j.merging != MERGE_DELIVERS:
        walk_lists(b, &p, j, limit)
        if j.list == j.n_lists and j.merging == MERGE_GATHERS:
            j.merging = MERGE_DELIVERS
            j.position = 0
    if j.merging == MERGE_DELIVERS:
        j.position = merge_deliver(b, &p, &j.merge, j.lists, j.position, limit)
    publication_fini(b, &p)
    if j.list != j.n_lists or (j.merging == MERGE_DELIVERS and j.position != j.merge.n) or not close_gaps(b, j):
        return 0
    if j.released_pid and j.session != NULL and persist_inbound_end(b, j.session, j.released_pid) != 0:
        return 0                 # no memory for its record: the job is not done until there is some
    j.released_pid = 0
    return 1


cdef bint close_gaps(Broker* b, Job* j) noexcept nogil:
    """Close the gaps that subscribers left while this job pinned the lists. Works in slices, too: returns 0 if there is more to
    do."""
    cdef uint32_t i
    b.work += 1 + j.n_lists // 8
    for i in range(j.n_lists):
        if list_tidy(b.index, j.lists[i]):
            b.work += 32
            return 0
    return 1


cdef void walk_lists(Broker* b, Publication* p, Job* j, uint64_t limit) noexcept nogil:
    """Walk over the lists, either to deliver or to gather the sessions for merged copies."""
    cdef uint32_t end
    while j.list < j.n_lists and b.work < limit:
        end = j.ends[j.list]
        if end - j.position > RUN:
            end = j.position + RUN
        if j.merging == MERGE_GATHERS:
            merge_gather(b, &j.merge, j.lists, j.list, j.position, end)
        else:
            deliver_list(b, p, j.lists[j.list], j.position, end)
            b.work += 1 + (end - j.position) // 8     # entries without a write cost time, too
        j.position = end
        if j.position >= j.ends[j.list]:
            j.list += 1
            j.position = 0


cdef bint merging_begin(Broker* b, Job* j) noexcept nogil:
    """Begin the gathering. Returns 0 if other jobs hold so much memory for this that the job must wait until one of them ends."""
    if b.merging_bytes > MERGE_BYTES_MAX:
        return 0
    if merge_begin(&j.merge, j.merge_n) != 0:
        j.merging = MERGE_NOT    # no memory: each session gets one copy per subscription
        return 1
    j.merging = MERGE_GATHERS
    b.merging_bytes += merge_bytes(j.merge_n)
    return 1


cdef void fanout_end(Broker* b, Job* j) noexcept nogil:
    cdef uint32_t i
    if j.merging == MERGE_GATHERS or j.merging == MERGE_DELIVERS:
        b.merging_bytes -= merge_bytes(j.merge_n)
        merge_end(&j.merge)
    for i in range(j.n_lists):
        list_unpin(b.index, j.lists[i])
    free(j.lists)
    j.lists = NULL
