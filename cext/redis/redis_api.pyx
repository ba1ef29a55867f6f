# distutils: libraries = :libhiredis.a
"""Python's interface of the files of a store in Redis. This module knows the words of Redis's addresses only as arguments; the
control plane reads addresses. A broker with its store in Redis loads it, as the unit `mosq._redis`."""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset, strncmp

from cext.redis.connection cimport Redis, RedisPlace, redis_append, redis_connect, redis_disconnect, redis_fini, redis_leave, redis_reply
from cext.redis.files cimport LOG_ENDED, Confirmations, RemoteFiles, log_files_free, log_files_open, log_files_sync, log_files_table, memory_is_low
from cext.redis.hiredis cimport (
    REDIS_REPLY_ARRAY, REDIS_REPLY_ERROR, REDIS_REPLY_INTEGER, REDIS_REPLY_NIL, freeReplyObject, redisReply,
)
from cext.store.file cimport FILE_LOST, FileOps


cdef void table_free(object capsule) noexcept:
    free(PyCapsule_GetPointer(capsule, "mosq.FileOps"))


cdef redisReply* primary_reply(Redis* r, int n, const char** words, const size_t* lengths) noexcept nogil:
    """Send a command, again to the next place after a replica that takes no writes. NULL = failed, with r.why."""
    cdef redisReply* reply
    cdef uint32_t left = r.n_places
    while True:
        reply = NULL
        left -= 1
        if (r.c != NULL or redis_connect(r) == 0) and redis_append(r, n, words, lengths):
            reply = redis_reply(r)
        if reply == NULL or reply.type != REDIS_REPLY_ERROR or strncmp(reply.str, b"READONLY", 8) != 0 or left == 0:
            return reply
        freeReplyObject(reply)
        redis_leave(r)


class RedisError(OSError):
    """Redis cannot be reached, refuses a command, or has lost the store. The text says which."""


cdef char* text_of(object given) except? NULL:
    """Return a copy of a text, to be freed; NULL for None."""
    cdef bytes raw
    cdef char* out
    if given is None:
        return NULL
    raw = given.encode() if isinstance(given, str) else given
    if b"\0" in raw:
        raise ValueError("a zero byte in an argument for Redis")
    out = <char*>malloc(len(raw) + 1)
    if out == NULL:
        raise MemoryError
    memcpy(out, <const char*>raw, len(raw) + 1)
    return out


def little_memory_left(bytes info, bint was):
    """Return whether Redis has little memory left, from its reply to INFO. `was`: the answer before."""
    return bool(memory_is_low(info, was))


cdef object value_of(const redisReply* reply):
    if reply.type == REDIS_REPLY_INTEGER:
        return reply.integer
    if reply.type == REDIS_REPLY_NIL:
        return None
    if reply.type == REDIS_REPLY_ARRAY:
        return [value_of(reply.element[i]) for i in range(reply.elements)]
    return (<const char*>reply.str)[:reply.len]


cdef class RedisConnection:
    """A connection, opened by the first command. `places`: (host, port) of Redis, or a path for the host; with `service`, the name
    of the primary, they are Sentinels. One thread uses it at a time."""
    cdef Redis r
    cdef object user_of_it

    def __cinit__(self, places, service=None, user=None, password=None, sentinel_password=None, uint32_t database=0, uint32_t timeout_ms=2000):
        cdef uint32_t i
        memset(&self.r, 0, sizeof(Redis))
        if not places:
            raise ValueError("no place of Redis")
        self.r.places = <RedisPlace*>calloc(len(places), sizeof(RedisPlace))
        if self.r.places == NULL:
            raise MemoryError
        self.r.n_places = <uint32_t>len(places)
        for i, (host, port) in enumerate(places):
            self.r.places[i].host = text_of(host)
            self.r.places[i].port = port
        self.r.service = text_of(service)
        self.r.user = text_of(user)
        self.r.password = text_of(password)
        self.r.sentinel_password = text_of(sentinel_password)
        self.r.database = database
        self.r.timeout_ms = max(timeout_ms, <uint32_t>10)

    def __dealloc__(self):
        redis_fini(&self.r)

    def call(self, *words):
        """Send a command and return its reply: bytes, an int, None or a list. Raise RedisError."""
        cdef int n = <int>len(words)
        cdef const char** texts
        cdef size_t* lengths
        cdef redisReply* reply
        if self.user_of_it is not None:
            raise ValueError("the connection belongs to the files of a store")
        raw = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        texts = <const char**>calloc(n + 1, sizeof(char*))
        lengths = <size_t*>calloc(n + 1, sizeof(size_t))
        if texts == NULL or lengths == NULL:
            free(texts)
            free(lengths)
            raise MemoryError
        for i, word in enumerate(raw):
            texts[i] = <const char*><bytes>word
            lengths[i] = len(word)
        with nogil:
            reply = primary_reply(&self.r, n, texts, lengths)
        free(texts)
        free(lengths)
        if reply == NULL:
            raise RedisError(self.r.why.decode("utf-8", "replace"))
        try:
            if reply.type == REDIS_REPLY_ERROR:
                raise RedisError((<const char*>reply.str)[:reply.len].decode("utf-8", "replace"))
            return value_of(reply)
        finally:
            freeReplyObject(reply)

    def close(self):
        """Close the connection. The next command opens it again."""
        if self.user_of_it is None:
            redis_disconnect(&self.r)


