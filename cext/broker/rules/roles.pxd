# The rights of users by their roles (dynamic security), compiled: a snapshot that the loop only reads. See roles.pyx.
from libc.stdint cimport uint8_t, uint32_t
from cext.base.view cimport View
from cext.broker.rules.edge cimport Trees

cdef enum:
    ROLES_UNKNOWN_USER = 0xFFFFFFFFu   # as a profile: an unknown user name
    ROLES_NONE = 0xFFFFFFFFu     # as a rule (place << 1 | allow): no rule

cdef enum:                       # the trees of a role, in this order
    RULES_SEND = 0               # client to broker
    RULES_RECEIVE = 1
    RULES_SUBSCRIBE = 2          # rules with patterns
    RULES_UNSUBSCRIBE = 3
    RULES_SUBSCRIBE_LITERAL = 4  # rules for one filter; a whole filter is one level here
    RULES_UNSUBSCRIBE_LITERAL = 5
    RULES_KINDS = 6

ctypedef struct Roles:
    Trees trees                  # root 0: the root whose edges are user names; then RULES_KINDS roots per role
    uint32_t n_roles
    uint8_t* plain               # per role: 1 = it refuses subscriptions with wildcards
    uint32_t n_profiles
    uint32_t* starts             # per profile: position of its first role in `lists`; one more entry at the end
    uint32_t* lists              # role numbers, in the order of the checks
    uint32_t anonymous           # profile of clients without a user name
    uint8_t defaults             # bits of access that is allowed without a rule: 1 read, 2 write, 4 subscribe, 8 unsubscribe
    uint32_t refs                # securities that point here

# Return an empty snapshot; NULL without memory. `lists` has n_lists role numbers, each below n_roles; those of profile i are at starts[i] to
# starts[i + 1].
cdef Roles* roles_new(uint32_t n_roles, uint32_t n_profiles, const uint32_t* starts, const uint32_t* lists, uint32_t n_lists) noexcept nogil
# Append a rule to the rules of this kind of a role. -1: no memory.
cdef int roles_rule(Roles* r, uint32_t role, int kind, View filter, uint32_t place, bint allow) noexcept nogil
cdef int roles_user(Roles* r, View name, uint32_t profile) noexcept nogil
cdef void roles_unref(Roles* r) noexcept nogil
# Return the profile of a client with this user name (username.p NULL: anonymous). It is valid as long as the snapshot.
cdef uint32_t roles_profile(const Roles* r, View username) noexcept nogil
# Return 1 if a rule or the defaults allow, 0 if a rule denies, -1 if neither decides. `access`: 1 read, 2 write, 4 subscribe, 8 unsubscribe.
# `topic`: the topic, or the filter as the client sent it ($share/GROUP/ included).
cdef int roles_verdict(const Roles* r, uint32_t profile, View username, View client_id, View topic, uint8_t access) noexcept nogil

ctypedef struct RuleFound:
    uint8_t access               # given: 1 read, 2 write, 4 subscribe, 8 unsubscribe
    bint plain                   # 1: the role refuses subscriptions with wildcards
    uint32_t role
    uint32_t rule                # place << 1 | allow

# Find the rule by which roles_verdict decides; 0: no rule. For traces, which explain a verdict.
cdef bint roles_rule_of(const Roles* r, uint32_t profile, View username, View client_id, View topic, RuleFound* found) noexcept nogil
