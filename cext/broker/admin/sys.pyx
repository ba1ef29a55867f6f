"""The $SYS tree [shared/reference 2.7]. Knows what is counted; everything goes out through the same route as any message, so ACLs, retained
handling and subscriptions need no second way. Published every sys_interval, aligned to the wall clock, and only what changed.
"""

from libc.math cimport exp, fabs
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport strlen


from cext.base.slab cimport slab_at, slab_end
from cext.base.wheel cimport Timer, wheel_add, wheel_remove
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client, TIMER_SYS
from cext.broker.core.durable cimport StoreGauges, TROUBLE_ERROR, TROUBLE_FULL
from cext.broker.core.publication_state cimport Publication
from cext.broker.core.stats cimport Average, DROP_REASONS
from cext.broker.persist.publication cimport publication_fini, publication_init
from cext.broker.persist.streams cimport Stream, Streams, streams_filters, streams_of
from cext.broker.routing.retain cimport retain_store
from cext.broker.routing.route cimport route
from cext.broker.storage.commit cimport durable_gauges
from cext.topic.explain cimport index_load_hundredths
from cext.topic.index cimport IndexStats, index_stats
from cext.topic.retained cimport retained_count

cdef enum:
    VALUES = 50
    TOPIC_MAX = 128
    SYS_TEXT_MAX = 64
    LOADS = 9

ctypedef struct Value:
    const char* topic            # under $SYS/broker/
    uint64_t now                 # in hundredths, when that is what it is
    uint64_t sent
    bint was_sent
    bint hundredths

ctypedef struct Sys:
    Value values[VALUES]
    Value drops[DROP_REASONS]
    uint64_t last_s
    uint64_t uptime_sent
    uint64_t commits             # as of the last time
    const char* state            # of the store, as sent


cdef int sys_init(Broker* b) noexcept nogil:
    b.sys = calloc(1, sizeof(Sys))
    return 0 if b.sys != NULL else -1


cdef void sys_fini(Broker* b) noexcept nogil:
    free(b.sys)
    b.sys = NULL


cdef void sys_publish(Broker* b, const char* name, const char* text, int n) noexcept nogil:
    cdef char topic[TOPIC_MAX]
    cdef Publication p
    publication_init(&p)
    p.topic.n = <uint32_t>snprintf(topic, sizeof(topic), "$SYS/broker/%s", name)
    p.topic.p = <const uint8_t*>topic
    p.payload.p = <const uint8_t*>text
    p.payload.n = <uint32_t>n
    p.qos = 2
    p.retain = 1
    p.shaped = 1
    retain_store(b, &p)
    route(b, &p, NULL)
    publication_fini(b, &p)


cdef void sys_begin(Broker* b) noexcept nogil:
    cdef Sys* y = <Sys*>b.sys
    if b.settings.sys_interval_s == 0:
        return
    sys_publish(b, "version", <const char*>b.settings.version.p, <int>b.settings.version.n)
    b.sys_timer.kind = TIMER_SYS
    y.last_s = <uint64_t>b.reactor.now_s
    publish_all(b, y, 1.0)
    schedule(b)


cdef void sys_again(Broker* b) noexcept nogil:
    wheel_remove(&b.wheel, &b.sys_timer)
    sys_begin(b)


cdef void schedule(Broker* b) noexcept nogil:
    cdef uint64_t interval = b.settings.sys_interval_s
    cdef uint64_t wait_s = interval - <uint64_t>b.reactor.now_s % interval
    wheel_add(&b.wheel, &b.sys_timer, b.reactor.now_ms + wait_s * 1000)


cdef void sys_timer_fired(Broker* b, Timer* t) noexcept nogil:
    cdef Sys* y = <Sys*>b.sys
    cdef uint64_t now_s = <uint64_t>b.reactor.now_s
    cdef double elapsed_s = <double>(now_s - y.last_s) if now_s > y.last_s else 1.0
    publish_all(b, y, elapsed_s)
    y.last_s = now_s
    schedule(b)


cdef void set_value(Sys* y, int i, const char* topic, uint64_t v) noexcept nogil:
    y.values[i].topic = topic
    y.values[i].now = v


cdef uint64_t packets_waiting(Broker* b) noexcept nogil:
    """PUBLISHes written to connections since these last had nothing unsent: an upper bound of what still waits."""
    cdef uint64_t n = 0
    cdef uint32_t i
    cdef Client* c
    if b.reactor.unsent_bytes == 0:
        return 0
    for i in range(slab_end(&b.clients)):
        c = <Client*>slab_at(&b.clients, i)
        if c != NULL and c.conn.out_bytes:
            n += c.out_packets
    return n


