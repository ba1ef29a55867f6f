"""Route a publication to every matching session. This module knows the index and the options of a subscription. It does not know
sockets or how a delivery is queued.

    match -> streams: written, or refused            (before any session gets the message)
          -> per shared group: one member
          -> per list: per entry: deliver            (small: at once)
          -> merge: one copy per session             (overlapping subscriptions, if the settings require it)
          -> JOB_FANOUT: pinned lists, a position    (above the turn budget: in slices, the publisher waits; or no memory for a session)

A job works in rounds: a part of the match, whose lists it pins; the deliveries to them; the next part. A job that merges needs all
lists at once, so it first collects them, up to MERGE_LISTS_MAX.
Cost: one hash and one look-up for the match, plus the cost of each delivery.
"""

from libc.stdint cimport UINT32_MAX, UINT64_MAX, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove, memset

from cext.base.clock cimport clock_monotonic_ns
from cext.base.view cimport View
from cext.broker.core.bounds cimport MERGE_BYTES_MAX, MERGE_KEEP, MERGE_LISTS_MAX, WORK_SEND
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.durable cimport MEMORY_PAUSE_MS, durable_lacks_memory
from cext.broker.core.job_state cimport JOB_FANOUT, Job, MATCHING_LATER, MERGE_COLLECTS, MERGE_DELIVERS, MERGE_GATHERS, MERGE_NOT, MERGE_WANTED, Merge
from cext.broker.core.jobs cimport job_add, job_new, job_own
from cext.broker.core.publication_state cimport Publication, SCOPE_LOCAL, SCOPE_REMOTE
from cext.broker.core.settings cimport SHARE_STREAM
from cext.broker.core.turn cimport turn_fanout_max, turn_match_steps
from cext.broker.links.outward cimport links_take
from cext.broker.persist.persist cimport persist_inbound, persist_inbound_end
from cext.broker.persist.publication cimport publication_fini, publication_of, publication_store
from cext.broker.persist.streams cimport stream_message
from cext.broker.routing.deliver cimport deliver
from cext.broker.routing.delivery_rules cimport NO_LOCAL, RETAIN_AS_PUBLISHED, qos_for
from cext.broker.routing.merge cimport merge_begin, merge_bytes, merge_deliver, merge_end, merge_gather
from cext.broker.routing.observe cimport observe_delivery, observe_hot, observe_match
from cext.broker.routing.share cimport group_init, share_deliver
from cext.session.message cimport MESSAGE_LOCAL_DONE, message_ref
from cext.session.session cimport SESSION_ENDED, Session
from cext.topic.index cimport Entry, Group, List, list_entry, list_group, list_pin, list_tidy, list_unpin
from cext.topic.match cimport (
    MATCH_PART, MATCH_WHOLE, Match, index_match_on, index_match_some, match_leave, match_places, match_total,
)

cdef enum:
    GAPS_MAX = 1024              # allowed gaps of a pinned list beyond its number of subscribers
    RUN = 64                     # entries of a slice between two checks of the work done
    PIN_WORK = 4                 # lists that are pinned, or unpinned, for one unit of work
    LISTED_BYTES = 12            # memory of a pinned list in a job


cdef inline int match_topic(Broker* b, View topic, bint on) noexcept nogil:
    """Match, or go on from b.match.place, in as many steps as the turn allows. Each step counts as work."""
    cdef uint64_t steps = turn_match_steps(b)
    cdef int rc
    if on:
        rc = index_match_on(b.index, topic.p, topic.n, &b.match, steps)
    else:
        rc = index_match_some(b.index, topic.p, topic.n, &b.match, steps)
    b.work += steps - b.match.steps
    return rc


cdef inline bint is_merged(Broker* b, Match* m, uint64_t total) noexcept nogil:
    """Return whether the match needs merged copies. A single list contains no session twice."""
    return m.n_lists > 1 and not b.settings.allow_duplicate_messages and total < UINT32_MAX


