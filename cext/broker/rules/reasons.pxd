# The text of the access rule that decides about a topic, for traces. See reasons.pyx.
from libc.stdint cimport uint8_t, uint32_t
from cext.base.view cimport View
from cext.broker.rules.acl cimport Acl
from cext.broker.rules.roles cimport Roles

# A question about a topic or filter, and the room for the answer.
ctypedef struct Reason:
    View username                # p NULL: none
    View client_id
    View topic
    uint8_t access               # 1 read, 2 write, 4 subscribe, 8 unsubscribe
    uint32_t n                   # bytes of the text
    uint8_t text[1024]

# Write the rule of an acl_file that decides, as in the file; "no rule" if none allows it. Return 1 if it allows.
cdef bint acl_reason(const Acl* a, Reason* r) noexcept nogil
# Write the rule of the roles that decides. Return 1: allowed, 0: denied, -1: neither a rule nor the defaults decide.
cdef int roles_reason(const Roles* roles, Reason* r) noexcept nogil
