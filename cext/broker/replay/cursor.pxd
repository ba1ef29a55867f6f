# Streams for plain clients. A subscription to $stream/NAME/PLACE/FILTER is a cursor: it delivers the records of the stream's
# files, and then the records that follow. A cursor uses neither the index nor the routes. cursor.pyx is the loop's side, which
# delivers; cursor_reading.pyx is the storage thread's side, which reads.
#
#     subscribe -> ReadRequest --[lock: send]--> waits for unread records -> read, matched -> [lock: take]
#               -> delivered while the session has room -> requested again
from libc.stdint cimport uint8_t, uint32_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.persist.streams cimport Streams
from cext.broker.replay.cursor_state cimport Cursor, Cursors, ReadPlace
from cext.session.session cimport Session
from cext.topic.name cimport Filter

# ---- the loop's side

# Return whether the filter is a $stream filter and the broker has streams.
cdef bint cursor_wanted(Broker* b, View filter) noexcept nogil
# Subscribe to a stream. Returns a reason code; 0 .. 2 = granted. Replaces the session's cursor with the same filter.
cdef uint8_t cursor_open(Broker* b, Session* s, const Filter* f, uint8_t options, uint32_t sub_id) noexcept nogil
cdef bint cursor_close(Broker* b, Session* s, View filter) noexcept nogil       # 0 = there was none
# the session has room, has a client again, has lost it, or has ended
cdef void cursors_unblock(Broker* b, Session* s) noexcept nogil
# Discard the records that wait for slow readers, because memory is short; they are read again later. Returns 0 if there were
# none.
cdef bint cursors_discard(Broker* b) noexcept nogil
cdef void cursors_timer(Broker* b) noexcept nogil
cdef void cursors_receive(Broker* b) noexcept nogil                                # the storage thread has returned requests
cdef void cursors_begin(Streams* t) noexcept nogil                              # before the store is started
cdef void cursors_fini(Broker* b, Streams* t) noexcept nogil                    # after the store is closed
# Take all requests back from the storage thread, which has ended. cursors_timer sends them again.
cdef void cursors_pause(Broker* b) noexcept nogil
# Return the next cursor of a session behind `before`; NULL: the first one, or there is none.
cdef Cursor* cursor_next(Broker* b, const Session* s, const Cursor* before) noexcept nogil
# Subscribe a session of another process to a stream, with the place that the request of its cursor had in the first part there.
cdef void cursor_restore(Broker* b, Session* s, const Filter* f, uint8_t options, uint32_t sub_id, const ReadPlace* place) noexcept nogil
# Set its place in a further part.
cdef void cursor_restore_part(Broker* b, const Session* s, View filter, uint32_t number, const ReadPlace* place) noexcept nogil

# ---- between the threads, under the store's lock

cdef void cursors_send_requests(Cursors* k) noexcept nogil
cdef void cursors_take_requests(Cursors* k) noexcept nogil
