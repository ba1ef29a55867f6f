# What the broker room calls of this one.
from cext.broker.link cimport Link, Links

cdef void link_free(Link* l) noexcept nogil                  # and its specs
cdef void links_free(Links* links) noexcept nogil            # when nothing runs any more
cdef void links_prepare(Links* links) noexcept nogil         # its ops; its room is the caller's to make
