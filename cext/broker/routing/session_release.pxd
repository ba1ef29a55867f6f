# When the memory of an ended session may be freed. See session_release.pyx.
from cext.broker.core.broker cimport Broker
from cext.session.session cimport Session

# Frees the session if it has ended and no job, record or subscription points to it any more.
cdef void session_release(Broker* b, Session* s) noexcept nogil
# One of session.records is done; it may be the last one that kept the session.
cdef void session_record_done(Broker* b, Session* s) noexcept nogil
