"""Collect the statistics that `Engine.stats()`, `$SYS` and the HTTP API show. dev/statistics.toml declares their names, units and topics;
this module knows where each value is. Cost: one pass over the client contexts while output waits for sockets."""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

from cext.base.slab cimport slab_at, slab_end
from cext.broker.auth.auth_requests cimport auth_requests_pending
from cext.broker.core.broker cimport Broker
from cext.broker.core.client_state cimport Client
from cext.broker.core.durable cimport StoreGauges
from cext.broker.core.link_state cimport BrokerLinks, links_of
from cext.broker.core.resident cimport heap_bytes
from cext.broker.core.stats cimport (
    DROP_REASONS, REFUSED_REASONS, STATS_N, STAT_ANSWERS_STALE, STAT_AUTH_REQUESTS, STAT_AUTH_REQUESTS_PENDING,
    STAT_AUTH_REQUESTS_TIMED_OUT, STAT_BUFFERS_IDLE_BYTES, STAT_BUFFERS_USED_BYTES, STAT_BYTES_IN, STAT_BYTES_OUT,
    STAT_CLIENTS_CONNECTED, STAT_CLIENTS_DISCONNECTED, STAT_CLIENTS_EXPIRED, STAT_CLIENTS_MAX, STAT_CLIENTS_TOTAL,
    STAT_CONNECTIONS, STAT_CONNECTIONS_ROOM, STAT_DISK_COMMITS, STAT_DISK_COMMIT_US, STAT_DISK_ERRORS, STAT_DISK_LIVE_BYTES,
    STAT_DISK_MESSAGES_ELIDED, STAT_DISK_MESSAGES_WRITTEN, STAT_DISK_SEGMENTS, STAT_DISK_SEGMENTS_CLEANED, STAT_DISK_SYNCS,
    STAT_DISK_TOTAL_BYTES, STAT_DISK_TROUBLE, STAT_DISK_WAITING_BYTES, STAT_DROPS, STAT_EVENTS_LOST, STAT_FILTERS, STAT_UPGRADES,
    STAT_UPGRADES_CLOSED, STAT_UPGRADES_MOVED, STAT_UPGRADE_PAUSE_US,
    STAT_HEAP_BYTES, STAT_HEAP_BYTES_MAX, STAT_INDEX_BUCKETS, STAT_INDEX_BYTES, STAT_INDEX_CACHE_HITS, STAT_INDEX_CACHE_MISSES, STAT_INDEX_DEPTH,
    STAT_INDEX_EXACT, STAT_INDEX_LOAD, STAT_INDEX_NODES, STAT_LINKS_BYTES_IN, STAT_LINKS_BYTES_OUT, STAT_MESSAGES_IN, STAT_MESSAGES_OUT, STAT_NEWCOMERS, STAT_NEWCOMERS_BYTES, STAT_POOL_IDLE, STAT_POOL_USED,
    STAT_PROTOCOL_DISCONNECTS, STAT_PUBLISH_BYTES_IN, STAT_PUBLISH_BYTES_OUT, STAT_PUBLISH_DROPPED, STAT_PUBLISH_IN,
    STAT_PUBLISH_OUT, STAT_REFUSED, STAT_RESIDENT_BYTES, STAT_RETAINED, STAT_RETAINED_SYSTEM, STAT_RETAINED_TREE_BYTES, STAT_SHARED_SUBSCRIPTIONS,
    STAT_SOCKETS, STAT_STORE_BYTES, STAT_STORE_MESSAGES, STAT_SUBSCRIPTIONS, STAT_TLS_HANDSHAKES, STAT_TLS_HANDSHAKES_FAILED, STAT_TURN_US_MAX, STAT_TURN_WORK_MAX,
    STAT_UNSENT_BYTES, STAT_UNSENT_PACKETS, STAT_WORK,
)
from cext.broker.lifecycle.accept cimport connections_room
from cext.broker.persist.streams cimport streams_filters
from cext.broker.storage.commit cimport durable_gauges
from cext.topic.explain cimport index_load_hundredths
from cext.topic.index cimport IndexStats, index_stats
from cext.topic.retained cimport retained_bytes, retained_count, retained_system


