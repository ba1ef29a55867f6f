"""Compare the times of the sources with the time of a build. This is compiled because 350 calls of stat() from Python take more
than the 1 ms that a start may spend on it (mosq/built.py)."""

from libc.stdint cimport int64_t
from libc.string cimport strcmp, strlen

cdef extern from "<sys/stat.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    struct file_status "stat":
        timespec st_mtim

cdef extern from "<fts.h>" nogil:
    ctypedef struct FTS:
        pass
    ctypedef struct FTSENT:
        unsigned short fts_info
        char* fts_path
        char* fts_name
        file_status* fts_statp
    FTS* fts_open(char** paths, int options, void* compare)
    FTSENT* fts_read(FTS* f)
    int fts_set(FTS* f, FTSENT* e, int what)
    int fts_close(FTS* f)
    int FTS_PHYSICAL, FTS_NOCHDIR, FTS_D, FTS_F, FTS_SKIP


def newer_source(folder: bytes, time_ns: int, skip: bytes) -> bytes:
    """Return the path of a .pyx, .pxd, .c or .h below `folder` that is newer than this time; b"" if there is none. Folders named `skip`
    do not count. OSError does not happen: what cannot be read is not newer."""
    cdef char* paths[2]
    cdef FTS* f
    cdef FTSENT* e
    cdef int64_t time = time_ns
    cdef const char* skipped = skip
    found = b""
    paths[0] = folder
    paths[1] = NULL
    f = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL)
    if f == NULL:
        return found
    while not found:
        e = fts_read(f)
        if e == NULL:
            break
        if e.fts_info == FTS_D and strcmp(e.fts_name, skipped) == 0:
            fts_set(f, e, FTS_SKIP)
        elif e.fts_info == FTS_F and is_source(e.fts_name):
            if <int64_t>e.fts_statp.st_mtim.tv_sec * 1000000000 + e.fts_statp.st_mtim.tv_nsec > time:
                found = e.fts_path
    fts_close(f)
    return found


cdef bint is_source(const char* name) noexcept nogil:
    cdef size_t n = strlen(name)
    return n > 4 and (strcmp(name + n - 4, b".pyx") == 0 or strcmp(name + n - 4, b".pxd") == 0 or strcmp(name + n - 2, b".c") == 0
                      or strcmp(name + n - 2, b".h") == 0)
