# The records of wills that other workers get. See wills.pyx.
from libc.stdint cimport uint64_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.durable cimport RestoredWill
from cext.broker.core.publication_state cimport Publication

# Before the will is routed, with `stored` if it has a record: its new record and the end of that one are in one batch, and the links send it after that
# batch. After it is routed, sent_will_hold keeps the new record until all workers that got the will have acknowledged it.
cdef void sent_will_prepare(Broker* b, Publication* p, bint stored) noexcept nogil
cdef void sent_will_hold(Broker* b, Publication* p) noexcept nogil
cdef void sent_will_again(Broker* b, RestoredWill* w) noexcept nogil         # send a will of the last process to the other workers
cdef bint is_sent_will(Broker* b, uint64_t number) noexcept nogil            # does the record with this number still count?
