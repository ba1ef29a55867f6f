# Access rules compiled from an acl_file: a snapshot that the loop only reads.
from libc.stdint cimport uint8_t, uint32_t
from cext.base.view cimport View

cdef enum:
    ACL_READ = 1
    ACL_WRITE = 2
    ACL_DENY = 4

ctypedef struct AclRule:
    View filter
    uint8_t access              # ACL_READ | ACL_WRITE, or ACL_DENY
    uint8_t pattern             # has %u or %c to fill in
    uint32_t next               # index + 1 of the next rule in its chain; 0: end

ctypedef struct AclUser:
    View name
    uint32_t first              # index + 1 of its first rule

ctypedef struct Acl:
    AclRule* rules
    uint32_t n_rules
    AclUser* users              # sorted by name
    uint32_t n_users
    uint32_t anonymous          # index + 1: rules before any `user`, for clients without a username
    uint32_t patterns           # index + 1: rules for everybody

# rules: parallel arrays in file order; user.p NULL: the anonymous section. Copies everything. NULL: no memory.
cdef Acl* acl_new(const View* users, const View* filters, const uint8_t* kinds, const uint8_t* access, uint32_t n) noexcept nogil
cdef void acl_free(Acl* a) noexcept nogil
# May this client read (ACL_READ) or write (ACL_WRITE) the topic? username.p NULL: anonymous.
cdef bint acl_allows(Acl* a, View username, View client_id, View topic, uint8_t access) noexcept nogil
# Topics that no client may write, by PUBLISH or will: `$SYS` but for the state of bridges, `$share`, `$CONTROL`.
cdef bint topic_reserved(View topic) noexcept nogil
# Could any topic that the filter matches ever be read? (acl_refuse_subscribe)
cdef bint acl_may_subscribe(Acl* a, View username, View client_id, View filter) noexcept nogil
