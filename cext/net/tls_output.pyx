# distutils: libraries = ssl crypto
"""Encrypt output in records, and send it. This module knows Segs, records and the socket; `records` or OpenSSL encrypts.

Invariants: at most TLS_OUT_BYTES encrypted bytes wait, and at most UNREAD_MAX_BYTES of a handshake whose peer does not read. No Seg
is changed: the flush of conn_output.pyx frees the sent ones.
"""

from libc.errno cimport EAGAIN, EINTR, ENOBUFS, EPROTO, errno
from libc.stdint cimport uint32_t, uint8_t
from libc.string cimport memcpy

from cext.base.buffer cimport buffer_give, buffer_take
from cext.net.conn cimport conn_mark_dirty
from cext.net.conn_state cimport CONN_CLOSING, CONN_DIRTY, Conn, Reactor, Seg
from cext.net.openssl cimport ERR_clear_error, SSL_shutdown, SSL_write
from cext.net.records cimport (
    ALERT_CLOSE_NOTIFY, RECORD_BYTES, RECORD_EXTRA, RECORD_HEADER_BYTES, TYPE_DATA, records_alert, records_renew,
    records_seal,
)
from cext.net.system cimport MSG_NOSIGNAL, send
from cext.net.tls_layer cimport tls_fail
from cext.net.tls_state cimport TLS_OUT_BYTES, Tls, TlsLayer, UNREAD_MAX_BYTES

cdef extern from * nogil:
    """
    #include <errno.h>
    static inline void errno_set(int e) { errno = e; }
    """
    void errno_set(int e)


cdef void tls_out_drop(Reactor* r, Tls* t) noexcept nogil:
    if t.out != NULL:
        buffer_give(&r.buffers, t.out, t.out_cap)
    t.out = NULL
    t.out_off = t.out_cap = 0
    t.base.unsent = 0


cdef int out_store(Reactor* r, Tls* t, const uint8_t* p, size_t n) noexcept nogil:
    """Store output for later. No other output may be waiting."""
    t.out = buffer_take(&r.buffers, n, &t.out_cap)
    if t.out == NULL:
        return -1
    memcpy(t.out, p, n)
    t.out_off = 0
    t.base.unsent = <uint32_t>n
    return 0


cdef void tls_queue_output(Reactor* r, Conn* c, bint now) noexcept nogil:
    """Queue the output that a read caused for the flush, after waiting output. Without `now` it waits for the answer to the first
    packet, because no client needs a session ticket earlier [RFC 8446 4.6.1]."""
    cdef Tls* t = <Tls*>c.transport
    cdef TlsLayer* y = <TlsLayer*>r.layer
    cdef uint8_t* old = t.out
    cdef uint32_t cap = t.out_cap, n = t.base.unsent
    if n + y.out_n > <size_t>(TLS_OUT_BYTES if t.done else UNREAD_MAX_BYTES):     # never more than layer.out holds
        tls_fail(r, c)               # the peer causes output and does not read it
        y.out_n = 0
        return
    if n:
        t.out = buffer_take(&r.buffers, n + y.out_n, &t.out_cap)
        if t.out == NULL:
            t.out = old
            t.out_cap = cap
            tls_fail(r, c)
            return
        memcpy(t.out, old + t.out_off, n)
        memcpy(t.out + n, y.out, y.out_n)
        t.out_off = 0
        t.base.unsent = n + <uint32_t>y.out_n
        buffer_give(&r.buffers, old, cap)
    elif out_store(r, t, y.out, y.out_n) != 0:
        tls_fail(r, c)
        return
    y.out_n = 0
    if now and not c.flags & CONN_DIRTY:
        conn_mark_dirty(r, c)


cdef bint tls_put_alert(TlsLayer* y, Tls* t, uint8_t alert) noexcept nogil:
    """Write an alert into layer.out. Return 0 if there is no room now."""
    cdef int n
    if TLS_OUT_BYTES - y.out_n < RECORD_EXTRA:
        return 0
    if t.ssl != NULL:
        ERR_clear_error()
        SSL_shutdown(t.ssl)
    else:
        n = records_alert(&t.records, alert, y.out + y.out_n)
        y.out_n += <size_t>n if n > 0 else 0
    return 1


