# The figures of all workers together (`cluster_local N`). See whole.pyx.
from libc.stdint cimport uint64_t
from cext.broker.admin.control_request cimport ControlRequest
from cext.broker.core.broker cimport Broker
from cext.broker.persist.streams cimport Stream

# Like stats_collect; of a worker, the values of all workers.
cdef void whole_collect(Broker* b, uint64_t* v) noexcept nogil
cdef void figures_begin(Broker* b) noexcept nogil           # of a worker: write the figures, and again after each FIGURES_MS
cdef void figures_timer(Broker* b) noexcept nogil
# When the broker began; of a worker, when the first one did.
cdef uint64_t whole_began_ms(Broker* b) noexcept nogil
# Write the own figures. Then out gets FIGURES_N sums, 1 if messages are observed, the time of the start, the time now, and for each worker the time of its figures.
cdef void answer_whole(Broker* b, ControlRequest* a) noexcept nogil
# Fill the gauges of a stream; of a worker, the sums of all workers.
cdef void whole_gauges(Broker* b, const Stream* s, uint64_t* v) noexcept nogil
cdef void answer_streams(Broker* b, ControlRequest* a) noexcept nogil
# Return whether the sum of a figure must not fall when a worker ends.
cdef bint figure_counts(int i) noexcept nogil
