# distutils: libraries = :libhiredis.a
"""Files of a store as numbered operations on strings in Redis. This module knows names, contents and operations. It does not know
what is in the files.

Invariants: names, contents and sizes are known here from the claim on, because no other process changes them, so only a read
asks Redis. Operations are done in the order of their numbers, each once. An operation is kept until Redis and the replicas have
it; up to KEPT_BYTES more are kept for a failover that loses some of them. A claim comes first on each connection: it is a write,
so a WAIT that follows covers all that this primary has done before. A replica that was in step counts again, or HOLD_US pass
without it: it may be the primary of others by then (ADR 43). One thread uses it at a time.

Cost: a write is formatted once and copied into the output; a sync is one round trip, with its WAIT in it. A small read is one for
each block that was not read lately.
"""

from libc.errno cimport EAGAIN, EBADF, EEXIST, EFBIG, EIO, EMFILE, ENOENT, ENOMEM, ENOSPC, ENOTCONN, ESTALE
from libc.stdint cimport UINT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc, strtoull
from libc.string cimport memcpy, memset, strchr, strcmp, strlen, strncmp, strspn, strstr

from cext.base.clock cimport clock_monotonic_us
from cext.redis.blocks cimport BLOCK_BYTES, Block, blocks_copy, blocks_fini, blocks_filled, blocks_forget, blocks_take
from cext.redis.connection cimport (
    REDIS_WHY_MAX, Redis, redis_append, redis_append_formatted, redis_command, redis_connect, redis_disconnect, redis_flush,
    redis_leave, redis_reply,
)
from cext.redis.hiredis cimport (
    REDIS_REPLY_ARRAY, REDIS_REPLY_ERROR, REDIS_REPLY_INTEGER, REDIS_REPLY_STRING, freeReplyObject, redisFormatCommandArgv,
    redisFreeCommand, redisReply,
)
from cext.redis.scripts cimport script_apply, script_claim, script_read, script_read_many
from cext.store.file cimport FILE_LOST, FileOps, FileRange, file_name_fn

cdef extern from "<fcntl.h>" nogil:
    int O_CREAT
    int O_EXCL

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
    int poll(pollfd* fds, unsigned long n, int timeout_ms)
    short POLLIN

cdef extern from "<sys/random.h>" nogil:
    ssize_t getrandom(void* p, size_t n, unsigned int flags)

cdef enum:
    SEND_BYTES = 64 << 10       # operations are sent when they have so many bytes, without a sync
    WAITING_MAX_BYTES = 32 << 20        # operations that are not confirmed; a write behind them waits for a sync
    KEPT_BYTES = 8 << 20        # confirmed operations that are kept for a failover
    READ_BYTES = 1 << 20        # bytes of one read
    SMALL_BYTES = 16 << 10      # a read of up to so many bytes reads a block
    CONTENT_MAX = 512 << 20     # a string in Redis is not larger
    DESCRIPTORS_MAX = 4096
    TRIES = 3                   # connections of one call
    HOLD_US = 4000000           # for a replica that was in step; longer than Sentinel takes to give it another primary
    LOOK_US = 2000000           # pause between two looks for replicas that are in step again
    LOOK_MS = 50                # of such a look
    LOW_PERCENT = 80            # of the memory that Redis may use: from there on, little is left
    LOW_OVER_PERCENT = 75       # until it uses less than that
    WATCH_MS = 500              # time-out of the connection that asks for it
    CLAIM = 0
    APPLY = 1
    READ = 2
    READ_MANY = 3
    RANGES_MAX = 128            # ranges of one question


cdef inline const char* either(bint first, const char* a, const char* b) noexcept nogil:
    return a if first else b


cdef const char* text_in(const redisReply* reply) noexcept nogil:
    return either(reply.str != NULL, reply.str, b"an unexpected reply")


# ---- errors

cdef void log_ended(RemoteFiles* f, const char* reason) noexcept nogil:
    """Redis has given a final answer."""
    cdef const char* what = reason
    if strstr(reason, b"FENCED") != NULL:
        what = b"another process has taken this store"
    elif strstr(reason, b"EMPTY") != NULL:
        what = b"Redis has no such store: it was restarted empty, or it is another Redis"
    elif strstr(reason, b"MISSING") != NULL or strstr(reason, b"LOST") != NULL:
        what = b"Redis has lost operations that it had confirmed: a replica was promoted that did not have them, or an old state was restored"
    elif strstr(reason, b"DAMAGED") != NULL:
        what = b"the head of the store is damaged: another program has changed it"
    snprintf(f.why, REDIS_WHY_MAX, "Redis at %s: %s (%s)", <const char*>f.redis.at, what, reason)
    f.state = LOG_ENDED                 # from now on another thread may read the reason
    redis_disconnect(f.redis)


cdef bint is_final(const char* text) noexcept nogil:
    return strstr(text, b"FENCED") != NULL or strstr(text, b"EMPTY") != NULL or strstr(text, b"LOST ") != NULL or strstr(text, b"MISSING") != NULL \
        or strstr(text, b"DAMAGED") != NULL


cdef bint is_out_of_memory(const char* text) noexcept nogil:
    return strstr(text, b"OOM command not allowed") != NULL


cdef int log_refused(RemoteFiles* f, const char* text) noexcept nogil:
    """Redis has answered with an error that may pass: it loads its data, is a replica, or must not write. Connect again, maybe to
    another primary."""
    if strstr(text, b"READONLY") != NULL:
        snprintf(f.why, REDIS_WHY_MAX, "Redis at %s is a replica, which cannot be written to", <const char*>f.redis.at)
    else:
        snprintf(f.why, REDIS_WHY_MAX, "Redis at %s answers: %s", <const char*>f.redis.at, text)
    redis_leave(f.redis)
    return -ENOTCONN


cdef int log_disconnected(RemoteFiles* f) noexcept nogil:
    snprintf(f.why, REDIS_WHY_MAX, "%s", <const char*>f.redis.why)
    return -ENOTCONN


