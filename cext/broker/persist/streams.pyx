"""Append messages to streams. This module knows matches and journals. It does not know files, or the storage thread.

Invariants: a message is appended once to a stream, however many of its filters match. A message that may be refused is appended to all its streams
or to none. Memory is bounded: messages that cannot be refused (QoS 0, events, the broker's own) are lost, and counted, once half of the limit
waits.
Cost: for a message in one stream a copy of its bytes and about 10 ns; for a message in no stream, if streams exist, a look at each group that it
matches.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memset, strlen

from cext.base.clock cimport clock_wall_us
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client cimport log_line
from cext.broker.core.durable cimport Durable, ON_RECORD, TROUBLE_LOW, batch_opened, durable_lacks_memory, durable_of
from cext.broker.core.log cimport LOG_ERROR, LOG_LINE_MAX, LOG_NOTICE, LOG_WARNING
from cext.broker.core.publication_state cimport Publication
from cext.broker.core.settings cimport DURABILITY_GROUP, SHARE_STREAM
from cext.broker.persist.pending_acks cimport pending_acks_resume
from cext.journal.format cimport shard_of_topic
from cext.journal.journal cimport Journal, journal_append, journal_release, journal_reserve, journal_room, journal_seal
from cext.journal.record cimport (
    JOURNAL_DUP, JOURNAL_GAP, JOURNAL_MESSAGE, JOURNAL_RETAIN, JOURNAL_USERNAME, JournalRecord, journal_record_bytes,
)
from cext.session.record cimport RECORD_STREAMS, record_stream_put, record_stream_size
from cext.store.store cimport store_append
from cext.topic.index cimport Subscription, list_entry, subscription_matches, subscription_next
from cext.topic.match cimport Match


cdef inline uint64_t now_us(Streams* t) noexcept nogil:
    """Return the wall clock time; the clock is read once per turn."""
    if t.now_us == 0:
        t.now_us = clock_wall_us()
    return t.now_us


cdef inline uint32_t shard_for(const Journal* j, const View* topic) noexcept nogil:
    return shard_of_topic(j.hardware, topic.p, topic.n, j.n_shards) if j.n_shards > 1 else 0


cdef inline bint is_crowded(Journal* j) noexcept nogil:
    """Does half of the limit wait? The other half is for messages with an acknowledgement."""
    cdef uint64_t half = j.options.waiting_max_bytes // 2
    return j.loop.waiting_bytes > half and (not journal_room(j) or j.loop.waiting_bytes > half)


cdef inline bint lacks_room(const Durable* d, Stream* s) noexcept nogil:
    """Return whether records that no client waits for are lost now. The last part of Redis' memory is for its cleaning."""
    return is_crowded(&s.journal) or (d.store.files.deferred and d.trouble & (TROUBLE_LOW | TROUBLE_FULL) != 0)


cdef inline bint is_tight(const Journal* j) noexcept nogil:
    """Must publishers wait? From this limit on they do, so that no message must be refused."""
    return j.loop.waiting_bytes > j.options.waiting_max_bytes // 4 * 3


cdef inline void stream_lose(Streams* t, Stream* s) noexcept nogil:
    s.lost += 1
    t.loses = 1


# ---------------------------------------------------------------- messages

cdef Stream* streams_of_topic(Streams* t, View topic) noexcept nogil:
    """Return the streams that have a filter for the topic, as a list."""
    cdef Stream* first = NULL
    cdef Subscription* filter
    cdef uint32_t i
    t.messages += 1
    for i in range(t.n):
        filter = t.at[i].owner.head
        while filter != NULL and not subscription_matches(filter, topic):
            filter = subscription_next(filter)
        if filter != NULL:
            t.at[i].hit = first
            first = t.at[i]
    return first


cdef Stream* streams_of_match(Streams* t, const Match* m) noexcept nogil:
    """Return the streams of the message, each once, as a list."""
    cdef Stream* s
    cdef Stream* first = NULL
    cdef uint32_t i
    t.messages += 1
    for i in range(m.n_groups):
        if m.groups[i].strategy != SHARE_STREAM:
            continue
        s = <Stream*>list_entry(&m.groups[i].members, 0).subscriber
        if s.looked != t.messages:
            s.looked = t.messages
            s.hit = first
            first = s
    return first


