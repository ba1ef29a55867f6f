"""Keep an example of each reason of drops. This module does not know why a message was dropped.

Memory: 25 KB from the first drop on. Cost: one comparison for each drop, and a copy of at most 1.3 KB for each reason and second.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from cext.base.view cimport View
from cext.broker.core.broker cimport Broker
from cext.broker.core.stats cimport DROP_REASONS
from cext.session.session cimport Session


cdef void drop_example_put(Broker* b, const Session* s, int reason, View topic) noexcept nogil:
    cdef DropExample* e
    b.stats.drop_s[reason] = b.reactor.now_s
    if b.drop_examples == NULL:
        b.drop_examples = calloc(DROP_REASONS, sizeof(DropExample))
        if b.drop_examples == NULL:
            return
    e = <DropExample*>b.drop_examples + reason
    e.s = b.reactor.now_s
    e.n = topic.n
    e.kept = topic.n if topic.n < EXAMPLE_TOPIC_MAX else <uint32_t>EXAMPLE_TOPIC_MAX
    if e.kept:
        memcpy(e.topic, topic.p, e.kept)
    e.of_client = s != NULL
    e.id_n = s.id_len if s != NULL else 0
    e.id_kept = e.id_n if e.id_n < EXAMPLE_ID_MAX else <uint32_t>EXAMPLE_ID_MAX
    if e.id_kept:
        memcpy(e.id, s.client_id, e.id_kept)


cdef void drop_examples_free(Broker* b) noexcept nogil:
    free(b.drop_examples)
    b.drop_examples = NULL
