# Requests of the data plane and answers of the control plane, between bytes and the records of mosq/records.py.
from cext.broker.core.broker cimport Broker

cdef object records_of()                                    # the module mosq.records
cdef list requests_take(Broker* b)
# On TypeError, AttributeError, ValueError or MemoryError none of the answers takes effect.
cdef int answers_give(Broker* b, list answers) except -1
