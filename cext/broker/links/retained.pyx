"""The owner of a topic's retained message, and the copies that it sends to the others. This module knows the links, not the tree of retained messages.
"""

from libc.stdint cimport uint8_t, uint32_t

from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.durable cimport durable_of
from cext.broker.core.link_state cimport links_of
from cext.broker.core.settings cimport DURABILITY_GROUP
from cext.link.links cimport link_owner, link_retained
from cext.session.message cimport Message


cdef uint8_t retained_owner(Broker* b, View topic) noexcept nogil:
    cdef uint32_t owner = link_owner(&links_of(b).links, topic)
    return <uint8_t>(owner + 1) if owner != links_of(b).links.self else 0


cdef void retained_announce(Broker* b, Message* m) noexcept nogil:
    cdef bint recorded = b.durable != NULL and durable_of(b).level >= DURABILITY_GROUP and durable_of(b).dirty
    link_retained(&links_of(b).links, m, links_of(b).batch if recorded else 0)
