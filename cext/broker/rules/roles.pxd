# What users may do by their roles (dynamic security), compiled: a snapshot that the loop only reads. See roles.pyx.
from libc.stdint cimport uint8_t, uint32_t
from cext.base.view cimport View
from cext.broker.rules.edge cimport Trees

cdef enum:
    ROLES_NOBODY = 0xFFFFFFFFu   # as a profile: a user name that nobody knows
    ROLES_NONE = 0xFFFFFFFFu     # as a rule (place << 1 | allow): there is none

cdef enum:                       # the trees of a role, in this order
    RULES_SEND = 0               # client to broker
    RULES_RECEIVE = 1
    RULES_SUBSCRIBE = 2          # patterns
    RULES_UNSUBSCRIBE = 3
    RULES_SUBSCRIBE_LITERAL = 4  # a whole filter is one level here
    RULES_UNSUBSCRIBE_LITERAL = 5
    RULES_KINDS = 6

ctypedef struct Roles:
    Trees trees                  # root 0: the one whose edges are user names; then RULES_KINDS roots per role
    uint32_t n_roles
    uint8_t* plain               # of each role: it refuses subscriptions with wildcards
    uint32_t n_profiles
    uint32_t* starts             # of each profile: where its roles begin in `lists`; one more at the end
    uint32_t* lists              # role numbers, in the order in which they are asked
    uint32_t anonymous           # the profile of clients without a user name
    uint8_t defaults             # bits: access that nothing forbids is allowed (1 read, 2 write, 4 subscribe, 8 unsubscribe)
    uint32_t refs                # securities that point here

# NULL: no memory. lists: n_lists role numbers, each below n_roles, profile i from starts[i] to starts[i + 1].
cdef Roles* roles_new(uint32_t n_roles, uint32_t n_profiles, const uint32_t* starts, const uint32_t* lists, uint32_t n_lists) noexcept nogil
# The next rule of this kind of a role, after those that were added before it. -1: no memory.
cdef int roles_rule(Roles* r, uint32_t role, int kind, View filter, uint32_t place, bint allow) noexcept nogil
cdef int roles_user(Roles* r, View name, uint32_t profile) noexcept nogil
cdef void roles_unref(Roles* r) noexcept nogil
# Which roles a client with this name has (username.p NULL: anonymous). Good as long as the snapshot.
cdef uint32_t roles_profile(const Roles* r, View username) noexcept nogil
# 1: allowed, 0: denied by a rule, -1: nothing is said of it. access: 1 read, 2 write, 4 subscribe, 8 unsubscribe; topic: or the filter, as
# it was written ($share/GROUP/ included).
cdef int roles_verdict(const Roles* r, uint32_t profile, View username, View client_id, View topic, uint8_t access) noexcept nogil
