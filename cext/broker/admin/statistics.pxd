# The values of all statistics, by the positions STAT_... of core/stats.pxd.
from libc.stdint cimport uint64_t
from cext.broker.core.broker cimport Broker

# Fills all STATS_N values. Two of them stay 0: STAT_DISK_COMMITS_SECOND and STAT_DISK_MESSAGES_ELIDED_PERCENT, which sys.pyx computes.
cdef void stats_collect(Broker* b, uint64_t* v) noexcept nogil
