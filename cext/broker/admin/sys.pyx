"""Publish the `$SYS` tree: statistics, averages and the gauges of streams. dev/statistics.toml declares the topics.

All messages go through the same route as other messages, so access rules, retained messages and subscriptions need no second way. The
timer fires every `sys_interval`, aligned to the wall clock; only values that changed are published.
"""

from libc.math cimport exp, fabs
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport strlen

from cext.base.wheel cimport Timer, wheel_add, wheel_remove
from cext.broker.admin.sys_topics cimport (
    SYS_ABOVE_ZERO, SYS_GAUGES, SYS_LOADS, SYS_TOPICS, SYS_WITH_STORE, SYS_WITH_WORKERS, SysTopic,
)
from cext.broker.admin.whole cimport whole_began_ms, whole_collect, whole_gauges
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport TIMER_SYS
from cext.broker.core.durable cimport TROUBLE_ERROR, TROUBLE_FULL
from cext.broker.core.publication_state cimport Publication, SCOPE_LOCAL
from cext.broker.core.stats cimport (
    Average, STATS_N, STAT_DISK_COMMITS, STAT_DISK_COMMITS_SECOND, STAT_DISK_MESSAGES_ELIDED,
    STAT_DISK_MESSAGES_ELIDED_PERCENT, STAT_DISK_MESSAGES_WRITTEN, STAT_DISK_TROUBLE, STREAM_GAUGES, SYS_LOADS_N, SYS_TOPICS_N,
)
from cext.broker.persist.publication cimport publication_fini, publication_init
from cext.broker.persist.streams cimport Stream, Streams, streams_of
from cext.broker.routing.retain cimport retain_store
from cext.broker.routing.route cimport route

cdef enum:
    SYS_NAME_MAX = 128          # bytes of a topic, with its terminating 0
    SYS_TEXT_MAX = 64           # bytes of a value as text, with its terminating 0

ctypedef struct Sys:
    uint64_t values[STATS_N]        # as of this update
    uint64_t sent[SYS_TOPICS_N]     # last published value of each topic
    uint8_t was_sent[SYS_TOPICS_N]  # 1: the topic has a published value
    uint64_t last_s                 # time of the last update, wall clock
    uint64_t commits                # committed batches as of the last update
    const char* state               # last published state of the store


cdef int sys_init(Broker* b) noexcept nogil:
    b.sys = calloc(1, sizeof(Sys))
    return 0 if b.sys != NULL else -1


cdef void sys_fini(Broker* b) noexcept nogil:
    free(b.sys)
    b.sys = NULL


cdef void sys_publish(Broker* b, const char* name, const char* text, int n) noexcept nogil:
    cdef char topic[SYS_NAME_MAX]
    cdef Publication p
    publication_init(&p)
    p.topic.n = <uint32_t>snprintf(topic, sizeof(topic), "$SYS/broker/%s", name)
    p.topic.p = <const uint8_t*>topic
    p.payload.p = <const uint8_t*>text
    p.payload.n = <uint32_t>n
    p.qos = 2
    p.retain = 1
    p.shaped = 1
    p.scope = SCOPE_LOCAL if b.links != NULL else 0      # each worker publishes the same tree for its subscribers
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
    if b.workers != NULL and not y.was_sent[0]:
        loads_begin(b, y)
    sys_update(b, y, 1.0)
    sys_schedule(b)


cdef void loads_begin(Broker* b, Sys* y) noexcept nogil:
    """A worker that was started again finds the counts of the others, which are no load of its first second."""
    cdef int i
    whole_collect(b, y.values)
    y.commits = y.values[STAT_DISK_COMMITS]
    for i in range(SYS_LOADS_N):
        b.loads[i].last = y.values[SYS_LOADS[i].stat]


cdef void sys_again(Broker* b) noexcept nogil:
    wheel_remove(&b.wheel, &b.sys_timer)
    sys_begin(b)


cdef void sys_schedule(Broker* b) noexcept nogil:
    cdef uint64_t interval = b.settings.sys_interval_s
    cdef uint64_t wait_s = interval - <uint64_t>b.reactor.now_s % interval
    wheel_add(&b.wheel, &b.sys_timer, b.reactor.now_ms + wait_s * 1000)


cdef void sys_timer_fired(Broker* b, Timer* t) noexcept nogil:
    cdef Sys* y = <Sys*>b.sys
    cdef uint64_t now_s = <uint64_t>b.reactor.now_s
    cdef double elapsed_s = <double>(now_s - y.last_s) if now_s > y.last_s else 1.0
    sys_update(b, y, elapsed_s)
    y.last_s = now_s
    sys_schedule(b)


