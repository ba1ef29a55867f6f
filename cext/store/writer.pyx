"""The storage thread: take the batches that the loop has sealed, add the CRCs, write them, sync them if requested, and report the
progress.

This module knows segments. It does not know the meaning of records. Invariants: `written` and `synced` only rise, and only by
whole batches. A batch stays in memory until it is written; if syncs are requested, until it is synced. Nothing here depends on a
clock except the delay of the next try.
"""

from libc.errno cimport EAGAIN, EDQUOT, ENOSPC
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free

from cext.base.clock cimport clock_monotonic_us
from cext.store.clean cimport clean_fini, clean_refused, clean_step, clean_wants_sync
from cext.store.file cimport FILE_LOST, file_error_passes, file_error_text, file_write
from cext.store.format cimport HEADER_BYTES
from cext.store.poison cimport segment_rewrite
from cext.store.reading cimport reading_fini, reading_step
from cext.store.segment cimport batch_check, segment_close, segment_for, segment_open, segment_sync_failed
from cext.store.spare cimport spare_prepare
from cext.store.state cimport (
    STORE_CLEAN, STORE_COMMITTED, STORE_ERROR, STORE_ERROR_OVER, STORE_EXTENSION, STORE_FULL, STORE_FULL_OVER, STORE_LOW,
    STORE_LOW_OVER, STORE_READ, STORE_READ_ERROR, STORE_SYNC_NEVER, STORE_WHY_MAX, Store, StoreBatch, StoreBatches, StoreSegment, StoreShared,
    StoreWriter, pthread_cond_t, pthread_mutex_t,
)

cdef extern from "<pthread.h>" nogil:
    int pthread_mutex_lock(pthread_mutex_t* m)
    int pthread_mutex_unlock(pthread_mutex_t* m)
    int pthread_cond_wait(pthread_cond_t* c, pthread_mutex_t* m)
    int pthread_cond_timedwait(pthread_cond_t* c, pthread_mutex_t* m, const timespec* until)

cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec

cdef extern from "<unistd.h>" nogil:
    ssize_t write(int fd, const void* p, size_t n)

cdef enum:
    RETRY_US = 250000           # delay after a failure
    ROOM_US = 250000            # from an answer about the room to the next question
    ROOM_ANSWER_US = 10000      # between two looks for its answer
    UNSYNCED_MAX_BYTES = 16 << 20   # limit of written and unsynced batches in memory: above it the thread syncs without a request


# ---- exchange with the loop

cdef void batches_push(StoreBatches* q, StoreBatch* b) noexcept nogil:
    b.next = NULL
    if q.tail == NULL:
        q.head = b
    else:
        q.tail.next = b
    q.tail = b


cdef StoreBatch* batches_pop(StoreBatches* q) noexcept nogil:
    cdef StoreBatch* b = q.head
    if b != NULL:
        q.head = b.next
        if q.head == NULL:
            q.tail = NULL
    return b


cdef void writer_take(Store* s) noexcept nogil:
    """Take over everything that the loop has handed over."""
    cdef StoreWriter* w = &s.writer
    cdef StoreShared* shared = &s.shared
    cdef bint refused
    pthread_mutex_lock(&shared.lock)
    if shared.sealed.head != NULL:
        if w.todo.tail == NULL:
            w.todo.head = shared.sealed.head
        else:
            w.todo.tail.next = shared.sealed.head
        w.todo.tail = shared.sealed.tail
        shared.sealed.head = shared.sealed.tail = NULL
    if shared.requests != NULL:
        if w.requests_tail == NULL:
            w.requests = shared.requests
        else:
            w.requests_tail.next = shared.requests
        w.requests_tail = shared.requests_tail
        shared.requests = shared.requests_tail = NULL
    shared.extension_due = 0
    if shared.cleaned:
        shared.cleaned = 0
        w.clean_waits = 1
    refused = shared.clean_refused
    shared.clean_refused = 0
    w.answers_bytes = shared.answers_bytes
    w.live_bytes = shared.live_bytes
    w.sync_lsn = shared.sync_lsn
    if s.extension.ctx != NULL:
        s.extension.take(s.extension.ctx)
    pthread_mutex_unlock(&shared.lock)
    if refused:
        clean_refused(s)
    if w.sync_lsn and s.options.sync != STORE_SYNC_NEVER:
        w.sync_wanted = 1


