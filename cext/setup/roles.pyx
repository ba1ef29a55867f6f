"""Check and compile the control plane's roles, with groups flattened. This module knows names. It does not know files, or how the lists were made.

    defaults: bits of access that is allowed without a rule (1 read, 2 write, 4 subscribe, 8 unsubscribe)
    roles: for each (refuses subscriptions with wildcards: bool, RULES_KINDS lists of (filter, allow), by priority)
    profiles: tuples of role numbers, by priority
    users: name -> position of a profile;  anonymous: the same for clients without a user name, or -1
"""

from libc.stdint cimport uint8_t, uint32_t

from cext.base.pybytes cimport view_of
from cext.broker.rules.edge cimport trees_trim
from cext.broker.rules.roles cimport (
    ROLES_UNKNOWN_USER, RULES_KINDS, RULES_SUBSCRIBE_LITERAL, Roles, roles_new, roles_rule, roles_unref, roles_user,
)

RULES_MAX = 1 << 30                      # rules of one kind of a role: a place has 31 bits, except those of ROLES_NONE


cdef Roles* roles_read(dict spec) except NULL:
    cdef list roles = list(spec["roles"])
    cdef list profiles = list(spec["profiles"])
    from array import array  # only brokers with roles load it
    starts = array("I", [0])
    lists = array("I")
    for profile in profiles:
        lists.extend(profile)
        starts.append(len(lists))
    if len(lists) and max(lists) >= len(roles):
        raise ValueError(f"a profile names role {max(lists)}; there are {len(roles)} of them")
    # not typed memoryviews: their support code is 20,000 lines of C
    cdef bytes s = starts.tobytes()
    cdef bytes l = lists.tobytes()
    cdef Roles* r = roles_new(<uint32_t>len(roles), <uint32_t>len(profiles), <const uint32_t*><const char*>s, <const uint32_t*><const char*>l,
                              <uint32_t>len(lists))
    if r == NULL:
        raise MemoryError
    try:
        r.defaults = <uint8_t><int>spec["defaults"]
        r.anonymous = <uint32_t>place_of(spec["anonymous"], len(profiles)) if spec["anonymous"] >= 0 else <uint32_t>ROLES_UNKNOWN_USER
        for number, (plain, kinds) in enumerate(roles):
            r.plain[<uint32_t>number] = bool(plain)
            rules_read(r, number, list(kinds))
        users_read(r, spec["users"], len(profiles))
        trees_trim(&r.trees)
    except BaseException:
        roles_unref(r)
        raise
    return r


cdef Py_ssize_t place_of(place, Py_ssize_t n) except -1:
    if not 0 <= place < n:
        raise ValueError(f"profile is {place}; there are {n} of them")
    return place


cdef bint is_pattern(bytes text):
    """Is this a pattern? Wildcards are whole levels, `#` is last. Unlike in a subscription, `$share/x` is allowed."""
    cdef list levels = text.split(b"/")
    cdef bytes last = levels.pop()
    return (all([level == b"+" or b"+" not in level for level in (*levels, last)]) and not any([b"#" in level for level in levels])
            and (last == b"#" or b"#" not in last))


cdef int rules_read(Roles* r, uint32_t role, list kinds) except -1:
    cdef int kind
    cdef uint32_t place
    if len(kinds) != RULES_KINDS or max(len(rules) for rules in kinds) > RULES_MAX:
        raise ValueError(f"role {role} has no rules of {RULES_KINDS} kinds")
    for kind in range(RULES_KINDS):
        for place, (text, allow) in enumerate(kinds[kind]):
            encoded = text.encode()
            if not encoded or (kind < RULES_SUBSCRIBE_LITERAL and not is_pattern(encoded)):
                raise ValueError(f"{text!r} is not a topic filter")
            if roles_rule(r, role, kind, view_of(encoded), place, bool(allow)) != 0:
                raise MemoryError
    return 0


cdef int users_read(Roles* r, dict users, Py_ssize_t n_profiles) except -1:
    for name, place in users.items():
        encoded = name.encode()
        if roles_user(r, view_of(encoded), <uint32_t>place_of(place, n_profiles)) != 0:
            raise MemoryError
    return 0
