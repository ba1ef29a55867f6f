"""Write what is measured, the gauges of streams, and examples of drops, for the control plane. This module knows the layout of the answers. It does not know how
they are shown (mosq/server/http/metrics.py).

Observations: lost and passed-over probes, then for each histogram its count, its sum and its buckets, all numbers of 64 bits; nothing if
the broker measures nothing.
Drops, for each reason with an example: reason, whether there is a client, length of the topic, length of the client id (32 bits each), Unix
time (64 bits), then the kept bytes of the topic and of the client id, each with a length of 16 bits in front.
Drops by listener: the numbers of the whole broker by reason (64 bits each), then for each listener its port (16 bits), its name with a length
of 16 bits in front, and its numbers.
Cost: a copy of 6 KB.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport uint32_t, uint64_t

from cext.broker.admin.control_request cimport ControlRequest
from cext.broker.admin.inspect cimport out_put, out_text
from cext.broker.core.broker cimport Broker
from cext.broker.core.listener cimport Listener
from cext.broker.core.observed cimport Observed, observed_of
from cext.broker.core.stats cimport (
    DROP_REASONS, GAUGE_DISK_BYTES, GAUGE_ERRORS, GAUGE_LOST, GAUGE_RECORDS, GAUGE_RETIRED_RECORDS, GAUGE_RETIRED_UNREAD,
    GAUGE_WAITING_BYTES,
)
from cext.broker.persist.drop_examples cimport DropExample, drop_examples_of
from cext.broker.persist.streams cimport Stream


cdef void answer_observed(Broker* b, ControlRequest* a) noexcept nogil:
    cdef Observed* o = observed_of(b)
    if o == NULL or o.period == 0:
        return
    if out_put(a, &o.lost, 8) != 0 or out_put(a, &o.passed_over, 8) != 0 or out_put(a, o.at, sizeof(o.at)) != 0:
        a.result = ENOMEM


cdef void stream_gauges(const Stream* s, uint64_t* v) noexcept nogil:
    v[GAUGE_RECORDS] = s.records
    v[GAUGE_LOST] = s.lost
    v[GAUGE_WAITING_BYTES] = s.journal.loop.waiting_bytes
    v[GAUGE_DISK_BYTES] = s.stats.total_bytes
    v[GAUGE_RETIRED_RECORDS] = s.stats.retired_records
    v[GAUGE_RETIRED_UNREAD] = s.stats.forced_records
    v[GAUGE_ERRORS] = s.stats.errors


cdef int drop_example_write(ControlRequest* a, uint32_t reason, const DropExample* e) noexcept nogil:
    cdef uint32_t v[4]
    v[0] = reason
    v[1] = e.of_client
    v[2] = e.n
    v[3] = e.id_n
    if out_put(a, v, sizeof(v)) != 0 or out_put(a, &e.s, 8) != 0 or out_text(a, e.topic, e.kept) != 0:
        return -1
    return out_text(a, e.id, e.id_kept)


cdef void answer_drops(Broker* b, ControlRequest* a) noexcept nogil:
    cdef const DropExample* e = drop_examples_of(b)
    cdef uint32_t i
    if e == NULL:
        return
    for i in range(DROP_REASONS):
        if e[i].s and drop_example_write(a, i, &e[i]) != 0:
            a.result = ENOMEM
            return


cdef void answer_listener_drops(Broker* b, ControlRequest* a) noexcept nogil:
    cdef const Listener* l
    cdef uint32_t i
    if out_put(a, b.stats.drops, sizeof(b.stats.drops)) != 0:
        a.result = ENOMEM
        return
    for i in range(b.n_listeners):
        l = b.listeners[i]
        if out_put(a, &l.port, sizeof(l.port)) != 0 or out_text(a, l.name.p, l.name.n) != 0 or out_put(a, l.drops, sizeof(l.drops)) != 0:
            a.result = ENOMEM
            return
