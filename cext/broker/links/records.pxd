# What the store keeps of links. See records.pyx.
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.link.state cimport LinkHole

cdef void record_run(Broker* b, uint64_t log, uint64_t run) noexcept nogil
# A QoS 2 message of another worker is delivered: in the batch of its deliveries.
cdef void record_identity(Broker* b, uint32_t slot, uint64_t log, uint64_t identity, uint16_t part) noexcept nogil
# The worker to which a QoS 2 message goes for a shared group, before it is sent: in the batch of what this worker delivers.
cdef void record_choice(Broker* b, uint64_t identity, uint16_t part, uint32_t slot) noexcept nogil
cdef int choice_stored(Broker* b, uint64_t identity, uint16_t part) noexcept nogil       # -1 = none was recorded in an earlier run
# Recovery: apply a RECORD_LINK_... Return -1 without memory, 1 if it is invalid. A broker that is alone ignores it.
cdef int link_record_apply(Broker* b, int kind, View body) noexcept nogil
# Cleaning: copy what is still true.
cdef void link_record_copy(Broker* b, int kind, View body) noexcept nogil

# actions of LinkOps
cdef void mark_record(void* broker, uint32_t slot, uint64_t log, uint64_t run, uint64_t number, const LinkHole* holes, uint32_t n) noexcept nogil
cdef void identity_forget(void* broker, uint32_t slot, uint64_t log, uint64_t identity) noexcept nogil
