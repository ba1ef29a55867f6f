# The files of a store in Redis: a table of file operations (cext/store/file.pxd) for the store and the journals of one process.
#
# An operation that changes something gets a number and is sent without waiting for the ones before. A sync waits until Redis, and
# `replicas` of its replicas, have all of them. After a lost connection the operations that are not confirmed are sent again; Redis
# does each number once. The token in each operation is that of the owner: after another process has taken the store with a
# greater one, Redis refuses all operations of this process.
#
# Files in a folder named `consumers` are an exception: other programs write them, into a hash of their own, and this process only
# reads them. Listing such a folder takes their present content.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.redis.blocks cimport Blocks
from cext.redis.connection cimport REDIS_WHY_MAX, Redis
from cext.store.file cimport FileOps

cdef enum:
    LOG_OPEN = 0
    LOG_FULL = 1                # Redis has no memory left: operations wait, and are sent again at the next sync
    LOG_ENDED = 2               # another owner has the store, or Redis has lost it: nothing works any more

ctypedef struct LogFile:
    LogFile* next
    char* name                  # NULL = it has no name any more, and lives until its last descriptor is closed
    uint64_t content
    uint64_t size
    uint32_t descriptors
    char* data                  # the content of a file of another program; NULL = the content is in Redis

ctypedef struct LogOperation:
    LogOperation* next
    uint64_t number
    char* command               # formatted for Redis
    uint64_t n
    uint64_t content            # of a write, the content and its bytes; 0 = not a write
    uint64_t begin
    uint64_t end

# Replicas of Redis that must have an operation before it counts.
ctypedef struct Confirmations:
    uint32_t replicas           # so many at least
    uint32_t all_replicas       # that there are when none is away
    uint32_t in_step            # that follow the primary now; 0 = not known

ctypedef struct RemoteFiles:
    Redis* redis
    Redis watch                 # a connection of its own, which asks how much memory Redis uses; the texts belong to `redis`
    char keys[5][320]           # head, names, gone, beginning of a content's key, files of other programs
    char owner[33]
    char owner_before[33]       # from which this process has taken the store; "" = the store is new
    char shas[4][41]            # of the functions in Redis: claim, apply, read, read many
    uint64_t token
    uint32_t replicas           # so many must confirm
    uint32_t all_replicas       # that there are when none is away
    uint32_t in_step            # those that confirmed all of late: they must confirm, too, or be silent for a while
    uint64_t short_us           # since when one of them does not confirm; 0 = all do
    uint64_t look_us            # when to look for more of them
    char step_at[160]           # the primary that they follow
    uint64_t claimed_number     # number of the last operation when the store was taken
    uint64_t number             # of the last operation
    uint64_t applied            # Redis has all operations up to this one
    uint64_t safe               # and so have the replicas
    LogOperation* first         # kept operations, in order: all behind `safe`, and some before it
    LogOperation* last
    LogOperation* unsent        # the first that is not sent on this connection; NULL = none
    uint64_t unsent_bytes
    uint64_t kept_bytes
    uint64_t resent             # operations that were sent again
    uint64_t lost               # confirmed operations that Redis had lost, and that were sent again; not reported yet
    uint64_t reads              # reads that have asked Redis
    Blocks blocks
    LogFile* files
    LogFile** descriptors       # index = descriptor; NULL = free
    uint32_t n_descriptors
    uint8_t state               # LOG_...
    uint8_t asked               # a question is sent over `watch`
    uint8_t is_low              # the answer before: little memory is left
    uint8_t claim_waits         # the replicas have not confirmed the last claim
    char why[384]               # size = REDIS_WHY_MAX: the last error

# Take the store `name` with `token` (0 = the next token) over a connection that belongs to `f` from now on. create = it may be
# new. Return 0, or -1 with f.why.
cdef int log_files_open(RemoteFiles* f, Redis* redis, const char* name, uint64_t token, Confirmations wanted, bint create) noexcept nogil
# Return 0; or -ENOSPC, -ENOTCONN (try again), -ESTALE (ended) or -FILE_LOST, with f.why.
cdef int log_files_sync(RemoteFiles* f) noexcept nogil
# Return whether Redis has little memory left, from its INFO; was = the answer before.
cdef bint memory_is_low(const char* info, bint was) noexcept nogil
cdef void log_files_free(RemoteFiles* f) noexcept nogil
cdef void log_files_table(RemoteFiles* f, FileOps* out) noexcept nogil
