# Items of sessions. See restore_sessions.pyx. Each function returns 0, or -1 with Restoring.wrong.
from cext.base.view cimport View
from cext.broker.handover.restoring cimport Restoring

cdef int session_arrives(Restoring* l, View body) noexcept nogil
cdef int filter_arrives(Restoring* l, View body) noexcept nogil
cdef int delivery_arrives(Restoring* l, View body) noexcept nogil
cdef int inbox_arrives(Restoring* l, View body) noexcept nogil
cdef int cursor_arrives(Restoring* l, View body) noexcept nogil
cdef int cursor_part_arrives(Restoring* l, View body) noexcept nogil
cdef int gated_arrives(Restoring* l, View body) noexcept nogil
cdef int session_complete(Restoring* l) noexcept nogil           # all items of the present session have arrived
