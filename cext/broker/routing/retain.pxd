# Retained messages: stored, expired, replayed to new subscriptions.
from libc.stdint cimport uint32_t, uint64_t
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

# What the retained tree keeps is a Message, or, with the lowest bit set, one of these: for the few that need more.
ctypedef struct RetainedItem:
    Message* message
    Timer timer                 # its expiry
    uint64_t expires_ms         # 0: never
    char* source                # with check_retain_source: client id, 0, username, 0
    Security* security          # the rules that count for it

# Keeps p as its topic's retained message; an empty payload clears it [v5 3.3.1-6].
cdef void retain_store(Broker* b, Publication* p) noexcept nogil
cdef Message* retained_message(Broker* b, View topic) noexcept nogil     # NULL: the topic has none
# Who published it, on record behind it: where check_retain_source keeps that. What the record takes; the record, for which there is room.
cdef uint64_t retained_from_bytes(Broker* b, View topic) noexcept nogil
cdef void retained_from_kept(Broker* b, View topic) noexcept nogil
cdef void retained_from(Broker* b, const RecordFrom* r) noexcept nogil       # recovery: of the topic's retained message
cdef void value_free(Broker* b, void* value) noexcept nogil          # of the retained tree
cdef void retained_expired(Broker* b, Timer* t) noexcept nogil
# Sends what is retained under a new subscription [v5 3.3.1-9..11]: a first slice at once, the rest as the session's one replay job.
cdef void replay_begin(Broker* b, Session* s, const Filter* f) noexcept nogil
# Must what is sent on the session's behalf wait, rather than be dropped? Then jobs_unblock is called when it need not any more.
cdef bint crowded(Broker* b, Session* s) noexcept nogil
# Is there room for one more filter of n bytes to wait for its turn?
cdef bint replay_has_room(Session* s, uint32_t n) noexcept nogil
cdef bint replay_slice(Broker* b, Job* j) noexcept nogil             # 1: done
cdef void replay_end(Broker* b, Job* j) noexcept nogil
