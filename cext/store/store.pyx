"""The loop's side of the store: fill batches and hand them to the storage thread under a lock that is held for a few assignments.

This module does not know the meaning of a record. Invariants: lsns are given out only here, so an lsn depends on nothing but the
bytes appended before it. The loop sees the storage thread's progress as a copy that store_poll makes. Cost: an append is a few
stores; a seal is one uncontended lock, and one system call if the storage thread sleeps.
"""

from libc.errno cimport EAGAIN, EEXIST, EINVAL, ENOMEM
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset, strlen

from cext.base.words cimport load32, store64
from cext.store.crc cimport crc_hardware
from cext.store.file cimport FILE_PATH_MAX, FileOps, file_system
from cext.store.format cimport (
    COMMIT_BODY, COMMIT_BYTES, FORMAT, HEADER_BYTES, KIND_COMMIT, RECORD_BODY_MAX, STORE_KIND_MAX, STORE_RECORD_HEAD,
    record_begin, record_bytes,
)
from cext.store.opening cimport advice_for, directory_check, lock_take, store_refuse
from cext.store.replay cimport StoreListing, log_replay, store_listing_free, store_listing_read
from cext.store.segment cimport segments_begin, segments_fini
from cext.store.state cimport (
    STORE_BATCH_EARLY_BYTES, STORE_CHUNK_BYTES, STORE_CLEAN, STORE_READ, STORE_READS_MAX, STORE_READ_BYTES_MAX,
    STORE_SEGMENT_BYTES, STORE_SEGMENT_BYTES_MAX, STORE_SEGMENT_BYTES_MIN, STORE_SYNC_NEVER, STORE_WAITING_MAX_BYTES,
    STORE_WHY_MAX, Store, StoreAnswer, StoreBatch, StoreCleaning, StoreLoss, StoreOptions, StoreReading, StoreRecord,
    StoreShared, StoreStats, pthread_cond_t, pthread_mutex_t, pthread_t, store_record_fn,
)
from cext.store.writer cimport counted_lsn, writer_end, writer_fini, writer_main, writer_turn

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_condattr_t:
        pass
    int pthread_mutex_init(pthread_mutex_t* m, void* attributes)
    int pthread_mutex_lock(pthread_mutex_t* m)
    int pthread_mutex_unlock(pthread_mutex_t* m)
    int pthread_mutex_destroy(pthread_mutex_t* m)
    int pthread_condattr_init(pthread_condattr_t* a)
    int pthread_condattr_setclock(pthread_condattr_t* a, int clock)
    int pthread_condattr_destroy(pthread_condattr_t* a)
    int pthread_cond_init(pthread_cond_t* c, pthread_condattr_t* a)
    int pthread_cond_signal(pthread_cond_t* c)
    int pthread_cond_destroy(pthread_cond_t* c)
    int pthread_create(pthread_t* t, void* attributes, void* (*main)(void*) noexcept nogil, void* arg)
    int pthread_join(pthread_t t, void** result)

cdef extern from "<signal.h>" nogil:
    ctypedef struct sigset_t:
        pass
    int sigfillset(sigset_t* set)
    int pthread_sigmask(int how, const sigset_t* set, sigset_t* old)
    int SIG_SETMASK

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int value, int flags)
    int EFD_CLOEXEC
    int EFD_NONBLOCK

cdef extern from "<unistd.h>" nogil:
    ssize_t read(int fd, void* p, size_t n)
    ssize_t write(int fd, const void* p, size_t n)
    int c_close "close"(int fd)

cdef extern from "<time.h>" nogil:
    int CLOCK_MONOTONIC

cdef enum:
    BATCH_BYTES = 64 << 10      # first size of a batch
    BATCH_KEEP_BYTES = 4 << 20  # larger batches are not kept for reuse
    BATCHES_IDLE = 4


# ---- opening

