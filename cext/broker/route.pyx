"""From a publication to every session that subscribed. Knows the index and the options of a subscription; not sockets, nor how a
delivery is kept.

    index_match -> per list: per entry: deliver          (small: at once)
                -> JOB_FANOUT: pinned lists, a position  (more than a turn's budget: in slices, the publisher waits)
                -> per shared group: one member

Cost: one hash and one look-up for the match, then what each delivery costs.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from cext.broker.broker cimport Broker, Client, JOB_FANOUT, Job, Publication, SUB_IDS_MAX, WORK_SEND
from cext.broker.deliver cimport deliver, publication_fini, publication_of, publication_store
from cext.broker.jobs cimport job_add, job_new
from cext.session.message cimport message_ref
from cext.session.session cimport SESSION_ENDED, Session
from cext.topic.index cimport Entry, Group, List, Match, entry_of, index_match, list_entry, list_pin, list_unpin, match_total

cdef enum:
    GAPS_MAX = 1024              # of a pinned list, beside as many as it has subscribers
    NO_LOCAL = 1 << 2            # [v5 3.8.3.1]
    RETAIN_AS_PUBLISHED = 1 << 3


cdef uint32_t route(Broker* b, Publication* p, Client* owner) noexcept nogil:
    cdef Match* m = &b.match
    cdef uint32_t i, matched
    cdef uint64_t total
    if index_match(b.index, p.topic.p, p.topic.n, m) != 0:
        return 0
    total = match_total(m)
    matched = <uint32_t>(total if total < 0x7FFFFFFF else 0x7FFFFFFF) + m.n_groups
    for i in range(m.n_groups):
        deliver_shared(b, p, m.groups[i])
    if m.n_lists == 0:
        return matched
    if total * (WORK_SEND + 1) > b.settings.turn_budget and fanout_begin(b, p, m, owner):
        return matched
    for i in range(m.n_lists):
        deliver_list(b, p, m.lists, m.n_lists, i, 0, m.lists[i].n)
    return matched


cdef inline uint8_t lower(uint8_t a, uint8_t b) noexcept nogil:
    return a if a < b else b


cdef inline uint8_t qos_for(Broker* b, Publication* p, uint8_t options) noexcept nogil:
    return options & 3 if b.settings.upgrade_outgoing_qos else lower(options & 3, p.qos)


cdef void deliver_list(Broker* b, Publication* p, List** lists, uint32_t n_lists, uint32_t at, uint32_t start,
                       uint32_t end) noexcept nogil:
    cdef List* l = lists[at]
    cdef Entry* e
    cdef Session* s
    cdef uint32_t i
    cdef bint merge = n_lists > 1 and not b.settings.allow_duplicate_messages
    for i in range(start, end):
        e = list_entry(l, i)
        s = <Session*>e.who
        if s == NULL or s.flags & SESSION_ENDED:
            continue
        if merge:
            deliver_merged(b, p, lists, n_lists, at, e)
        elif not (e.options & NO_LOCAL and s == p.source):
            deliver(b, s, p, qos_for(b, p, e.options), p.retain if e.options & RETAIN_AS_PUBLISHED else 0,
                    &e.sub_id, 1 if e.sub_id else 0)


cdef void deliver_merged(Broker* b, Publication* p, List** lists, uint32_t n_lists, uint32_t at, Entry* e) noexcept nogil:
    """One copy for overlapping subscriptions [v5 3.3.4-2, 3.3.4-3]: the highest QoS, all identifiers. It goes out when the first of the
    session's lists is visited, so no state is kept between lists and a sliced fan-out needs none."""
    cdef uint32_t ids[SUB_IDS_MAX]
    cdef uint32_t n = 0, i
    cdef uint8_t qos = 0, retain = 0
    cdef bint any_local = 0
    cdef Session* s = <Session*>e.who
    cdef Entry* other
    for i in range(n_lists):
        other = e if i == at else entry_of(b.index, lists[i], &s.owner)
        if other == NULL or (other.options & NO_LOCAL and s == p.source):
            continue
        if i < at:
            return               # sent from there
        any_local = 1
        if qos_for(b, p, other.options) > qos:
            qos = qos_for(b, p, other.options)
        if other.options & RETAIN_AS_PUBLISHED:
            retain = p.retain
        if other.sub_id and n < SUB_IDS_MAX:
            ids[n] = other.sub_id
            n += 1
    if any_local:
        deliver(b, s, p, qos, retain, ids, n)


cdef void deliver_shared(Broker* b, Publication* p, Group* g) noexcept nogil:
    """[v5 4.8.2] One member gets it: the next in turn that is online, else the next in turn, whose session keeps it."""
    cdef uint32_t n = g.members.n, i, at
    cdef Entry* e
    cdef Entry* chosen = NULL
    cdef uint32_t chosen_at = 0
    cdef Session* s
    for i in range(n):
        at = (g.cursor % n + i) % n
        b.work += i & 1          # members that are passed over cost, too
        e = list_entry(&g.members, at)
        s = <Session*>e.who
        if s == NULL or s.flags & SESSION_ENDED:
            continue
        if chosen == NULL:
            chosen = e
            chosen_at = at
        if s.client != NULL:
            chosen = e
            chosen_at = at
            break
    if chosen == NULL:
        return
    g.cursor = chosen_at + 1
    deliver(b, <Session*>chosen.who, p, qos_for(b, p, chosen.options), p.retain if chosen.options & RETAIN_AS_PUBLISHED else 0,
            &chosen.sub_id, 1 if chosen.sub_id else 0)


# ---------------------------------------------------------------- in slices

cdef bint fanout_begin(Broker* b, Publication* p, Match* m, Client* owner) noexcept nogil:
    """0: no memory for it; then it is done at once, late for others rather than lost."""
    cdef Job* j
    cdef uint32_t i
    for i in range(m.n_lists):
        if m.lists[i].pins and m.lists[i].n > 2 * m.lists[i].live + GAPS_MAX:
            return 0             # pinned by one fan-out after the other it would never close its gaps
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
    j.message = message_ref(p.message)
    j.session = p.source
    if j.session != NULL:
        j.session.jobs += 1
    job_add(b, j)
    return 1


cdef bint fanout_slice(Broker* b, Job* j) noexcept nogil:
    cdef Publication p
    cdef uint64_t limit = b.work + b.settings.turn_budget
    cdef uint32_t end
    publication_of(&p, j.message)
    p.source = j.session
    while j.list < j.n_lists and b.work < limit:
        end = j.ends[j.list]
        if end - j.position > 64:
            end = j.position + 64
        deliver_list(b, &p, j.lists, j.n_lists, j.list, j.position, end)
        b.work += 1 + (end - j.position) // 8     # entries that led to no write cost, too
        j.position = end
        if j.position >= j.ends[j.list]:
            j.list += 1
            j.position = 0
    publication_fini(b, &p)
    return j.list == j.n_lists


cdef void fanout_end(Broker* b, Job* j) noexcept nogil:
    cdef uint32_t i
    for i in range(j.n_lists):
        list_unpin(b.index, j.lists[i])
    free(j.lists)
    j.lists = NULL
