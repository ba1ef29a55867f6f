# Fuzz targets of the parsers of the net room. Each reads its input whole and in pieces, from memory of exactly their size, and
# aborts if the results differ. The first byte of an input selects the cuts.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport abort, free, malloc
from libc.string cimport memcmp, memcpy, memset
from cext.base.hash cimport HashKey
from cext.base.view cimport View
cimport cext.net.proxy as pp
cimport cext.net.relay_head as rh
cimport cext.net.ticket as tk
cimport cext.net.upgrade as up
cimport cext.net.websocket as ws


cdef inline void must(bint holds) noexcept nogil:
    if not holds:
        abort()


cdef uint8_t* copy(const uint8_t* p, size_t n) noexcept nogil:
    cdef uint8_t* q = <uint8_t*>malloc(n + (n == 0))
    if n:
        memcpy(q, p, n)
    return q


cdef uint64_t bytes_sum(const uint8_t* p, size_t n) noexcept nogil:
    cdef uint64_t total = n
    cdef size_t i
    for i in range(n):
        total = total * 31 + p[i]
    return total


cdef size_t piece(size_t n, uint8_t how, size_t at) noexcept nogil:
    """Return the size of the next piece: 1 to 16 bytes."""
    cdef size_t size = 1 + (how >> (at & 3)) % 16
    return size if size < n else n


cdef uint64_t websocket(const uint8_t* p, size_t n) noexcept nogil:
    cdef ws.WsDecoder whole, cut
    cdef uint8_t* a
    cdef uint8_t* b
    cdef uint8_t* out
    cdef size_t got, at = 0, take, have = 0, more
    cdef uint64_t total
    if n == 0:
        return 0
    memset(&whole, 0, sizeof(whole))
    memset(&cut, 0, sizeof(cut))
    a = copy(p + 1, n - 1)
    got = ws.ws_decode(&whole, a, n - 1)
    must(got < n)
    out = <uint8_t*>malloc(n)
    while at < n - 1:
        take = piece(n - 1 - at, p[0], at)
        b = copy(p + 1 + at, take)
        more = ws.ws_decode(&cut, b, take)
        must(more <= take and have + more <= got)
        memcpy(out + have, b, more)
        have += more
        at += take
        free(b)
    must(have == got and memcmp(a, out, got) == 0)
    must(whole.state == cut.state and whole.code == cut.code and whole.left == cut.left and whole.ping_due == cut.ping_due)
    must(whole.control_n == cut.control_n and memcmp(whole.control, cut.control, whole.control_n) == 0)
    must(whole.control_n <= ws.WS_CONTROL_BYTES_MAX and whole.head_n <= 14)
    must((whole.code != 0) == (whole.state == ws.WS_CLOSED or whole.state == ws.WS_FAILED))
    total = bytes_sum(a, got) + whole.code
    if whole.ping_due:
        b = <uint8_t*>malloc(ws.WS_PONG_SIZE_MAX)
        total += <uint64_t>(ws.ws_pong_put(b, &whole) - b)
        free(b)
    free(a)
    free(out)
    return total


