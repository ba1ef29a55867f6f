"""Convert requests for traces from dictionaries to structs, and events from bytes to records (mosq/records.py). This module knows both forms. It does
not know what an event means.

    kind: "client", "topic" or "address"      what: bytes of the client id or filter; for an address b""
    network: 16 bytes (IPv4: mapped), bits: of its prefix, port: 0 = any
    owner: handle of the client that asked     most: events until the end
    rate: events per second, payload: bytes of a payload, seconds: time limit
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy, memset

from cext.base.pybytes cimport view_of
from cext.broker.core.broker cimport Broker
from cext.broker.core.trace_state cimport (
    TRACE_ADDRESS, TRACE_CLIENT, TRACE_PAYLOAD_MAX, TRACE_RATE_MAX, TRACE_SECONDS_MAX, TRACE_TOPIC, TRACES_MAX, TraceRecord, TraceSpec,
    Tracing, trace_count_get,
)
from cext.broker.trace.ring cimport ring_swap
from cext.setup.requests cimport records_of
from cext.topic.name cimport Filter, filter_parse

TRACE_KINDS = {"client": TRACE_CLIENT, "topic": TRACE_TOPIC, "address": TRACE_ADDRESS}


cdef int spec_read(TraceSpec* s, dict given, bytes what) except -1:
    cdef Filter f
    cdef bytes network = given.get("network") or bytes(16)
    memset(s, 0, sizeof(TraceSpec))
    s.kind = <uint8_t><int>TRACE_KINDS[given["kind"]]
    s.what = view_of(what)
    if s.kind == TRACE_TOPIC and (filter_parse(s.what.p, s.what.n, &f) != 0 or f.group.n):
        raise ValueError("no topic filter")
    if len(network) != 16 or not 0 <= given.get("bits", 0) <= 128 or not 0 <= given.get("port", 0) <= 65535:
        raise ValueError("no address")
    memcpy(s.network.ip, <const char*>network, 16)
    s.network.bits = <uint8_t><int>given.get("bits", 0)
    s.port = <uint16_t><int>given.get("port", 0)
    for name, most in (("rate", TRACE_RATE_MAX), ("payload", TRACE_PAYLOAD_MAX), ("seconds", TRACE_SECONDS_MAX)):
        if not 0 <= given[name] <= most:
            raise ValueError(f"{name}: expected 0 to {most}")
    s.owner = given["owner"]
    s.most = given["most"]
    s.rate = given["rate"]
    s.payload_max = given["payload"]
    s.seconds = given["seconds"]
    return 0


cdef str trace_text_at(const uint8_t* p, uint32_t n):
    return (<const char*>p)[:n].decode("utf-8", "replace")


cdef trace_record_of(records, const TraceRecord* r):
    cdef const uint8_t* id = <const uint8_t*>r + sizeof(TraceRecord)
    cdef const uint8_t* address = id + r.id_n
    cdef const uint8_t* local = address + r.address_n
    cdef const uint8_t* topic = local + r.local_n
    cdef const uint8_t* text = topic + r.topic_n
    cdef const uint8_t* head = text + r.text_n
    return records.TraceEvent(
        r.us, r.kind, r.slots, r.client, trace_text_at(id, r.id_n), trace_text_at(address, r.address_n), trace_text_at(local, r.local_n), r.port, r.listener, r.version, r.code, r.qos,
        r.queue, trace_text_at(topic, r.topic_n), trace_text_at(text, r.text_n), (<const char*>head)[:r.head_n],
        (<const char*>head)[r.head_n:r.head_n + r.payload_n], r.total)


cdef list events_take(Broker* b):
    cdef Tracing* t = <Tracing*>b.tracing
    cdef uint32_t n = 0
    cdef uint32_t at = 0
    cdef const uint8_t* p
    cdef const TraceRecord* r
    out = []
    if t == NULL:
        return out
    with nogil:
        p = ring_swap(t, &n)
    records = records_of()
    while at < n:
        r = <const TraceRecord*>(p + at)
        out.append(trace_record_of(records, r))
        at += r.size
    return out


cdef tuple losses_of(Broker* b, slot):
    cdef Tracing* t = <Tracing*>b.tracing
    cdef uint32_t i = slot
    if t == NULL or i >= TRACES_MAX:
        return 0, 0
    return trace_count_get(&t.slots[i].limited), trace_count_get(&t.slots[i].lost)
