# Events of clients, for the stream of events (docs/journal.md has the table). Each function does nothing without such a stream: one predictable
# branch.
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.persist.streams cimport streams_want_events
from cext.session.session cimport Session

cdef enum:
    # reasons of a disconnect without an MQTT code
    EVENT_CLOSED = 0x40         # by the peer, without DISCONNECT
    EVENT_BROKEN = 0x41         # another error of the socket

cdef void event_connected_write(Broker* b, Client* c, bint clean, bint present) noexcept nogil
cdef void event_refused_write(Broker* b, Client* c, uint8_t rc) noexcept nogil
cdef void event_disconnected_write(Broker* b, Client* c, int reason) noexcept nogil
cdef void event_subscribed_write(Broker* b, const Session* s, View filter, uint8_t options, uint32_t sub_id, bint restored) noexcept nogil
cdef void event_unsubscribed_write(Broker* b, const Session* s, View filter) noexcept nogil
cdef void event_dropped_write(Broker* b, const Session* s, int reason, View topic) noexcept nogil
cdef void event_expired_write(Broker* b, const Session* s) noexcept nogil
cdef void event_started_write(Broker* b, uint64_t n_sessions, uint64_t n_subscriptions) noexcept nogil


cdef inline void event_connected(Broker* b, Client* c, bint clean, bint present) noexcept nogil:
    if streams_want_events(b):
        event_connected_write(b, c, clean, present)


# Report a CONNECT that is refused, with the reason code for a v5 client; 0: there is none.
cdef inline void event_refused(Broker* b, Client* c, uint8_t rc) noexcept nogil:
    if streams_want_events(b):
        event_refused_write(b, c, rc)


# Report a disconnect, before the client leaves its session. A take-over is reported first.
cdef inline void event_disconnected(Broker* b, Client* c, int reason) noexcept nogil:
    if streams_want_events(b):
        event_disconnected_write(b, c, reason)


# filter: with $share/GROUP/ and the mount point
cdef inline void event_subscribed(Broker* b, const Session* s, View filter, uint8_t options, uint32_t sub_id) noexcept nogil:
    if streams_want_events(b):
        event_subscribed_write(b, s, filter, options, sub_id, 0)


cdef inline void event_unsubscribed(Broker* b, const Session* s, View filter) noexcept nogil:
    if streams_want_events(b):
        event_unsubscribed_write(b, s, filter)


# s: its session; NULL: none
cdef inline void event_dropped(Broker* b, const Session* s, int reason, View topic) noexcept nogil:
    if streams_want_events(b):
        event_dropped_write(b, s, reason, topic)


cdef inline void event_expired(Broker* b, const Session* s) noexcept nogil:
    if streams_want_events(b):
        event_expired_write(b, s)
