# Fuzz target of the records room. An input is a script from which a client with the right keys makes a stream: sealed records of
# any inner type, KeyUpdates, unsealed bytes, records with a changed bit. The target reads the stream whole and in pieces, from
# and into memory of exactly their size, and aborts if the results differ.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport abort, calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset
from cext.net.records cimport (
    ENDED_BY_CLOSE, ENDED_BY_PEER, ENDED_BY_US, ENDED_NOT, RECORD_BYTES, RECORD_EXTRA, RECORD_HEADER_BYTES, Records, SUITES, Suite,
    records_begin, records_end, records_learn, records_open, records_renew, records_alert, records_seal, suite_find, suites_fini, suites_init,
)

cdef enum:
    STREAM_BYTES = 512 * 1024


cdef inline void must(bint holds) noexcept nogil:
    if not holds:
        abort()


cdef void learn(Records* x, Suite* s, bint client) noexcept nogil:
    """Return two fixed secrets; the client has them in the opposite order."""
    cdef char line[200]
    cdef int i, which
    for which in range(2):
        memset(line, 0, sizeof(line))
        memcpy(line, b"CLIENT_TRAFFIC_SECRET_0 r " if (which == 0) != client else b"SERVER_TRAFFIC_SECRET_0 r ", 26)
        for i in range(2 * s.secret_n):
            line[26 + i] = c'a' if which == 0 else c'b'
        records_learn(x, line)
    must(records_begin(x, s, 0) == 0)


cdef size_t stream_make(Records* client, const uint8_t* p, size_t n, uint8_t* out) noexcept nogil:
    """Run the script; each step is how, type, size, bytes."""
    cdef size_t at = 0, total = 0, size
    cdef int made
    while n - at >= 3 and STREAM_BYTES - total > 2 * (RECORD_BYTES + RECORD_EXTRA):
        size = p[at + 2] if p[at + 2] < n - at - 3 else n - at - 3
        if p[at] & 3 == 1:
            client.update_due = 1
            made = records_renew(client, out + total)
        elif p[at] & 3 == 2:
            memcpy(out + total, p + at + 3, size)
            made = <int>size
        else:
            made = records_seal(client, p[at + 1], p + at + 3, <uint32_t>size, out + total)
            if p[at] & 3 == 3:
                out[total + p[at + 1] % made] ^= 1
        must(made >= 0)
        total += <size_t>made
        at += 3 + size
    return total


cdef size_t take(Records* x, const uint8_t* p, size_t n, uint8_t* out, size_t* got, uint64_t now_s) noexcept nogil:
    """Open n bytes from memory of exactly that size, into such memory."""
    cdef uint8_t* a = <uint8_t*>malloc(n + (n == 0))
    cdef uint8_t* b = <uint8_t*>malloc(n + (n == 0))
    cdef size_t used
    memcpy(a, p, n)
    used = records_open(x, a, n, b, got, now_s)
    must(used <= n and got[0] <= used)
    must(x.ended == ENDED_NOT or used == n)
    memcpy(out, b, got[0])
    free(a)
    free(b)
    return used


cdef uint64_t tls_records(const uint8_t* p, size_t n) noexcept nogil:
    cdef Suite* suites
    cdef Suite* s
    cdef Records whole, cut, client
    cdef uint8_t* stream
    cdef uint8_t* out
    cdef uint8_t* pieces
    cdef uint8_t answer[RECORD_EXTRA]
    cdef size_t total, have = 0, at = 0, got, more, end, used
    cdef uint64_t result = 0
    if n < 2:
        return 0
    suites = <Suite*>calloc(SUITES, sizeof(Suite))
    stream = <uint8_t*>malloc(STREAM_BYTES)
    out = <uint8_t*>malloc(STREAM_BYTES)
    pieces = <uint8_t*>malloc(STREAM_BYTES)
    must(suites_init(suites) == 0)
    s = suite_find(suites, 0x1301 + p[0] % 3)
    memset(&whole, 0, sizeof(Records))
    memset(&cut, 0, sizeof(Records))
    memset(&client, 0, sizeof(Records))
    learn(&whole, s, 0)
    learn(&cut, s, 0)
    learn(&client, s, 1)
    total = stream_make(&client, p + 2, n - 2, stream)
    used = take(&whole, stream, total, out, &have, 7)
    got = 0
    end = 0
    while end < total and cut.ended == ENDED_NOT:        # [at, end): the kept bytes of a connection and the new ones
        end = end + 1 + (p[1] >> (end & 7)) * 3
        end = end if end < total else total
        at += take(&cut, stream + at, end - at, pieces + got, &more, 7)
        got += more
        must(got <= have)
    must(got == have and memcmp(out, pieces, got) == 0)
    must(whole.ended == cut.ended and whole.alert == cut.alert and whole.update_due == cut.update_due and whole.message_n == cut.message_n)
    must(whole.peers.sequence == cut.peers.sequence and memcmp(whole.peers.key, cut.peers.key, 32) == 0)
    must(whole.ended != ENDED_NOT or used == at)
    must(whole.ended <= ENDED_BY_US and (whole.ended != ENDED_BY_CLOSE or whole.alert == 0))
    if whole.ended == ENDED_BY_US:
        must(records_alert(&whole, whole.alert, answer) == RECORD_HEADER_BYTES + 2 + 1 + 16)
        must(records_open(&client, answer, RECORD_HEADER_BYTES + 2 + 1 + 16, out, &more, 7) == RECORD_HEADER_BYTES + 2 + 1 + 16)
        must(more == 0 and client.ended == ENDED_BY_PEER and client.alert == whole.alert)
    result = have + whole.ended * 31 + whole.alert
    records_end(&whole)
    records_end(&cut)
    records_end(&client)
    suites_fini(suites)
    free(suites)
    free(stream)
    free(out)
    free(pieces)
    return result
