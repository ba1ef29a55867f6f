# Frames into the output of a connection, and what a worker that does not read costs: its connection.
# This module does not know why a frame is sent.
# Cost: the fields of a frame are copied twice, its payload not here.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memset
from cext.link.frame cimport LinkFrame, link_head_put, link_head_size
from cext.link.state cimport LINK_OUT, LO_DOWN, LinkOut, Links


cdef int room_for(Links* x, uint32_t n) noexcept nogil:
    cdef uint8_t* grown
    if n <= x.room_cap:
        return 0
    grown = <uint8_t*>realloc(x.room, n)
    if grown == NULL:
        return -1
    x.room, x.room_cap = grown, n
    return 0


cdef int frame_send(Links* x, uint32_t slot, int way, const LinkFrame* f, void* message) noexcept nogil:
    cdef uint32_t n = link_head_size(f)
    cdef int64_t pending = -1
    cdef int64_t bound = <int64_t>x.limits.output_max + x.limits.reserve
    if room_for(x, n) == 0:
        n = link_head_put(x.room, f)
        pending = x.ops.send(x.owner, slot, way, x.room, n, message, f.payload)
    if way == LINK_OUT:
        x.peers[slot].out.pending = pending
    else:
        x.peers[slot].inward.pending = pending
    if 0 <= pending <= bound:
        return 0
    if pending > bound:
        x.stats.closed += 1             # the other worker does not read: a new connection begins with a snapshot
    if way == LINK_OUT:
        out_broken(x, slot)
    else:
        x.peers[slot].inward.open = 0
    x.ops.close(x.owner, slot, way)
    return -1


cdef int number_send(Links* x, uint32_t slot, int way, int type, uint64_t number) noexcept nogil:
    cdef LinkFrame f
    memset(&f, 0, sizeof(f))
    f.type = <uint8_t>type
    f.number = f.identity = number
    return frame_send(x, slot, way, &f, NULL)


cdef void out_broken(Links* x, uint32_t slot) noexcept nogil:
    cdef LinkOut* o = &x.peers[slot].out
    o.state = LO_DOWN
    o.pending = 0
    o.asked = 0
    o.asked_retained = 0
    o.route_next = NULL
    o.open_next = NULL
