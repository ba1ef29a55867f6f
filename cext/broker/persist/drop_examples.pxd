# An example of each reason of drops: the last drop, for people who look for its cause. See drop_examples.pyx.
from libc.stdint cimport int64_t, uint8_t, uint32_t
from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.session.session cimport Session

cdef enum:
    EXAMPLE_ID_MAX = 256        # bytes kept of a client id
    EXAMPLE_TOPIC_MAX = 1024    # bytes kept of a topic

ctypedef struct DropExample:
    int64_t s                   # Unix time; 0 = there was no drop
    uint32_t n                  # bytes of the topic, and how many of them are kept
    uint32_t kept
    uint32_t id_n               # the same of the client id
    uint32_t id_kept
    uint8_t of_client           # 0: the message has no client
    uint8_t id[256]             # EXAMPLE_ID_MAX
    uint8_t topic[1024]         # EXAMPLE_TOPIC_MAX

cdef void drop_example_put(Broker* b, const Session* s, int reason, View topic) noexcept nogil
cdef void drop_examples_free(Broker* b) noexcept nogil


# Keep a drop as the example of its reason; the first one in each second is enough.
cdef inline void drop_example(Broker* b, const Session* s, int reason, View topic) noexcept nogil:
    if b.stats.drop_s[reason] != b.reactor.now_s:
        drop_example_put(b, s, reason, topic)


cdef inline const DropExample* drop_examples_of(const Broker* b) noexcept nogil:
    return <const DropExample*>b.drop_examples
