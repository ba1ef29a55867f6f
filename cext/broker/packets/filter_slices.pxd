# The filters of a SUBSCRIBE or UNSUBSCRIBE, handled in slices. See filter_slices.pyx.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.codec.decode cimport Subscribe
from cext.codec.frame cimport Frame

cdef enum:
    ROUTES_NONE = 0             # all workers know the routes of the filters
    ROUTES_NEW = 1              # not all of them know
    ROUTES_ASKED = 2            # they were asked; when the packet is handled again, they know, and are asked for their retained messages
    ROUTES_KNOWN = 3            # when the packet is handled again, everything is known
    ROUTES_FAILED = 4           # not all workers have confirmed them in time: they are withdrawn

ctypedef struct FilterSlice:
    Subscribe packet                # `items` begins with the next filter
    uint32_t n                      # filters before that one
    uint8_t* codes                  # reason codes of the filters
    uint64_t changes                # changes_of before the first filter
    uint64_t limit                  # value of b.work at which the slice ends
    uint8_t acknowledged            # 1: the acknowledgement is sent, and the walk over the filters has begun again
    uint8_t routes                  # ROUTES_...
    uint8_t small[64]

# Begin or continue a packet: decode it, get the verdicts of plugins, and find out where the last slice ended. access: ACL_SUBSCRIBE
# or ACL_UNSUBSCRIBE. Returns 0, PACKET_PENDING, or a reason code.
cdef int filters_open(Broker* b, Client* c, const Frame* f, uint8_t access, FilterSlice* t) noexcept nogil
# Wait until all workers know the routes of the filters, and then, if retained messages are wanted, until this one has all of them that were acknowledged
# before. Returns 0 if there is nothing to wait for, PACKET_PENDING, or a reason code.
cdef int filters_await_routes(Broker* b, Client* c, FilterSlice* t, bint retained) noexcept nogil
# route_timeout is over for the packet that is handled again: begin the walk over the filters again, to withdraw them.
cdef bint filters_failed(Client* c, FilterSlice* t, const Frame* f) noexcept nogil
# Begin the walk over the filters again, for the retained messages after the acknowledgement.
cdef void filters_rewind(FilterSlice* t, const Frame* f, int version) noexcept nogil
# End the slice with the handler's result so far. If filters are left, the packet is handled again in a later turn. Returns the result of
# the handler: rc, PACKET_PENDING, or a reason code.
cdef int filters_end(Broker* b, Client* c, FilterSlice* t, int rc) noexcept nogil
