# distutils: libraries = ssl crypto
"""Receive and decrypt input. This module knows the socket, records and OpenSSL's SSL; `records` or OpenSSL decrypts.

Invariants: less is received than the arena holds, so no decrypted byte is left behind. Only an unfinished record is stored. Without threads a turn
does at most TLS_HANDSHAKES_PER_TURN steps of handshakes.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy

from cext.base.buffer cimport buffer_give, buffer_take
from cext.net.conn_state cimport Conn, NOTHING, Reactor
from cext.net.openssl cimport (
    ERR_LIB_SSL, ERR_R_INTERNAL_ERROR, ERR_clear_error, ERR_raise, SSL_AD_REASON_OFFSET, SSL_R_BAD_LENGTH, SSL_R_BAD_VALUE,
    SSL_R_DATA_LENGTH_TOO_LONG, SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC, SSL_R_TOO_MANY_KEY_UPDATES, SSL_R_UNEXPECTED_MESSAGE,
    SSL_pending, SSL_read,
)
from cext.net.records cimport (
    ALERT_BAD_RECORD_MAC, ALERT_DECODE_ERROR, ALERT_ILLEGAL_PARAMETER, ALERT_INTERNAL_ERROR, ALERT_RECORD_OVERFLOW,
    ALERT_UNEXPECTED_MESSAGE, ENDED_BY_CLOSE, ENDED_BY_PEER, ENDED_BY_US, ENDED_NOT, KEY_UPDATES_MAX, Records,
    records_open,
)
from cext.net.system cimport recv
from cext.net.tls_handshake cimport handshake_give, handshake_use
from cext.net.tls_hello cimport HELLO_PART, HELLO_TOO_LARGE, HELLO_WHOLE, hello_state
from cext.net.tls_layer cimport tls_fail, tls_stopped
from cext.net.tls_output cimport tls_put_alert, tls_queue_output
from cext.net.tls_pool cimport Handshake
from cext.net.tls_state cimport TLS_HANDSHAKES_PER_TURN, TLS_IN_BYTES, Tls, TlsLayer


cdef ssize_t tls_receive(Reactor* r, Conn* c, uint8_t* p, size_t n) noexcept nogil:
    cdef Tls* t = <Tls*>c.transport
    cdef TlsLayer* y = <TlsLayer*>r.layer
    cdef Handshake* h = t.handshake
    cdef ssize_t got
    cdef size_t total = 0, tickets = 0
    cdef uint32_t have = t.part_n if h == NULL else h.received_n
    if t.base.over or (h != NULL and h.away):
        return NOTHING
    if h == NULL or not h.ready:
        if not t.done and y.pool.n_threads == 0 and not handshake_step_allowed(r, y):
            return NOTHING      # the socket is still readable, so the next turn continues
        got = recv(c.fd, y.received + t.part_n, TLS_IN_BYTES - have, 0)
        if got <= 0:
            if got == 0 or (errno != EAGAIN and errno != EINTR):
                t.base.open = 0
            return got
        if t.part_n:
            memcpy(y.received, t.part, t.part_n)
        y.in_p = y.received
        y.in_n = t.part_n + <size_t>got
        y.out_n = 0
        if not t.done and not handshake_take(r, c, <uint32_t>y.in_n):
            return NOTHING
    if not t.done:
        tickets = handshake_use(r, c)
    if t.done and not t.base.over and y.in_n:
        total = read_records(r, c, p) if t.ssl == NULL else ssl_decrypt(r, c, p, n)
    y.in_n = 0
    if y.out_n:
        tls_queue_output(r, c, y.out_n > tickets or t.base.over)
    return <ssize_t>total if total else NOTHING


cdef bint handshake_take(Reactor* r, Conn* c, uint32_t n) noexcept nogil:
    """Take n bytes of a handshake. Return whether handshake_use must follow now. Until the ClientHello is complete, its bytes wait in
    `part`, and there is no SSL."""
    cdef Tls* t = <Tls*>c.transport
    cdef TlsLayer* y = <TlsLayer*>r.layer
    cdef int state = hello_state(y.received, n) if t.handshake == NULL else HELLO_WHOLE
    cdef int given = -1
    y.in_n = 0
    if state == HELLO_PART and part_store(r, t, y.received, n) == 0:
        y.steps -= 1 if y.pool.n_threads == 0 else 0     # it cost no calculation
        return 0
    if state == HELLO_TOO_LARGE:
        ERR_clear_error()
        ERR_raise(ERR_LIB_SSL, SSL_R_DATA_LENGTH_TOO_LONG)
    if state == HELLO_WHOLE:
        tls_part_drop(r, t)
        given = handshake_give(r, c, y.received, n)
    if given < 0:
        tls_fail(r, c)
    return given > 0


cdef bint handshake_step_allowed(Reactor* r, TlsLayer* y) noexcept nogil:
    if y.turn != r.turns:
        y.turn = r.turns
        y.steps = 0
    y.steps += 1
    return y.steps <= TLS_HANDSHAKES_PER_TURN


# ---------------------------------------------------------------- with records

cdef size_t read_records(Reactor* r, Conn* c, uint8_t* p) noexcept nogil:
    """Read all whole records of layer.in. The received part of another record waits in `part`."""
    cdef Tls* t = <Tls*>c.transport
    cdef TlsLayer* y = <TlsLayer*>r.layer
    cdef Records* x = &t.records
    cdef size_t total
    cdef size_t used = records_open(x, y.in_p, y.in_n, p, &total, <uint64_t>r.now_s)
    if x.ended == ENDED_NOT and part_store(r, t, y.in_p + used, y.in_n - used) != 0:
        x.ended = ENDED_BY_US
        x.alert = ALERT_INTERNAL_ERROR
    if x.ended == ENDED_NOT:
        return total
    if x.ended == ENDED_BY_CLOSE:
        t.base.over = 1
        return total
    if x.ended == ENDED_BY_US:
        tls_put_alert(y, t, x.alert)
    ERR_clear_error()
    ERR_raise(ERR_LIB_SSL, SSL_AD_REASON_OFFSET + x.alert if x.ended == ENDED_BY_PEER else reason_of_alert(x.alert))
    tls_fail(r, c)
    return total


cdef int reason_of_alert(int alert) noexcept nogil:
    """Return OpenSSL's reason code for an alert that we send."""
    return (SSL_R_UNEXPECTED_MESSAGE if alert == ALERT_UNEXPECTED_MESSAGE
            else SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC if alert == ALERT_BAD_RECORD_MAC
            else SSL_R_DATA_LENGTH_TOO_LONG if alert == ALERT_RECORD_OVERFLOW
            else SSL_R_BAD_LENGTH if alert == ALERT_DECODE_ERROR
            else SSL_R_BAD_VALUE if alert == ALERT_ILLEGAL_PARAMETER else ERR_R_INTERNAL_ERROR)


