# A message: topic, forwardable properties and payload, stored once and shared by reference.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.buffer cimport Buffers
from cext.base.cells cimport Cells
from cext.base.view cimport View

cdef enum:
    MESSAGE_RETAINED = 1        # it is its topic's retained message
    MESSAGE_AGAIN = 2           # held at QoS 2 by the process before, which may have sent it on without that being on record
    MESSAGE_SPREAD = 4          # not each delivery of it is in the record at lsn
    MESSAGE_JOURNALLED = 8      # held at QoS 2, released, and in its streams: not again, when it is released anew after a crash

ctypedef struct Message:
    uint32_t refs
    uint8_t qos                 # as published
    uint8_t retain
    uint8_t big                 # the payload lies in a buffer of Buffers (a large frame that was taken over), else it follows
    uint8_t flags               # MESSAGE_...
    uint64_t expires_ms         # monotonic; 0: never
    uint64_t source_hash        # of its publisher's client id; 0: the broker's own
    uint64_t lsn                # of its record; 0: it has none. The broker room's business
    View topic
    View props                  # encoded, forwardable (v5); empty else
    View payload

ctypedef struct Messages:
    Cells cells
    uint64_t count
    uint64_t bytes              # sum of message_bytes
    uint64_t recorded_bytes     # of records of messages that are still here or owed, about


# What it is accounted as.
cdef inline uint32_t message_bytes(const Message* m) noexcept nogil:
    return m.topic.n + m.props.n + m.payload.n


cdef enum:
    RECORD_ROOM = 64            # what a record takes beside its message, about

# A copy of the three parts. refs is 1. NULL: no memory.
cdef Message* message_new(Messages* store, View topic, View props, View payload) noexcept nogil
# A message that takes over `backing` (from buffer_take), into which its payload already points; topic and props are copied.
cdef Message* message_new_big(Messages* store, View topic, View props, View payload, uint8_t* backing, uint32_t cap) noexcept nogil
cdef void message_free(Messages* store, Buffers* buffers, Message* m) noexcept nogil

cdef inline Message* message_ref(Message* m) noexcept nogil:
    m.refs += 1
    return m

cdef inline void message_unref(Messages* store, Buffers* buffers, Message* m) noexcept nogil:
    m.refs -= 1
    if m.refs == 0:
        message_free(store, buffers, m)
