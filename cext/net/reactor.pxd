# The event loop's turn and its listeners. See reactor.pyx.
from cext.net.conn_state cimport ListenSocket, Reactor

cdef int reactor_init(Reactor* r, void* ctx) noexcept nogil         # 0 or errno
cdef void reactor_fini(Reactor* r) noexcept nogil
# Run one turn: wait up to timeout_ms (not at all if input or output is pending), then read and call the owner. The caller
# calls reactor_flush afterwards, and then reactor_accept.
cdef int reactor_turn(Reactor* r, int timeout_ms) noexcept nogil
cdef void reactor_flush(Reactor* r) noexcept nogil                  # flushes all dirty connections, then frees the closed ones
cdef void reactor_accept(Reactor* r) noexcept nogil                 # accepts the connections that waited when the turn began
cdef int reactor_watch(Reactor* r, int fd) noexcept nogil           # calls on_watched when fd is readable; 0 or errno
cdef int reactor_watch_passage(Reactor* r, int fd) noexcept nogil      # the same for on_passage
cdef int reactor_watch_notice(Reactor* r, int fd) noexcept nogil       # the same for on_notice, which reads from it
cdef void reactor_wake(Reactor* r) noexcept nogil                   # may run in any thread
cdef int reactor_listen(Reactor* r, ListenSocket* l) noexcept nogil     # l.fd must be bound and listening; 0 or errno
# The socket stays open; l itself must stay until the end of the turn.
cdef void reactor_unlisten(Reactor* r, ListenSocket* l) noexcept nogil
