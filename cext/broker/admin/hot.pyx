"""Write the sketches of hot names, and the connected clients with long queues, for the control plane. This module knows the structs and the layout of
the answers. It does not know how windows are added or rows are sorted (mosq/server/hot.py).

CONTROL_HOT, `from_index` HOT_...: four numbers of 64 bits (messages of which one is sampled, microseconds that the windows cover, the least count of
this window's sketch, that of the window before), then the names of both windows: a HotRow and the beginning of the name. For HOT_DELAYS a SlowRow
follows each name. Nothing if nothing is observed.
CONTROL_SLOW, sessions from `cursor` on: for each connected client above one of the limits in `stats` a SlowRow and the beginning of its client id,
and the sums of all sessions of the slice in `stats`. `cursor`: where to continue, 0 = end.
Cost: a request copies at most 2 * SKETCH_NAMES names, or looks at about CLIENTS_SLICE sessions and at OLDEST_LOOK deliveries of each.
"""

from libc.errno cimport EINVAL, ENOMEM
from libc.stdint cimport UINT64_MAX, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from cext.base.clock cimport clock_monotonic_us
from cext.base.sketch cimport SKETCH_TEXT, Sketch, SketchName, sketch_kept, sketch_least
from cext.base.slab cimport slab_get
from cext.base.view cimport View
from cext.broker.admin.control_request cimport CLIENTS_SLICE, ControlRequest
from cext.broker.admin.inspect cimport SESSIONS_BUCKETS, out_put
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.observed cimport HOT_DELAYS, HOT_N, Hot, Observed, observed_of
from cext.broker.core.session_refs cimport session_client
from cext.broker.routing.observe cimport hot_age_us, hot_delay, hot_window
from cext.session.message cimport Message
from cext.session.queue cimport DELIVERY_RETAIN, Delivery, Queue, delivery_message, queue_at, queue_waiting
from cext.session.session cimport SESSION_TRUSTED, Session, sessions_find, sessions_scan

cdef enum:
    OLDEST_LOOK = 16            # deliveries that are looked at for one whose age is known

cdef enum:
    # places of the limits in ControlRequest.stats
    LIMIT_QUEUED = 0
    LIMIT_BYTES = 1
    LIMIT_AGE_MS = 2
    LIMIT_UNSENT = 3
    # places of the sums
    SUM_QUEUED = 4              # deliveries that were never sent
    SUM_INFLIGHT = 5
    SUM_BYTES = 6               # payloads of both

ctypedef struct HotRow:
    uint64_t count
    uint64_t error
    uint64_t bytes
    uint32_t length             # bytes of the whole name
    uint16_t kept               # bytes of its beginning, which follow
    uint16_t window             # 0 = this one, 1 = the one before

ctypedef struct SlowRow:
    uint64_t queue_bytes
    uint64_t age_ms             # UINT64_MAX = not known, or no queue
    uint64_t unsent_bytes
    uint32_t queued             # never sent
    uint32_t inflight
    uint32_t known              # 0: the session does not exist any more, or its client id is too long to find it; the numbers are 0
    uint32_t connected
    uint32_t length             # bytes of the client id; not used after a HotRow
    uint32_t kept


cdef uint64_t oldest_ms(Broker* b, Queue* q) noexcept nogil:
    """Return the age of the oldest delivery that is not complete and whose arrival is known. A message from the disk has no arrival. A delivery with
    RETAIN may be older than its subscription."""
    cdef uint32_t place = q.floor
    cdef uint32_t looked = 0
    cdef Delivery* d
    cdef Message* m
    while place != q.tail and looked < OLDEST_LOOK:
        d = queue_at(q, place)
        m = delivery_message(d)
        if m != NULL and m.arrived_ms and not d.qos & DELIVERY_RETAIN:
            return b.reactor.now_ms - m.arrived_ms if b.reactor.now_ms > m.arrived_ms else 0
        place += 1
        looked += 1
    return UINT64_MAX


cdef void slow_row(Broker* b, Session* s, SlowRow* row) noexcept nogil:
    memset(row, 0, sizeof(SlowRow))
    row.queue_bytes = s.queue.waiting_bytes + s.queue.inflight_bytes
    row.age_ms = oldest_ms(b, &s.queue)
    row.queued = queue_waiting(&s.queue)
    row.inflight = s.queue.inflight
    row.known = 1
    row.length = s.id_len
    row.kept = s.id_len if s.id_len < SKETCH_TEXT else SKETCH_TEXT
    if s.client != NULL:
        row.connected = 1
        row.unsent_bytes = session_client(s).conn.out_bytes