cdef void stats_collect(Broker* b, uint64_t* v) noexcept nogil:
    cdef int i
    memset(v, 0, STATS_N * sizeof(uint64_t))
    stats_of_clients(b, v)
    stats_of_messages(b, v)
    stats_of_index(b, v)
    stats_of_store(b, v)
    v[STAT_HEAP_BYTES] = heap_bytes(b)
    v[STAT_HEAP_BYTES_MAX] = b.heap_max if b.heap_max > v[STAT_HEAP_BYTES] else v[STAT_HEAP_BYTES]
    v[STAT_WORK] = b.work
    v[STAT_TURNS] = b.reactor.turns
    v[STAT_TURN_WORK_MAX] = b.turn_work_max
    v[STAT_TURN_US_MAX] = b.turn_us_max
    v[STAT_AUTH_REQUESTS] = b.stats.auth_requests
    v[STAT_AUTH_REQUESTS_PENDING] = auth_requests_pending(b)
    v[STAT_AUTH_REQUESTS_TIMED_OUT] = b.stats.auth_request_timeouts
    v[STAT_ANSWERS_STALE] = b.stats.answers_stale
    v[STAT_EVENTS_LOST] = b.stats.events_lost
    v[STAT_UPGRADES] = b.handovers.upgrades
    v[STAT_UPGRADES_MOVED] = b.handovers.moved
    v[STAT_UPGRADES_CLOSED] = b.handovers.closed
    v[STAT_UPGRADE_PAUSE_US] = b.handovers.pause_us
    for i in range(DROP_REASONS):
        v[STAT_DROPS + i] = b.stats.drops[i]
    for i in range(REFUSED_REASONS):
        v[STAT_REFUSED + i] = b.stats.refused[i]


cdef void stats_of_clients(Broker* b, uint64_t* v) noexcept nogil:
    cdef uint64_t connected = b.stats.clients_connected
    cdef uint64_t total = b.sessions.count
    v[STAT_CLIENTS_CONNECTED] = connected
    v[STAT_CLIENTS_TOTAL] = total
    v[STAT_CLIENTS_DISCONNECTED] = total - connected if total > connected else 0
    v[STAT_CLIENTS_MAX] = b.stats.clients_max
    v[STAT_CLIENTS_EXPIRED] = b.stats.clients_expired
    v[STAT_CONNECTIONS] = b.stats.connections
    v[STAT_SOCKETS] = b.stats.sockets
    v[STAT_CONNECTIONS_ROOM] = connections_room(b)
    v[STAT_TLS_HANDSHAKES] = b.reactor.handshakes
    v[STAT_TLS_HANDSHAKES_FAILED] = b.reactor.handshakes_failed
    v[STAT_NEWCOMERS] = b.newcomers_n
    v[STAT_NEWCOMERS_BYTES] = b.newcomers_bytes
    v[STAT_RESIDENT_BYTES] = b.resident if b.settings.memory_limit else 0
    v[STAT_PROTOCOL_DISCONNECTS] = b.stats.protocol_disconnects
    v[STAT_BYTES_IN] = b.reactor.bytes_in
    v[STAT_BYTES_OUT] = b.reactor.bytes_out
    v[STAT_LINKS_BYTES_IN] = b.reactor.inner_in
    v[STAT_LINKS_BYTES_OUT] = b.reactor.inner_out
    v[STAT_UNSENT_BYTES] = b.reactor.unsent_bytes - links_unsent(b)
    v[STAT_UNSENT_PACKETS] = packets_unsent(b)
    v[STAT_BUFFERS_USED_BYTES] = b.reactor.buffers.used_bytes
    v[STAT_BUFFERS_IDLE_BYTES] = b.reactor.buffers.idle_bytes
    v[STAT_POOL_USED] = b.clients.used
    v[STAT_POOL_IDLE] = b.clients.idle