# ---- operations

cdef void operations_are_safe(RemoteFiles* f) noexcept nogil:
    """Redis and the replicas have all operations: free the oldest, and keep KEPT_BYTES of them."""
    cdef LogOperation* o = f.first
    f.claim_waits = 0
    f.safe = f.applied
    while o != NULL and o.number <= f.safe and f.kept_bytes > KEPT_BYTES:
        f.first = o.next
        if f.first == NULL:
            f.last = NULL
        f.kept_bytes -= o.n
        redisFreeCommand(o.command)
        free(o)
        o = f.first


cdef void operations_send(RemoteFiles* f, uint64_t most) noexcept nogil:
    """Send up to `most` operations that are not sent. A connection that fails is closed."""
    cdef uint64_t n_bytes = 0
    while f.unsent != NULL and most and f.redis.c != NULL:
        if not redis_append_formatted(f.redis, f.unsent.command, f.unsent.n):
            return
        n_bytes += f.unsent.n
        most -= 1
        f.unsent_bytes -= f.unsent.n
        f.unsent = f.unsent.next
        if n_bytes >= SEND_BYTES:
            redis_flush(f.redis)
            n_bytes = 0
    if n_bytes and f.redis.c != NULL:
        redis_flush(f.redis)


cdef LogOperation* operation_new(RemoteFiles* f, const char* kind, uint64_t content, const char** values, const size_t* lengths) noexcept nogil:
    """Format an operation with three values and the next number. NULL = no memory."""
    cdef const char* words[13]
    cdef size_t sizes[13]
    cdef char key[352]
    cdef char token[24]
    cdef char number[24]
    cdef int i
    cdef int64_t n
    cdef LogOperation* o = <LogOperation*>calloc(1, sizeof(LogOperation))
    if o == NULL:
        return NULL
    snprintf(key, sizeof(key), "%s%lu", <const char*>f.keys[3], <unsigned long>content)
    snprintf(token, sizeof(token), "%lu", <unsigned long>f.token)
    snprintf(number, sizeof(number), "%lu", <unsigned long>(f.number + 1))
    words[0] = b"EVALSHA"
    words[1] = f.shas[APPLY]
    words[2] = b"4"
    for i in range(3):
        words[3 + i] = f.keys[i]
        words[10 + i] = values[i]
    words[6] = key
    words[7] = token
    words[8] = number
    words[9] = kind
    for i in range(13):
        sizes[i] = lengths[i - 10] if i >= 10 else strlen(words[i])
    n = redisFormatCommandArgv(&o.command, 13, words, sizes)
    if n < 0:
        free(o)
        return NULL
    o.n = <uint64_t>n
    o.number = f.number + 1
    return o


cdef int operation_add(RemoteFiles* f, const char* kind, uint64_t content, const char** values, const size_t* lengths) noexcept nogil:
    """Give an operation its number, and send it if there is enough to send. Return 0 or -errno."""
    cdef LogOperation* o
    cdef int got
    if f.state == LOG_ENDED:
        return -ESTALE
    if f.kept_bytes > WAITING_MAX_BYTES:
        got = log_files_sync(f)
        if got < 0:
            return got
    o = operation_new(f, kind, content, values, lengths)
    if o == NULL:
        return -ENOMEM
    f.number += 1
    if f.last == NULL:
        f.first = o
    else:
        f.last.next = o
    f.last = o
    f.kept_bytes += o.n
    f.unsent_bytes += o.n
    if f.unsent == NULL:
        f.unsent = o
    if f.unsent_bytes >= SEND_BYTES and f.state == LOG_OPEN and f.redis.c != NULL:
        operations_send(f, UINT64_MAX)
    return 0


cdef int operation_of_texts(RemoteFiles* f, const char* kind, uint64_t content, const char* x, const char* y, const char* z) noexcept nogil:
    cdef const char* values[3]
    cdef size_t lengths[3]
    values[0] = x
    values[1] = y
    values[2] = z
    lengths[0] = strlen(x)
    lengths[1] = strlen(y)
    lengths[2] = strlen(z)
    return operation_add(f, kind, content, values, lengths)


# ---- the connection

cdef bint script_load(RemoteFiles* f, const char* text, char* sha) noexcept nogil:
    cdef const char* words[3]
    cdef redisReply* reply
    words[0] = b"SCRIPT"
    words[1] = b"LOAD"
    words[2] = text
    reply = redis_command(f.redis, 3, words)
    if reply == NULL:
        log_disconnected(f)
        return 0
    if reply.type == REDIS_REPLY_STRING:
        snprintf(sha, 41, "%s", reply.str)
    else:
        log_refused(f, text_in(reply))
    freeReplyObject(reply)
    return f.redis.c != NULL


cdef bint scripts_load(RemoteFiles* f) noexcept nogil:
    return script_load(f, script_claim(), f.shas[CLAIM]) and script_load(f, script_apply(), f.shas[APPLY]) \
        and script_load(f, script_read(), f.shas[READ]) and script_load(f, script_read_many(), f.shas[READ_MANY])


cdef bint is_number(const redisReply* reply) noexcept nogil:
    """Return whether a reply is a text of decimal digits that fits into 64 bits."""
    return reply.type == REDIS_REPLY_STRING and 0 < reply.len < 20 and strspn(reply.str, b"0123456789") == reply.len


