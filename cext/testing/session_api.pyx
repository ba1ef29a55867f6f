"""Test API of the session room: thin classes over its structs."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from cext.base.buffer cimport Buffers, buffer_take, buffers_fini, buffers_init
from cext.base.hash cimport HashKey, hash_key_init
from cext.base.pybytes cimport view_of
from cext.base.view cimport View
from cext.session.message cimport Message, Messages, message_new, message_new_big, message_unref
from cext.session.queue cimport (
    D_DONE, D_RELEASED, D_SENT, Delivery, Inbox, Queue, delivery_page, delivery_release, delivery_unpage, inbox_add, inbox_find,
    inbox_fini, inbox_remove, is_paged, paged_bytes, paged_lsn, queue_at, queue_done, queue_find, queue_fini, queue_pid_rises, queue_push,
    queue_rewind, queue_take_pid,
)
from cext.session.session cimport (
    Session, Sessions, session_free, session_new, session_share, sessions_add, sessions_find, sessions_fini, sessions_first,
    sessions_init, sessions_next, sessions_remove,
)


cdef class PyQueue:
    """A queue whose messages are numbers (in the payload). Its methods are the single steps of the broker's pump and handlers."""
    cdef Queue queue
    cdef Messages store
    cdef Buffers buffers

    def __cinit__(self, uint16_t last_pid=0):
        memset(&self.queue, 0, sizeof(Queue))
        memset(&self.store, 0, sizeof(Messages))
        buffers_init(&self.buffers, 0)
        self.queue.last_pid = last_pid

    def __dealloc__(self):
        cdef uint32_t i = self.queue.floor
        while i != self.queue.tail:
            self._release(queue_at(&self.queue, i))
            i += 1
        queue_fini(&self.queue)
        buffers_fini(&self.buffers)

    cdef void _release(self, Delivery* d):
        delivery_release(&self.store, &self.buffers, d)

    def page(self, uint32_t n, uint64_t lsn, bint only):
        """Page out the nth waiting message. Return whether its memory was released."""
        cdef Delivery* d = queue_at(&self.queue, self.queue.next + n)
        if is_paged(d):
            return False
        return delivery_page(&self.store, &self.buffers, &self.queue, d, lsn, d.message.payload.n, d.message.topic.n if only else -1)

    def paged(self, uint32_t n):
        """Return the place of a paged message, (lsn, bytes); None = it is in memory."""
        cdef Delivery* d = queue_at(&self.queue, self.queue.next + n)
        return (paged_lsn(d), paged_bytes(d)) if is_paged(d) else None

    def unpage(self, uint32_t n, bytes payload):
        delivery_unpage(&self.store, &self.queue, queue_at(&self.queue, self.queue.next + n),
                        message_new(&self.store, view_of(b"t"), view_of(b""), view_of(payload)))

    def recorded_bytes(self):
        return self.store.recorded_bytes

    def push(self, int number, int qos, int size=0):
        """Queue a message. Return its packet id."""
        cdef bytes payload = b"%0*d" % (size, number)       # a local name keeps the payload alive, which the view does not
        cdef Message* m = message_new(&self.store, view_of(b"t"), view_of(b""), view_of(payload))
        return queue_push(&self.queue, m, <uint8_t>qos, 0, 0).pid

    def take_pid(self):
        return queue_take_pid(&self.queue)

    def rises(self):
        return bool(queue_pid_rises(&self.queue))

    def send_next(self):
        """Send the next delivery, skipping finished ones. Return ('publish' | 'again', number, qos, pid), ('pubrel', pid) or
        None."""
        cdef Delivery* d
        while self.queue.next != self.queue.tail:
            d = queue_at(&self.queue, self.queue.next)
            self.queue.next += 1
            if d.state == D_DONE:
                continue
            if d.state == D_RELEASED:
                self.queue.inflight += 1
                return "pubrel", d.pid
            number = int((<const char*>d.message.payload.p)[:d.message.payload.n])
            self.queue.waiting_bytes -= d.message.payload.n
            self.queue.inflight_bytes += d.message.payload.n
            out = ("again" if d.state == D_SENT else "publish", number, d.qos & 3, d.pid if d.qos & 3 else 0)
            if d.qos & 3:
                d.state = D_SENT
                self.queue.inflight += 1
            else:
                self._done(d)
            return out
        return None

    cdef void _done(self, Delivery* d):
        if d.message != NULL:
            self.queue.inflight_bytes -= d.message.payload.n
        self._release(d)
        queue_done(&self.queue, d)

    def state(self, uint16_t pid):
        """Return None (unknown), 'sent' or 'released'."""
        cdef Delivery* d = queue_find(&self.queue, pid)
        return None if d == NULL else "sent" if d.state == D_SENT else "released"

    def release(self, uint16_t pid):
        """Handle PUBREC."""
        cdef Delivery* d = queue_find(&self.queue, pid)
        self.queue.inflight_bytes -= d.message.payload.n
        self._release(d)
        d.state = D_RELEASED

    def done(self, uint16_t pid):
        """Handle PUBACK or PUBCOMP."""
        self.queue.inflight -= 1
        self._done(queue_find(&self.queue, pid))

    def rewind(self):
        queue_rewind(&self.queue)

    def counts(self):
        """Return (waiting positions, inflight, pending, waiting bytes, inflight bytes, messages in the store)."""
        return (self.queue.tail - self.queue.next, self.queue.inflight, self.queue.pending, self.queue.waiting_bytes,
                self.queue.inflight_bytes, self.store.count)


