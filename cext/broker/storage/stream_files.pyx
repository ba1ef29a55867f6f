"""Write the journals of streams as an extension of the store: what the storage thread does with them, and when. This module knows
journals and time. It does not know the messages in them or how batches are made.

    loop:     streams_seal -> store_seal [lock: hand]
    storage:  [lock: take] -> write -> the batch -> [sync, if requested -> the store's] ...
              once a second tend: sync, mark, retention

Invariant: a mark moves only while the batch of all taken records is written, so readers never see a record that a start would
drop. A stream that cannot be written stops the store's batches: no message is acknowledged that is missing in it.
"""

from libc.errno cimport EEXIST, EIO, ENOSPC
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, strlen

from cext.base.clock cimport clock_monotonic_us, clock_wall_us
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.durable cimport Durable, batch_opened, durable_of
from cext.broker.core.settings cimport SHARE_STREAM
from cext.broker.persist.streams cimport STREAM_NAME_MAX, Stream, Streams, stream_name, streams_of
from cext.broker.replay.cursor cimport cursors_begin, cursors_fini, cursors_pause, cursors_send_requests, cursors_take_requests, cursors_timer
from cext.broker.replay.cursor_state cimport Cursors
from cext.broker.replay.cursor_reading cimport cursors_serve
from cext.broker.replay.parts cimport parts_announce, parts_free
from cext.journal.format cimport JOURNAL_NODE_MAX
from cext.journal.journal cimport (
    JOURNAL_PATH_MAX, JOURNAL_WHY_MAX, Journal, JournalFound, JournalOptions, JournalStats, journal_back, journal_hand,
)
from cext.journal.opening cimport journal_close, journal_open
from cext.journal.retain cimport journal_retain
from cext.journal.writer cimport journal_mark, journal_sync, journal_take, journal_write
from cext.session.record cimport record_stream_find
from cext.store.file cimport file_error_text
from cext.topic.index cimport Group, index_add, index_group
from cext.topic.name cimport Filter, filter_parse

cdef enum:
    MARK_PACE_US = 1000000           # interval between two marks, and between two syncs that no batch requires
    SOON_US = 100000            # delay after which readers see the first record after a pause
    WRITE_AGAIN_US = 250000           # pause after an error
    IDLE_US = 10000000          # interval between two checks for expired records


# ---------------------------------------------------------------- the extension

cdef void extension_hand(void* ctx, bint sealed) noexcept nogil:
    cdef Streams* t = <Streams*>ctx
    cdef Stream* s
    cdef uint32_t i
    for i in range(t.n):
        s = t.at[i]
        if sealed:
            journal_hand(&s.journal)
        else:
            journal_back(&s.journal)
        if s.stats.errors != s.journal.shared.stats.errors:
            memcpy(s.why, s.journal.shared.why, JOURNAL_WHY_MAX)
        s.stats = s.journal.shared.stats
    if t.cursors != NULL:
        cursors_send_requests(<Cursors*>t.cursors)


cdef void extension_take(void* ctx) noexcept nogil:
    cdef Streams* t = <Streams*>ctx
    cdef uint32_t i
    for i in range(t.n):
        journal_take(&t.at[i].journal)
    if t.cursors != NULL:
        cursors_take_requests(<Cursors*>t.cursors)


cdef int write_error_of(const Journal* j, char* why, size_t why_n) noexcept nogil:
    snprintf(why, why_n, "%s", <const char*>j.writer.why)
    return -ENOSPC if j.writer.stats.full else -EIO


cdef int extension_write(void* ctx, char* why, size_t why_n) noexcept nogil:
    cdef Streams* t = <Streams*>ctx
    cdef Journal* j
    cdef uint64_t records, now, due, wall = 0
    cdef uint32_t i
    cdef int result = 0
    cdef bint wrote = 0
    for i in range(t.n):
        j = &t.at[i].journal
        records = j.writer.stats.records
        wall = wall or clock_wall_us()
        if journal_write(j, wall) < 0:
            result = write_error_of(j, why, why_n)
        wrote |= records != j.writer.stats.records
    if wrote and not t.writer.dirty:
        now = clock_monotonic_us()
        due = max(t.writer.marked_us + MARK_PACE_US, now + SOON_US)
        t.writer.dirty = 1
        t.writer.due_us = min(t.writer.due_us, due) if t.writer.due_us else due
    return result