cdef redisReply* claim(RemoteFiles* f, uint64_t token, bint first, bint create) noexcept nogil:
    """Send the claim, and return its reply. NULL = failed, with f.why."""
    cdef const char* words[12]
    cdef char given[24]
    cdef char number[24]
    cdef redisReply* reply
    snprintf(given, sizeof(given), "%lu", <unsigned long>token)
    snprintf(number, sizeof(number), "%lu", <unsigned long>f.claimed_number)
    words[0] = b"EVALSHA"
    words[1] = f.shas[CLAIM]
    words[2] = b"3"
    words[3] = f.keys[0]
    words[4] = f.keys[1]
    words[5] = f.keys[2]
    words[6] = given
    words[7] = either(first, b"-1", number)
    words[8] = either(create, b"1", b"0")
    words[9] = f.owner
    words[10] = f.keys[3]
    words[11] = f.owner_before
    reply = redis_command(f.redis, 12, words)
    if reply == NULL:
        log_disconnected(f)
    elif reply.type != REDIS_REPLY_ARRAY or reply.elements < 3:
        if reply.type == REDIS_REPLY_ERROR and is_final(reply.str):
            log_ended(f, reply.str)
        else:
            log_refused(f, text_in(reply))
        freeReplyObject(reply)
        return NULL
    elif not (is_number(reply.element[0]) and is_number(reply.element[1]) and reply.element[2].type == REDIS_REPLY_STRING):
        log_ended(f, b"DAMAGED it lacks a token or a number")
        freeReplyObject(reply)
        return NULL
    f.claim_waits = 1
    return reply


cdef int operations_again(RemoteFiles* f, uint64_t number) noexcept nogil:
    """Redis has done the operations up to `number`: send the others again. Return 0, or -ESTALE if some of them are not kept."""
    cdef LogOperation* o = f.first
    if number > f.number:
        log_ended(f, b"DAMAGED its number is above that of the last operation")
        return -ESTALE
    if number < f.number and (o == NULL or o.number > number + 1):
        log_ended(f, b"LOST operations that are not kept")
        return -ESTALE
    while o != NULL and o.number <= number:
        o = o.next
    f.lost += f.safe - min(f.safe, number)
    f.applied = number
    f.safe = min(f.safe, number)
    f.unsent = o
    f.unsent_bytes = 0
    while o != NULL:
        f.unsent_bytes += o.n
        f.resent += 1
        o = o.next
    return 0


cdef int log_connect(RemoteFiles* f) noexcept nogil:
    """Connect again, and confirm that the store is still this process's. Return 0 or -errno."""
    cdef redisReply* reply
    cdef uint64_t number
    if f.state == LOG_ENDED:
        return -ESTALE
    redis_disconnect(&f.watch)          # the primary may be another one now
    if redis_connect(f.redis) != 0:
        return log_disconnected(f)
    if not scripts_load(f):
        return -ENOTCONN
    reply = claim(f, f.token, 0, 0)
    if reply == NULL:
        return -ESTALE if f.state == LOG_ENDED else -ENOTCONN
    number = strtoull(reply.element[1].str, NULL, 10)
    freeReplyObject(reply)
    f.state = LOG_OPEN
    return operations_again(f, number)


cdef int operation_answered(RemoteFiles* f, const redisReply* reply) noexcept nogil:
    """Take the reply to the operation behind `applied`. Return 0 or -errno."""
    cdef LogOperation* o
    if reply.type == REDIS_REPLY_INTEGER:
        if not f.applied < <uint64_t>reply.integer <= f.number:     # the number of the last operation that Redis has done
            log_ended(f, b"DAMAGED its number is not that of an operation")
            return -ESTALE
        f.applied += 1
        return 0
    if reply.type != REDIS_REPLY_ERROR:
        return log_refused(f, b"a reply of an unknown type")
    if not is_out_of_memory(reply.str):
        if is_final(reply.str):
            log_ended(f, reply.str)
            return -ESTALE
        return log_refused(f, reply.str)
    f.state = LOG_FULL
    snprintf(f.why, REDIS_WHY_MAX, "Redis at %s has no memory left (its maxmemory)", <const char*>f.redis.at)
    o = f.first
    while o.number <= f.applied:
        o = o.next
    f.unsent = o
    f.unsent_bytes = 0
    while o != NULL:
        f.unsent_bytes += o.n
        o = o.next
    return -ENOSPC


cdef int operations_drain(RemoteFiles* f, uint64_t sent) noexcept nogil:
    """Take the replies to all operations up to `sent`. Return 0 or -errno."""
    cdef uint64_t number = f.applied
    cdef redisReply* reply
    cdef int got = 0, result = 0
    while number < sent:
        reply = redis_reply(f.redis)
        if reply == NULL:
            return log_disconnected(f)
        number += 1
        if result == 0:                 # the operations behind one that was refused are refused, too
            got = operation_answered(f, reply)
            result = got
        freeReplyObject(reply)
        if got == -ESTALE or got == -ENOTCONN:
            return got
    return result


cdef uint64_t sent_number(const RemoteFiles* f) noexcept nogil:
    return f.unsent.number - 1 if f.unsent != NULL else f.number