cdef void sys_collect(Broker* b, Sys* y) noexcept nogil:
    cdef IndexStats index
    index_stats(b.index, &index)
    cdef uint64_t connected = b.stats.clients_connected
    cdef uint64_t total = b.sessions.count
    cdef uint64_t offline = total - connected if total > connected else 0
    set_value(y, 0, "clients/total", total)
    set_value(y, 1, "clients/connected", connected)
    set_value(y, 2, "clients/active", connected)
    set_value(y, 3, "clients/disconnected", offline)
    set_value(y, 4, "clients/inactive", offline)
    set_value(y, 5, "clients/maximum", b.stats.clients_max)
    set_value(y, 6, "clients/expired", b.stats.clients_expired)
    set_value(y, 7, "messages/received", b.stats.messages_in)
    set_value(y, 8, "messages/sent", b.stats.messages_out)
    set_value(y, 9, "messages/stored", b.messages.count)
    set_value(y, 10, "store/messages/count", b.messages.count)
    set_value(y, 11, "store/messages/bytes", b.messages.bytes)
    set_value(y, 12, "publish/messages/received", b.stats.publish_in)
    set_value(y, 13, "publish/messages/sent", b.stats.publish_out)
    set_value(y, 14, "publish/messages/dropped", b.stats.publish_dropped)
    set_value(y, 15, "publish/bytes/received", b.stats.publish_bytes_in)
    set_value(y, 16, "publish/bytes/sent", b.stats.publish_bytes_out)
    set_value(y, 17, "bytes/received", b.reactor.bytes_in)
    set_value(y, 18, "bytes/sent", b.reactor.bytes_out)
    set_value(y, 19, "packet/out/bytes", b.reactor.unsent_bytes)
    set_value(y, 20, "connections/socket/count", b.stats.sockets)
    set_value(y, 21, "subscriptions/count", index.subscriptions)
    set_value(y, 22, "shared_subscriptions/count", index.shared - streams_filters(b))
    set_value(y, 23, "retained messages/count", retained_count(b.retained))
    set_value(y, 24, "packet/out/count", packets_waiting(b))
    set_value(y, 25, "heap/current", b.messages.bytes + b.reactor.buffers.used_bytes + index.bytes)
    collect_index(b, y, &index)


cdef void collect_index(Broker* b, Sys* y, const IndexStats* index) noexcept nogil:
    """What docs/index.md explains."""
    set_value(y, 26, "index/filters", index.filters)
    set_value(y, 27, "index/exact", index.exact)
    set_value(y, 28, "index/nodes", index.nodes)
    set_value(y, 29, "index/depth", index.depth)
    set_value(y, 30, "index/subscriptions", index.subscriptions)
    set_value(y, 31, "index/shared", index.shared - streams_filters(b))
    set_value(y, 32, "index/buckets", index.buckets)
    set_value(y, 33, "index/load", index_load_hundredths(b.index))
    y.values[33].hundredths = 1
    set_value(y, 34, "index/bytes", index.bytes)
    set_value(y, 35, "index/pool/in_use", b.clients.used)
    set_value(y, 36, "index/pool/idle", b.clients.idle)
    set_value(y, 37, "index/cache/hits", index.cache_hits)
    set_value(y, 38, "index/cache/misses", index.cache_misses)


