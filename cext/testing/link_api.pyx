"""Test API of the room of links: the codec of frames, the memory of routes, and one side alone. The simulator is link_sim."""
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset
from cext.base.hash cimport HashKey, hash_key_init
from cext.base.pybytes cimport view_of
from cext.base.view cimport View
from cext.link.frame cimport LF_ACK, LF_RETAINED_END, LF_WELCOME, LinkFrame, link_decode, link_error_text, link_head_put, link_head_size
from cext.link.links cimport (
    link_accept, link_broken, link_choose, link_committed, link_connected, link_read, link_retained, link_start, link_turn,
    links_fini, links_init,
)
from cext.link.routes cimport route_count
from cext.link.state cimport LINK_IN, LINK_OUT, LINK_TAKEN, LinkLimits, LinkOps, Links


cdef bytes bytes_of(View v):
    return v.p[:v.n] if v.n else b""


def decode(bytes data, uint32_t frame_max=1000000):
    """Decode a frame. Return (bytes taken, fields), 0 if more bytes are needed, or the name of the wrong field."""
    cdef LinkFrame f
    cdef int taken = link_decode(<const uint8_t*><char*>data, len(data), frame_max, &f)
    if taken < 0:
        return link_error_text(taken).decode()
    if taken == 0:
        return 0
    return taken, {"type": f.type, "flags": f.flags, "durability": f.durability, "version": f.version, "slot": f.slot, "workers": f.workers, "part": f.part,
                   "online": f.online, "expiry": f.expires_ms, "log": f.log, "run": f.run, "number": f.number, "identity": f.identity,
                   "group": bytes_of(f.group), "publisher": bytes_of(f.publisher), "text": bytes_of(f.text), "props": bytes_of(f.props), "payload": bytes_of(f.payload)}


def encode(dict fields):
    """Encode a frame from a dictionary as `decode` returns it; fields that are left out are 0 or empty."""
    cdef LinkFrame f
    cdef bytes group = fields.get("group", b"")
    cdef bytes publisher = fields.get("publisher", b"")
    cdef bytes text = fields.get("text", b"")
    cdef bytes props = fields.get("props", b"")
    cdef bytes payload = fields.get("payload", b"")
    cdef bytearray out
    memset(&f, 0, sizeof(f))
    f.type, f.flags, f.durability = fields["type"], fields.get("flags", 0), fields.get("durability", 0)
    f.version, f.slot, f.workers, f.part = fields.get("version", 0), fields.get("slot", 0), fields.get("workers", 0), fields.get("part", 0)
    f.online, f.expires_ms = fields.get("online", 0), fields.get("expiry", 0)
    f.log, f.run = fields.get("log", 0), fields.get("run", 0)
    f.number, f.identity = fields.get("number", 0), fields.get("identity", 0)
    f.group, f.publisher, f.text, f.props, f.payload = view_of(group), view_of(publisher), view_of(text), view_of(props), view_of(payload)
    out = bytearray(link_head_size(&f))
    assert link_head_put(<uint8_t*><char*>out, &f) == len(out)
    return bytes(out) + payload


def choose(list weights, uint64_t tried, uint64_t random):
    cdef uint32_t at[64]
    for i, weight in enumerate(weights):
        at[i] = weight
    return link_choose(at, len(weights), tried, random)


cdef void op_ready(void* owner) noexcept nogil:
    pass


def bytes_per_own_route(uint32_t n):
    """Announce n filters of 20 bytes. Return the bytes that the room takes for each one, beyond its text."""
    cdef Links x
    cdef LinkOps ops
    cdef LinkLimits limits
    cdef HashKey key
    cdef bytes text
    memset(&ops, 0, sizeof(ops))
    memset(&limits, 0, sizeof(limits))
    ops.ready = op_ready
    hash_key_init(&key)
    if links_init(&x, &ops, NULL, &limits, &key, 0, 1) != 0:
        raise MemoryError
    link_start(&x, 1, 1)
    for i in range(n):
        text = b"building/%011d" % i
        if route_count(&x, view_of(text), 1, -1) < 0:
            raise MemoryError
    used = x.memory.cells.used_bytes
    for i in range(n):
        text = b"building/%011d" % i
        route_count(&x, view_of(text), -1, 1)
    assert x.memory.cells.used_bytes == 0
    links_fini(&x)
    return used / n - 20


# ---------------------------------------------------------------- the receiving side alone

cdef struct Heard:              # what a receiver has answered and delivered
    uint64_t acked
    uint64_t delivered
    uint64_t batch


cdef int64_t op_send(void* owner, uint32_t slot, int way, const uint8_t* head, uint32_t n, void* message, View payload) noexcept nogil:
    cdef LinkFrame f
    if link_decode(head, n, 1000000, &f) > 0 and f.type == LF_ACK:
        (<Heard*>owner).acked = f.number
    return 0


cdef void op_bind(void* owner, uint32_t slot, void* connection) noexcept nogil:
    pass


cdef void op_close(void* owner, uint32_t slot, int way) noexcept nogil:
    pass


cdef void op_lost(void* owner, uint32_t slot) noexcept nogil:
    pass