cdef void store_options_set(Store* s, const StoreOptions* options) noexcept nogil:
    cdef StoreOptions* o = &s.options
    if options != NULL:
        o[0] = options[0]
    if o.segment_bytes == 0:
        o.segment_bytes = STORE_SEGMENT_BYTES
    o.segment_bytes = min(max(o.segment_bytes, <uint64_t>STORE_SEGMENT_BYTES_MIN), <uint64_t>STORE_SEGMENT_BYTES_MAX // 2) & ~<uint64_t>4095
    if o.waiting_max_bytes == 0:
        o.waiting_max_bytes = STORE_WAITING_MAX_BYTES
    if o.batch_early_bytes == 0:
        o.batch_early_bytes = STORE_BATCH_EARLY_BYTES


cdef int store_open(Store* s, const char* dir, const StoreOptions* options, const FileOps* files, char* why, size_t why_n) noexcept nogil:
    cdef pthread_condattr_t attributes
    cdef int got
    memset(s, 0, sizeof(Store))
    s.event_fd = s.lock_fd = -1
    s.files = files[0] if files != NULL else file_system()[0]
    store_options_set(s, options)
    s.hardware = crc_hardware()
    s.dir = <char*>malloc(strlen(dir) + 1)
    s.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
    pthread_mutex_init(&s.shared.lock, NULL)
    pthread_condattr_init(&attributes)
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
    pthread_cond_init(&s.shared.wake_up, &attributes)
    pthread_condattr_destroy(&attributes)
    s.opened = 1
    if s.dir == NULL or s.event_fd < 0:
        snprintf(why, why_n, "No memory or descriptors left to open a store")
        store_close(s, NULL, 0)
        return -1
    memcpy(s.dir, dir, strlen(dir) + 1)
    if s.options.create:
        got = s.files.mkdir(s.files.ctx, s.dir)
        if got < 0 and got != -EEXIST:
            store_refuse(&s.files, why, why_n, "Cannot create the directory", s.dir, got, advice_for(got))
            store_close(s, NULL, 0)
            return -1
    if lock_take(s, why, why_n) != 0 or directory_check(s, why, why_n) != 0:
        store_close(s, NULL, 0)
        return -1
    return 0


cdef int store_recover(Store* s, store_record_fn fn, void* ctx, StoreLoss* loss) noexcept nogil:
    cdef StoreListing l
    cdef StoreLoss mine
    cdef int got = store_listing_read(&l, &s.files, s.hardware, s.dir)
    if loss == NULL:
        loss = &mine
    memset(loss, 0, sizeof(StoreLoss))
    if got == 0:
        got = log_replay(&s.files, s.hardware, s.dir, &l, 0, 0, fn, ctx, loss)
    if s.files.deferred:
        loss.synced_lsn = loss.end_lsn          # all that can be read is there for good
    if got == 0:
        got = segments_begin(s, &l, loss)
    store_listing_free(&l)
    if got != 0:
        if got < 0:
            store_refuse(&s.files, s.shared.why, STORE_WHY_MAX, "Cannot read the store in", s.dir, got, advice_for(got))
        return -1
    s.loop.next_lsn = s.loop.written = s.loop.released = s.shared.written = s.shared.released = s.writer.written = loss.end_lsn
    s.loop.synced = s.shared.synced = s.writer.synced = loss.synced_lsn
    # once something was synced, cleaning must not drop it for copies that are not synced
    s.writer.sync_wanted = (loss.synced_lsn > 0 or s.files.deferred) and s.options.sync != STORE_SYNC_NEVER
    s.recovered = 1
    return 0


cdef int store_start(Store* s) noexcept nogil:
    cdef sigset_t all_signals, old
    cdef int got
    if not s.recovered or s.running:
        snprintf(s.shared.why, STORE_WHY_MAX, "A store must be recovered before it is started, and it is started once")
        return -1
    # only the main thread handles signals
    sigfillset(&all_signals)
    pthread_sigmask(SIG_SETMASK, &all_signals, &old)
    got = pthread_create(&s.thread, NULL, writer_main, s)
    pthread_sigmask(SIG_SETMASK, &old, NULL)
    if got != 0:
        store_refuse(NULL, s.shared.why, STORE_WHY_MAX, "Cannot start the storage thread of", s.dir, -got, "")
        return -1
    s.running = 1
    return 0


# ---- appending

cdef bint batch_grow(StoreBatch* b, uint64_t need) noexcept nogil:
    cdef uint64_t cap = b.cap if b.cap else BATCH_BYTES
    cdef uint8_t* p
    while cap < need:
        cap *= 2
    p = <uint8_t*>realloc(b.p, cap)
    if p == NULL:
        return 0
    b.p = p
    b.cap = cap
    return 1


cdef StoreBatch* batch_take(Store* s) noexcept nogil:
    cdef StoreBatch* b = s.loop.idle
    if b != NULL:
        s.loop.idle = b.next
        s.loop.n_idle -= 1
    else:
        b = <StoreBatch*>calloc(1, sizeof(StoreBatch))
        if b == NULL:
            return NULL
    b.next = NULL
    b.n = 0
    b.lsn = s.loop.next_lsn
    return b


cdef void batch_recycle(Store* s, StoreBatch* b) noexcept nogil:
    if s.loop.n_idle >= BATCHES_IDLE or b.cap > BATCH_KEEP_BYTES:
        free(b.p)
        free(b)
        return
    b.next = s.loop.idle
    s.loop.idle = b
    s.loop.n_idle += 1


cdef bint store_reserve(Store* s, uint64_t n) noexcept nogil:
    cdef StoreBatch* b = s.loop.open
    if b == NULL:
        b = s.loop.open = batch_take(s)
        if b == NULL:
            return 0
    if b.n + n + COMMIT_BYTES <= b.cap:
        return 1
    # a batch lies within one segment; segment.pyx describes batches that are larger than the usual segment
    return b.n + n <= STORE_SEGMENT_BYTES_MAX - 65536 and batch_grow(b, b.n + n + COMMIT_BYTES)


cdef uint8_t* store_append(Store* s, uint8_t kind, uint8_t flags, uint32_t body_n, uint64_t* lsn) noexcept nogil:
    cdef uint64_t n = record_bytes(body_n)
    cdef StoreBatch* b
    cdef uint8_t* p
    if body_n > RECORD_BODY_MAX or kind == 0 or kind > STORE_KIND_MAX or not store_reserve(s, n):
        return NULL
    b = s.loop.open
    p = b.p + b.n
    store64(p + n - 8, 0)               # zero the padding; a record has more than 8 bytes
    record_begin(p, kind, flags, body_n)
    lsn[0] = s.loop.next_lsn
    b.n += n
    s.loop.next_lsn += n
    return p + STORE_RECORD_HEAD


cdef void writer_wake(StoreShared* shared) noexcept nogil:
    """Wake the storage thread. The caller holds the lock."""
    if shared.sleeping:
        pthread_cond_signal(&shared.wake_up)


cdef uint64_t store_seal(Store* s, bint sync) noexcept nogil:
    cdef StoreBatch* b = s.loop.open
    cdef StoreShared* shared = &s.shared
    if b == NULL or b.n == 0:
        if not sync or s.loop.synced >= s.loop.next_lsn:
            return s.loop.next_lsn
        b = NULL
    else:
        record_begin(b.p + b.n, KIND_COMMIT, 0, COMMIT_BODY)
        store64(b.p + b.n + STORE_RECORD_HEAD, b.lsn)         # the storage thread adds the synced lsn
        b.n += COMMIT_BYTES
        s.loop.next_lsn += COMMIT_BYTES
        s.loop.open = NULL
    pthread_mutex_lock(&shared.lock)
    if b != NULL:
        if shared.sealed.tail == NULL:
            shared.sealed.head = b
        else:
            shared.sealed.tail.next = b
        shared.sealed.tail = b
    if sync:
        shared.sync_lsn = s.loop.next_lsn
    if s.extension.ctx != NULL:
        s.extension.hand(s.extension.ctx, b != NULL)
    shared.live_bytes = s.live_bytes
    writer_wake(shared)
    pthread_mutex_unlock(&shared.lock)
    return s.loop.next_lsn


cdef void store_extension_wake(Store* s) noexcept nogil:
    pthread_mutex_lock(&s.shared.lock)
    s.extension.hand(s.extension.ctx, 0)
    s.shared.extension_due = 1
    writer_wake(&s.shared)
    pthread_mutex_unlock(&s.shared.lock)


# ---- news

cdef uint32_t store_poll(Store* s) noexcept nogil:
    cdef StoreShared* shared = &s.shared
    cdef StoreBatch* done
    cdef StoreBatch* next
    cdef StoreAnswer* answered
    cdef StoreAnswer* last
    cdef uint64_t count
    cdef uint32_t news
    read(s.event_fd, &count, 8)
    pthread_mutex_lock(&shared.lock)
    news = shared.news
    shared.news = 0
    s.loop.written = shared.written
    s.loop.synced = shared.synced
    s.loop.released = shared.released
    done = shared.done
    shared.done = NULL
    answered = shared.answers
    last = shared.answers_tail
    shared.answers = shared.answers_tail = NULL
    if shared.cleaning != NULL:
        s.loop.cleaning = shared.cleaning
        shared.cleaning = NULL
    if s.extension.ctx != NULL:
        s.extension.hand(s.extension.ctx, 0)
    shared.live_bytes = s.live_bytes
    pthread_mutex_unlock(&shared.lock)
    while done != NULL:
        next = done.next
        batch_recycle(s, done)
        done = next
    if answered != NULL:
        if s.loop.answers_tail == NULL:
            s.loop.answers = answered
        else:
            s.loop.answers_tail.next = answered
        s.loop.answers_tail = last
    if s.loop.cleaning != NULL:
        news |= STORE_CLEAN
    if s.loop.answers != NULL:
        news |= STORE_READ
    return news


cdef void store_error(Store* s, char* out, size_t n) noexcept nogil:
    pthread_mutex_lock(&s.shared.lock)
    snprintf(out, n, "%s", s.shared.why)
    pthread_mutex_unlock(&s.shared.lock)


cdef void store_stats(Store* s, StoreStats* out) noexcept nogil:
    pthread_mutex_lock(&s.shared.lock)
    out[0] = s.shared.stats
    pthread_mutex_unlock(&s.shared.lock)
    out.next_lsn = s.loop.next_lsn
    out.live_bytes = s.live_bytes
    out.waiting_bytes = s.loop.next_lsn - s.loop.released


# ---- cleaning and reading back: the loop's part

cdef void clean_chunk_finish(Store* s, StoreCleaning* c) noexcept nogil:
    if c.chunk:
        c.copied += s.loop.next_lsn - c.chunk_lsn
        c.taken += c.chunk
        c.chunk = 0


cdef uint32_t store_clean_chunk(Store* s, StoreRecord* out, uint32_t n) noexcept nogil:
    cdef StoreCleaning* c = s.loop.cleaning
    cdef const uint8_t* p
    cdef uint64_t n_bytes = 0
    cdef uint32_t i = 0, at
    if c == NULL:
        return 0
    clean_chunk_finish(s, c)
    while i < n and c.taken + i < c.n_found and n_bytes < STORE_CHUNK_BYTES:
        at = c.found[c.taken + i]
        p = c.p + at
        out[i].lsn = c.base_lsn + (at - HEADER_BYTES)
        out[i].kind = p[8]
        out[i].flags = p[9]
        out[i].body.p = p + STORE_RECORD_HEAD
        out[i].body.n = load32(p + 4)
        n_bytes += out[i].body.n
        i += 1
    c.chunk = i
    c.chunk_lsn = s.loop.next_lsn
    return i


cdef bint store_clean_done(Store* s) noexcept nogil:
    cdef StoreCleaning* c = s.loop.cleaning
    cdef uint64_t one = 1
    if c == NULL:
        return 0
    clean_chunk_finish(s, c)
    if c.taken < c.n_found:
        write(s.event_fd, &one, 8)
        return 1
    c.done_lsn = s.loop.next_lsn
    s.loop.cleaning = NULL
    pthread_mutex_lock(&s.shared.lock)
    s.shared.cleaned = 1
    writer_wake(&s.shared)
    pthread_mutex_unlock(&s.shared.lock)
    return 0


cdef inline bint copies_fit(const Store* s, uint64_t n) noexcept nogil:
    # the rest is for acknowledgements that come until the copies are written, and for the end of a segment that a batch does not fill
    return s.loop.next_lsn + n + s.options.segment_bytes // 16 <= s.loop.cleaning.room_lsn


cdef bint store_clean_counts(Store* s) noexcept nogil:
    cdef StoreCleaning* c = s.loop.cleaning
    if c == NULL or c.counted:
        return 0
    c.counted = c.taken == 0 and c.chunk == 0 and copies_fit(s, c.n)
    return not c.counted


cdef bint store_clean_count(Store* s, uint64_t live) noexcept nogil:
    cdef StoreCleaning* c = s.loop.cleaning
    cdef uint64_t one = 1
    c.live += live
    c.taken += c.chunk
    c.chunk = 0
    if c.taken == c.n_found:
        c.taken = 0
        c.counted = copies_fit(s, c.live)
    if c.taken or c.counted:
        write(s.event_fd, &one, 8)
        return 1
    s.loop.cleaning = NULL
    pthread_mutex_lock(&s.shared.lock)
    s.shared.clean_refused = 1
    writer_wake(&s.shared)
    pthread_mutex_unlock(&s.shared.lock)
    return 0


cdef void store_clean_again(Store* s) noexcept nogil:
    cdef StoreCleaning* c = s.loop.cleaning
    if c != NULL and c.chunk:
        c.copied += s.loop.next_lsn - c.chunk_lsn       # the records appended for this chunk are appended again
        c.chunk = 0


cdef int store_read(Store* s, const uint64_t* lsns, uint32_t n, void* cookie) noexcept nogil:
    cdef StoreShared* shared = &s.shared
    cdef StoreReading* r
    cdef uint32_t i
    if n == 0 or n > STORE_READS_MAX - s.loop.n_reads:
        return 0 if n == 0 else EAGAIN
    for i in range(n):
        if lsns[i] >= s.loop.next_lsn:
            return EINVAL
    r = <StoreReading*>malloc(sizeof(StoreReading) + n * sizeof(uint64_t))
    if r == NULL:
        return ENOMEM
    r.next = NULL
    r.cookie = cookie
    r.n = n
    r.done = r.tries = 0
    memcpy(r + 1, lsns, n * sizeof(uint64_t))
    s.loop.n_reads += n
    pthread_mutex_lock(&shared.lock)
    if shared.requests_tail == NULL:
        shared.requests = r
    else:
        shared.requests_tail.next = r
    shared.requests_tail = r
    writer_wake(shared)
    pthread_mutex_unlock(&shared.lock)
    return 0


cdef void report_returned(Store* s) noexcept nogil:
    """Report the bytes of the returned records to the storage thread, so that it reads on."""
    if s.loop.returned_bytes == 0:
        return
    pthread_mutex_lock(&s.shared.lock)
    s.shared.answers_bytes -= s.loop.returned_bytes
    writer_wake(&s.shared)
    pthread_mutex_unlock(&s.shared.lock)
    s.loop.returned_bytes = 0


cdef bint store_read_next(Store* s, void** cookie, StoreRecord* out) noexcept nogil:
    cdef StoreAnswer* a = s.loop.answers
    free(s.loop.returned)
    s.loop.returned = a
    if a == NULL:
        report_returned(s)
        return 0
    s.loop.answers = a.next
    if a.next == NULL:
        s.loop.answers_tail = NULL
    s.loop.returned_bytes += sizeof(StoreAnswer) + a.record.body.n
    s.loop.n_reads -= 1
    if s.loop.returned_bytes > STORE_READ_BYTES_MAX // 2:
        report_returned(s)
    cookie[0] = a.cookie
    out[0] = a.record
    return 1


# ---- closing

cdef void batch_list_free(StoreBatch* b) noexcept nogil:
    cdef StoreBatch* next
    while b != NULL:
        next = b.next
        free(b.p)
        free(b)
        b = next


cdef void answers_free(StoreAnswer* a) noexcept nogil:
    cdef StoreAnswer* next
    while a != NULL:
        next = a.next
        free(a)
        a = next


cdef int store_close(Store* s, char* why, size_t why_n) noexcept nogil:
    cdef int system_result = 0
    if not s.opened:
        return 0
    if s.recovered:
        store_seal(s, 0)
        pthread_mutex_lock(&s.shared.lock)
        s.shared.closing = 1
        pthread_cond_signal(&s.shared.wake_up)
        pthread_mutex_unlock(&s.shared.lock)
        if s.running:
            pthread_join(s.thread, NULL)
        else:
            writer_end(s)
        s.running = 0
        if counted_lsn(s) < s.loop.next_lsn:
            system_result = -1
            if why != NULL and why_n:
                snprintf(why, why_n, "%s", s.shared.why)
    writer_fini(s)
    segments_fini(s)
    if s.lock_fd >= 0:
        s.files.close(s.files.ctx, s.lock_fd)
    if s.event_fd >= 0:
        c_close(s.event_fd)
    batch_list_free(s.loop.open)
    batch_list_free(s.loop.idle)
    batch_list_free(s.shared.sealed.head)
    batch_list_free(s.shared.done)
    answers_free(s.loop.answers)
    answers_free(s.shared.answers)
    free(s.loop.returned)
    while s.shared.requests != NULL:
        s.shared.requests_tail = s.shared.requests.next
        free(s.shared.requests)
        s.shared.requests = s.shared.requests_tail
    free(s.dir)
    pthread_cond_destroy(&s.shared.wake_up)
    pthread_mutex_destroy(&s.shared.lock)
    memset(s, 0, sizeof(Store))
    s.event_fd = s.lock_fd = -1
    return system_result


cdef void store_turn(Store* s) noexcept nogil:
    writer_turn(s, 1)


# ---- for tools

cdef int store_scan(            # parameters: a directory (two) and a place in its log, a callback (two), results (three)
        const char* dir, const FileOps* files, uint64_t from_lsn, store_record_fn fn, void* ctx, StoreLoss* loss, char* why,
        size_t why_n) noexcept nogil:
    cdef const FileOps* f = files if files != NULL else file_system()
    cdef bint hardware = crc_hardware()
    cdef StoreListing l
    cdef int got
    memset(loss, 0, sizeof(StoreLoss))
    if strlen(dir) > FILE_PATH_MAX - 64:
        return store_refuse(NULL, why, why_n, "The name of the directory is too long:", dir, -EINVAL, "")
    got = store_listing_settled(&l, f, hardware, dir)
    if got == 0 and l.format:
        snprintf(why, why_n, "The store in %s has format %u, this version supports %u and older", dir, l.format, <unsigned int>FORMAT)
        store_listing_free(&l)
        return -1
    if got == 0:
        got = log_replay(f, hardware, dir, &l, 1, from_lsn, fn, ctx, loss)
    store_listing_free(&l)
    if got > 0:
        snprintf(why, why_n, "Stopped by its reader")
        return -1
    return 0 if got == 0 else store_refuse(f, why, why_n, "Cannot read the store in", dir, got, "")
