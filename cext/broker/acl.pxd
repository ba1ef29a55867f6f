# Access rules compiled from an acl_file: a snapshot that the loop only reads. See acl.pyx.
from libc.stdint cimport uint8_t, uint32_t
from cext.base.view cimport View

cdef enum:
    ACL_READ = 1
    ACL_WRITE = 2
    ACL_DENY = 4

cdef enum:
    ACL_USERS = 0               # the node whose edges are user names: each leads to where the rules of that user begin
    ACL_ANONYMOUS = 1           # where the rules before any `user` begin: for clients without a user name
    ACL_PATTERNS = 2            # where the patterns begin: for everybody
    ACL_NOBODY = 0              # as a root: a user without rules of his own

cdef enum:
    ACL_INLINE = 20             # bytes of a level that lie in its node

ctypedef struct AclNode:        # what one level of a filter leads to; 64 bytes, a cache line
    uint32_t parent
    uint32_t child              # the first of those with a literal level; 0: none (node 0 is nobody's child)
    uint32_t sibling
    uint32_t plus               # `+`, `%u` and `%c`
    uint32_t user
    uint32_t client
    uint32_t hash               # of its path
    uint32_t n                  # bytes of its level
    uint8_t here                # access of the filters that end here
    uint8_t below               # of those that go on with `#` and end
    uint8_t sub                 # of all that pass through here
    uint8_t literals            # `sub` of the literal children together
    uint8_t head[20]            # ACL_INLINE
    const uint8_t* text         # the whole level, owned, when it is longer

ctypedef struct AclSlot:
    uint32_t hash
    uint32_t node               # 0: free

ctypedef struct Acl:
    AclNode* nodes
    uint32_t n_nodes
    uint32_t cap_nodes
    AclSlot* slots              # (parent, level) to node: open addressing, at most half full
    uint32_t mask
    uint32_t refs

# rules: parallel arrays in file order; user.p NULL: the anonymous section; kinds 1: a pattern. Copies everything. NULL: no memory.
cdef Acl* acl_new(const View* users, const View* filters, const uint8_t* kinds, const uint8_t* access, uint32_t n) noexcept nogil
cdef void acl_free(Acl* a) noexcept nogil
# Where the rules of a client with this name begin (username.p NULL: anonymous). Good as long as the snapshot.
cdef uint32_t acl_root(const Acl* a, View username) noexcept nogil
# A name that holds `+` or `#` would widen a pattern: nothing is allowed to it by patterns, as in Mosquitto.
cdef bint acl_name_unsafe(View name) noexcept nogil
# May this client read (ACL_READ) or write (ACL_WRITE) the topic? root: of its username.
cdef bint acl_allows(const Acl* a, uint32_t root, View username, View client_id, View topic, uint8_t access) noexcept nogil
# Topics that no client may write, by PUBLISH or will: `$SYS` but for the state of bridges, `$share`, `$CONTROL`.
cdef bint topic_reserved(View topic) noexcept nogil
# Could any topic that the filter matches ever be read? (acl_refuse_subscribe)
cdef bint acl_may_subscribe(const Acl* a, uint32_t root, View username, View client_id, View filter) noexcept nogil
