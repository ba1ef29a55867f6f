# A message: topic, forwardable properties and payload. It is stored once and shared by reference.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.buffer cimport Buffers
from cext.base.cells cimport Cells
from cext.base.view cimport View

cdef enum:
    MESSAGE_RETAINED = 1        # the retained message of its topic
    # Recovered inbound QoS 2 message or gated delivery, which an earlier process may have routed or sent without recording that.
    MESSAGE_AGAIN = 2
    MESSAGE_SPREAD = 4          # the record at lsn does not contain all of its deliveries
    # Inbound QoS 2 message that is released and in its streams; a second release after a crash skips the streams.
    MESSAGE_JOURNALLED = 8

ctypedef struct Message:
    uint32_t refs
    uint8_t qos                 # QoS of the PUBLISH
    uint8_t retain
    uint8_t big                 # 1 = the payload is in a buffer of Buffers (a large input frame); 0 = it follows the struct
    uint8_t flags               # mask of MESSAGE_...
    uint64_t expires_ms         # monotonic time; 0 = never
    uint64_t source_hash        # hash of the publisher's client id; 0 = published by the broker
    uint64_t arrived_ms         # monotonic time of its arrival; 0 = not known: it was read from the disk
    uint64_t lsn                # position of its record, set by the broker rooms; 0 = no record
    View topic
    View props                  # encoded forwardable properties (v5); otherwise empty
    View payload

ctypedef struct Messages:
    Cells cells
    uint64_t count
    uint64_t bytes              # sum of message_bytes
    uint64_t recorded_bytes     # approximate size of the records of messages in memory and of paged messages
    uint64_t paged              # paged messages in recorded_bytes, and the bytes there that are not their payload
    uint64_t paged_rooms


# Return the number of bytes that a message is counted as.
cdef inline uint32_t message_bytes(const Message* m) noexcept nogil:
    return m.topic.n + m.props.n + m.payload.n


cdef enum:
    RECORD_ROOM = 64            # approximate bytes of a record in addition to its message

# Copy the three parts into a new message with refs == 1. Return NULL if there is no memory.
cdef Message* message_new(Messages* store, View topic, View props, View payload) noexcept nogil
# Create a message that takes over `backing` (from buffer_take), which contains the payload. Topic and properties are copied.
cdef Message* message_new_big(Messages* store, View topic, View props, View payload, uint8_t* backing, uint32_t cap) noexcept nogil
cdef void message_free(Messages* store, Buffers* buffers, Message* m) noexcept nogil

cdef inline Message* message_ref(Message* m) noexcept nogil:
    m.refs += 1
    return m

cdef inline void message_unref(Messages* store, Buffers* buffers, Message* m) noexcept nogil:
    m.refs -= 1
    if m.refs == 0:
        message_free(store, buffers, m)
