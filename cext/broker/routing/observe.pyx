"""Observe one message in `observe_messages`: the time of its match, the time from its arrival until one of its subscribers has it, and its topic,
publisher and subscribers in sketches of hot names. This module knows the match, queues and connections. It does not know how the results are shown
(admin/observations.pyx, admin/hot.pyx).

    route: every message compares two counters -> the sampled one: observe_match, observe_delivery (a probe), observe_hot
    end of the turn: observe_flushed -> the delivery is sent: counted; otherwise the probe stays

Arrival is the beginning of the turn that handles the message. A delivery counts as sent when its connection has no unsent output at the end
of a turn, so the waits in the queue, for the store and for the socket are in it. Older probes are examined once in LOOK_US, which is the
precision of longer waits. After GIVE_UP_US a delivery counts with that time. Deliveries that are made in slices are not followed.
Hot names: a message with many subscribers counts RECEIVERS of them, chosen at random from equal parts of the match, each for its part. So the sum is
right, and the work is bounded. The member that a shared group chooses counts when it is chosen. The messages of the broker itself, and deliveries
of fan-outs in slices beyond the first part of their match, do not count.
Cost: nothing but the comparison while it is off; two looks at the clock, a probe and about five names for a sampled message (perf/FINDINGS.md).
"""

from libc.stdint cimport UINT64_MAX, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from cext.base.clock cimport clock_monotonic_us
from cext.base.hash cimport hash_bytes
from cext.base.histogram cimport histogram_add
from cext.base.sketch cimport Sketch, sketch_add, sketch_clear, sketch_most
from cext.base.slab cimport slab_get
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.observed cimport (
    HOT_DELAYS, HOT_N, HOT_PUBLISHERS, HOT_RECEIVERS, HOT_TOPICS, HOT_WINDOW_US, Hot, HotWindow, OBSERVED_FLUSH, OBSERVED_MATCH, Observed, PROBES_MAX,
    Probe, observed_of,
)
from cext.broker.core.publication_state cimport Publication
from cext.broker.core.session_refs cimport session_client
from cext.broker.routing.delivery_rules cimport NO_LOCAL, qos_for
from cext.net.conn_state cimport CONN_BLOCKED, CONN_CLOSED, CONN_HELD
from cext.session.session cimport SESSION_ENDED, SESSION_TRUSTED, Session
from cext.topic.index cimport Entry, List, list_entry
from cext.topic.match cimport match_places

cdef enum:
    LOOK_US = 1000
    GIVE_UP_US = 16_000_000
    RECEIVERS = 8               # subscribers of one message that are counted

cdef enum:
    WAITS = 0
    SENT = 1
    LOST = 2


cdef void observe_begin(Broker* b) noexcept nogil:
    cdef uint32_t period = b.settings.observe_messages
    if b.observed == NULL and period:
        b.observed = calloc(1, sizeof(Observed))
        if b.observed != NULL:
            observed_of(b).dice = clock_monotonic_us() | 1
    b.observe_at = UINT64_MAX
    if b.observed == NULL:
        return
    observed_of(b).period = period
    observed_of(b).n_probes = observed_of(b).n_old = 0
    hot_end(observed_of(b))
    if period:
        next_sample(b, observed_of(b))
        observed_of(b).hot = hot_new(clock_monotonic_us())


cdef void observe_end(Broker* b) noexcept nogil:
    if b.observed != NULL:
        hot_end(observed_of(b))
    free(b.observed)
    b.observed = NULL


cdef inline uint64_t random_of(Observed* o) noexcept nogil:
    o.dice ^= o.dice << 13       # xorshift: no client can gain from a guess
    o.dice ^= o.dice >> 7
    o.dice ^= o.dice << 17
    return o.dice


cdef inline void next_sample(Broker* b, Observed* o) noexcept nogil:
    """Choose the distance at random, so that messages in a regular order are all seen."""
    b.observe_at = b.stats.publish_in + 1 + (random_of(o) >> 32) % (2 * <uint64_t>o.period - 1)


cdef void observe_match(Broker* b, uint64_t ns) noexcept nogil:
    cdef Observed* o = observed_of(b)
    next_sample(b, o)
    histogram_add(&o.at[OBSERVED_MATCH], ns)


cdef void observe_delivery(Broker* b, const Publication* p) noexcept nogil:
    cdef Observed* o = observed_of(b)
    cdef List* l
    cdef Entry* e
    cdef Session* s
    cdef Client* c
    cdef Probe* probe
    if b.match.n_lists == 0:
        return
    l = b.match.lists[(random_of(o) >> 32) % b.match.n_lists]
    if l.n == 0:
        return
    e = list_entry(l, <uint32_t>((random_of(o) >> 32) % l.n))
    s = <Session*>e.subscriber
    if s == NULL or s.flags & SESSION_ENDED or s.client == NULL or (e.options & NO_LOCAL and s == p.source):
        return
    if o.n_probes == PROBES_MAX:
        o.passed_over += 1
        return
    c = session_client(s)
    probe = &o.probes[o.n_probes]
    o.n_probes += 1
    probe.arrived_us = b.reactor.now_us
    probe.client = c.slab.index
    probe.generation = c.slab.generation
    probe.position = s.queue.tail
    probe.qos = qos_for(b, p, e.options)


cdef Session* probe_session(Broker* b, const Probe* probe) noexcept nogil:
    """Return the session of the subscriber; NULL: it has left."""
    cdef Client* c = <Client*>slab_get(&b.clients, probe.client, probe.generation)
    return c.session if c != NULL else NULL


