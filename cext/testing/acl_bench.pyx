# Benchmark API of the access rules (perf/): access checks without the GIL, between two readings of the clock. Not for tests.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from cext.base.clock cimport clock_monotonic_ns
from cext.base.pybytes cimport view_of, view_or_none
from cext.base.view cimport View
from cext.broker.rules.acl cimport ACL_DENY, ACL_READ, ACL_WRITE, Acl, acl_allows, acl_free, acl_new, acl_root

ACCESS = {"read": ACL_READ, "write": ACL_WRITE, "readwrite": ACL_READ | ACL_WRITE, "deny": ACL_DENY}


cdef class AclBench:
    """rules: (user or None, 'topic' | 'pattern', access, filter); asks: (user or None, client id, topic). All texts are bytes."""
    cdef Acl* a
    cdef View* asks
    cdef uint32_t n
    cdef list keep

    def __cinit__(self, rules, asks):
        cdef uint32_t n = <uint32_t>len(rules), i
        cdef View* views = <View*>calloc(2 * n + 1, sizeof(View))
        cdef uint8_t* codes = <uint8_t*>calloc(2 * n + 1, 1)
        if views == NULL or codes == NULL:
            raise MemoryError
        for i, (user, kind, access, topic) in enumerate(rules):
            views[i] = view_or_none(user)
            views[n + i] = view_of(topic)
            codes[i] = kind == "pattern"
            codes[n + i] = <uint8_t><int>ACCESS[access]
        self.a = acl_new(views, views + n, codes, codes + n, n)
        free(views)
        free(codes)
        self.n = <uint32_t>len(asks)
        self.asks = <View*>calloc(3 * self.n + 1, sizeof(View))
        if self.a == NULL or self.asks == NULL:
            raise MemoryError
        self.keep = list(asks)
        for i, (user, client_id, topic) in enumerate(asks):
            self.asks[3 * i] = view_or_none(user)
            self.asks[3 * i + 1] = view_of(client_id)
            self.asks[3 * i + 2] = view_of(topic)

    def __dealloc__(self):
        acl_free(self.a)
        free(self.asks)

    def seconds(self, loops: int, bint known_user=True) -> tuple[float, int]:
        """Check all asks `loops` times. Return (seconds, number of allowed checks). known_user = the place of the user's rules
        was looked up before."""
        cdef uint32_t i, _, n_loops = loops
        cdef uint64_t allowed = 0, ns
        cdef View* v
        cdef uint32_t* roots = <uint32_t*>calloc(self.n + 1, sizeof(uint32_t))
        if roots == NULL:
            raise MemoryError
        for i in range(self.n):
            roots[i] = acl_root(self.a, self.asks[3 * i])
        with nogil:
            ns = clock_monotonic_ns()
            for _ in range(n_loops):
                for i in range(self.n):
                    v = self.asks + 3 * i
                    allowed += acl_allows(self.a, roots[i] if known_user else acl_root(self.a, v[0]), v[0], v[1], v[2], ACL_READ) != 0
            ns = clock_monotonic_ns() - ns
        free(roots)
        return ns * 1e-9, allowed
