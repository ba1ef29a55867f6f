# Test API of TLS records, of the keys of tickets, and of the order of handshakes: thin functions over them. No message of a broker passes through here. Input is copied into memory of
# exactly its size, so that ASan detects a read beyond it.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from cext.net.conn_state cimport Conn
from cext.net.records cimport (
    ENDED_BY_CLOSE, ENDED_BY_PEER, ENDED_BY_US, OPENING, RECORD_EXTRA, RECORD_HEADER_BYTES, Records, SEALING, SUITES,
    Suite, TYPE_DATA, records_begin, records_end, records_learn, records_open, records_renew, records_alert,
    records_seal, suite_find, suites_fini, suites_init,
)
from cext.net.system cimport AF_INET, AF_INET6
from cext.net.tls_pool cimport (
    LANE_BUCKETS, PLACE_LOOP, Handshake, Lane, Pool, lane_enter, lane_leave, lane_of, pool_cancel, pool_fini, pool_init, pool_put, pool_rest,
)
from cext.net.tls_tickets cimport (
    TICKET_NAME_BYTES, TicketKey, TicketKeys, ticket_key_for_opening, ticket_key_for_sealing, ticket_keys_new, ticket_keys_unref,
)


cdef class Suites:
    """The cipher contexts that all connections of a loop share."""
    cdef Suite* p

    def __cinit__(self):
        self.p = <Suite*>calloc(SUITES, sizeof(Suite))
        if self.p == NULL or suites_init(self.p) != 0:
            raise MemoryError

    def __dealloc__(self):
        if self.p != NULL:
            suites_fini(self.p)
            free(self.p)

    def keyed(self):
        """Return the number of contexts that hold a key."""
        cdef int i
        return sum(self.p[i].owner[OPENING] != NULL for i in range(3)) + sum(self.p[i].owner[SEALING] != NULL for i in range(3))

    def limit(self, uint64_t blocks_max):
        """Set the limit of blocks under one key of the server."""
        cdef int i
        for i in range(SUITES):
            self.p[i].blocks_max = blocks_max


cdef class Side:
    """A server's records. `lines` = lines of a key log."""
    cdef Records* x
    cdef Suites suites

    def __cinit__(self, Suites suites, int suite, lines, uint64_t sent=0):
        cdef bytes line
        cdef Suite* found = suite_find(suites.p, <unsigned short>suite)
        self.suites = suites
        self.x = <Records*>calloc(1, sizeof(Records))
        if self.x == NULL:
            raise MemoryError
        for text in lines:
            line = text.encode()
            records_learn(self.x, line)
        if found == NULL or records_begin(self.x, found, sent) != 0:
            raise ValueError("the connection cannot be taken over")

    def __dealloc__(self):
        if self.x != NULL:
            records_end(self.x)
            free(self.x)

    def take(self, bytes read, uint64_t now_s=0):
        """Decrypt. Return (data of the complete records, number of their bytes in the input)."""
        cdef size_t n = <size_t>len(read), got = 0, used
        cdef uint8_t* p = <uint8_t*>malloc(n or 1)
        cdef uint8_t* out = <uint8_t*>malloc(n or 1)
        try:
            if p == NULL or out == NULL:
                raise MemoryError
            memcpy(p, <const char*>read, n)
            used = records_open(self.x, p, n, out, &got, now_s)
            assert got <= used <= n
            return (<const char*>out)[:got], used
        finally:
            free(p)
            free(out)

    def seal(self, bytes content, bint in_place=True):
        """Return the record, with a KeyUpdate before it when one is due."""
        cdef uint8_t* out = <uint8_t*>malloc(<size_t>len(content) + RECORD_EXTRA)
        cdef const uint8_t* p = <const uint8_t*><const char*>content
        cdef int before, n
        try:
            if out == NULL:
                raise MemoryError
            before = records_renew(self.x, out)
            if before < 0:
                raise ValueError("nothing can be sealed any more")
            if in_place:
                memcpy(out + before + RECORD_HEADER_BYTES, p, <size_t>len(content))
                p = out + before + RECORD_HEADER_BYTES
            n = records_seal(self.x, TYPE_DATA, p, <uint32_t>len(content), out + before)
            if n < 0:
                raise ValueError("too long, or nothing can be sealed any more")
            assert before + n <= len(content) + RECORD_EXTRA
            return (<const char*>out)[:before + n]
        finally:
            free(out)

    def say(self, int alert):
        cdef uint8_t out[256]
        cdef int n = records_alert(self.x, <uint8_t>alert, out)
        if n < 0:
            raise ValueError("nothing can be sealed any more")
        return (<const char*>out)[:n]

    def ended(self):
        """Return None, or the side that ended it ("closed", "peer", "us") and the alert."""
        name = {ENDED_BY_CLOSE: "closed", ENDED_BY_PEER: "peer", ENDED_BY_US: "us"}.get(self.x.ended)
        return (name, self.x.alert) if name else None

    def count(self, sent=None, received=None):
        """Set the given sequence numbers. Return both."""
        if sent is not None:
            self.x.ours.sequence = sent
        if received is not None:
            self.x.peers.sequence = received
        return self.x.ours.sequence, self.x.peers.sequence

    def blocks(self, uint64_t n):
        """Pretend that n blocks were sealed under the server's key."""
        self.x.blocks = n

    def end(self):
        """End it. Return the bytes left in its memory."""
        records_end(self.x)
        return (<const char*>self.x)[:sizeof(Records)]


