# The access rules of an acl_file, compiled: a snapshot that the loop only reads. See acl.pyx.
from libc.stdint cimport uint8_t, uint32_t
from cext.base.view cimport View
from cext.broker.rules.edge cimport Trees

cdef enum:
    ACL_READ = 1
    ACL_WRITE = 2
    ACL_DENY = 4

cdef enum:
    ACL_USERS = 0               # node whose edges are user names; each leads to the root of that user's rules
    ACL_ANONYMOUS = 1           # root of the rules before any `user` line: for clients without a user name
    ACL_PATTERNS = 2            # root of the patterns: for all clients
    ACL_NO_RULES = 0              # as a root: a user without rules

ctypedef struct Acl:
    Trees trees
    uint32_t refs

# Return compiled rules, or NULL without memory. The parameters are parallel arrays in file order; user.p NULL: the anonymous section; kinds 1: a
# pattern. The function copies everything.
cdef Acl* acl_new(const View* users, const View* filters, const uint8_t* kinds, const uint8_t* access, uint32_t n) noexcept nogil
cdef void acl_free(Acl* a) noexcept nogil
# Return the root of the rules of a client with this user name (username.p NULL: anonymous). The root is valid as long as the snapshot.
cdef uint32_t acl_root(const Acl* a, View username) noexcept nogil
# Is the name unsafe? A name that contains `+` or `#` would widen a pattern. As in Mosquitto, patterns allow nothing to it.
cdef bint acl_name_unsafe(View name) noexcept nogil
cdef inline bint acl_patterned(const Acl* a) noexcept nogil:     # 1: there are patterns
    return a.trees.nodes[ACL_PATTERNS].verdict.gives.sub != 0
# Return 1 if this client may read (ACL_READ) or write (ACL_WRITE) the topic. `root` is that of its user name.
cdef bint acl_allows(const Acl* a, uint32_t root, View username, View client_id, View topic, uint8_t access) noexcept nogil
# Return 1 for topics that no client may write, by PUBLISH or will: `$SYS` except the state of bridges, `$share`, `$CONTROL`.
cdef bint topic_reserved(View topic) noexcept nogil
# Return 1 if this client may read at least one of the topics that the filter matches (acl_refuse_subscribe).
cdef bint acl_may_subscribe(const Acl* a, uint32_t root, View username, View client_id, View filter) noexcept nogil
