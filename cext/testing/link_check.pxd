# What must be true in each step, and when everything is quiet.
from cext.testing.link_world cimport World

cdef void check_bounds(World* g) noexcept nogil
cdef void check_end(World* g) noexcept nogil