cdef class LogFiles:
    """The files of a store in Redis, as `Engine.persist(files=...)` takes them: taken for this process with `token`, which must be
    greater than that of any earlier owner; 0 = the next token. `replicas`: that many replicas must have an operation before it
    counts. Of `all_replicas`, those that are in step must have it, too, or be silent for four seconds; `in_step` is their number at
    first, 0 = find out. `create`: the store may be new. Raise RedisError.

    Close the store before the files."""
    cdef RemoteFiles f
    cdef RedisConnection connection
    cdef bint is_open

    def __cinit__(self, RedisConnection connection not None, name, uint64_t token=0, uint32_t replicas=0, bint create=True, uint32_t all_replicas=0,
                  uint32_t in_step=0):
        cdef int got
        cdef bytes raw = name.encode()
        cdef const char* text = raw
        cdef Confirmations wanted
        if connection.user_of_it is not None:
            raise ValueError("the connection belongs to the files of another store")
        wanted.replicas = replicas
        wanted.all_replicas = all_replicas
        wanted.in_step = in_step
        with nogil:
            got = log_files_open(&self.f, &connection.r, text, token, wanted, create)
        if got != 0:
            log_files_free(&self.f)
            redis_disconnect(&connection.r)
            raise RedisError(self.f.why.decode("utf-8", "replace"))
        self.connection = connection
        connection.user_of_it = name
        self.is_open = 1

    def __dealloc__(self):
        log_files_free(&self.f)

    @property
    def token(self):
        return self.f.token

    @property
    def ended(self):
        """Return whether another process has the store, or Redis has lost it: nothing can be written any more."""
        return self.f.state == LOG_ENDED

    @property
    def why_ended(self):
        """Return the reason, when `ended` is true. Any thread."""
        return self.f.why.decode("utf-8", "replace")

    def counts(self):
        """Return the numbers of operations: given, applied, confirmed by the replicas, and sent again; of reads; and of replicas
        that are in step."""
        return {"given": self.f.number, "applied": self.f.applied, "safe": self.f.safe, "resent": self.f.resent,
                "reads": self.f.reads, "in step": self.f.in_step}

    def file_ops(self):
        """Return the file operations as a capsule, valid while this object exists."""
        cdef FileOps* table
        if not self.is_open:
            raise ValueError("the files are closed")
        table = <FileOps*>malloc(sizeof(FileOps))
        if table == NULL:
            raise MemoryError
        log_files_table(&self.f, table)
        return PyCapsule_New(table, "mosq.FileOps", table_free)

    def close(self):
        """Send all operations that wait, and close the connection. Raise RedisError if Redis does not have all operations."""
        cdef int got
        if not self.is_open:
            return
        self.is_open = 0
        with nogil:
            got = log_files_sync(&self.f)
            if got == -FILE_LOST:       # nothing is missing now
                got = 0
        log_files_free(&self.f)
        self.connection.user_of_it = None
        self.connection.close()
        if got != 0:
            raise RedisError(self.f.why.decode("utf-8", "replace"))