cdef class PyInbox:
    cdef Inbox inbox

    def __dealloc__(self):
        inbox_fini(&self.inbox)

    def add(self, uint16_t pid):
        assert inbox_add(&self.inbox, pid, NULL) == 0

    def has(self, uint16_t pid):
        return inbox_find(&self.inbox, pid) != NULL

    def remove(self, uint16_t pid):
        inbox_remove(&self.inbox, inbox_find(&self.inbox, pid))

    def count(self):
        return self.inbox.n


cdef class PyShares:
    """The shares of one session."""
    cdef Sessions table
    cdef HashKey key
    cdef Session* s

    def __cinit__(self):
        hash_key_init(&self.key)
        sessions_init(&self.table, &self.key)
        self.s = session_new(&self.table, view_of(b"s"))

    def __dealloc__(self):
        session_free(&self.table, self.s)
        sessions_fini(&self.table)

    def share(self, uint64_t group, uint32_t sub_id, uint16_t known=0):
        return session_share(self.s, group, sub_id, known)

    def set_pending(self, uint32_t n):
        """Set the number of unfinished deliveries."""
        self.s.queue.pending = n

    def read(self, uint32_t place):
        assert 0 < place <= self.s.n_shares
        return self.s.shares[place - 1].group, self.s.shares[place - 1].sub_id

    def counts(self):
        """Return (in use, room)."""
        return self.s.n_shares, self.s.shares_cap


cdef class PySessions:
    cdef Sessions table
    cdef HashKey key

    def __cinit__(self):
        hash_key_init(&self.key)
        sessions_init(&self.table, &self.key)

    def __dealloc__(self):
        for client_id in self.walk():
            self.remove(client_id)
        sessions_fini(&self.table)

    def add(self, bytes client_id):
        sessions_add(&self.table, session_new(&self.table, view_of(client_id)))

    def has(self, bytes client_id):
        return sessions_find(&self.table, view_of(client_id)) != NULL

    def remove(self, bytes client_id):
        cdef Session* s = sessions_find(&self.table, view_of(client_id))
        sessions_remove(&self.table, s)
        session_free(&self.table, s)

    def walk(self):
        cdef uint64_t at = 0
        cdef Session* s = sessions_first(&self.table, &at)
        out = []
        while s != NULL:
            out.append((<const char*>s.client_id)[:s.id_len])
            s = sessions_next(&self.table, s, &at)
        return out

    def count(self):
        return self.table.count


def big_message(bytes payload):
    """Make a message that takes over a buffer. Return (payload read back, used bytes of the buffers while it exists, and
    after)."""
    cdef Buffers buffers
    cdef Messages store
    cdef uint32_t cap
    cdef View v
    cdef Message* m
    cdef uint8_t* p
    buffers_init(&buffers, 1 << 20)
    memset(&store, 0, sizeof(store))
    p = buffer_take(&buffers, len(payload), &cap)
    for i, byte in enumerate(payload):
        p[<size_t>i] = byte
    v.p = p
    v.n = <uint32_t>len(payload)
    m = message_new_big(&store, view_of(b"topic"), view_of(b"props"), v, p, cap)
    back = (<const char*>m.payload.p)[:m.payload.n]
    during = buffers.used_bytes
    message_unref(&store, &buffers, m)
    after = buffers.used_bytes
    assert store.count == 0 and store.bytes == 0
    buffers_fini(&buffers)
    return back, during, after
