# Retained messages: store them, expire them, replay them to new subscriptions.
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from cext.base.view cimport View
from cext.base.wheel cimport Timer
from cext.broker.core.broker cimport Broker
from cext.broker.core.job_state cimport Job
from cext.broker.core.listener cimport Security
from cext.broker.core.publication_state cimport Publication
from cext.session.message cimport Message
from cext.session.record cimport RecordFrom
from cext.session.session cimport Session
from cext.topic.name cimport Filter

# A value of the retained tree is a Message, or, with the lowest bit set, a RetainedItem for the messages that need more.
ctypedef struct RetainedItem:
    Message* message
    Timer timer                 # timer of the expiry
    uint64_t expires_ms         # 0 = never
    char* source                # client id, 0, username, 0; set if check_retain_source is on, or for other workers
    Security* security          # rules that apply to the publisher
    uint32_t origin             # its listener, as the store keeps it; 0: no rules apply to the publisher
    uint16_t generation         # of a copy whose publisher is known

# Store p as its topic's retained message. An empty payload clears it [v5 3.3.1-6].
cdef void retain_store(Broker* b, Publication* p) noexcept nogil
# The same for a message of a publisher: the worker that owns the topic stores it, and sends copies to all. It sets p.owner for route.
cdef void retain_put(Broker* b, Publication* p) noexcept nogil
cdef Message* retained_message(Broker* b, View topic) noexcept nogil     # NULL = the topic has none
# The record of a retained message's publisher, which follows the message's record if check_retain_source is on. The first
# function returns the bytes that the record takes; the second writes it into reserved room.
cdef bint publisher_record_of(Broker* b, View topic, RecordFrom* out) noexcept nogil      # 0 = it is not stored
cdef uint64_t retained_from_bytes(Broker* b, View topic) noexcept nogil
cdef void retained_from_record(Broker* b, View topic) noexcept nogil
# in recovery: sets the publisher of the topic's retained message
cdef void retained_from(Broker* b, const RecordFrom* r) noexcept nogil
# The publisher of a retained message, as in frames to other workers; empty if it is not known.
cdef View retained_publisher(Broker* b, const Message* m) noexcept nogil
# The copy of another worker's retained message has come with this connection. It is kept as the copy's source_hash if no publisher is known.
cdef void copy_count(Broker* b, View topic, uint16_t generation) noexcept nogil
cdef uint64_t copy_generation(void* value) noexcept nogil
cdef Message* message_in(void* value) noexcept nogil                # message of a value of the retained tree
cdef void value_free(Broker* b, void* value) noexcept nogil          # frees a value of the retained tree
cdef void retained_expired(Broker* b, Timer* t) noexcept nogil
# Send the retained messages that match a new subscription [v5 3.3.1-9..11]: a first slice at once, the rest as the session's one
# replay job.
cdef void replay_begin(Broker* b, Session* s, const Filter* f) noexcept nogil
# Return whether sending on the session's behalf must wait, because a delivery now would be dropped. jobs_unblock is called when
# it can continue.
cdef bint sending_congested(Broker* b, Session* s) noexcept nogil
# Return whether one more filter of n bytes may wait for its replay.
cdef bint replay_has_room(Session* s, uint32_t n) noexcept nogil
cdef bint replay_slice(Broker* b, Job* j) noexcept nogil             # 1 = done
cdef void replay_end(Broker* b, Job* j) noexcept nogil