# ---------------------------------------------------------------- encryption

cdef uint32_t gather_record(Seg** at, uint32_t* off, uint8_t* out) noexcept nogil:
    """Copy the bytes of one record from the Segs to out, and advance."""
    cdef Seg* s = at[0]
    cdef uint32_t n = 0, more
    while s != NULL and n < RECORD_BYTES:
        more = s.len - off[0] if s.len - off[0] < RECORD_BYTES - n else RECORD_BYTES - n
        memcpy(out + n, s.p + off[0], more)
        n += more
        off[0] += more
        if off[0] == s.len:
            s = s.next
            off[0] = s.off if s != NULL else 0
    at[0] = s
    return n


cdef int encrypt_record(TlsLayer* y, Tls* t, const uint8_t* p, uint32_t n) noexcept nogil:
    """Encrypt the n bytes at p into one record in layer.out. Return -1 after an error."""
    cdef int size
    if t.ssl != NULL:
        ERR_clear_error()
        return 0 if SSL_write(t.ssl, p, <int>n) == <int>n else -1
    size = records_seal(&t.records, TYPE_DATA, p, n, y.out + y.out_n)
    y.out_n += <size_t>size if size > 0 else 0
    return 0 if size > 0 else -1


cdef ssize_t tls_encrypt(TlsLayer* y, Tls* t, Seg* s) noexcept nogil:
    """Encrypt as much of the Segs as there is room for. Return the number of bytes, or -1 after an error."""
    cdef ssize_t taken = 0
    cdef uint32_t at = s.off, n
    cdef const uint8_t* p
    cdef int renewed
    while s != NULL and TLS_OUT_BYTES - y.out_n >= RECORD_BYTES + RECORD_EXTRA:
        if t.ssl == NULL:
            renewed = records_renew(&t.records, y.out + y.out_n)
            if renewed < 0:
                return -1
            y.out_n += <size_t>renewed
        n = s.len - at
        p = s.p + at
        if n >= RECORD_BYTES or (s.next == NULL and t.ssl != NULL):
            n = n if n < RECORD_BYTES else RECORD_BYTES
            at += n
            if at == s.len:
                s = s.next
                at = s.off if s != NULL else 0
        else:                    # `records` encrypts in place
            p = &y.gathered[0] if t.ssl != NULL else &y.out[y.out_n + RECORD_HEADER_BYTES]
            n = gather_record(&s, &at, <uint8_t*>p)
        if n:
            if encrypt_record(y, t, p, n) != 0:
                return -1
            taken += n
    return taken


cdef ssize_t tls_send(Reactor* r, Conn* c) noexcept nogil:
    cdef Tls* t = <Tls*>c.transport
    cdef TlsLayer* y = <TlsLayer*>r.layer
    cdef ssize_t taken = 0, sent
    y.out_n = t.base.unsent
    if y.out_n:
        memcpy(y.out, t.out + t.out_off, y.out_n)
        tls_out_drop(r, t)
    if c.out_head != NULL:
        taken = tls_encrypt(y, t, c.out_head) if t.done and t.base.open else -1
        if taken < 0:
            errno_set(EPROTO)
            t.base.open = 0
            return -1
    if c.flags & CONN_CLOSING and t.base.open and <size_t>taken == c.out_bytes:
        # If there is no room, a later call repeats this after some output is sent.
        t.base.open = not tls_put_alert(y, t, ALERT_CLOSE_NOTIFY)
    if y.out_n == 0:
        return taken
    sent = send(c.fd, y.out, y.out_n, MSG_NOSIGNAL)
    if sent < 0:
        if errno != EAGAIN and errno != EINTR and errno != ENOBUFS:
            t.base.open = 0
            return -1
        sent = 0
    if <size_t>sent < y.out_n and out_store(r, t, y.out + sent, y.out_n - <size_t>sent) != 0:
        t.base.open = 0         # a record is lost
        errno_set(EPROTO)
        return -1
    if t.base.unsent and taken == 0 and sent == 0:
        errno_set(EAGAIN)
        return -1
    return taken
