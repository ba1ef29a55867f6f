# Take a directory for this process. A refusal names the problem and advises the user what to do.
from cext.store.file cimport FileOps
from cext.store.state cimport Store

# Write a refusal to `why`. `f`: the files whose call returned the error; NULL = another call. Always return -1.
cdef int store_refuse(const FileOps* f, char* why, size_t why_n, const char* problem, const char* path, int error, const char* advice) noexcept nogil
cdef const char* advice_for(int error) noexcept nogil
cdef int lock_take(Store* s, char* why, size_t why_n) noexcept nogil            # returns 0 or -1
cdef int directory_check(Store* s, char* why, size_t why_n) noexcept nogil      # sets s.store_id; returns 0 or -1
