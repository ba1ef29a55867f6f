# Files as the store uses them: a struct of functions, so that tests can put faults, or a disk of their own, in their place.
# Each returns what it is for, or -errno. They are called by the storage thread, and by who opens, recovers and closes; without the GIL.
from libc.stdint cimport int64_t, uint64_t

# A name found in a directory. 0: go on
ctypedef int (*file_name_fn)(void* arg, const char* name) noexcept nogil

ctypedef struct FileOps:
    void* ctx
    int (*open)(void* ctx, const char* path, int flags) noexcept nogil         # flags of open(2); a new file is 0600. A descriptor
    int (*close)(void* ctx, int fd) noexcept nogil
    int64_t (*pread)(void* ctx, int fd, void* p, uint64_t n, uint64_t at) noexcept nogil           # may be short
    int64_t (*pwrite)(void* ctx, int fd, const void* p, uint64_t n, uint64_t at) noexcept nogil    # may be short
    int (*datasync)(void* ctx, int fd) noexcept nogil
    int (*truncate)(void* ctx, int fd, uint64_t n) noexcept nogil
    int64_t (*size)(void* ctx, int fd) noexcept nogil
    int (*unlink)(void* ctx, const char* path) noexcept nogil
    int (*mkdir)(void* ctx, const char* path) noexcept nogil                   # 0700
    int (*sync_dir)(void* ctx, const char* path) noexcept nogil
    int (*names)(void* ctx, const char* path, file_name_fn each, void* arg) noexcept nogil
    int (*lock)(void* ctx, int fd) noexcept nogil                              # alone, without waiting: -EWOULDBLOCK

cdef enum:
    FILE_PATH_MAX = 4096

cdef const FileOps* file_system() noexcept nogil
# All n bytes, over short writes and EINTR. 0 or -errno
cdef int file_write(const FileOps* f, int fd, const void* p, uint64_t n, uint64_t at) noexcept nogil
# The disk is to begin with these bytes, so that a sync that comes later waits less. A hint: nothing is promised, nothing fails
cdef void file_write_out(const FileOps* f, int fd, uint64_t at, uint64_t n) noexcept nogil
# As many of n as there are, or -errno
cdef int64_t file_read(const FileOps* f, int fd, void* p, uint64_t n, uint64_t at) noexcept nogil
