# Taking a directory: whose it is, and what is wrong with it in words that say what to do.
from cext.store.store cimport Store

cdef int refuse(char* why, size_t why_n, const char* what, const char* path, int error, const char* advice) noexcept nogil      # -1
cdef const char* advice_for(int error) noexcept nogil
cdef int lock_take(Store* s, char* why, size_t why_n) noexcept nogil            # 0 or -1
cdef int directory_check(Store* s, char* why, size_t why_n) noexcept nogil      # 0 or -1; s.store_id
