"""Who is sent what lies in a stream, and then what comes: the loop's side. Knows subscriptions, sessions and what was brought; not files.

Invariants: what is delivered of a shard is in its order, each record once, and nothing is passed over but what is told (log: it is not kept any more, or
damaged). A cursor never meets the live path, so there is no seam between history and what comes. At most READ_REQUEST_BYTES and one record are held for each, counted
in memory_limit, and given up and read again later where memory is short: it waits rather than that anything is dropped. An Ask is with the storage thread,
or here, never both.
Cost: none for others; of a message, its copy out of the file and a delivery.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset, strlen

from cext.base.view cimport View
from cext.base.wheel cimport timer_armed, wheel_add, wheel_remove
from cext.broker.core.access cimport access_allows
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport log_line
from cext.broker.core.client_state cimport Client, TIMER_CURSORS
from cext.broker.core.durable cimport durable_of
from cext.broker.core.listener cimport Security
from cext.broker.core.log cimport LOG_LINE_MAX, LOG_WARNING
from cext.broker.core.publication_state cimport Publication
from cext.broker.core.session_refs cimport session_client, session_security
from cext.broker.core.settings cimport DURABILITY_NONE
from cext.broker.persist.publication cimport memory_short, publication_fini, publication_init, publication_store
from cext.broker.persist.streams cimport Stream, Streams, stream_name, streams_of
from cext.broker.replay.cursor_place cimport level_take, place_take
from cext.broker.routing.deliver cimport NO_LOCAL, RETAIN_AS_PUBLISHED, deliver_readable, qos_for
from cext.broker.routing.retain cimport sending_congested
from cext.broker.rules.acl cimport ACL_READ
from cext.codec.reason cimport RC_NOT_AUTHORIZED, RC_QUOTA_EXCEEDED, RC_TOPIC_FILTER_INVALID
from cext.journal.journal cimport JOURNAL_RANGES_REPORTED, LOSS_RETIRED
from cext.journal.record cimport JOURNAL_QOS, JOURNAL_RETAIN, JournalRecord, record_get
from cext.net.reactor cimport CONN_CLOSED, CONN_CLOSING
from cext.session.session cimport SESSION_ENDED, Session
from cext.store.segment cimport error_text
from cext.store.store cimport store_extension_wake
from cext.topic.name cimport Filter, filter_parse

cdef enum:
    PREFIX_BYTES = 8            # $stream/
    PROPS_MAX = 160             # what is put behind a message's own
    AGAIN_MS = 250              # without memory: before the next look whether there is some

cdef const char* PREFIX = b"$stream/"


cdef inline Cursors* cursors_of(Broker* b) noexcept nogil:
    return <Cursors*>streams_of(b).cursors if b.streams != NULL else NULL


# ---------------------------------------------------------------- what is asked for

cdef bint cursor_wanted(Broker* b, View filter) noexcept nogil:
    return b.streams != NULL and filter.n >= PREFIX_BYTES and memcmp(filter.p, PREFIX, PREFIX_BYTES) == 0


cdef Stream* stream_named(Streams* t, View name) noexcept nogil:
    """NULL: there is none that has messages."""
    cdef View its
    cdef uint32_t i
    for i in range(t.n):
        its = stream_name(t.at[i])
        if its.n == name.n and memcmp(its.p, name.p, its.n) == 0 and t.at[i] != t.events:
            return t.at[i]
    return NULL


cdef bint may(Session* s, Broker* b, View topic) noexcept nogil:
    """A plugin was asked about the whole filter, and stands above the rules."""
    if s.security == NULL or session_security(s).authorize:
        return 1
    return access_allows(b, s, topic, ACL_READ)


# ---------------------------------------------------------------- asks

cdef ReadRequest* read_request_new(Cursors* k, Stream* stream, View filter) noexcept nogil:
    cdef ReadRequest* a = <ReadRequest*>calloc(1, sizeof(ReadRequest) + filter.n)
    if a == NULL:
        return NULL
    a.stream = stream
    a.filter.p = <uint8_t*>(a + 1)
    a.filter.n = filter.n
    memcpy(<uint8_t*>(a + 1), filter.p, filter.n)
    a.all_next = k.all
    k.all = a
    return a


cdef void read_request_free(Cursors* k, ReadRequest* a) noexcept nogil:
    cdef ReadRequest** at = &k.all
    while at[0] != a:
        at = &at[0].all_next
    at[0] = a.all_next
    free(a.p)
    free(a)


cdef void give(Broker* b, Cursors* k, ReadRequest* a) noexcept nogil:
    if durable_of(b).closed:
        return                   # freed with all others
    free(a.p)                    # who waits holds none
    a.p = NULL
    a.n = a.cap = 0
    memset(&a.loss, 0, sizeof(a.loss))
    a.next = k.read_requests
    k.read_requests = a
    store_extension_wake(&durable_of(b).store)


cdef void moved(ReadRequest** to, ReadRequest** from_) noexcept nogil:
    """All of them, in whatever order."""
    cdef ReadRequest* a = from_[0]
    cdef ReadRequest* following
    while a != NULL:
        following = a.next
        a.next = to[0]
        to[0] = a
        a = following
    from_[0] = NULL


cdef void cursors_hand(Cursors* k) noexcept nogil:
    cdef ReadRequest* a
    moved(&k.read_requests_taken, &k.read_requests)
    moved(&k.back, &k.done)
    if k.some_over:
        k.some_over = 0
        k.over = 1
        a = k.all
        while a != NULL:
            a.over = a.wants_over
            a = a.all_next


cdef void cursors_take(Cursors* k) noexcept nogil:
    cdef ReadRequest** at = &k.waiting
    cdef ReadRequest* a
    cdef ReadRequest* new = NULL
    moved(&k.done, &k.served)
    if k.over:
        moved(&k.waiting, &k.read_requests_taken)      # also one that came with it
        k.over = 0
        while at[0] != NULL:
            a = at[0]
            if a.over:
                at[0] = a.next
                a.next = k.done
                k.done = a
            else:
                at = &a.next
        return
    moved(&new, &k.read_requests_taken)
    while at[0] != NULL:
        at = &at[0].next
    at[0] = new


cdef void ended_free(Cursors* k) noexcept nogil:
    """Of what came back, with nothing that would be told: who subscribes and unsubscribes all the time keeps no memory."""
    cdef ReadRequest** at = &k.back
    cdef ReadRequest* a
    while at[0] != NULL:
        a = at[0]
        if a.cursor == NULL:
            at[0] = a.next
            read_request_free(k, a)
        else:
            at = &a.next


# ---------------------------------------------------------------- subscribing

cdef uint8_t cursor_open(Broker* b, Session* s, const Filter* f, uint8_t options, uint32_t sub_id) noexcept nogil:
    cdef Cursors* k = cursors_of(b)
    cdef View rest, name, place, topic
    cdef Filter inner
    cdef Stream* stream
    cdef Cursor* c
    cdef Cursor** before
    cdef ReadRequest* a
    if k != NULL:
        ended_free(k)
    rest.p = f.filter.p + PREFIX_BYTES
    rest.n = f.filter.n - PREFIX_BYTES
    if f.group.n or not level_take(&rest, &name) or not level_take(&rest, &place):
        return RC_TOPIC_FILTER_INVALID
    topic.p = f.filter.p
    topic.n = <uint32_t>(place.p + place.n - topic.p)
    if not may(s, b, topic):
        return RC_NOT_AUTHORIZED
    stream = stream_named(streams_of(b), name)
    if stream == NULL or filter_parse(rest.p, rest.n, &inner) != 0 or inner.group.n:
        return RC_TOPIC_FILTER_INVALID
    before = cursor_at(k, s, f.filter)
    if k == NULL or (before == NULL and (k.n >= CURSORS_MAX or count_of(k, s) >= CURSORS_OF_SESSION_MAX)):
        return RC_QUOTA_EXCEEDED
    a = read_request_new(k, stream, inner.filter)
    if a == NULL:
        return RC_QUOTA_EXCEEDED
    if not place_take(place, a):
        read_request_free(k, a)
        return RC_TOPIC_FILTER_INVALID
    c = <Cursor*>calloc(1, sizeof(Cursor) + f.filter.n)
    if c == NULL:
        read_request_free(k, a)
        return RC_QUOTA_EXCEEDED
    if before != NULL:
        cursor_end(b, k, before)
    c.session = s
    c.stream = stream
    c.read_request = a
    a.cursor = c
    c.sub_id = sub_id
    c.options = options
    c.whole.p = <uint8_t*>(c + 1)
    c.whole.n = f.filter.n
    memcpy(<uint8_t*>(c + 1), f.filter.p, f.filter.n)
    c.next = k.first
    k.first = c
    k.n += 1
    s.jobs += 1
    give(b, k, a)
    return options & 3


cdef Cursor** cursor_at(Cursors* k, const Session* s, View filter) noexcept nogil:
    cdef Cursor** at
    if k == NULL:
        return NULL
    at = &k.first
    while at[0] != NULL:
        if at[0].session == s and at[0].whole.n == filter.n and memcmp(at[0].whole.p, filter.p, filter.n) == 0:
            return at
        at = &at[0].next
    return NULL


cdef uint32_t count_of(Cursors* k, const Session* s) noexcept nogil:
    cdef Cursor* c = k.first
    cdef uint32_t n = 0
    while c != NULL:
        n += c.session == s
        c = c.next
    return n


cdef void cursor_end(Broker* b, Cursors* k, Cursor** at) noexcept nogil:
    cdef Cursor* c = at[0]
    at[0] = c.next
    k.n -= 1
    c.session.jobs -= 1
    c.read_request.cursor = NULL
    goes_on(b, c)
    if c.brought or c.discarded:
        read_request_free(k, c.read_request)
    elif not durable_of(b).closed:
        c.read_request.wants_over = 1
        k.some_over = 1
        store_extension_wake(&durable_of(b).store)
    free(c)


cdef bint cursor_close(Broker* b, Session* s, View filter) noexcept nogil:
    cdef Cursors* k = cursors_of(b)
    cdef Cursor** at = cursor_at(k, s, filter)
    if at == NULL:
        return 0
    cursor_end(b, k, at)
    return 1


# ---------------------------------------------------------------- delivering

cdef inline uint8_t* property_put(uint8_t* out, const char* key, const uint8_t* value, uint32_t n) noexcept nogil:
    cdef uint32_t key_n = <uint32_t>strlen(key)
    out[0] = 0x26                # a user property [v5 3.3.2.3.7]
    out[1] = 0
    out[2] = <uint8_t>key_n
    memcpy(out + 3, key, key_n)
    out += 3 + key_n
    out[0] = 0
    out[1] = <uint8_t>n
    memcpy(out + 2, value, n)
    return out + 2 + n


cdef bint props_made(Cursors* k, const Cursor* c, const JournalRecord* r, uint32_t shard, View* out) noexcept nogil:
    """Its own, and where it lies, so that the client can go on from there. 0: no memory."""
    cdef char number[24]
    cdef View name = stream_name(c.stream)
    cdef uint8_t* p
    if <uint64_t>r.properties.n + PROPS_MAX > k.props_cap:
        p = <uint8_t*>realloc(k.props, <size_t>r.properties.n + PROPS_MAX)
        if p == NULL:
            return 0
        k.props = p
        k.props_cap = <uint64_t>r.properties.n + PROPS_MAX
    p = k.props
    if r.properties.n:
        memcpy(p, r.properties.p, r.properties.n)
    p = property_put(p + r.properties.n, b"mosq-stream", name.p, name.n)
    p = property_put(p, b"mosq-seq", <const uint8_t*>number, <uint32_t>snprintf(number, sizeof(number), "%llu", <unsigned long long>r.seq))
    if c.stream.journal.n_shards > 1:
        p = property_put(p, b"mosq-shard", <const uint8_t*>number, <uint32_t>snprintf(number, sizeof(number), "%u", shard))
    out.p = k.props
    out.n = <uint32_t>(p - k.props)
    return 1


cdef bint deliver_record(Broker* b, Cursors* k, Cursor* c, const ReadRecord* e) noexcept nogil:
    """0: no memory; it is tried again."""
    cdef uint8_t qos
    cdef Session* s = c.session
    cdef JournalRecord r
    cdef Publication p
    if record_get(<const uint8_t*>(e + 1), e.n, &r) == 0:
        return 1                 # never: it was copied from one
    if not may(s, b, r.topic):
        return 1                 # who may not read it is not told of it, and it is no drop: there may be millions
    if c.options & NO_LOCAL and r.client_id.n == s.id_len and memcmp(r.client_id.p, s.client_id, s.id_len) == 0:
        return 1
    r.seq = e.seq
    publication_init(&p)
    if not props_made(k, c, &r, e.shard, &p.props):
        return 0
    p.topic = r.topic
    p.payload = r.payload
    p.qos = r.flags & JOURNAL_QOS
    p.retain = 1 if r.flags & JOURNAL_RETAIN else 0
    p.durability = DURABILITY_NONE       # it is on the disk, and may be asked for again
    qos = qos_for(b, &p, c.options)
    if qos and publication_store(b, &p) == NULL:
        return 0
    deliver_readable(b, s, &p, qos, p.retain if c.options & RETAIN_AS_PUBLISHED else 0, &c.sub_id, 1 if c.sub_id else 0)
    publication_fini(b, &p)
    return 1


cdef bint must_wait(Broker* b, Session* s) noexcept nogil:
    cdef Client* client = session_client(s)
    return client == NULL or client.conn.flags & (CONN_CLOSED | CONN_CLOSING) or sending_congested(b, s)


cdef inline void goes_on(Broker* b, Cursor* c) noexcept nogil:
    if c.waits:
        b.cursor_bytes -= c.read_request.cap
        c.waits = 0


cdef void discarded(Broker* b, Cursor* c) noexcept nogil:
    """Nothing of what was brought is kept: the ask is back where its first record lies that was not delivered, of each shard."""
    cdef ReadRequest* a = c.read_request
    cdef const ReadRecord* e
    cdef uint64_t seen = 0
    goes_on(b, c)
    while c.at < a.n:
        e = <const ReadRecord*>(a.p + c.at)
        if not seen >> e.shard & 1:
            a.seqs[e.shard] = e.seq
        seen |= <uint64_t>1 << e.shard
        c.at += sizeof(ReadRecord) + e.n
    free(a.p)
    a.p = NULL
    a.n = a.cap = 0
    c.brought = 0
    c.discarded = 1


cdef bint cursors_discard(Broker* b) noexcept nogil:
    cdef Cursors* k = cursors_of(b)
    cdef Cursor* c
    if b.cursor_bytes == 0:
        return 0
    c = k.first
    while c != NULL:
        if c.waits:
            discarded(b, c)
        c = c.next
    return 1


cdef void later(Broker* b, Cursors* k) noexcept nogil:
    if not timer_armed(&k.timer):
        k.timer.kind = TIMER_CURSORS
        wheel_add(&b.wheel, &k.timer, b.reactor.now_ms + AGAIN_MS)


cdef void cursor_go(Broker* b, Cursors* k, Cursor* c) noexcept nogil:
    """What was brought is delivered, as far as there is room; then more is asked for."""
    cdef ReadRequest* a = c.read_request
    cdef const ReadRecord* e
    cdef bint done
    if c.going or not (c.brought or c.discarded):
        return
    goes_on(b, c)                # what is here now is about to become messages: it stands in nobody's way
    while c.discarded or c.at < a.n:
        if must_wait(b, c.session):
            c.waits = c.brought
            b.cursor_bytes += a.cap if c.brought else 0
            return
        if memory_short(b, 0):
            break
        if c.discarded:
            c.discarded = 0
            give(b, k, a)
            return
        e = <const ReadRecord*>(a.p + c.at)
        c.going = 1
        done = deliver_record(b, k, c, e)
        c.going = 0
        if not done:
            break
        c.at += sizeof(ReadRecord) + e.n
    if c.discarded or c.at < a.n:
        discarded(b, c)
        later(b, k)
        return
    c.brought = 0
    give(b, k, a)


cdef void cursors_timer(Broker* b) noexcept nogil:
    """Those that lack memory, or have lacked it while they waited for their clients."""
    cdef Cursors* k = cursors_of(b)
    cdef Cursor* c = k.first if k != NULL else NULL
    while c != NULL:
        if c.discarded:
            cursor_go(b, k, c)
        c = c.next


cdef void losses_logged(Broker* b, const Cursor* c) noexcept nogil:
    cdef const ReadRequest* a = c.read_request
    cdef const char* why
    cdef uint32_t i
    for i in range(min(a.loss.n, <uint32_t>JOURNAL_RANGES_REPORTED)):
        why = "no longer kept" if a.loss.ranges[i].why == LOSS_RETIRED else "damaged or missing"
        log_line(b, LOG_WARNING, snprintf(
            b.log.line, LOG_LINE_MAX, "Warning: stream %s: %llu to %llu of shard %u are %s; client %.*s, which reads it, goes on behind them.",
            &c.stream.name[1], <unsigned long long>a.loss.ranges[i].lo, <unsigned long long>(a.loss.ranges[i].hi - 1), a.loss.ranges[i].shard, why,
            <int>c.session.id_len, <const char*>c.session.client_id))


cdef void error_logged(Broker* b, Cursor* c) noexcept nogil:
    """Once, until it can be read again."""
    cdef char text[128]
    if c.read_request.error and not c.failing:
        error_text(text, sizeof(text), c.read_request.error)
        log_line(b, LOG_WARNING, snprintf(
            b.log.line, LOG_LINE_MAX, "Warning: stream %s cannot be read for client %.*s, which waits: %s", &c.stream.name[1],
            <int>c.session.id_len, <const char*>c.session.client_id, <const char*>text))
    c.failing = c.read_request.error != 0


cdef void cursors_come(Broker* b) noexcept nogil:
    cdef Cursors* k = cursors_of(b)
    cdef ReadRequest* a
    while k != NULL and k.back != NULL:
        a = k.back
        k.back = a.next
        if a.cursor == NULL:
            read_request_free(k, a)
            continue
        a.cursor.brought = 1
        a.cursor.at = 0
        losses_logged(b, a.cursor)
        error_logged(b, a.cursor)
        cursor_go(b, k, a.cursor)


cdef void cursors_unblock(Broker* b, Session* s) noexcept nogil:
    cdef Cursors* k = cursors_of(b)
    cdef Cursor** at
    if k == NULL:
        return
    at = &k.first
    while at[0] != NULL:
        if at[0].session != s:
            at = &at[0].next
        elif s.flags & SESSION_ENDED:
            cursor_end(b, k, at)
        else:
            cursor_go(b, k, at[0])
            at = &at[0].next


cdef void cursors_begin(Streams* t) noexcept nogil:
    """Without memory nobody gets one."""
    cdef Cursors* k = <Cursors*>calloc(1, sizeof(Cursors))
    if k != NULL:
        k.streams = t
        t.cursors = k


cdef void cursors_fini(Broker* b, Streams* t) noexcept nogil:
    cdef Cursors* k = <Cursors*>t.cursors
    cdef Cursor* c
    if k == NULL:
        return
    t.cursors = NULL
    b.cursor_bytes = 0
    wheel_remove(&b.wheel, &k.timer)
    while k.first != NULL:
        c = k.first
        k.first = c.next
        free(c)
    while k.all != NULL:
        read_request_free(k, k.all)
    free(k.props)
    free(k.reader)
    free(k)