cdef int probe_state(Broker* b, const Probe* probe) noexcept nogil:
    cdef Client* c = <Client*>slab_get(&b.clients, probe.client, probe.generation)
    cdef Session* s
    if c == NULL or c.session == NULL or c.conn.flags & CONN_CLOSED:
        return LOST
    s = c.session
    if probe.qos:
        if <int>(s.queue.tail - probe.position) <= 0:
            return LOST          # the delivery was dropped
        if <int>(s.queue.next - probe.position) <= 0:
            return WAITS
    return WAITS if c.conn.flags & (CONN_BLOCKED | CONN_HELD) else SENT


cdef void observe_flushed(Broker* b) noexcept nogil:
    """Examine the probes of this turn, and the older ones when it is their time."""
    cdef Observed* o = observed_of(b)
    cdef uint64_t now_us = clock_monotonic_us(), waited_us
    cdef uint32_t i = o.n_old, kept = o.n_old
    cdef int state
    if now_us >= o.look_again_us:
        o.look_again_us = now_us + LOOK_US
        i = kept = 0
    while i < o.n_probes:
        state = probe_state(b, &o.probes[i])
        waited_us = now_us - o.probes[i].arrived_us
        if state == LOST:
            o.lost += 1
        elif state == SENT or waited_us >= GIVE_UP_US:
            histogram_add(&o.at[OBSERVED_FLUSH + o.probes[i].qos], waited_us * 1000)
            hot_delay(b, probe_session(b, &o.probes[i]), waited_us)
        else:
            o.probes[kept] = o.probes[i]
            kept += 1
        i += 1
    o.n_probes = o.n_old = kept


# ---------------------------------------------------------------- hot names

cdef Hot* hot_new(uint64_t now_us) noexcept nogil:
    cdef Hot* h = <Hot*>calloc(1, sizeof(Hot))
    if h != NULL:
        h.since_us = now_us
        h.number = now_us // HOT_WINDOW_US
    return h


cdef void hot_end(Observed* o) noexcept nogil:
    free(o.hot)
    o.hot = NULL


cdef void window_clear(HotWindow* w) noexcept nogil:
    cdef int i
    for i in range(HOT_N):
        sketch_clear(&w.of_what[i])


cdef void windows_turn(Hot* h, uint64_t number) noexcept nogil:
    """Begin a window. The one before it counts on only if it is the last one."""
    if number != h.number + 1:
        window_clear(&h.windows[h.now])
    h.now = 1 - h.now
    window_clear(&h.windows[h.now])
    h.number = number


cdef HotWindow* hot_window(Hot* h, uint64_t now_us) noexcept nogil:
    cdef uint64_t number = now_us // HOT_WINDOW_US
    if number > h.number:
        windows_turn(h, number)
    return &h.windows[h.now]


cdef uint64_t hot_age_us(const Hot* h, uint64_t now_us) noexcept nogil:
    cdef uint64_t from_us = (h.number - 1) * HOT_WINDOW_US if h.number else 0      # 0: the system has just started
    return now_us - (from_us if from_us > h.since_us else h.since_us)


cdef inline void client_add(Sketch* to, const Session* s, uint64_t weight, uint64_t bytes) noexcept nogil:
    if not s.flags & SESSION_TRUSTED:
        sketch_add(to, s.hash, s.client_id, s.id_len, weight, bytes)


cdef void observe_hot(Broker* b, const Publication* p) noexcept nogil:
    cdef Hot* h = observed_of(b).hot
    cdef HotWindow* w
    if h == NULL or p.source == NULL:
        return
    w = hot_window(h, b.reactor.now_us)
    sketch_add(&w.of_what[HOT_TOPICS], hash_bytes(&b.key, p.topic.p, p.topic.n), p.topic.p, p.topic.n, 1, p.payload.n)
    client_add(&w.of_what[HOT_PUBLISHERS], p.source, 1, p.payload.n)
    receivers_add(b, p)


cdef void receivers_add(Broker* b, const Publication* p) noexcept nogil:
    """Divide the places of the match into at most RECEIVERS equal parts, and count one subscriber of each part for all of them."""
    cdef uint64_t n_places = match_places(&b.match)
    cdef uint64_t parts = n_places if n_places < RECEIVERS else RECEIVERS
    cdef uint64_t i, start, end, place
    cdef uint64_t before = 0        # places of the lists before `list`
    cdef uint32_t list = 0
    for i in range(parts):
        start = n_places * i // parts
        end = n_places * (i + 1) // parts
        place = start + (random_of(observed_of(b)) >> 32) % (end - start)
        while place - before >= b.match.lists[list].n:
            before += b.match.lists[list].n
            list += 1
        receiver_add(b, p, list_entry(b.match.lists[list], <uint32_t>(place - before)), end - start)


cdef inline void receiver_add(Broker* b, const Publication* p, const Entry* e, uint64_t deliveries) noexcept nogil:
    cdef Session* s = <Session*>e.subscriber
    if s != NULL and not s.flags & SESSION_ENDED and not (e.options & NO_LOCAL and s == p.source):
        observe_receiver(b, s, p, deliveries)


cdef void observe_receiver(Broker* b, const Session* s, const Publication* p, uint64_t deliveries) noexcept nogil:
    cdef Hot* h = observed_of(b).hot
    if h != NULL and p.source != NULL:
        client_add(&hot_window(h, b.reactor.now_us).of_what[HOT_RECEIVERS], s, deliveries, deliveries * p.payload.n)


cdef void hot_delay(Broker* b, const Session* s, uint64_t us) noexcept nogil:
    cdef Hot* h = observed_of(b).hot
    if h != NULL and s != NULL and not s.flags & SESSION_TRUSTED:
        sketch_most(&hot_window(h, b.reactor.now_us).of_what[HOT_DELAYS], s.hash, s.client_id, s.id_len, us)
