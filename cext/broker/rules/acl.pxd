# Access rules compiled from an acl_file: a snapshot that the loop only reads. See acl.pyx.
from libc.stdint cimport uint8_t, uint32_t
from cext.base.view cimport View
from cext.broker.rules.edge cimport Trees

cdef enum:
    ACL_READ = 1
    ACL_WRITE = 2
    ACL_DENY = 4

cdef enum:
    ACL_USERS = 0               # the node whose edges are user names: each leads to where the rules of that user begin
    ACL_ANONYMOUS = 1           # where the rules before any `user` begin: for clients without a user name
    ACL_PATTERNS = 2            # where the patterns begin: for everybody
    ACL_NOBODY = 0              # as a root: a user without rules of his own

ctypedef struct Acl:
    Trees trees
    uint32_t refs

# rules: parallel arrays in file order; user.p NULL: the anonymous section; kinds 1: a pattern. Copies everything. NULL: no memory.
cdef Acl* acl_new(const View* users, const View* filters, const uint8_t* kinds, const uint8_t* access, uint32_t n) noexcept nogil
cdef void acl_free(Acl* a) noexcept nogil
# Where the rules of a client with this name begin (username.p NULL: anonymous). Good as long as the snapshot.
cdef uint32_t acl_root(const Acl* a, View username) noexcept nogil
# A name that holds `+` or `#` would widen a pattern: nothing is allowed to it by patterns, as in Mosquitto.
cdef bint acl_name_unsafe(View name) noexcept nogil
cdef inline bint acl_patterned(const Acl* a) noexcept nogil:     # are there any patterns?
    return a.trees.nodes[ACL_PATTERNS].verdict.gives.sub != 0
# May this client read (ACL_READ) or write (ACL_WRITE) the topic? root: of its username.
cdef bint acl_allows(const Acl* a, uint32_t root, View username, View client_id, View topic, uint8_t access) noexcept nogil
# Topics that no client may write, by PUBLISH or will: `$SYS` but for the state of bridges, `$share`, `$CONTROL`.
cdef bint topic_reserved(View topic) noexcept nogil
# Could any topic that the filter matches ever be read? (acl_refuse_subscribe)
cdef bint acl_may_subscribe(const Acl* a, uint32_t root, View username, View client_id, View filter) noexcept nogil
