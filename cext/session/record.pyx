"""Encode the bodies of the store's records into a given place, and decode them with bounds into views.

This module does not know files, batches or checksums (the store's), nor what a record does to a session (the broker's). A body
with a valid checksum may still be hostile (a crafted file), so every length is compared before it is used. Reading is canonical:
a body that *_read accepts equals byte for byte what *_put writes for its contents, so that `mosq db` can show everything and
write it back. Cost: linear in the body, no allocation.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy, memset
from cext.base.view cimport View

cdef enum:
    SESSION_FLAGS = RECORD_CONNECTED | RECORD_HAS_USER | RECORD_LINK | RECORD_HAS_ORIGIN | RECORD_HAS_PID | RECORD_HAS_LISTENER
    MESSAGE_FLAGS = RECORD_QOS | RECORD_RETAIN | RECORD_RETAINED_SET | RECORD_HAS_EXPIRY | RECORD_HAS_SOURCE | RECORD_AGAIN
    STREAM_SHARDS_MAX = 64
    CLIENT_WILL_HAS_USER = 1
    CLIENT_WILL_HAS_EXPIRY = 2
    UNDELIVERED_UNJOURNALLED = 1
    ENTRY_FLAGS = 3 | RECORD_ENTRY_RETAIN | RECORD_ENTRY_SHARED | RECORD_ENTRY_HAS_SUB_ID
    SUB_ID_MAX = 0x0FFFFFFF     # what a variable byte integer holds [v5 1.5.5]: a PUBLISH has no room for more


# -- Numbers, byte by byte: the compiler makes one load or store of it, and the order is the same on every machine.

cdef inline uint8_t* put16(uint8_t* p, uint16_t v) noexcept nogil:
    p[0] = <uint8_t>v
    p[1] = <uint8_t>(v >> 8)
    return p + 2


cdef inline uint8_t* put32(uint8_t* p, uint32_t v) noexcept nogil:
    p[0] = <uint8_t>v
    p[1] = <uint8_t>(v >> 8)
    p[2] = <uint8_t>(v >> 16)
    p[3] = <uint8_t>(v >> 24)
    return p + 4


cdef inline uint8_t* put64(uint8_t* p, uint64_t v) noexcept nogil:
    return put32(put32(p, <uint32_t>v), <uint32_t>(v >> 32))


cdef inline uint8_t* put_view(uint8_t* p, View v) noexcept nogil:
    if v.n:
        memcpy(p, v.p, v.n)
    return p + v.n


cdef inline uint16_t get16(const uint8_t* p) noexcept nogil:
    return <uint16_t>(p[0] | p[1] << 8)


cdef inline uint32_t get32(const uint8_t* p) noexcept nogil:
    return p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24


cdef inline uint64_t get64(const uint8_t* p) noexcept nogil:
    return get32(p) | <uint64_t>get32(p + 4) << 32


cdef inline View cut(View* body, uint32_t n) noexcept nogil:
    # Take the first n bytes, which must exist.
    cdef View v
    v.p = body.p
    v.n = n
    body.p += n
    body.n -= n
    return v


cdef int text_read(View* body, View* out) noexcept nogil:
    # Take a length of 16 bits and as many bytes.
    cdef uint32_t n
    if body.n < 2:
        return RECORD_SHORT
    n = get16(cut(body, 2).p)
    if body.n < n:
        return RECORD_SHORT
    out[0] = cut(body, n)
    return 0


# -- sessions

cdef uint64_t record_session_size(const RecordSession* s) noexcept nogil:
    return (25 + <uint64_t>s.id.n + s.user.n + (6 + <uint64_t>s.mount.n if s.flags & RECORD_HAS_ORIGIN else 4 if s.security else 0)
            + (2 if s.last_pid else 0))


cdef uint8_t* record_session_put(uint8_t* out, const RecordSession* s) noexcept nogil:
    out = put32(out, s.store_session_id)
    out[0] = <uint8_t>((s.flags & (RECORD_CONNECTED | RECORD_LINK | RECORD_HAS_ORIGIN)) | (RECORD_HAS_USER if s.user.p != NULL else 0)
                       | (RECORD_HAS_PID if s.last_pid else 0)
                       | (RECORD_HAS_LISTENER if s.security and not s.flags & RECORD_HAS_ORIGIN else 0))
    out = put32(out + 1, s.expiry_s)
    out = put64(out, s.ends_wall_ms)
    out = put32(out, s.next)
    out = put_view(put16(out, <uint16_t>s.id.n), s.id)
    out = put_view(put16(out, <uint16_t>s.user.n), s.user)
    if s.flags & RECORD_HAS_ORIGIN:
        out = put_view(put16(put32(out, s.security), <uint16_t>s.mount.n), s.mount)
    elif s.security:
        out = put32(out, s.security)
    return put16(out, s.last_pid) if s.last_pid else out


cdef int record_session_read(View body, RecordSession* out) noexcept nogil:
    if body.n < 21:
        return RECORD_SHORT
    out.store_session_id = get32(body.p)
    out.flags = body.p[4]
    out.expiry_s = get32(body.p + 5)
    out.ends_wall_ms = get64(body.p + 9)
    out.next = get32(body.p + 17)
    cut(&body, 21)
    if text_read(&body, &out.id) != 0 or text_read(&body, &out.user) != 0:
        return RECORD_SHORT
    if out.flags & ~<uint32_t>SESSION_FLAGS:
        return RECORD_FLAGS
    out.security = 0
    out.mount.p = NULL
    out.mount.n = 0
    if out.flags & (RECORD_HAS_ORIGIN | RECORD_HAS_LISTENER):
        if body.n < 4:
            return RECORD_SHORT
        out.security = get32(cut(&body, 4).p)
        if out.flags & RECORD_HAS_LISTENER and (out.flags & RECORD_HAS_ORIGIN or out.security == 0):
            return RECORD_FLAGS
    if out.flags & RECORD_HAS_ORIGIN:
        if text_read(&body, &out.mount) != 0:
            return RECORD_SHORT
    out.last_pid = 0
    if out.flags & RECORD_HAS_PID:
        if body.n < 2:
            return RECORD_SHORT
        out.last_pid = get16(cut(&body, 2).p)
        if out.last_pid == 0:
            return RECORD_VALUE
    if body.n:
        return RECORD_LONG
    if not out.flags & RECORD_HAS_USER:
        if out.user.n:
            return RECORD_FLAGS
        out.user.p = NULL
    return 0


cdef uint8_t* record_end_put(uint8_t* out, uint32_t store_session_id) noexcept nogil:
    return put32(out, store_session_id)


cdef int record_end_read(View body, uint32_t* store_session_id) noexcept nogil:
    if body.n != 4:
        return RECORD_SHORT if body.n < 4 else RECORD_LONG
    store_session_id[0] = get32(body.p)
    return 0


# -- subscriptions

cdef uint64_t record_sub_size(const RecordSub* s) noexcept nogil:
    return 9 + <uint64_t>s.filter.n


cdef uint8_t* record_sub_put(uint8_t* out, const RecordSub* s) noexcept nogil:
    out = put32(out, s.store_session_id)
    out[0] = <uint8_t>s.options
    return put_view(put32(out + 1, s.sub_id), s.filter)


cdef int record_sub_read(View body, RecordSub* out) noexcept nogil:
    if body.n < 9:
        return RECORD_SHORT
    out.store_session_id = get32(body.p)
    out.options = body.p[4]
    out.sub_id = get32(body.p + 5)
    if out.sub_id > SUB_ID_MAX:
        return RECORD_VALUE
    cut(&body, 9)
    out.filter = body
    return record_topic_read(body)


cdef uint64_t record_unsub_size(const RecordSub* s) noexcept nogil:
    return 4 + <uint64_t>s.filter.n


cdef uint8_t* record_unsub_put(uint8_t* out, const RecordSub* s) noexcept nogil:
    return put_view(put32(out, s.store_session_id), s.filter)


cdef int record_unsub_read(View body, RecordSub* out) noexcept nogil:
    if body.n < 4:
        return RECORD_SHORT
    out.store_session_id = get32(body.p)
    out.options = out.sub_id = 0
    cut(&body, 4)
    out.filter = body
    return record_topic_read(body)


cdef int record_topic_read(View body) noexcept nogil:
    if body.n == 0:
        return RECORD_SHORT
    return RECORD_LONG if body.n > 65535 else 0


# -- messages: flags [expiry] [source] lengths; a MSG has its entries between these and the bytes of the message

cdef uint64_t message_size(const RecordMessage* m) noexcept nogil:
    return 8 + (8 if m.expires_wall_ms else 0) + (8 if m.source_hash else 0) + <uint64_t>m.topic.n + m.props.n + m.payload.n


cdef uint8_t* message_head_put(uint8_t* out, const RecordMessage* m) noexcept nogil:
    cdef uint32_t flags = m.flags & (RECORD_QOS | RECORD_RETAIN | RECORD_RETAINED_SET | RECORD_AGAIN)
    if m.expires_wall_ms:
        flags |= RECORD_HAS_EXPIRY
    if m.source_hash:
        flags |= RECORD_HAS_SOURCE
    out = put16(out, <uint16_t>flags)
    if m.expires_wall_ms:
        out = put64(out, m.expires_wall_ms)
    if m.source_hash:
        out = put64(out, m.source_hash)
    return put32(put16(out, <uint16_t>m.topic.n), m.props.n)


cdef int number_read(View* body, uint64_t* out) noexcept nogil:
    # Take an optional number, which is written only if it is not 0.
    if body.n < 8:
        return RECORD_SHORT
    out[0] = get64(cut(body, 8).p)
    return 0 if out[0] else RECORD_FLAGS


cdef int message_head_read(View* body, RecordMessage* m) noexcept nogil:
    cdef int rc
    if body.n < 2:
        return RECORD_SHORT
    m.flags = get16(cut(body, 2).p)
    m.expires_wall_ms = m.source_hash = 0
    if m.flags & ~<uint32_t>MESSAGE_FLAGS:
        return RECORD_FLAGS
    if (m.flags & RECORD_QOS) == 3:
        return RECORD_VALUE
    if m.flags & RECORD_HAS_EXPIRY:
        rc = number_read(body, &m.expires_wall_ms)
        if rc:
            return rc
    if m.flags & RECORD_HAS_SOURCE:
        rc = number_read(body, &m.source_hash)
        if rc:
            return rc
    if body.n < 6:
        return RECORD_SHORT
    m.topic.n = get16(body.p)
    m.props.n = get32(body.p + 2)
    cut(body, 6)
    return 0


cdef uint8_t* message_tail_put(uint8_t* out, const RecordMessage* m) noexcept nogil:
    return put_view(put_view(put_view(out, m.topic), m.props), m.payload)


cdef int message_tail_read(View body, RecordMessage* m) noexcept nogil:
    if body.n < <uint64_t>m.topic.n + m.props.n:
        return RECORD_SHORT
    m.topic = cut(&body, m.topic.n)
    m.props = cut(&body, m.props.n)
    m.payload = body
    return 0


cdef int message_read(View body, RecordMessage* m) noexcept nogil:
    cdef int rc = message_head_read(&body, m)
    return rc if rc else message_tail_read(body, m)


cdef uint64_t record_msg_size(const RecordMessage* m, uint64_t entries_bytes) noexcept nogil:
    return message_size(m) + 4 + entries_bytes


cdef uint8_t* record_msg_put(uint8_t* out, const RecordMessage* m, uint32_t n) noexcept nogil:
    return put32(message_head_put(out, m), n)


cdef uint8_t* record_entry_put(uint8_t* out, const RecordEntry* e) noexcept nogil:
    out = put16(put32(put32(out, e.store_session_id), e.position), e.pid)
    out[0] = <uint8_t>((e.qos & ~RECORD_ENTRY_HAS_SUB_ID) | (RECORD_ENTRY_HAS_SUB_ID if e.sub_id else 0))
    return put32(out + 1, e.sub_id) if e.sub_id else out + 1


cdef uint8_t* record_msg_end_put(uint8_t* out, const RecordMessage* m) noexcept nogil:
    return message_tail_put(out, m)


cdef bint record_entry_next(View* entries, RecordEntry* out) noexcept nogil:
    if entries.n < 11:
        return 0
    out.store_session_id = get32(entries.p)
    out.position = get32(entries.p + 4)
    out.pid = get16(entries.p + 8)
    out.qos = entries.p[10]
    out.sub_id = 0
    if out.qos & RECORD_ENTRY_HAS_SUB_ID:
        if entries.n < 15:
            return 0
        out.sub_id = get32(entries.p + 11)
        out.qos &= <uint8_t>~RECORD_ENTRY_HAS_SUB_ID
        cut(entries, 15)
    else:
        cut(entries, 11)
    return 1


cdef int record_msg_read(View body, RecordMsg* out) noexcept nogil:
    cdef int rc = message_head_read(&body, &out.message)
    cdef uint32_t _i
    cdef bint has_sub_id
    cdef RecordEntry e
    if rc:
        return rc
    if body.n < 4:
        return RECORD_SHORT
    out.n = get32(cut(&body, 4).p)
    out.entries = body
    if body.n < <uint64_t>out.n * 11:
        return RECORD_SHORT
    for _i in range(out.n):
        if body.n < 11:
            return RECORD_SHORT
        has_sub_id = (body.p[10] & RECORD_ENTRY_HAS_SUB_ID) != 0
        if body.p[10] & ~<uint32_t>ENTRY_FLAGS:
            return RECORD_FLAGS
        if not record_entry_next(&body, &e):
            return RECORD_SHORT
        if (e.qos & 3) == 3 or e.sub_id > SUB_ID_MAX:
            return RECORD_VALUE
        if has_sub_id and e.sub_id == 0:
            return RECORD_FLAGS
    out.entries.n -= body.n
    return message_tail_read(body, &out.message)


# -- acknowledgements

cdef uint8_t* record_ack_put(uint8_t* out, uint32_t store_session_id, uint32_t position) noexcept nogil:
    return put32(put32(out, store_session_id), position)


cdef uint8_t* record_released_put(uint8_t* out, const RecordAck* a) noexcept nogil:
    return put16(put32(put32(out, a.store_session_id), a.position), a.pid)


cdef int record_acks_check(View body) noexcept nogil:
    return 0 if body.n % RECORD_ACK_BYTES == 0 else RECORD_LONG


cdef int record_released_check(View body) noexcept nogil:
    return 0 if body.n % RECORD_RELEASED_BYTES == 0 else RECORD_LONG


cdef bint record_ack_next(View* body, RecordAck* out) noexcept nogil:
    if body.n < RECORD_ACK_BYTES:
        return 0
    out.store_session_id = get32(body.p)
    out.position = get32(body.p + 4)
    out.pid = 0
    cut(body, RECORD_ACK_BYTES)
    return 1


cdef bint record_released_next(View* body, RecordAck* out) noexcept nogil:
    if body.n < RECORD_RELEASED_BYTES:
        return 0
    out.store_session_id = get32(body.p)
    out.position = get32(body.p + 4)
    out.pid = get16(body.p + 8)
    cut(body, RECORD_RELEASED_BYTES)
    return 1


# -- inbound QoS 2

cdef uint64_t record_inbox_size(const RecordInbox* i) noexcept nogil:
    return 7 + (0 if i.refused else (8 if i.identity else 0) + message_size(&i.message))


cdef uint8_t* record_inbox_put(uint8_t* out, const RecordInbox* i) noexcept nogil:
    out = put16(put32(out, i.store_session_id), i.pid)
    out[0] = 1 if i.refused else (2 if i.journalled else 0) | (4 if i.identity else 0) | (8 if i.local_done else 0)
    out += 1
    if i.refused:
        return out
    if i.identity:
        out = put64(out, i.identity)
    return message_tail_put(message_head_put(out, &i.message), &i.message)


cdef int record_inbox_read(View body, RecordInbox* out) noexcept nogil:
    cdef bint has_identity
    if body.n < 7:
        return RECORD_SHORT
    memset(&out.message, 0, sizeof(RecordMessage))
    out.store_session_id = get32(body.p)
    out.pid = get16(body.p + 4)
    if body.p[6] != 1 and body.p[6] & ~14 != 0:
        return RECORD_VALUE
    out.refused = body.p[6] == 1
    out.journalled = (body.p[6] & 2) != 0
    out.local_done = (body.p[6] & 8) != 0
    out.identity = 0
    has_identity = (body.p[6] & 4) != 0
    cut(&body, 7)
    if out.refused:
        return RECORD_LONG if body.n else 0
    if has_identity:
        if body.n < 8:
            return RECORD_SHORT
        out.identity = get64(body.p)
        cut(&body, 8)
        if out.identity == 0:           # which has no place in a record: without an identity, the flag is missing
            return RECORD_VALUE
    return message_read(body, &out.message)


cdef uint8_t* record_inbox_done_put(uint8_t* out, uint32_t store_session_id, uint16_t pid) noexcept nogil:
    return put16(put32(out, store_session_id), pid)


cdef int record_inbox_done_read(View body, RecordInbox* out) noexcept nogil:
    if body.n != RECORD_INBOX_DONE_BYTES:
        return RECORD_SHORT if body.n < RECORD_INBOX_DONE_BYTES else RECORD_LONG
    memset(out, 0, sizeof(RecordInbox))
    out.store_session_id = get32(body.p)
    out.pid = get16(body.p + 4)
    return 0


# -- wills

cdef uint64_t record_will_size(const RecordWill* w) noexcept nogil:
    return 16 + message_size(&w.message)


cdef uint8_t* record_will_put(uint8_t* out, const RecordWill* w) noexcept nogil:
    out = put32(put64(put32(out, w.store_session_id), w.due_wall_ms), w.delay_s)
    return message_tail_put(message_head_put(out, &w.message), &w.message)


cdef int record_will_read(View body, RecordWill* out) noexcept nogil:
    if body.n < 16:
        return RECORD_SHORT
    out.store_session_id = get32(body.p)
    out.due_wall_ms = get64(body.p + 4)
    out.delay_s = get32(body.p + 12)
    cut(&body, 16)
    return message_read(body, &out.message)


cdef uint64_t record_client_will_size(const RecordClientWill* w) noexcept nogil:
    return 11 + (4 if w.has_expiry else 0) + <uint64_t>w.id.n + w.user.n + w.mount.n + message_size(&w.message)


cdef uint8_t* record_client_will_put(uint8_t* out, const RecordClientWill* w) noexcept nogil:
    out[0] = (CLIENT_WILL_HAS_USER if w.user.p != NULL else 0) | (CLIENT_WILL_HAS_EXPIRY if w.has_expiry else 0)
    out = put32(out + 1, w.security)
    if w.has_expiry:
        out = put32(out, w.expiry_s)
    out = put_view(put16(out, <uint16_t>w.id.n), w.id)
    out = put_view(put16(out, <uint16_t>w.user.n), w.user)
    out = put_view(put16(out, <uint16_t>w.mount.n), w.mount)
    return message_tail_put(message_head_put(out, &w.message), &w.message)


cdef int record_client_will_read(View body, RecordClientWill* out) noexcept nogil:
    cdef uint8_t flags
    if body.n < 5:
        return RECORD_SHORT
    flags = cut(&body, 1).p[0]
    if flags & ~(CLIENT_WILL_HAS_USER | CLIENT_WILL_HAS_EXPIRY):
        return RECORD_FLAGS
    out.security = get32(cut(&body, 4).p)
    out.has_expiry = flags & CLIENT_WILL_HAS_EXPIRY != 0
    out.expiry_s = 0
    if out.has_expiry:
        if body.n < 4:
            return RECORD_SHORT
        out.expiry_s = get32(cut(&body, 4).p)
    if text_read(&body, &out.id) != 0 or text_read(&body, &out.user) != 0 or text_read(&body, &out.mount) != 0:
        return RECORD_SHORT
    if out.id.n == 0:
        return RECORD_VALUE
    if not flags & CLIENT_WILL_HAS_USER:
        if out.user.n:
            return RECORD_FLAGS
        out.user.p = NULL
    return message_read(body, &out.message)


cdef int record_client_id_read(View body) noexcept nogil:
    if body.n == 0:
        return RECORD_SHORT
    return RECORD_LONG if body.n > 65535 else 0


cdef uint64_t record_waiting_will_size(const RecordWaitingWill* w) noexcept nogil:
    return 16 + record_client_will_size(&w.will)


cdef uint8_t* record_waiting_will_put(uint8_t* out, const RecordWaitingWill* w) noexcept nogil:
    return record_client_will_put(put64(put64(out, w.number), w.handle), &w.will)


cdef int record_waiting_will_read(View body, RecordWaitingWill* out) noexcept nogil:
    if body.n < 16:
        return RECORD_SHORT
    out.number = get64(body.p)
    out.handle = get64(body.p + 8)
    cut(&body, 16)
    return record_client_will_read(body, &out.will) if out.number else <int>RECORD_VALUE


cdef uint8_t* record_waiting_will_gone_put(uint8_t* out, uint64_t number) noexcept nogil:
    return put64(out, number)


cdef int record_waiting_will_gone_read(View body, uint64_t* number) noexcept nogil:
    if body.n != RECORD_WAITING_WILL_GONE_BYTES:
        return RECORD_SHORT if body.n < RECORD_WAITING_WILL_GONE_BYTES else RECORD_LONG
    number[0] = get64(body.p)
    return 0


# -- messages that a division has found undelivered

cdef uint64_t record_undelivered_size(const RecordUndelivered* u) noexcept nogil:
    return 15 + <uint64_t>u.sessions.n + u.group.n + record_client_will_size(&u.will)


cdef uint8_t* record_undelivered_put(uint8_t* out, const RecordUndelivered* u) noexcept nogil:
    out = put64(out, u.number)
    out[0] = UNDELIVERED_UNJOURNALLED if u.unjournalled else 0
    out = put_view(put32(out + 1, u.sessions.n // 4), u.sessions)
    return record_client_will_put(put_view(put16(out, <uint16_t>u.group.n), u.group), &u.will)


cdef int record_undelivered_read(View body, RecordUndelivered* out) noexcept nogil:
    cdef uint64_t bytes
    if body.n < 13:
        return RECORD_SHORT
    out.number = get64(body.p)
    if body.p[8] & ~UNDELIVERED_UNJOURNALLED:
        return RECORD_FLAGS
    out.unjournalled = body.p[8] != 0
    bytes = 4 * <uint64_t>get32(body.p + 9)
    cut(&body, 13)
    if body.n < bytes:
        return RECORD_SHORT
    out.sessions = cut(&body, <uint32_t>bytes)
    if text_read(&body, &out.group) != 0:
        return RECORD_SHORT
    return record_client_will_read(body, &out.will) if out.number else <int>RECORD_VALUE


cdef uint32_t record_undelivered_next(View* sessions) noexcept nogil:
    return get32(cut(sessions, 4).p) if sessions.n else 0


# -- publishers of retained messages

cdef uint64_t record_from_size(const RecordFrom* f) noexcept nogil:
    return 8 + <uint64_t>f.topic.n + f.id.n + f.user.n


cdef uint8_t* record_from_put(uint8_t* out, const RecordFrom* f) noexcept nogil:
    out = put_view(put16(put32(out, f.security), <uint16_t>f.topic.n), f.topic)
    return put_view(put_view(put16(out, <uint16_t>f.id.n), f.id), f.user)


cdef int record_from_read(View body, RecordFrom* out) noexcept nogil:
    if body.n < 4:
        return RECORD_SHORT
    out.security = get32(cut(&body, 4).p)
    if text_read(&body, &out.topic) != 0 or text_read(&body, &out.id) != 0:
        return RECORD_SHORT
    out.user = body
    return record_topic_read(out.topic) if out.user.n <= 65535 else RECORD_LONG


cdef uint64_t record_publisher_size(const RecordPublisher* r) noexcept nogil:
    return 8 + <uint64_t>r.id.n + r.user.n


cdef uint8_t* record_publisher_put(uint8_t* out, const RecordPublisher* r) noexcept nogil:
    out = put16(put32(out, r.security), r.pid)
    return put_view(put_view(put16(out, <uint16_t>r.id.n), r.id), r.user)


cdef int record_publisher_read(View body, RecordPublisher* out) noexcept nogil:
    if body.n < 6:
        return RECORD_SHORT
    out.security = get32(body.p)
    out.pid = get16(body.p + 4)
    cut(&body, 6)
    if text_read(&body, &out.id) != 0:
        return RECORD_SHORT
    out.user = body
    return 0 if out.user.n <= 65535 else RECORD_LONG


# -- streams

cdef uint64_t record_stream_size(View name, uint32_t shards) noexcept nogil:
    return 4 + <uint64_t>name.n + 8 * <uint64_t>shards


cdef uint8_t* record_stream_put(uint8_t* out, View name, const uint64_t* seqs, uint32_t shards) noexcept nogil:
    cdef uint32_t i
    out = put_view(put16(out, <uint16_t>name.n), name)
    out = put16(out, <uint16_t>shards)
    for i in range(shards):
        out = put64(out, seqs[i])
    return out


cdef int stream_read(View* body, View* name, View* seqs) noexcept nogil:
    cdef uint32_t n
    if text_read(body, name) != 0 or body.n < 2:
        return RECORD_SHORT
    n = 8 * <uint32_t>get16(cut(body, 2).p)
    if body.n < n:
        return RECORD_SHORT
    seqs[0] = cut(body, n)
    return 0


cdef bint record_stream_next(View* body, View* name, View* seqs) noexcept nogil:
    return body.n != 0 and stream_read(body, name, seqs) == 0


cdef int record_streams_check(View body) noexcept nogil:
    cdef View name, seqs
    while body.n:
        if stream_read(&body, &name, &seqs) != 0:
            return RECORD_SHORT
        if name.n == 0 or seqs.n == 0 or seqs.n > 8 * STREAM_SHARDS_MAX:
            return RECORD_VALUE
    return 0


cdef uint32_t record_stream_find(View body, View wanted, uint64_t* out) noexcept nogil:
    cdef View name, seqs
    cdef uint32_t i
    if record_streams_check(body) != 0:
        return 0
    while record_stream_next(&body, &name, &seqs):
        if name.n == wanted.n and memcmp(name.p, wanted.p, name.n) == 0:
            for i in range(seqs.n // 8):
                out[i] = get64(seqs.p + 8 * i)
            return seqs.n // 8
    return 0


# -- other records

cdef bint record_meta_find(View body, View key, View* value) noexcept nogil:
    cdef const uint8_t* end
    cdef View line
    while body.n:
        end = <const uint8_t*>memchr(body.p, c'\n', body.n)
        line = cut(&body, body.n if end == NULL else <uint32_t>(end - body.p))
        if body.n:
            cut(&body, 1)
        if line.n > key.n and line.p[key.n] == c'=' and memcmp(line.p, key.p, key.n) == 0:
            cut(&line, key.n + 1)
            value[0] = line
            return 1
    return 0


# -- links

cdef uint8_t* record_numbers_put(uint8_t* out, const uint64_t* numbers, uint32_t n) noexcept nogil:
    cdef uint32_t i
    for i in range(n):
        out = put64(out, numbers[i])
    return out


cdef int record_numbers_read(uint8_t kind, View body, uint64_t* out) noexcept nogil:
    cdef uint32_t least = 2 if kind == RECORD_LINK_RUN or kind == RECORD_LINK_IDENTITY_GONE else 3 if kind == RECORD_LINK_CHOICE else 4
    cdef uint32_t most = RECORD_NUMBERS_MAX if kind == RECORD_LINK_MARK else least
    cdef uint32_t i, n = body.n // 8
    if body.n % 8 or n < least:
        return RECORD_SHORT
    if n > most:
        return RECORD_LONG
    for i in range(n):
        out[i] = get64(body.p + 8 * i)
    return <int>n


cdef int record_check(uint8_t kind, View body) noexcept nogil:
    cdef RecordSession session
    cdef RecordSub sub
    cdef RecordMsg msg
    cdef RecordInbox inbox
    cdef RecordWill will
    cdef RecordFrom source
    cdef RecordPublisher publisher
    cdef RecordClientWill client_will
    cdef RecordWaitingWill waiting_will
    cdef RecordUndelivered undelivered
    cdef uint64_t number
    cdef uint32_t store_session_id
    cdef uint64_t numbers[RECORD_NUMBERS_MAX]
    cdef int found
    if kind == RECORD_SESSION:
        return record_session_read(body, &session)
    if kind == RECORD_SUB:
        return record_sub_read(body, &sub)
    if kind == RECORD_UNSUB:
        return record_unsub_read(body, &sub)
    if kind == RECORD_END or kind == RECORD_WILL_GONE:
        return record_end_read(body, &store_session_id)
    if kind == RECORD_MSG or kind == RECORD_GATED:
        return record_msg_read(body, &msg)
    if kind == RECORD_ACKS or kind == RECORD_GATED_DONE:
        return record_acks_check(body)
    if kind == RECORD_RELEASED:
        return record_released_check(body)
    if kind == RECORD_INBOX:
        return record_inbox_read(body, &inbox)
    if kind == RECORD_INBOX_DONE:
        return record_inbox_done_read(body, &inbox)
    if kind == RECORD_RETAINED_GONE:
        return record_topic_read(body)
    if kind == RECORD_WILL:
        return record_will_read(body, &will)
    if kind == RECORD_RETAINED_FROM:
        return record_from_read(body, &source)
    if kind == RECORD_PUBLISHER:
        return record_publisher_read(body, &publisher)
    if kind == RECORD_STREAMS:
        return record_streams_check(body)
    if kind == RECORD_CLIENT_WILL:
        return record_client_will_read(body, &client_will)
    if kind == RECORD_CLIENT_WILL_GONE:
        return record_client_id_read(body)
    if kind == RECORD_WAITING_WILL or kind == RECORD_LINK_WILL:
        return record_waiting_will_read(body, &waiting_will)
    if kind == RECORD_WAITING_WILL_GONE:
        return record_waiting_will_gone_read(body, &number)
    if kind == RECORD_UNDELIVERED:
        return record_undelivered_read(body, &undelivered)
    if RECORD_LINK_RUN <= kind <= RECORD_LINK_CHOICE:
        found = record_numbers_read(kind, body, numbers)
        return found if found < 0 else 0
    return 0 if kind == RECORD_META else RECORD_KIND
