"""Access rules compiled from an acl_file. Knows topics, usernames and client ids; not clients or files.

As in Mosquitto: a client with a username is judged by its user's rules, one without by those before any `user` line; in each case denials
first, then what allows; then by the patterns, in the same order; what nothing allows is denied. Work C compiles this further.
Cost: a binary search for the user, then linear in its rules.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, qsort
from libc.string cimport memchr, memcmp, memcpy

from cext.base.view cimport View
from cext.topic.name cimport filter_covers, filter_matches


cdef int compare(View a, View b) noexcept nogil:
    cdef int order = memcmp(a.p, b.p, a.n if a.n < b.n else b.n)
    return order if order else (1 if a.n > b.n else -1 if a.n < b.n else 0)


cdef int compare_users(const void* a, const void* b) noexcept nogil:
    return compare((<AclUser*>a).name, (<AclUser*>b).name)


cdef AclUser* user_find(Acl* a, View name) noexcept nogil:
    cdef uint32_t low = 0, high = a.n_users, middle
    cdef int order
    while low < high:
        middle = (low + high) // 2
        order = compare(a.users[middle].name, name)
        if order == 0:
            return &a.users[middle]
        if order < 0:
            low = middle + 1
        else:
            high = middle
    return NULL


cdef int copy_view(View* to, View v) noexcept nogil:
    cdef uint8_t* p = <uint8_t*>malloc(<size_t>v.n + 1)
    if p == NULL:
        return -1
    if v.n:
        memcpy(p, v.p, v.n)
    to.p = p
    to.n = v.n
    return 0


cdef void chain(Acl* a, uint32_t* head, uint32_t rule, bint deny) noexcept nogil:
    """Denials to the front, others to the back."""
    cdef uint32_t* at = head
    if not deny:
        while at[0]:
            at = &a.rules[at[0] - 1].next
    a.rules[rule].next = at[0]
    at[0] = rule + 1


cdef int users_collect(Acl* a, const View* users, const uint8_t* kinds, uint32_t n) noexcept nogil:
    cdef uint32_t i, kept = 0
    for i in range(n):
        if kinds[i] == 0 and users[i].p != NULL:
            if copy_view(&a.users[a.n_users].name, users[i]) != 0:
                return -1
            a.n_users += 1
    qsort(a.users, a.n_users, sizeof(AclUser), compare_users)
    for i in range(a.n_users):
        if kept and compare(a.users[kept - 1].name, a.users[i].name) == 0:
            free(<void*>a.users[i].name.p)
        else:
            a.users[kept] = a.users[i]
            kept += 1
    a.n_users = kept
    return 0


cdef Acl* acl_new(const View* users, const View* filters, const uint8_t* kinds, const uint8_t* access, uint32_t n) noexcept nogil:
    cdef Acl* a = <Acl*>calloc(1, sizeof(Acl))
    cdef uint32_t i
    cdef uint32_t* head
    if a == NULL:
        return NULL
    a.rules = <AclRule*>calloc(n + 1, sizeof(AclRule))
    a.users = <AclUser*>calloc(n + 1, sizeof(AclUser))
    if a.rules == NULL or a.users == NULL or users_collect(a, users, kinds, n) != 0:
        acl_free(a)
        return NULL
    for i in range(n):
        if copy_view(&a.rules[i].filter, filters[i]) != 0:
            acl_free(a)
            return NULL
        a.n_rules += 1
        a.rules[i].access = access[i]
        a.rules[i].pattern = kinds[i]
        if kinds[i]:
            head = &a.patterns
        elif users[i].p == NULL:
            head = &a.anonymous
        else:
            head = &user_find(a, users[i]).first
        chain(a, head, i, access[i] == ACL_DENY)
    return a


cdef void acl_free(Acl* a) noexcept nogil:
    cdef uint32_t i
    if a == NULL:
        return
    if a.rules != NULL:
        for i in range(a.n_rules):
            free(<void*>a.rules[i].filter.p)
    if a.users != NULL:
        for i in range(a.n_users):
            free(<void*>a.users[i].name.p)
    free(a.rules)
    free(a.users)
    free(a)


# ---------------------------------------------------------------- asking

cdef bint unsafe(View v) noexcept nogil:
    """A name that would widen a pattern: with a wildcard in it."""
    return v.n and (memchr(v.p, c'+', v.n) != NULL or memchr(v.p, c'#', v.n) != NULL)


cdef bint stands_for_name(View pattern, uint32_t i) noexcept nogil:
    """Is pattern[i:i + 2] a level of its own that reads %u or %c?"""
    return (pattern.p[i] == c'%' and i + 1 < pattern.n and (pattern.p[i + 1] == c'u' or pattern.p[i + 1] == c'c')
            and (i == 0 or pattern.p[i - 1] == c'/') and (i + 2 == pattern.n or pattern.p[i + 2] == c'/'))


cdef uint8_t* expand(View pattern, View username, View client_id, View* out) noexcept nogil:
    """pattern with %u and %c filled in; to be freed. NULL: no memory, or a name it asks for is missing or unsafe."""
    cdef size_t size = <size_t>pattern.n + 1
    cdef uint32_t i, n = 0
    cdef uint8_t* bytes
    cdef View name
    for i in range(pattern.n):
        if stands_for_name(pattern, i):
            name = username if pattern.p[i + 1] == c'u' else client_id
            if name.p == NULL or unsafe(name):
                return NULL
            size += name.n
    bytes = <uint8_t*>malloc(size)
    if bytes == NULL:
        return NULL
    i = 0
    while i < pattern.n:
        if stands_for_name(pattern, i):
            name = username if pattern.p[i + 1] == c'u' else client_id
            memcpy(bytes + n, name.p, name.n)
            n += name.n
            i += 2
        else:
            bytes[n] = pattern.p[i]
            n += 1
            i += 1
    out.p = bytes
    out.n = n
    return bytes


cdef bint rule_matches(AclRule* r, View username, View client_id, View topic, bint covers) noexcept nogil:
    cdef View filter = r.filter
    cdef uint8_t* owned = NULL
    cdef bint yes
    if r.pattern:
        owned = expand(r.filter, username, client_id, &filter)
        if owned == NULL:
            return 0
    yes = filter_covers(filter, topic) if covers else filter_matches(filter, topic)
    free(owned)
    return yes


cdef int judge(Acl* a, uint32_t rule, View username, View client_id, View topic, uint8_t access) noexcept nogil:
    """1: allowed, 0: denied, -1: this chain says nothing."""
    while rule:
        if (a.rules[rule - 1].access == ACL_DENY or a.rules[rule - 1].access & access) \
                and rule_matches(&a.rules[rule - 1], username, client_id, topic, 0):
            return a.rules[rule - 1].access != ACL_DENY
        rule = a.rules[rule - 1].next
    return -1


cdef uint32_t own_chain(Acl* a, View username) noexcept nogil:
    cdef AclUser* u
    if username.p == NULL:
        return a.anonymous
    u = user_find(a, username)
    return u.first if u != NULL else 0


cdef bint acl_allows(Acl* a, View username, View client_id, View topic, uint8_t access) noexcept nogil:
    cdef int verdict = judge(a, own_chain(a, username), username, client_id, topic, access)
    if verdict < 0:
        verdict = judge(a, a.patterns, username, client_id, topic, access)
    return verdict > 0


cdef bint overlaps(View a, View b) noexcept nogil:
    """Is there a topic that both filters match? Level by level; `#` ends it."""
    cdef uint32_t i = 0, j = 0, i_end, j_end
    cdef bint wild
    if a.n and b.n and (a.p[0] == c'$') != (b.p[0] == c'$') and (a.p[0] == c'$' or b.p[0] == c'$'):
        return 0                 # wildcards at the start do not reach `$` topics [v5 4.7.2-1]
    while True:
        i_end = i
        while i_end < a.n and a.p[i_end] != c'/':
            i_end += 1
        j_end = j
        while j_end < b.n and b.p[j_end] != c'/':
            j_end += 1
        if (i_end - i == 1 and a.p[i] == c'#') or (j_end - j == 1 and b.p[j] == c'#'):
            return 1
        wild = (i_end - i == 1 and a.p[i] == c'+') or (j_end - j == 1 and b.p[j] == c'+')
        if not wild and (i_end - i != j_end - j or memcmp(a.p + i, b.p + j, i_end - i) != 0):
            return 0
        if i_end == a.n or j_end == b.n:
            # `x/#` also matches `x`
            if i_end == a.n and j_end == b.n:
                return 1
            if i_end == a.n:
                return b.n - j_end == 2 and b.p[j_end + 1] == c'#'
            return a.n - i_end == 2 and a.p[i_end + 1] == c'#'
        i = i_end + 1
        j = j_end + 1


cdef bint chain_may_read(Acl* a, uint32_t rule, View username, View client_id, View filter, bint* denied) noexcept nogil:
    cdef AclRule* r
    cdef View wanted
    cdef uint8_t* owned
    cdef bint yes
    while rule:
        r = &a.rules[rule - 1]
        if r.access == ACL_DENY:
            if rule_matches(r, username, client_id, filter, 1):
                denied[0] = 1
                return 0
        elif r.access & ACL_READ:
            wanted = r.filter
            owned = NULL
            if r.pattern:
                owned = expand(r.filter, username, client_id, &wanted)
            yes = (not r.pattern or owned != NULL) and overlaps(wanted, filter)
            free(owned)
            if yes:
                return 1
        rule = r.next
    return 0


cdef bint acl_may_subscribe(Acl* a, View username, View client_id, View filter) noexcept nogil:
    cdef bint denied = 0
    if chain_may_read(a, own_chain(a, username), username, client_id, filter, &denied):
        return 1
    return not denied and chain_may_read(a, a.patterns, username, client_id, filter, &denied)


cdef bint starts(View topic, const char* prefix, uint32_t n) noexcept nogil:
    return topic.n >= n and memcmp(topic.p, prefix, n) == 0


cdef bint topic_reserved(View topic) noexcept nogil:
    cdef View bridges
    if topic.n == 0 or topic.p[0] != c'$':
        return 0
    if starts(topic, "$SYS", 4):
        bridges.p = <const uint8_t*>b"$SYS/broker/connection/+/state"
        bridges.n = 30
        return not filter_matches(bridges, topic)
    return starts(topic, "$share", 6) or starts(topic, "$CONTROL/", 9)