cdef uint64_t upgrade(const uint8_t* p, size_t n) noexcept nogil:
    cdef up.Upgrade whole, cut
    cdef up.UpgradeRules rules
    cdef View origin
    cdef uint8_t* q
    cdef uint8_t* answer
    cdef uint8_t* end
    cdef int status, found = 0
    cdef size_t at = 0
    cdef uint64_t total
    if n < 2:
        return 0
    rules.size_max = <uint32_t>p[1] * 8
    origin.p = <const uint8_t*>b"http://a"
    origin.n = 8
    rules.origins = &origin
    rules.n_origins = p[1] & 1
    memset(&whole, 0, sizeof(whole))
    memset(&cut, 0, sizeof(cut))
    q = copy(p + 2, n - 2)
    status = up.upgrade_read(&whole, q, n - 2, &rules)
    free(q)
    while at < n - 2 and found == 0:
        at += piece(n - 2 - at, p[0], at)
        q = copy(p + 2, at)          # at another address each time
        found = up.upgrade_read(&cut, q, at, &rules)
        if found == up.UPGRADE_DONE:
            must(cut.size <= at and cut.forwarded_at + cut.forwarded_n <= cut.size and cut.origin_at + cut.origin_n <= cut.size)
            must(cut.size <= rules.size_max and cut.subprotocol != up.SUBPROTOCOL_NONE)
        free(q)
    must(status == found and whole.wrong == cut.wrong and whole.size == cut.size and whole.seen == cut.seen)
    must((status == up.UPGRADE_MORE or status == up.UPGRADE_DONE) == (whole.wrong == up.WRONG_NOTHING))
    if status == 0:
        return whole.seen
    answer = <uint8_t*>malloc(up.UPGRADE_ANSWER_MAX)
    end = up.upgrade_answer(answer, &whole, status)
    must(end < answer + up.UPGRADE_ANSWER_MAX)
    total = bytes_sum(answer, <size_t>(end - answer))
    free(answer)
    return total


cdef uint64_t view_sum(View v, const uint8_t* p, const pp.Proxied* out) noexcept nogil:
    must(v.n == 0 or (v.p >= p and v.p + v.n <= p + out.size))
    return bytes_sum(v.p, v.n)


cdef uint64_t proxy(const uint8_t* p, size_t n) noexcept nogil:
    cdef pp.Proxied whole, cut
    cdef int version, status, found = pp.PROXY_MORE
    cdef uint8_t* q
    cdef size_t at = 0
    cdef uint64_t total = 0
    if n == 0:
        return 0
    version = 1 + (p[0] & 1)
    q = copy(p + 1, n - 1)
    status = pp.proxy_read(version, q, n - 1, &whole)
    if status == pp.PROXY_DONE:
        must(0 < whole.size <= n - 1 and whole.size <= pp.PROXY_V2_BYTES_MAX)
        total = (view_sum(whole.common_name, q, &whole) + view_sum(whole.cipher, q, &whole) + view_sum(whole.tls_version, q, &whole)
                 + whole.port + bytes_sum(whole.ip, 16))
    free(q)
    while at < n - 1 and found == pp.PROXY_MORE:
        at += piece(n - 1 - at, p[0] >> 1, at)
        q = copy(p + 1, at)
        found = pp.proxy_read(version, q, at, &cut)
        must(found != pp.PROXY_MORE or cut.size == 0 or cut.size > at)
        free(q)
    must(found == status)
    if status == pp.PROXY_DONE:
        must(cut.size == whole.size and cut.port == whole.port and memcmp(cut.ip, whole.ip, 16) == 0 and cut.local == whole.local)
        must(cut.tls == whole.tls and cut.common_name.n == whole.common_name.n)
    return total


cdef bint within(View v, const uint8_t* p, uint32_t n) noexcept nogil:
    return v.p >= p and v.p + v.n <= p + n


cdef uint64_t relay_head(const uint8_t* p, size_t n) noexcept nogil:
    """Read a head whole and in pieces. Abort if the results differ, if a name lies outside of it, or if one of this version has other bytes when it is
    written again."""
    cdef rh.RelayHead whole, cut
    cdef int status, found = rh.RELAY_HEAD_MORE
    cdef uint8_t* q
    cdef uint8_t* again
    cdef size_t at = 0
    cdef uint64_t total = 0
    if n == 0:
        return 0
    q = copy(p + 1, n - 1)
    status = rh.relay_head_read(q, n - 1, &whole)
    must(whole.size <= rh.RELAY_HEAD_BYTES_MAX + rh.RELAY_NAME_MAX + rh.RELAY_PATH_MAX)
    if status == rh.RELAY_HEAD_DONE:
        must(whole.size <= n - 1 and within(whole.name, q, whole.size) and within(whole.path, q, whole.size))
        total = bytes_sum(whole.name.p, whole.name.n) + bytes_sum(whole.path.p, whole.path.n) + bytes_sum(whole.ip, 16) + whole.port
        must(rh.relay_head_size(&whole) > 0)
        again = <uint8_t*>malloc(rh.relay_head_size(&whole))
        rh.relay_head_put(again, &whole)
        must(q[4] > rh.RELAY_HEAD_VERSION or rh.relay_head_size(&whole) == whole.size)
        must(q[4] != rh.RELAY_HEAD_VERSION or memcmp(again, q, whole.size) == 0)
        free(again)
    free(q)
    while at < n - 1 and found == rh.RELAY_HEAD_MORE:
        at += piece(n - 1 - at, p[0], at)
        q = copy(p + 1, at)
        found = rh.relay_head_read(q, at, &cut)
        must(found != rh.RELAY_HEAD_MORE or cut.size == 0 or cut.size > at)
        free(q)
    must(found == status)
    return total


