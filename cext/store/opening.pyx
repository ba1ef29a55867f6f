"""Take a directory for one process, or refuse it with a text that advises what to do. This module knows the lock file and the
format number. It does not know records.

The lock is a system lock (flock) that ends with the process. The text of the lock file, the process id, is for people. A
directory with a later format is not changed.
"""

from libc.errno cimport EACCES, EAGAIN, EINVAL, ENOENT, ENOTDIR, EROFS
from libc.stdint cimport int64_t, uint64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, memset, strlen

from cext.store.file cimport FILE_PATH_MAX, file_error_text, file_read, file_write
from cext.store.format cimport FORMAT
from cext.store.replay cimport StoreListing, store_listing_free, store_listing_read
from cext.store.state cimport Store

cdef extern from "<sys/random.h>" nogil:
    ssize_t getrandom(void* p, size_t n, unsigned int flags)

cdef extern from "<unistd.h>" nogil:
    int getpid()

cdef extern from "<fcntl.h>" nogil:
    int O_RDWR
    int O_CREAT
    int O_NOFOLLOW


cdef int store_refuse(const FileOps* f, char* why, size_t why_n, const char* problem, const char* path, int error, const char* advice) noexcept nogil:
    cdef char text[384]
    if why_n:
        file_error_text(f, error, text, sizeof(text))
        snprintf(why, why_n, "%s %s: %s%s", problem, path, text, advice)
    return -1


cdef const char* advice_for(int error) noexcept nogil:
    if error == -ENOENT:
        return "; make the directory, owned by the user that the broker runs as"
    if error == -EACCES:
        return "; the user that the broker runs as must be able to write there"
    if error == -EROFS:
        return "; choose a directory on a disk that can be written to"
    if error == -ENOTDIR:
        return "; a directory is needed"
    return ""


cdef int lock_take(Store* s, char* why, size_t why_n) noexcept nogil:
    cdef FileOps* f = &s.files
    cdef char path[4096]
    cdef char pid[24]
    cdef int64_t n
    cdef int status
    if snprintf(path, FILE_PATH_MAX - 32, "%s/lock", s.dir) >= FILE_PATH_MAX - 32:
        return store_refuse(NULL, why, why_n, "The name of the directory is too long:", s.dir, -EINVAL, "")
    s.lock_fd = f.open(f.ctx, path, O_RDWR | O_CREAT | O_NOFOLLOW)
    if s.lock_fd < 0:
        return store_refuse(f, why, why_n, "Cannot write", path, s.lock_fd, advice_for(s.lock_fd))
    status = f.lock(f.ctx, s.lock_fd)
    if status < 0:
        memset(pid, 0, sizeof(pid))
        n = file_read(f, s.lock_fd, pid, sizeof(pid) - 1, 0)
        f.close(f.ctx, s.lock_fd)
        s.lock_fd = -1
        if status != -EAGAIN:
            return store_refuse(f, why, why_n, "Cannot lock", path, status, "; the file system must support locks")
        for n in range(<int64_t>strlen(pid)):
            if pid[n] < c'0' or pid[n] > c'9':
                pid[n] = 0
                break
        snprintf(why, why_n, "The store in %s is in use by another broker (process %s); stop it, or give this broker its own directory",
                 s.dir, <const char*>&pid[0] if pid[0] else <const char*>b"unknown")
        return -1
    n = snprintf(pid, sizeof(pid), "%d\n", getpid())
    status = f.truncate(f.ctx, s.lock_fd, 0)
    if status >= 0:
        status = file_write(f, s.lock_fd, pid, <uint64_t>n, 0)
    # a full disk does not prevent the start: the lock holds without its text
    return 0


cdef int directory_check(Store* s, char* why, size_t why_n) noexcept nogil:
    """Refuse a directory of a later format before anything is changed in it, and take the store id of its newest segment."""
    cdef StoreListing l
    cdef int status = store_listing_read(&l, &s.files, s.hardware, s.dir)
    if status == 0 and l.known:
        memcpy(s.store_id, l.store_id, 16)
    elif status == 0 and getrandom(s.store_id, 16, 0) != 16:
        status = -EINVAL
    if status == 0 and l.format:
        snprintf(why, why_n, "The store in %s has format %u, this version supports %u and older; use the version that wrote it, or another directory",
                 s.dir, l.format, <unsigned int>FORMAT)
        store_listing_free(&l)
        return -1
    store_listing_free(&l)
    return 0 if status == 0 else store_refuse(&s.files, why, why_n, "Cannot read", s.dir, status, advice_for(status))
