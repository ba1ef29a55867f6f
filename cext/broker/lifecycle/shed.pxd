# Which client ends when memory_limit is exceeded. See shed.pyx.
from cext.broker.core.broker cimport Broker

# Mark the client that holds most memory to be ended, if the limit is exceeded. Call it once per turn.
cdef void shed_largest(Broker* b) noexcept nogil