cdef void ticket_again(const uint8_t* p, const tk.Ticket* t) noexcept nogil:
    """Write a ticket again with the right proof, and take it: once, and not with a changed byte. Abort if it differs in anything but its proof."""
    cdef tk.TicketKey gives, takes
    cdef tk.Ticket read
    cdef HashKey key
    cdef uint8_t* made = <uint8_t*>malloc(t.size)
    key.k0, key.k1 = 1, 2
    memset(&gives, 0, sizeof(gives))
    memset(&takes, 0, sizeof(takes))
    must(tk.ticket_key_set(&gives, &key, 0) == 0 and tk.ticket_key_set(&takes, &key, 1) == 0)
    must(tk.ticket_take(&takes, p, t) == tk.TICKET_FORGED)       # a fuzzer finds no proof of 128 bits
    gives.number = t.number - 1
    must(tk.ticket_size(&t.head) == t.size)
    tk.ticket_put(made, &gives, t.slot, &t.head)
    must(memcmp(made, p, t.size - tk.TICKET_PROOF) == 0)
    must(tk.ticket_read(made, t.size, &read) == tk.TICKET_DONE)
    made[t.number % t.size] ^= 1
    must(tk.ticket_take(&takes, made, &read) == tk.TICKET_FORGED)
    made[t.number % t.size] ^= 1
    if t.number:
        must(tk.ticket_take(&takes, made, &read) == tk.TICKET_TAKEN)
        must(tk.ticket_take(&takes, made, &read) == tk.TICKET_AGAIN)
    tk.ticket_key_forget(&takes)
    free(made)


cdef uint64_t ticket(const uint8_t* p, size_t n) noexcept nogil:
    """Read a ticket whole and in pieces. Abort if the results differ, if its size is beyond the longest head, or if a wrong one is taken."""
    cdef tk.Ticket whole, cut
    cdef int status, found = tk.TICKET_MORE
    cdef uint8_t* q
    cdef size_t at = 0
    cdef uint64_t total = 0
    if n == 0:
        return 0
    q = copy(p + 1, n - 1)
    status = tk.ticket_read(q, n - 1, &whole)
    must(whole.size <= tk.TICKET_BYTES + rh.RELAY_HEAD_BYTES_MAX + rh.RELAY_NAME_MAX + rh.RELAY_PATH_MAX)
    if status == tk.TICKET_DONE:
        must(whole.size <= n - 1 and within(whole.head.name, q, whole.size) and within(whole.head.path, q, whole.size))
        total = whole.slot + whole.number + whole.size
        if q[tk.TICKET_BEGIN + 4] == rh.RELAY_HEAD_VERSION:
            ticket_again(q, &whole)
    free(q)
    while at < n - 1 and found == tk.TICKET_MORE:
        at += piece(n - 1 - at, p[0], at)
        q = copy(p + 1, at)
        found = tk.ticket_read(q, at, &cut)
        must(found != tk.TICKET_MORE or cut.size == 0 or cut.size > at)
        free(q)
    must(found == status)
    return total