cdef inline bint is_long(const Broker* b, const Match* m) noexcept nogil:
    return (match_places(m) + m.n_groups) * (WORK_SEND + 1) > turn_fanout_max(b)


cdef uint32_t route_observed(Broker* b, Publication* p, Client* owner) noexcept nogil:
    """Match, measure the time, follow the delivery to one of the subscribers, and count topic and clients."""
    cdef uint64_t from_ns = clock_monotonic_ns()
    cdef uint32_t matched
    cdef int rc = match_topic(b, p.topic, 0)
    observe_match(b, clock_monotonic_ns() - from_ns)
    if rc == MATCH_WHOLE and not is_long(b, &b.match):
        observe_delivery(b, p)
    if rc >= 0:
        observe_hot(b, p)
    b.observes = 1
    matched = route_found(b, p, owner, rc) if b.links == NULL else route_linked(b, p, owner, rc)
    b.observes = 0
    return matched


cdef bint route_journalled(Broker* b, Publication* p) noexcept nogil:
    cdef int rc = match_topic(b, p.topic, 0)
    if rc == MATCH_PART:
        match_leave(b.index, &b.match.place)
    if rc < 0 or not stream_message(b, p, NULL if rc == MATCH_PART else &b.match, 1):
        return 0
    p.journalled = 1             # also if no stream wants it, so that route does not ask again
    return 1


cdef uint32_t route(Broker* b, Publication* p, Client* owner) noexcept nogil:
    if b.stats.publish_in >= b.observe_at:
        return route_observed(b, p, owner)
    if b.links != NULL:
        return route_linked(b, p, owner, match_topic(b, p.topic, 0))
    return route_found(b, p, owner, match_topic(b, p.topic, 0))


cdef uint32_t route_linked(Broker* b, Publication* p, Client* owner, int rc) noexcept nogil:
    """Route to other workers first, because one of them may have no room, then to the subscribers of this worker."""
    cdef uint32_t matched, i
    if rc >= 0 and not p.scope & SCOPE_LOCAL:
        for i in range(b.match.n_groups):
            if b.match.groups[i].strategy == 0:
                group_init(b, b.match.groups[i])
        matched = 1 if links_take(b, p, &b.match, rc == MATCH_PART, owner) else ROUTE_REFUSED
        if p.scope & SCOPE_REMOTE or matched == ROUTE_REFUSED:
            if rc == MATCH_PART:
                match_leave(b.index, &b.match.place)
            return matched
    matched = route_found(b, p, owner, rc)
    return matched if matched else p.elsewhere


cdef inline uint32_t route_found(Broker* b, Publication* p, Client* owner, int rc) noexcept nogil:
    cdef Match* m = &b.match
    cdef uint32_t matched, at
    if rc == MATCH_WHOLE and m.n_lists == 1 and m.n_groups == 0 and not is_long(b, m):       # the most frequent case
        matched = m.lists[0].live
        at = deliver_some(b, p, m.lists[0], 0, m.lists[0].n)
        if at != m.lists[0].n:
            rest_begin(b, p, m, 0, at, owner)
        return matched
    return route_match(b, p, owner, rc)