cdef void collect_store(Broker* b, Sys* y, double elapsed_s) noexcept nogil:
    """What docs/storage.md explains; nothing without a store."""
    cdef StoreGauges g
    cdef const char* state
    if b.durable == NULL:
        return
    durable_gauges(b, &g)
    set_value(y, 39, "store/live/bytes", g.live_bytes)
    set_value(y, 40, "store/disk/bytes", g.total_bytes)
    set_value(y, 41, "store/disk/segments", g.segments)
    set_value(y, 42, "store/waiting/bytes", g.waiting_bytes)
    set_value(y, 43, "store/commits/count", g.commits)
    set_value(y, 44, "store/commits/second", <uint64_t>(<double>(g.commits - y.commits) * 100.0 / elapsed_s))
    y.values[44].hundredths = 1
    set_value(y, 45, "store/commits/time", g.commit_us)
    set_value(y, 46, "store/messages/written", g.written)
    set_value(y, 47, "store/messages/elided", g.elided)
    set_value(y, 48, "store/messages/elided_percent", g.elided * 10000 // (g.elided + g.written) if g.elided + g.written else 0)
    y.values[48].hundredths = 1
    set_value(y, 49, "store/errors", g.errors)
    y.commits = g.commits
    state = "full" if g.trouble & TROUBLE_FULL else "error" if g.trouble & TROUBLE_ERROR else "memory" if g.trouble else "ok"
    if y.state != state:
        y.state = state
        sys_publish(b, "store/state", state, <int>strlen(state))


cdef void publish_gauge(Broker* b, Stream* s, int i, const char* name, uint64_t v) noexcept nogil:
    cdef char topic[TOPIC_MAX]
    cdef char text[SYS_TEXT_MAX]
    if s.gauges[i] == v + 1:
        return
    s.gauges[i] = v + 1
    snprintf(topic, sizeof(topic), "streams%s/%s", <const char*>s.name, name)
    sys_publish(b, topic, text, snprintf(text, sizeof(text), "%llu", <unsigned long long>v))


cdef void publish_streams(Broker* b) noexcept nogil:
    """What docs/journal.md explains."""
    cdef Streams* t = streams_of(b)
    cdef Stream* s
    cdef uint32_t i
    if t == NULL:
        return
    for i in range(t.n):
        s = t.at[i]
        publish_gauge(b, s, 0, "records", s.records)
        publish_gauge(b, s, 1, "lost", s.lost)
        publish_gauge(b, s, 2, "waiting/bytes", s.journal.loop.waiting_bytes)
        publish_gauge(b, s, 3, "disk/bytes", s.stats.total_bytes)
        publish_gauge(b, s, 4, "retired/records", s.stats.retired_records)
        publish_gauge(b, s, 5, "retired/unread", s.stats.forced_records)
        publish_gauge(b, s, 6, "errors", s.stats.errors)


cdef inline void drops_named(Value* v) noexcept nogil:
    # in the order of DROP_...
    v[0].topic = "dropped/queue_messages"
    v[1].topic = "dropped/queue_bytes"
    v[2].topic = "dropped/qos0_blocked"
    v[3].topic = "dropped/output_bytes"
    v[4].topic = "dropped/packet_size"
    v[5].topic = "dropped/expired"
    v[6].topic = "dropped/acl_read"
    v[7].topic = "dropped/acl_write"
    v[8].topic = "dropped/memory"
    v[9].topic = "dropped/payload_size"
    v[10].topic = "dropped/quota"
    v[11].topic = "dropped/session_ended"
    v[12].topic = "dropped/retained"
    v[13].topic = "dropped/transform"
    v[14].topic = "dropped/disk"
    v[15].topic = "dropped/replaced"
    v[16].topic = "dropped/loop"
    v[17].topic = "dropped/unreadable"


cdef void collect_drops(Broker* b, Sys* y) noexcept nogil:
    """Why messages were dropped: publish/messages/dropped by its parts, and what is not counted there; those that ever happened."""
    cdef int i
    drops_named(y.drops)
    for i in range(DROP_REASONS):
        y.drops[i].now = b.stats.drops[i]


cdef int value_text(const Value* v, char* text, size_t cap) noexcept nogil:
    if v.hundredths:
        return snprintf(text, cap, "%llu.%02llu", <unsigned long long>(v.now // 100), <unsigned long long>(v.now % 100))
    return snprintf(text, cap, "%llu", <unsigned long long>v.now)


cdef void publish_all(Broker* b, Sys* y, double elapsed_s) noexcept nogil:
    cdef char text[SYS_TEXT_MAX]
    cdef int i
    sys_publish(b, "uptime", text, snprintf(text, sizeof(text), "%llu seconds",
                                        <unsigned long long>((b.reactor.now_ms - b.started_ms) // 1000)))
    sys_collect(b, y)
    collect_store(b, y, elapsed_s)
    collect_drops(b, y)
    for i in range(VALUES):
        publish_value(b, &y.values[i])
    for i in range(DROP_REASONS):
        if y.drops[i].now:
            publish_value(b, &y.drops[i])
    publish_streams(b)
    loads(b, elapsed_s)


cdef void publish_value(Broker* b, Value* v) noexcept nogil:
    cdef char text[SYS_TEXT_MAX]
    if v.topic == NULL or (v.was_sent and v.now == v.sent):
        return
    v.sent = v.now
    v.was_sent = 1
    sys_publish(b, v.topic, text, value_text(v, text, sizeof(text)))


cdef void loads(Broker* b, double elapsed_s) noexcept nogil:
    averages_publish(b, &b.loads[0], "messages/received", b.stats.messages_in, elapsed_s)
    averages_publish(b, &b.loads[1], "messages/sent", b.stats.messages_out, elapsed_s)
    averages_publish(b, &b.loads[2], "publish/dropped", b.stats.publish_dropped, elapsed_s)
    averages_publish(b, &b.loads[3], "publish/received", b.stats.publish_in, elapsed_s)
    averages_publish(b, &b.loads[4], "publish/sent", b.stats.publish_out, elapsed_s)
    averages_publish(b, &b.loads[5], "bytes/received", b.reactor.bytes_in, elapsed_s)
    averages_publish(b, &b.loads[6], "bytes/sent", b.reactor.bytes_out, elapsed_s)
    averages_publish(b, &b.loads[7], "sockets", b.stats.sockets, elapsed_s)
    averages_publish(b, &b.loads[8], "connections", b.stats.connections, elapsed_s)


cdef void averages_publish(Broker* b, Average* a, const char* name, uint64_t count, double elapsed_s) noexcept nogil:
    """Exponential moving averages, per minute, over 1, 5 and 15 minutes."""
    cdef char topic[TOPIC_MAX]
    cdef char text[SYS_TEXT_MAX]
    cdef int i
    cdef double minutes, rate = <double>(count - a.last) * 60.0 / elapsed_s
    a.last = count
    for i in range(3):
        minutes = 1.0 if i == 0 else 5.0 if i == 1 else 15.0
        a.value[i] = rate + exp(-elapsed_s / (60.0 * minutes)) * (a.value[i] - rate)
        if not a.was_sent or fabs(a.value[i] - a.sent[i]) >= 0.01:
            a.sent[i] = a.value[i]
            snprintf(topic, sizeof(topic), "load/%s/%dmin", name, <int>minutes)
            sys_publish(b, topic, text, snprintf(text, sizeof(text), "%.2f", a.value[i]))
    a.was_sent = 1
