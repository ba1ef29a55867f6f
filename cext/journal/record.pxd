# Encode and decode a record in a block, without copies except one bounded copy by the loop.
#
#     bytes u32 | kind u8 | flags u8 | reason u8 | 0 u8 | time after the block's, us u32 | topic u16 | client id u16 | user name u16 |
#     0 u16 | properties u32 | payload u32 | topic client-id user-name properties payload, zeros up to JOURNAL_RECORD_ALIGN
#
# `bytes` counts the whole record, so that readers skip fields that a later version adds after the payload.
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy
from cext.base.view cimport View
from cext.base.words cimport load32, store32
from cext.journal.format cimport BLOCK_BODY_MAX, JOURNAL_RECORD_ALIGN, JOURNAL_RECORD_HEAD

cdef enum:
    # kinds; a later version may have others
    JOURNAL_MESSAGE = 1
    JOURNAL_CONNECT = 2         # the topic is empty, or the topic that the event is about
    JOURNAL_DISCONNECT = 3
    JOURNAL_SUBSCRIBE = 4       # the topic is the filter
    JOURNAL_UNSUBSCRIBE = 5
    JOURNAL_DROP = 6            # of a message: its topic, the client id of the session; the reason is the broker's
    JOURNAL_EXPIRY = 7          # of a session
    JOURNAL_TAKE_OVER = 8
    JOURNAL_ACCOUNT = 9         # of a session: its counters so far
    JOURNAL_GAP = 10            # number of events that were not journalled
    JOURNAL_START = 11          # of a broker: no client is connected, and only later records count

cdef enum:
    # flags
    JOURNAL_QOS = 3
    JOURNAL_RETAIN = 4
    JOURNAL_DUP = 8
    JOURNAL_USERNAME = 16       # there is a user name, which may be empty

ctypedef struct JournalRecord:
    uint64_t seq
    uint64_t time_us            # wall clock
    uint8_t kind
    uint8_t flags
    uint8_t reason              # reason code of MQTT or of the broker, for events; otherwise 0
    View topic
    View client_id
    View username
    View properties             # as in the packet, without their length
    View payload

cdef inline uint64_t journal_record_bytes(const JournalRecord* r) noexcept nogil:
    cdef uint64_t n = JOURNAL_RECORD_HEAD + <uint64_t>r.topic.n + r.client_id.n + r.username.n + r.properties.n + r.payload.n
    return (n + (JOURNAL_RECORD_ALIGN - 1)) & ~<uint64_t>(JOURNAL_RECORD_ALIGN - 1)

cdef inline bint journal_record_fits(const JournalRecord* r) noexcept nogil:
    return r.kind != 0 and r.topic.n <= 0xFFFF and r.client_id.n <= 0xFFFF and r.username.n <= 0xFFFF and journal_record_bytes(r) <= BLOCK_BODY_MAX

cdef inline uint8_t* record_view_put(uint8_t* p, const View* v) noexcept nogil:
    if v.n:
        memcpy(p, v.p, v.n)
    return p + v.n

# n = journal_record_bytes
cdef inline void journal_record_put(uint8_t* p, uint64_t n, uint32_t delta_us, const JournalRecord* r) noexcept nogil:
    cdef uint16_t sizes[4]
    sizes[0] = <uint16_t>r.topic.n
    sizes[1] = <uint16_t>r.client_id.n
    sizes[2] = <uint16_t>r.username.n
    sizes[3] = 0
    # the padding; the rest of these bytes is overwritten
    memcpy(p + n - JOURNAL_RECORD_ALIGN, b"\0\0\0\0\0\0\0\0", JOURNAL_RECORD_ALIGN)
    store32(p, <uint32_t>n)
    p[4] = r.kind
    p[5] = r.flags
    p[6] = r.reason
    p[7] = 0
    store32(p + 8, delta_us)
    memcpy(p + 12, sizes, 8)
    store32(p + 20, r.properties.n)
    store32(p + 24, r.payload.n)
    p = record_view_put(p + JOURNAL_RECORD_HEAD, &r.topic)
    p = record_view_put(p, &r.client_id)
    p = record_view_put(p, &r.username)
    p = record_view_put(p, &r.properties)
    record_view_put(p, &r.payload)

cdef inline const uint8_t* view_read(View* v, const uint8_t* p, uint32_t n) noexcept nogil:
    v.p = p
    v.n = n
    return p + n

# Decode the record at p, where `most` bytes are available. Return its size in bytes; 0 = no record. Its views point into these
# bytes; the caller sets r.seq, and r.time_us is relative to the block's time.
cdef inline uint32_t journal_record_get(const uint8_t* p, uint64_t most, JournalRecord* r) noexcept nogil:
    cdef uint16_t sizes[4]
    cdef uint32_t n, properties, payload
    if most < JOURNAL_RECORD_HEAD:
        return 0
    n = load32(p)
    memcpy(sizes, p + 12, 8)
    properties = load32(p + 20)
    payload = load32(p + 24)
    if n > most or n % JOURNAL_RECORD_ALIGN or JOURNAL_RECORD_HEAD + <uint64_t>sizes[0] + sizes[1] + sizes[2] + properties + payload > n:
        return 0
    r.kind = p[4]
    r.flags = p[5]
    r.reason = p[6]
    r.time_us = load32(p + 8)
    p = view_read(&r.topic, p + JOURNAL_RECORD_HEAD, sizes[0])
    p = view_read(&r.client_id, p, sizes[1])
    p = view_read(&r.username, p, sizes[2])
    p = view_read(&r.properties, p, properties)
    view_read(&r.payload, p, payload)
    return n