cdef uint32_t route_match(Broker* b, Publication* p, Client* owner, int rc) noexcept nogil:
    """Route to what was found with the result rc: several lists or groups, a long list, a part of a match, or no memory."""
    cdef Match* m = &b.match
    cdef uint32_t i, matched
    cdef uint64_t total
    cdef bint part = rc == MATCH_PART
    cdef bint may_wait = p.patient and p.scope & SCOPE_LOCAL
    cdef int begun
    if rc < 0 and may_wait:
        p.lacks = 1
        return ROUTE_REFUSED
    if rc < 0:
        # a stream may be among the subscribers
        return ROUTE_REFUSED if b.streams != NULL and owner != NULL and p.qos and not p.journalled else 0
    total = match_total(m)
    if (m.n_groups or part) and b.streams != NULL and not p.journalled \
            and not stream_message(b, p, NULL if part else m, owner != NULL and p.qos != 0):
        if part:
            match_leave(b.index, &m.place)
        return ROUTE_REFUSED
    matched = <uint32_t>(total if total < 0x7FFFFFFF else 0x7FFFFFFF)
    for i in range(m.n_groups):
        matched += m.groups[i].strategy != SHARE_STREAM
    if part or is_long(b, m):
        begun = fanout_begin(b, p, m, part, owner)
        if begun > 0:
            return matched | part
        if may_wait and (begun < 0 or not lists_room(b, b.spare_fanout, m.n_lists)):
            p.lacks = 1
            if part:
                match_leave(b.index, &m.place)
            return ROUTE_REFUSED
    if part:
        total = 0                # these lists are not all, so copies cannot be merged
    while part:                  # no memory for a job: at once, which delays others but loses nothing
        deliver_match(b, p, m, total, owner)
        part = match_topic(b, p.topic, 1) == MATCH_PART
    deliver_match(b, p, m, total, owner)
    return matched


cdef inline void deliver_match(Broker* b, Publication* p, Match* m, uint64_t total, Client* owner) noexcept nogil:
    """Deliver to all lists and groups found. total: the subscribers in the lists; 0 = do not merge copies."""
    cdef uint32_t i, at
    if not p.scope & SCOPE_LOCAL:
        for i in range(m.n_groups):
            deliver_group(b, p, m.groups[i])
            if p.lacks:
                m.n_groups -= i
                memmove(m.groups, m.groups + i, m.n_groups * sizeof(Group*))
                if rest_begin(b, p, m, 0, 0, owner) and not b.settings.allow_duplicate_messages:
                    b.jobs_tail.merging = MERGE_COLLECTS
                return
        m.n_groups = 0           # a rest has lists only
    if total and is_merged(b, m, total) and deliver_merged(b, p, m, total, owner):
        return
    for i in range(m.n_lists):
        at = deliver_some(b, p, m.lists[i], 0, m.lists[i].n)
        if at != m.lists[i].n:
            rest_begin(b, p, m, i, at, owner)
            return


cdef inline void deliver_group(Broker* b, Publication* p, Group* group) noexcept nogil:
    if group.strategy != SHARE_STREAM:
        share_deliver(b, p, group)


cdef inline void deliver_entry(Broker* b, Publication* p, Entry* e) noexcept nogil:
    cdef Session* s = <Session*>e.subscriber
    if s == NULL or s.flags & SESSION_ENDED:
        return
    if not (e.options & NO_LOCAL and s == p.source):
        deliver(b, s, p, qos_for(b, p, e.options), p.retain if e.options & RETAIN_AS_PUBLISHED else 0, &e.sub_id, 1 if e.sub_id else 0)


cdef uint32_t deliver_some(Broker* b, Publication* p, List* l, uint32_t start, uint32_t end) noexcept nogil:
    """Return the first place that has not got the message: `end`, or that of a session for which there is no memory."""
    cdef uint32_t i
    for i in range(start, end):
        deliver_entry(b, p, list_entry(l, i))
        if p.lacks:
            return i
    return end


cdef bint deliver_merged(Broker* b, Publication* p, Match* m, uint64_t total, Client* owner) noexcept nogil:
    """Deliver merged copies. Returns 0 if there is no memory for that; then each session gets one copy per subscription."""
    cdef uint32_t i, at
    if merge_begin(&b.merge, <uint32_t>total) != 0:
        return 0
    for i in range(m.n_lists):
        merge_gather(b, &b.merge, m.lists, i, 0, m.lists[i].n)
    at = merge_deliver(b, p, &b.merge, m.lists, 0, UINT64_MAX)
    if at != b.merge.n and rest_begin(b, p, m, m.n_lists, at, owner):
        b.jobs_tail.merging = MERGE_DELIVERS
        b.jobs_tail.merge_n = <uint32_t>total
        b.merging_bytes += merge_bytes(b.jobs_tail.merge_n)
        b.jobs_tail.merge = b.merge
        memset(&b.merge, 0, sizeof(Merge))
    if b.merge.cap > MERGE_KEEP:
        merge_end(&b.merge)
    return 1