cdef int extension_sync(void* ctx, char* why, size_t why_n) noexcept nogil:
    cdef Streams* t = <Streams*>ctx
    cdef uint32_t i
    cdef int result = 0
    for i in range(t.n):
        if journal_sync(&t.at[i].journal) < 0:
            result = write_error_of(&t.at[i].journal, why, why_n)
    return result


cdef bint marks_move(Streams* t) noexcept nogil:
    """Sync all journals and move their marks. Returns 0 if some failed."""
    cdef uint64_t now = clock_wall_us()
    cdef uint32_t i
    cdef bint all = 1
    for i in range(t.n):
        if journal_sync(&t.at[i].journal) < 0 or journal_mark(&t.at[i].journal, now) < 0:
            all = 0
    return all


cdef bint delete_expired(Streams* t) noexcept nogil:
    """Delete expired segments. Returns 0 if some failed."""
    cdef uint64_t now = clock_wall_us()
    cdef uint32_t i
    cdef bint all = 1
    for i in range(t.n):
        if t.at[i].journal.options.retain_age_us or t.at[i].journal.options.retain_bytes:
            all = journal_retain(&t.at[i].journal, now) == 0 and all
    return all


cdef uint64_t extension_tend(void* ctx, bint committed, bint last, bint* changed) noexcept nogil:
    cdef Streams* t = <Streams*>ctx
    cdef uint64_t due = journals_tend(t, committed, last, changed)
    cdef uint64_t serve = cursors_serve(<Cursors*>t.cursors, committed, changed) if t.cursors != NULL and not last else 0
    return min(due, serve) if due and serve else due or serve


cdef uint64_t journals_tend(Streams* t, bint committed, bint last, bint* changed) noexcept nogil:
    cdef uint64_t now = clock_monotonic_us()
    cdef bint complete
    if not last and (t.writer.due_us == 0 or now < t.writer.due_us):
        return t.writer.due_us
    complete = committed and marks_move(t)
    if not last:
        complete = delete_expired(t) and complete          # also on a full disk, because it may make room
    t.writer.marked_us = now
    t.writer.dirty = not complete
    t.writer.due_us = now + WRITE_AGAIN_US if not complete else now + IDLE_US if t.writer.retains else 0
    changed[0] = 1                              # blocks have returned, and errors are to be reported
    return t.writer.due_us


# ---------------------------------------------------------------- open and close

cdef int stream_path(Broker* b, const char* name, char* path) noexcept nogil:
    """Write the path of a stream's folder; `name` begins with a slash. Returns -1 if it is too long."""
    return 0 if snprintf(path, JOURNAL_PATH_MAX, "%s/streams%s", durable_of(b).store.dir, name) < JOURNAL_PATH_MAX else -1


cdef int streams_begin(Broker* b, char* why) noexcept nogil:
    cdef Durable* d = durable_of(b)
    cdef char path[JOURNAL_PATH_MAX]
    cdef char text[384]
    cdef int result
    b.streams = calloc(1, sizeof(Streams))
    if b.streams == NULL:
        snprintf(why, STREAM_WHY_MAX, "No memory for streams")
        return -1
    if stream_path(b, b"", path) != 0:
        snprintf(why, STREAM_WHY_MAX, "The name of the directory is too long: %s", d.store.dir)
        return -1
    result = d.store.files.mkdir(d.store.files.ctx, path)
    if result < 0 and result != -EEXIST:
        file_error_text(&d.store.files, result, text, sizeof(text))
        snprintf(why, STREAM_WHY_MAX, "Cannot create the directory %s: %s", <const char*>path, <const char*>text)
        return -1
    return 0


cdef Stream* stream_open(Broker* b, const char* name, const char* folder, const JournalOptions* options, bint events,      # parameters: two results
                         JournalFound* found, char* why) noexcept nogil:
    cdef Durable* d = durable_of(b)
    cdef Streams* t = streams_of(b)
    cdef Stream* s = <Stream*>calloc(1, sizeof(Stream))
    cdef JournalOptions o = options[0]
    cdef char path[JOURNAL_PATH_MAX]
    cdef const char* place = path
    if s == NULL or strlen(name) > STREAM_NAME_MAX:
        snprintf(why, STREAM_WHY_MAX, "No memory for a stream")
        free(s)
        return NULL
    snprintf(s.name, sizeof(s.name), "/%s", name)
    o.n_until = record_stream_find(d.streams, stream_name(s), o.until)
    if b.settings.node.n:
        memcpy(o.node, b.settings.node.p, min(b.settings.node.n, <uint32_t>JOURNAL_NODE_MAX))
    if stream_path(b, s.name, path) != 0:
        snprintf(why, STREAM_WHY_MAX, "The name of the directory is too long: %s", d.store.dir)
        free(s)
        return NULL
    if folder != NULL:
        place = folder
    if journal_open(&s.journal, place, &o, &d.store.files, clock_wall_us(), found, why) != 0:
        journal_close(&s.journal)
        free(s)
        return NULL
    t.at[t.n] = s
    t.n += 1
    t.writer.retains |= options.retain_age_us != 0 or options.retain_bytes != 0
    if events:
        t.events = s
    return s