cdef uint64_t counted_lsn(const Store* s) noexcept nogil:
    """Return the lsn below which batches count as written. With deferred files, unsynced batches may end with the process."""
    return s.writer.synced if s.files.deferred else s.writer.written


cdef void writer_publish(Store* s, uint32_t news, StoreBatch* done) noexcept nogil:
    """Report the progress and the news to the loop. `done` = linked batches that the loop may reuse."""
    cdef StoreWriter* w = &s.writer
    cdef StoreShared* shared = &s.shared
    cdef StoreBatch* last = done
    cdef uint64_t one = 1
    cdef uint64_t counted = counted_lsn(s)
    w.stats.written_lsn = counted
    w.stats.synced_lsn = w.synced
    w.stats.tail_lsn = w.tail_lsn
    w.stats.segments = w.n
    w.stats.total_bytes = w.segments_bytes + w.spare_done
    w.stats.full = w.full or w.low
    w.stats.low = w.low and not w.full
    w.stats.failing = w.failing
    pthread_mutex_lock(&shared.lock)
    if shared.written != counted or shared.synced != w.synced:
        news |= STORE_COMMITTED
    shared.written = counted
    shared.synced = w.synced
    shared.released = w.unsynced.head.lsn if w.unsynced.head != NULL else w.written
    shared.news |= news
    shared.stats = w.stats
    if done != NULL:
        while last.next != NULL:
            last = last.next
        last.next = shared.done
        shared.done = done
    if s.extension.ctx != NULL:
        s.extension.take(s.extension.ctx)
    pthread_mutex_unlock(&shared.lock)
    if news:
        write(s.event_fd, &one, 8)


# ---- failures

cdef void report_failure(Store* s, const char* action, int error) noexcept nogil:
    """Report that the action `what` failed. It is reported once, until it succeeds again; a loss is always reported."""
    cdef char why[STORE_WHY_MAX]
    cdef char text[384]
    file_error_text(&s.files, error, text, sizeof(text))
    snprintf(why, STORE_WHY_MAX, "Cannot %s %s: %s", action, s.dir, <const char*>text)
    log_reason(s, why, error)


cdef void log_reason(Store* s, const char* why, int error) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef uint32_t news = 0
    w.stats.errors += 1
    if error == -ENOSPC or error == -EDQUOT:
        if not w.full:
            news = STORE_FULL
        w.full = 1
    elif not w.failing or error == -FILE_LOST:
        news = STORE_ERROR
        w.failing = 1
    if news == 0:
        return
    pthread_mutex_lock(&s.shared.lock)
    snprintf(s.shared.why, STORE_WHY_MAX, "%s", why)
    pthread_mutex_unlock(&s.shared.lock)
    writer_publish(s, news, NULL)


cdef void report_read_failure(Store* s, int error) noexcept nogil:
    cdef char text[384]
    s.writer.stats.errors += 1
    if s.writer.read_failing:
        return
    s.writer.read_failing = 1
    file_error_text(&s.files, -error, text, sizeof(text))
    pthread_mutex_lock(&s.shared.lock)
    snprintf(s.shared.why, STORE_WHY_MAX, "Cannot read waiting records in %s now, the broker tries again: %s", s.dir, <const char*>text)
    pthread_mutex_unlock(&s.shared.lock)
    writer_publish(s, STORE_READ_ERROR, NULL)


cdef void report_and_retry(Store* s, const char* action, int error) noexcept nogil:
    """Report a failure, and try again after RETRY_US."""
    writer_retry_later(s)
    report_failure(s, action, error)


cdef void writer_retry_later(Store* s) noexcept nogil:
    s.writer.turn_failed = 1
    s.writer.retry_us = clock_monotonic_us() + RETRY_US


