# The clients of the simulator: their actions, and the packets that reach them.
from libc.stdint cimport uint8_t, uint16_t, uint32_t
from cext.testing.link_world cimport World

# What a worker sends to a client.
cdef void client_connack(World* g, uint32_t c) noexcept nogil
cdef void client_puback(World* g, uint32_t c, uint32_t pid, uint16_t message) noexcept nogil        # or PUBCOMP
cdef void client_pubrec(World* g, uint32_t c, uint32_t pid, uint16_t message) noexcept nogil
cdef void client_suback(World* g, uint32_t c, uint32_t filter) noexcept nogil
cdef void client_message(World* g, uint32_t c, uint16_t message, int kind, int qos, uint32_t seq) noexcept nogil   # parameters: the fields of a packet
cdef void client_lost(World* g, uint32_t c) noexcept nogil              # its connection broke
# What a client does.
cdef void client_act(World* g, uint32_t c) noexcept nogil
cdef void client_settle(World* g, uint32_t c) noexcept nogil            # the same without faults