cdef void tls_part_drop(Reactor* r, Tls* t) noexcept nogil:
    if t.part != NULL:
        buffer_give(&r.buffers, t.part, t.part_cap)
    t.part = NULL
    t.part_n = t.part_cap = 0


cdef int part_store(Reactor* r, Tls* t, const uint8_t* p, size_t n) noexcept nogil:
    """Store an unfinished record. layer.in also contains the part that was stored before."""
    if n == 0 or n > t.part_cap:
        tls_part_drop(r, t)
    if n and t.part == NULL:
        t.part = buffer_take(&r.buffers, n, &t.part_cap)
        if t.part == NULL:
            return -1
    if n:
        memcpy(t.part, p, n)
    t.part_n = <uint32_t>n
    return 0


# ---------------------------------------------------------------- with OpenSSL

cdef size_t ssl_decrypt(Reactor* r, Conn* c, uint8_t* p, size_t n) noexcept nogil:
    """Decrypt all of layer.in with OpenSSL."""
    cdef Tls* t = <Tls*>c.transport
    cdef TlsLayer* y = <TlsLayer*>r.layer
    cdef size_t total = 0
    cdef int got
    if t.late_s != <uint64_t>r.now_s:
        t.late_s = <uint64_t>r.now_s
        t.late = 0
    y.reader = t
    while True:
        ERR_clear_error()
        got = SSL_read(t.ssl, p + total, <int>(n - total))
        if got > 0:
            total += <size_t>got
            if y.in_n == 0 and SSL_pending(t.ssl) == 0:
                break           # another call would only make OpenSSL allocate a buffer
            continue
        if t.late > KEY_UPDATES_MAX:
            ERR_clear_error()
            ERR_raise(ERR_LIB_SSL, SSL_R_TOO_MANY_KEY_UPDATES)
            tls_fail(r, c)
        else:
            tls_stopped(r, c, got)
        break
    y.reader = NULL
    return total
