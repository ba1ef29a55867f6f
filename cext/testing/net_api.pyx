# Test API of the net room: thin functions over the parsers without I/O. No message of a broker passes through here. Each function
# copies its input into memory of exactly its size, so that ASan detects a read beyond it.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from cext.base.hash cimport HashKey
from cext.base.view cimport View
from cext.net.accept_key cimport WS_ACCEPT_SIZE, WS_KEY_SIZE, ws_accept
from cext.net.proxy cimport (
    PROXY_DONE, PROXY_MORE, Proxied, proxy_read,
)
from cext.net.relay_head cimport RELAY_HEAD_DONE, RELAY_HEAD_MORE, RelayHead, relay_head_put, relay_head_read, relay_head_size
from cext.net.ticket cimport (
    TICKET_DONE, TICKET_MORE, Ticket, TicketKey, ticket_key_forget, ticket_key_set, ticket_put, ticket_read, ticket_size, ticket_take,
)
from cext.net.upgrade cimport (
    SEEN_FORWARDED, SUBPROTOCOL_MQTT, SUBPROTOCOL_MQTTV31, SUBPROTOCOL_NONE, UPGRADE_ANSWER_MAX, Upgrade,
    UpgradeRules, upgrade_answer, upgrade_read,
)
from cext.net.websocket cimport (
    WS_CLOSED, WS_CLOSE_SIZE_MAX, WS_FAILED, WS_HEAD_SIZE_MAX, WS_PONG_SIZE_MAX, WsDecoder, ws_close_put, ws_decode,
    ws_head_put, ws_head_size, ws_pong_put, ws_unmask,
)


cdef class Memory:
    """A copy on the heap."""
    cdef uint8_t* p
    cdef size_t n

    def __cinit__(self, bytes content, size_t room=0):
        self.n = <size_t>len(content) + room
        self.p = <uint8_t*>malloc(self.n or 1)
        if self.p == NULL:
            raise MemoryError
        memcpy(self.p, <const uint8_t*>content, len(content))

    def __dealloc__(self):
        free(self.p)


cdef bytes text(View v):
    return (<const char*>v.p)[:v.n] if v.n else b""


# ---------------------------------------------------------------- websocket

cdef class Frames:
    """A server's decoder for one connection. take(bytes) returns the payload in them."""
    cdef WsDecoder d

    def __cinit__(self):
        memset(&self.d, 0, sizeof(self.d))

    def take(self, bytes read):
        cdef Memory m = Memory(read)
        cdef size_t n = ws_decode(&self.d, m.p, m.n)
        assert n <= m.n
        return (<const char*>m.p)[:n]

    def closed(self):
        """Return the status of the peer's Close; None = there was none."""
        return self.d.code if self.d.state == WS_CLOSED else None

    def failed(self):
        """Return the status to end the connection with; None = there is no error."""
        return self.d.code if self.d.state == WS_FAILED else None

    def pong(self):
        """Return the frame that answers the last Ping; None = no answer is due."""
        cdef Memory m = Memory(b"", WS_PONG_SIZE_MAX)
        cdef uint8_t* end
        if not self.d.ping_due:
            return None
        end = ws_pong_put(m.p, &self.d)
        assert m.p < end <= m.p + m.n
        return (<const char*>m.p)[:end - m.p]


def frame_head(int opcode, n):
    cdef Memory m = Memory(b"", WS_HEAD_SIZE_MAX)
    cdef uint8_t* end = ws_head_put(m.p, opcode, n)
    assert <size_t>(end - m.p) == ws_head_size(n)
    return (<const char*>m.p)[:end - m.p]


def close_frame(int code):
    cdef Memory m = Memory(b"", WS_CLOSE_SIZE_MAX)
    cdef uint8_t* end = ws_close_put(m.p, code)
    return (<const char*>m.p)[:end - m.p]


def unmask(bytes payload, bytes mask, size_t gap=0):
    """Unmask as the decoder does: to a place `gap` bytes in front. Return (plain bytes, the mask for the following bytes)."""
    cdef Memory m = Memory(bytes(gap) + payload)
    cdef uint32_t turned
    assert len(mask) == 4
    memcpy(&turned, <const uint8_t*>mask, 4)
    turned = ws_unmask(m.p, m.p + gap, len(payload), turned)
    return (<const char*>m.p)[:len(payload)], (<const char*>&turned)[:4]


# ---------------------------------------------------------------- upgrade

cdef class Handshake:
    """One request. take(all bytes received so far) returns 0 if more are needed, 101, or the status of a refusal."""
    cdef Upgrade u
    cdef UpgradeRules rules
    cdef View origins[8]
    cdef list keep
    cdef bytes seen
    cdef int status

    def __cinit__(self, uint32_t size_max=4096, origins=()):
        cdef bytes origin
        memset(&self.u, 0, sizeof(self.u))
        self.keep = [o.encode() for o in origins]
        self.rules.size_max = size_max
        self.rules.origins = self.origins
        self.rules.n_origins = 0
        self.rules.compat = 0
        for origin in self.keep:
            self.origins[self.rules.n_origins].p = <const uint8_t*><const char*>origin
            self.origins[self.rules.n_origins].n = <uint32_t>len(origin)
            self.rules.n_origins += 1

    def take(self, bytes so_far):
        cdef Memory m = Memory(so_far)
        self.seen = so_far
        self.status = upgrade_read(&self.u, m.p, m.n, &self.rules)
        return self.status

    def answer(self):
        cdef Memory m = Memory(b"", UPGRADE_ANSWER_MAX)
        cdef uint8_t* end = upgrade_answer(m.p, &self.u, self.status)
        assert m.p < end < m.p + m.n, "an answer is cut off"
        return (<const char*>m.p)[:end - m.p]

    def size(self):
        return self.u.size

    def subprotocol(self):
        return {SUBPROTOCOL_NONE: None, SUBPROTOCOL_MQTT: "mqtt", SUBPROTOCOL_MQTTV31: "mqttv3.1"}[self.u.subprotocol]

    def forwarded(self):
        """Return the value of the last X-Forwarded-For."""
        if not self.u.seen & SEEN_FORWARDED:
            return None
        return self.seen[self.u.forwarded_at:self.u.forwarded_at + self.u.forwarded_n]


