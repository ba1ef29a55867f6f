# PUBLISHes to the broker itself, answered to who asked alone. See handle_control.pyx.
from libc.string cimport memcmp
from cext.base.view cimport View
from cext.broker.auth.auth_requests cimport Answer
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport CF_BRIDGE, Client
from cext.codec.decode cimport Publish
from cext.net.reactor cimport Address


# Is this for the broker itself? A client with a mount point has no way to ask: its topics all lie below that.
cdef inline bint control_topic(const Client* c, View topic) noexcept nogil:
    return (topic.n >= 9 and topic.p[0] == c'$' and c.listener.mount_point.n == 0 and not c.flags & CF_BRIDGE
            and memcmp(topic.p, <const char*>b"$CONTROL/", 9) == 0)


# Answers or hands over what was published to such a topic; `allowed`: a plugin's word, or BY_RULES. The reason code for its acknowledgement.
# PARKED: there is no room now, the packet comes up again.
cdef int control_take(Broker* b, Client* c, const Publish* p, int allowed) noexcept nogil
cdef bint control_answered(Broker* b, const Answer* a) noexcept nogil    # by the control plane; 0: who asked is gone
# Is the peer on this machine: over a unix socket or the loopback interface?
cdef bint address_local(const Address* a) noexcept nogil
