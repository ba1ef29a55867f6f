# A connection to Redis, for one thread at a time: open it, write commands, read their replies.
from libc.stdint cimport uint32_t
from cext.redis.hiredis cimport redisContext, redisReply

cdef enum:
    REDIS_WHY_MAX = 384         # size of an error text, including the zero byte

ctypedef struct RedisPlace:
    char* host                  # a name or an address; a path that begins with "/" is a unix socket
    int port

ctypedef struct Redis:
    RedisPlace* places          # tried in turn: Redis itself, or its Sentinels
    uint32_t n_places
    uint32_t place              # the place that worked last
    char* service               # name under which the Sentinels know the primary; NULL = no Sentinel
    char* user                  # NULL = the default user
    char* password              # NULL = none
    char* sentinel_password     # NULL = none
    uint32_t database
    uint32_t timeout_ms         # for a connect, a read and a write
    redisContext* c             # NULL = not connected
    char at[160]                # the place of the connection, for texts
    char why[384]               # size = REDIS_WHY_MAX: the last error

# Connect, find the primary, log in. Return 0, or -1 with r.why.
cdef int redis_connect(Redis* r) noexcept nogil
cdef void redis_disconnect(Redis* r) noexcept nogil
cdef void redis_leave(Redis* r) noexcept nogil          # this place is not the primary: disconnect, and begin with the next place (a Sentinel is asked again)
cdef void redis_fini(Redis* r) noexcept nogil           # disconnects, and frees the texts
# The functions below close a connection that fails, with r.why.
cdef bint redis_append(Redis* r, int n, const char** words, const size_t* lengths) noexcept nogil     # into the output; 0 = failed
cdef bint redis_append_formatted(Redis* r, const char* command, size_t n) noexcept nogil
cdef bint redis_flush(Redis* r) noexcept nogil          # send all output; 0 = failed
# Send the output and return the next reply, to be freed with freeReplyObject. NULL = failed.
cdef redisReply* redis_reply(Redis* r) noexcept nogil
# Send one command, and return its reply. NULL = failed. No reply of another command may be pending.
cdef redisReply* redis_command(Redis* r, int n, const char** words) noexcept nogil
