"""A disk in Python, for tests: an object whose methods have the names of FileOps and return the result of the operation, or
-errno.

An exception in one of them is a mistake in the test. It is stored in the object's attribute `broken`, and the call fails with
EIO.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from cext.store.file cimport FileOps, file_error_text, file_name_fn, file_ops_of


cdef int disk_open(void* ctx, const char* path, int flags) noexcept with gil:
    try:
        return (<object>ctx).open(path.decode(), flags)
    except BaseException as e:
        return disk_broke(ctx, e)


cdef int disk_close(void* ctx, int fd) noexcept with gil:
    try:
        return (<object>ctx).close(fd)
    except BaseException as e:
        return disk_broke(ctx, e)


cdef int64_t disk_pread(void* ctx, int fd, void* p, uint64_t n, uint64_t at) noexcept with gil:
    try:
        data = (<object>ctx).pread(fd, n, at)
        if isinstance(data, int):
            return data
        memcpy(p, <const char*><bytes>data, len(data))
        return len(data)
    except BaseException as e:
        return disk_broke(ctx, e)


cdef int64_t disk_pwrite(void* ctx, int fd, const void* p, uint64_t n, uint64_t at) noexcept with gil:
    try:
        return (<object>ctx).pwrite(fd, (<const char*>p)[:n], at)
    except BaseException as e:
        return disk_broke(ctx, e)


cdef int disk_datasync(void* ctx, int fd) noexcept with gil:
    try:
        return (<object>ctx).datasync(fd)
    except BaseException as e:
        return disk_broke(ctx, e)


cdef int disk_truncate(void* ctx, int fd, uint64_t n) noexcept with gil:
    try:
        return (<object>ctx).truncate(fd, n)
    except BaseException as e:
        return disk_broke(ctx, e)


cdef int64_t disk_size(void* ctx, int fd) noexcept with gil:
    try:
        return (<object>ctx).size(fd)
    except BaseException as e:
        return disk_broke(ctx, e)


cdef int disk_unlink(void* ctx, const char* path) noexcept with gil:
    try:
        return (<object>ctx).unlink(path.decode())
    except BaseException as e:
        return disk_broke(ctx, e)


cdef int disk_rename(void* ctx, const char* path, const char* target) noexcept with gil:
    try:
        return (<object>ctx).rename(path.decode(), target.decode())
    except BaseException as e:
        return disk_broke(ctx, e)


cdef int disk_mkdir(void* ctx, const char* path) noexcept with gil:
    return 0


cdef int disk_sync_dir(void* ctx, const char* path) noexcept with gil:
    try:
        return (<object>ctx).sync_dir(path.decode())
    except BaseException as e:
        return disk_broke(ctx, e)


cdef int disk_names(void* ctx, const char* path, file_name_fn each, void* arg) noexcept with gil:
    cdef bytes raw
    cdef const char* p
    cdef int got = 0
    try:
        for name in (<object>ctx).names(path.decode()):
            raw = name.encode()
            p = raw
            with nogil:
                got = each(arg, p)
            if got:
                break
        return got
    except BaseException as e:
        return disk_broke(ctx, e)


cdef int disk_lock(void* ctx, int fd) noexcept with gil:
    return 0


cdef int disk_low(void* ctx) noexcept with gil:
    try:
        return (<object>ctx).low()
    except BaseException as e:
        return disk_broke(ctx, e)


cdef int disk_broke(void* ctx, object e) noexcept:
    (<object>ctx).broken = e            # a mistake in the test, which checks this attribute
    return -5


cdef int name_collect(void* arg, const char* name) noexcept with gil:
    (<list>arg).append(name.decode())
    return 0


cdef class CalledFiles:
    """Calls the file operations of `disk`, an object with a method file_ops(). Each method returns the result of the operation, or
    -errno."""
    cdef FileOps f
    cdef object disk

    def __cinit__(self, disk):
        self.f = file_ops_of(disk)
        self.disk = disk

    def open(self, path, int flags):
        cdef bytes raw = path.encode()
        cdef const char* p = raw
        cdef int got
        with nogil:
            got = self.f.open(self.f.ctx, p, flags)
        return got

    def close(self, int fd):
        return self.f.close(self.f.ctx, fd)

    def pread(self, int fd, uint64_t n, uint64_t at):
        """Return bytes, or -errno."""
        cdef char* p = <char*>malloc(n + 1)
        cdef int64_t got
        with nogil:
            got = self.f.pread(self.f.ctx, fd, p, n, at)
        out = got if got < 0 else (<const char*>p)[:got]
        free(p)
        return out

    def pwrite(self, int fd, bytes data, uint64_t at):
        cdef const char* p = data
        cdef uint64_t n = len(data)
        cdef int64_t got
        with nogil:
            got = self.f.pwrite(self.f.ctx, fd, p, n, at)
        return got

    def datasync(self, int fd):
        cdef int got
        with nogil:
            got = self.f.datasync(self.f.ctx, fd)
        return got

    def truncate(self, int fd, uint64_t n):
        return self.f.truncate(self.f.ctx, fd, n)

    def size(self, int fd):
        return self.f.size(self.f.ctx, fd)

    def unlink(self, path):
        cdef bytes raw = path.encode()
        return self.f.unlink(self.f.ctx, raw)

    def rename(self, path, target):
        cdef bytes raw = path.encode()
        cdef bytes raw_target = target.encode()
        return self.f.rename(self.f.ctx, raw, raw_target)

    def names(self, path):
        cdef bytes raw = path.encode()
        out = []
        self.f.names(self.f.ctx, raw, name_collect, <void*>out)
        return out

    def why(self, int error):
        """Return the text of -errno that the last call returned."""
        cdef char text[512]
        file_error_text(&self.f, error, text, sizeof(text))
        return text.decode()


cdef void file_ops_free(object capsule) noexcept:
    free(PyCapsule_GetPointer(capsule, "mosq.FileOps"))


def file_ops(disk):
    """Return the file operations of `disk` as PyStore, PyReader and PyJournal take them: a capsule. It is valid while `disk`
    exists."""
    cdef FileOps* f = <FileOps*>malloc(sizeof(FileOps))
    if f == NULL:
        raise MemoryError
    f.ctx = <void*>disk
    f.open = disk_open
    f.close = disk_close
    f.pread = disk_pread
    f.pwrite = disk_pwrite
    f.datasync = disk_datasync
    f.truncate = disk_truncate
    f.size = disk_size
    f.unlink = disk_unlink
    f.rename = disk_rename
    f.mkdir = disk_mkdir
    f.sync_dir = disk_sync_dir
    f.names = disk_names
    f.lock = disk_lock
    f.explain = NULL
    f.low = NULL
    f.read_many = NULL
    if hasattr(disk, "low"):
        f.low = disk_low
    f.place = NULL
    f.unreserved = getattr(disk, "unreserved", False)
    f.deferred = getattr(disk, "deferred", False)
    return PyCapsule_New(f, "mosq.FileOps", file_ops_free)
