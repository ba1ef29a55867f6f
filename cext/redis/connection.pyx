# distutils: libraries = :libhiredis.a
"""A connection to Redis by hiredis: places in turn, Sentinels, login, timeouts. This module knows the protocol of Redis. It does
not know what the commands are for.

Invariants: a connection that failed in any way is closed, since the order of its replies is unknown. After a timeout the caller
does not know which commands were carried out. No text contains a password. Every call ends after `timeout_ms`, or a small
multiple of it while several places are tried.
"""

from libc.errno cimport EAGAIN, errno
from libc.stdint cimport uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport atoi, free
from libc.string cimport memset, strlen

from cext.redis.hiredis cimport (
    REDIS_ERR_IO, REDIS_OK, REDIS_REPLY_ARRAY, REDIS_REPLY_ERROR, freeReplyObject, redisAppendCommandArgv,
    redisAppendFormattedCommand, redisBufferWrite, redisConnectUnixWithTimeout, redisConnectWithTimeout, redisFree,
    redisGetReply, redisReply, redisSetTimeout, timeval,
)

cdef enum:
    WORDS_MAX = 16              # words of a command of redis_command


cdef void redis_disconnect(Redis* r) noexcept nogil:
    if r.c != NULL:
        redisFree(r.c)
    r.c = NULL


cdef void redis_fini(Redis* r) noexcept nogil:
    cdef uint32_t i
    redis_disconnect(r)
    for i in range(r.n_places):
        free(r.places[i].host)
    free(r.places)
    free(r.service)
    free(r.user)
    free(r.password)
    free(r.sentinel_password)
    memset(r, 0, sizeof(Redis))


cdef void connection_failed(Redis* r) noexcept nogil:
    """Close the connection, and note why."""
    cdef const char* text = b"no memory"
    if r.c != NULL:
        text = r.c.errstr
    if r.c != NULL and r.c.err == REDIS_ERR_IO and errno == EAGAIN:
        text = b"no answer in time"
    snprintf(r.why, REDIS_WHY_MAX, "Redis at %s: %s", <const char*>r.at, text)
    redis_disconnect(r)


cdef bint refused(Redis* r, redisReply* reply, const char* action) noexcept nogil:
    """Free a reply; return 1 if it is missing or an error, with r.why, and close the connection."""
    cdef bint wrong = reply == NULL or reply.type == REDIS_REPLY_ERROR
    if reply != NULL and wrong:
        snprintf(r.why, REDIS_WHY_MAX, "Redis at %s refuses %s: %s", <const char*>r.at, action, reply.str)
        redis_disconnect(r)
    if reply != NULL:
        freeReplyObject(reply)
    return wrong


cdef bint place_open(Redis* r, const char* host, int port) noexcept nogil:
    cdef timeval timeout
    timeout.tv_sec = r.timeout_ms // 1000
    timeout.tv_usec = <long>(r.timeout_ms % 1000) * 1000
    redis_disconnect(r)
    if host[0] == c'/':
        snprintf(r.at, sizeof(r.at), "%s", host)
        r.c = redisConnectUnixWithTimeout(host, timeout)
    else:
        snprintf(r.at, sizeof(r.at), "%s:%d", host, port)
        r.c = redisConnectWithTimeout(host, port, timeout)
    if r.c == NULL or r.c.err or redisSetTimeout(r.c, timeout) != REDIS_OK:
        connection_failed(r)
        return 0
    return 1


cdef bint log_in(Redis* r, const char* user, const char* password) noexcept nogil:
    cdef const char* words[3]
    cdef int n = 1
    if password == NULL:
        return 1
    words[0] = b"AUTH"
    if user != NULL:
        words[1] = user
        n = 2
    words[n] = password
    return not refused(r, redis_command(r, n + 1, words), b"the login")


cdef bint primary_find(Redis* r) noexcept nogil:
    """Ask the Sentinel of the open connection where the primary is, and connect there."""
    cdef const char* words[3]
    cdef char host[256]
    cdef redisReply* reply
    cdef int port
    if not log_in(r, NULL, r.sentinel_password):
        return 0
    words[0] = b"SENTINEL"
    words[1] = b"get-master-addr-by-name"
    words[2] = r.service
    reply = redis_command(r, 3, words)
    if reply == NULL:
        return 0
    if reply.type != REDIS_REPLY_ARRAY or reply.elements != 2 or reply.element[0].type != REDIS_REPLY_STRING \
            or reply.element[1].type != REDIS_REPLY_STRING:
        if reply.type == REDIS_REPLY_ERROR:
            snprintf(r.why, REDIS_WHY_MAX, "the Sentinel at %s refuses: %s", <const char*>r.at, reply.str)
        else:
            snprintf(r.why, REDIS_WHY_MAX, "the Sentinel at %s knows no primary of the name %s", <const char*>r.at, r.service)
        freeReplyObject(reply)
        redis_disconnect(r)
        return 0
    snprintf(host, sizeof(host), "%s", reply.element[0].str)
    port = atoi(reply.element[1].str)
    freeReplyObject(reply)
    return place_open(r, host, port)


cdef bint place_try(Redis* r, const RedisPlace* place) noexcept nogil:
    cdef const char* words[2]
    cdef char number[16]
    if not place_open(r, place.host, place.port) or (r.service != NULL and not primary_find(r)):
        return 0
    if not log_in(r, r.user, r.password):
        return 0
    if r.database == 0:
        return 1
    snprintf(number, sizeof(number), "%u", r.database)
    words[0] = b"SELECT"
    words[1] = number
    return not refused(r, redis_command(r, 2, words), b"the number of the database")


cdef int redis_connect(Redis* r) noexcept nogil:
    cdef uint32_t i, at
    for i in range(r.n_places):
        at = (r.place + i) % r.n_places
        if place_try(r, &r.places[at]):
            r.place = at
            return 0
    return -1


cdef void redis_leave(Redis* r) noexcept nogil:
    if r.service == NULL:
        r.place = (r.place + 1) % r.n_places
    redis_disconnect(r)


cdef bint redis_append(Redis* r, int n, const char** words, const size_t* lengths) noexcept nogil:
    if redisAppendCommandArgv(r.c, n, words, lengths) == REDIS_OK:
        return 1
    connection_failed(r)
    return 0


cdef bint redis_append_formatted(Redis* r, const char* command, size_t n) noexcept nogil:
    if redisAppendFormattedCommand(r.c, command, n) == REDIS_OK:
        return 1
    connection_failed(r)
    return 0


cdef bint redis_flush(Redis* r) noexcept nogil:
    cdef int done = 0
    while not done:
        if redisBufferWrite(r.c, &done) != REDIS_OK:
            connection_failed(r)
            return 0
    return 1


cdef redisReply* redis_reply(Redis* r) noexcept nogil:
    cdef void* reply = NULL
    if redisGetReply(r.c, &reply) != REDIS_OK or reply == NULL:
        connection_failed(r)
        return NULL
    return <redisReply*>reply


cdef redisReply* redis_command(Redis* r, int n, const char** words) noexcept nogil:
    cdef size_t lengths[WORDS_MAX]
    cdef int i
    for i in range(n):
        lengths[i] = strlen(words[i])
    return redis_reply(r) if redis_append(r, n, words, lengths) else NULL
