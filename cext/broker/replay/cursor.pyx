"""Send the records of a stream to its subscribers: the loop's side. This module knows subscriptions, sessions and records that
were read. It does not know files.

Invariants: the records of a shard are delivered in order, each once. A record is skipped only with a report: a log line, if it is
no longer kept or damaged. A cursor never uses the live path, so there is no seam between history and new records. Each cursor
holds at most READ_REQUEST_BYTES and one record; memory_limit counts them. When memory is short they are discarded and read again
later, so the cursor waits and nothing is dropped. A ReadRequest is either with the storage thread or here, never both.
The rights are checked again: the right to `$stream/NAME/PLACE` when the rules or the session's client are other ones than before, and the right to each
record's topic always. A cursor whose session has lost the right ends, with a line in the log.
Cost: none for other clients. A message costs its copy out of the file and a delivery.
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
from cext.broker.core.log cimport LOG_LINE_MAX, LOG_NOTICE, LOG_WARNING, log_wanted
from cext.broker.core.publication_state cimport Publication
from cext.broker.core.session_refs cimport session_client, session_security
from cext.broker.core.settings cimport DURABILITY_NONE
from cext.broker.persist.events cimport event_unsubscribed
from cext.broker.persist.publication cimport memory_short, publication_fini, publication_init, publication_store
from cext.broker.persist.streams cimport Stream, Streams, stream_name, streams_of
from cext.broker.replay.cursor_place cimport level_take, place_take
from cext.broker.replay.cursor_state cimport (
    CURSORS_MAX, CURSORS_OF_SESSION_MAX, Cursor, Cursors, PART_SHARDS, PartPlace, ReadPlace, ReadRecord, ReadRequest,
)
from cext.broker.routing.deliver cimport deliver_readable
from cext.broker.routing.delivery_rules cimport NO_LOCAL, RETAIN_AS_PUBLISHED, qos_for
from cext.broker.routing.retain cimport sending_congested
from cext.broker.rules.acl cimport ACL_READ
from cext.codec.reason cimport RC_NOT_AUTHORIZED, RC_QUOTA_EXCEEDED, RC_TOPIC_FILTER_INVALID
from cext.journal.journal cimport JOURNAL_RANGES_REPORTED, LOSS_RETIRED
from cext.journal.record cimport JOURNAL_QOS, JOURNAL_RETAIN, JournalRecord, journal_record_get
from cext.net.conn_state cimport CONN_CLOSED, CONN_CLOSING
from cext.session.session cimport SESSION_ENDED, Session
from cext.store.file cimport error_text
from cext.store.store cimport store_extension_wake
from cext.topic.name cimport Filter, filter_parse

cdef enum:
    PREFIX_BYTES = 8            # $stream/
    PROPS_MAX = 160             # bytes for the properties that are appended to the message's own
    AGAIN_MS = 250              # pause before the next try after memory was short

cdef const char* PREFIX = b"$stream/"


cdef inline Cursors* cursors_of(Broker* b) noexcept nogil:
    return <Cursors*>streams_of(b).cursors if b.streams != NULL else NULL


# ---------------------------------------------------------------- the stream of a filter

cdef bint cursor_wanted(Broker* b, View filter) noexcept nogil:
    return b.streams != NULL and filter.n >= PREFIX_BYTES and memcmp(filter.p, PREFIX, PREFIX_BYTES) == 0


cdef Stream* stream_named(Streams* t, View name) noexcept nogil:
    """Return the stream with this name; NULL = there is none that has parts."""
    cdef View candidate
    cdef uint32_t i
    for i in range(t.n):
        candidate = stream_name(t.at[i])
        if candidate.n == name.n and memcmp(candidate.p, name.p, candidate.n) == 0 and t.at[i].n_parts:
            return t.at[i]
    return NULL


cdef bint may_read_record(Session* s, Broker* b, View topic) noexcept nogil:
    """Return whether the session may read this topic. A plugin has decided about the whole filter, and its verdict stands above
    the rules."""
    if s.security == NULL or session_security(s).authorize:
        return 1
    return access_allows(b, s, topic, ACL_READ)


# ---------------------------------------------------------------- read requests

cdef ReadRequest* read_request_new(Cursors* k, Stream* stream, View filter) noexcept nogil:
    cdef size_t n = sizeof(ReadRequest) + stream.n_parts * sizeof(PartPlace)
    cdef ReadRequest* request = <ReadRequest*>calloc(1, n + filter.n)
    if request == NULL:
        return NULL
    request.stream = stream
    request.parts = <PartPlace*>(request + 1)
    request.filter.p = <uint8_t*>request + n
    request.filter.n = filter.n
    memcpy(<uint8_t*>request + n, filter.p, filter.n)
    request.all_next = k.all
    k.all = request
    return request


cdef void read_request_free(Cursors* k, ReadRequest* request) noexcept nogil:
    cdef ReadRequest** at = &k.all
    while at[0] != request:
        at = &at[0].all_next
    at[0] = request.all_next
    free(request.p)
    free(request)


cdef void read_request_send(Broker* b, Cursors* k, ReadRequest* request) noexcept nogil:
    if durable_of(b).closed:
        return                   # it is freed with all others
    free(request.p)                    # a waiting request holds no memory
    request.p = NULL
    request.n = request.cap = 0
    memset(&request.loss, 0, sizeof(request.loss))
    request.next = k.read_requests
    k.read_requests = request
    store_extension_wake(&durable_of(b).store)


cdef void move_requests(ReadRequest** to, ReadRequest** from_) noexcept nogil:
    """Move all requests of a list to another list, in any order."""
    cdef ReadRequest* request = from_[0]
    cdef ReadRequest* following
    while request != NULL:
        following = request.next
        request.next = to[0]
        to[0] = request
        request = following
    from_[0] = NULL


cdef void cursors_send_requests(Cursors* k) noexcept nogil:
    cdef ReadRequest* request
    move_requests(&k.read_requests_taken, &k.read_requests)
    move_requests(&k.back, &k.done)
    if k.any_cancelled:
        k.any_cancelled = 0
        k.cancelled = 1
        request = k.all
        while request != NULL:
            request.cancelled = request.cancel
            request = request.all_next


cdef void cursors_take_requests(Cursors* k) noexcept nogil:
    cdef ReadRequest** at = &k.waiting
    cdef ReadRequest* request
    cdef ReadRequest* new = NULL
    move_requests(&k.done, &k.served)
    if k.cancelled:
        move_requests(&k.waiting, &k.read_requests_taken)      # also a request that came together with its cancellation
        k.cancelled = 0
        while at[0] != NULL:
            request = at[0]
            if request.cancelled:
                at[0] = request.next
                request.next = k.done
                k.done = request
            else:
                at = &request.next
        return
    move_requests(&new, &k.read_requests_taken)
    while at[0] != NULL:
        at = &at[0].next
    at[0] = new


cdef void free_ended_requests(Cursors* k) noexcept nogil:
    """Free requests that returned and whose cursor has ended. So a client that subscribes and unsubscribes all the time uses no
    memory."""
    cdef ReadRequest** at = &k.back
    cdef ReadRequest* request
    while at[0] != NULL:
        request = at[0]
        if request.cursor == NULL:
            at[0] = request.next
            read_request_free(k, request)
        else:
            at = &request.next


# ---------------------------------------------------------------- subscribe

cdef uint8_t cursor_open(Broker* b, Session* s, const Filter* f, uint8_t options, uint32_t sub_id) noexcept nogil:
    cdef Cursors* k = cursors_of(b)
    cdef View rest, name, place, topic
    cdef Filter inner
    cdef Stream* stream
    cdef Cursor* c
    cdef Cursor** before
    cdef ReadRequest* request
    if k != NULL:
        free_ended_requests(k)
    rest.p = f.filter.p + PREFIX_BYTES
    rest.n = f.filter.n - PREFIX_BYTES
    if f.group.n or not level_take(&rest, &name) or not level_take(&rest, &place):
        return RC_TOPIC_FILTER_INVALID
    topic.p = f.filter.p
    topic.n = <uint32_t>(place.p + place.n - topic.p)
    if not may_read_record(s, b, topic):
        return RC_NOT_AUTHORIZED
    stream = stream_named(streams_of(b), name)
    if stream == NULL or filter_parse(rest.p, rest.n, &inner) != 0 or inner.group.n:
        return RC_TOPIC_FILTER_INVALID
    before = cursor_at(k, s, f.filter)
    if k == NULL or (before == NULL and (k.n >= CURSORS_MAX or cursors_of_session(k, s) >= CURSORS_OF_SESSION_MAX)):
        return RC_QUOTA_EXCEEDED
    request = read_request_new(k, stream, inner.filter)
    if request == NULL:
        return RC_QUOTA_EXCEEDED
    if not place_take(place, request):
        read_request_free(k, request)
        return RC_TOPIC_FILTER_INVALID
    c = <Cursor*>calloc(1, sizeof(Cursor) + f.filter.n)
    if c == NULL:
        read_request_free(k, request)
        return RC_QUOTA_EXCEEDED
    if before != NULL:
        cursor_end(b, k, before)
    c.session = s
    c.stream = stream
    c.read_request = request
    request.cursor = c
    c.sub_id = sub_id
    c.options = options
    c.access_epoch = b.access_epoch
    c.access_turn = s.access_turn
    c.right_n = topic.n
    c.filter.p = <uint8_t*>(c + 1)
    c.filter.n = f.filter.n
    memcpy(<uint8_t*>(c + 1), f.filter.p, f.filter.n)
    c.next = k.first
    k.first = c
    k.n += 1
    s.jobs += 1
    read_request_send(b, k, request)
    return options & 3


cdef Cursor** cursor_at(Cursors* k, const Session* s, View filter) noexcept nogil:
    cdef Cursor** at
    if k == NULL:
        return NULL
    at = &k.first
    while at[0] != NULL:
        if at[0].session == s and at[0].filter.n == filter.n and memcmp(at[0].filter.p, filter.p, filter.n) == 0:
            return at
        at = &at[0].next
    return NULL


cdef uint32_t cursors_of_session(Cursors* k, const Session* s) noexcept nogil:
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
    uncount_waiting(b, c)
    if c.arrived or c.discarded:
        read_request_free(k, c.read_request)
    elif not durable_of(b).closed:
        c.read_request.cancel = 1
        k.any_cancelled = 1
        store_extension_wake(&durable_of(b).store)
    free(c)


cdef bint cursor_close(Broker* b, Session* s, View filter) noexcept nogil:
    cdef Cursors* k = cursors_of(b)
    cdef Cursor** at = cursor_at(k, s, filter)
    if at == NULL:
        return 0
    cursor_end(b, k, at)
    return 1


# ---------------------------------------------------------------- deliver

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


cdef bint make_props(Cursors* k, const Cursor* c, const JournalRecord* r, uint32_t shard, View* out) noexcept nogil:
    """Append the record's place in the stream to the message's properties, so that the client can continue from there. Returns 0
    if there is no memory."""
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
    p = property_put(p, b"mosq-seq", <const uint8_t*>number,
                     <uint32_t>snprintf(number, sizeof(number), "%llu", <unsigned long long>r.seq))
    if c.stream.journal.n_shards > 1 or c.stream.n_parts > 1:
        shard = c.stream.parts[shard // PART_SHARDS].number * PART_SHARDS + shard % PART_SHARDS
        p = property_put(p, b"mosq-shard", <const uint8_t*>number, <uint32_t>snprintf(number, sizeof(number), "%u", shard))
    out.p = k.props
    out.n = <uint32_t>(p - k.props)
    return 1


cdef bint deliver_record(Broker* b, Cursors* k, Cursor* c, const ReadRecord* e) noexcept nogil:
    """Deliver one record. Returns 0 if there is no memory; the caller tries again."""
    cdef uint8_t qos
    cdef Session* s = c.session
    cdef JournalRecord r
    cdef Publication p
    if journal_record_get(<const uint8_t*>(e + 1), e.n, &r) == 0:
        return 1                 # never: it was copied from a record
    if not may_read_record(s, b, r.topic):
        return 1                 # no log line and no drop is counted: there may be millions
    if c.options & NO_LOCAL and r.client_id.n == s.id_len and memcmp(r.client_id.p, s.client_id, s.id_len) == 0:
        return 1
    r.seq = e.seq
    publication_init(&p)
    if not make_props(k, c, &r, e.shard, &p.props):
        return 0
    p.topic = r.topic
    p.payload = r.payload
    p.qos = r.flags & JOURNAL_QOS
    p.retain = 1 if r.flags & JOURNAL_RETAIN else 0
    p.durability = DURABILITY_NONE       # the record is on the disk and can be read again
    qos = qos_for(b, &p, c.options)
    if qos and publication_store(b, &p) == NULL:
        return 0
    deliver_readable(b, s, &p, qos, p.retain if c.options & RETAIN_AS_PUBLISHED else 0, &c.sub_id, 1 if c.sub_id else 0)
    publication_fini(b, &p)
    return 1


cdef bint session_must_wait(Broker* b, Session* s) noexcept nogil:
    cdef Client* client = session_client(s)
    return client == NULL or client.conn.flags & (CONN_CLOSED | CONN_CLOSING) or sending_congested(b, s)


cdef inline void uncount_waiting(Broker* b, Cursor* c) noexcept nogil:
    if c.waiting_for_client:
        b.cursor_bytes -= c.read_request.cap
        c.waiting_for_client = 0


cdef void discard_records(Broker* b, Cursor* c) noexcept nogil:
    """Discard the records that the request has read. The request then points to the first undelivered record of each shard."""
    cdef ReadRequest* request = c.read_request
    cdef const ReadRecord* e
    cdef PartPlace* part
    cdef uint32_t i, shard
    uncount_waiting(b, c)
    for i in range(c.stream.n_parts):
        request.parts[i].seen = 0
    while c.at < request.n:
        e = <const ReadRecord*>(request.p + c.at)
        part = &request.parts[e.shard // PART_SHARDS]
        shard = e.shard % PART_SHARDS
        if not part.seen >> shard & 1:
            part.where.seqs[shard] = e.seq
        part.seen |= <uint64_t>1 << shard
        c.at += sizeof(ReadRecord) + e.n
    free(request.p)
    request.p = NULL
    request.n = request.cap = 0
    c.arrived = 0
    c.discarded = 1


cdef bint cursors_discard(Broker* b) noexcept nogil:
    cdef Cursors* k = cursors_of(b)
    cdef Cursor* c
    if b.cursor_bytes == 0:
        return 0
    c = k.first
    while c != NULL:
        if c.waiting_for_client:
            discard_records(b, c)
        c = c.next
    return 1


cdef void retry_later(Broker* b, Cursors* k) noexcept nogil:
    if not timer_armed(&k.timer):
        k.timer.kind = TIMER_CURSORS
        wheel_add(&b.wheel, &k.timer, b.reactor.now_ms + AGAIN_MS)


cdef bint has_lost_right(Broker* b, Cursor* c) noexcept nogil:
    """Return whether the session may no longer read the stream, because the rules or its client are other ones than at the last check."""
    cdef View topic
    if c.access_epoch == b.access_epoch and c.access_turn == c.session.access_turn:
        return 0
    c.access_epoch = b.access_epoch
    c.access_turn = c.session.access_turn
    topic.p = c.filter.p
    topic.n = c.right_n
    return not may_read_record(c.session, b, topic)


cdef void cursor_revoke(Broker* b, Cursors* k, Cursor* c) noexcept nogil:
    if log_wanted(&b.log, LOG_NOTICE):
        log_line(b, LOG_NOTICE, snprintf(
            b.log.line, LOG_LINE_MAX, "Client %.*s gets no more records of %.*s: the access rules do not allow it any more.",
            <int>c.session.id_len, <const char*>c.session.client_id, <int>c.filter.n, <const char*>c.filter.p))
    event_unsubscribed(b, c.session, c.filter)
    cursor_close(b, c.session, c.filter)


cdef void cursor_continue(Broker* b, Cursors* k, Cursor* c) noexcept nogil:
    """Deliver the records that were read while the session has room; then request more. The cursor ends here if its session has lost the right."""
    cdef ReadRequest* request = c.read_request
    cdef const ReadRecord* e
    cdef bint done
    if c.delivering or not (c.arrived or c.discarded):
        return
    if has_lost_right(b, c):
        cursor_revoke(b, k, c)
        return
    uncount_waiting(b, c)                # the records here are about to become messages: they do not count as waiting
    while c.discarded or c.at < request.n:
        if session_must_wait(b, c.session):
            c.waiting_for_client = c.arrived
            b.cursor_bytes += request.cap if c.arrived else 0
            return
        if memory_short(b, 0):
            break
        if c.discarded:
            c.discarded = 0
            read_request_send(b, k, request)
            return
        e = <const ReadRecord*>(request.p + c.at)
        c.delivering = 1
        done = deliver_record(b, k, c, e)
        c.delivering = 0
        if not done:
            break
        c.at += sizeof(ReadRecord) + e.n
    if c.discarded or c.at < request.n:
        discard_records(b, c)
        retry_later(b, k)
        return
    c.arrived = 0
    read_request_send(b, k, request)


cdef void cursors_timer(Broker* b) noexcept nogil:
    """Continue the cursors that lack memory, or lacked it while they waited for their clients."""
    cdef Cursors* k = cursors_of(b)
    cdef Cursor* c = k.first if k != NULL else NULL
    cdef Cursor* following
    while c != NULL:
        following = c.next
        if c.discarded:
            cursor_continue(b, k, c)
        c = following


cdef void log_losses(Broker* b, const Cursor* c) noexcept nogil:
    cdef const ReadRequest* request = c.read_request
    cdef const char* reason
    cdef uint32_t i
    for i in range(min(request.loss.n, <uint32_t>JOURNAL_RANGES_REPORTED)):
        reason = "no longer kept" if request.loss.ranges[i].why == LOSS_RETIRED else "damaged or missing"
        log_line(b, LOG_WARNING, snprintf(
            b.log.line, LOG_LINE_MAX,
            "Warning: stream %s: records %llu to %llu of shard %u are %s. Client %.*s continues after them.",
            &c.stream.name[1], <unsigned long long>request.loss.ranges[i].lo,
            <unsigned long long>(request.loss.ranges[i].hi - 1), request.loss.ranges[i].shard, reason,
            <int>c.session.id_len, <const char*>c.session.client_id))


cdef void log_read_error(Broker* b, Cursor* c) noexcept nogil:
    """Log a read error once, until the stream can be read again."""
    cdef char text[128]
    if c.read_request.error and not c.failing:
        error_text(text, sizeof(text), c.read_request.error)
        log_line(b, LOG_WARNING, snprintf(
            b.log.line, LOG_LINE_MAX, "Warning: stream %s cannot be read for client %.*s, which waits: %s", &c.stream.name[1],
            <int>c.session.id_len, <const char*>c.session.client_id, <const char*>text))
    c.failing = c.read_request.error != 0


cdef void cursors_receive(Broker* b) noexcept nogil:
    cdef Cursors* k = cursors_of(b)
    cdef ReadRequest* request
    while k != NULL and k.back != NULL:
        request = k.back
        k.back = request.next
        if request.cursor == NULL:
            read_request_free(k, request)
            continue
        request.cursor.arrived = 1
        request.cursor.at = 0
        log_losses(b, request.cursor)
        log_read_error(b, request.cursor)
        cursor_continue(b, k, request.cursor)


cdef void cursors_unblock(Broker* b, Session* s) noexcept nogil:
    cdef Cursors* k = cursors_of(b)
    cdef Cursor** at
    cdef Cursor* c
    if k == NULL:
        return
    at = &k.first
    while at[0] != NULL:
        c = at[0]
        if c.session == s and s.flags & SESSION_ENDED:
            cursor_end(b, k, at)
            continue
        if c.session == s:
            cursor_continue(b, k, c)
        if at[0] == c:           # it did not end
            at = &c.next


# ---------------------------------------------------------------- while another process may have the files

cdef void cursors_pause(Broker* b) noexcept nogil:
    """Discard all records, so that each request is here and only has its place. The storage thread has ended, so all lists are the loop's."""
    cdef Cursors* k = cursors_of(b)
    cdef Cursor* c = k.first if k != NULL else NULL
    cdef ReadRequest* request
    cdef ReadRequest* following
    if k == NULL:
        return
    k.read_requests = k.back = k.read_requests_taken = k.done = k.waiting = k.served = NULL
    k.any_cancelled = k.cancelled = 0
    while c != NULL:
        if not c.arrived and not c.discarded:
            c.at = 0             # what the request has read has not arrived yet; usually it has read nothing
        if not c.discarded:
            discard_records(b, c)
        c = c.next
    request = k.all
    while request != NULL:
        following = request.all_next
        if request.cursor == NULL:
            read_request_free(k, request)
        request = following


