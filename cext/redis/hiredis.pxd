# Declarations of libhiredis: what 0.14 (Debian 12) and 1.x have in common.

cdef extern from "<sys/time.h>" nogil:
    struct timeval:
        long tv_sec
        long tv_usec

cdef extern from "<hiredis/hiredis.h>" nogil:
    int REDIS_OK
    int REDIS_ERR_IO
    int REDIS_REPLY_STRING
    int REDIS_REPLY_ARRAY
    int REDIS_REPLY_INTEGER
    int REDIS_REPLY_NIL
    int REDIS_REPLY_STATUS
    int REDIS_REPLY_ERROR
    ctypedef struct redisReply:
        int type
        long long integer
        size_t len
        char* str
        size_t elements
        redisReply** element
    ctypedef struct redisContext:
        int err
        char errstr[128]
        int fd

    redisContext* redisConnectWithTimeout(const char* host, int port, timeval timeout)
    redisContext* redisConnectUnixWithTimeout(const char* path, timeval timeout)
    int redisSetTimeout(redisContext* c, timeval timeout)
    void redisFree(redisContext* c)
    int redisAppendCommandArgv(redisContext* c, int n, const char** words, const size_t* lengths)
    int redisAppendFormattedCommand(redisContext* c, const char* command, size_t n)
    int redisFormatCommandArgv(char** out, int n, const char** words, const size_t* lengths)
    void redisFreeCommand(char* command)
    int redisBufferWrite(redisContext* c, int* done)
    int redisGetReply(redisContext* c, void** reply)
    void freeReplyObject(void* reply)
