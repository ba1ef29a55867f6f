# Test API of the broker's rooms: functions that a socket of this machine cannot reach, the access rules alone, and the windows of hot names with a
# given clock.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from cext.base.pybytes cimport view_of, view_or_none
from cext.base.sketch cimport Sketch, sketch_add, sketch_kept
from cext.base.view cimport View
from cext.broker.core.observed cimport HOT_TOPICS, HOT_WINDOW_US, Hot
from cext.broker.routing.observe cimport hot_age_us, hot_new, hot_window
from cext.broker.rules.acl cimport ACL_DENY, ACL_READ, ACL_WRITE, Acl, acl_allows, acl_free, acl_may_subscribe, acl_new, acl_root
from cext.net.address cimport address_local
from cext.net.conn_state cimport Address

ACCESS = {"read": ACL_READ, "write": ACL_WRITE, "readwrite": ACL_READ | ACL_WRITE, "deny": ACL_DENY}


def is_local(family: int, ip: bytes, loopback: bool = True) -> bool:
    cdef Address a
    if len(ip) > sizeof(a.ip):
        raise ValueError(ip)
    memset(&a, 0, sizeof(a))
    a.family = family
    memcpy(a.ip, <const char*>ip, len(ip))
    return address_local(&a, loopback)


cdef class Rules:
    """Compiled access rules: (user or None, 'topic' | 'pattern', access, filter), all as text, in the order of the file."""
    cdef Acl* a

    def __cinit__(self, rules):
        cdef uint32_t n = <uint32_t>len(rules), i
        cdef View* views = <View*>calloc(2 * n + 1, sizeof(View))
        cdef uint8_t* codes = <uint8_t*>calloc(2 * n + 1, 1)
        keep = []
        if views == NULL or codes == NULL:
            raise MemoryError
        for i, (user, kind, access, topic) in enumerate(rules):
            keep += [None if user is None else user.encode(), topic.encode()]
            views[i] = view_or_none(keep[2 * i])
            views[n + i] = view_of(keep[2 * i + 1])
            codes[i] = kind == "pattern"
            codes[n + i] = <uint8_t><int>ACCESS[access]
        self.a = acl_new(views, views + n, codes, codes + n, n)
        free(views)
        free(codes)
        if self.a == NULL:
            raise MemoryError

    def __dealloc__(self):
        acl_free(self.a)

    def allows(self, user: bytes | None, client_id: bytes, topic: bytes, access: str) -> bool:
        return acl_allows(self.a, acl_root(self.a, view_or_none(user)), view_or_none(user), view_of(client_id), view_of(topic), ACCESS[access])

    def may_subscribe(self, user: bytes | None, client_id: bytes, pattern: bytes) -> bool:
        return acl_may_subscribe(self.a, acl_root(self.a, view_or_none(user)), view_or_none(user), view_of(client_id), view_of(pattern))


cdef class HotWindows:
    """Both windows of the topics, with the clock of the test in microseconds."""
    cdef Hot* h
    cdef dict hashes

    def __cinit__(self, uint64_t now_us):
        self.h = hot_new(now_us)
        self.hashes = {}
        if self.h == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.h)

    def add(self, name: bytes, uint64_t now_us):
        cdef uint64_t hash = self.hashes.setdefault(name, len(self.hashes))
        sketch_add(&hot_window(self.h, now_us).of_what[HOT_TOPICS], hash, <const uint8_t*><const char*>name, <uint32_t>len(name), 1, 0)

    def read(self, uint64_t now_us):
        """Return the counts of this window and of the one before, and the microseconds that they cover together."""
        hot_window(self.h, now_us)
        return counts_of(self.h, self.h.now), counts_of(self.h, 1 - self.h.now), hot_age_us(self.h, now_us)


cdef dict counts_of(Hot* h, uint32_t place):
    cdef Sketch* s = &h.windows[place].of_what[HOT_TOPICS]
    return {(<const char*>s.texts[i])[:sketch_kept(&s.names[i])]: s.names[i].count for i in range(s.n)}


WINDOW_US = HOT_WINDOW_US