cdef class Keys:
    """The keys of session tickets, with the time as an argument."""
    cdef TicketKeys* p

    def __cinit__(self):
        self.p = ticket_keys_new()
        if self.p == NULL:
            raise MemoryError

    def __dealloc__(self):
        ticket_keys_unref(self.p)

    def seal(self, int64_t now_s):
        """Return (name, secrets) of the key that seals tickets at this time, in seconds."""
        cdef TicketKey key
        if ticket_key_for_sealing(self.p, now_s, &key) != 0:
            raise OSError("no random numbers")
        return (<char*>key.name)[:TICKET_NAME_BYTES], (<char*>key.cipher)[:32] + (<char*>key.mac)[:32]

    def open(self, int64_t now_s, bytes name):
        """Return (0 = unknown, 1 = the key of new tickets, 2 = an older key; the secrets) for a ticket's key."""
        cdef TicketKey key
        cdef int found = ticket_key_for_opening(self.p, now_s, <const uint8_t*><char*>name, &key)
        return found, (<char*>key.cipher)[:32] + (<char*>key.mac)[:32] if found else b""

    def holds(self, bytes secret):
        """Return whether the memory of the keys contains this secret."""
        return secret in (<char*>self.p)[:sizeof(TicketKeys)]


cdef void no_step(Handshake* h) noexcept nogil:
    pass


cdef class Steps:
    """Steps of handshakes that wait for a thread. There are no threads and no handshakes here: a step is a number."""
    cdef Pool p
    cdef list all               # addresses of the handshakes, by number

    def __cinit__(self):
        self.all = []
        if pool_init(&self.p, 0, no_step) != 0:
            raise MemoryError

    def __dealloc__(self):
        for one in self.all:
            lane_leave(&self.p, <Handshake*><size_t>one)
            free(<void*><size_t>one)
        pool_fini(&self.p)

    def begin(self, bytes address):
        """Begin a handshake of a peer with this address of 4 or 16 bytes. Return its number."""
        cdef Conn c
        cdef Handshake* h = <Handshake*>calloc(1, sizeof(Handshake))
        cdef Lane* lane
        if h == NULL:
            raise MemoryError
        memset(&c, 0, sizeof(c))
        c.address.family = AF_INET if len(address) == 4 else AF_INET6
        memcpy(c.address.ip, <const char*>address, <size_t>min(len(address), 16))
        lane = lane_of(&self.p, &c)
        if lane == NULL:
            free(h)
            raise MemoryError
        lane_enter(lane, h)
        h.place = PLACE_LOOP
        self.all.append(<size_t>h)
        return len(self.all) - 1

    def put(self, number, bint light=False):
        """Let a handshake wait for its next step. light: its private-key operation is done."""
        cdef Handshake* h = <Handshake*><size_t>self.all[number]
        h.light = light
        pool_put(&self.p, h)

    def cancel(self, number):
        return pool_cancel(&self.p, <Handshake*><size_t>self.all[number])

    def take(self):
        """Return the number of the handshake whose step is next; None = no step waits."""
        cdef Handshake* h = pool_rest(&self.p)
        if h == NULL:
            return None
        h.place = PLACE_LOOP
        return self.all.index(<size_t>h)

    def end(self, number):
        """End a handshake that does not wait."""
        lane_leave(&self.p, <Handshake*><size_t>self.all[number])

    def lanes(self):
        """Return the number of lanes."""
        cdef uint32_t n = 0
        cdef int i
        cdef Lane* lane
        for i in range(LANE_BUCKETS):
            lane = self.p.lanes[i]
            while lane != NULL:
                n += 1
                lane = lane.next
        return n
