# Items of connections. See restore_clients.pyx. Each function returns 0, or -1 with Restoring.wrong.
from cext.base.view cimport View
from cext.broker.handover.restoring cimport Restoring

cdef int secrets_arrive(Restoring* l, View body) noexcept nogil
cdef int client_arrives(Restoring* l, View body) noexcept nogil
cdef int alias_arrives(Restoring* l, View body) noexcept nogil