cdef uint32_t recovered_news(Store* s) noexcept nogil:
    """Return the news after a turn without a failure."""
    cdef StoreWriter* w = &s.writer
    cdef uint32_t news = (STORE_FULL_OVER if w.full else 0) | (STORE_ERROR_OVER if w.failing else 0)
    w.full = w.failing = 0
    return news


cdef void room_check(Store* s, bint now) noexcept nogil:
    """Ask the files whether there is little room. A thread that waits asks again only while there is."""
    cdef StoreWriter* w = &s.writer
    cdef uint64_t now_us
    cdef int got
    if s.files.low == NULL:
        return
    now_us = clock_monotonic_us()
    if not now and now_us < w.room_us:
        return
    got = s.files.low(s.files.ctx)
    w.room_asked = got == -EAGAIN
    w.room_us = now_us + (ROOM_ANSWER_US if w.room_asked else ROOM_US)
    if got >= 0 and got != w.low:
        w.low = <uint8_t>got
        writer_publish(s, STORE_LOW if got else STORE_LOW_OVER, NULL)


# ---- the extension

cdef bint extension_step(Store* s, int (*step)(void* ctx, char* why, size_t n) noexcept nogil) noexcept nogil:
    """Call a function of the extension. Return 0 if it failed; the thread tries again later."""
    cdef char why[STORE_WHY_MAX]
    cdef int got = step(s.extension.ctx, why, STORE_WHY_MAX) if s.extension.ctx != NULL else 0
    if got == 0:
        return 1
    writer_retry_later(s)
    log_reason(s, why, got)
    return 0


cdef void writer_extension_tend(Store* s, bint last) noexcept nogil:
    cdef bint news = 0
    if s.extension.ctx == NULL:
        return
    s.writer.extension_us = s.extension.tend(s.extension.ctx, s.writer.todo.head == NULL, last, &news)
    if news:
        writer_publish(s, STORE_EXTENSION, NULL)


# ---- writing

cdef bint batches_write(Store* s, StoreBatch** done) noexcept nogil:
    """Write all batches. Return 0 if something failed. Batches that need not wait for a sync are put before `done`."""
    cdef StoreWriter* w = &s.writer
    cdef StoreBatch* b = w.todo.head
    cdef StoreSegment* g = NULL
    cdef const char* action = ""
    cdef int got
    while b != NULL:
        got = segment_for(s, b.n, &action)
        if got == 0:
            g = &w.segments[w.n - 1]
            batch_check(s, g, b)
            action = "write a segment in"
            got = file_write(&s.files, g.fd, b.p, b.n, HEADER_BYTES + (b.lsn - g.base_lsn))
            if (got == -ENOSPC or got == -EDQUOT) and w.spare.slot and w.spare_done >= w.spare.capacity:
                # these bytes were never written, so they need space; the spare needs none
                g.capacity = HEADER_BYTES + (g.end_lsn - g.base_lsn)
                continue
            if got < 0 and got != -ENOSPC and got != -EDQUOT and not file_error_passes(&s.files):
                g.poisoned = 1          # the next try uses another segment; the content of this one still needs its sync
        if got < 0:
            report_and_retry(s, action, got)
            return 0
        batches_pop(&w.todo)
        w.written = g.end_lsn = b.lsn + b.n
        g.dirty = 1
        w.stats.batches += 1
        if w.sync_wanted:
            batches_push(&w.unsynced, b)
            w.unsynced_bytes += b.n
        else:
            b.next = done[0]
            done[0] = b
        b = w.todo.head
    return 1


cdef int segment_sync(Store* s, uint32_t i, const char** action) noexcept nogil:
    cdef StoreSegment* g = &s.writer.segments[i]
    cdef int got = segment_open(s, g)
    action[0] = "open a segment in"
    if got < 0:
        return got
    action[0] = "sync a segment in"
    got = s.files.datasync(s.files.ctx, g.fd)
    if got < 0:
        segment_sync_failed(s, g)
        return got
    g.dirty = 0
    if i + 1 < s.writer.n or not s.writer.active:
        segment_close(s, g)
    return 0


