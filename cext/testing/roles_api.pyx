# Test API of roles: compile and evaluate them without a broker.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.clock cimport clock_monotonic_ns
from cext.base.pybytes cimport view_of, view_or_none
from cext.base.view cimport View
from cext.broker.rules.roles cimport Roles, roles_profile, roles_unref, roles_verdict
from cext.setup.roles cimport roles_read


cdef class PyRoles:
    """Compiled roles. spec has the form of Engine.set_roles."""
    cdef Roles* r

    def __cinit__(self, spec):
        self.r = roles_read(dict(spec))

    def __dealloc__(self):
        roles_unref(self.r)

    def verdict(self, user: bytes | None, client_id: bytes, topic: bytes, access: int) -> int:
        """Return 1, 0, or -1 if no rule applies."""
        cdef uint32_t profile = roles_profile(self.r, view_or_none(user))
        return roles_verdict(self.r, profile, view_or_none(user), view_of(client_id), view_of(topic), <uint8_t>access)

    def nanoseconds(self, user: bytes | None, client_id: bytes, topic: bytes, access: int, rounds: int) -> float:
        """Return the nanoseconds of one verdict as the loop computes it: the profile is known."""
        cdef uint32_t profile = roles_profile(self.r, view_or_none(user))
        cdef View u = view_or_none(user), c = view_of(client_id), t = view_of(topic)
        cdef uint8_t a = <uint8_t>access
        cdef int verdict = 0
        cdef long n = rounds, _
        cdef uint64_t ns
        with nogil:
            ns = clock_monotonic_ns()
            for _ in range(n):
                verdict += roles_verdict(self.r, profile, u, c, t, a)
            ns = clock_monotonic_ns() - ns
        assert -n <= verdict <= n
        return <double>ns / n