cdef Cursor* cursor_next(Broker* b, const Session* s, const Cursor* before) noexcept nogil:
    cdef Cursors* k = cursors_of(b)
    cdef Cursor* c = before.next if before != NULL else k.first if k != NULL else NULL
    while c != NULL and c.session != s:
        c = c.next
    return c


cdef void cursor_restore(Broker* b, Session* s, const Filter* f, uint8_t options, uint32_t sub_id, const ReadPlace* place) noexcept nogil:
    """Subscribe before the loop begins, so the request is still here. The right is checked again, and the stream may be missing now."""
    if cursor_open(b, s, f, options, sub_id) <= 2:
        cursors_of(b).first.read_request.parts[0].where = place[0]
    else:
        log_line(b, LOG_NOTICE, snprintf(
            b.log.line, LOG_LINE_MAX, "Client %.*s gets no more records of %.*s: the configuration or the access rules do not allow it any more.",
            <int>s.id_len, <const char*>s.client_id, <int>f.filter.n, <const char*>f.filter.p))


cdef void cursor_restore_part(Broker* b, const Session* s, View filter, uint32_t number, const ReadPlace* place) noexcept nogil:
    cdef Cursor** at = cursor_at(cursors_of(b), s, filter)
    cdef Cursor* c
    cdef uint32_t i
    if at == NULL:
        return                   # cursor_restore has refused it
    c = at[0]
    for i in range(c.stream.n_parts):
        if c.stream.parts[i].number == number:
            c.read_request.parts[i].where = place[0]


cdef void cursors_begin(Streams* t) noexcept nogil:
    """Allocate the cursors. Without memory, no client can subscribe to a stream."""
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