def accept(bytes key):
    cdef uint8_t out[28]
    assert len(key) == WS_KEY_SIZE
    ws_accept(out, <const uint8_t*>key)
    return (<const char*>out)[:WS_ACCEPT_SIZE]


# ---------------------------------------------------------------- proxy

def proxy(int version, bytes read):
    """Return (PROXY_BAD -1, PROXY_MORE 0 or PROXY_DONE 1, the facts in the header)."""
    cdef Memory m = Memory(read)
    cdef Proxied out
    cdef int rc
    memset(&out, 0xA5, sizeof(out))
    rc = proxy_read(version, m.p, m.n, &out)
    if rc != PROXY_DONE:
        return rc, {"size": out.size} if rc == PROXY_MORE else {}
    return rc, {"size": out.size, "local": bool(out.local), "family": out.family, "ip": bytes(out.ip[:16]), "port": out.port,
                "tls": out.tls if out.has_tls else None, "verify": out.verify, "version": text(out.tls_version),
                "cipher": text(out.cipher), "common_name": text(out.common_name), "path": text(out.path)}


# ---------------------------------------------------------------- the head of a relay

def relay_head(bytes read):
    """Return (RELAY_HEAD_BAD -1, RELAY_HEAD_MORE 0 or RELAY_HEAD_DONE 1, the fields of the head)."""
    cdef Memory m = Memory(read)
    cdef RelayHead h
    cdef int rc
    memset(&h, 0xA5, sizeof(h))
    rc = relay_head_read(m.p, m.n, &h)
    if rc != RELAY_HEAD_DONE:
        return rc, {"size": h.size} if rc == RELAY_HEAD_MORE else {}
    return rc, {"size": h.size, "listener_port": h.listener_port, "origin": h.origin, "kind": h.kind, "websockets": h.websockets, "tls": h.tls, "login_ms": h.login_ms,
                "family": h.family, "by_proxy": h.by_proxy, "port": h.port, "ip": bytes(h.ip[:16]), "name": text(h.name), "path": text(h.path)}


cdef void head_of(fields, RelayHead* h):
    """Fill a head. Its views point into the fields."""
    cdef bytes name = fields["name"], path = fields["path"], ip = fields["ip"]
    memset(h, 0, sizeof(RelayHead))
    h.listener_port, h.origin, h.login_ms = fields["listener_port"], fields["origin"], fields["login_ms"]
    h.kind = fields["kind"]
    h.websockets, h.tls, h.by_proxy = fields["websockets"], fields["tls"], fields["by_proxy"]
    h.family, h.port = fields["family"], fields["port"]
    memcpy(h.ip, <const uint8_t*>ip, 16)
    h.name.p, h.name.n = <const uint8_t*>name, <uint32_t>len(name)
    h.path.p, h.path.n = <const uint8_t*>path, <uint32_t>len(path)


def relay_head_made(fields):
    """Return a head with these fields; None if a name is too long."""
    cdef RelayHead h
    cdef Memory m
    head_of(fields, &h)
    if relay_head_size(&h) == 0:
        return None
    m = Memory(b"", relay_head_size(&h))
    relay_head_put(m.p, &h)
    return (<const char*>m.p)[:m.n]


# ---------------------------------------------------------------- tickets of relayed connections

def ticket_made(bytes key, uint64_t number, uint32_t slot, fields):
    """Return a ticket with this number and a head with these fields; None if a name is too long."""
    cdef TicketKey k
    cdef HashKey value
    cdef RelayHead h
    cdef Memory m
    head_of(fields, &h)
    if ticket_size(&h) == 0:
        return None
    memset(&k, 0, sizeof(k))
    memcpy(&value, <const char*>key, sizeof(value))
    ticket_key_set(&k, &value, 0)
    k.number = number - 1
    m = Memory(b"", ticket_size(&h))
    ticket_put(m.p, &k, slot, &h)
    return (<const char*>m.p)[:m.n]


cdef class Tickets:
    """The side that takes tickets."""
    cdef TicketKey key

    def __cinit__(self, bytes key):
        cdef HashKey value
        memcpy(&value, <const char*>key, sizeof(value))
        if ticket_key_set(&self.key, &value, 1) != 0:
            raise MemoryError

    def __dealloc__(self):
        ticket_key_forget(&self.key)

    def forget(self):
        """Have no key any more."""
        ticket_key_forget(&self.key)

    def take(self, bytes read):
        """Return (TICKET_... of ticket_read, the bytes of the ticket or those that it needs, the slot), and as the last one what ticket_take returns."""
        cdef Memory m = Memory(read)
        cdef Ticket t
        cdef int found = ticket_read(m.p, m.n, &t)
        if found != TICKET_DONE:
            return found, t.size if found == TICKET_MORE else 0, 0, None
        return found, t.size, t.slot, ticket_take(&self.key, m.p, &t)