# ---------------------------------------------------------------- in slices

cdef int fanout_begin(Broker* b, Publication* p, Match* m, bint part, Client* owner) noexcept nogil:
    """Begin a fan-out job with a match, or with the first part of one. Returns 1; -1 = there is no memory for it; 0 = it would keep a list from
    closing its gaps: then the caller delivers at once."""
    cdef Job* j
    cdef uint32_t i
    if not part:
        for i in range(m.n_lists):
            if m.lists[i].pins and m.lists[i].n > 2 * m.lists[i].live + GAPS_MAX:
                return 0         # pinned by one fan-out after another it would never close its gaps
    if publication_store(b, p) == NULL:
        return -1
    j = job_new(b, JOB_FANOUT, owner)
    if j == NULL:
        return -1
    j.scope = p.scope & SCOPE_LOCAL
    if not lists_take(b, j, m):
        free(j.lists)
        free(j)                  # it was not added: no client waits for it
        return -1
    j.matching = part
    j.place = m.place
    if not b.settings.allow_duplicate_messages and (part or m.n_lists > 1):
        j.merging = MERGE_COLLECTS
    fanout_add(b, p, j)
    return 1


cdef bint fanout_spare(Broker* b) noexcept nogil:
    if b.spare_fanout == NULL:
        b.spare_fanout = job_new(b, JOB_FANOUT, NULL)
    # no fan-out of one turn has more lists
    return b.spare_fanout != NULL and lists_room(b, b.spare_fanout, <uint32_t>(b.settings.turn_budget // (WORK_SEND + 1)) + 1)


cdef void fanout_spare_free(Broker* b) noexcept nogil:
    if b.spare_fanout != NULL:
        fanout_end(b, b.spare_fanout)
        free(b.spare_fanout)
        b.spare_fanout = NULL


cdef bint rest_begin(Broker* b, Publication* p, Match* m, uint32_t list_, uint32_t position, Client* owner) noexcept nogil:     # parameters: a place in a match
    """A session finds no memory: deliver to it, and those behind it, as a job, which waits. Returns 0 if there is no memory for the job."""
    cdef Job* j = b.spare_fanout
    if j == NULL or publication_store(b, p) == NULL or not lists_take(b, j, m):
        durable_lacks_memory(b)
        return 0
    b.spare_fanout = NULL
    if owner != NULL:
        job_own(j, owner)
    j.list = list_
    j.position = position
    j.again_ms = b.reactor.now_ms + MEMORY_PAUSE_MS
    fanout_add(b, p, j)
    p.lacks = 0
    return 1


cdef inline void fanout_add(Broker* b, Publication* p, Job* j) noexcept nogil:
    j.scope = p.scope & SCOPE_LOCAL
    j.message = message_ref(p.message)
    j.durability = p.durability
    j.session = p.source
    if j.session != NULL:
        j.session.jobs += 1
    job_add(b, j)


cdef Job* fanout_later(Broker* b, Publication* p) noexcept nogil:
    cdef Job* j = job_new(b, JOB_FANOUT, NULL)
    if j == NULL or publication_store(b, p) == NULL:
        free(j)
        return NULL
    j.message = message_ref(p.message)
    j.scope = p.scope & SCOPE_LOCAL
    j.durability = p.durability
    j.matching = MATCHING_LATER
    if not b.settings.allow_duplicate_messages:
        j.merging = MERGE_COLLECTS
    return j


cdef Job* fanout_of(Broker* b, const Publication* p) noexcept nogil:
    cdef Job* j = b.jobs_tail
    return j if j != NULL and j.kind == JOB_FANOUT and p.message != NULL and j.message == p.message else NULL


cdef bint lists_room(Broker* b, Job* j, uint32_t n) noexcept nogil:
    """Make room for n lists. Returns 0 if there is no memory."""
    cdef void* grown
    if n <= j.cap_lists:
        return 1
    grown = realloc(j.lists, n * sizeof(List*))
    if grown == NULL:
        return 0
    j.lists = <List**>grown
    grown = realloc(j.ends, n * sizeof(uint32_t))
    if grown == NULL:
        return 0
    j.ends = <uint32_t*>grown
    b.fanout_bytes += (n - j.cap_lists) * LISTED_BYTES
    j.cap_lists = n
    return 1


cdef bint lists_take(Broker* b, Job* j, Match* m) noexcept nogil:
    """Pin the lists and groups of the match and append them to the job's. Returns 0 if there is no memory; then nothing changed."""
    cdef uint32_t n_groups = 0 if j.scope & SCOPE_LOCAL else m.n_groups
    cdef uint32_t n = m.n_lists + n_groups
    cdef uint32_t i
    if not lists_room(b, j, j.n_lists + n):
        return 0
    for i in range(m.n_lists):
        list_take(j, m.lists[i])
    for i in range(n_groups):
        if m.groups[i].strategy != SHARE_STREAM:
            list_take(j, &m.groups[i].members)
    b.work += 1 + n // PIN_WORK
    return 1


cdef inline void list_take(Job* j, List* l) noexcept nogil:
    j.lists[j.n_lists] = l
    j.ends[j.n_lists] = l.n
    j.n_lists += 1
    list_pin(l)


cdef bint fanout_slice(Broker* b, Job* j) noexcept nogil:
    cdef Publication p
    cdef uint64_t limit = b.turn_limit
    cdef bint done = 0
    publication_of(&p, j.message)
    p.source = j.session
    p.durability = j.durability
    p.scope = j.scope
    p.patient = 1
    while not done and not p.lacks and b.work < limit:
        if j.matching == MATCHING_LATER:
            p.lacks = not match_more(b, j)
        elif j.merging == MERGE_COLLECTS:
            p.lacks = not collect(b, j)
        elif j.merging == MERGE_WANTED:
            if not merging_begin(b, j):
                break
        elif not round_done(b, &p, j, limit):
            break
        elif j.matching:
            lists_leave(b, j)
            p.lacks = not match_more(b, j)
        else:
            done = close_gaps(b, j)
    if done and j.released_pid and j.session != NULL and delivered_record(b, j) != 0:
        p.lacks = 1              # for its record
        done = 0
    if done:
        j.released_pid = 0
    j.again_ms = b.reactor.now_ms + MEMORY_PAUSE_MS if p.lacks else 0
    publication_fini(b, &p)
    return done


cdef int delivered_record(Broker* b, Job* j) noexcept nogil:
    """Record that all sessions of this broker have the message that PUBREL released [ADR 2]. Its packet id is free then, unless other
    workers get the message too: their links need its record until they have it. Returns -1 without memory; then nothing changed."""
    if j.released_identity == 0:
        return persist_inbound_end(b, j.session, j.released_pid)
    if j.session.flags & SESSION_ENDED or j.message.flags & MESSAGE_LOCAL_DONE:
        return 0
    j.message.flags |= MESSAGE_LOCAL_DONE
    if persist_inbound(b, j.session, j.released_pid, j.message, j.released_identity) == 0:
        return 0
    j.message.flags &= ~<uint32_t>MESSAGE_LOCAL_DONE
    return -1


cdef bint round_done(Broker* b, Publication* p, Job* j, uint64_t limit) noexcept nogil:
    """Deliver to the lists at hand. Returns 0 if the slice ends first."""
    if j.merging != MERGE_DELIVERS:
        walk_lists(b, p, j, limit)
        if j.list != j.n_lists:
            return 0
        if j.merging != MERGE_GATHERS:
            return 1
        j.merging = MERGE_DELIVERS
        j.position = 0
    j.position = merge_deliver(b, p, &j.merge, j.lists, j.position, limit)
    return j.position == j.merge.n


cdef bint match_more(Broker* b, Job* j) noexcept nogil:
    """Take the lists of the next part of the match. Returns 0 if there is no memory to remember them; then nothing changed."""
    cdef Match* m = &b.match
    cdef bint on = j.matching != MATCHING_LATER
    cdef Group* group = j.place.group if on else NULL
    cdef bint taken
    cdef int rc
    if group != NULL:
        list_pin(&group.members)         # the match releases it
    m.place = j.place
    rc = match_topic(b, j.message.topic, on)
    taken = rc >= 0 and lists_take(b, j, m)
    if taken:
        match_leave(b.index, &j.place)
        j.matching = rc == MATCH_PART
        j.place = m.place
    elif rc == MATCH_PART:
        match_leave(b.index, &m.place)
    return taken


cdef bint collect(Broker* b, Job* j) noexcept nogil:
    """Collect the lists of one more part of a match whose copies are merged. A match of more lists than MERGE_LISTS_MAX is not
    merged. Returns 0 if there is no memory for it."""
    cdef uint32_t i
    cdef uint64_t total = 0
    if j.matching and j.n_lists < MERGE_LISTS_MAX:
        return match_more(b, j)
    for i in range(j.n_lists):
        total += j.lists[i].live
    b.work += j.n_lists // PIN_WORK
    j.merging = MERGE_NOT if j.matching or j.n_lists < 2 or total >= UINT32_MAX else MERGE_WANTED
    j.merge_n = <uint32_t>total
    return 1


cdef bint close_gaps(Broker* b, Job* j) noexcept nogil:
    """Close the gaps that subscribers left while this job pinned the lists. Works in slices, too: returns 0 if there is more to
    do."""
    cdef uint32_t i
    b.work += 1 + j.n_lists // PIN_WORK
    for i in range(j.n_lists):
        if list_tidy(b.index, j.lists[i]):
            b.work += 32
            return 0
    return 1


cdef void walk_lists(Broker* b, Publication* p, Job* j, uint64_t limit) noexcept nogil:
    """Walk over the lists, either to deliver or to gather the sessions for merged copies."""
    cdef uint32_t end
    cdef List* l
    while j.list < j.n_lists and b.work < limit and not p.lacks:
        l = j.lists[j.list]
        end = j.ends[j.list]
        if list_group(l) != NULL:
            deliver_group(b, p, list_group(l))
            b.work += 1
            if p.lacks:
                return
        else:
            if end - j.position > RUN:
                end = j.position + RUN
            if j.merging == MERGE_GATHERS:
                merge_gather(b, &j.merge, j.lists, j.list, j.position, end)
            else:
                b.work += 1 + (end - j.position) // 8     # entries without a write cost time, too
                end = deliver_some(b, p, l, j.position, end)
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


cdef void lists_leave(Broker* b, Job* j) noexcept nogil:
    cdef uint32_t i
    for i in range(j.n_lists):
        list_unpin(b.index, j.lists[i])
    b.work += j.n_lists // PIN_WORK
    j.n_lists = j.list = j.position = 0


cdef void fanout_end(Broker* b, Job* j) noexcept nogil:
    if j.merging == MERGE_GATHERS or j.merging == MERGE_DELIVERS:
        b.merging_bytes -= merge_bytes(j.merge_n)
        merge_end(&j.merge)
    if j.matching and j.matching != MATCHING_LATER:
        match_leave(b.index, &j.place)
    lists_leave(b, j)
    b.fanout_bytes -= j.cap_lists * LISTED_BYTES
    free(j.lists)
    free(j.ends)
    j.lists = NULL
    j.ends = NULL