cdef uint64_t links_unsent(Broker* b) noexcept nogil:
    """Return the bytes that wait for the sockets of links."""
    cdef BrokerLinks* l = links_of(b)
    cdef uint64_t n = 0
    cdef uint32_t slot
    cdef int way
    if l != NULL:
        for slot in range(l.n):
            for way in range(2):
                n += l.peers[slot].conns[way].conn.out_bytes if l.peers[slot].conns[way] != NULL else 0
    return n


cdef uint64_t packets_unsent(Broker* b) noexcept nogil:
    """Return an upper bound of the PUBLISH packets that wait for sockets: all that were written to a connection since its output was empty."""
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


cdef void stats_of_messages(Broker* b, uint64_t* v) noexcept nogil:
    v[STAT_MESSAGES_IN] = b.stats.messages_in
    v[STAT_MESSAGES_OUT] = b.stats.messages_out
    v[STAT_PUBLISH_IN] = b.stats.publish_in
    v[STAT_PUBLISH_OUT] = b.stats.publish_out
    v[STAT_PUBLISH_BYTES_IN] = b.stats.publish_bytes_in
    v[STAT_PUBLISH_BYTES_OUT] = b.stats.publish_bytes_out
    v[STAT_PUBLISH_DROPPED] = b.stats.publish_dropped
    v[STAT_STORE_MESSAGES] = b.messages.count
    v[STAT_STORE_BYTES] = b.messages.bytes
    v[STAT_RETAINED] = retained_count(b.retained)
    v[STAT_RETAINED_SYSTEM] = retained_system(b.retained)
    v[STAT_RETAINED_TREE_BYTES] = retained_bytes(b.retained)


cdef void stats_of_index(Broker* b, uint64_t* v) noexcept nogil:
    cdef IndexStats index
    cdef uint32_t slot
    index_stats(b.index, &index)
    v[STAT_SUBSCRIPTIONS] = index.subscriptions
    v[STAT_SHARED_SUBSCRIPTIONS] = index.shared - streams_filters(b)
    if b.links != NULL:                 # routes of other workers count there
        for slot in range(links_of(b).n):
            v[STAT_SUBSCRIPTIONS] -= links_of(b).peers[slot].session.owner.n
        v[STAT_SUBSCRIPTIONS] += links_of(b).shared_routes
        v[STAT_SHARED_SUBSCRIPTIONS] -= links_of(b).shared_routes
    v[STAT_FILTERS] = index.filters
    v[STAT_INDEX_EXACT] = index.exact
    v[STAT_INDEX_NODES] = index.nodes
    v[STAT_INDEX_DEPTH] = index.depth
    v[STAT_INDEX_BUCKETS] = index.buckets
    v[STAT_INDEX_LOAD] = index_load_hundredths(b.index)
    v[STAT_INDEX_BYTES] = index.bytes
    v[STAT_INDEX_CACHE_HITS] = index.cache_hits
    v[STAT_INDEX_CACHE_MISSES] = index.cache_misses


cdef void stats_of_store(Broker* b, uint64_t* v) noexcept nogil:
    cdef StoreGauges g
    durable_gauges(b, &g)
    v[STAT_DISK_TROUBLE] = g.trouble
    v[STAT_DISK_LIVE_BYTES] = g.live_bytes
    v[STAT_DISK_TOTAL_BYTES] = g.total_bytes
    v[STAT_DISK_SEGMENTS] = g.segments
    v[STAT_DISK_WAITING_BYTES] = g.waiting_bytes
    v[STAT_DISK_COMMITS] = g.commits
    v[STAT_DISK_COMMIT_US] = g.commit_us
    v[STAT_DISK_MESSAGES_WRITTEN] = g.written
    v[STAT_DISK_MESSAGES_ELIDED] = g.elided
    v[STAT_DISK_SYNCS] = g.syncs
    v[STAT_DISK_SEGMENTS_CLEANED] = g.cleaned
    v[STAT_DISK_ERRORS] = g.errors
