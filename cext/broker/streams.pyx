"""Which message goes into which stream. Knows matches and journals; not files, nor the storage thread.

Invariants: a message is appended once to a stream, however many of its filters match; one that may be refused is taken by all of them or by none. Memory
is bounded: what nobody can be told about (QoS 0, events, the broker's own) is lost, and counted, from half of what may wait on.
Cost of a message in one stream: a copy of its bytes and some 10 ns; of one in none, where there are streams: a look at each group it matches.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free
from libc.string cimport memset, strlen

from cext.base.clock cimport clock_wall_us
from cext.broker.durable cimport Durable, batch_changed, batch_opened, durable_of
from cext.broker.share cimport SHARE_STREAM
from cext.journal.format cimport shard_of
from cext.journal.journal cimport Journal, journal_append, journal_reserve, journal_room
from cext.journal.opening cimport journal_close
from cext.journal.record cimport (
    JOURNAL_DUP, JOURNAL_GAP, JOURNAL_MESSAGE, JOURNAL_RETAIN, JOURNAL_USERNAME, JournalRecord, record_bytes,
)
from cext.topic.index cimport list_entry


cdef inline uint64_t now_us(Streams* t) noexcept nogil:
    """One look at the clock per turn."""
    if t.now_us == 0:
        t.now_us = clock_wall_us()
    return t.now_us


cdef inline uint32_t shard_for(const Journal* j, const View* topic) noexcept nogil:
    return shard_of(j.hardware, topic.p, topic.n, j.n_shards) if j.n_shards > 1 else 0


cdef inline bint is_crowded(Journal* j) noexcept nogil:
    """Half of what may wait waits: the rest is for those who are promised something."""
    cdef uint64_t half = j.options.waiting_max_bytes // 2
    return j.loop.waiting_bytes > half and (not journal_room(j) or j.loop.waiting_bytes > half)


# ---------------------------------------------------------------- messages

cdef Stream* wanting(Streams* t, const Match* m) noexcept nogil:
    """Those that the message is for, each once, linked."""
    cdef Stream* s
    cdef Stream* first = NULL
    cdef uint32_t i
    t.messages += 1
    for i in range(m.n_groups):
        if m.groups[i].strategy != SHARE_STREAM:
            continue
        s = <Stream*>list_entry(&m.groups[i].members, 0).who
        if s.looked != t.messages:
            s.looked = t.messages
            s.hit = first
            first = s
    return first


cdef inline void record_of(Streams* t, const Publication* p, JournalRecord* r) noexcept nogil:
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


cdef bint stream_message(Broker* b, const Publication* p, const Match* m, bint refusable) noexcept nogil:
    cdef Streams* t = streams_of(b)
    cdef Stream* first = wanting(t, m)
    cdef Stream* s = first
    cdef JournalRecord r
    if s == NULL or durable_of(b).closed:
        return 1
    record_of(t, p, &r)
    while refusable and s != NULL:
        if journal_reserve(&s.journal, shard_for(&s.journal, &r.topic), record_bytes(&r), r.time_us) < 0:
            return 0
        s = s.hit
    s = first
    while s != NULL:
        append(b, s, shard_for(&s.journal, &r.topic), &r, refusable)
        s = s.hit
    return 1


cdef void append(Broker* b, Stream* s, uint32_t shard, JournalRecord* r, bint promised) noexcept nogil:
    cdef Durable* t = durable_of(b)
    if (not promised and is_crowded(&s.journal)) or journal_append(&s.journal, shard, r) < 0:
        s.lost += 1
        return
    s.records += 1
    streams_of(b).changed = 1
    if promised:
        batch_changed(t, record_bytes(r))
    else:
        batch_opened(t, record_bytes(r))


# ---------------------------------------------------------------- events

cdef void gap_tell(Broker* b, Stream* s) noexcept nogil:
    """What was lost before is told before anything else."""
    cdef char text[40]
    cdef JournalRecord r
    cdef uint64_t lost = s.lost
    memset(&r, 0, sizeof(r))
    r.time_us = now_us(streams_of(b))
    r.kind = JOURNAL_GAP
    r.payload.p = <const uint8_t*>text
    r.payload.n = <uint32_t>snprintf(text, sizeof(text), "{\"lost\":%llu}", <unsigned long long>(lost - s.lost_told))
    append(b, s, 0, &r, 0)
    if s.lost == lost:
        s.lost_told = lost
    else:
        s.lost = lost                # it is no event itself


cdef void stream_event(Broker* b, uint8_t kind, View topic, View client_id, View username, uint8_t reason, View payload) noexcept nogil:
    cdef Stream* s
    cdef JournalRecord r
    if not streams_want_events(b) or durable_of(b).closed:
        return
    s = streams_of(b).events
    if s.lost != s.lost_told:
        gap_tell(b, s)
    if s.lost != s.lost_told:
        s.lost += 1                  # not before what tells of those before it
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
    append(b, s, 0, &r, 0)


# ---------------------------------------------------------------- the end

cdef void streams_fini(Broker* b) noexcept nogil:
    cdef Streams* t = streams_of(b)
    cdef uint32_t i
    if t == NULL:
        return
    b.streams = NULL
    for i in range(t.n):
        journal_close(&t.at[i].journal)
        free(t.at[i])
    free(t)
