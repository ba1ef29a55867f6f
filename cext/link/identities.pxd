# Identities of QoS 2 messages: those of this log that are open, and those that other logs have sent.
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from cext.link.state cimport ForeignIdentity, LinkIn, Links, OwnIdentity

cdef OwnIdentity* own_find(Links* x, uint64_t identity) noexcept nogil
cdef OwnIdentity* own_add(Links* x, uint64_t identity, uint64_t sent) noexcept nogil      # NULL = no memory
cdef void own_drop(Links* x, OwnIdentity* o) noexcept nogil
cdef ForeignIdentity* foreign_find(Links* x, uint64_t log, uint64_t identity, uint16_t part) noexcept nogil
cdef ForeignIdentity* foreign_add(Links* x, uint32_t slot, uint64_t log, uint64_t identity, uint16_t part, uint64_t batch) noexcept nogil
# The identity is still open: all copies with it belong to this generation.
cdef void foreign_keep(Links* x, uint64_t log, uint64_t identity, uint16_t generation) noexcept nogil
cdef void foreign_release(Links* x, uint64_t log, uint64_t identity) noexcept nogil
# Forget those of a worker that do not belong to the generation; all = those of every generation.
cdef void foreign_sweep(Links* x, LinkIn* i, bint all) noexcept nogil
cdef void identities_free(Links* x, LinkIn* i) noexcept nogil           # for the end: reports nothing
