"""Free an ended session when nothing refers to it: no job, no record of the open batch, no subscription."""

from cext.broker.core.broker cimport Broker
from cext.broker.routing.plugin_gate cimport plugin_gate_free
from cext.session.session cimport SESSION_ENDED, Session, session_free


cdef void session_release(Broker* b, Session* s) noexcept nogil:
    if s.flags & SESSION_ENDED and s.jobs == 0 and s.records == 0 and s.owner.head == NULL:
        plugin_gate_free(b, s)
        session_free(&b.sessions, s)


cdef void session_record_done(Broker* b, Session* s) noexcept nogil:
    s.records -= 1
    session_release(b, s)
