# Rules by which a subscription gets a publication: its options, the QoS, the expiry.
from libc.stdint cimport uint8_t, uint64_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.publication_state cimport Publication

cdef enum:
    # bits of a subscription's options [v5 3.8.3.1]
    NO_LOCAL = 1 << 2
    RETAIN_AS_PUBLISHED = 1 << 3


cdef inline uint8_t qos_for(const Broker* b, const Publication* p, uint8_t options) noexcept nogil:
    if b.settings.upgrade_outgoing_qos or options & 3 < p.qos:
        return options & 3
    return p.qos


cdef inline bint is_expired(const Broker* b, uint64_t expires_ms) noexcept nogil:      # expires_ms 0 = never
    return expires_ms != 0 and expires_ms <= b.reactor.now_ms