cdef void sys_update(Broker* b, Sys* y, double elapsed_s) noexcept nogil:
    """Publish everything that changed since the last update, `elapsed_s` seconds ago."""
    cdef char text[SYS_TEXT_MAX]
    cdef int i
    sys_publish(b, "uptime", text, snprintf(text, sizeof(text), "%llu seconds",
                                            <unsigned long long>((b.reactor.now_ms - whole_began_ms(b)) // 1000)))
    whole_collect(b, y.values)
    if b.durable != NULL:
        store_rates(y, elapsed_s)
        publish_store_state(b, y)
    for i in range(SYS_TOPICS_N):
        publish_stat(b, y, i)
    publish_streams(b)
    for i in range(SYS_LOADS_N):
        averages_publish(b, &b.loads[i], SYS_LOADS[i].name, y.values[SYS_LOADS[i].stat], elapsed_s)


cdef void store_rates(Sys* y, double elapsed_s) noexcept nogil:
    """Compute the statistics of the store that are rates or shares, in hundredths."""
    cdef uint64_t* v = y.values
    cdef uint64_t written = v[STAT_DISK_MESSAGES_WRITTEN]
    cdef uint64_t elided = v[STAT_DISK_MESSAGES_ELIDED]
    v[STAT_DISK_COMMITS_SECOND] = <uint64_t>(<double>(v[STAT_DISK_COMMITS] - y.commits) * 100.0 / elapsed_s)
    v[STAT_DISK_MESSAGES_ELIDED_PERCENT] = elided * 10000 // (elided + written) if elided + written else 0
    y.commits = v[STAT_DISK_COMMITS]


cdef void publish_store_state(Broker* b, Sys* y) noexcept nogil:
    cdef uint64_t trouble = y.values[STAT_DISK_TROUBLE]
    cdef const char* state
    state = "full" if trouble & TROUBLE_FULL else "error" if trouble & TROUBLE_ERROR else "memory" if trouble else "ok"
    if y.state != state:
        y.state = state
        sys_publish(b, "store/state", state, <int>strlen(state))


cdef void publish_stat(Broker* b, Sys* y, int i) noexcept nogil:
    """Publish topic number `i` if its value changed, and if this broker shows it."""
    cdef const SysTopic* topic = &SYS_TOPICS[i]
    cdef uint64_t value = y.values[topic.stat]
    cdef char text[SYS_TEXT_MAX]
    cdef int n
    if topic.when == SYS_WITH_STORE and b.durable == NULL or topic.when == SYS_WITH_WORKERS and b.workers == NULL:
        return
    if topic.when == SYS_ABOVE_ZERO and value == 0:
        return
    if y.was_sent[i] and y.sent[i] == value:
        return
    y.was_sent[i] = 1
    y.sent[i] = value
    if topic.hundredths:
        n = snprintf(text, sizeof(text), "%llu.%02llu", <unsigned long long>(value // 100), <unsigned long long>(value % 100))
    else:
        n = snprintf(text, sizeof(text), "%llu", <unsigned long long>value)
    sys_publish(b, topic.topic, text, n)


cdef void publish_streams(Broker* b) noexcept nogil:
    cdef Streams* t = streams_of(b)
    cdef Stream* s
    cdef uint64_t v[STREAM_GAUGES]
    cdef uint32_t i
    cdef int k
    if t == NULL:
        return
    for i in range(t.n):
        s = t.at[i]
        whole_gauges(b, s, v)
        for k in range(STREAM_GAUGES):
            publish_gauge(b, s, k, v[k])


cdef void publish_gauge(Broker* b, Stream* s, int i, uint64_t value) noexcept nogil:
    cdef char topic[SYS_NAME_MAX]
    cdef char text[SYS_TEXT_MAX]
    if s.gauges[i] == value + 1:
        return
    s.gauges[i] = value + 1
    snprintf(topic, sizeof(topic), "streams%s/%s", <const char*>s.name, SYS_GAUGES[i])
    sys_publish(b, topic, text, snprintf(text, sizeof(text), "%llu", <unsigned long long>value))


cdef void averages_publish(Broker* b, Average* a, const char* name, uint64_t count, double elapsed_s) noexcept nogil:
    """Publish the exponential moving averages of a counter, per minute, over 1, 5 and 15 minutes."""
    cdef char topic[SYS_NAME_MAX]
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
