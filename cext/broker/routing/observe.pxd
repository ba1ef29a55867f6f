# Observation of sampled messages. See observe.pyx.
from libc.stdint cimport uint64_t
from cext.broker.core.broker cimport Broker
from cext.broker.core.observed cimport Hot, HotWindow
from cext.broker.core.publication_state cimport Publication
from cext.session.session cimport Session

# Begin, change or end the observation, as the settings ask for. Without memory nothing is observed.
cdef void observe_begin(Broker* b) noexcept nogil
cdef void observe_end(Broker* b) noexcept nogil                     # frees the memory
# Count the time of a match, and decide which message is observed next.
cdef void observe_match(Broker* b, uint64_t ns) noexcept nogil
# Follow the delivery of the message to one subscriber of the whole match b.match, before the deliveries are made.
cdef void observe_delivery(Broker* b, const Publication* p) noexcept nogil
# Count the message's topic, its publisher and the subscribers of the match b.match.
cdef void observe_hot(Broker* b, const Publication* p) noexcept nogil
cdef void observe_receiver(Broker* b, const Session* s, const Publication* p, uint64_t deliveries) noexcept nogil
# Make empty windows; the caller frees them with free. NULL: no memory.
cdef Hot* hot_new(uint64_t now_us) noexcept nogil
# Return the window of `now_us`, a time of the monotonic clock; a time before this window counts for this window.
cdef HotWindow* hot_window(Hot* h, uint64_t now_us) noexcept nogil
# Return the time that both windows cover together, after hot_window with the same time.
cdef uint64_t hot_age_us(const Hot* h, uint64_t now_us) noexcept nogil
cdef void hot_delay(Broker* b, const Session* s, uint64_t us) noexcept nogil
cdef void observe_flushed(Broker* b) noexcept nogil                 # at the end of a turn in which n_probes is not 0
