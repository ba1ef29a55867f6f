"""The storage thread: takes what the loop has sealed, checks it with CRCs, writes it, syncs it where that was asked for, and says how far it came.

Knows segments; not what records mean. Invariants: `written` and `synced` only rise, and only over whole batches; a batch stays in memory until it is
written, where syncs are asked for until it is synced. Nothing here depends on a clock but how soon something is tried again.
"""

from libc.errno cimport EDQUOT, ENOSPC
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free
from libc.string cimport memset

from cext.store.file cimport file_write
from cext.store.format cimport COMMIT_BYTES, HEADER_BYTES, RECORD_HEAD, load32, record_bytes, record_seal, store64
from cext.store.segment cimport error_text, segment_close, segment_for, segment_open, segments_bytes, spare_prepare
from cext.store.store cimport STORE_COMMITTED, STORE_ERROR, STORE_ERROR_OVER, STORE_FULL, STORE_FULL_OVER, STORE_SYNC_NEVER, STORE_WHY_MAX, Batch, \
    Batches, Segment, Store, StoreShared, StoreWriter, pthread_cond_t, pthread_mutex_t

cdef extern from "<pthread.h>" nogil:
    int pthread_mutex_lock(pthread_mutex_t* m)
    int pthread_mutex_unlock(pthread_mutex_t* m)
    int pthread_cond_wait(pthread_cond_t* c, pthread_mutex_t* m)
    int pthread_cond_timedwait(pthread_cond_t* c, pthread_mutex_t* m, const timespec* until)

cdef extern from "<time.h>" nogil:
    struct timespec:
        int64_t tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec* out)
    int CLOCK_MONOTONIC

cdef extern from "<unistd.h>" nogil:
    ssize_t write(int fd, const void* p, size_t n)

cdef enum:
    RETRY_MS = 250              # after something failed
    KEEP_MAX_BYTES = 16 << 20   # written and not synced, kept in memory: more is synced unasked


cdef uint64_t now_us() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <uint64_t>t.tv_sec * 1000000 + <uint64_t>t.tv_nsec // 1000


# ---- with the loop

cdef void batches_add(Batches* q, Batch* b) noexcept nogil:
    b.next = NULL
    if q.tail == NULL:
        q.head = b
    else:
        q.tail.next = b
    q.tail = b


cdef Batch* batches_pop(Batches* q) noexcept nogil:
    cdef Batch* b = q.head
    if b != NULL:
        q.head = b.next
        if q.head == NULL:
            q.tail = NULL
    return b


cdef void take(Store* s) noexcept nogil:
    # What the loop has handed over. Under the lock.
    cdef StoreWriter* w = &s.writer
    cdef StoreShared* shared = &s.shared
    if shared.sealed.head != NULL:
        if w.todo.tail == NULL:
            w.todo.head = shared.sealed.head
        else:
            w.todo.tail.next = shared.sealed.head
        w.todo.tail = shared.sealed.tail
        shared.sealed.head = shared.sealed.tail = NULL
    w.sync_lsn = shared.sync_lsn
    if w.sync_lsn and s.options.sync != STORE_SYNC_NEVER:
        w.sync_wanted = 1


cdef void publish(Store* s, uint32_t news, Batch* done) noexcept nogil:
    # done: batches that the loop may fill again, linked.
    cdef StoreWriter* w = &s.writer
    cdef StoreShared* shared = &s.shared
    cdef Batch* last = done
    cdef uint64_t one = 1
    w.stats.written_lsn = w.written
    w.stats.synced_lsn = w.synced
    w.stats.tail_lsn = w.tail_lsn
    w.stats.segments = w.n
    w.stats.total_bytes = segments_bytes(s)
    pthread_mutex_lock(&shared.lock)
    if shared.written != w.written or shared.synced != w.synced:
        news |= STORE_COMMITTED
    shared.written = w.written
    shared.synced = w.synced
    shared.released = w.kept.head.lsn if w.kept.head != NULL else w.written
    shared.news |= news
    shared.stats = w.stats
    if done != NULL:
        while last.next != NULL:
            last = last.next
        last.next = shared.done
        shared.done = done
    pthread_mutex_unlock(&shared.lock)
    if news:
        write(s.event_fd, &one, 8)


# ---- what goes wrong

cdef void trouble(Store* s, const char* what, int error) noexcept nogil:
    """`what` failed: said once until it works again, and tried again in a while."""
    cdef StoreWriter* w = &s.writer
    cdef char text[128]
    cdef uint32_t news = 0
    w.stats.errors += 1
    w.retry = 1
    if error == -ENOSPC or error == -EDQUOT:
        if not w.full:
            news = STORE_FULL
        w.full = 1
    elif not w.failing:
        news = STORE_ERROR
        w.failing = 1
    if news == 0:
        return
    error_text(text, sizeof(text), error)
    pthread_mutex_lock(&s.shared.lock)
    snprintf(s.shared.why, STORE_WHY_MAX, "Cannot %s %s: %s", what, s.dir, text)
    pthread_mutex_unlock(&s.shared.lock)
    publish(s, news, NULL)


# ---- writing

cdef void batch_check(Store* s, const Segment* g, Batch* b) noexcept nogil:
    # What only the writer knows: the COMMIT's tail and synced, and all CRCs.
    cdef StoreWriter* w = &s.writer
    cdef uint64_t at = 0
    cdef uint8_t* commit = b.p + b.n - COMMIT_BYTES + RECORD_HEAD
    store64(commit + 8, w.tail_lsn)
    store64(commit + 16, w.synced)
    while at < b.n:
        record_seal(s.hardware, b.p + at, g.seed, b.lsn + at)
        at += record_bytes(load32(b.p + at + 4))