cdef int sync_all(Store* s, const char** action) noexcept nogil:
    """Sync every segment that was written since its last sync. Return 0 or -errno."""
    cdef StoreWriter* w = &s.writer
    cdef uint64_t start = clock_monotonic_us()
    cdef uint32_t i = w.n
    cdef int got = 0
    while i > 0 and w.segments[i - 1].end_lsn > w.synced:
        i -= 1
    while i < w.n and got == 0:
        if w.segments[i].dirty and w.segments[i].poisoned:
            got = segment_rewrite(s, i, action)       # afterwards neither segment i nor its replacement is dirty
        elif w.segments[i].dirty:
            got = segment_sync(s, i, action)
            if got < 0 and w.segments[i].poisoned:
                report_failure(s, action[0], got)
                got = 0
        else:
            i += 1
    if got == 0 and w.dir_dirty:
        action[0] = "sync"
        got = s.files.sync_dir(s.files.ctx, s.dir)
        w.dir_dirty = got < 0
    if got < 0:
        return got
    w.synced = w.written
    w.stats.syncs += 1
    w.stats.sync_us = clock_monotonic_us() - start
    return 0


cdef void sync_if_requested(Store* s, StoreBatch** done) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef const char* action = ""
    cdef int got
    if s.options.sync == STORE_SYNC_NEVER:
        w.synced = w.written
        return
    if w.synced >= w.written or not (s.files.deferred or w.sync_lsn > w.synced or w.unsynced_bytes > UNSYNCED_MAX_BYTES or clean_wants_sync(s)):
        return
    if not extension_step(s, s.extension.sync):
        return
    got = sync_all(s, &action)
    if got < 0:
        report_and_retry(s, action, got)
    else:
        batches_release(w, done)


cdef void batches_release(StoreWriter* w, StoreBatch** done) noexcept nogil:
    cdef StoreBatch* b
    while w.unsynced.head != NULL and w.unsynced.head.lsn < w.synced:
        b = batches_pop(&w.unsynced)
        w.unsynced_bytes -= b.n
        b.next = done[0]
        done[0] = b


# ---- turns

cdef void writer_commit(Store* s) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef StoreBatch* done = NULL
    cdef uint64_t before = w.written
    cdef uint64_t start = clock_monotonic_us() if w.todo.head != NULL else 0
    if not extension_step(s, s.extension.write):
        return
    batches_write(s, &done)
    # clients that wait for the page cache only need not wait for the disk
    if w.sync_lsn <= before and w.written != before and not s.files.deferred:
        writer_publish(s, 0, done)
        done = NULL
    if not w.turn_failed:
        sync_if_requested(s, &done)
    if w.written != before:
        w.stats.commit_us = clock_monotonic_us() - start
    writer_publish(s, 0, done)


cdef bint housework(Store* s) noexcept nogil:
    """Do a step of cleaning and of the spare. Return 1 if there is more to do."""
    cdef StoreWriter* w = &s.writer
    cdef const char* action = ""
    cdef uint32_t news = 0
    cdef int got, more = 0
    if w.active:                        # first, since cleaning needs its room
        more = spare_prepare(s)
        if more < 0:
            report_and_retry(s, "write a spare segment in", more)
    got = clean_step(s, &news, &action)
    if got < 0:
        report_and_retry(s, action, got)
    if news & STORE_CLEAN:
        pthread_mutex_lock(&s.shared.lock)
        s.shared.cleaning = w.cleaning
        pthread_mutex_unlock(&s.shared.lock)
    if news:
        writer_publish(s, news, NULL)
    return more > 0