cdef int op_message(void* owner, uint32_t slot, const LinkFrame* f, uint64_t* batch) noexcept nogil:
    (<Heard*>owner).delivered += 1
    batch[0] = (<Heard*>owner).batch
    return LINK_TAKEN


cdef void op_end(void* owner, uint32_t slot, uint16_t generation) noexcept nogil:
    pass


cdef void op_forget(void* owner, uint32_t slot, uint64_t log, uint64_t identity) noexcept nogil:
    pass


cdef int links_begin(Links* x, LinkOps* ops, void* owner, uint64_t off) except -1:
    """Begin the links of worker 0, one of two, with these operations and wide limits."""
    cdef LinkLimits limits
    cdef HashKey key
    memset(&limits, 0, sizeof(limits))
    limits.frame_max = limits.output_max = limits.slice = 1000000
    hash_key_init(&key)
    if links_init(x, ops, owner, &limits, &key, 0, 2) != 0:
        raise MemoryError
    x.off = off
    link_start(x, 1, 1)


def receive(list steps, uint64_t off=0, uint32_t proved=2):
    """Run steps at a receiver, each ("accept" or "read", frame) or ("commit", batch); messages need batch 1. Return, for each step,
    (error or "", highest ACK, messages delivered)."""
    cdef Links x
    cdef LinkOps ops
    cdef Heard heard
    cdef uint32_t slot
    cdef bytes data
    cdef int64_t answer
    memset(&ops, 0, sizeof(ops))
    memset(&heard, 0, sizeof(heard))
    heard.batch = 1
    ops.send, ops.bind, ops.close, ops.message, ops.routes_end, ops.forget, ops.lost, ops.ready = (
        op_send, op_bind, op_close, op_message, op_end, op_forget, op_lost, op_ready)
    links_begin(&x, &ops, &heard, off)
    out = []
    for what, value in steps:
        answer = 0
        if what == "commit":
            link_committed(&x, value)
        else:
            data = encode(value)
            if what == "accept":
                answer = link_accept(&x, <const uint8_t*><char*>data, len(data), NULL, proved, &slot)
            else:
                answer = link_read(&x, 1, LINK_IN, <const uint8_t*><char*>data, len(data))
        link_turn(&x)
        out.append((link_error_text(x.error).decode() if answer < 0 else "", heard.acked, heard.delivered))
    links_fini(&x)
    return out


# ---------------------------------------------------------------- the snapshot of retained messages alone

cdef int64_t op_send_end(void* owner, uint32_t slot, int way, const uint8_t* head, uint32_t n, void* message, View payload) noexcept nogil:
    if head[4] == LF_RETAINED_END:
        (<uint32_t*>owner)[0] += 1
    return 0


cdef void op_message_kept(void* owner, void* message) noexcept nogil:
    pass


cdef void op_message_view(void* owner, void* message, LinkFrame* out) noexcept nogil:
    out.text.p, out.text.n = <const uint8_t*>b"t", 1


cdef int op_walk(void* owner, uint32_t slot, uint64_t* cursor, uint32_t bytes) noexcept nogil:
    return 1                    # it has shown the message of batch 1


def snapshot_ends(uint64_t off=0):
    """Connect while a retained message waits for its batch. Return whether the snapshot has ended before the commit, and after it."""
    cdef Links x
    cdef LinkOps ops
    cdef uint32_t ends = 0
    cdef uint32_t message = 0
    cdef bytes welcome = encode({"type": LF_WELCOME, "version": 1, "slot": 1, "log": 5, "run": 1})
    memset(&ops, 0, sizeof(ops))
    ops.send, ops.close, ops.ready, ops.keep, ops.drop, ops.view, ops.retained_walk = (
        op_send_end, op_close, op_ready, op_message_kept, op_message_kept, op_message_view, op_walk)
    links_begin(&x, &ops, &ends, off)
    link_retained(&x, &message, 1)
    link_connected(&x, 1)
    link_read(&x, 1, LINK_OUT, <const uint8_t*><char*>welcome, len(welcome))
    while link_turn(&x):
        pass
    before = ends
    link_committed(&x, 1)
    while link_turn(&x):
        pass
    links_fini(&x)
    return before == 1, ends == 1


# ---------------------------------------------------------------- the sending side alone

def welcomes(list answers):
    """Connect to worker 1, once for each (log, run) with which it answers. Return the error of each answer, or ""."""
    cdef Links x
    cdef LinkOps ops
    cdef Heard heard
    cdef bytes data
    cdef int64_t answer
    memset(&ops, 0, sizeof(ops))
    memset(&heard, 0, sizeof(heard))
    ops.send, ops.close, ops.ready = op_send, op_close, op_ready
    links_begin(&x, &ops, &heard, 0)
    out = []
    for log, run in answers:
        link_broken(&x, 1, LINK_OUT)
        link_connected(&x, 1)
        data = encode({"type": LF_WELCOME, "version": 1, "slot": 1, "log": log, "run": run})
        answer = link_read(&x, 1, LINK_OUT, <const uint8_t*><char*>data, len(data))
        out.append(link_error_text(x.error).decode() if answer < 0 else "")
    links_fini(&x)
    return out