cdef int slow_put(Broker* b, ControlRequest* a, Session* s) noexcept nogil:
    """Append the row of a session if it is above one of the limits. Returns -1 if there is no memory."""
    cdef SlowRow row
    slow_row(b, s, &row)
    if row.queued <= a.stats[LIMIT_QUEUED] and row.queue_bytes <= a.stats[LIMIT_BYTES] and row.unsent_bytes <= a.stats[LIMIT_UNSENT] \
            and (row.age_ms == UINT64_MAX or row.age_ms <= a.stats[LIMIT_AGE_MS]):
        return 0
    if out_put(a, &row, sizeof(row)) != 0:
        return -1
    return out_put(a, s.client_id, row.kept) if row.kept else 0


ctypedef struct SlowListing:
    Broker* b
    ControlRequest* request
    uint32_t n


cdef void slow_one(void* listing, Session* s) noexcept nogil:
    cdef SlowListing* l = <SlowListing*>listing
    cdef ControlRequest* a = l.request
    if s.flags & SESSION_TRUSTED or a.result:
        return
    l.n += 1
    a.stats[SUM_QUEUED] += queue_waiting(&s.queue)
    a.stats[SUM_INFLIGHT] += s.queue.inflight
    a.stats[SUM_BYTES] += s.queue.waiting_bytes + s.queue.inflight_bytes
    if s.client != NULL and slow_put(l.b, a, s) != 0:
        a.result = ENOMEM


cdef void answer_slow(Broker* b, ControlRequest* a) noexcept nogil:
    cdef SlowListing l
    cdef uint32_t buckets = 0
    l.b = b
    l.request = a
    l.n = 0
    a.stats[SUM_QUEUED] = a.stats[SUM_INFLIGHT] = a.stats[SUM_BYTES] = 0
    while True:
        a.cursor = sessions_scan(&b.sessions, a.cursor, slow_one, &l)
        buckets += 1
        if a.result or a.cursor == 0 or l.n >= CLIENTS_SLICE or buckets >= SESSIONS_BUCKETS:
            return


cdef void waits_add(Broker* b, Observed* o) noexcept nogil:
    """Count the waits of the deliveries that are still followed with the time so far."""
    cdef uint64_t now_us = clock_monotonic_us()
    cdef uint32_t i
    cdef Client* c
    for i in range(o.n_probes):
        c = <Client*>slab_get(&b.clients, o.probes[i].client, o.probes[i].generation)
        if c != NULL:
            hot_delay(b, c.session, now_us - o.probes[i].arrived_us)


cdef int delayed_put(Broker* b, ControlRequest* a, const SketchName* name, const uint8_t* text) noexcept nogil:
    cdef SlowRow row
    cdef View id
    cdef Session* s
    memset(&row, 0, sizeof(row))
    row.age_ms = UINT64_MAX
    id.p = text
    id.n = name.length
    s = sessions_find(&b.sessions, id) if name.length <= SKETCH_TEXT else NULL
    if s != NULL and not s.flags & SESSION_TRUSTED:
        slow_row(b, s, &row)
    return out_put(a, &row, sizeof(row))


cdef int names_put(Broker* b, ControlRequest* a, const Sketch* s, uint16_t window) noexcept nogil:
    """Append the names of a sketch. Returns -1 if there is no memory."""
    cdef HotRow row
    cdef uint32_t i
    memset(&row, 0, sizeof(row))
    row.window = window
    for i in range(s.n):
        row.count = s.names[i].count
        row.error = s.names[i].error
        row.bytes = s.names[i].bytes
        row.length = s.names[i].length
        row.kept = <uint16_t>sketch_kept(&s.names[i])
        if out_put(a, &row, sizeof(row)) != 0 or (row.kept and out_put(a, s.texts[i], row.kept) != 0):
            return -1
        if a.from_index == HOT_DELAYS and delayed_put(b, a, &s.names[i], s.texts[i]) != 0:
            return -1
    return 0


cdef void answer_hot(Broker* b, ControlRequest* a) noexcept nogil:
    cdef Observed* o = observed_of(b)
    cdef uint64_t head[4]
    cdef uint64_t now_us = clock_monotonic_us()
    cdef Hot* h
    if a.from_index >= HOT_N:
        a.result = EINVAL
        return
    if o == NULL or o.period == 0 or o.hot == NULL:
        return
    h = o.hot
    if a.from_index == HOT_DELAYS:
        waits_add(b, o)
    hot_window(h, now_us)        # the windows may have ended while no message was sampled
    head[0] = o.period
    head[1] = hot_age_us(h, now_us)
    head[2] = sketch_least(&h.windows[h.now].of_what[a.from_index])
    head[3] = sketch_least(&h.windows[1 - h.now].of_what[a.from_index])
    if out_put(a, head, sizeof(head)) != 0 or names_put(b, a, &h.windows[h.now].of_what[a.from_index], 0) != 0 \
            or names_put(b, a, &h.windows[1 - h.now].of_what[a.from_index], 1) != 0:
        a.result = ENOMEM