cdef inline void record_from_publication(Streams* t, const Publication* p, JournalRecord* r) noexcept nogil:
    r.time_us = now_us(t)
    r.kind = JOURNAL_MESSAGE
    r.flags = p.qos | (JOURNAL_RETAIN if p.retain else 0) | (JOURNAL_DUP if p.dup else 0)
    r.reason = 0
    r.topic = p.topic
    r.properties = p.props
    r.payload = p.payload
    r.client_id.n = r.username.n = 0
    if p.source == NULL:
        return
    r.client_id.p = p.source.client_id
    r.client_id.n = p.source.id_len
    if p.source.username != NULL:
        r.flags |= JOURNAL_USERNAME
        r.username.p = <const uint8_t*>p.source.username
        r.username.n = <uint32_t>strlen(p.source.username)


cdef void streams_release(Stream* first, const Stream* end, View topic) noexcept nogil:
    while first != end:
        journal_release(&first.journal, shard_for(&first.journal, &topic))
        first = first.hit


cdef bint stream_message(Broker* b, Publication* p, const Match* m, bint refusable) noexcept nogil:
    cdef Streams* t = streams_of(b)
    cdef Stream* first = streams_of_match(t, m) if m != NULL else streams_of_topic(t, p.topic)
    cdef Stream* s = first
    cdef Durable* d = durable_of(b)
    cdef JournalRecord r
    if s == NULL or d.closed:
        return 1
    record_from_publication(t, p, &r)
    while refusable and s != NULL:
        if journal_reserve(&s.journal, shard_for(&s.journal, &r.topic), journal_record_bytes(&r), r.time_us) < 0:
            streams_release(first, s.hit, r.topic)
            return 0
        s = s.hit
    p.journalled = 1
    s = first
    while s != NULL:
        if not stream_append(b, s, shard_for(&s.journal, &r.topic), &r, refusable):
            stream_lose(t, s)
        s = s.hit
    if refusable:
        d.lazy = 0
        d.changes += ON_RECORD
        d.urgent |= (p.durability or d.level) >= DURABILITY_GROUP
    return 1


cdef bint stream_append(Broker* b, Stream* s, uint32_t shard, JournalRecord* r, bint promised) noexcept nogil:
    """Append a record. Return 0 if the stream cannot accept it."""
    cdef Durable* t = durable_of(b)
    if (not promised and lacks_room(t, s)) or journal_append(&s.journal, shard, r) < 0:
        return 0
    s.records += 1
    streams_of(b).changed = 1
    batch_opened(t, journal_record_bytes(r))
    t.tight |= is_tight(&s.journal)
    return 1


# ---------------------------------------------------------------- events

cdef void gap_report(Broker* b, Stream* s, bint last) noexcept nogil:
    """Append the report of lost events, before anything else."""
    cdef char text[40]
    cdef JournalRecord r
    memset(&r, 0, sizeof(r))
    r.time_us = now_us(streams_of(b))
    r.kind = JOURNAL_GAP
    r.payload.p = <const uint8_t*>text
    r.payload.n = <uint32_t>snprintf(text, sizeof(text), "{\"lost\":%llu}", <unsigned long long>(s.lost - s.lost_reported))
    if stream_append(b, s, 0, &r, last):
        s.lost_reported = s.lost


cdef void stream_event(Broker* b, uint8_t kind, View topic, View client_id, View username, uint8_t reason, View payload) noexcept nogil:
    cdef Stream* s
    cdef JournalRecord r
    if not streams_want_events(b) or durable_of(b).closed:
        return
    s = streams_of(b).events
    if s.lost != s.lost_reported:
        gap_report(b, s, 0)
    if s.lost != s.lost_reported:
        stream_lose(streams_of(b), s)       # not before the record that reports the earlier losses
        return
    r.time_us = now_us(streams_of(b))
    r.kind = kind
    r.flags = JOURNAL_USERNAME if username.p != NULL else 0
    r.reason = reason
    r.topic = topic
    r.client_id = client_id
    r.username = username
    r.properties.n = 0
    r.payload = payload
    if not stream_append(b, s, 0, &r, 0):
        stream_lose(streams_of(b), s)


cdef bint streams_events_fit(Broker* b) noexcept nogil:
    return not lacks_room(durable_of(b), streams_of(b).events)


cdef void streams_events_lose(Broker* b, uint64_t n) noexcept nogil:
    streams_of(b).events.lost += n


