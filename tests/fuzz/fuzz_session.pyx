# Fuzz target of the bodies of records. The input is the kind, then the body. A body that is accepted is encoded again, and the bytes must be equal.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport abort, free, malloc
from libc.string cimport memcmp, memcpy
from cext.base.view cimport View
from cext.session.record cimport (
    RECORD_CLIENT_WILL, RECORD_GATED, RECORD_INBOX, RECORD_MSG, RECORD_SESSION, RECORD_SUB, RECORD_UNDELIVERED, RECORD_UNSUB, RECORD_WAITING_WILL, RECORD_WILL,
    RecordClientWill, RecordEntry, RecordInbox, RecordMsg, RecordSession, RecordSub, RecordUndelivered, RecordWaitingWill, RecordWill, record_check,
    record_client_will_put, record_client_will_read, record_client_will_size, record_entry_next, record_entry_put, record_entry_size, record_inbox_put,
    record_inbox_read, record_inbox_size, record_meta_find, record_msg_end_put, record_msg_put, record_msg_read, record_msg_size,
    record_session_put, record_session_read, record_session_size, record_sub_put, record_sub_read, record_sub_size,
    record_undelivered_put, record_undelivered_read, record_undelivered_size, record_unsub_put, record_unsub_read, record_unsub_size, record_waiting_will_put, record_waiting_will_read,
    record_waiting_will_size, record_will_put, record_will_read, record_will_size,
)


cdef void same(const uint8_t* copy, const uint8_t* end, uint64_t size, View body) noexcept nogil:
    if size != body.n or end != copy + size or memcmp(copy, body.p, body.n) != 0:
        abort()


cdef void msg_again(RecordMsg* m, uint8_t* copy, View body) noexcept nogil:
    cdef RecordEntry e
    cdef View entries = m.entries
    cdef uint64_t entries_bytes = 0
    cdef uint8_t* p
    while record_entry_next(&entries, &e):
        entries_bytes += record_entry_size(&e)
    if record_msg_size(&m.message, entries_bytes) != body.n:
        abort()
    p = record_msg_put(copy, &m.message, m.n)
    while record_entry_next(&m.entries, &e):
        p = record_entry_put(p, &e)
    same(copy, record_msg_end_put(p, &m.message), body.n, body)


cdef void again(uint8_t kind, View body, uint8_t* copy) noexcept nogil:
    cdef RecordSession session
    cdef RecordSub sub
    cdef RecordMsg msg
    cdef RecordInbox inbox
    cdef RecordWill will
    cdef RecordClientWill client_will
    cdef RecordWaitingWill waiting_will
    cdef RecordUndelivered undelivered
    if kind == RECORD_SESSION and record_session_read(body, &session) == 0:
        if record_session_size(&session) != body.n:
            abort()
        same(copy, record_session_put(copy, &session), body.n, body)
    elif kind == RECORD_SUB and record_sub_read(body, &sub) == 0:
        same(copy, record_sub_put(copy, &sub), record_sub_size(&sub), body)
    elif kind == RECORD_UNSUB and record_unsub_read(body, &sub) == 0:
        same(copy, record_unsub_put(copy, &sub), record_unsub_size(&sub), body)
    elif (kind == RECORD_MSG or kind == RECORD_GATED) and record_msg_read(body, &msg) == 0:
        msg_again(&msg, copy, body)
    elif kind == RECORD_INBOX and record_inbox_read(body, &inbox) == 0:
        same(copy, record_inbox_put(copy, &inbox), record_inbox_size(&inbox), body)
    elif kind == RECORD_WILL and record_will_read(body, &will) == 0:
        same(copy, record_will_put(copy, &will), record_will_size(&will), body)
    elif kind == RECORD_CLIENT_WILL and record_client_will_read(body, &client_will) == 0:
        same(copy, record_client_will_put(copy, &client_will), record_client_will_size(&client_will), body)
    elif kind == RECORD_WAITING_WILL and record_waiting_will_read(body, &waiting_will) == 0:
        same(copy, record_waiting_will_put(copy, &waiting_will), record_waiting_will_size(&waiting_will), body)
    elif kind == RECORD_UNDELIVERED and record_undelivered_read(body, &undelivered) == 0:
        same(copy, record_undelivered_put(copy, &undelivered), record_undelivered_size(&undelivered), body)


cdef uint64_t record(const uint8_t* p, size_t n) noexcept nogil:
    cdef View body, key, value
    cdef uint8_t* memory
    cdef uint8_t* copy
    cdef uint64_t total
    if n == 0:
        return 0
    body.n = <uint32_t>(n - 1)
    memory = <uint8_t*>malloc(body.n if body.n else 1)
    copy = <uint8_t*>malloc(n)
    if body.n:
        memcpy(memory, p + 1, body.n)
    body.p = memory
    total = <uint64_t>record_check(p[0], body)
    again(p[0], body, copy)
    key.p = <const uint8_t*>"key"
    key.n = 3
    if record_meta_find(body, key, &value):
        total += value.n + (value.p[value.n - 1] if value.n else 0)
    free(copy)
    free(memory)
    return total
