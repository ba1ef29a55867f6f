"""The system's files. This module knows system calls. It does not know the content of the files. An interrupted call is repeated,
and a short one is continued."""

from libc.errno cimport EINTR, EIO, ENOMEM, errno
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdio cimport snprintf

cdef extern from "<fcntl.h>" nogil:
    int c_open "open"(const char* path, int flags, ...)
    int O_CLOEXEC
    int O_DIRECTORY
    int O_RDONLY
    int sync_file_range(int fd, int64_t at, int64_t n, unsigned int flags)
    unsigned int SYNC_FILE_RANGE_WRITE

cdef extern from "<unistd.h>" nogil:
    int c_close "close"(int fd)
    ssize_t c_pread "pread"(int fd, void* p, size_t n, int64_t at)
    ssize_t c_pwrite "pwrite"(int fd, const void* p, size_t n, int64_t at)
    int fdatasync(int fd)
    int fsync(int fd)
    int ftruncate(int fd, int64_t n)
    int c_unlink "unlink"(const char* path)
    int64_t lseek(int fd, int64_t at, int whence)
    int SEEK_END

cdef extern from "<stdio.h>" nogil:
    int c_rename "rename"(const char* path, const char* target)

cdef extern from "<string.h>" nogil:
    char* strerror_r(int error, char* out, size_t n)

cdef extern from "<sys/stat.h>" nogil:
    int c_mkdir "mkdir"(const char* path, int mode)

cdef extern from "<sys/file.h>" nogil:
    int flock(int fd, int operation)
    int LOCK_EX
    int LOCK_NB

cdef extern from "<dirent.h>" nogil:
    ctypedef struct DIR:
        pass
    struct dirent:
        char d_name[256]
    DIR* opendir(const char* path)
    dirent* readdir(DIR* d)
    int closedir(DIR* d)


cdef inline int system_result(int64_t got) noexcept nogil:
    return <int>got if got >= 0 else -errno


cdef int system_open(void* ctx, const char* path, int flags) noexcept nogil:
    cdef int fd = c_open(path, flags | O_CLOEXEC, 0o600)
    while fd < 0 and errno == EINTR:
        fd = c_open(path, flags | O_CLOEXEC, 0o600)
    return system_result(fd)


cdef int system_close(void* ctx, int fd) noexcept nogil:
    return system_result(c_close(fd))


cdef int64_t system_pread(void* ctx, int fd, void* p, uint64_t n, uint64_t at) noexcept nogil:
    cdef int64_t got = c_pread(fd, p, n, <int64_t>at)
    return got if got >= 0 else -errno


cdef int64_t system_pwrite(void* ctx, int fd, const void* p, uint64_t n, uint64_t at) noexcept nogil:
    cdef int64_t got = c_pwrite(fd, p, n, <int64_t>at)
    return got if got >= 0 else -errno


cdef int system_datasync(void* ctx, int fd) noexcept nogil:
    # Not repeated, not even after EINTR: the result of a second call is no statement about the pages of the first one.
    return system_result(fdatasync(fd))


cdef int system_truncate(void* ctx, int fd, uint64_t n) noexcept nogil:
    return system_result(ftruncate(fd, <int64_t>n))


cdef int64_t system_size(void* ctx, int fd) noexcept nogil:
    cdef int64_t got = lseek(fd, 0, SEEK_END)
    return got if got >= 0 else -errno


cdef int system_unlink(void* ctx, const char* path) noexcept nogil:
    return system_result(c_unlink(path))


cdef int system_rename(void* ctx, const char* path, const char* target) noexcept nogil:
    return system_result(c_rename(path, target))


cdef int system_mkdir(void* ctx, const char* path) noexcept nogil:
    return system_result(c_mkdir(path, 0o700))


cdef int system_sync_dir(void* ctx, const char* path) noexcept nogil:
    cdef int got, fd = c_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)
    if fd < 0:
        return -errno
    got = system_result(fsync(fd))
    c_close(fd)
    return got


cdef int system_names(void* ctx, const char* path, file_name_fn each, void* arg) noexcept nogil:
    cdef dirent* entry
    cdef int stop = 0
    cdef DIR* d = opendir(path)
    if d == NULL:
        return -errno
    entry = readdir(d)
    while entry != NULL and stop == 0:
        stop = each(arg, entry.d_name)
        entry = readdir(d)
    closedir(d)
    return stop


cdef int system_lock(void* ctx, int fd) noexcept nogil:
    return system_result(flock(fd, LOCK_EX | LOCK_NB))


cdef FileOps SYSTEM         # filled when the module is loaded, constant afterwards
SYSTEM.ctx = NULL
SYSTEM.open = system_open
SYSTEM.close = system_close
SYSTEM.pread = system_pread
SYSTEM.pwrite = system_pwrite
SYSTEM.datasync = system_datasync
SYSTEM.truncate = system_truncate
SYSTEM.size = system_size
SYSTEM.unlink = system_unlink
SYSTEM.rename = system_rename
SYSTEM.mkdir = system_mkdir
SYSTEM.sync_dir = system_sync_dir
SYSTEM.names = system_names
SYSTEM.lock = system_lock
SYSTEM.explain = NULL
SYSTEM.low = NULL
SYSTEM.read_many = NULL
SYSTEM.place = NULL
SYSTEM.unreserved = 0
SYSTEM.deferred = 0


cdef const FileOps* file_system() noexcept nogil:
    return &SYSTEM


cdef void error_text(char* out, size_t n, int error) noexcept nogil:
    cdef char text[128]
    snprintf(out, n, "%s", strerror_r(-error, text, sizeof(text)))


cdef void file_error_text(const FileOps* f, int error, char* out, size_t n) noexcept nogil:
    if f != NULL and f.explain != NULL and error != -ENOMEM:
        f.explain(f.ctx, out, n)
    else:
        error_text(out, n, error)


cdef int file_write(const FileOps* f, int fd, const void* p, uint64_t n, uint64_t at) noexcept nogil:
    cdef uint64_t done = 0
    cdef int64_t got
    while done < n:
        got = f.pwrite(f.ctx, fd, <const uint8_t*>p + done, n - done, at + done)
        if got > 0:
            done += <uint64_t>got
        elif got == 0:
            return -EIO
        elif got != -EINTR:
            return <int>got
    return 0


cdef void file_write_out(const FileOps* f, int fd, uint64_t at, uint64_t n) noexcept nogil:
    if f.pwrite == &system_pwrite:      # the disk of a test has no write-out
        sync_file_range(fd, <int64_t>at, <int64_t>n, SYNC_FILE_RANGE_WRITE)


cdef int64_t file_read(const FileOps* f, int fd, void* p, uint64_t n, uint64_t at) noexcept nogil:
    cdef uint64_t done = 0
    cdef int64_t got
    while done < n:
        got = f.pread(f.ctx, fd, <uint8_t*>p + done, n - done, at + done)
        if got > 0:
            done += <uint64_t>got
        elif got == 0:
            break
        elif got != -EINTR:
            return got
    return <int64_t>done
