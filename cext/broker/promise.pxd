# Acknowledgements that wait for what they promise. See promise.pyx.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from cext.session.message cimport Message
from cext.broker.broker cimport Broker, Client
from cext.broker.durable cimport Durable

# Each sends an acknowledgement in its turn [v5 4.6.0-2]. This one, where something was recorded since `changes` was read, when that is
# committed; m: what was published, whose record may prove needless before (NULL: nothing was).
cdef void promise(Broker* b, Client* c, int packet_type, uint16_t pid, uint8_t rc, uint64_t changes, const Message* m,
                  uint8_t durability) noexcept nogil
cdef void promise_now(Broker* b, Client* c, int packet_type, uint16_t pid, uint8_t rc) noexcept nogil     # promises nothing
cdef void promise_behind(Broker* b, Client* c, int packet_type, uint16_t pid) noexcept nogil     # when all that was ever recorded is committed
# The same for all of its output, what stands there already included. soft: but not while the store takes nothing, on a full disk.
cdef void promise_hold(Broker* b, Client* c, uint64_t changes, bint soft) noexcept nogil
cdef void promises_go_on(Broker* b) noexcept nogil       # trouble has begun or ended: who waits for the one or the other does not wait any more
cdef void promise_job_done(Broker* b, Client* c) noexcept nogil     # what waited for it waits for a batch from now on
cdef void promises_free(Client* c) noexcept nogil
# Sends what is due: when a batch was committed, and when a message proved to need no record.
cdef void promises_release(Broker* b, Client* c) noexcept nogil
cdef int waiter_add(Durable* t, uint32_t serial) noexcept nogil     # its place is the last one; -1: no memory
