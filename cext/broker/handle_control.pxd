# Questions to the broker itself, asked by PUBLISH and answered to who asked alone. See handle_control.pyx.
from libc.stdint cimport uint8_t
from libc.string cimport memcmp
from cext.base.view cimport View
from cext.broker.broker cimport Broker, CF_LINK, Client
from cext.codec.decode cimport Publish
from cext.net.reactor cimport Address

cdef enum:
    CONTROL_TOPIC_BYTES = 22


# Is this a question? A client with a mount point has no way to ask: its topics all lie below that.
cdef inline bint control_topic(const Client* c, View topic) noexcept nogil:
    return (topic.n == CONTROL_TOPIC_BYTES and topic.p[0] == c'$' and c.door.mount_point.n == 0 and not c.flags & CF_LINK
            and memcmp(topic.p, <const char*>b"$CONTROL/mosq/index/v1", CONTROL_TOPIC_BYTES) == 0)


# Answers a question (control_topic) of QoS 0 or 1; the reason code for its PUBACK: not 0: there was no answer.
cdef uint8_t control_answer(Broker* b, Client* c, const Publish* p) noexcept nogil
# Is the peer on this machine: over a unix socket or the loopback interface?
cdef bint address_local(const Address* a) noexcept nogil