cdef bint replicas_ask(RemoteFiles* f, bint* looks) noexcept nogil:
    """Send a WAIT for all replicas that are in step; sometimes, as a look, for all that exist. Return 0 if the connection failed."""
    cdef const char* words[3]
    cdef size_t lengths[3]
    cdef char number[16]
    cdef char wait_ms[16]
    cdef uint64_t now_us = clock_monotonic_us()
    if strcmp(f.step_at, f.redis.at) != 0:      # another primary: its replicas are not known
        f.in_step = max(f.replicas, f.in_step if f.step_at[0] == 0 else 0)
        snprintf(f.step_at, sizeof(f.step_at), "%s", <const char*>f.redis.at)
        f.short_us = f.look_us = 0
    looks[0] = f.in_step < f.all_replicas and now_us >= f.look_us
    if looks[0]:
        f.look_us = now_us + LOOK_US
    snprintf(number, sizeof(number), "%u", f.all_replicas if looks[0] else f.in_step)
    snprintf(wait_ms, sizeof(wait_ms), "%u", min(f.redis.timeout_ms // 2, <uint32_t>LOOK_MS) if looks[0] else f.redis.timeout_ms // 2)
    words[0] = b"WAIT"
    words[1] = number
    words[2] = wait_ms
    lengths[0] = 4
    lengths[1] = strlen(number)
    lengths[2] = strlen(wait_ms)
    return redis_append(f.redis, 3, words, lengths)


cdef int replicas_answered(RemoteFiles* f, uint32_t n, bint looked) noexcept nogil:
    """Take the number of replicas that have all operations. Return 0 if they are enough, or -ENOTCONN: in doubt, neither done nor
    refused; the next sync asks again."""
    cdef uint64_t now_us = clock_monotonic_us()
    if n >= f.replicas and n < f.in_step:
        if f.short_us == 0:
            f.short_us = now_us
        if now_us - f.short_us >= HOLD_US:
            f.in_step = n
    if n >= f.in_step:
        f.in_step = min(n, f.all_replicas)
        f.short_us = 0
        operations_are_safe(f)
        return 0
    snprintf(f.why, REDIS_WHY_MAX, "only %u of %u replicas of Redis at %s have confirmed", n, f.in_step, <const char*>f.redis.at)
    if n < f.replicas and not looked:
        redis_leave(f.redis)            # another server may be the primary now
    return -ENOTCONN


cdef int sync_once(RemoteFiles* f) noexcept nogil:
    """Send everything and wait for Redis and the replicas. Return 0 or -errno."""
    cdef redisReply* reply
    cdef bint looks = 0
    cdef int got
    operations_send(f, 1 if f.state == LOG_FULL else UINT64_MAX)
    if f.state == LOG_FULL and f.redis.c != NULL:       # one of them shows whether there is room again
        got = operations_drain(f, sent_number(f))
        if got < 0:
            return got
        f.state = LOG_OPEN
        operations_send(f, UINT64_MAX)
    if f.redis.c == NULL or (f.replicas and not replicas_ask(f, &looks)):
        return log_disconnected(f)
    got = operations_drain(f, f.number)
    if got == -ENOTCONN or got == -ESTALE or not f.replicas:
        if got == 0:
            operations_are_safe(f)
        return got
    reply = redis_reply(f.redis)
    if reply == NULL:
        return log_disconnected(f)
    if got == 0 and reply.type == REDIS_REPLY_INTEGER:
        got = replicas_answered(f, <uint32_t>reply.integer, looks)
    elif got == 0:
        got = log_refused(f, text_in(reply))
    freeReplyObject(reply)
    return got


cdef int log_files_sync(RemoteFiles* f) noexcept nogil:
    cdef int _tries, got = 0
    if f.state == LOG_ENDED:
        return -ESTALE
    if f.safe == f.number and not f.claim_waits:
        return 0
    for _tries in range(TRIES):
        got = log_connect(f) if f.redis.c == NULL else 0
        if got == 0:
            got = sync_once(f)
        elif got == -ENOTCONN:
            return got                  # the caller tries again, after a pause
        if got == 0 and f.lost:
            snprintf(f.why, REDIS_WHY_MAX, "Redis at %s had lost %lu operations that it had confirmed: a replica was promoted that did not have "
                     "them, or an old state was restored. They were kept, and are there again", <const char*>f.redis.at, <unsigned long>f.lost)
            f.lost = 0
            return -FILE_LOST
        if got != -ENOTCONN:
            return got
    return got


# ---- files

cdef LogFile* file_named(RemoteFiles* f, const char* name) noexcept nogil:
    cdef LogFile* file = f.files
    while file != NULL and (file.name == NULL or strcmp(file.name, name) != 0):
        file = file.next
    return file


cdef char* text_copy(const char* text) noexcept nogil:
    cdef size_t n = strlen(text) + 1
    cdef char* out = <char*>malloc(n)
    if out != NULL:
        memcpy(out, text, n)
    return out


cdef LogFile* file_add(RemoteFiles* f, const char* name, uint64_t content, uint64_t size) noexcept nogil:
    cdef LogFile* file = <LogFile*>calloc(1, sizeof(LogFile))
    if file == NULL:
        return NULL
    file.name = text_copy(name)
    if file.name == NULL:
        free(file)
        return NULL
    file.content = content
    file.size = size
    file.next = f.files
    f.files = file
    return file


cdef void file_remove(RemoteFiles* f, LogFile* file) noexcept nogil:
    cdef LogFile** at = &f.files
    while at[0] != file:
        at = &at[0].next
    at[0] = file.next
    free(file.name)
    free(file.data)
    free(file)


cdef void file_unname(RemoteFiles* f, LogFile* file) noexcept nogil:
    """A file has lost its name: forget it, now or when its last descriptor is closed."""
    free(file.name)
    file.name = NULL
    if file.descriptors == 0:
        file_remove(f, file)


cdef LogFile* file_at(RemoteFiles* f, int fd) noexcept nogil:
    return f.descriptors[fd] if 0 < fd < <int>f.n_descriptors else NULL


cdef int descriptor_new(RemoteFiles* f) noexcept nogil:
    """Return a free descriptor, or -errno. 0 is none: the store takes it for `not open`."""
    cdef uint32_t i, more
    cdef LogFile** grown
    for i in range(1, f.n_descriptors):
        if f.descriptors[i] == NULL:
            return <int>i
    more = max(<uint32_t>16, f.n_descriptors * 2)
    if more > DESCRIPTORS_MAX:
        return -EMFILE
    grown = <LogFile**>realloc(f.descriptors, more * sizeof(LogFile*))
    if grown == NULL:
        return -ENOMEM
    memset(grown + f.n_descriptors, 0, (more - f.n_descriptors) * sizeof(LogFile*))
    f.descriptors = grown
    i = max(<uint32_t>1, f.n_descriptors)
    f.n_descriptors = more
    return <int>i


cdef int log_open(void* ctx, const char* path, int flags) noexcept nogil:
    cdef RemoteFiles* f = <RemoteFiles*>ctx
    cdef LogFile* file = file_named(f, path)
    cdef char content[24]
    cdef int got, fd = descriptor_new(f)
    if fd < 0:
        return fd
    if file != NULL and flags & O_CREAT and flags & O_EXCL:
        return -EEXIST
    if file == NULL:
        if not flags & O_CREAT:
            return -ESTALE if f.state == LOG_ENDED else -ENOENT
        file = file_add(f, path, f.number + 1, 0)       # the number of the operation that creates it
        if file == NULL:
            return -ENOMEM
        snprintf(content, sizeof(content), "%lu", <unsigned long>file.content)
        got = operation_of_texts(f, b"create", file.content, path, content, b"")
        if got < 0:
            file_remove(f, file)
            return got
    f.descriptors[fd] = file
    file.descriptors += 1
    return fd


cdef int log_close(void* ctx, int fd) noexcept nogil:
    cdef RemoteFiles* f = <RemoteFiles*>ctx
    cdef LogFile* file = file_at(f, fd)
    if file == NULL:
        return -EBADF
    f.descriptors[fd] = NULL
    file.descriptors -= 1
    if file.descriptors == 0 and file.name == NULL:
        operation_of_texts(f, b"drop", file.content, b"", b"", b"")     # if this fails, the next claim drops it
        file_remove(f, file)
    return 0


cdef bint is_read_behind(const RemoteFiles* f, const LogFile* file, uint64_t begin, uint64_t end) noexcept nogil:
    """Return whether an operation that Redis has not done changes these bytes."""
    cdef const LogOperation* o = f.first
    while o != NULL:
        if o.number > f.applied and o.content == file.content and o.begin < end and begin < o.end:
            return 1
        o = o.next
    return 0


cdef redisReply* log_ask(RemoteFiles* f, int n, const char** words, const size_t* lengths, int* error) noexcept nogil:
    """Send a question behind all operations, and return its reply. NULL = failed, with the -errno."""
    cdef redisReply* reply
    if f.state == LOG_OPEN:
        operations_send(f, UINT64_MAX)
    if f.redis.c == NULL or not redis_append(f.redis, n, words, lengths):
        error[0] = log_disconnected(f)
        return NULL
    error[0] = operations_drain(f, sent_number(f))
    if error[0] == -ENOTCONN or error[0] == -ESTALE:
        return NULL
    reply = redis_reply(f.redis)
    if reply == NULL:
        error[0] = log_disconnected(f)
    return reply


cdef redisReply* ranges_ask(RemoteFiles* f, int script, const LogFile* file, const FileRange* ranges, uint32_t n, int* error) noexcept nogil:
    """Ask for up to RANGES_MAX ranges of a file. Return the reply; NULL = failed, with `error`."""
    cdef const char* words[6 + 2 * RANGES_MAX]
    cdef size_t lengths[6 + 2 * RANGES_MAX]
    cdef char places[2 * RANGES_MAX][24]
    cdef char content[352]
    cdef char token[24]
    cdef int i, n_words = 6 + 2 * <int>n
    snprintf(content, sizeof(content), "%s%lu", <const char*>f.keys[3], <unsigned long>file.content)
    snprintf(token, sizeof(token), "%lu", <unsigned long>f.token)
    words[0] = b"EVALSHA"
    words[1] = f.shas[script]
    words[2] = b"2"
    words[3] = f.keys[0]
    words[4] = content
    words[5] = token
    for i in range(<int>n):
        snprintf(places[2 * i], 24, "%lu", <unsigned long>ranges[i].at)
        snprintf(places[2 * i + 1], 24, "%lu", <unsigned long>(ranges[i].at + ranges[i].n - 1))
        words[6 + 2 * i] = places[2 * i]
        words[7 + 2 * i] = places[2 * i + 1]
    for i in range(n_words):
        lengths[i] = strlen(words[i])
    f.reads += 1
    return log_ask(f, n_words, words, lengths, error)


cdef int64_t read_once(RemoteFiles* f, const LogFile* file, void* p, uint64_t n, uint64_t at) noexcept nogil:
    cdef FileRange wanted
    cdef redisReply* reply
    cdef int64_t got = 0
    cdef int failed = 0
    wanted.p = <uint8_t*>p
    wanted.at = at
    wanted.n = n
    reply = ranges_ask(f, READ, file, &wanted, 1, &failed)
    if reply == NULL:
        return failed
    if reply.type == REDIS_REPLY_STRING:
        # while Redis is full, some operations wait; all other bytes can be read
        got = -ENOSPC if f.state == LOG_FULL and is_read_behind(f, file, at, at + n) else <int64_t>min(<uint64_t>reply.len, n)
        if got > 0:
            memcpy(p, reply.str, <size_t>got)
    elif reply.type == REDIS_REPLY_ERROR and is_final(reply.str):
        log_ended(f, reply.str)
        got = -ESTALE
    else:
        got = log_refused(f, text_in(reply))
    freeReplyObject(reply)
    return got


cdef int64_t read_repeated(RemoteFiles* f, const LogFile* file, void* p, uint64_t n, uint64_t at) noexcept nogil:
    """Read from Redis, over a new connection if the present one breaks. Return the number of bytes or -errno."""
    cdef int64_t got = -ENOTCONN
    cdef int _tries
    for _tries in range(TRIES):
        got = log_connect(f) if f.redis.c == NULL else 0
        if got < 0:
            return got
        got = read_once(f, file, p, n, at)
        if got == 0:                            # the size is known: these bytes must exist
            snprintf(f.why, REDIS_WHY_MAX, "Redis at %s lacks a part of a file", <const char*>f.redis.at)
            return -EIO
        if got != -ENOTCONN:
            return got
    return got


cdef int64_t read_in_block(RemoteFiles* f, const LogFile* file, uint8_t* p, uint64_t n, uint64_t at) noexcept nogil:
    """Read through the blocks. Return the number of bytes, which may be fewer than n, or -errno."""
    cdef uint64_t begin = at - at % <uint64_t>BLOCK_BYTES
    cdef uint64_t found = blocks_copy(&f.blocks, file.content, at, p, n)
    cdef Block* block
    cdef int64_t got
    if found:
        return <int64_t>found
    block = blocks_take(&f.blocks)
    if block == NULL:
        return read_repeated(f, file, p, n, at)
    got = read_repeated(f, file, block.p, min(file.size - begin, <uint64_t>BLOCK_BYTES), begin)
    if got < 0:
        return got
    blocks_filled(&f.blocks, block, file.content, begin, <uint32_t>got)
    found = blocks_copy(&f.blocks, file.content, at, p, n)
    return <int64_t>found if found else -EIO


cdef int64_t log_pread(void* ctx, int fd, void* p, uint64_t n, uint64_t at) noexcept nogil:
    cdef RemoteFiles* f = <RemoteFiles*>ctx
    cdef LogFile* file = file_at(f, fd)
    if file == NULL:
        return -EBADF
    if f.state == LOG_ENDED:
        return -ESTALE
    if at >= file.size or n == 0:
        return 0
    n = min(min(n, file.size - at), <uint64_t>READ_BYTES)
    if file.data != NULL:
        memcpy(p, file.data + at, <size_t>n)
        return <int64_t>n
    # While Redis is full, bytes beside those that are read may wait for their write. Before its first sync this process reads each
    # byte from Redis, so that a start without Redis fails.
    if n <= SMALL_BYTES and f.state == LOG_OPEN and f.safe > f.claimed_number:
        return read_in_block(f, file, <uint8_t*>p, n, at)
    return read_repeated(f, file, p, n, at)


cdef void ranges_taken(const RemoteFiles* f, const LogFile* file, FileRange* ranges, uint32_t n, const redisReply* reply) noexcept nogil:
    """Copy the parts of a reply. While Redis is full, operations may wait that change some of them: those are left out."""
    cdef const redisReply* part
    cdef uint32_t i
    for i in range(n):
        part = reply.element[i]
        if part.type == REDIS_REPLY_STRING and not (f.state == LOG_FULL and is_read_behind(f, file, ranges[i].at, ranges[i].at + ranges[i].n)):
            ranges[i].n = min(ranges[i].n, <uint64_t>part.len)
            memcpy(ranges[i].p, part.str, <size_t>ranges[i].n)
        else:
            ranges[i].n = 0


cdef bint ranges_read(RemoteFiles* f, const LogFile* file, FileRange* ranges, uint32_t n) noexcept nogil:
    """Read up to RANGES_MAX ranges with one question. Return 0 if Redis does not answer it."""
    cdef redisReply* reply
    cdef bint answered
    cdef int failed = 0
    reply = ranges_ask(f, READ_MANY, file, ranges, n, &failed)
    if reply == NULL:
        return 0
    answered = reply.type == REDIS_REPLY_ARRAY and reply.elements == n
    if answered:
        ranges_taken(f, file, ranges, n, reply)
    freeReplyObject(reply)
    return answered


cdef void log_read_many(void* ctx, int fd, FileRange* ranges, uint32_t n) noexcept nogil:
    cdef RemoteFiles* f = <RemoteFiles*>ctx
    cdef LogFile* file = file_at(f, fd)
    cdef uint32_t i = 0, some
    while i < n and file != NULL and file.data == NULL and f.state != LOG_ENDED and f.redis.c != NULL:
        some = min(n - i, <uint32_t>RANGES_MAX)
        if not ranges_read(f, file, ranges + i, some):
            break
        i += some
    for i in range(i, n):
        ranges[i].n = 0


cdef int64_t log_pwrite(void* ctx, int fd, const void* p, uint64_t n, uint64_t at) noexcept nogil:
    cdef RemoteFiles* f = <RemoteFiles*>ctx
    cdef LogFile* file = file_at(f, fd)
    cdef const char* values[3]
    cdef size_t lengths[3]
    cdef char place[24]
    cdef int got
    if file == NULL:
        return -EBADF
    if at + n > CONTENT_MAX:
        return -EFBIG
    if n == 0:
        return 0
    lengths[0] = <size_t>snprintf(place, sizeof(place), "%lu", <unsigned long>at)
    values[0] = place
    values[1] = <const char*>p
    lengths[1] = n
    values[2] = either(at + n <= file.size, b"1", b"0")     # 1 = it needs no more memory
    lengths[2] = 1
    got = operation_add(f, b"write", file.content, values, lengths)
    if got < 0:
        return got
    f.last.content = file.content
    f.last.begin = min(at, file.size)
    f.last.end = at + n
    blocks_forget(&f.blocks, file.content, at)
    file.size = max(file.size, at + n)
    return <int64_t>n


cdef int log_datasync(void* ctx, int fd) noexcept nogil:
    return log_files_sync(<RemoteFiles*>ctx)


cdef int log_sync_dir(void* ctx, const char* path) noexcept nogil:
    return log_files_sync(<RemoteFiles*>ctx)


cdef int log_truncate(void* ctx, int fd, uint64_t n) noexcept nogil:
    cdef RemoteFiles* f = <RemoteFiles*>ctx
    cdef LogFile* file = file_at(f, fd)
    cdef char size[24]
    cdef int got
    if file == NULL:
        return -EBADF
    if n > CONTENT_MAX:
        return -EFBIG
    if n == file.size:
        return 0
    snprintf(size, sizeof(size), "%lu", <unsigned long>n)
    got = operation_of_texts(f, b"cut", file.content, size, b"", b"")
    if got < 0:
        return got
    f.last.content = file.content
    f.last.begin = min(n, file.size)
    f.last.end = max(n, file.size)
    blocks_forget(&f.blocks, file.content, n)
    file.size = n
    return 0


cdef int64_t log_size(void* ctx, int fd) noexcept nogil:
    cdef LogFile* file = file_at(<RemoteFiles*>ctx, fd)
    return <int64_t>file.size if file != NULL else -EBADF


cdef int log_unlink(void* ctx, const char* path) noexcept nogil:
    cdef RemoteFiles* f = <RemoteFiles*>ctx
    cdef LogFile* file = file_named(f, path)
    cdef int got
    if file == NULL:
        return -ENOENT
    got = operation_of_texts(f, b"unlink", file.content, path, b"", either(file.descriptors != 0, b"2", b"1"))
    if got == 0:
        file_unname(f, file)
    return got


cdef int log_rename(void* ctx, const char* path, const char* target) noexcept nogil:
    cdef RemoteFiles* f = <RemoteFiles*>ctx
    cdef LogFile* file = file_named(f, path)
    cdef LogFile* old = file_named(f, target)
    cdef char* name
    cdef int got
    if file == NULL:
        return -ENOENT
    if file == old:
        return 0
    name = text_copy(target)
    if name == NULL:
        return -ENOMEM
    got = operation_of_texts(f, b"rename", old.content if old != NULL else 0, path, target,
                             either(old == NULL, b"0", either(old != NULL and old.descriptors, b"2", b"1")))
    if got < 0:
        free(name)
        return got
    if old != NULL:
        file_unname(f, old)
    free(file.name)
    file.name = name
    return 0


cdef int log_mkdir(void* ctx, const char* path) noexcept nogil:
    return 0                            # a folder is the beginning of names


# ---- files of other programs

cdef bint is_in(const LogFile* file, const char* folder, size_t n) noexcept nogil:
    return file.name != NULL and strncmp(file.name, folder, n) == 0 and file.name[n] == c'/' and strchr(file.name + n + 1, c'/') == NULL


cdef bint is_of_others(const char* folder, size_t n) noexcept nogil:
    return n > 10 and strcmp(folder + n - 10, b"/consumers") == 0


cdef void others_forget(RemoteFiles* f, const char* folder, size_t n) noexcept nogil:
    cdef LogFile* file = f.files
    cdef LogFile* following
    while file != NULL:
        following = file.next
        if file.data != NULL and file.descriptors == 0 and is_in(file, folder, n):
            file_remove(f, file)
        file = following


cdef int other_add(RemoteFiles* f, const redisReply* name, const redisReply* content) noexcept nogil:
    cdef LogFile* file = file_add(f, name.str, 0, content.len)
    if file == NULL:
        return -ENOMEM
    file.data = <char*>malloc(content.len + 1)
    if file.data == NULL:
        file_remove(f, file)
        return -ENOMEM
    memcpy(file.data, content.str, content.len)
    return 0


cdef int others_once(RemoteFiles* f, const char* folder, size_t n) noexcept nogil:
    cdef const char* words[2]
    cdef size_t lengths[2]
    cdef redisReply* reply
    cdef LogFile named
    cdef size_t i
    cdef int got = 0
    words[0] = b"HGETALL"
    words[1] = f.keys[4]
    lengths[0] = 7
    lengths[1] = strlen(f.keys[4])
    reply = log_ask(f, 2, words, lengths, &got)
    if reply == NULL:
        return got
    if reply.type != REDIS_REPLY_ARRAY:
        got = log_refused(f, text_in(reply))
        freeReplyObject(reply)
        return got
    got = 0
    others_forget(f, folder, n)
    for i in range(0, reply.elements - reply.elements % 2, 2):
        named.name = reply.element[i].str
        if got == 0 and is_in(&named, folder, n) and file_named(f, named.name) == NULL:
            got = other_add(f, reply.element[i], reply.element[i + 1])
    freeReplyObject(reply)
    return got


cdef int others_read(RemoteFiles* f, const char* folder, size_t n) noexcept nogil:
    """Take the present files of a folder that other programs write. Return 0 or -errno."""
    cdef int _tries, got = -ENOTCONN
    if f.state == LOG_ENDED:
        return -ESTALE
    for _tries in range(TRIES):
        got = log_connect(f) if f.redis.c == NULL else 0
        if got < 0:
            return got
        got = others_once(f, folder, n)
        if got != -ENOTCONN:
            return got
    return got


cdef int log_names(void* ctx, const char* path, file_name_fn each, void* arg) noexcept nogil:
    cdef RemoteFiles* f = <RemoteFiles*>ctx
    cdef LogFile* file
    cdef size_t n = strlen(path)
    cdef int stop = others_read(f, path, n) if is_of_others(path, n) else 0
    file = f.files
    while file != NULL and stop == 0:
        if is_in(file, path, n):
            stop = each(arg, file.name + n + 1)
        file = file.next
    return stop


cdef int log_lock(void* ctx, int fd) noexcept nogil:
    return 0                            # the token is the lock


cdef void log_explain(void* ctx, char* out, size_t n) noexcept nogil:
    snprintf(out, n, "%s", <const char*>(<RemoteFiles*>ctx).why)


cdef void log_files_table(RemoteFiles* f, FileOps* out) noexcept nogil:
    memset(out, 0, sizeof(FileOps))
    out.ctx = f
    out.open = log_open
    out.close = log_close
    out.pread = log_pread
    out.read_many = log_read_many
    out.pwrite = log_pwrite
    out.datasync = log_datasync
    out.truncate = log_truncate
    out.size = log_size
    out.unlink = log_unlink
    out.rename = log_rename
    out.mkdir = log_mkdir
    out.sync_dir = log_sync_dir
    out.names = log_names
    out.lock = log_lock
    out.explain = log_explain
    out.low = log_low
    out.place = b"Redis"
    out.unreserved = 1
    out.deferred = 1


# ---- the memory of Redis

cdef uint64_t info_number(const char* info, const char* field) noexcept nogil:
    """Return a number in the text of an INFO; 0 = it has no such field. `field` begins with the end of the line before."""
    cdef const char* at = strstr(info, field)
    return strtoull(at + strlen(field), NULL, 10) if at != NULL else 0


cdef bint memory_is_low(const char* info, bint was) noexcept nogil:
    cdef uint64_t used = info_number(info, b"\nused_memory:")
    cdef uint64_t limit = info_number(info, b"\nmaxmemory:")
    cdef uint64_t machine = info_number(info, b"\ntotal_system_memory:")
    cdef bint is_low = 0
    if machine:
        is_low = max(used, info_number(info, b"\nused_memory_rss:")) >= machine // 100 * (LOW_OVER_PERCENT if was else LOW_PERCENT)
    if limit:           # Redis does not count the output for replicas against it
        used -= min(used, info_number(info, b"\nmem_not_counted_for_evict:"))
        is_low |= used >= <uint64_t>(<double>limit * (LOW_OVER_PERCENT if was else LOW_PERCENT) / 100)
    return is_low


cdef bint watch_ask(RemoteFiles* f) noexcept nogil:
    """Send the next question. Return 0 if there is no connection."""
    cdef const char* words[2]
    cdef size_t lengths[2]
    words[0] = b"INFO"
    words[1] = b"memory"
    lengths[0] = 4
    lengths[1] = 6
    f.asked = (f.watch.c != NULL or redis_connect(&f.watch) == 0) and redis_append(&f.watch, 2, words, lengths) and redis_flush(&f.watch)
    return f.asked


cdef int log_low(void* ctx) noexcept nogil:
    """Ask Redis, or look for its answer. Only a new connection is waited for, for WATCH_MS at most."""
    cdef RemoteFiles* f = <RemoteFiles*>ctx
    cdef redisReply* reply
    cdef pollfd ready
    cdef int got = -ENOTCONN
    if f.state == LOG_ENDED:
        return -ESTALE
    if not f.asked or f.watch.c == NULL:
        return -EAGAIN if watch_ask(f) else -ENOTCONN
    ready.fd = f.watch.c.fd
    ready.events = POLLIN
    if poll(&ready, 1, 0) <= 0:
        return -EAGAIN
    f.asked = 0
    reply = redis_reply(&f.watch)
    if reply == NULL:
        return -ENOTCONN
    if reply.type == REDIS_REPLY_STRING:
        got = f.is_low = memory_is_low(reply.str, f.is_low)
    freeReplyObject(reply)
    return got


# ---- begin and end

cdef bint keys_make(RemoteFiles* f, const char* name) noexcept nogil:
    cdef uint8_t random[16]
    cdef int i
    if strlen(name) > 256 or strchr(name, c'{') != NULL or strchr(name, c'}') != NULL or getrandom(random, 16, 0) != 16:
        return 0
    snprintf(f.keys[0], sizeof(f.keys[0]), "mosq:{%s}:head", name)
    snprintf(f.keys[1], sizeof(f.keys[1]), "mosq:{%s}:names", name)
    snprintf(f.keys[2], sizeof(f.keys[2]), "mosq:{%s}:gone", name)
    snprintf(f.keys[3], sizeof(f.keys[3]), "mosq:{%s}:f:", name)
    snprintf(f.keys[4], sizeof(f.keys[4]), "mosq:{%s}:others", name)
    for i in range(16):
        snprintf(f.owner + 2 * i, 3, "%02x", random[i])
    return 1


cdef bint memory_policy_fits(RemoteFiles* f) noexcept nogil:
    """Redis must not evict keys to make room."""
    cdef const char* words[2]
    cdef redisReply* reply
    cdef const char* policy
    words[0] = b"INFO"
    words[1] = b"memory"
    reply = redis_command(f.redis, 2, words)
    if reply == NULL:
        log_disconnected(f)
        return 0
    policy = strstr(reply.str, b"maxmemory_policy:") if reply.type == REDIS_REPLY_STRING else NULL
    if policy != NULL and strncmp(policy, b"maxmemory_policy:noeviction", 27) != 0:
        snprintf(f.why, REDIS_WHY_MAX, "Redis at %s removes keys when its memory is full; set its maxmemory-policy to noeviction", <const char*>f.redis.at)
        redis_disconnect(f.redis)
    freeReplyObject(reply)
    return f.redis.c != NULL


cdef int files_read(RemoteFiles* f, const redisReply* reply) noexcept nogil:
    cdef size_t i
    for i in range(3, reply.elements - 2, 3):
        if file_add(f, reply.element[i].str, strtoull(reply.element[i + 1].str, NULL, 10), strtoull(reply.element[i + 2].str, NULL, 10)) == NULL:
            snprintf(f.why, REDIS_WHY_MAX, "no memory")
            return -1
    return 0


cdef int log_files_open(RemoteFiles* f, Redis* redis, const char* name, uint64_t token, Confirmations wanted, bint create) noexcept nogil:
    cdef redisReply* reply = NULL
    cdef int got, _tries
    memset(f, 0, sizeof(RemoteFiles))
    f.redis = redis
    f.replicas = wanted.replicas
    f.all_replicas = max(wanted.replicas, wanted.all_replicas)
    f.in_step = min(wanted.in_step, f.all_replicas)
    f.watch = redis[0]
    f.watch.c = NULL
    f.watch.timeout_ms = min(redis.timeout_ms, <uint32_t>WATCH_MS)
    if not keys_make(f, name):
        snprintf(f.why, REDIS_WHY_MAX, "the name of a store has at most 256 bytes, and no braces")
        return -1
    for _tries in range(TRIES + redis.n_places):     # each place may be a replica; the reply to a claim may be lost, and its owner may claim again
        if reply == NULL and f.state == LOG_OPEN:
            if redis_connect(f.redis) != 0:
                log_disconnected(f)
            elif memory_policy_fits(f) and scripts_load(f):
                reply = claim(f, token, 1, create)
    if reply == NULL:
        return -1
    f.token = strtoull(reply.element[0].str, NULL, 10)
    snprintf(f.owner_before, sizeof(f.owner_before), "%s", reply.element[2].str)
    f.number = f.applied = f.safe = f.claimed_number = strtoull(reply.element[1].str, NULL, 10)
    got = files_read(f, reply)
    freeReplyObject(reply)
    return -1 if got < 0 or log_files_sync(f) < 0 else 0


cdef void log_files_free(RemoteFiles* f) noexcept nogil:
    cdef LogOperation* o = f.first
    redis_disconnect(&f.watch)
    while o != NULL:
        f.first = o.next
        redisFreeCommand(o.command)
        free(o)
        o = f.first
    while f.files != NULL:
        file_remove(f, f.files)
    free(f.descriptors)
    blocks_fini(&f.blocks)
    f.descriptors = NULL
    f.n_descriptors = 0
    f.last = f.unsent = NULL