cdef int writer_turn(Store* s, bint now) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef bint more = 0, answered = 0
    cdef uint32_t news
    cdef int error = 0
    writer_take(s)
    if now or w.retry_us == 0 or clock_monotonic_us() >= w.retry_us:
        w.retry_us = 0
        w.turn_failed = 0
        writer_commit(s)
        more = housework(s)
        news = 0 if w.turn_failed or more or w.todo.head != NULL else recovered_news(s)
        if news:
            writer_publish(s, news, NULL)
        if not w.turn_failed:           # behind a failure, a connection would only be waited for once more
            room_check(s, now)
    if now or w.read_retry_us == 0 or clock_monotonic_us() >= w.read_retry_us:
        w.read_retry_us = 0
        answered = reading_step(s, &error)
        if error:
            w.read_retry_us = clock_monotonic_us() + RETRY_US
            report_read_failure(s, error)
        elif answered:
            w.read_failing = 0
        if answered:
            writer_publish(s, STORE_READ, NULL)
    writer_extension_tend(s, 0)
    return more or answered


cdef bint has_work(Store* s) noexcept nogil:
    """Return whether the loop has handed something over. The caller holds the lock."""
    cdef StoreShared* shared = &s.shared
    return (shared.sealed.head != NULL or shared.sync_lsn != s.writer.sync_lsn or shared.closing or shared.extension_due or shared.cleaned or shared.clean_refused or shared.requests != NULL
            or (s.writer.requests != NULL and shared.answers_bytes < s.writer.answers_bytes))


cdef void writer_wait(Store* s) noexcept nogil:
    """Wait until the loop hands something over, the next try is due, or the extension needs a turn."""
    cdef StoreShared* shared = &s.shared
    cdef timespec until
    cdef bint late = 0
    cdef uint64_t retry_us = s.writer.retry_us
    if s.writer.read_retry_us and (retry_us == 0 or s.writer.read_retry_us < retry_us):
        retry_us = s.writer.read_retry_us
    if s.writer.extension_us and (retry_us == 0 or s.writer.extension_us < retry_us):
        retry_us = s.writer.extension_us
    if (s.writer.low or s.writer.room_asked) and s.writer.retry_us == 0 and (retry_us == 0 or s.writer.room_us < retry_us):
        retry_us = s.writer.room_us
    until.tv_sec = <int64_t>(retry_us // 1000000)
    until.tv_nsec = <long>(retry_us % 1000000) * 1000
    pthread_mutex_lock(&shared.lock)
    while not late and not has_work(s):
        shared.sleeping = 1
        if retry_us:
            late = pthread_cond_timedwait(&shared.wake_up, &shared.lock, &until) != 0
        else:
            pthread_cond_wait(&shared.wake_up, &shared.lock)
    shared.sleeping = 0
    pthread_mutex_unlock(&shared.lock)


cdef bint is_closing(Store* s) noexcept nogil:
    cdef bint yes
    pthread_mutex_lock(&s.shared.lock)
    yes = s.shared.closing
    pthread_mutex_unlock(&s.shared.lock)
    return yes


cdef void* writer_main(void* store) noexcept nogil:
    cdef Store* s = <Store*>store
    while not is_closing(s):
        if writer_turn(s, 0) == 0:
            writer_wait(s)
    writer_end(s)
    return NULL


cdef void writer_end(Store* s) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef StoreBatch* done = NULL
    cdef const char* action = ""
    cdef int got
    writer_take(s)
    if extension_step(s, s.extension.write) and batches_write(s, &done) and w.written > w.synced and s.options.sync != STORE_SYNC_NEVER \
            and extension_step(s, s.extension.sync):
        got = sync_all(s, &action)
        if got < 0:
            report_and_retry(s, action, got)
        else:
            batches_release(w, &done)
    writer_extension_tend(s, 1)
    writer_publish(s, 0, done)


cdef void batches_clear(StoreBatches* q) noexcept nogil:
    cdef StoreBatch* b = batches_pop(q)
    while b != NULL:
        free(b.p)
        free(b)
        b = batches_pop(q)


cdef void writer_fini(Store* s) noexcept nogil:
    batches_clear(&s.writer.todo)
    batches_clear(&s.writer.unsynced)
    reading_fini(s)
    clean_fini(s)
