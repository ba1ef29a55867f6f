# One client's socket and packet ids: opening, writing without waiting, ending.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.bench.load cimport Client, Load, SLOT_FREE

cdef void client_open(Load* g, Client* c) noexcept nogil
# The socket is connected, or it failed: begins what is next.
cdef void client_opened(Load* g, Client* c) noexcept nogil
# CONNECT; the way to the broker is open.
cdef void client_greet(Load* g, Client* c) noexcept nogil
cdef void client_write(Load* g, Client* c, const uint8_t* p, size_t n) noexcept nogil
# These bytes, as they are.
cdef void client_put(Load* g, Client* c, const uint8_t* p, size_t n) noexcept nogil
cdef void client_flush(Load* g, Client* c) noexcept nogil
# An end that was not asked for; of a client that is leaving: the one it waits for
cdef void client_fail(Load* g, Client* c, uint32_t kind, int code) noexcept nogil
cdef void client_fail_reported(Load* g, Client* c, uint32_t kind, int code, const char* text) noexcept nogil
# DISCONNECT, and then the broker's end of it is awaited
cdef void client_leave(Load* g, Client* c) noexcept nogil
# Everything that it holds; nothing of the room is allocated for it afterwards
cdef void client_fini(Load* g, Client* c) noexcept nogil
cdef bint slots_init(Client* c, uint32_t inflight) noexcept nogil
# A packet id, 0: none free
cdef uint16_t slot_take(Client* c, uint8_t state, uint64_t now_ns) noexcept nogil

cdef inline uint8_t slot_state(const Client* c, uint16_t pid, uint32_t inflight) noexcept nogil:
    return c.slots[pid - 1].state if 0 < pid <= inflight and c.slots != NULL else SLOT_FREE

cdef inline uint64_t slot_end(Client* c, uint16_t pid) noexcept nogil:
    """When it began; the packet id is free again."""
    c.slots[pid - 1].state = SLOT_FREE
    c.free_pids[c.n_free] = pid
    c.n_free += 1
    c.inflight -= 1
    return c.slots[pid - 1].sent_ns