# ---------------------------------------------------------------- with the batch

cdef bint streams_recorded(Broker* b) noexcept nogil:
    cdef Streams* t = streams_of(b)
    cdef Journal* j
    cdef uint8_t* out
    cdef uint64_t lsn, bytes = 0
    cdef uint32_t i
    if t == NULL or not t.changed:
        return 1
    for i in range(t.n):
        bytes += record_stream_size(stream_name(t.at[i]), t.at[i].journal.n_shards)
    out = store_append(&durable_of(b).store, RECORD_STREAMS, 0, <uint32_t>bytes, &lsn)
    if out == NULL:
        return 0
    for i in range(t.n):
        j = &t.at[i].journal
        out = record_stream_put(out, stream_name(t.at[i]), j.loop.next_seq, j.n_shards)
    t.changed = 0
    return 1


cdef void streams_again(Broker* b) noexcept nogil:
    """Record the positions at once: the copies must be in a batch before the old segment goes. Records that are appended until that batch is sealed
    are covered by it."""
    streams_of(b).changed = 1
    if streams_recorded(b):
        batch_opened(durable_of(b), 0)
    else:
        durable_lacks_memory(b)


cdef void streams_seal(Broker* b) noexcept nogil:
    cdef Streams* t = streams_of(b)
    cdef uint32_t i
    for i in range(t.n):
        journal_seal(&t.at[i].journal)


# ---------------------------------------------------------------- losses and errors

cdef void stream_log_trouble(Broker* b, Stream* s) noexcept nogil:
    """Log losses and errors of the storage thread: once, until they are over."""
    if s.stats.errors != s.errors_logged and (s.stats.full or s.stats.failing):
        log_line(b, LOG_ERROR, snprintf(b.log.line, LOG_LINE_MAX, "Error: stream %s: %s", <const char*>&s.name[1], <const char*>s.why))
    s.errors_logged = s.stats.errors
    if s.stats.forced_records != s.forced_logged:
        log_line(b, LOG_WARNING, snprintf(b.log.line, LOG_LINE_MAX,
                                          "Warning: stream %s: its retain_bytes took %llu records that a consumer had not read.",
                                          <const char*>&s.name[1], <unsigned long long>(s.stats.forced_records - s.forced_logged)))
        s.forced_logged = s.stats.forced_records
    if s.loses and not lacks_room(durable_of(b), s):
        s.loses = 0
        log_line(b, LOG_NOTICE, snprintf(b.log.line, LOG_LINE_MAX, "Stream %s has room again: %llu records are not in it.", <const char*>&s.name[1],
                                         <unsigned long long>(s.lost - s.lost_logged)))
        s.lost_logged = s.lost
    elif s.lost != s.lost_logged and not s.loses:
        s.loses = 1
        log_line(b, LOG_WARNING, snprintf(b.log.line, LOG_LINE_MAX, "Warning: stream %s: %s; messages for which no client waits are not journalled.",
                                          <const char*>&s.name[1], <const char*>b"Redis is nearly full" if durable_of(b).trouble & TROUBLE_LOW
                                          else <const char*>b"the disk does not keep up"))


cdef void streams_news(Broker* b) noexcept nogil:
    cdef Streams* t = streams_of(b)
    cdef Durable* d = durable_of(b)
    cdef bint was = d.tight
    cdef uint32_t i
    d.tight = 0
    for i in range(t.n):
        journal_room(&t.at[i].journal)       # blocks that the storage thread returned are free
        d.tight |= is_tight(&t.at[i].journal)
        stream_log_trouble(b, t.at[i])
    if was and not d.tight:
        pending_acks_resume(b)


cdef void streams_turn(Broker* b) noexcept nogil:
    cdef Streams* t = streams_of(b)
    cdef Stream* s = t.events
    cdef uint32_t i
    t.now_us = 0
    if not t.loses:
        return
    t.loses = 0
    for i in range(t.n):
        stream_log_trouble(b, t.at[i])
        t.loses |= t.at[i].loses
    if s != NULL and s.lost != s.lost_reported:
        gap_report(b, s, 0)
        t.now_us = 0


cdef void streams_end(Broker* b) noexcept nogil:
    cdef Stream* s = streams_of(b).events
    if s != NULL and s.lost != s.lost_reported:
        gap_report(b, s, 1)
