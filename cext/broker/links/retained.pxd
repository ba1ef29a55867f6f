# Retained messages of workers: each topic has one owner. See retained.pyx.
from libc.stdint cimport uint8_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.session.message cimport Message

# Return the worker that owns the topic, plus 1; 0 = this one.
cdef uint8_t retained_owner(Broker* b, View topic) noexcept nogil
# This worker's retained message of a topic has changed, in the open batch: send copies to all when that is committed. Without payload: there is none.
cdef void retained_announce(Broker* b, Message* m) noexcept nogil
