# File operations of the store: a struct of functions, so that tests can inject faults or replace the disk. Each function returns
# its result, or -errno. The storage thread calls them, and so does the thread that opens, recovers and closes the store, without
# the GIL.
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.errno cimport EIO, ENOENT
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

# Callback for one name in a directory. Return 0 to continue.
ctypedef int (*file_name_fn)(void* arg, const char* name) noexcept nogil

# A part of a file that is read into memory of the caller.
ctypedef struct FileRange:
    uint64_t at
    uint64_t n                  # bytes that are wanted, then those that were read; 0 = none
    uint8_t* p

ctypedef struct FileOps:
    void* ctx
    # `flags` are those of open(2); a new file gets mode 0600. Returns a descriptor
    int (*open)(void* ctx, const char* path, int flags) noexcept nogil
    int (*close)(void* ctx, int fd) noexcept nogil
    int64_t (*pread)(void* ctx, int fd, void* p, uint64_t n, uint64_t at) noexcept nogil           # may be a short read
    # Read ranges together, because each read takes as long as all of them. A range that cannot be read has n = 0 afterwards, and
    # is read by `pread`, which has the reason. NULL = reads are quick
    void (*read_many)(void* ctx, int fd, FileRange* ranges, uint32_t n) noexcept nogil
    int64_t (*pwrite)(void* ctx, int fd, const void* p, uint64_t n, uint64_t at) noexcept nogil    # may be a short write
    int (*datasync)(void* ctx, int fd) noexcept nogil
    int (*truncate)(void* ctx, int fd, uint64_t n) noexcept nogil
    int64_t (*size)(void* ctx, int fd) noexcept nogil
    int (*unlink)(void* ctx, const char* path) noexcept nogil
    int (*rename)(void* ctx, const char* path, const char* target) noexcept nogil      # replaces the target
    int (*mkdir)(void* ctx, const char* path) noexcept nogil                   # mode 0700
    int (*sync_dir)(void* ctx, const char* path) noexcept nogil
    int (*names)(void* ctx, const char* path, file_name_fn each, void* arg) noexcept nogil
    int (*lock)(void* ctx, int fd) noexcept nogil                              # exclusive, does not wait: -EWOULDBLOCK
    # Write why the last call failed; NULL = the system's text for the errno
    void (*explain)(void* ctx, char* out, size_t n) noexcept nogil
    # Return 1 if little room is left, so that new data shall wait until some was removed; 0 if there is enough; -EAGAIN = the
    # answer comes later, call it again for that; another -errno = it is not known. It never waits. NULL = there is no such bound
    int (*low)(void* ctx) noexcept nogil
    const char* place           # name of the place of the files, for texts; NULL = the disk
    # No room is reserved: nothing is written in advance, and free files are removed.
    uint8_t unreserved
    # All changes of all files are made in their order, but later. A datasync or sync_dir waits for all of them; until it returns 0,
    # an end of the process may lose the last ones. A call that fails has lost nothing: it is repeated after a pause.
    uint8_t deferred

cdef enum:
    FILE_LOST = 61              # ENODATA, of a datasync: changes that it had confirmed were lost and made again. Always reported
    FILE_PATH_MAX = 4096

cdef const FileOps* file_system() noexcept nogil

# The file operations of `disk`: an object whose method file_ops() returns a capsule with a FileOps (tests), or None: the
# system's.
cdef inline FileOps file_ops_of(object disk) except *:
    if disk is None:
        return file_system()[0]
    capsule = disk.file_ops()               # owns the struct
    return (<FileOps*>PyCapsule_GetPointer(capsule, "mosq.FileOps"))[0]

# Return whether an error of a write or sync passes: the file keeps all that was written to it, and the same call may be repeated.
cdef inline bint file_error_passes(const FileOps* f) noexcept nogil:
    return f.deferred

# Return whether an error of an open or a read says nothing about the content: the file may be whole, and the same call may be
# repeated. A caller that takes such a file for a damaged one loses what is in it.
cdef inline bint file_read_error_passes(const FileOps* f, int64_t error) noexcept nogil:
    return f.deferred and error < 0 and error != -EIO and error != -ENOENT

cdef void error_text(char* out, size_t n, int error) noexcept nogil         # text of -errno
cdef void file_error_text(const FileOps* f, int error, char* out, size_t n) noexcept nogil     # text of -errno, which a call just returned
# Write all n bytes, repeating after short writes and EINTR. Return 0 or -errno.
cdef int file_write(const FileOps* f, int fd, const void* p, uint64_t n, uint64_t at) noexcept nogil
# Ask the kernel to begin writing these bytes to the disk, so that a later sync takes less time. This is a hint: it guarantees
# nothing and reports no error.
cdef void file_write_out(const FileOps* f, int fd, uint64_t at, uint64_t n) noexcept nogil
# Read up to n bytes, fewer only at the end of the file. Return the number of bytes or -errno.
cdef int64_t file_read(const FileOps* f, int fd, void* p, uint64_t n, uint64_t at) noexcept nogil
