# Free the memory of an ended session when it is safe. See session_release.pyx.
from cext.broker.core.broker cimport Broker
from cext.session.session cimport Session

# Free the session if it has ended and no job, record or subscription points to it.
cdef void session_release(Broker* b, Session* s) noexcept nogil
# Count one of session.records as done; free the session if that was the last reference.
cdef void session_record_done(Broker* b, Session* s) noexcept nogil
