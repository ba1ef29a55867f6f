# A client's socket and packet ids: connect, write without waiting, disconnect.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.bench.load cimport Client, Load, SLOT_FREE

cdef void client_open(Load* g, Client* c) noexcept nogil
# Continue after the socket is connected, or after it failed.
cdef void client_opened(Load* g, Client* c) noexcept nogil
# Send CONNECT. The connection to the broker is open.
cdef void client_greet(Load* g, Client* c) noexcept nogil
cdef void client_write(Load* g, Client* c, const uint8_t* p, size_t n) noexcept nogil
# Send these bytes unchanged.
cdef void client_put(Load* g, Client* c, const uint8_t* p, size_t n) noexcept nogil
cdef void client_flush(Load* g, Client* c) noexcept nogil
# End a client with an error. For a client that is leaving this is the expected end.
cdef void client_fail(Load* g, Client* c, uint32_t kind, int code) noexcept nogil
cdef void client_fail_reported(Load* g, Client* c, uint32_t kind, int code, const char* text) noexcept nogil
# Send DISCONNECT, then wait until the broker ends the connection.
cdef void client_leave(Load* g, Client* c) noexcept nogil
# Free everything that the client holds. Nothing of the room allocates for it afterwards.
cdef void client_fini(Load* g, Client* c) noexcept nogil
cdef bint slots_init(Client* c, uint32_t inflight) noexcept nogil
# Return a free packet id; 0 = none.
cdef uint16_t slot_take(Client* c, uint8_t state, uint64_t now_ns) noexcept nogil

cdef inline uint8_t slot_state(const Client* c, uint16_t pid, uint32_t inflight) noexcept nogil:
    return c.slots[pid - 1].state if 0 < pid <= inflight and c.slots != NULL else SLOT_FREE

cdef inline uint64_t slot_end(Client* c, uint16_t pid) noexcept nogil:
    """Free the packet id and return the time at which it was taken."""
    c.slots[pid - 1].state = SLOT_FREE
    c.free_pids[c.n_free] = pid
    c.n_free += 1
    c.inflight -= 1
    return c.slots[pid - 1].sent_ns
