# Fuzz targets of the links between workers. A frame that decodes must encode to the same bytes. A stream of frames from another worker
# must not break the state machine: the second target gives them to both sides of a link, behind a valid beginning.
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport abort, free, malloc
from libc.string cimport memcmp, memset
from cext.base.hash cimport HashKey
from cext.base.view cimport View
from cext.link.frame cimport LF_HELLO, LF_WELCOME, LINK_VERSION, LinkFrame, link_decode, link_head_put, link_head_size
from cext.link.links cimport (
    link_accept, link_committed, link_connected, link_identity_new, link_read, link_retained_to, link_seal, link_send, link_start,
    link_turn, link_wait_current, link_wait_routes, link_waiter_close, link_waiter_new, links_fini, links_init,
)
from cext.link.routes cimport route_count
from cext.link.state cimport LINK_IN, LINK_OUT, LINK_NO_MEMBER, LINK_TAKEN, LinkHole, LinkLimits, LinkOps, LinkSend, LinkWaiter, Links


cdef inline void must(bint holds) noexcept nogil:
    if not holds:
        abort()


cdef uint64_t link_frame(const uint8_t* p, size_t n) noexcept nogil:
    cdef LinkFrame f
    cdef int taken = link_decode(p, n, 100000, &f)
    cdef uint8_t* out
    cdef uint32_t head
    must(taken <= <int64_t>n)
    if taken <= 0:
        return 0
    head = link_head_size(&f)
    must(head + f.payload.n == <uint32_t>taken)
    out = <uint8_t*>malloc(head)
    must(link_head_put(out, &f) == head)
    must(memcmp(out, p, head) == 0)
    free(out)
    return f.number + f.text.n + f.payload.n


# ---- a worker whose actions do nothing; its context is a count of references

cdef int64_t op_send(void* owner, uint32_t slot, int way, const uint8_t* head, uint32_t n, void* message, View payload) noexcept nogil:
    return n % 64

cdef void op_close(void* owner, uint32_t slot, int way) noexcept nogil:
    pass

cdef void op_bind(void* owner, uint32_t slot, void* connection) noexcept nogil:
    pass

cdef void op_keep(void* owner, void* message) noexcept nogil:
    (<int64_t*>owner)[0] += 1

cdef void op_drop(void* owner, void* message) noexcept nogil:
    (<int64_t*>owner)[0] -= 1

cdef void op_view(void* owner, void* message, LinkFrame* out) noexcept nogil:
    out.text.p, out.text.n = <const uint8_t*>"t", 1

cdef int op_message(void* owner, uint32_t slot, const LinkFrame* f, uint64_t* batch) noexcept nogil:
    batch[0] = f.payload.n % 4
    return LINK_NO_MEMBER if f.group.n and f.payload.n % 2 else LINK_TAKEN

cdef void op_again(void* owner, uint32_t slot, void* message, LinkSend* s, LinkWaiter* waiter) noexcept nogil:
    pass

cdef void op_route(void* owner, uint32_t slot, const LinkFrame* f, uint16_t generation) noexcept nogil:
    pass

cdef void op_unroute(void* owner, uint32_t slot, View filter) noexcept nogil:
    pass

cdef void op_end(void* owner, uint32_t slot, uint16_t generation) noexcept nogil:
    pass

cdef int op_walk(void* owner, uint32_t slot, uint64_t* cursor, uint32_t n) noexcept nogil:
    return 1

cdef void op_mark(void* owner, uint32_t slot, uint64_t log, uint64_t run, uint64_t number, const LinkHole* holes, uint32_t n) noexcept nogil:
    must(n == 0 or holes[n - 1].number <= number)

cdef void op_forget(void* owner, uint32_t slot, uint64_t log, uint64_t identity) noexcept nogil:
    pass

cdef void op_lost(void* owner, uint32_t slot) noexcept nogil:
    pass

cdef void op_released(void* owner, void* context) noexcept nogil:
    pass

cdef void op_ready(void* owner) noexcept nogil:
    pass


cdef void ops_set(LinkOps* ops) noexcept nogil:
    ops.send, ops.close, ops.bind, ops.keep, ops.drop, ops.view = op_send, op_close, op_bind, op_keep, op_drop, op_view
    ops.message, ops.again, ops.route, ops.unroute, ops.routes_end = op_message, op_again, op_route, op_unroute, op_end
    ops.retained, ops.retained_end, ops.retained_walk = op_route, op_end, op_walk
    ops.mark, ops.forget, ops.lost, ops.released, ops.ready = op_mark, op_forget, op_lost, op_released, op_ready


cdef void greet(Links* x) noexcept nogil:
    # The valid beginning of both connections with worker 1, and a message and a waiter for it.
    cdef LinkFrame f
    cdef LinkSend s
    cdef LinkWaiter* w = link_waiter_new(x, x)
    cdef uint8_t out[64]
    cdef uint32_t n, slot
    cdef View filter
    filter.p, filter.n = <const uint8_t*>"a/+", 3
    memset(&f, 0, sizeof(f))
    memset(&s, 0, sizeof(s))
    f.type, f.version, f.slot, f.workers, f.log, f.run = LF_HELLO, LINK_VERSION, 1, 2, 5, 1
    n = link_head_put(out, &f)
    must(link_accept(x, out, n, NULL, 0, &slot) < 0)              # another worker has proved that it is worker 0
    must(link_accept(x, out, n, NULL, 1, &slot) == n and slot == 1)
    link_connected(x, 1)
    f.type = LF_WELCOME
    n = link_head_put(out, &f)
    must(link_read(x, 1, LINK_OUT, out, n) == n)
    route_count(x, filter, 1, -1)
    link_wait_routes(x, w, 1)
    link_wait_current(x, w)
    s.flags, s.identity, s.part, s.group.p, s.group.n = 2, link_identity_new(x), 1, <const uint8_t*>"$share/g/#", 10
    link_send(x, 1, x, &s, w)
    link_waiter_close(x, w)
    link_turn(x)
    link_turn(x)
    link_turn(x)


cdef uint64_t link_bytes(const uint8_t* p, size_t n) noexcept nogil:
    cdef Links x
    cdef LinkOps ops
    cdef LinkLimits limits
    cdef HashKey key
    cdef int64_t references = 0
    cdef uint64_t total = 0
    cdef size_t half
    if n < 1:
        return 0
    ops_set(&ops)
    memset(&key, 0, sizeof(key))
    limits.frame_max, limits.messages_max, limits.bytes_max = 100000, 100, 100000
    limits.output_max, limits.reserve, limits.slice = 1000, 1000, 1000
    must(links_init(&x, &ops, &references, &limits, &key, 0, 2) == 0)
    link_start(&x, 9, 1)
    greet(&x)
    half = p[0] * (n - 1) // 255
    link_read(&x, 1, LINK_OUT, p + 1, half)
    link_read(&x, 1, LINK_IN, p + 1 + half, n - 1 - half)
    link_seal(&x, 1)
    link_committed(&x, 1)
    link_turn(&x)
    link_committed(&x, 3)
    total = x.stats.received + x.stats.duplicates
    links_fini(&x)
    must(references == 0)
    return total
