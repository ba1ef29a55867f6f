# PUBLISH packets to the broker itself, answered only to the client that asked. See handle_control.pyx.
from libc.string cimport memcmp
from cext.base.view cimport View
from cext.broker.auth.auth_requests cimport AuthAnswer
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport CF_BRIDGE, Client
from cext.codec.decode cimport Publish


# Return whether the topic is a control topic. A client with a mount point cannot reach them: all its topics are below the mount
# point.
cdef inline bint control_topic(const Client* c, View topic) noexcept nogil:
    return (topic.n >= 9 and topic.p[0] == c'$' and c.listener.mount_point.n == 0 and not c.flags & CF_BRIDGE
            and memcmp(topic.p, <const char*>b"$CONTROL/", 9) == 0)


# Answer a control request, or send it to the control plane. `allowed`: a plugin's verdict, or BY_RULES. Returns the reason code
# for the acknowledgement, or PACKET_PENDING: there is no room now, and the packet is handled again.
cdef int control_handle(Broker* b, Client* c, const Publish* p, int allowed) noexcept nogil
# answer of the control plane; 0 = the client that asked is gone
cdef bint control_answered(Broker* b, const AuthAnswer* a) noexcept nogil