cdef bint write_todo(Store* s, Batch** done) noexcept nogil:
    # 0: something failed. Batches that are not kept for a sync are put before `done`.
    cdef StoreWriter* w = &s.writer
    cdef Batch* b = w.todo.head
    cdef Segment* g = NULL
    cdef const char* what = ""
    cdef int got
    while b != NULL:
        got = segment_for(s, b.n, &what)
        if got == 0:
            g = &w.segments[w.n - 1]
            batch_check(s, g, b)
            what = "write a segment in"
            got = file_write(&s.files, g.fd, b.p, b.n, HEADER_BYTES + (b.lsn - g.base_lsn))
        if got < 0:
            trouble(s, what, got)
            return 0
        batches_pop(&w.todo)
        w.written = g.end_lsn = b.lsn + b.n
        g.dirty = 1
        w.stats.batches += 1
        if w.sync_wanted:
            batches_add(&w.kept, b)
            w.kept_bytes += b.n
        else:
            b.next = done[0]
            done[0] = b
        b = w.todo.head
    return 1


cdef int sync_all(Store* s) noexcept nogil:
    # Every segment that was written since it was last synced. 0 or -errno
    cdef StoreWriter* w = &s.writer
    cdef uint64_t start = now_us()
    cdef uint32_t i = w.n
    cdef Segment* g
    cdef int got
    while i > 0 and w.segments[i - 1].dirty:
        i -= 1
    while i < w.n:
        g = &w.segments[i]
        got = segment_open(s, g)
        if got == 0:
            got = s.files.datasync(s.files.ctx, g.fd)
        if got < 0:
            return got
        g.dirty = 0
        if i + 1 < w.n or not w.active:
            segment_close(s, g)
        i += 1
    w.synced = w.written
    w.stats.syncs += 1
    w.stats.sync_us = now_us() - start
    return 0


cdef void sync_asked(Store* s, Batch** done) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef int got
    if s.options.sync == STORE_SYNC_NEVER:
        w.synced = w.written
        return
    if w.synced >= w.written or not (w.sync_lsn > w.synced or w.kept_bytes > KEEP_MAX_BYTES):
        return
    got = sync_all(s)
    if got < 0:
        trouble(s, "sync a segment in", got)
        return
    kept_release(w, done)


cdef void kept_release(StoreWriter* w, Batch** done) noexcept nogil:
    cdef Batch* b
    while w.kept.head != NULL and w.kept.head.lsn < w.synced:
        b = batches_pop(&w.kept)
        w.kept_bytes -= b.n
        b.next = done[0]
        done[0] = b


# ---- turns

cdef int writer_turn(Store* s) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef Batch* done = NULL
    cdef uint64_t before = w.written
    cdef int got
    w.retry = 0
    pthread_mutex_lock(&s.shared.lock)
    take(s)
    pthread_mutex_unlock(&s.shared.lock)
    write_todo(s, &done)
    if w.sync_lsn <= before and w.written != before:    # who waits for nothing more than the page cache does not wait for the disk
        publish(s, 0, done)
        done = NULL
    sync_asked(s, &done)
    publish(s, 0, done)
    if not w.active:
        return 0
    got = spare_prepare(s)
    if got < 0:
        trouble(s, "write a spare segment in", got)
    return got > 0


cdef void wait(Store* s) noexcept nogil:
    # Until the loop has something, or it is time to try again.
    cdef StoreShared* shared = &s.shared
    cdef timespec until
    cdef bint late = 0
    clock_gettime(CLOCK_MONOTONIC, &until)
    until.tv_nsec += RETRY_MS * 1000000
    if until.tv_nsec >= 1000000000:
        until.tv_sec += 1
        until.tv_nsec -= 1000000000
    pthread_mutex_lock(&shared.lock)
    while shared.sealed.head == NULL and shared.sync_lsn == s.writer.sync_lsn and not shared.closing and not late:
        shared.sleeping = 1
        if s.writer.retry:
            late = pthread_cond_timedwait(&shared.more, &shared.lock, &until) != 0
        else:
            pthread_cond_wait(&shared.more, &shared.lock)
    shared.sleeping = 0
    pthread_mutex_unlock(&shared.lock)


cdef bint closing(Store* s) noexcept nogil:
    cdef bint yes
    pthread_mutex_lock(&s.shared.lock)
    yes = s.shared.closing
    pthread_mutex_unlock(&s.shared.lock)
    return yes


cdef void* writer_main(void* store) noexcept nogil:
    cdef Store* s = <Store*>store
    while not closing(s):
        if writer_turn(s) == 0:
            wait(s)
    writer_end(s)
    return NULL


cdef void writer_end(Store* s) noexcept nogil:
    cdef StoreWriter* w = &s.writer
    cdef Batch* done = NULL
    pthread_mutex_lock(&s.shared.lock)
    take(s)
    pthread_mutex_unlock(&s.shared.lock)
    if write_todo(s, &done) and w.written > w.synced and s.options.sync != STORE_SYNC_NEVER:
        if sync_all(s) == 0:
            kept_release(w, &done)
    publish(s, 0, done)


cdef void batches_free(Batches* q) noexcept nogil:
    cdef Batch* b = batches_pop(q)
    while b != NULL:
        free(b.p)
        free(b)
        b = batches_pop(q)


cdef void writer_fini(Store* s) noexcept nogil:
    batches_free(&s.writer.todo)
    batches_free(&s.writer.kept)