cdef int stream_filter(Broker* b, Stream* s, View filter) noexcept nogil:
    cdef Filter f
    cdef Group* g
    if filter_parse(filter.p, filter.n, &f) != 0 or f.group.n:
        return -1
    f.group.p = <const uint8_t*>s.name
    f.group.n = <uint32_t>strlen(s.name)
    if index_add(b.index, &s.owner, s, &f, 0, 0) < 0:
        return -1
    g = index_group(b.index, &f)
    g.strategy = SHARE_STREAM
    streams_of(b).n_filters += 1
    return 0


cdef void streams_open_done(Broker* b) noexcept nogil:
    cdef Durable* d = durable_of(b)
    free(<void*>d.streams.p)
    d.streams.p = NULL
    d.streams.n = 0
    parts_announce(b)
    cursors_begin(streams_of(b))
    extension_begin(b)


cdef void extension_begin(Broker* b) noexcept nogil:
    """Let the storage thread know the streams."""
    cdef Durable* d = durable_of(b)
    d.store.extension.ctx = b.streams
    d.store.extension.hand = extension_hand
    d.store.extension.take = extension_take
    d.store.extension.write = extension_write
    d.store.extension.sync = extension_sync
    d.store.extension.tend = extension_tend
    if streams_of(b).writer.retains:
        streams_of(b).writer.due_us = clock_monotonic_us()      # records may have expired while no broker ran, and the broker may have no publisher
    streams_of(b).changed = 1            # the first batch records the position of each stream
    batch_opened(d, 0)


cdef void journal_keep(Journal* j, const JournalOptions* options, const JournalStats* stats, const char* dir) noexcept nogil:
    """Close the journal, which zeroes it, and keep what journal_resume needs: its folder, its options with the positions behind its records, and its
    numbers."""
    cdef JournalOptions kept = options[0]
    cdef JournalStats numbers = stats[0]
    cdef char path[JOURNAL_PATH_MAX]
    memcpy(path, dir, sizeof(path))
    journal_close(j)
    j.options = kept
    j.writer.stats = numbers
    memcpy(j.dir, path, sizeof(path))


cdef int journal_resume(Broker* b, Journal* j, char* why) noexcept nogil:
    cdef JournalOptions options = j.options
    cdef JournalStats stats = j.writer.stats
    cdef char dir[JOURNAL_PATH_MAX]
    memcpy(dir, j.dir, sizeof(dir))
    if journal_open(j, dir, &options, &durable_of(b).store.files, clock_wall_us(), NULL, why) != 0:
        journal_keep(j, &options, &stats, dir)
        return -1
    stats.total_bytes = j.writer.stats.total_bytes
    stats.segments = j.writer.stats.segments
    j.writer.stats = j.shared.stats = stats
    return 0


cdef void journals_pause(Streams* t, uint32_t n) noexcept nogil:
    """Close the first n journals."""
    cdef JournalOptions options
    cdef Journal* j
    cdef uint32_t i
    for i in range(n):
        j = &t.at[i].journal
        options = j.options
        options.n_until = j.n_shards
        memcpy(options.until, j.loop.next_seq, sizeof(options.until))
        journal_keep(j, &options, &j.writer.stats, j.dir)


cdef void streams_pause(Broker* b) noexcept nogil:
    cursors_pause(b)
    journals_pause(streams_of(b), streams_of(b).n)


cdef int streams_resume(Broker* b, char* why) noexcept nogil:
    cdef Streams* t = streams_of(b)
    cdef uint32_t i
    for i in range(t.n):
        if journal_resume(b, &t.at[i].journal, why) != 0:
            journals_pause(t, i)
            return -1
    extension_begin(b)
    cursors_timer(b)
    return 0


cdef void streams_fini(Broker* b) noexcept nogil:
    cdef Streams* t = streams_of(b)
    cdef uint32_t i
    if t == NULL:
        return
    b.streams = NULL
    cursors_fini(b, t)
    for i in range(t.n):
        journal_close(&t.at[i].journal)
        parts_free(t.at[i])
        free(t.at[i])
    free(t)
